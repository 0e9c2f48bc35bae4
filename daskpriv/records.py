"""Per-record output: distances and neighbour ids of every synthetic row, never a cell."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.engine.store import Store
from daskpriv.engine.units import Joined
from daskpriv.errors import InputError
from daskpriv.evidence import SYNTHETIC, NeighbourTable
from daskpriv.tables.sinks import put


def write_records(target: str, store: Store, found: Mapping[tuple[str, str], Sequence[Joined]]) -> None:
    """Write one row group per query block; only one block is held here at a time."""
    references = [r for q, r in found if q == SYNTHETIC and r != SYNTHETIC]
    blocks = zip(*(found[SYNTHETIC, r] for r in references), strict=True)
    with tempfile.NamedTemporaryFile(prefix="daskpriv-", suffix=".parquet") as held:
        writer: pq.ParquetWriter | None = None
        for answers in blocks:
            tables = {r: a.load(store) for r, a in zip(references, answers, strict=True)}
            rows = pa.table(_columns(tables))
            writer = writer or pq.ParquetWriter(held.name, rows.schema, compression="zstd")
            writer.write_table(rows)
        if writer is None:
            return
        writer.close()
        put_file(target, held.name)


def put_file(target: str, source: str) -> None:
    """Bring a finished file to its place in one step."""
    try:
        put(target, Path(source).read_bytes(), private=True)
    except OSError as error:
        raise InputError(f"output: cannot write {target!r} ({error.strerror}); choose another directory.") from None


def _columns(tables: Mapping[str, NeighbourTable]) -> dict[str, np.ndarray[Any, Any]]:
    """Per-row columns of one query block: distances, neighbour ids, ties; no cell values."""
    first = next(iter(tables.values()))
    out: dict[str, np.ndarray[Any, Any]] = {"row": first.query}
    for name, table in tables.items():
        out[f"distance_{name}"] = table.nearest
        out[f"nearest_{name}_row"] = table.row[:, 0]
        out[f"ties_{name}"] = table.ties
    return out
