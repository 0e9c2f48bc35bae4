"""Tables on S3, Google and Azure storage: the same numbers as from the local disk, and one sentence otherwise."""

from __future__ import annotations

import json
import pickle
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import daskpriv
from daskpriv.errors import DaskprivError, InputError
from daskpriv.report.model import check_writable
from daskpriv.tables.files import shown
from daskpriv.tables.open import open_table
from daskpriv.tables.schema import Schema
from daskpriv.tables.sinks import get, join, listing, put, remove
from daskpriv.tables.stores import details, filesystem
from tests import ports
from tests.cloud.servers import ACCOUNT, KEY, SECRET, Cloud

pytestmark = pytest.mark.xdist_group("cloud")

Source = str | list[str]
SHAPES: dict[str, Callable[[str, str], Source]] = {
    "directory": lambda root, name: f"{root}/{name}/",
    "glob": lambda root, name: f"{root}/{name}/*/part-*.parquet",
    "pattern": lambda root, name: f"{root}/{name}/year=202[01]/part-?-?.parquet",
    "file": lambda root, name: f"{root}/{name}.parquet",
    "list": lambda root, name: [
        f"{root}/{name}/year={y}/part-{i}-{h}.parquet" for i, y in ((0, 2020), (1, 2021)) for h in (0, 1)
    ],
    "csv": lambda root, name: f"{root}/{name}.csv",
    "gzip": lambda root, name: f"{root}/{name}.csv.gz",
}


def content(source: Any, block: int = 70) -> pa.Table:
    table = open_table(source, "train")
    parts = [part.read(table.schema.names) for part in table.parts(block)]
    return pa.concat_tables(parts).combine_chunks()


def given(root: str, shape: str) -> dict[str, Source]:
    return {name: SHAPES[shape](root, name) for name in ("train", "holdout", "synthetic")}


def numbers(report: daskpriv.Report) -> dict[str, Any]:
    """All of a report but where the tables were, when and how long."""
    found = report.to_dict()
    return {key: found[key] for key in ("metrics", "gates", "overall", "warnings", "space")}


def sentence(call: Callable[[], object], kind: type[DaskprivError] = InputError) -> str:
    with pytest.raises(DaskprivError) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert "\n" not in text and text.endswith(".") and not re.search(r"[a-z)]\. [A-Z]", text), text
    assert SECRET not in text and KEY not in text and "canary" not in text
    assert caught.value.__cause__ is None and (caught.value.__context__ is None or caught.value.__suppress_context__)
    return text


@pytest.mark.parametrize("shape", SHAPES)
def test_reads_the_same_rows(cloud: Cloud, folder: Path, shape: str) -> None:
    root = cloud.url("").rstrip("/")
    assert content(SHAPES[shape](root, "train")).equals(content(SHAPES[shape](str(folder), "train")))


def test_same_report_from_the_cloud_and_to_it(cloud: Cloud, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = daskpriv.evaluate(**given(str(folder), "directory"))
    report = daskpriv.evaluate(**given(cloud.url("").rstrip("/"), "directory"))
    assert numbers(report) == numbers(expected)
    out = cloud.url("reports of ü/run 1")
    check_writable(out)
    assert listing(out) == {}
    report.to_json(join(out, "report.json"))
    report.to_html(join(out, "deep", "er", "report.html"))
    assert set(listing(out)) == {"report.json", "deep/er/report.html"}
    assert json.loads(get(join(out, "report.json"))) == json.loads(report.to_json())
    page = get(join(out, "deep", "er", "report.html")).decode()
    assert page == report.to_html()
    for text in (page, report.to_json(), caplog.text):
        assert SECRET not in text and KEY not in text


def test_schema_from_the_cloud(cloud: Cloud) -> None:
    described = "daskpriv_schema: 1\ncolumns:\n  age: numeric\n"
    put(cloud.url("schema.yaml"), described.encode())
    assert Schema.load(cloud.url("schema.yaml")) == Schema.from_yaml(described)
    assert "does not exist" in sentence(lambda: Schema.load(cloud.url("none.yaml")))


def test_a_part_travels_without_credentials(cloud: Cloud) -> None:
    (part,) = open_table(cloud.url("train/"), "train").parts(1000)
    packed = pickle.dumps(part)
    assert len(packed) < 10_000
    for secret in (SECRET, KEY, "AKIAEXAMPLE"):
        assert secret.encode() not in packed
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).read(['age', 'year']).num_rows)"
    done = subprocess.run([sys.executable, "-c", script], input=packed, capture_output=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (b"160", b"")


def test_put_replaces_and_remove_forgives(cloud: Cloud) -> None:
    folder = cloud.url("small files")
    put(join(folder, "a"), b"one")
    put(join(folder, "a"), b"three")
    put(join(folder, "b/c"), b"")
    assert get(join(folder, "a")) == b"three"
    assert listing(folder) == {"a": 5, "b/c": 0}
    remove(join(folder, "a"))
    remove(join(folder, "a"))
    remove(join(folder, "b/c"))
    assert listing(folder) == {}
    with pytest.raises(FileNotFoundError):
        get(join(folder, "a"))


def test_a_replaced_object_is_noticed(cloud: Cloud, folder: Path) -> None:
    url = cloud.url("changing.parquet")
    put(url, (folder / "train.parquet").read_bytes())
    table = open_table(url, "train")
    put(url, (folder / "holdout.parquet").read_bytes())
    assert "changed while it was read" in sentence(lambda: [p.read(["age"]) for p in table.parts(60)])
    remove(url)
    assert "changed while it was read" in sentence(lambda: [p.read(["income"]) for p in table.parts(60)])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nothing.parquet", "does not exist; check the path"),
        ("nothing/", "does not exist; check the path"),
        ("nothing/*.parquet", "no file matches"),
        ("", "mixes CSV and Parquet"),
    ],
)
def test_nothing_there(cloud: Cloud, path: str, says: str) -> None:
    text = sentence(lambda: open_table(cloud.url(path), "holdout"))
    assert text.startswith("holdout: ") and says in text and shown(cloud.url(path)) in text


