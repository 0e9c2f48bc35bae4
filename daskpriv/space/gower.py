"""The Gower space: ranges, weights and the missing policy of one search; definitions in docs/definitions.md."""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.kernels.gower import ANONYMETER, CODES, DROP, HASHES, LEVEL, MAXIMUM, WIDE, Measure, frozen
from daskpriv.space.block import Block
from daskpriv.space.encoding import ColumnCode, Encoding
from daskpriv.space.summary import MOST_CATEGORIES, ColumnSummary
from daskpriv.tables.types import Kind


class Missing(StrEnum):
    """What a missing cell means.

    level       both missing 0, one missing 1 (default: an identical row has distance 0)
    gower       the column is left out of the pair; distance 1 when every column is
    max         any missing 1
    anonymeter  numbers: both missing 1, one missing no neighbour at all; categories as `level`
    clearbox    numbers: a column with any missing cell counts 0 for every pair; categories: missing and
                categories that the query table does not hold are one and the same
    """

    LEVEL = "level"
    GOWER = "gower"
    MAX = "max"
    ANONYMETER = "anonymeter"
    CLEARBOX = "clearbox"


class RangeFrom(StrEnum):
    """Which rows give a numeric column its range.

    real            train and holdout together, once (default: symmetric, and no synthetic row can stretch it)
    train, all      train; all three tables
    pair_union      query and reference of each search
    pair_reference  the reference of each search
    quantile        the span between two quantiles of the real rows
    iqr             the interquartile range of the real rows
    rank            values are replaced by their mid-rank among the real rows
    """

    REAL = "real"
    TRAIN = "train"
    ALL = "all"
    PAIR_UNION = "pair_union"
    PAIR_REFERENCE = "pair_reference"
    QUANTILE = "quantile"
    IQR = "iqr"
    RANK = "rank"


_KERNEL = {
    Missing.LEVEL: LEVEL,
    Missing.GOWER: DROP,
    Missing.MAX: MAXIMUM,
    Missing.ANONYMETER: ANONYMETER,
    Missing.CLEARBOX: LEVEL,
}


@dataclass(frozen=True, slots=True)
class SpaceOptions:
    """The choices that define a distance.

    Attributes
    ----------
    missing : Missing
    range_from : RangeFrom
    quantiles : (low, high)
        For `range_from="quantile"`.
    """

    missing: Missing = Missing.LEVEL
    range_from: RangeFrom = RangeFrom.REAL
    quantiles: tuple[float, float] = (0.01, 0.99)

    def __post_init__(self) -> None:
        low, high = self.quantiles
        if not 0 <= low < high <= 1:
            raise InputError("range quantiles must be two numbers with 0 <= low < high <= 1.")

    @property
    def per_pair(self) -> bool:
        """True when two searches may use different ranges, so that their distances do not compare."""
        return self.range_from in (RangeFrom.PAIR_UNION, RangeFrom.PAIR_REFERENCE)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The quantiles that give the ranges, if any do."""
        if self.range_from is RangeFrom.QUANTILE:
            return self.quantiles
        return (0.25, 0.75) if self.range_from is RangeFrom.IQR else None


@dataclass(frozen=True, eq=False)
class GowerSpace:
    """Everything one search needs to turn two encoded rows into a distance.

    scale   float64 (p,)  range of each column in stored units; 0 makes the column all-or-nothing
    weight  float64 (p,)
    total   float          what the weighted sum is divided by
    known   per code column, bool (categories + 1,): the codes the query table holds, for `clearbox`
    """

    group: NDArray[np.int8]
    index: NDArray[np.int32]
    scale: NDArray[np.float64]
    weight: NDArray[np.float64]
    total: float
    missing: Missing
    known: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return GowerSpace, (self.group, self.index, self.scale, self.weight, self.total, self.missing, self.known)

    def __repr__(self) -> str:
        return f"GowerSpace(columns={len(self.group)}, missing={self.missing.value})"

    @property
    def used(self) -> NDArray[np.bool_]:
        """Columns that can add to a distance, bool (p,); one column stays even when none can."""
        used = self.weight > 0.0
        used[0] |= not used.any()
        return used

    @cached_property
    def measure(self) -> Measure:
        """The kernels' form of this space; rows are packed in schema order, hashed categories take two slots."""
        used = self.used
        group = self.group[used]
        width = np.where(group == HASHES, 2, 1)
        slot = (np.cumsum(width) - width).astype(np.int32)
        columns = (frozen(group), frozen(slot), frozen(self.scale[used]), frozen(self.weight[used]))
        return Measure(*columns, float(self.total), _KERNEL[self.missing])

    @cached_property
    def digest(self) -> str:
        """The same for spaces that give the same distances."""
        seen = hashlib.sha256(repr((self.total, self.missing.value)).encode())
        for array in (self.group, self.index, self.scale, self.weight):
            seen.update(array.tobytes())
        for place in sorted(self.known):
            seen.update(repr(place).encode() + self.known[place].tobytes())
        return seen.hexdigest()

    def view(self, block: Block) -> Block:
        """The block as this space sees it."""
        if not self.known:
            return block
        codes = block.codes.copy()
        for column, held in self.known.items():
            codes[:, column] = np.where(held[codes[:, column]], codes[:, column], -1)
        return block.with_codes(codes)


