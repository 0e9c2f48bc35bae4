"""Whole evaluations survive faults, or go on after them, with the same bits; `python -m tests.cluster` does more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import daskpriv
from tests.cluster import matrix, run_cli, tables
from tests.cluster.certificates import tls_works
from tests.cluster.harness import RealCluster
from tests.cluster.matrix import Lane, Record
from tests.cluster.netns import namespaces_work

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("faults")]

no_network = namespaces_work() or tls_works()
ROWS, BLOCK_ROWS = 4_000, 400


@pytest.fixture(scope="module")
def lane() -> Iterator[Lane]:
    with matrix.lanes(rows=ROWS, block_rows=BLOCK_ROWS, workers=2) as lane:
        yield lane


@pytest.mark.parametrize(
    "fault",
    [
        matrix.kill_one,
        matrix.client_killed,
        matrix.interrupted,
        matrix.interrupted_locally,
        matrix.store_flipped,
        matrix.store_foreign,
        matrix.scheduler_killed,
    ],
)
def test_a_run_goes_on(lane: Lane, fault: Callable[[Lane], Record]) -> None:
    record = fault(lane)
    assert record.good, str(record)


@pytest.mark.skipif(no_network is not None, reason=no_network or "")
def test_a_run_survives_a_partition() -> None:
    with matrix.lanes(rows=ROWS, block_rows=BLOCK_ROWS, workers=2, namespaces=True, tls=True) as lane:
        record = matrix.partitioned(lane, 12)
    assert record.good, str(record)


def test_same_bits_on_any_cluster(tmp_path: Path) -> None:
    made = tables.small(tmp_path / "tables", rows=1_500)

    def numbers(block_rows: int, client: object = None) -> str:
        out = tmp_path / f"out-{block_rows}"
        daskpriv.evaluate(**made.given(), output=out, block_rows=block_rows, client=client)
        return run_cli.numbers(run_cli.read(out) or {})

    expected = numbers(1_000)  # threads of this process
    with RealCluster(1, nanny=False) as cluster, cluster.client() as client:
        for workers, block_rows in ((1, 200), (2, 300), (4, 190)):
            while len(cluster.alive_workers()) < workers:
                cluster.start_worker()
            assert numbers(block_rows, client) == expected
    with RealCluster(2, threads=2, nanny=False) as cluster, cluster.client() as client:
        assert numbers(250, client) == expected
