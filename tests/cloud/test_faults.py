"""A server that stumbles: the same numbers, or one sentence; and no more requests than needed."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskpriv
from daskpriv.errors import RunError
from daskpriv.report.model import write_atomically
from daskpriv.tables.open import open_table
from daskpriv.tables.sinks import get, listing, put
from tests.cloud.proxy import Proxy, Request
from tests.cloud.servers import Cloud
from tests.cloud.test_clouds import content, given, numbers, sentence

pytestmark = pytest.mark.xdist_group("cloud")

Through = Callable[..., Proxy]


@pytest.fixture
def through(s3: Cloud, monkeypatch: pytest.MonkeyPatch) -> Through:
    """Set up the environment so that everything goes through this proxy."""

    def use(proxy: Proxy) -> Proxy:
        for key, value in s3.at(proxy.port).items():
            monkeypatch.setenv(key, value)
        return proxy

    return use


def every(period: int, fault: str, only: str = "") -> Callable[[int, Request], str]:
    return lambda number, request: fault if number % period == 0 and only in ("", request.method) else ""


def shaken(number: int, request: Request) -> str:
    """A fifth of the requests fails in one way or another, in no order."""
    return {0: "503", 1: "reset", 2: "cut", 3: "slow"}.get(number * 7919 % 20, "")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts as ever, but without the pauses between them."""
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize(
    "fault", [every(4, "503"), every(3, "cut", "GET"), every(4, "reset"), shaken], ids=["503", "cut", "reset", "shaken"]
)
def test_same_report_from_a_stumbling_server(
    s3: Cloud, folder: Path, through: Through, fault: Callable[[int, Request], str], request: pytest.FixtureRequest
) -> None:
    if fault is not shaken:
        request.getfixturevalue("hasty")
    expected = daskpriv.evaluate(**given(str(folder), "file"))
    with Proxy(s3.port, fault) as proxy:
        through(proxy)
        report = daskpriv.evaluate(**given(s3.url("").rstrip("/"), "file"))
        write_atomically(s3.url("stumbled/report.json"), report.to_json())
        written = get(s3.url("stumbled/report.json")).decode()
        assert set(listing(s3.url("stumbled"))) == {"report.json"}
    assert len(proxy.spoiled) >= 3
    assert numbers(report) == numbers(expected)
    assert written == report.to_json()


@pytest.mark.parametrize("shape", ["csv", "gzip", "file"])
def test_same_rows_from_a_stumbling_server(s3: Cloud, folder: Path, through: Through, hasty: None, shape: str) -> None:
    with Proxy(s3.port, every(3, "reset")) as proxy:
        through(proxy)
        found = content(given(s3.url("").rstrip("/"), shape)["train"])
    assert proxy.spoiled
    assert found.equals(content(given(str(folder), shape)["train"]))


@pytest.mark.parametrize("fault", ["503", "cut", "reset"])
def test_a_server_that_stays_away(s3: Cloud, through: Through, hasty: None, fault: str) -> None:
    down = [False]
    with Proxy(s3.port, lambda number, request: fault if down[0] else "") as proxy:
        through(proxy)
        table = open_table(s3.url("train/"), "train")
        down[0] = True
        began = time.monotonic()
        text = sentence(lambda: [part.read(["age"]) for part in table.parts(1000)], RunError)
        assert time.monotonic() - began < 150
    assert text.startswith("train: file 'part-") and "cannot be reached just now" in text and "run again" in text


def test_refused_in_the_middle_of_a_run(s3: Cloud, through: Through) -> None:
    refused = [False]
    with Proxy(s3.port, lambda number, request: "403" if refused[0] else "") as proxy:
        through(proxy)
        table = open_table(s3.url("train.parquet"), "train")
        refused[0] = True
        assert "was refused; check the credentials (AWS_PROFILE" in sentence(
            lambda: [part.read(["age"]) for part in table.parts(1000)]
        )
        assert "was refused" in sentence(lambda: open_table(s3.url("holdout/"), "holdout"))
        assert "was refused" in sentence(lambda: write_atomically(s3.url("out.json"), "x"))


def test_only_the_needed_columns_travel(s3: Cloud, through: Through) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i}": rng.normal(size=40_000) for i in range(10)})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10_000, compression="none", use_dictionary=False)
    put(s3.url("wide.parquet"), sink.getvalue())
    with Proxy(s3.port) as proxy:
        through(proxy)
        opened = open_table(s3.url("wide.parquet"), "train")
        assert proxy.count("GET") == 1 and proxy.count("HEAD") == 1 and proxy.bytes_read <= 1 << 16
        proxy.seen.clear()
        parts = list(opened.parts(5_000))
        found = pa.concat_tables([part.read(["c3", "c7"]) for part in parts])
    assert found.equals(table.select(["c3", "c7"]))
    # For each row group one request for each column, and one to see whether the file is still the same.
    assert proxy.count("HEAD") == 4 and proxy.count("GET") == 8
    assert proxy.bytes_read < 40_000 * 8 * 2.1
    assert not any(request.lists for request in proxy.seen)


def test_many_small_files_cost_one_listing_and_one_footer_each(s3: Cloud, through: Through) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), sink)
    for i in range(30):
        put(s3.url(f"many/part-{i:03}.parquet"), sink.getvalue())
    with Proxy(s3.port) as proxy:
        through(proxy)
        table = open_table(s3.url("many/"), "train")
        # HEAD and a first listing tell that it is a folder, the second listing tells what is in it.
        assert proxy.count("GET") == 30 and proxy.count("HEAD") <= 1 and sum(r.lists for r in proxy.seen) <= 2
        proxy.seen.clear()
        (part,) = table.parts(1000)
        assert part.read(["a"]).column("a").to_pylist() == [1, 2] * 30
        assert proxy.count("GET") == 30 and proxy.count("HEAD") == 30
