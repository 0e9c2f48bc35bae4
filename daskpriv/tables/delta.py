"""Delta tables: their log says which Parquet files are rows today; the files are read like any others.

`deltalake` only replays a copy of the log. Everything is fetched through fsspec, so that one set of credentials is
enough and any file system will do.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from daskpriv.errors import InputError
from daskpriv.tables.files import File, Found
from daskpriv.tables.parquet import open_parquet
from daskpriv.tables.ranges import fetch
from daskpriv.tables.table import Table

_VERSION = re.compile(r"^(\d{20})\..*(json|parquet)$")
# What a reader of plain Parquet files may ignore; deletion vectors only as long as no file has one.
_HARMLESS = frozenset({"timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"})


def open_delta(found: Found, name: str) -> Table:
    """The newest version of a Delta table."""
    try:
        import deltalake
    except ImportError:
        raise InputError(f"{name}: {found.shown!r} is a Delta table; install daskpriv[delta] to read it.") from None
    with tempfile.TemporaryDirectory(prefix="daskpriv-delta-") as folder:
        # The log holds smallest and largest cells: the folder is for this user only, and gone a moment later.
        _copy(found.log, Path(folder), name)
        try:
            table = deltalake.DeltaTable(folder)
        except Exception as error:
            raise InputError(
                f"{name}: the log of Delta table {found.shown!r} cannot be read ({type(error).__name__}); "
                "check the table with the tool that wrote it."
            ) from None
        _check_features(table, found.shown, name)
        actions = pa.table(table.get_add_actions(flatten=True))
        schema = pa.schema(table.schema().to_arrow())
        keys = list(table.metadata().partition_columns)
        version = table.version()
    if actions.num_rows == 0:
        raise InputError(f"{name}: Delta table {found.shown!r} has no rows; point at one that has.")
    known = dict(zip(found.names, found.files, strict=True))
    files = [_file(row, keys, known, found.shown, name) for row in _rows(actions, keys)]
    opened = open_parquet(sorted(files, key=lambda f: f.url), name, schema)
    return replace(opened, source=(f"{found.shown} (Delta version {version})",))


def _copy(log: Mapping[str, File], folder: Path, name: str) -> None:
    """The log from its last checkpoint on."""
    pointer = log.get("_last_checkpoint")
    try:
        first = int(json.loads(fetch(pointer, name, 0, pointer.size))["version"]) if pointer is not None else 0
    except (ValueError, KeyError, TypeError):
        # The pointer is only a shortcut: without it the whole log is read.
        pointer, first = None, 0
    versions = {path: _VERSION.match(path) for path in log}
    wanted = [p for p, v in versions.items() if (v and int(v[1]) >= first) or p.startswith("_sidecars/")]
    wanted += ["_last_checkpoint"] if pointer is not None else []

    def one(path: str) -> None:
        target = folder / "_delta_log" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(fetch(log[path], name, 0, log[path].size))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, wanted))


def _check_features(table: Any, shown: str, name: str) -> None:
    """Refuse what would make rows of the Parquet files not the rows of the table."""
    protocol = table.protocol()
    odd = sorted(set(protocol.reader_features or ()) - _HARMLESS)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        odd = ["columnMapping"]
    if protocol.min_reader_version > 3 or odd:
        feature = odd[0] if odd else f"reader version {protocol.min_reader_version}"
        raise InputError(
            f"{name}: Delta table {shown!r} uses {feature}, which daskpriv does not read; write a plain copy of it."
        )
    if "deletionVectors" in (protocol.reader_features or ()) and _deletes(table):
        raise InputError(
            f"{name}: Delta table {shown!r} has deletion vectors, which daskpriv does not read; "
            "purge them (REORG TABLE ... APPLY (PURGE)) or write a plain copy."
        )


def _deletes(table: Any) -> bool:
    """True when a file has a deletion vector: they lie outside the log, so that to read one fails."""
    try:
        return bool(pa.table(table.deletion_vectors().read_all()).num_rows > 0)
    except Exception:
        return True


def _rows(actions: pa.Table, keys: Sequence[str]) -> list[dict[str, str | None]]:
    columns = {"path": actions["path"], **{k: actions[f"partition.{k}"] for k in keys}}
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*(c.cast(pa.string()).to_pylist() for c in columns.values()), strict=True)
    ]


def _file(row: dict[str, str | None], keys: Sequence[str], known: Mapping[str, File], shown: str, name: str) -> File:
    path = unquote(row["path"] or "")
    if "://" in path or path.startswith("/"):
        raise InputError(
            f"{name}: Delta table {shown!r} has files outside its folder (a shallow clone), which daskpriv does not "
            "read; write a plain copy of it."
        )
    if path not in known:
        raise InputError(
            f"{name}: file {path.rsplit('/', 1)[-1]!r} of Delta table {shown!r} is missing; repair the table."
        )
    return replace(known[path], partition=tuple((k, row[k]) for k in keys))
