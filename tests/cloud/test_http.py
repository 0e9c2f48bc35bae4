"""Tables on a plain web server, which cannot list and often ignores byte ranges."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner

import daskpriv
from daskpriv.cli import cli
from daskpriv.errors import RunError
from daskpriv.report.model import check_writable
from daskpriv.tables.open import open_table
from daskpriv.tables.stores import await_answer
from tests import ports
from tests.cloud.proxy import Proxy
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
    with ports.reserved() as nobody:
        down = f"http://127.0.0.1:{ports.number(nobody)}/train.parquet"
        assert "cannot be reached (ClientConnectorError); check" in sentence(lambda: open_table(down, "train"))


@pytest.fixture
def late(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server whose port is taken, but which answers when it is told to come only."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.server_bind()

    def come() -> None:
        server.server_activate()
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    yield f"http://127.0.0.1:{server.server_address[1]}", come
    server.shutdown()
    server.server_close()


def test_a_store_that_comes_later(
    late: tuple[str, Callable[[], None]], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a job and its stores start together, an error would end the job for good."""
    url, come = late
    told = list[str]()

    def warned(sentence: str) -> None:
        told.append(sentence)
        come()

    monkeypatch.setattr("daskpriv.cli.evaluate.warn", warned)
    command = ["evaluate", f"--train={url}/train.parquet", f"--holdout={folder / 'holdout.parquet'}", "--quiet"]
    with dask.config.set({"daskpriv.store-wait": "10 minutes"}):
        done = CliRunner().invoke(cli, [*command, f"--synthetic={url}/synthetic.parquet", f"--output={tmp_path}"])
    assert done.exit_code == 0, done.stderr
    where = f"train: the store of '{url}/train.parquet'"
    assert told == [f"{where} does not answer yet; waiting up to 600 seconds for it."]


def test_one_wait_for_all_that_lies_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the setting says, and not once for every table."""
    told = list[str]()
    monkeypatch.setattr("daskpriv.cli.evaluate.warn", told.append)
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    with ports.reserved() as nobody, dask.config.set({"daskpriv.store-wait": "1 second"}):
        given = [
            f"--{n}=http://127.0.0.1:{ports.number(nobody)}/{n}.parquet" for n in ("train", "holdout", "synthetic")
        ]
        done = CliRunner().invoke(cli, ["evaluate", *given, f"--output={tmp_path}", "--quiet"])
    assert done.exit_code == 2
    assert len(told) == 1


def test_a_store_that_never_comes_or_says_no(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    told = list[str]()
    with ports.reserved() as nobody:
        await_answer(f"http://127.0.0.1:{ports.number(nobody)}/train.parquet", 2.5, lambda: told.append("late"))
    assert told == ["late"]
    with Proxy(port, lambda number, request: "403") as proxy:
        await_answer(f"{proxy.url}/train.parquet", 3600, lambda: told.append("refused"))
    await_answer("train.parquet", 3600, lambda: told.append("a file"))
    assert told == ["late"]


def test_cut_answers(port: int, folder: Path) -> None:
    with Proxy(port, lambda number, request: "cut" if number % 3 == 2 else "") as proxy:
        found = content(f"{proxy.url}/holdout.csv")
    assert proxy.spoiled and found.equals(content(str(folder / "holdout.csv")))


def test_reports_cannot_be_written(port: int) -> None:
    assert "cannot be written over http" in sentence(lambda: check_writable(f"http://127.0.0.1:{port}/out"))
