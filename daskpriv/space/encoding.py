"""The encoding: category codes and number storage, fitted once on all tables, then frozen.

It says how cells become numbers. What a distance makes of them (ranges, weights, missing cells) is in
`daskpriv.space.gower`, so that one encoded block serves every search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.kernels.gower import CODES, HASHES, NUMBERS, WIDE, WIDE_MISSING
from daskpriv.space.block import Block
from daskpriv.space.reading import PER_SECOND, Reading
from daskpriv.space.summary import ColumnSummary
from daskpriv.tables.hashes import hash_values
from daskpriv.tables.table import Part
from daskpriv.tables.types import Kind

_EXACT = 2**53


@dataclass(frozen=True, eq=False)
class ColumnCode:
    """How one column is stored in a block.

    Integers are stored as (value - base) / step: `base` 0 and `step` 1 whenever float64 holds them as they are.
    """

    reading: Reading
    group: int
    index: int
    base: int = 0
    step: int = 1
    categories: pa.Array | None = None

    def __repr__(self) -> str:
        return f"ColumnCode({self.reading.column.name!r})"

    @property
    def name(self) -> str:
        """The column's name."""
        return self.reading.column.name

    def span(self, low: Any, high: Any) -> float:
        """A range in stored units, rounded once."""
        return float(high - low) if isinstance(high, float) else float((high - low) // self.step)

    def units(self, amount: float) -> float:
        """An explicit range (seconds for times) in stored units."""
        per_second = PER_SECOND[self.reading.carrier.unit] if self.reading.timed else 1
        if pa.types.is_decimal(self.reading.carrier):
            per_second = 10**self.reading.carrier.scale
        return amount * per_second / self.step


@dataclass(frozen=True, eq=False)
class Encoding:
    """All used columns, in the order in which distances are summed."""

    columns: tuple[ColumnCode, ...]

    def __repr__(self) -> str:
        return f"Encoding(columns={len(self.columns)})"

    @classmethod
    def fit(cls, readings: Sequence[Reading], summaries: Mapping[str, Mapping[str, ColumnSummary]]) -> Encoding:
        """Fit on the summaries of all tables, {table: {column: summary}}."""
        places = {NUMBERS: 0, WIDE: 0, CODES: 0, HASHES: 0}
        columns = []
        for r in readings:
            if not r.column.used:
                continue
            code = _fit_column(r, {t: s[r.column.name] for t, s in summaries.items()})
            columns.append(ColumnCode(r, code.group, places[code.group], code.base, code.step, code.categories))
            places[code.group] += 1
        return cls(tuple(columns))

    def width(self, group: int) -> int:
        """Number of columns stored in this group."""
        return sum(c.group == group for c in self.columns)

    @property
    def row_bytes(self) -> int:
        """Bytes of one encoded row."""
        return 8 + 8 * self.width(NUMBERS) + 8 * self.width(WIDE) + 4 * self.width(CODES) + 16 * self.width(HASHES)

    def encode(self, part: Part) -> Block:
        """Read a part and encode its rows."""
        table = part.read([c.name for c in self.columns])
        n = part.rows
        numbers = np.empty((n, self.width(NUMBERS)))
        wide = np.empty((n, self.width(WIDE)), np.int64)
        codes = np.empty((n, self.width(CODES)), np.int32)
        hashes = np.empty((n, 2 * self.width(HASHES)), np.int64)
        for c in self.columns:
            array = c.reading.plain(table.column(c.name), part.name)
            if c.group == CODES:
                codes[:, c.index] = pc.fill_null(pc.index_in(array, value_set=c.categories, skip_nulls=True), -1)
            elif c.group == HASHES:
                hashes[:, 2 * c.index : 2 * c.index + 2] = _hash_cells(array)
            elif c.reading.column.kind is Kind.ORDINAL:
                numbers[:, c.index] = _ranks(array, c, part.name)
            elif c.reading.integral:
                _store(c, *c.reading.integers(array, part.name), numbers, wide)
            else:
                numbers[:, c.index] = c.reading.floats(array) + 0.0
        rows = np.arange(part.first_row, part.first_row + n, dtype=np.int64)
        return Block(rows, numbers, wide, codes, hashes)


def _fit_column(r: Reading, by_table: Mapping[str, ColumnSummary]) -> ColumnCode:
    whole = sum(by_table.values(), ColumnSummary())
    if r.column.kind is Kind.ORDINAL:
        return ColumnCode(r, NUMBERS, 0, categories=_levels(r))
    if r.categorical:
        if whole.counts is None:
            return ColumnCode(r, HASHES, 0)
        return ColumnCode(r, CODES, 0, categories=pa.array(sorted(whole.counts), r.stored))
    if not r.integral or whole.low is None:
        return ColumnCode(r, NUMBERS, 0)
    if max(abs(whole.low), abs(whole.high)) <= _EXACT and not r.timed:
        return ColumnCode(r, NUMBERS, 0)
    step = max(whole.step, 1) if r.timed else 1
    if (whole.high - whole.low) // step <= _EXACT:
        return ColumnCode(r, NUMBERS, 0, whole.low, step)
    if whole.high - whole.low >= 2**64 - 2:
        raise InputError(f"column {r.column.name!r}: integers span more than 64 bits; shift or rescale it.")
    return ColumnCode(r, WIDE, 0, whole.low, step)


def _levels(r: Reading) -> pa.Array:
    try:
        return pa.array(list(r.column.levels), r.stored)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(
            f"schema: column {r.column.name!r}: the levels are not of the column's type {r.carrier}; "
            "write them as the data has them."
        ) from None


def _ranks(array: pa.Array, c: ColumnCode, table: str) -> NDArray[np.float64]:
    found = pc.index_in(array, value_set=c.categories, skip_nulls=True)
    strays = int(found.null_count) - int(array.null_count)
    if strays:
        raise InputError(
            f"{table}: column {c.name!r} is ordinal, but {strays} row(s) hold a value that is not among its levels; "
            "add the level to the schema or declare the column nominal."
        )
    return np.asarray(found.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _store(
    c: ColumnCode,
    values: NDArray[Any],
    missing: NDArray[np.bool_],
    numbers: NDArray[np.float64],
    wide: NDArray[np.int64],
) -> None:
    if c.base == 0 and c.step == 1 and c.group == NUMBERS:
        numbers[:, c.index] = np.where(missing, np.nan, values.astype(np.float64))
        return
    # Two's complement wraps, so the offset from the smallest value is exact for int64 and uint64 alike.
    offset = (values.astype(np.uint64) - np.uint64(c.base % 2**64)) // np.uint64(c.step)
    if c.group == NUMBERS:
        numbers[:, c.index] = np.where(missing, np.nan, offset.astype(np.float64))
    else:
        shifted = (offset - np.uint64(2**63 - 1)).view(np.int64)
        wide[:, c.index] = np.where(missing, WIDE_MISSING, shifted)


def _hash_cells(array: pa.Array) -> NDArray[np.int64]:
    coded = array.dictionary_encode()
    codes = np.asarray(pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
    both = [
        np.append(hash_values(coded.dictionary, second), np.uint64(0))[codes].view(np.int64) for second in (False, True)
    ]
    return np.stack(both, axis=1)
