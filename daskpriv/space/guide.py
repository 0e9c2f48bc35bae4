"""What all searches in one reference table share: how its rows are coded, and which part of it a row belongs to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels import codes, tree
from daskpriv.kernels.codes import BYTES, MOST, Coder, Codes
from daskpriv.kernels.gower import CODES, DROP, HASHES, NUMBERS, WIDE, Cells, Measure, frozen, typical
from daskpriv.space.block import Block
from daskpriv.space.gower import GowerSpace
from daskpriv.space.packed import joined, packed, take

_LEVELS = 65_000.0
_PAIRS = 512
_SAMPLE = 8192


@dataclass(frozen=True, eq=False)
class Extent:
    """What is known about packed rows before they are coded; merges in any order.

    low, high  per column, in its own type; None where every cell is missing
    gaps       bool (p,): a cell is missing
    sample     at most 8 192 rows, those whose ids have the smallest hashes
    """

    low: tuple[Any, ...]
    high: tuple[Any, ...]
    gaps: tuple[bool, ...]
    sample: Cells

    @classmethod
    def of(cls, space: GowerSpace, block: Block) -> Extent:
        """Of one block."""
        cells = packed(space, block)
        numbers, integers, gaps = codes.extremes(cells, space.measure.group, space.measure.slot)
        low, high = zip(
            *(_ends(g, x, n) for g, x, n in zip(space.measure.group, numbers, integers, strict=True)), strict=True
        )
        return cls(low, high, tuple((gaps > 0).tolist()), _fewest(cells))

    def __add__(self, other: Extent) -> Extent:
        low = tuple(_pick(min, a, b) for a, b in zip(self.low, other.low, strict=True))
        high = tuple(_pick(max, a, b) for a, b in zip(self.high, other.high, strict=True))
        gaps = tuple(a or b for a, b in zip(self.gaps, other.gaps, strict=True))
        return Extent(low, high, gaps, _fewest(joined([self.sample, other.sample])))


def _pick(choose: Any, a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else choose(a, b)


def _fewest(cells: Cells) -> Cells:
    """The rows whose ids have the smallest hashes, by id: the order in which blocks are measured changes nothing."""
    if len(cells.row) <= _SAMPLE:
        return take(cells, np.argsort(cells.row))
    mixed = cells.row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    chosen = np.argpartition(mixed * np.uint64(0xBF58476D1CE4E5B9), _SAMPLE)[:_SAMPLE]
    return take(cells, chosen[np.argsort(cells.row[chosen])])


def _ends(group: int, number: NDArray[np.float64], integer: NDArray[np.int64]) -> tuple[Any, Any]:
    """Lowest and highest cell of a column, None where there is none."""
    low, high = (number if group == NUMBERS else integer).tolist()
    return (low, high) if low <= high else (None, None)


@dataclass(frozen=True, eq=False)
class Guide:
    """Codes of a reference table and the splits that cut it into coherent parts.

    Attributes
    ----------
    parts : int
        How many parts; the splits lead a row to one of them.
    even : bool
        Mismatches alone decide a distance: every column is a category, all of one weight, none with 255 or more.
    """

    space: GowerSpace
    coder: Coder
    nodes: NDArray[np.int32]
    sets: NDArray[np.uint64]
    parts: int
    even: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.space, tuple(self.coder), self.nodes, self.sets, self.parts, self.even)

    def __repr__(self) -> str:
        return f"Guide(parts={self.parts})"

    @classmethod
    def fit(cls, space: GowerSpace, extent: Extent, parts: int) -> Guide:
        """Codes from the extent of a table; about `parts` parts of like size, cut by its sample."""
        even = _even(space.measure, extent)
        coder = _coder(space.measure, extent)
        coded = codes.encode(extent.sample, coder)
        leaf = max(-(-len(extent.sample.row) // parts), 1)
        _, start, nodes, sets = tree.plant(coded.number, coded.byte, coder.caps, coder.adds, leaf)
        return cls(space, coder, frozen(nodes), frozen(sets), len(start) - 1, even)

    def without(self, empty: NDArray[np.bool_]) -> Guide:
        """The same guide for query rows: none belongs to a part (bool (parts,)) where no reference row is."""
        held = np.flatnonzero(~empty)
        nodes = self.nodes.copy()
        leaves = nodes[:, 0] == tree.LEAF
        beside = np.minimum(np.searchsorted(held, nodes[leaves, 1]), len(held) - 1)
        nodes[leaves, 1] = held[beside]
        return replace(self, nodes=frozen(nodes))

    def encode(self, cells: Cells) -> Codes:
        """Codes of packed rows."""
        return cast(Codes, codes.encode(cells, self.coder))

    def part_of(self, coded: Codes) -> NDArray[np.int32]:
        """The part, int32 (n,), each row belongs to."""
        return cast(NDArray[np.int32], tree.descend(coded.number, coded.byte, self.nodes, self.sets))

    def scatter(self, block: Block) -> list[Cells]:
        """The packed rows of a block, part by part; ids ascend in each."""
        cells = packed(self.space, block)
        order, start = tree.by_tile(self.part_of(self.encode(cells)), self.parts)
        return [take(cells, order[a:b]) for a, b in itertools.pairwise(start)]


def _arrived(
    space: GowerSpace, coder: tuple[Any, ...], nodes: NDArray[Any], sets: NDArray[Any], parts: int, even: bool
) -> Guide:
    held = [frozen(v) if isinstance(v, np.ndarray) else v for v in coder]
    return Guide(space, Coder(*held), frozen(nodes), frozen(sets), parts, even)  # type: ignore[arg-type]


class _Number(NamedTuple):
    group: int
    slot: int
    low: float
    high: float
    wide_low: int
    wide_high: int
    step: float
    cap: int
    gaps: bool
    clipped: bool


def _coder(measure: Measure, extent: Extent) -> Coder:
    with np.errstate(over="ignore", divide="ignore"):
        scale = float(_LEVELS / np.float64(_likely(measure, extent.sample)))
    if not np.isfinite(scale):
        scale = 0.0  # denormal weights: every bound is 0, every row is looked at
    numbers: list[_Number] = []
    others: list[tuple[int, int, int]] = []
    most: list[Any] = []
    columns = zip(
        measure.group, measure.slot, measure.range, measure.weight, extent.low, extent.high, extent.gaps, strict=True
    )
    for g, s, span, w, low, high, gaps in columns:
        cap = min(int(w * scale), MOST)
        if g in (CODES, HASHES):
            others.append((codes.OF_CODES if g == CODES else codes.OF_HASHES, s, cap))
            most.append(high)
        elif span == 0.0:
            others.append((codes.OF_WIDE if g == WIDE else codes.OF_NUMBERS, s, cap))
            most.append(None)
        else:
            numbers.append(_number(int(g), int(s), (low, high, gaps), float(span), float(w) * scale, cap))
            if gaps and measure.missing != DROP:
                others.append((codes.GAP_WIDE if g == WIDE else codes.GAP_NUMBERS, s, cap))
                most.append(None)
    # Columns that tell rows apart come first: the lanes give up early.
    numbers.sort(key=lambda n: (n.gaps, -_told_apart(extent.sample, n.slot, n.group, n.step)))
    order = sorted(range(len(others)), key=lambda i: -others[i][2] * _told_apart(extent.sample, others[i][1], CODES, 1))
    others, most = [others[i] for i in order], [most[i] for i in order]
    kinds = (np.int8, np.int32, np.float64, np.float64, np.int64, np.int64, np.float64, np.int64)
    fields = [frozen(np.array([n[i] for n in numbers], kind)) for i, kind in enumerate(kinds)]
    places = [frozen(np.array([o[i] for o in others], kind)) for i, kind in enumerate((np.int8, np.int32, np.int64))]
    whole = not any(n.gaps or n.clipped or n.step == 0.0 for n in numbers)
    tight = whole and measure.missing != DROP and all(m is not None and m < BYTES for m in most)
    ones = sum(not n.gaps for n in numbers)
    clipped = any(n.clipped for n in numbers)
    return Coder(*fields, *places, ones, clipped, tight, scale)  # type: ignore[call-arg,arg-type]


def _told_apart(sample: Cells, slot: int, group: int, step: float) -> float:
    """How much sampled rows differ from the next one in a column, in codes; for categories, how many do."""
    if group == NUMBERS:
        column = sample.number[:, slot]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.minimum(np.nan_to_num(np.abs(np.diff(column)) * step), MOST).sum())
    return float((np.diff(sample.integer[:, slot]) != 0).sum()) * (MOST if group == WIDE else 1)


def _even(measure: Measure, extent: Extent) -> bool:
    return (
        measure.missing != DROP
        and bool((measure.group == CODES).all())
        and bool((measure.weight == measure.weight[0]).all())
        and max(h if h is not None else 0 for h in extent.high) < BYTES
    )


def _likely(measure: Measure, sample: Cells) -> float:
    """A weighted sum that nearest neighbours rarely pass, 1.5 times the mean of random pairs: the end of the scale."""
    if not np.isin(measure.group, (NUMBERS, WIDE)).any():
        return float(measure.weight.sum())  # mismatches are whole numbers of codes: nothing to gain
    likely = 1.5 * float(typical(sample, min(len(sample.row), _PAIRS), measure)) * measure.total
    return min(max(float(measure.weight.max()), likely), float(measure.weight.sum()))


def _number(group: int, slot: int, extent: tuple[Any, Any, bool], span: float, units: float, cap: int) -> _Number:
    """The window of a number column: what lies outside is clamped to it, which keeps every bound a bound."""
    low, high, gaps = extent
    low, high = (0, 0) if low is None else (low, high)
    width = float(high - low)
    with np.errstate(over="ignore"):
        step = float(np.float64(units) / span)
    if not (np.isfinite(step) and np.isfinite(width)):
        step, high = 0.0, low
    wide = (low, high) if group == WIDE else (0, 0)
    bounds = (0.0, 0.0) if group == WIDE else (float(low), float(high))
    return _Number(group, slot, *bounds, *wide, step, cap, gaps, width > span)
