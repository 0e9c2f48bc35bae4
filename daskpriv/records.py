"""Per-record output, for the owner of the data only: distances and row ids, never a cell.

records.parquet    one line per synthetic row: how far its nearest real rows are, and which
hubs.parquet       the real rows that draw most synthetic rows
accuracy.parquet   one line per set of columns that was counted: their names, how far its joint frequencies are apart
real_rows.parquet  one line per real row: how much it is exposed; see `exposure` in docs/definitions.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.engine.store import Store
from daskpriv.engine.units import Joined
from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, NeighbourTable
from daskpriv.metrics.exposure import ratio
from daskpriv.protocol import Result
from daskpriv.tables.sinks import join, put

_REAL = (TRAIN, HOLDOUT)
_ISOLATION = 5
Found = Mapping[tuple[str, str], Sequence[Joined]]


def write_records(folder: str, store: Store, found: Found, results: Mapping[str, Result]) -> None:
    """Write these files below `folder`; only one block of rows is held here at a time."""
    references = [r for q, r in found if q == SYNTHETIC and r in _REAL]
    _write(join(folder, "records.parquet"), _blocks(store, found, SYNTHETIC, references, _synthetic))
    limit = (
        results["exposure"].details.get("list", {}).get("relative_distance_up_to") if "exposure" in results else None
    )

    def exposed(role: str) -> Iterator[pa.Table]:
        references = [r for q, r in found if q == role]
        if SYNTHETIC in references:
            yield from _blocks(store, found, role, references, lambda t: _real(role, t, limit))

    for name, columns in {n: c for r in results.values() for n, c in r.internal.items()}.items():
        _write(join(folder, f"{name}.parquet"), iter([pa.table(dict(columns))]))
    _write(join(folder, "real_rows.parquet"), (block for role in _REAL for block in exposed(role)))


def _blocks(store: Store, found: Found, role: str, references: Sequence[str], columns: Any) -> Iterator[pa.Table]:
    for answers in zip(*(found[role, r] for r in references), strict=True):
        yield pa.table(columns({r: a.load(store) for r, a in zip(references, answers, strict=True)}))


def _write(target: str, blocks: Iterator[pa.Table]) -> None:
    """One row group per block; nothing is written when there is none."""
    with tempfile.NamedTemporaryFile(prefix="daskpriv-", suffix=".parquet") as held:
        writer: pq.ParquetWriter | None = None
        for rows in blocks:
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


def _synthetic(tables: Mapping[str, NeighbourTable]) -> dict[str, np.ndarray[Any, Any]]:
    """Of synthetic rows: distances, neighbour ids, ties."""
    first = next(iter(tables.values()))
    out: dict[str, np.ndarray[Any, Any]] = {"row": first.query}
    for name, table in tables.items():
        out[f"distance_{name}"] = table.nearest
        out[f"nearest_{name}_row"] = table.row[:, 0]
        out[f"ties_{name}"] = table.ties
    return out


def _real(role: str, tables: Mapping[str, NeighbourTable], limit: float | None) -> dict[str, Any]:
    """Of real rows: the nearest synthetic row, the isolation, whether the exposure list holds the row."""
    near = tables[SYNTHETIC]
    sides = [tables[r].distance for r in _REAL if r in tables and tables[r].distance.shape[1] >= _ISOLATION]
    far = np.sort(np.concatenate(sides, axis=1), axis=1) if len(sides) == len(_REAL) else np.empty((len(near.query), 0))
    isolation = far[:, _ISOLATION - 1] if far.shape[1] >= _ISOLATION else np.full(len(near.query), np.nan)
    relative = np.where(np.isnan(isolation), np.nan, ratio(near.nearest, isolation))
    return {
        "table": pa.array([role] * len(near.query)).dictionary_encode(),
        "row": near.query,
        "distance_synthetic": near.nearest,
        "nearest_synthetic_row": near.row[:, 0],
        "isolation": isolation,
        "relative_distance": relative,
        "listed": (relative <= limit) & (role == TRAIN) if limit is not None else np.zeros(len(near.query), bool),
    }
