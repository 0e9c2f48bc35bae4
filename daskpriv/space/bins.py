"""Buckets of single columns: every cell becomes a small code, the same one in all tables, for cross-tabulations.

| bins | numbers, times, ordinals | categories | who says |
|---|---|---|---|
| train | exact quantiles i / m | the m - 1 commonest, the smaller value first among equals | train |
| real | the same | the same | train and holdout |
| paper | numpy's quantiles of numpy.linspace(0, 1, m + 1) | the m commonest | train |
| mostlyai-qa | order statistics, rounded down (`searched_breaks`) | the m commonest in 5 rows or more | train |

Equal quantiles are one. Intervals are (a, b], the first one holds its lower end too. Values outside all intervals,
rarer categories and those that the fitting tables do not have are one bucket, missing cells another. (mostlyai-qa:
intervals [a, b), values outside belong to the outermost.)
Sources: MOSTLY AI, ANITA D2.2 (2020); Platzer & Reutterer, Holdout-Based Empirical Assessment of Mixed-Type Synthetic
Data (2021) for `paper`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.gower import CODES, HASHES, NUMBERS, WIDE, WIDE_MISSING
from daskpriv.space.block import Block
from daskpriv.space.buckets import cut
from daskpriv.space.encoding import Encoding

MOSTLYAI = "mostlyai-qa"
LEAST_ROWS = 5  # of a category that has a bucket there


@dataclass(frozen=True, eq=False)
class ColumnBins:
    """How the cells of one column are coded: 0 to n - 1 for its buckets, n for other, n + 1 for missing.

    Attributes
    ----------
    group, index : int
        Where a block holds the column.
    buckets : int
        n.
    edges : float64 (n + 1,)
        Of numbers; fewer than two, for a constant column or one without any value.
    endless : bool
        Intervals are [a, b), and the outermost have no end.
    known : int64 (h,)
        Of categories: what has a bucket, ascending: codes, or first hashes.
    place : uint8 (h,)
        The bucket of each of them.
    """

    group: int
    index: int
    buckets: int
    edges: NDArray[np.float64]
    known: NDArray[np.int64]
    place: NDArray[np.uint8]
    endless: bool = False

    @classmethod
    def of_numbers(cls, index: int, quantiles: NDArray[np.float64], endless: bool = False) -> ColumnBins:
        """From the quantiles of the fitting tables; none where they have no value."""
        edges = np.unique(quantiles)
        none = np.zeros(0, np.int64)
        buckets = max(len(edges) - 1, min(len(edges), 1))
        return cls(NUMBERS, index, buckets, edges, none, none.astype(np.uint8), endless)

    @classmethod
    def of_categories(
        cls, group: int, index: int, values: NDArray[np.int64], counts: NDArray[np.int64], most: int
    ) -> ColumnBins:
        """From the codes or hashes of the fitting tables, ascending, and how many rows hold them."""
        order = np.argsort(-counts, kind="stable")[: min(most, int(np.count_nonzero(counts)))]
        kept = np.sort(order)
        place = np.argsort(np.argsort(order)).astype(np.uint8)
        return cls(group, index, len(kept), np.zeros(0), values[kept], place)

    @property
    def width(self) -> int:
        """Codes are below this."""
        return self.buckets + 2

    def code(self, block: Block) -> NDArray[np.uint8]:
        """The code of each row, uint8 (n,)."""
        if self.group == NUMBERS:
            return self._of_numbers(block.numbers[:, self.index])
        if self.group == CODES:
            cells = block.codes[:, self.index].astype(np.int64)
            missing = cells < 0
        else:
            cells = block.hashes[:, 2 * self.index]
            missing = cells == 0
        return self._coded(self._of_categories(cells), missing)

    def _coded(self, found: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
        return np.where(missing, self.buckets + 1, found).astype(np.uint8)

    def _of_numbers(self, cells: NDArray[np.float64]) -> NDArray[np.uint8]:
        missing = np.isnan(cells)
        if not len(self.edges):
            return self._coded(np.full(len(cells), self.buckets), missing)
        if self.endless:
            return self._coded(np.searchsorted(self.edges[1:-1], cells, side="right"), missing)
        inside = (cells >= self.edges[0]) & (cells <= self.edges[-1])
        return self._coded(np.where(inside, cut(cells, self.edges), self.buckets), missing)

    def _of_categories(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self.known):
            return np.full(len(cells), self.buckets)
        at = np.minimum(np.searchsorted(self.known, cells), len(self.known) - 1)
        return np.where(self.known[at] == cells, self.place[at].astype(np.int64), self.buckets)


@dataclass(frozen=True, eq=False)
class Bins:
    """The buckets of all columns, in schema order."""

    columns: tuple[ColumnBins, ...]

    @property
    def widths(self) -> NDArray[np.int64]:
        """Codes of each column are below this, int64 (p,)."""
        return np.array([c.width for c in self.columns], np.int64)

    @property
    def ordered(self) -> NDArray[np.bool_]:
        """Whether the buckets of each column ascend, other and missing behind them apart; bool (p,)."""
        return np.array([c.group == NUMBERS for c in self.columns], np.bool_)

    def code(self, block: Block) -> NDArray[np.uint8]:
        """The codes of all rows, uint8 (p, n): one line per column."""
        return np.stack([c.code(block) for c in self.columns])


def searched_breaks(
    values: NDArray[np.float64], counts: NDArray[np.int64], buckets: int, rounded: bool
) -> NDArray[np.float64]:
    """Breaks as mostlyai-qa 1.10 finds them, from distinct values, ascending, and their counts.

    Every value where there are no more than `buckets`; else the first of 10, 11, ... 999 evenly spaced order statistics
    that name more than `buckets` values. With `rounded`, all but the last are rounded down to as few decimals as keep
    them apart.

    >>> searched_breaks(np.array([1.5, 2.25]), np.array([3, 1]), 10, True)
    array([1.  , 2.  , 3.25])
    """
    if not len(values):
        return values
    n, upto = int(counts.sum()), np.cumsum(counts)
    breaks = np.append(values, values[-1] + 1)
    if len(values) > buckets:
        for some in range(buckets, max(buckets + 1, min(1000, n + 1))):
            ranks = np.linspace(0, n - 1, some).astype(np.int64)
            breaks = values[np.unique(np.searchsorted(upto, ranks, side="right"))]
            if len(breaks) > buckets:
                break
    for digits in range(20 if rounded else 0):
        lower = np.floor(breaks * 10.0**digits) / 10.0**digits
        if len(np.unique(lower)) == len(breaks):
            return np.append(lower[:-1], breaks[-1])
    return breaks


class WideAsFloats:
    """Integers too wide for float64 follow the numbers as the nearest float64: near enough for a bucket."""

    def apply(self, block: Block) -> Block:
        """The same rows, without wide columns."""
        wide = np.where(block.wide == WIDE_MISSING, np.nan, block.wide.astype(np.float64))
        numbers = np.ascontiguousarray(np.concatenate([block.numbers, wide], axis=1))
        return replace(block, numbers=numbers, wide=block.wide[:, :0])


def number_places(encoding: Encoding) -> Mapping[str, int]:
    """Where `WideAsFloats` puts every column that is cut at quantiles, {name: place among the numbers}."""
    shift = {NUMBERS: 0, WIDE: encoding.width(NUMBERS)}
    return {c.name: shift[c.group] + c.index for c in encoding.columns if c.group in shift}


def hash_places(encoding: Encoding) -> Mapping[str, int]:
    """Columns whose categories are held as hashes, {name: place}."""
    return {c.name: c.index for c in encoding.columns if c.group == HASHES}
