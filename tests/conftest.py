"""Fixtures: where real tables are, and clusters of worker processes shared by the tests of one process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, settings

from daskpriv.engine import cache

# A machine that stands still for seconds is no fault of an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HERE = Path(__file__).parent
BUNDLED = HERE.parent / "daskpriv" / "data" / "adult"
SHARED = HERE.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def adult() -> Path:
    """The bundled adult tables: train, holdout, synthetic_good, synthetic_leaky."""
    return BUNDLED


@pytest.fixture(scope="session")
def shared() -> Path:
    """The full collection of real tables; tests that need it say so loudly when it is missing."""
    if not SHARED.is_dir():
        pytest.skip("the collection of published tables (../shared/data) is not beside this clone")
    return SHARED


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """No test lives on what another one left in this process."""
    yield
    cache.forget()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Callable[[int], Client]]:
    """Clients of local clusters by number of worker processes; each cluster is started once."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    started: dict[int, tuple[LocalCluster, Client]] = {}

    def get(workers: int) -> Client:
        if workers not in started:
            made = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
            started[workers] = (made, Client(made, set_as_default=False))
        return started[workers][1]

    yield get
    for made, client in started.values():
        client.close()
        made.close()
