"""Fixtures: one server of each kind for the tests of one process, and the same tables on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskpriv.tables.sinks import put
from daskpriv.tables.stores import filesystem
from tests.cloud.servers import SERVERS, Cloud

CLEARED = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "GCSFS_")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of whoever runs the tests."""
    for key in list(os.environ):
        if key.startswith(CLEARED):
            monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Callable[[str], Cloud]]:
    """The server of a kind with the test tables on it, started when first asked for."""
    started: dict[str, Cloud] = {}
    skipped: dict[str, str] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Cloud:
            if kind in skipped:
                pytest.skip(skipped[kind])
            if kind not in started:
                try:
                    cloud = stack.enter_context(SERVERS[kind](tmp_path_factory.mktemp(kind)))
                except pytest.skip.Exception as reason:
                    skipped[kind] = str(reason)
                    raise
                _fill(cloud, folder)
                started[kind] = cloud
            return started[kind]

        yield get


@pytest.fixture(params=sorted(SERVERS))
def cloud(
    request: pytest.FixtureRequest, servers: Callable[[str], Cloud], monkeypatch: pytest.MonkeyPatch, bare: None
) -> Cloud:
    """Each kind of server in turn, set up in the environment."""
    found = servers(request.param)
    for key, value in found.env.items():
        monkeypatch.setenv(key, value)
    return found


@pytest.fixture
def s3(servers: Callable[[str], Cloud], monkeypatch: pytest.MonkeyPatch, bare: None) -> Cloud:
    """The S3 server, set up in the environment."""
    found = servers("s3")
    for key, value in found.env.items():
        monkeypatch.setenv(key, value)
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test tables on the local disk."""
    root = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(("train", "holdout", "synthetic")):
        frame = rows(seed)
        for part, (year, some) in enumerate(frame.groupby("year")):
            plain = pa.Table.from_pandas(some.drop(columns="year"), preserve_index=False)
            for half in (0, 1):
                target = root / name / f"year={year}" / f"part-{part}-{half}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(plain.slice(half * 40, 40), target, row_group_size=25)
        (root / name / "_SUCCESS").touch()
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), root / f"{name}.parquet", row_group_size=50)
        frame.to_csv(root / f"{name}.csv", index=False)
        frame.to_csv(root / f"{name}.csv.gz", index=False)
    return root


def rows(seed: int, n: int = 160) -> pd.DataFrame:
    """A small mixed table with two years of equal size."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": np.round(rng.normal(3e4, 1e4, n), 2),
            "city": rng.choice(["Graz", "Linz", "Wien", "Ä b/c"], n),
            "year": np.repeat(["2020", "2021"], n // 2),
        }
    )


def _fill(cloud: Cloud, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for key, value in cloud.env.items():
            patch.setenv(key, value)
        fs, _ = filesystem(cloud.url(""))
        fs.mkdir(cloud.bucket)
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            put(cloud.url(path.relative_to(folder).as_posix()), path.read_bytes())
