"""From encoded rows to what models learn from; levels and scales are those of train alone.

A category that train has in fewer than `LEAST_ROWS` rows, or not among its `MOST_LEVELS` commonest, or not at all, is
the level "other": no model sees what only another table holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.gower import CODES, HASHES, WIDE, WIDE_MISSING
from daskpriv.space.block import Block
from daskpriv.space.encoding import ColumnCode, Encoding
from daskpriv.space.summary import ColumnSummary
from daskpriv.tables.hashes import mix

MOST_LEVELS, LEAST_ROWS = 100, 10
_FAR = 1e30  # what float32 still holds


@dataclass(frozen=True, eq=False)
class Feature:
    """One column.

    Attributes
    ----------
    code : ColumnCode
        Where a block holds it.
    place : int64 (categories,) or None
        Of categories: the level of each code, 0 for the commonest; `levels` - 1 is "other".
    levels : int
        0 of numbers.
    low, span : float
        Of numbers: the smallest stored value of train, and how far it is to the largest.
    """

    code: ColumnCode
    place: NDArray[np.int64] | None = None
    levels: int = 0
    low: float = 0.0
    span: float = 1.0

    def of(self, block: Block) -> NDArray[np.float64]:
        """The level of each row, or its number, which is 0 to 1 in train; float64 (n,), NaN where missing."""
        if self.place is not None:
            codes = block.codes[:, self.code.index]
            return np.where(codes < 0, np.nan, self.place[codes].astype(np.float64))
        if self.code.group == WIDE:
            wide = block.wide[:, self.code.index]
            stored = np.where(wide == WIDE_MISSING, np.nan, wide.astype(np.float64))
        else:
            stored = block.numbers[:, self.code.index]
        with np.errstate(over="ignore"):
            return np.clip((stored - self.low) / self.span, -_FAR, _FAR)


def feature_of(code: ColumnCode, train: ColumnSummary) -> Feature:
    """The feature of a column, as train's summary has it."""
    if code.group == CODES and code.categories is not None:
        return _levels(code, train.counts or {})
    if train.low is None:
        return Feature(code)
    low = float(train.low if code.base == 0 and code.step == 1 else (train.low - code.base) // code.step)
    span = code.span(train.low, train.high)
    if code.group == WIDE:
        low = float(train.low - code.base - (2**63 - 1))
    return Feature(code, low=low, span=span if 0 < span < math.inf else 1.0)


def _levels(code: ColumnCode, counts: Mapping[Any, int]) -> Feature:
    assert code.categories is not None
    rows = np.array([counts.get(v, 0) for v in code.categories.to_pylist()], np.int64)
    # Codes are in the order of the values: ties are broken by value, whatever else the other tables hold.
    common = np.argsort(-rows, kind="stable")[:MOST_LEVELS]
    common = common[rows[common] >= LEAST_ROWS]
    # One place more than there are codes, so that a missing cell (-1) finds one too.
    place = np.full(len(rows) + 1, len(common), np.int64)
    place[common] = np.arange(len(common))
    return Feature(code, place, len(common) + 1)


@dataclass(frozen=True, eq=False)
class Features:
    """The columns that models learn from, and those that none can learn from."""

    columns: tuple[Feature, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def fit(cls, encoding: Encoding, train: Mapping[str, ColumnSummary], without: Sequence[str] = ()) -> Features:
        """Fit on the columns of train; texts with too many categories for a list of them are left out."""
        wanted = [c for c in encoding.columns if c.name not in without]
        columns = tuple(feature_of(c, train[c.name]) for c in wanted if c.group != HASHES)
        return cls(columns, tuple(c.name for c in wanted if c.group == HASHES))

    @property
    def width(self) -> int:
        """Columns of the widest form, `Scales.wide`, at most."""
        return sum(f.levels + 1 if f.place is not None else 2 for f in self.columns)

    @property
    def kinds(self) -> list[str]:
        """What each column of `plain` is to xgboost: "q" a quantity, "c" a category."""
        return ["q" if f.place is None else "c" for f in self.columns]

    def values(self, block: Block) -> NDArray[np.float64]:
        """Numbers, and levels by their place, float64 (n, p); NaN where missing."""
        return np.column_stack([f.of(block) for f in self.columns])

    def plain(self, block: Block) -> NDArray[np.float32]:
        """The values as boosting stores them, float32 (n, p)."""
        return self.values(block).astype(np.float32)


def names_of(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """A number for each row of (n, p): what it holds, and how many rows before it hold the same; uint64 (n,)."""
    held = np.zeros(len(values), np.uint64)
    for column in (values + 0.0).T:  # -0.0 is 0.0
        held = mix(held ^ np.ascontiguousarray(column).view(np.uint64))
    order = np.argsort(held, kind="stable")
    first = np.searchsorted(held[order], held[order])
    before = np.empty(len(values), np.uint64)
    before[order] = np.arange(len(values)) - first
    return mix(held ^ mix(before))


def in_order(block: Block, features: Features, *more: Feature) -> Block:
    """The rows in an order that follows from what they hold: models see the same however a table is sorted."""
    values = np.column_stack([features.values(block), *(f.of(block) for f in more)])
    return block.take(np.argsort(names_of(values), kind="stable"))


@dataclass(frozen=True, eq=False)
class Scales:
    """Median, mean, spread and gaps of the numbers in train, for models that need dense, scaled columns.

    middle, mean, spread  float64 (p,)
    gaps                  bool (p,)  whether train has missing cells
    """

    features: Features
    middle: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    gaps: NDArray[np.bool_]

    @classmethod
    def fit(cls, features: Features, train: Block) -> Scales:
        """Fit on rows of train; a column without any value is 0 throughout."""
        found = [_scale(f.of(train)) if f.place is None else (0.0, 0.0, 1.0) for f in features.columns]
        middle, mean, spread = np.array(found, np.float64).reshape(-1, 3).T
        gaps = np.array([bool(np.isnan(f.of(train)).any()) for f in features.columns], bool)
        return cls(features, middle, mean, spread, gaps)

    def wide(self, block: Block) -> NDArray[np.float64]:
        """Scaled numbers, missing ones by the median, and one column per level, float64 (n, w).

        A column that has missing cells in train has a column that marks them.
        """
        out: list[NDArray[np.float64]] = []
        for j, feature in enumerate(self.features.columns):
            values = feature.of(block)
            missing = np.isnan(values)
            if feature.place is None:
                filled = np.where(missing, self.middle[j], values)
                out.append(((filled - self.mean[j]) / self.spread[j])[:, None])
            else:
                out.append((values[:, None] == np.arange(feature.levels)).astype(np.float64))
            if self.gaps[j]:
                out.append(missing[:, None].astype(np.float64))
        return np.concatenate(out, axis=1) if out else np.empty((len(block), 0))


def _scale(values: NDArray[np.float64]) -> tuple[float, float, float]:
    held = values[~np.isnan(values)]
    if not len(held):
        return 0.0, 0.0, 1.0
    middle, spread = float(np.median(held)), float(held.std())
    return middle, float(held.mean()), spread if spread > 0 and np.isfinite(spread) else 1.0
