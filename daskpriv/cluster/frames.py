"""Dask DataFrames as tables, and neighbour tables as Dask arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import pyarrow as pa
from distributed import futures_of

from daskpriv.engine.store import Store
from daskpriv.engine.units import Joined
from daskpriv.errors import DaskprivError, InputError
from daskpriv.tables.frames import from_frame
from daskpriv.tables.recent import recent
from daskpriv.tables.table import Table, check_names


def is_dask_frame(source: Any) -> bool:
    """True for Dask DataFrames."""
    return dask.is_dask_collection(source) and hasattr(source, "to_delayed") and hasattr(source, "npartitions")


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """Rows [start, stop) of one partition of a Dask DataFrame, computed where it is read."""

    partition: Any
    start: int
    stop: int

    def __repr__(self) -> str:
        return f"DelayedPiece({self.rows} rows)"

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> DelayedPiece:
        """Only the rows [start, stop) of this piece."""
        return DelayedPiece(self.partition, self.start + start, self.start + stop)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Compute the partition in this thread and convert it."""
        table = recent(self.partition.key, self._whole, self.stop)
        return table.slice(self.start, self.rows).select(list(columns))

    def _whole(self) -> pa.Table:
        frame = self.partition.compute(scheduler="synchronous")
        (piece,) = from_frame(frame, "a Dask partition").pieces
        return piece.read(list(frame.columns))


def from_dask(frame: Any, name: str) -> Table:
    """Open a Dask DataFrame: one pass counts the rows of each partition."""
    check_names(name, list(frame.columns))
    if futures_of(frame):
        raise InputError(f"{name}: the Dask DataFrame is persisted on a cluster; pass it as it was before .persist().")
    partitions = frame.to_delayed()
    try:
        found = dask.compute(*[dask.delayed(_measure_partition)(p) for p in partitions])
    except DaskprivError:
        raise
    except Exception as error:
        raise InputError(
            f"{name}: the Dask DataFrame cannot be computed ({type(error).__name__}); try .compute() on it."
        ) from None
    schemas = [schema for rows, schema in found if rows] or [found[0][1]]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError(
            f"{name}: the partitions of the Dask DataFrame differ in types; cast them to one type."
        ) from None
    pieces = tuple(DelayedPiece(p, 0, rows) for p, (rows, _) in zip(partitions, found, strict=True) if rows)
    return Table(name, schema, pieces, ("dask.DataFrame",))


def _measure_partition(frame: Any) -> tuple[int, pa.Schema]:
    return len(frame), from_frame(frame, "a Dask partition").schema


def lazy_columns(store: Store, lists: Sequence[Joined], sizes: Sequence[int], k: int) -> tuple[Any, Any, Any]:
    """Neighbour tables as three Dask arrays (distance, row, ties), read from the store when they are computed."""
    out = []
    for name, dtype, shape in (("distance", "float64", (k,)), ("row", "int64", (k,)), ("ties", "int64", ())):
        blocks = [
            da.from_delayed(dask.delayed(_column, pure=True, traverse=False)(store, x, name), (n, *shape), dtype=dtype)
            for x, n in zip(lists, sizes, strict=True)
        ]
        out.append(da.concatenate(blocks))
    return out[0], out[1], out[2]


def _column(store: Store, lists: Joined, name: str) -> Any:
    return getattr(lists.load(store), name)
