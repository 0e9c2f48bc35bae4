"""One pass over a part: what ranges, codes and reports need to know about each column, mergeable in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daskpriv.space.reading import Reading
from daskpriv.tables.hashes import hash_values, mix
from daskpriv.tables.table import Part

MOST_CATEGORIES = 50_000
_SKETCH = 4096


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """What one column holds; `a + b` is the summary of both, in any order.

    low, high   extremes of the finite values: exact integers in the carrier's unit, or floats; None when empty
    step        greatest common divisor of the differences of integers in time columns; 0 when they are all equal
    counts      rows per category; None when there are more than MOST_CATEGORIES or none were asked for
    sketch      uint64, the smallest distinct value hashes: estimates the number of distinct values
    """

    rows: int = 0
    nulls: int = 0
    infinite: int = 0
    misfits: int = 0
    low: Any = None
    high: Any = None
    step: int = 0
    counts: dict[Any, int] | None = None
    sketch: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return f"ColumnSummary(rows={self.rows}, nulls={self.nulls})"

    def __add__(self, other: ColumnSummary) -> ColumnSummary:
        if self.rows == 0 or other.rows == 0:
            return self if other.rows == 0 else other
        lows = [v for v in (self.low, other.low) if v is not None]
        highs = [v for v in (self.high, other.high) if v is not None]
        step = math.gcd(self.step, other.step)
        if len(lows) == 2 and isinstance(lows[0], int) and isinstance(lows[1], int):
            step = math.gcd(step, abs(lows[0] - lows[1]))
        return ColumnSummary(
            self.rows + other.rows,
            self.nulls + other.nulls,
            self.infinite + other.infinite,
            self.misfits + other.misfits,
            min(lows) if lows else None,
            max(highs) if highs else None,
            step,
            _add_counts(self.counts, other.counts),
            _add_sketch(self.sketch, other.sketch),
        )

    @property
    def distinct(self) -> float:
        """Number of distinct values: exact while small, else the sketch's estimate (about 1.6 % error)."""
        if self.counts is not None:
            return float(len(self.counts))
        if self.sketch is None or len(self.sketch) < _SKETCH:
            return float(len(self.sketch)) if self.sketch is not None else 0.0
        return (_SKETCH - 1) / (float(self.sketch[-1]) / 2.0**64)


def _add_counts(a: dict[Any, int] | None, b: dict[Any, int] | None) -> dict[Any, int] | None:
    if a is None or b is None:
        return None
    out = dict(a)
    for value, n in b.items():
        out[value] = out.get(value, 0) + n
    return out if len(out) <= MOST_CATEGORIES else None


def _add_sketch(a: NDArray[np.uint64] | None, b: NDArray[np.uint64] | None) -> NDArray[np.uint64] | None:
    if a is None or b is None:
        return None
    return np.unique(np.concatenate([a, b]))[:_SKETCH]


@dataclass(frozen=True, eq=False)
class PartSummary:
    """All columns of a part, and a fingerprint: a sum over rows that any other content or order changes."""

    columns: dict[str, ColumnSummary]
    fingerprint: int = 0
    rows: int = 0

    def __repr__(self) -> str:
        return f"PartSummary(rows={self.rows})"

    def __add__(self, other: PartSummary) -> PartSummary:
        return PartSummary(
            {k: v + other.columns[k] for k, v in self.columns.items()},
            (self.fingerprint + other.fingerprint) % 2**64,
            self.rows + other.rows,
        )


def summarise(part: Part, readings: Sequence[Reading]) -> PartSummary:
    """Read a part once and summarise its columns."""
    names = [r.column.name for r in readings]
    misfits = part.misfits(names)
    table = part.read(names)
    ids = np.arange(part.first_row, part.first_row + part.rows, dtype=np.uint64)
    columns, fingerprint = {}, 0
    for place, r in enumerate(readings):
        array = r.plain(table.column(r.column.name), part.name)
        summary, hashes = _column(array, r, part.name)
        columns[r.column.name] = ColumnSummary(**{**_fields(summary), "misfits": misfits[r.column.name]})
        salted = mix(hashes ^ mix(ids * np.uint64(2 * len(readings) + 1) + np.uint64(place)))
        fingerprint = (fingerprint + int(salted.sum(dtype=np.uint64))) % 2**64
    return PartSummary(columns, fingerprint, part.rows)


def _fields(summary: ColumnSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in summary.__dataclass_fields__}


def _column(array: pa.Array, r: Reading, table: str) -> tuple[ColumnSummary, NDArray[np.uint64]]:
    if r.categorical:
        return _categories(array)
    if r.integral:
        return _integers(*r.integers(array, table), r)
    return _floats(r.floats(array))


def _categories(array: pa.Array) -> tuple[ColumnSummary, NDArray[np.uint64]]:
    coded = array.dictionary_encode()
    codes = np.asarray(pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
    hashes = hash_values(coded.dictionary)
    number = np.bincount(codes[codes >= 0], minlength=len(hashes))
    counts: dict[Any, int] | None = None
    if len(hashes) <= MOST_CATEGORIES:
        counts = dict(zip(coded.dictionary.to_pylist(), number.tolist(), strict=True))
    summary = ColumnSummary(len(array), int(array.null_count), counts=counts, sketch=np.unique(hashes)[:_SKETCH])
    return summary, np.append(hashes, np.uint64(0))[codes]


def _integers(values: NDArray[Any], missing: NDArray[np.bool_], r: Reading) -> tuple[ColumnSummary, NDArray[np.uint64]]:
    present = values[~missing]
    low = int(present.min()) if len(present) else None
    high = int(present.max()) if len(present) else None
    step = 0
    if r.timed and low is not None:
        step = int(np.gcd.reduce(present.astype(np.uint64) - np.uint64(low % 2**64)))
    hashes = np.where(missing, np.uint64(0), mix(values.astype(np.uint64)))
    sketch = np.unique(mix(hashes[~missing]))[:_SKETCH]
    return ColumnSummary(len(values), int(missing.sum()), 0, 0, low, high, step, None, sketch), hashes


def _floats(values: NDArray[np.float64]) -> tuple[ColumnSummary, NDArray[np.uint64]]:
    missing = np.isnan(values)
    finite = values[np.isfinite(values)]
    low = float(finite.min()) + 0.0 if len(finite) else None
    high = float(finite.max()) + 0.0 if len(finite) else None
    hashes = np.where(missing, np.uint64(0), mix((values + 0.0).view(np.uint64)))
    infinite = len(values) - len(finite) - int(missing.sum())
    sketch = np.unique(mix(hashes[~missing]))[:_SKETCH]
    return ColumnSummary(len(values), int(missing.sum()), infinite, 0, low, high, 0, None, sketch), hashes