def test_no_bucket(cloud: Cloud) -> None:
    for path in ("x.parquet", "x/", "*.parquet"):
        text = sentence(lambda path=path: open_table(f"{cloud.scheme}://not-a-bucket/{path}", "train"))
        assert "does not exist; check its name" in text and "not-a-bucket" in text
    where = f"{cloud.scheme}://not-a-bucket/out"
    assert "does not exist; make it" in sentence(lambda: check_writable(where))
    assert listing(where) == {}


def test_endpoint_down(s3: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # The packages for the other clouds try a refused connection again until our limit of 25 s: measured by hand.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    with ports.reserved() as nobody:
        for key, value in s3.at(ports.number(nobody)).items():
            monkeypatch.setenv(key, value)
        text = sentence(lambda: open_table(s3.url("train/"), "train"))
        assert "cannot be reached (EndpointConnectionError); check the URL, the network, the credentials and" in text
        assert "cannot be reached" in sentence(lambda: check_writable(s3.url("out")))


def test_no_answer(s3: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for key, value in s3.at(silent.getsockname()[1]).items():
            monkeypatch.setenv(key, value)
        fs, path = filesystem(s3.url("train"))
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            details(fs, path, limit=1.0)
        assert time.monotonic() - began < 50


@pytest.mark.parametrize(("kind", "variable"), [("s3", "AWS_PROFILE"), ("azure", "AZURE_STORAGE_CONNECTION_STRING")])
def test_credentials_are_needed_and_new_ones_used_at_once(
    servers: Callable[[str], Cloud], monkeypatch: pytest.MonkeyPatch, kind: str, variable: str
) -> None:
    cloud = servers(kind)
    open_ones = {"AWS_ENDPOINT_URL", "AWS_EC2_METADATA_DISABLED"}
    for key in open_ones & set(cloud.env):
        monkeypatch.setenv(key, cloud.env[key])
    text = sentence(lambda: open_table(cloud.url("train/"), "train"))
    assert "no usable credentials" in text and variable in text
    assert "no usable credentials" in sentence(lambda: check_writable(cloud.url("out")))
    for key, value in cloud.env.items():
        monkeypatch.setenv(key, value)
    assert open_table(cloud.url("train.parquet"), "train").rows == 160


def test_wrong_credentials(
    servers: Callable[[str], Cloud],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    azure = servers("azure")
    wrong = "Y2FuYXJ5" + KEY[8:]
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", azure.env["AZURE_STORAGE_CONNECTION_STRING"].replace(KEY, wrong)
    )
    capfd.readouterr()
    text = sentence(lambda: open_table(azure.url("train/"), "train"))
    assert "was refused; check the credentials (AZURE_STORAGE_CONNECTION_STRING" in text
    assert "was refused" in sentence(lambda: check_writable(azure.url("out")))
    seen = capfd.readouterr()
    assert seen.err == "" and seen.out == ""
    assert wrong not in caplog.text and wrong not in text and ACCOUNT not in text


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:canary@bucket/x",
        "s3://canary@bucket/x",
        "gs://bucket/x?access_token=canary",
        "https://host/x.parquet?sv=1&sig=canary",
        "https://host/x.parquet#token=canary",
        "abfs://c@account.dfs.core.windows.net/x?sig=canary",
    ],
)
def test_credentials_in_urls_are_refused_and_not_repeated(url: str) -> None:
    assert "the URL carries a credential" in sentence(lambda: open_table(url, "train"))
    assert "the URL carries a credential" in sentence(lambda: check_writable(url))


def test_an_account_in_the_url_reaches_the_workers() -> None:
    from adlfs import AzureBlobFileSystem

    from daskpriv.tables.files import _url

    path = AzureBlobFileSystem._strip_protocol("abfs://c@account.dfs.core.windows.net/t/x.parquet")
    fs = type("Fs", (), {"unstrip_protocol": staticmethod(lambda p: "abfs://" + p)})()
    for typed in ("abfs://c@account.dfs.core.windows.net/t/", "abfs://account.dfs.core.windows.net/c/t/"):
        made = _url(fs, path, typed)
        assert AzureBlobFileSystem._strip_protocol(made) == path
        assert AzureBlobFileSystem._get_kwargs_from_urls(made) == {"account_name": "account"}