def fit_space(
    encoding: Encoding,
    options: SpaceOptions,
    summaries: Mapping[str, Mapping[str, ColumnSummary]],
    query: str,
    reference: str,
    fit: Sequence[str],
    spreads: Mapping[str, float] | None = None,
) -> GowerSpace:
    """The space of one search.

    Parameters
    ----------
    summaries : {table: {column: ColumnSummary}}
    query, reference : str
        Tables of this search; only the `pair_*` ranges and the `clearbox` policy look at them.
    fit : sequence of str
        Tables that give the ranges otherwise.
    spreads : {column: stored units}, optional
        Ranges found from quantiles.
    """
    pair = {RangeFrom.PAIR_UNION: (query, reference), RangeFrom.PAIR_REFERENCE: (reference,)}
    tables = pair.get(options.range_from, tuple(fit))
    tables = tuple(dict.fromkeys(tables))
    scale, weight, known = [], [], {}
    for c in encoding.columns:
        by_table = {t: s[c.name] for t, s in summaries.items()}
        scale.append(_scale(c, options, [by_table[t] for t in tables], spreads))
        gap = _numeric(c) and by_table[query].nulls + by_table[reference].nulls > 0
        weight.append(0.0 if options.missing is Missing.CLEARBOX and gap else c.reading.column.weight)
        if options.missing is Missing.CLEARBOX and c.group == HASHES:
            raise InputError(
                f"column {c.name!r}: more than {MOST_CATEGORIES:,} categories cannot be compared with "
                "missing='clearbox'; exclude it or use missing='level'."
            )
        if options.missing is Missing.CLEARBOX and c.group == CODES and c.categories is not None:
            held = by_table[query].counts or {}
            flags = [value in held for value in c.categories.to_pylist()]
            known[c.index] = np.array([*flags, True])
    # Left to right, as the distance itself; the built-in sum() compensates on newer Pythons.
    total = functools.reduce(operator.add, (c.reading.column.weight for c in encoding.columns), 0.0)
    if not math.isfinite(total):
        raise InputError("the column weights add up to infinity; use smaller weights.")
    if total <= 0:
        raise InputError("all column weights are 0; give at least one column a weight above 0.")
    return GowerSpace(
        np.array([c.group for c in encoding.columns], np.int8),
        np.array([c.index for c in encoding.columns], np.int32),
        np.array(scale),
        np.array(weight),
        total,
        options.missing,
        known,
    )


def _numeric(c: ColumnCode) -> bool:
    return c.group not in (CODES, HASHES) and c.reading.column.kind is not Kind.ORDINAL


def _scale(
    c: ColumnCode, options: SpaceOptions, chosen: Sequence[ColumnSummary], spreads: Mapping[str, float] | None
) -> float:
    column = c.reading.column
    if column.kind is Kind.ORDINAL:
        return float(len(column.levels) - 1)
    if c.group in (CODES, HASHES):
        return 1.0
    if column.range is not None:
        return c.units(column.range)
    if c.group == WIDE and options.range_from in (RangeFrom.QUANTILE, RangeFrom.IQR, RangeFrom.RANK):
        raise InputError(
            f"column {c.name!r}: integers beyond 2**53 have no {options.range_from.value} range; rescale the column, "
            "or give it an explicit range in a schema."
        )
    if options.range_from is RangeFrom.RANK:
        return 1.0
    if spreads is not None and c.name in spreads:
        return spreads[c.name]
    whole = sum(chosen, ColumnSummary())
    if whole.low is None:
        return 0.0
    span = c.span(whole.low, whole.high)
    if not np.isfinite(span):
        raise InputError(f"column {c.name!r}: range overflows float64; rescale it.")
    return span


def rank_of(
    values: NDArray[np.float64], support: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mid-rank in [0, 1] of each value among weighted `support` points (ascending); NaN stays NaN.

    A value between two support points gets a rank of its own, so that it never coincides with a real value.

    >>> rank_of(np.array([1.0, 1.5, 2.0]), np.array([1.0, 2.0]), np.array([2, 2]))
    array([0.25, 0.5 , 0.75])
    """
    edges = np.concatenate([[0], np.cumsum(counts)])
    below = edges[np.searchsorted(support, values, side="left")]
    upto = edges[np.searchsorted(support, values, side="right")]
    out = (below + upto) / (2.0 * edges[-1])
    out[np.isnan(values)] = np.nan
    return np.asarray(out, np.float64)
