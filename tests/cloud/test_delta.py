"""Delta tables: the newest version is read, wherever it is; what plain files cannot tell is refused."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from daskpriv.tables.open import open_table
from daskpriv.tables.sinks import put
from tests.cloud.servers import Cloud
from tests.cloud.test_clouds import content, sentence

pytestmark = pytest.mark.xdist_group("cloud")

FIRST = pa.table(
    {
        "age": [31, 42, 53, 64],
        "income": [1.5, 2.5, None, 4.5],
        "city": ["Graz", "a b/ü", "x=1", None],
        "day": [date(2020, 1, 31)] * 4,
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table with a new column, a deletion, a checkpoint and a version after it."""
    root = tmp_path_factory.mktemp("delta") / "people"
    deltalake.write_deltalake(root, FIRST, partition_by=["city", "day"])
    wider = FIRST.append_column("zip", pa.array([1, 2, 3, 4]))
    deltalake.write_deltalake(root, wider, mode="append", schema_mode="merge")
    made = deltalake.DeltaTable(root)
    made.delete("age = 42")
    made.create_checkpoint()
    deltalake.write_deltalake(root, wider.slice(0, 1), mode="append")
    return root


def rows(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(found[c].to_pylist() for c in ("age", "income", "city", "day", "zip")), strict=True), key=repr)


EXPECTED = sorted(
    [
        (31, 1.5, "Graz", date(2020, 1, 31), None),
        (53, None, "x=1", date(2020, 1, 31), None),
        (64, 4.5, None, date(2020, 1, 31), None),
        (31, 1.5, "Graz", date(2020, 1, 31), 1),
        (53, None, "x=1", date(2020, 1, 31), 3),
        (64, 4.5, None, date(2020, 1, 31), 4),
        (31, 1.5, "Graz", date(2020, 1, 31), 1),
    ],
    key=repr,
)


def test_newest_version(table: Path) -> None:
    opened = open_table(table, "train")
    assert opened.source == (f"{table} (Delta version 4)",) or opened.source == (f"{table} (Delta version 3)",)
    assert {f.name: str(f.type) for f in opened.schema} == {
        "age": "int64",
        "income": "double",
        "city": "string",
        "day": "date32[day]",
        "zip": "int64",
    }
    assert rows(content(str(table))) == EXPECTED
    assert rows(content([table], block=2)) == EXPECTED


def test_newest_version_in_the_cloud(cloud: Cloud, table: Path) -> None:
    for path in (p for p in table.rglob("*") if p.is_file()):
        put(cloud.url(f"delta/{path.relative_to(table).as_posix()}"), path.read_bytes())
    assert rows(content(cloud.url("delta/"))) == EXPECTED
    assert "holds Delta tables in folders; point at one of them" not in str(open_table(cloud.url("delta"), "train"))


def test_the_log_alone_when_the_pointer_is_damaged(table: Path, tmp_path: Path) -> None:
    copy = copied(table, tmp_path)
    (copy / "_delta_log" / "_last_checkpoint").write_text("{", "utf-8")
    assert rows(content(str(copy))) == EXPECTED


def copied(table: Path, folder: Path) -> Path:
    for path in (p for p in table.rglob("*") if p.is_file()):
        target = folder / "copy" / path.relative_to(table)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return folder / "copy"


def simple(folder: Path, change: Any) -> Path:
    """A table of one version whose log lines went through `change`."""
    root = folder / "simple"
    deltalake.write_deltalake(root, FIRST.select(["age", "income"]))
    (log,) = (root / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    log.write_text("\n".join(json.dumps(change(line)) for line in lines), "utf-8")
    return root


def with_features(line: dict[str, Any], *features: str) -> dict[str, Any]:
    if "protocol" in line:
        line["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": list(features),
        }
    return line


def deleting(line: dict[str, Any]) -> dict[str, Any]:
    line = with_features(line, "deletionVectors")
    if "add" in line:
        line["add"]["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": 1,
            "sizeInBytes": 34,
            "cardinality": 1,
        }
    return line


def mapped(line: dict[str, Any]) -> dict[str, Any]:
    line = with_features(line, "columnMapping")
    if "metaData" in line:
        line["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        schema = json.loads(line["metaData"]["schemaString"])
        for i, field in enumerate(schema["fields"]):
            names = {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": f"col-{i}"}
            field["metadata"] = names
        line["metaData"]["schemaString"] = json.dumps(schema)
    return line


def elsewhere(line: dict[str, Any]) -> dict[str, Any]:
    if "add" in line:
        line["add"]["path"] = "s3://other/part.parquet"
    return line


def gone(line: dict[str, Any]) -> dict[str, Any]:
    if "add" in line:
        line["add"]["path"] = "gone.parquet"
    return line


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (deleting, "has deletion vectors, which daskpriv does not read; purge them"),
        (mapped, "uses columnMapping, which daskpriv does not read; write a plain copy of it"),
        (elsewhere, "has files outside its folder"),
        (gone, "file 'gone.parquet' of Delta table"),
        (lambda line: {} if "metaData" in line else line, "cannot be read"),
        (lambda line: {} if "add" in line else line, "has no rows"),
    ],
    ids=["deletion vectors", "column mapping", "shallow clone", "missing file", "damaged log", "no rows"],
)
def test_refused(tmp_path: Path, change: Any, says: str) -> None:
    root = simple(tmp_path, change)
    assert says in sentence(lambda: open_table(root, "train"))


def test_deletion_vectors_allowed_but_not_used(tmp_path: Path) -> None:
    root = simple(tmp_path, lambda line: with_features(line, "deletionVectors"))
    assert open_table(root, "train").rows == 4


def test_without_the_package(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "is a Delta table; install daskpriv[delta] to read it" in sentence(lambda: open_table(table, "train"))


def test_lists_and_folders_of_tables(table: Path) -> None:
    assert "cannot stand in a list" in sentence(lambda: open_table([table, table], "train"))
    assert "point at one of them" in sentence(lambda: open_table(table.parent, "train"))
