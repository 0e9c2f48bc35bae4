"""One door for every source of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from daskpriv.errors import InputError
from daskpriv.tables.csv import open_csv
from daskpriv.tables.delta import open_delta
from daskpriv.tables.files import find_files, shown
from daskpriv.tables.frames import from_frame
from daskpriv.tables.parquet import open_parquet
from daskpriv.tables.table import Table
from daskpriv.tables.types import Family, family, short_name


def open_table(source: Any, name: str, like: Table | None = None) -> Table:
    """Open a path, URL, glob, list of them, or a frame as the table called `name`.

    Only footers (Parquet) or the text of CSV files are read here. `like` is the real table that settles
    the types of CSV cells.

    Raises
    ------
    InputError
        In one sentence: what is wrong with this table, and the remedy.
    """
    if isinstance(source, Table):
        table = source.renamed(name)
    elif isinstance(source, (str, os.PathLike)) or _is_path_list(source):
        found = find_files(source, name)
        if found.log:
            table = open_delta(found, name)
        elif found.files[0].is_csv:
            table = open_csv(found.files, name, _types(like))
        else:
            table = open_parquet(found.files, name)
        typed = [source] if isinstance(source, (str, os.PathLike)) else source
        table = replace(table, source=table.source or tuple(shown(os.fspath(s)) for s in typed))
    else:
        table = from_frame(source, name)
    for field in table.schema:
        if family(field.type) is None:
            raise InputError(
                f"{name}: column {field.name!r} has type {short_name(field.type)}, which has no distance; "
                "drop it or convert it."
            )
    return table


def _is_path_list(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(isinstance(s, (str, Path)) for s in source)


def _types(like: Table | None) -> Mapping[str, pa.DataType] | None:
    """Types a CSV must follow: plain ones that text can be cast to."""
    if like is None:
        return None
    out: dict[str, pa.DataType] = {}
    for field in like.schema:
        kind = field.type
        if pa.types.is_dictionary(kind) or family(kind) is Family.CATEGORY:
            out[field.name] = pa.string()
        elif pa.types.is_decimal(kind):
            out[field.name] = pa.float64()
        elif family(kind) is Family.NUMBER:
            out[field.name] = (
                kind if kind == pa.float32() else pa.float64() if pa.types.is_floating(kind) else pa.int64()
            )
        elif family(kind) is not Family.NOTHING:
            out[field.name] = kind
    return out
