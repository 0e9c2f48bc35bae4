"""Per-record output: distances and neighbour ids of every synthetic row, never a cell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.engine.executor import Executor, Handle
from daskpriv.errors import InputError
from daskpriv.evidence import SYNTHETIC, NeighbourTable


def write_records(path: Path, executor: Executor, found: Mapping[tuple[str, str], Sequence[Handle]]) -> None:
    """Write one row group per query block; only one block is held here at a time."""
    references = [r for q, r in found if q == SYNTHETIC and r != SYNTHETIC]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        writer: pq.ParquetWriter | None = None
        for handles in zip(*(found[SYNTHETIC, r] for r in references), strict=True):
            tables = dict(zip(references, executor.gather(handles), strict=True))
            rows = pa.table(_columns(tables))
            writer = writer or pq.ParquetWriter(part, rows.schema, compression="zstd")
            writer.write_table(rows)
        if writer is not None:
            writer.close()
            part.replace(path)
    except OSError as error:
        raise InputError(f"output: cannot write {str(path)!r} ({error.strerror}); choose another directory.") from None


def _columns(tables: Mapping[str, NeighbourTable]) -> dict[str, np.ndarray[Any, Any]]:
    """Per-row columns of one query block: distances, neighbour ids, ties; no cell values."""
    first = next(iter(tables.values()))
    out: dict[str, np.ndarray[Any, Any]] = {"row": first.query}
    for name, table in tables.items():
        out[f"distance_{name}"] = table.nearest
        out[f"nearest_{name}_row"] = table.row[:, 0]
        out[f"ties_{name}"] = table.ties
    return out
