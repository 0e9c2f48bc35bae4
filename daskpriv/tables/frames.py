"""Tables that are already in memory: pandas, Arrow, polars and anything that speaks the Arrow stream protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from daskpriv.errors import InputError
from daskpriv.tables.table import Table, check_names

_EXPECTED = "expected a table (pandas.DataFrame, pyarrow.Table or path)"


@dataclass(frozen=True, eq=False)
class FramePiece:
    """Rows of an Arrow table in memory; cutting is free."""

    table: pa.Table

    def __repr__(self) -> str:
        return f"FramePiece({self.rows} rows)"

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        # A pickled slice of an Arrow table may carry all its rows; an IPC stream carries its own only.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _revive, (sink.getvalue().to_pybytes(),)

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(self.table.num_rows)

    def cut(self, start: int, stop: int) -> FramePiece:
        """Only the rows [start, stop)."""
        return FramePiece(self.table.slice(start, stop - start))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The rows, with exactly these columns."""
        return self.table.select(list(columns))


def _revive(stream: bytes) -> FramePiece:
    return FramePiece(pa.ipc.open_stream(stream).read_all())


def from_frame(frame: Any, name: str) -> Table:
    """Open a frame that is already in memory.

    Raises
    ------
    InputError
        When it is not a table, or a column holds values without a distance.
    """
    kind = type(frame)
    label = f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    if isinstance(frame, pd.DataFrame):
        table = _from_pandas(frame, name)
    elif isinstance(frame, pa.Table):
        table = frame
    elif isinstance(frame, pa.RecordBatch):
        table = pa.Table.from_batches([frame])
    elif hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, (pd.Series, pa.ChunkedArray)):
        table = _from_stream(frame, name)
    else:
        raise InputError(f"{name}: {_EXPECTED}, got {kind.__name__}.")
    check_names(name, table.column_names)
    return Table(name, table.schema, (FramePiece(table),), (label,))


def _from_stream(frame: Any, name: str) -> pa.Table:
    names = getattr(frame, "columns", None)
    kinds = getattr(frame, "schema", {})
    if isinstance(names, list):
        check_names(name, names)  # polars ends the whole process over a NUL in a name
        for column in names:
            if isinstance(kinds, Mapping) and str(kinds.get(column)) == "Object":  # it hands out memory addresses
                raise InputError(f"{name}: column {column!r} holds Python objects; cast it to one type.")
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        odd = next((c for c in names if not _readable(frame, c)), None) if isinstance(names, list) else None
    if odd is not None:
        raise InputError(f"{name}: column {odd!r} has a type that Arrow cannot represent; cast it.")
    raise InputError(f"{name}: {_EXPECTED}, got {type(frame).__name__}.")


def _readable(frame: Any, column: str) -> bool:
    try:
        pa.table(frame[[column]])
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True


def _from_pandas(frame: pd.DataFrame, name: str) -> pa.Table:
    if frame.columns.nlevels > 1:
        raise InputError(f"{name}: multi-level column index is not supported; flatten the column names.")
    check_names(name, list(frame.columns))
    arrays = {}
    for column in frame.columns:
        values = frame[column]
        if isinstance(values.dtype, pd.SparseDtype):
            raise InputError(f"{name}: column {column!r} is sparse; convert it with .sparse.to_dense().")
        try:
            arrays[column] = pa.Array.from_pandas(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{name}: column {column!r} mixes Python types or holds values Arrow cannot represent "
                f"({type(error).__name__}); cast it to one type."
            ) from None
    return pa.table(arrays)
