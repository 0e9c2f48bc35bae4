"""Tables on a plain web server, which cannot list and often ignores byte ranges."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import daskpriv
from daskpriv.errors import RunError
from daskpriv.report.model import check_writable
from daskpriv.tables.open import open_table
from tests.cloud.proxy import Proxy
from tests.cloud.servers import free_port
from tests.cloud.test_clouds import content, given, numbers, sentence

pytestmark = pytest.mark.xdist_group("cloud")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("shape", ["file", "list", "csv", "gzip"])
def test_reads_the_same_rows(port: int, folder: Path, shape: str) -> None:
    web = given(f"http://127.0.0.1:{port}", shape)["train"]
    assert content(web).equals(content(given(str(folder), shape)["train"]))


def test_same_report(port: int, folder: Path) -> None:
    report = daskpriv.evaluate(**given(f"http://127.0.0.1:{port}", "file"))
    assert numbers(report) == numbers(daskpriv.evaluate(**given(str(folder), "file")))
    assert report.inputs["tables"]["train"]["source"] == [f"http://127.0.0.1:{port}/train.parquet"]


def test_a_query_is_sent_but_not_shown(port: int) -> None:
    table = open_table(f"http://127.0.0.1:{port}/train.csv?download=1", "train")
    assert table.rows == 160 and table.source == (f"http://127.0.0.1:{port}/train.csv",)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("train/", "is a folder or a pattern, which http cannot list; list the files"),
        ("train/*.parquet", "is a folder or a pattern, which http cannot list; list the files"),
        ("train", "is a folder or a web page, not a file; give the URL of each file"),
        ("nothing.parquet", "does not exist; check the path"),
    ],
)
def test_one_sentence(port: int, path: str, says: str) -> None:
    assert says in sentence(lambda: open_table(f"http://127.0.0.1:{port}/{path}", "train"))


def test_refused_busy_and_down(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    for fault, kind, says in (("403", None, "was refused; check the URL"), ("503", RunError, "just now (HTTP 503)")):
        with Proxy(port, lambda number, request, fault=fault: fault) as proxy:
            url = f"{proxy.url}/train.parquet"
            text = sentence(lambda url=url: open_table(url, "train"), *([kind] if kind else []))
        assert says in text
    down = f"http://127.0.0.1:{free_port()}/train.parquet"
    assert "cannot be reached (ClientConnectorError); check" in sentence(lambda: open_table(down, "train"))


def test_cut_answers(port: int, folder: Path) -> None:
    with Proxy(port, lambda number, request: "cut" if number % 3 == 2 else "") as proxy:
        found = content(f"{proxy.url}/holdout.csv")
    assert proxy.spoiled and found.equals(content(str(folder / "holdout.csv")))


def test_reports_cannot_be_written(port: int) -> None:
    assert "cannot be written over http" in sentence(lambda: check_writable(f"http://127.0.0.1:{port}/out"))
