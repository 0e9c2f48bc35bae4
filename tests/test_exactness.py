"""Bit for bit: searches, counts and credits against a brute force in float64 that shares no line with the engine.

A drawn `Case` holds the structure of some tables (styles of columns, sizes, gaps, weights) and a seed for their cells,
so that examples are cheap and shrink in structure. The brute force computes every pair from the definitions alone:
start at 0.0, add weight x distance of one column after the other in schema order, divide once by the total weight.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from distributed import Client
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import daskpriv
from daskpriv import Column, Kind, Schema, session
from daskpriv.cluster.driver import Dask
from daskpriv.engine.executor import Executor, Serial, Threads
from daskpriv.engine.plan import Layout
from daskpriv.engine.run import Blocks, Engine
from daskpriv.engine.store import Store, key_of
from daskpriv.engine.units import Answer, Joined, Merged, Piece, Together, to_arrow
from daskpriv.evidence import CloserCounts, CreditLaw, Credits, Neighbours, NeighbourTable
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.runs import kept_while_used
from daskpriv.space import summary
from daskpriv.space.gower import Missing, RangeFrom, SpaceOptions
from daskpriv.tables.open import open_table

# The threads of a cluster that another test started may use `random` while hypothesis draws; nothing here does.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Array = NDArray[Any]

MISSING = ("level", "gower", "max", "anonymeter", "clearbox")
NUMBERS = (Kind.NUMERIC, Kind.DATETIME, Kind.TIMEDELTA)
TINIEST = 5e-324
# Where weights add up to more than 1e33, pairs whose sum is above 1e-290 but whose distance rounds below the
# smallest normal number are lost (see `test_sums_that_vanish_beside_huge_weights_tie`). False once that is mended.
LOSES_FAINT_SUMS = False
# Pairs of a matrix that the brute force holds at once.
CHUNK = 2**16


def examples(number: int) -> settings:
    """So many fresh examples, however long one takes."""
    return settings(
        max_examples=number,
        derandomize=False,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


# ---------------------------------------------------------------------------------------------- the brute force


@dataclass(frozen=True, eq=False)
class Axis:
    """One column of every table for the brute force.

    cells   per table: float64 numbers (or places among levels), uint64 whole units, or int64 classes
    gone    per table: the missing ones
    fixed   a range that is not taken from cells: of ordinal columns, or declared
    """

    kind: Kind
    weight: float
    cells: Mapping[str, Array]
    gone: Mapping[str, NDArray[np.bool_]]
    fixed: float | None = None

    @property
    def scaled(self) -> bool:
        """True when cells have a distance between 0 and 1."""
        return self.kind in NUMBERS or self.kind is Kind.ORDINAL

    def span(self, fit: Sequence[str]) -> float:
        """The largest minus the smallest cell of these tables, rounded once."""
        if self.fixed is not None:
            return self.fixed
        present = np.concatenate([self.cells[t][~self.gone[t]] for t in fit])
        if len(present) == 0:
            return 0.0
        low, high = present.min().item(), present.max().item()
        return float(high - low)

    def gaps(self, x: Array, y: Array, span: float) -> Floats:
        """The distance of every present cell of x (n, 1) to every one of y (1, m)."""
        if not self.scaled:
            return np.asarray(x != y, np.float64)
        # The difference of two uint64 is exact and rounded once on its way to float64.
        step = np.where(x > y, x - y, y - x).astype(np.float64) if x.dtype == np.uint64 else np.abs(x - y)
        if span == 0.0:
            return np.asarray(step != 0.0, np.float64)
        return np.asarray(np.minimum(step / span, 1.0), np.float64)


def total_weight(axes: Sequence[Axis]) -> float:
    """The weights from left to right."""
    total = 0.0
    for axis in axes:
        total += axis.weight
    return total


def distances(
    axes: Sequence[Axis], query: str, reference: str, fit: Sequence[str], missing: str, total: float | None = None
) -> Floats:
    """The distance of every query row to every reference row; +inf where they cannot be neighbours."""
    n, m = len(axes[0].cells[query]), len(axes[0].cells[reference])
    total = total_weight(axes) if total is None else total
    spans = [axis.span(fit) for axis in axes]
    out = np.empty((n, m))
    high = max(1, CHUNK // m)
    with np.errstate(all="ignore"):
        for start in range(0, n, high):
            rows = slice(start, min(start + high, n))
            done, seen = np.zeros((rows.stop - start, m)), np.zeros((rows.stop - start, m))
            for axis, span in zip(axes, spans, strict=True):
                add_column(axis, span, query, reference, rows, missing, done, seen)
            out[rows] = np.where(seen > 0.0, done / seen, 1.0) if missing == "gower" else done / total
    return out


def add_column(
    axis: Axis, span: float, query: str, reference: str, rows: slice, missing: str, done: Floats, seen: Floats
) -> None:
    """Add one column to the sums of some query rows, and its weight to those of the pairs that it counts for."""
    x, y = axis.cells[query][rows][:, None], axis.cells[reference][None, :]
    a, b = axis.gone[query][rows][:, None], axis.gone[reference][None, :]
    if axis.weight == 0.0:
        return
    if missing == "clearbox" and axis.kind in NUMBERS and (axis.gone[query].any() or axis.gone[reference].any()):
        return
    if missing == "clearbox" and not axis.scaled:
        known = axis.cells[query][~axis.gone[query]]
        gap = np.asarray(np.where(a, -1, x) != np.where(b | ~np.isin(y, known), -1, y), np.float64)
    else:
        gap = axis.gaps(x, y, span)
        if a.any() or b.any():
            one, both = {
                "level": (1.0, 0.0),
                "clearbox": (1.0, 0.0),
                "max": (1.0, 1.0),
                "gower": (0.0, 0.0),
                "anonymeter": (math.inf, 1.0) if axis.scaled else (1.0, 0.0),
            }[missing]
            gap = np.where(a & b, both, np.where(a | b, one, gap))
    seen += axis.weight * ~(a | b)
    done += axis.weight * gap


@dataclass(frozen=True, eq=False)
class Lists:
    """The nearest rows of every query row, as the engine returns them."""

    distance: Floats
    row: Places
    ties: Places


def nearest(matrix: Floats, k: int, own: bool = False) -> Lists:
    """The k nearest in the order (distance, row id); with `own` a row never meets itself."""
    if own:
        matrix = matrix.copy()
        np.fill_diagonal(matrix, math.inf)
    n = len(matrix)
    order = np.argsort(matrix, axis=1, kind="stable")[:, :k]
    near = np.take_along_axis(matrix, order, axis=1)
    distance, row = np.full((n, k), math.inf), np.full((n, k), -1, np.int64)
    distance[:, : near.shape[1]] = near
    row[:, : near.shape[1]] = np.where(near < math.inf, order, -1)
    ties = np.sum((matrix == distance[:, :1]) & (matrix < math.inf), axis=1)
    return Lists(distance, row, ties)


def counted(matrix: Floats, threshold: Floats, own: bool = False) -> tuple[Places, Places]:
    """How many reference rows lie closer than, and exactly at, a distance of each query row's own."""
    met = ~np.eye(len(matrix), dtype=bool) if own else np.ones(matrix.shape, bool)
    return np.sum((matrix < threshold[:, None]) & met, axis=1), np.sum((matrix == threshold[:, None]) & met, axis=1)


def credit_levels(first: Floats, second: Floats) -> list[tuple[int, int, int]]:
    """(credit, rows of the first table with it, rows of the second), credit ascending; rows without any included."""
    both = np.concatenate([first, second], axis=1)
    held = (both == both.min(axis=1, keepdims=True)) & (both < math.inf)
    share = np.array([round(CreditLaw.UNIT / max(int(t), 1)) for t in held.sum(axis=1)], np.int64)
    credit = (held * share[:, None]).sum(axis=0)
    sides = credit[: first.shape[1]], credit[first.shape[1] :]
    levels = np.unique(np.append(credit, 0))
    return [(int(c), int((sides[0] == c).sum()), int((sides[1] == c).sum())) for c in levels]


# ---------------------------------------------------------------------------------------------- styles of columns


@dataclass(frozen=True, eq=False)
class Pool:
    """What one column may hold.

    values   for Arrow
    exact    for the brute force: float64 numbers, Python integers (object), or int64 classes
    inside   so many values are for every table, the further ones for query rows alone
    types    Arrow types that hold all values
    """

    kind: Kind
    values: pa.Array
    exact: Array
    inside: int
    types: tuple[pa.DataType, ...]
    levels: tuple[Any, ...] = ()
    declared: bool = False
    range: float | None = None

    def axis(self, weight: float, places: Mapping[str, Places]) -> Axis:
        """For the brute force, from the place of every cell; -1 is a missing one."""
        exact = self.exact
        if exact.dtype == object:
            used = [exact[p] for t in places.values() for p in np.unique(t[t >= 0])]
            low = min(used, default=0)
            # Times are counted in their greatest common step, so that their unit changes nothing.
            step = 1 if self.kind is Kind.NUMERIC else math.gcd(*(v - low for v in used)) or 1
            exact = np.array([max(v - low, 0) // step if v - low < 2**64 else 0 for v in exact], np.uint64)
        gone = {t: p < 0 for t, p in places.items()}
        cells = {t: np.where(gone[t], exact.dtype.type(0), exact[p]) for t, p in places.items()}
        return Axis(self.kind, weight, cells, gone, len(self.levels) - 1.0 if self.levels else self.range)


def floats(values: Sequence[float] | Array, outside: Sequence[float] | Array = (), **more: Any) -> Pool:
    """Float64 numbers."""
    array = np.array([*values, *outside], np.float64)
    return Pool(Kind.NUMERIC, pa.array(array), array, len(values), (pa.float64(),), **more)


def whole(
    values: Sequence[int] | Array,
    outside: Sequence[int] = (),
    types: Sequence[pa.DataType] = (pa.int64(),),
    kind: Kind = Kind.NUMERIC,
    **more: Any,
) -> Pool:
    """Numbers or times that are exact integers in the unit of the first type."""
    exact = np.array([*map(int, values), *outside], object)
    array = pa.array(exact.tolist(), types[0])
    return Pool(kind, array, exact, len(values), tuple(types), **more)


def classes(
    values: Sequence[Any],
    outside: Sequence[Any] = (),
    types: Sequence[pa.DataType] = (pa.string(),),
    kind: Kind = Kind.NOMINAL,
    **more: Any,
) -> Pool:
    """Values that are equal or not."""
    every = [*values, *outside]
    number: dict[Any, int] = {}
    exact = np.array([number.setdefault(v, len(number)) for v in every], np.int64)
    return Pool(kind, pa.array(every, types[0]), exact, len(values), tuple(types), **more)


def ranks(levels: Sequence[Any], used: Sequence[int] | Array, kind: pa.DataType) -> Pool:
    """Ordinal levels, some of them never used."""
    exact = np.array(used, np.float64)
    values = pa.array([levels[int(u)] for u in used], kind)
    return Pool(Kind.ORDINAL, values, exact, len(exact), (kind,), tuple(levels), declared=True)


def outlier(rng: np.random.Generator, m: int) -> Pool:
    """Ordinary numbers and one that is far away, so that all others look alike."""
    values = rng.normal(size=m)
    values[rng.integers(m)] = 10.0 ** rng.uniform(2, 307)
    return floats(values, [-1e308, -3.0])


def decimals(rng: np.random.Generator, m: int) -> Pool:
    """Decimals of scale 2, close or beyond what float64 holds."""
    units = rng.integers(-(10**17), 10**17, 40) if rng.random() < 0.3 else rng.integers(-500, 500, 40)
    pool = whole(units, [10**9, -(10**9)])
    cells = [Decimal(u).scaleb(-2) for u in pool.exact]
    return dataclasses.replace(pool, values=pa.array(cells, pa.decimal128(38, 2)), types=(pa.decimal128(38, 2),))


def stamps(unit: str, zone: str | None = None) -> tuple[pa.DataType, ...]:
    """Timestamps of this unit."""
    return (pa.timestamp(unit, zone),)


def around(base: int, span: int) -> Callable[[np.random.Generator, int], list[int]]:
    """Integers a few units apart, far from 0."""
    return lambda rng, m: [base + int(v) for v in rng.integers(0, span, m)]


Style = Callable[[np.random.Generator, int], Pool]
FLOATS: dict[str, Style] = {
    "normal": lambda rng, m: floats(rng.normal(size=m), rng.normal(size=4) * 50),
    "uniform": lambda rng, m: floats(rng.random(m), [2.0, -1e9]),
    "skewed": lambda rng, m: floats(np.exp(2 * rng.normal(size=m)).round(2), [1e12]),
    "few floats": lambda rng, m: floats([0.0, -0.0, 0.1, 0.2, 0.3, 0.1 + 0.2, 0.57, 1.0, 1e-9], [-0.1, 1.1]),
    "tenths": lambda rng, m: floats([i * 0.1 for i in range(11)] + [i / 10 for i in range(11)], [1.2]),
    "thirds": lambda rng, m: floats([i / 3 for i in range(4)] + [1 - i / 3 for i in range(4)]),
    "ulps": lambda rng, m: floats([0.0, 2.0, *(1.0 + i * 2.0**-52 for i in range(12))], [3.0]),
    "mostly zero": lambda rng, m: floats([0.0] * 40 + rng.lognormal(3, 2, 10).tolist(), [-5.0]),
    "outlier": outlier,
    "extreme": lambda rng, m: floats([1e308, 0.0, -0.0, 1.0, TINIEST, 3e307, 2e-308], [-1e308, -1e300]),
    "large": lambda rng, m: floats(rng.uniform(-8e307, 8e307, m), [1.7e308, -1.7e308]),
    "denormal": lambda rng, m: floats([i * TINIEST for i in (0, 1, 2, 3, 5, 7, 1000)], [1.0, -TINIEST]),
    "denormal beside one": lambda rng, m: floats([0.0, TINIEST, 1e-310, 1e-300, 1.0], [7e300]),
    "constant": lambda rng, m: floats([2.5], [2.5000000000000004]),
    "declared range": lambda rng, m: floats(rng.normal(size=m).round(2), [99.0], range=1.7, declared=True),
    "narrow range": lambda rng, m: floats(rng.random(m).round(3), [5.0], range=float(10.0 ** rng.uniform(-9, -1))),
    "endless range": lambda rng, m: floats(rng.random(m).round(3), [5.0], range=float(10.0 ** rng.uniform(1, 300))),
    "single": lambda rng, m: dataclasses.replace(
        floats(rng.normal(size=m).astype(np.float32), [-7.5]), types=(pa.float32(), pa.float64())
    ),
}
INTEGERS: dict[str, Style] = {
    "counts": lambda rng, m: whole(
        rng.poisson(2, 30), [100, -3], (pa.int64(), pa.int32(), pa.int8(), pa.int16(), pa.float64())
    ),
    "thousands": lambda rng, m: whole(rng.integers(0, 70_000, m), [10**6], (pa.int64(), pa.int32())),
    "one integer": lambda rng, m: whole([7], [8]),
    "flags as numbers": lambda rng, m: dataclasses.replace(
        whole([0, 1]), values=pa.array([False, True]), types=(pa.bool_(),), declared=True
    ),
    "beyond 2**53": lambda rng, m: whole(around(2**53 - 20, 40)(rng, 30), [2**53 + 2**12], (pa.int64(), pa.uint64())),
    "close at 2**60": lambda rng, m: whole(around(2**60, 200)(rng, 60), [2**60 - 1, 2**61]),
    "wide integers": lambda rng, m: whole(rng.integers(-(2**62), 2**62, m), [-(2**62) - 9, 2**62 + 2**40]),
    "ends of int64": lambda rng, m: whole(
        [1 - 2**63, 2 - 2**63, 2**63 - 2, 2**63 - 3, 0, -1, *around(-1000, 2000)(rng, 5)], [2**62]
    ),
    "ends of uint64": lambda rng, m: whole([0, 1, 2**63, 2**64 - 3, 2**64 - 4, 2**63 - 1], [5], (pa.uint64(),)),
    "top of uint64": lambda rng, m: whole([2**64 - 1 - i for i in range(50)], [2**64 - 3000], (pa.uint64(),)),
    "decimals": decimals,
}
TIMES: dict[str, Style] = {
    "days": lambda rng, m: whole(rng.integers(0, 3000, 200), [40_000, -9], (pa.date32(),), Kind.DATETIME),
    "seconds": lambda rng, m: whole(around(1_700_000_000, 900)(rng, m), [0], stamps("s"), Kind.DATETIME),
    "milliseconds": lambda rng, m: whole(
        rng.integers(0, 10**12, m), [-(10**11)], stamps("ms", "UTC"), kind=Kind.DATETIME
    ),
    "nanoseconds": lambda rng, m: whole(
        around(1_700_000_000_123_456_789, 500)(rng, 80), [1_600_000_000_000_000_001], stamps("ns"), Kind.DATETIME
    ),
    "years of nanoseconds": lambda rng, m: whole(
        rng.integers(10**18, 2 * 10**18, m), [-(10**15) - 1], stamps("ns"), Kind.DATETIME
    ),
    "all nanoseconds": lambda rng, m: whole(
        rng.integers(-9 * 10**18, 9 * 10**18, m), [9 * 10**18 + 1], stamps("ns"), Kind.DATETIME
    ),
    "durations": lambda rng, m: whole(
        rng.integers(-(10**9), 10**9, m) * 1000, [10**14], (pa.duration("us"),), Kind.TIMEDELTA
    ),
    "clock": lambda rng, m: whole(
        rng.integers(0, 86_400, 300) * 10**6, [1], (pa.time64("us"), pa.time64("ns")), Kind.DATETIME
    ),
}
ORDINALS: dict[str, Style] = {
    "grades": lambda rng, m: ranks(["low", "mid", "high", "top"], [0, 1, 1, 3], pa.string()),
    "school years": lambda rng, m: ranks(list(range(16)), rng.integers(0, 16, 30), pa.int8()),
    "percent": lambda rng, m: ranks(list(range(400, -1, -1)), rng.integers(0, 401, m), pa.int64()),
    "two levels": lambda rng, m: ranks(["no", "yes"], [0, 1], pa.string()),
}
CATEGORIES: dict[str, Style] = {
    "flags": lambda rng, m: classes([True, False], types=(pa.bool_(),), kind=Kind.BOOLEAN),
    "words": lambda rng, m: classes(
        ["Graz", "graz", "Linz", "Linz ", "", "Ärger", "a\x00b"], ["Wien", "GRAZ"], (pa.string(), pa.large_string())
    ),
    "one word": lambda rng, m: classes(["same"], ["other"]),
    "mostly one": lambda rng, m: classes(["usual"] * 60 + [f"rare {i}" for i in range(6)], ["new"]),
    "many words": lambda rng, m: classes([f"w{i}" for i in range(300)], [f"v{i}" for i in range(30)]),
    "thousands of words": lambda rng, m: classes([f"t{i}" for i in range(m)], ["u0", "u1"], kind=Kind.TEXT),
    "dictionary": lambda rng, m: classes(
        list("abcdefgh"), ["z"], (pa.string(), pa.dictionary(pa.int32(), pa.string()))
    ),
    "blobs": lambda rng, m: classes([bytes([i % 7, 255 - i]) for i in range(20)], [b""], (pa.binary(),)),
    "labels": lambda rng, m: classes(range(-3, 20), [2**62], (pa.int64(),), declared=True),
    "many labels": lambda rng, m: classes(range(m), [-1, 2**40], (pa.int64(),), declared=True),
    "float labels": lambda rng, m: classes([0.0, -0.0, 1.5, 1e308, TINIEST], [7.0], (pa.float64(),), declared=True),
    "days as labels": lambda rng, m: classes(range(30), [99], (pa.date32(),), declared=True),
}
STYLES = FLOATS | INTEGERS | TIMES | ORDINALS | CATEGORIES
FAMILIES = {
    "all": list(STYLES),
    "common": ["normal", "skewed", "counts", "days", "words", "flags", "many words", "mostly zero"],
    "floats": list(FLOATS),
    "ties": ["few floats", "tenths", "thirds", "counts", "flags", "grades", "words", "mostly one"],
    "categories": list(CATEGORIES),
    "whole": [*INTEGERS, *TIMES],
    "extremes": ["extreme", "large", "denormal", "denormal beside one", "outlier", "ends of int64", "ends of uint64"],
    "constants": ["constant", "one integer", "one word"],
}


def constant_weight(value: float) -> Callable[[np.random.Generator, int], Floats]:
    """The same weight for every column."""
    return lambda rng, p: np.full(p, value)


WEIGHTS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "ones": constant_weight(1.0),
    "decimals": lambda rng, p: rng.choice([0.1, 0.2, 0.3, 0.7, 1.0, 3.0], p),
    "any": lambda rng, p: rng.random(p) * 10,
    "some zero": lambda rng, p: rng.choice([0.0, 0.0, 1.0, 0.5], p),
    "powers": lambda rng, p: np.exp2(rng.integers(-30, 30, p).astype(np.float64)),
    "one rules": lambda rng, p: np.where(np.arange(p) == rng.integers(p), 1e6, 0.1),
    "tiny": lambda rng, p: rng.choice([1e-300, 3e-300], p),
    "denormal": lambda rng, p: rng.choice([1e-320, TINIEST], p),
    "huge": lambda rng, p: rng.choice([1e300, 7e300], p),
    "tiny and one": lambda rng, p: rng.choice([1e-300, 1e-17, 1.0, 0.1], p),
    "tiny and huge": lambda rng, p: rng.choice([1e-300, 1.0, 1e300, 0.0], p),
}
LAWS = ("independent", "independent", "clusters", "latent")
GAPS = ("none", "none", "few", "half", "columns", "rows", "query", "mixed")


# ---------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """The structure of some tables and of a search in them; `seed` fills the cells.

    styles      of the first columns; repeated `copies` times
    rows        of the tables, in their order
    law         how the cells of a row hang together: not at all, by clusters, or by one number behind all
    twins       share of the rows that are copies of other rows, but for a share `noise` of their cells
    outside     share of the cells of the last table that may be unlike any of the others
    blocks      tables are cut into so many blocks
    group       so many of them are searched by one task
    categories  beyond so many categories they are hashed
    """

    seed: int
    styles: tuple[str, ...]
    rows: tuple[int, ...]
    copies: int = 1
    weights: str = "ones"
    gaps: str = "none"
    law: str = "independent"
    twins: float = 0.0
    noise: float = 0.0
    outside: float = 0.0
    missing: str = "level"
    k: int = 1
    own: bool = False
    blocks: int = 1
    group: int = 1
    threads: bool = False
    categories: int = 50_000
    declared: bool = True

    @property
    def block_rows(self) -> int:
        """Rows per block."""
        return -(-max(self.rows) // self.blocks)

    @property
    def layout(self) -> Layout:
        """How the engine cuts the tables."""
        return Layout(self.block_rows, self.block_rows * self.group)

    @contextmanager
    def running(self) -> Iterator[Executor]:
        """An executor, also for the public function; few categories are too many to number."""
        executor = Threads(2) if self.threads else Serial()
        try:
            with (
                patch.object(summary, "MOST_CATEGORIES", self.categories),
                patch.object(session, "Threads", lambda: executor),
            ):
                yield executor
        finally:
            executor.close()


@dataclass(frozen=True, eq=False)
class World:
    """The tables of a case, for daskpriv and for the brute force."""

    frames: Mapping[str, pa.Table]
    axes: Sequence[Axis]
    schema: Schema | None
    weights: dict[str, float] | None

    def matrix(self, query: str, reference: str, fit: Sequence[str], missing: str) -> Floats:
        """All distances of one direction."""
        found = distances(self.axes, query, reference, fit, missing)
        if LOSES_FAINT_SUMS and missing != "gower" and total_weight(self.axes) > 1e33:
            sums = distances(self.axes, query, reference, fit, missing, total=1.0)
            if ((found < 2.3e-308) & (sums > 0.0)).any():
                reject()
        return found

    def refused(self, fit: Sequence[str]) -> bool:
        """True when a range or the whole of a column's integers is more than 64 bits hold."""
        wide = [
            max(int(c[~a.gone[t]].max(initial=0)) for t, c in a.cells.items())
            for a in self.axes
            if a.cells and next(iter(a.cells.values())).dtype == np.uint64
        ]
        return any(math.isinf(a.span(fit)) for a in self.axes if a.scaled) or max(wide, default=0) >= 2**64 - 2


def assemble(
    pools: Sequence[Pool],
    places: Mapping[str, Sequence[Places]],
    weights: Sequence[float],
    declared: bool,
    rng: np.random.Generator,
) -> World:
    """Tables of columns c0, c1, ... from the place of every cell in its pool."""
    names = [f"c{i}" for i in range(len(pools))]
    frames = {}
    for table, columns in places.items():
        arrays = [arrow(pool, at, rng) for pool, at in zip(pools, columns, strict=True)]
        frames[table] = pa.table(arrays, names)
    axes = [
        pool.axis(weight, {table: columns[i] for table, columns in places.items()})
        for i, (pool, weight) in enumerate(zip(pools, weights, strict=True))
    ]
    schema = Schema(
        tuple(Column(n, p.kind, w, p.levels, p.range) for n, p, w in zip(names, pools, weights, strict=True))
    )
    if declared or any(p.declared or p.range for p in pools):
        return World(frames, axes, schema, None)
    return World(frames, axes, None, dict(zip(names, weights, strict=True)))


def arrow(pool: Pool, places: Places, rng: np.random.Generator) -> pa.Array:
    """The cells of one column of one table; missing floats are null or NaN."""
    kind = pool.types[int(rng.integers(len(pool.types)))]
    cells = pool.values.take(pa.array(places, mask=places < 0))
    if pa.types.is_dictionary(kind):
        return cells.dictionary_encode()
    if kind != cells.type:
        try:
            cells = cells.cast(kind)
        except pa.ArrowInvalid:
            return cells
    return pc.fill_null(cells, math.nan) if pa.types.is_floating(kind) and rng.random() < 0.3 else cells


def gap_shares(style: str, rng: np.random.Generator, last: bool, p: int) -> Floats:
    """The share of missing cells of every column of a table."""
    if style == "query":
        return np.full(p, 0.3 if last else 0.0)
    few = {
        "none": [0.0],
        "few": [0.03],
        "half": [0.5],
        "columns": [0.0, 0.0, 1.0],
        "rows": [0.0],
        "mixed": [0, 0.1, 0.9],
    }
    return rng.choice(few[style], p)


def drawn_places(rng: np.random.Generator, pools: Sequence[Pool], n: int, law: str) -> list[Places]:
    """The place of every cell without gaps and copies."""
    if law == "clusters":
        cluster, others = rng.integers(0, 6, n), rng.random((len(pools), n)) < 0.15
        centre = [np.random.default_rng(i).integers(0, pool.inside, 6)[cluster] for i, pool in enumerate(pools)]
    elif law == "latent":
        behind, others = rng.random(n), rng.random((len(pools), n)) < 0.05
        order = [np.argsort(pool.exact[: pool.inside], kind="stable") for pool in pools]
        centre = [o[(behind * len(o)).astype(np.int64)] for o in order]
    else:
        others, centre = np.ones((len(pools), n), bool), [np.zeros(n, np.int64)] * len(pools)
    return [
        np.where(other, rng.integers(0, pool.inside, n), at)
        for pool, other, at in zip(pools, others, centre, strict=True)
    ]


def world_of(case: Case, names: Sequence[str]) -> World:
    """The tables of a case; the last one may hold what no other one holds."""
    rng = np.random.default_rng(case.seed)
    pools = [STYLES[s](rng, max(8, min(2 * max(case.rows), 6000))) for s in case.styles * case.copies]
    places: dict[str, list[Places]] = {}
    for name, n in zip(names, case.rows, strict=True):
        last = name == names[-1]
        shares = gap_shares(case.gaps, rng, last, len(pools))
        empty = rng.random(n) < (0.3 if case.gaps == "rows" else 0.0)
        places[name] = []
        for pool, at, share in zip(pools, drawn_places(rng, pools, n, case.law), shares, strict=True):
            if last and case.outside:
                at = np.where(rng.random(n) < case.outside, rng.integers(0, len(pool.exact), n), at)
            places[name].append(np.where(empty | (rng.random(n) < share), -1, at))
    for place, target in enumerate(names):
        copy_rows(rng, places[target], places[names[int(rng.integers(place + 1))]], case)
    weights = WEIGHTS[case.weights](rng, len(pools))
    if not weights.any():
        weights[0] = 1.0
    return assemble(pools, places, weights.tolist(), case.declared, rng)


def copy_rows(rng: np.random.Generator, target: Sequence[Places], source: Sequence[Places], case: Case) -> None:
    """Overwrite some rows of a table by rows of another, or of its own."""
    copy = np.flatnonzero(rng.random(len(target[0])) < case.twins)
    origin = rng.integers(0, len(source[0]), len(copy))
    for to, of in zip(target, source, strict=True):
        to[copy] = np.where(rng.random(len(copy)) < case.noise, to[copy], of[origin])


@st.composite
def cases(
    draw: st.DrawFn,
    tables: int,
    rows: Sequence[st.SearchStrategy[int]] | None = None,
    copies: Sequence[int] = (1, 1, 1, 1, 2, 5),
) -> Case:
    """Any case with so many tables."""
    few = st.one_of(st.integers(1, 9), st.integers(28, 140), st.integers(120, 400))
    some = st.sampled_from(list(FAMILIES)).flatmap(
        lambda f: st.lists(st.sampled_from(FAMILIES[f]), min_size=1, max_size=9).map(tuple)
    )
    missing = draw(st.sampled_from(MISSING))
    own = tables == 1
    return Case(
        seed=draw(st.integers(0, 2**32 - 1)),
        styles=draw(some),
        rows=tuple(draw(r) for r in rows or [few] * tables),
        copies=draw(st.sampled_from(copies)),
        weights=draw(st.sampled_from(["ones", "ones", "ones", "decimals", "decimals", *WEIGHTS])),
        gaps=draw(st.sampled_from(GAPS)),
        law=draw(st.sampled_from(LAWS)),
        twins=draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])),
        noise=draw(st.sampled_from([0.0, 0.1])),
        outside=draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
        missing=missing,
        k=draw(st.one_of(st.integers(1, 3), st.integers(1, 10))),
        own=own,
        blocks=draw(st.sampled_from([1, 1, 1, 2, 3, 5, 9])),
        group=draw(st.sampled_from([1, 2, 100])),
        threads=draw(st.sampled_from([False, False, False, True])),
        categories=50_000 if missing == "clearbox" else draw(st.sampled_from([50_000, 50_000, 50_000, 3])),
        declared=draw(st.booleans()),
    )


# ---------------------------------------------------------------------------------------------- comparisons


def assert_same(found: Any, expected: Lists) -> None:
    """Distances bit for bit, row ids, ties."""
    distance, row, ties = (np.asarray(a) for a in (found.distance, found.row, found.ties))
    assert distance.dtype == np.float64
    assert distance.shape == row.shape == expected.distance.shape
    same = (distance.view(np.int64) == expected.distance.view(np.int64)) & (row == expected.row)
    wrong = np.flatnonzero(~same.all(axis=1) | (ties != expected.ties))
    if len(wrong):
        i = wrong[0]
        told = f"{len(wrong)} of {len(ties)} query rows differ, the first is row {i}:"
        got = f"found    {distance[i].tolist()} {row[i].tolist()} ties {ties[i]}"
        want = f"expected {expected.distance[i].tolist()} {expected.row[i].tolist()} ties {expected.ties[i]}"
        raise AssertionError(f"{told}\n{got}\n{want}")


def search(world: World, k: int = 1, fit: str | None = None, **options: Any) -> Any:
    """The public function on the tables of a world; a single table is searched in itself."""
    query = world.frames.get("query", world.frames["reference"])
    given = {"schema": world.schema, "weights": world.weights, **options}
    return daskpriv.nearest_neighbours(query, world.frames["reference"], k, fit=fit, **given)


def fitted(fit: str | None, names: Sequence[str]) -> list[str]:
    """The tables that give the ranges."""
    chosen = {None: ["reference"], "query": [names[-1]], "both": ["reference", names[-1]]}[fit]
    return list(dict.fromkeys(chosen))


def check(case: Case, fit: str | None = None) -> None:
    """Search the tables of a case with the public function and compare."""
    names = ("reference",) if case.own else ("reference", "query")
    world = world_of(case, names)
    tables = fitted(fit, names)
    options = {"exclude_self": case.own, "missing": case.missing, "block_rows": case.block_rows}
    with case.running():
        if world.refused(tables):
            with pytest.raises(daskpriv.InputError, match=r"overflows float64|more than 64 bits"):
                search(world, case.k, fit, **options)
            return
        found = search(world, case.k, fit, **options)
    assert_same(found, nearest(world.matrix(names[-1], "reference", tables, case.missing), case.k, case.own))


# ---------------------------------------------------------------------------------------------- drawn searches


@examples(800)
@given(case=cases(2), fit=st.sampled_from([None, None, "query", "both"]))
def test_neighbours_are_those_of_the_brute_force(case: Case, fit: str | None) -> None:
    """Two tables of any columns."""
    check(case, fit)


@examples(400)
@given(case=cases(1))
def test_neighbours_of_a_table_in_itself_are_those_of_the_brute_force(case: Case) -> None:
    """A row is left out by its id, its twins are not."""
    check(case)


MANY = st.one_of(st.integers(1000, 1100), st.integers(2000, 2200), st.integers(3000, 3500))


@examples(250)
@given(
    case=cases(2, rows=[MANY, st.one_of(st.integers(1, 9), st.integers(100, 400))], copies=(1, 1, 2)),
    fit=st.sampled_from([None, "both"]),
)
def test_neighbours_among_thousands_of_rows(case: Case, fit: str | None) -> None:
    """Many tiles, and more than one level of them."""
    check(case, fit)


@examples(40)
@given(case=cases(1, rows=[st.one_of(st.integers(700, 900), st.integers(1300, 1500))], copies=(1,)))
def test_neighbours_of_thousands_of_rows_in_themselves(case: Case) -> None:
    """Many tiles, and thresholds of 0 from twins."""
    check(case)


@examples(40)
@given(case=cases(2, rows=[st.integers(1, 120), st.integers(1, 40)], copies=(30, 70)))
def test_neighbours_over_hundreds_of_columns(case: Case) -> None:
    """Up to 630 columns."""
    check(case)


# ---------------------------------------------------------------------------------------------- counts and credits


ROLES = ("train", "holdout", "synthetic")


def ranged(mode: str, query: str, reference: str) -> list[str]:
    """The tables that give the ranges of one direction."""
    tables: dict[str, tuple[str, ...]] = {
        "real": ROLES[:2],
        "train": ROLES[:1],
        "all": ROLES,
        "pair_union": (query, reference),
        "pair_reference": (reference,),
    }
    return list(dict.fromkeys(tables[mode]))


@dataclass(frozen=True)
class Questions:
    """What to ask the engine about the tables of a case.

    pairs       further directions to search, as (query, reference)
    compared    (query, reference) to count in, below and at thresholds of every sort
    """

    mode: str = "real"
    pairs: tuple[tuple[str, str], ...] = ()
    compared: tuple[str, str] = ("synthetic", "train")

    @property
    def searched(self) -> list[tuple[str, str]]:
        """All directions to search."""
        return list(dict.fromkeys([("synthetic", "train"), ("synthetic", "holdout"), *self.pairs]))

    @property
    def counts(self) -> list[CloserCounts]:
        """Counts below what a search of another table found."""
        known = self.searched
        return [
            CloserCounts("synthetic", "train", "holdout"),
            CloserCounts("synthetic", "holdout", "train"),
            *(CloserCounts(q, r, than) for q, than in self.pairs for q2, r in known if q == q2),
        ]


@dataclass(frozen=True, eq=False)
class Answers:
    """What the engine found."""

    lists: Mapping[tuple[str, str], Lists]
    counts: Mapping[CloserCounts, tuple[Places, Places]]
    compared: tuple[Places, Places]
    credits: list[tuple[int, int, int]]


def answers(
    world: World, executor: Executor, layout: Layout, missing: str, k: int, questions: Questions, thresholds: Floats
) -> Answers:
    """Everything at once, below the layer of metrics."""
    with kept_while_used(executor) as store:
        return answers_in(store, world, executor, layout, missing, k, questions, thresholds)


def answers_in(
    store: Store,
    world: World,
    executor: Executor,
    layout: Layout,
    missing: str,
    k: int,
    questions: Questions,
    thresholds: Floats,
) -> Answers:
    """The same, with the pieces kept in this store."""
    tables = {name: open_table(frame, name) for name, frame in world.frames.items()}
    engine = Engine(executor, layout, store=store)
    surveyed = survey(engine, tables, Columns(world.schema, weights=world.weights), ROLES[:2])
    options = SpaceOptions(Missing(missing), RangeFrom(questions.mode))
    fit = {"train": ROLES[:1], "all": ROLES}.get(questions.mode, ROLES[:2])
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed, k=k), options, fit)
    blocks, spaces = prepared.blocks, prepared.spaces
    found = engine.search([Neighbours(q, r, k) for q, r in questions.searched], blocks, spaces)
    counts = engine.count_closer(questions.counts, blocks, spaces, found)
    asked = CloserCounts(*questions.compared, questions.compared[1])
    # Another run: in one, a question has one answer.
    engine.run = key_of(engine.run, "thresholds")
    given_tables = {questions.compared: thresholds_at(engine, blocks[questions.compared[0]], thresholds)}
    compared = engine.count_closer([asked], blocks, spaces, given_tables)
    law = engine.credits(Credits("synthetic", "train", "holdout"), blocks, spaces, found)

    def joined(answers: Sequence[Answer], *names: str) -> list[Array]:
        parts = [answer.load(store) for answer in answers]
        ids = np.concatenate([p.query for p in parts])
        assert ids.tolist() == list(range(len(ids)))
        return [np.concatenate([getattr(p, name) for p in parts]) for name in names]

    closer, equal = joined(compared[asked], "closer", "equal")
    return Answers(
        {pair: Lists(*joined(lists, "distance", "row", "ties")) for pair, lists in found.items()},
        {r: (c[0], c[1]) for r, c in ((r, joined(added, "closer", "equal")) for r, added in counts.items())},
        (closer, equal),
        list(zip(law.credit.tolist(), law.first.tolist(), law.second.tolist(), strict=True)),
    )


def thresholds_at(engine: Engine, blocks: Blocks, thresholds: Floats) -> list[Joined]:
    """Neighbour tables that hold these distances, one per block of query rows; nobody could make them again."""
    out, first = [], 0
    for size in blocks.sizes:
        ids = np.arange(first, first + size)
        near = thresholds[ids][:, None]
        table = NeighbourTable(ids, near, np.zeros((size, 1), np.int64), np.ones(size, np.int64))
        key = key_of(engine.run, "thresholds", first)
        name = engine.store.put(key, to_arrow(table))
        out.append(Joined((Piece(key, Together(Merged(()), "thresholds"), name),)))
        first += size
    return out


def sharp(rng: np.random.Generator, matrix: Floats) -> Floats:
    """A threshold per row: one of its distances, the next number beside one, an end, or any."""
    n, m = matrix.shape
    one = matrix[np.arange(n), rng.integers(0, m, n)]
    choices = [one, np.nextafter(one, 0.0), np.nextafter(one, 1.0), np.zeros(n), np.ones(n), rng.random(n)]
    choices.append(np.full(n, math.inf))
    return np.asarray(np.stack(choices)[rng.integers(0, len(choices), n), np.arange(n)], np.float64)


def check_answers(
    world: World, executor: Executor, layout: Layout, missing: str, k: int, questions: Questions, seed: int = 0
) -> None:
    """Ask the engine and compare every number."""
    matrices: dict[tuple[str, str], Floats] = {}

    def matrix(query: str, reference: str) -> Floats:
        if (query, reference) not in matrices:
            fit = ranged(questions.mode, query, reference)
            matrices[query, reference] = world.matrix(query, reference, fit, missing)
        return matrices[query, reference]

    thresholds = sharp(np.random.default_rng(seed), matrix(*questions.compared))
    for pair in questions.searched:
        matrix(*pair)
    found = answers(world, executor, layout, missing, k, questions, thresholds)
    assert sorted(found.lists) == sorted(questions.searched)
    for (q, r), lists in found.lists.items():
        assert_same(lists, nearest(matrix(q, r), k, own=q == r))
    for request, counts in found.counts.items():
        q, r, than = request.query, request.reference, request.than
        threshold = nearest(matrix(q, than), 1, own=q == than).distance[:, 0]
        assert_same_counts(counts, counted(matrix(q, r), threshold, own=q == r), request)
    q, r = questions.compared
    assert_same_counts(found.compared, counted(matrix(q, r), thresholds, own=q == r), (q, r, "thresholds"))
    assert found.credits == credit_levels(matrix("synthetic", "train"), matrix("synthetic", "holdout"))


def assert_same_counts(found: tuple[Places, Places], expected: tuple[Places, Places], what: Any) -> None:
    """Closer rows, equal rows."""
    for name, a, b in zip(("closer", "equal"), found, expected, strict=True):
        wrong = np.flatnonzero(a != b)
        assert not len(wrong), f"{what}: {name} rows of query row {wrong[0]}: {a[wrong[0]]}, expected {b[wrong[0]]}"


@st.composite
def questions(draw: st.DrawFn) -> Questions:
    """Some directions; a table may meet itself."""
    pair = st.tuples(st.sampled_from(ROLES), st.sampled_from(ROLES))
    mode = draw(st.sampled_from(["real", "real", "train", "all", "pair_union", "pair_reference"]))
    return Questions(mode, tuple(draw(st.lists(pair, max_size=2))), draw(pair))


def check_engine(case: Case, asked: Questions) -> None:
    """Ask the engine about the tables of a case."""
    world = world_of(case, ROLES)
    everywhere = [ranged(asked.mode, q, r) for q in ROLES for r in ROLES]
    with case.running() as executor:
        if any(world.refused(fit) for fit in everywhere):
            with pytest.raises(daskpriv.InputError, match=r"overflows float64|more than 64 bits"):
                rows = np.zeros(len(world.frames[asked.compared[0]]))
                answers(world, executor, case.layout, case.missing, case.k, asked, rows)
            return
        check_answers(world, executor, case.layout, case.missing, case.k, asked, case.seed)


@examples(400)
@given(case=cases(3), asked=questions())
def test_counts_and_credits_are_those_of_the_brute_force(case: Case, asked: Questions) -> None:
    """Searches, rows closer than and exactly at a distance, and credits, of three tables."""
    check_engine(case, asked)


@examples(60)
@given(case=cases(3, rows=[MANY, st.integers(300, 1500), st.integers(50, 150)], copies=(1, 1, 2)))
def test_counts_and_credits_among_thousands_of_rows(case: Case) -> None:
    """Many tiles."""
    check_engine(case, Questions())


@pytest.mark.xdist_group("cluster")
def test_worker_processes_answer_like_the_brute_force(cluster: Callable[[int], Client]) -> None:
    """Two processes: spaces and guides travel, blocks and lists are read where they are needed."""

    @examples(12)
    @given(case=cases(3, rows=[st.integers(1, 300)] * 3), asked=questions())
    def run(case: Case, asked: Questions) -> None:
        world = world_of(case, ROLES)
        assume(not any(world.refused(ranged(asked.mode, q, r)) for q in ROLES for r in ROLES))
        executor = Dask(cluster(2))
        try:
            check_answers(world, executor, case.layout, case.missing, case.k, asked, case.seed)
        finally:
            executor.close()

    @examples(12)
    @given(case=cases(2, rows=[st.integers(1, 2000), st.integers(1, 100)]))
    def run_public(case: Case) -> None:
        world = world_of(case, ("reference", "query"))
        assume(not world.refused(["reference"]))
        expected = nearest(world.matrix("query", "reference", ["reference"], case.missing), case.k)
        options: dict[str, Any] = {"missing": case.missing, "block_rows": case.block_rows, "client": cluster(2)}
        assert_same(search(world, case.k, **options), expected)

    run()
    run_public()


# ---------------------------------------------------------------------------------------------- tables, one by one


Maker = Callable[[list[Any]], Pool]


def spelled(*columns: tuple[Maker, Mapping[str, Sequence[Any]]], weights: Sequence[float] | None = None) -> World:
    """A world from the cells of every table, None where missing."""
    pools, places = [], []
    for maker, cells in columns:
        present = [c for table in cells.values() for c in table if c is not None]
        pools.append(maker(present))
        place = iter(range(len(present)))
        places.append(
            {t: np.array([-1 if c is None else next(place) for c in table], np.int64) for t, table in cells.items()}
        )
    by_table = {table: [p[table] for p in places] for table in places[0]}
    given_weights = [1.0] * len(pools) if weights is None else weights
    return assemble(pools, by_table, given_weights, True, np.random.default_rng(0))


def codes_of(reference: Array, query: Array) -> tuple[Maker, Mapping[str, Sequence[Any]]]:
    """A nominal column of integers."""
    cells = {"reference": reference.tolist(), "query": query.tolist()}
    return lambda values: classes(values, types=(pa.int64(),), declared=True), cells


def floats_of(reference: Sequence[float | None], query: Sequence[float | None]) -> tuple[Maker, Mapping[str, Any]]:
    """A column of floats."""
    return floats, {"reference": reference, "query": query}


def agree(world: World, k: int, fit: str | None = None, own: bool = False, modes: Sequence[str] = MISSING) -> Lists:
    """Compare in these missing modes, on one block and on several; what the brute force found in the first mode."""
    query = "query" if "query" in world.frames else "reference"
    tables = fitted(fit, ("reference", query))
    out = []
    with patch.object(session, "Threads", Serial):
        for missing in modes:
            out.append(nearest(distances(world.axes, query, "reference", tables, missing), k, own))
            for block_rows in (None, max(1, max(len(f) for f in world.frames.values()) // 3)):
                found = search(world, k, fit, missing=missing, exclude_self=own, block_rows=block_rows)
                assert_same(found, out[-1])
    return out[0]


def refuses(world: World, match: str) -> None:
    """The search is refused with this sentence."""
    with patch.object(session, "Threads", Serial), pytest.raises(daskpriv.InputError, match=match):
        search(world)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("family", ["floats", "whole", "categories", "ties"])
def test_tables_of_one_row_each(family: str, missing: str) -> None:
    """One neighbour, and no second one."""
    for seed, style in enumerate(FAMILIES[family]):
        for gaps in ("none", "half"):
            case = Case(seed, (style, style), (1, 1, 1), gaps=gaps, outside=1.0, missing=missing, k=3)
            check(dataclasses.replace(case, rows=(1, 1)))
            check(dataclasses.replace(case, rows=(1,), own=True))
            check_engine(case, Questions("all", (("train", "train"),), ("holdout", "holdout")))


@pytest.mark.parametrize("own", [False, True])
def test_five_thousand_identical_rows_all_tie(own: bool) -> None:
    """The nearest are the first by id, without the row itself."""
    n, k = 5000, 10
    frame = pa.table({"a": [1.5] * n, "b": ["x"] * n, "c": [7] * n, "d": pa.nulls(n, pa.string())})
    found = daskpriv.nearest_neighbours(frame, frame, k, exclude_self=own)
    assert np.asarray(found.distance).tolist() == [[0.0] * k] * n
    ids = [[j for j in range(k + 1) if not (own and i == j)][:k] for i in range(n)]
    assert np.asarray(found.row).tolist() == ids
    assert np.asarray(found.ties).tolist() == [n - own] * n


def test_thousands_of_identical_rows_share_every_credit() -> None:
    """Ties that no list holds: 5 003 rows share four credits."""
    cells = {"train": [2.0] * 5000, "holdout": [2.0] * 3 + [1.0], "synthetic": [2.0] * 3 + [5.0]}
    words: Any = {name: ["x"] * len(c) for name, c in cells.items()}
    world = spelled((floats, cells), (classes, words))
    for layout in (Layout(5000, 5000), Layout(640, 1300)):
        check_answers(world, Serial(), layout, "level", 3, Questions(compared=("holdout", "train")))


@pytest.mark.parametrize("outside", [0.0, 1.0])
def test_constant_columns_alone(outside: float) -> None:
    """Without any spread every distance is 0, or 1 for what differs."""
    for seed, gaps in enumerate(GAPS):
        for missing in MISSING:
            check(Case(seed, tuple(FAMILIES["constants"]), (130, 40), 3, gaps=gaps, outside=outside, missing=missing))


def test_two_thousand_columns() -> None:
    """50 rows: more columns than any filter holds in a byte."""
    for seed, missing in enumerate(MISSING):
        styles = (*FAMILIES["common"], "tenths", "school years")
        check(Case(seed, styles, (50, 50), 200, "decimals", "few", "clusters", 0.3, 0.1, missing=missing, k=4))


def test_two_thousand_columns_of_nothing_but_differences() -> None:
    """A row may differ in more columns than a byte counts, in exactly 256, or in none."""
    query = np.zeros((1, 2000), np.int64)
    reference = np.array([[1] * n + [0] * (2000 - n) for n in (2000, 513, 512, 511, 257, 256, 255, 1, 0)])
    world = spelled(*(codes_of(reference[:, i], query[:, i]) for i in range(2000)))
    assert agree(world, 9, modes=["level"]).row.tolist() == [[8, 7, 6, 5, 4, 3, 2, 1, 0]]


@pytest.mark.parametrize("limit", [200_000, 50_000])
def test_a_hundred_thousand_categories(limit: int) -> None:
    """As codes beyond 16 bits, and as hashes."""
    reference = np.random.default_rng(3).permutation(100_000)
    query = np.array([0, 255, 256, 65_535, 65_536, 99_999, 100_000, 200_000, -1, 131_072, *range(60_000, 60_020)])
    with patch.object(summary, "MOST_CATEGORIES", limit):
        world = spelled(codes_of(reference, query))
        modes = ["level", "gower", "max", "clearbox"] if limit > 100_000 else ["level", "max"]
        found = agree(world, 3, modes=modes)
    assert found.distance[:6, 0].tolist() == [0.0] * 6
    assert found.distance[6:10, 0].tolist() == [1.0] * 4
    assert found.ties[6:10].tolist() == [100_000] * 4


@pytest.mark.parametrize("limit", [200_000, 50_000])
def test_seventy_thousand_words_beside_other_columns(limit: int) -> None:
    """Categories that agree in their low bytes are told apart by neither filter nor hash alone."""
    rng = np.random.default_rng(4)
    words, more = rng.permutation(70_000), rng.integers(0, 4, (2, 70_000))
    pick = rng.integers(0, 70_000, 40)
    query = np.where(rng.random(40) < 0.5, words[pick], words[pick] ^ 256)
    with patch.object(summary, "MOST_CATEGORIES", limit):
        world = spelled(
            codes_of(words, query),
            codes_of(more[0], more[0][pick]),
            floats_of((more[1] / 3).tolist(), (more[1][pick] / 3 + 0.1).tolist()),
            weights=[0.1, 0.2, 0.3],
        )
        agree(world, 5, modes=["level", "gower"])


def test_twenty_nominal_columns_with_massive_ties() -> None:
    """Two categories each, skewed: most rows tie with hundreds of others."""
    for seed, weights in enumerate(("ones", "decimals", "powers", "some zero")):
        for gaps in ("none", "few"):
            case = Case(seed, ("mostly one", "flags"), (1500, 300), 10, weights, gaps, "clusters", 0.3, 0.1, k=10)
            check(case)
            check_engine(dataclasses.replace(case, rows=(400, 300, 60)), Questions("real", (("train", "train"),)))


@pytest.mark.parametrize("rows", [31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2049, 4096, 4097])
def test_row_counts_around_whole_tiles(rows: int) -> None:
    """A tile that is full, one short of it, one row beyond; on either side."""
    for seed, styles in enumerate((("normal", "words", "skewed"), ("tenths", "flags"), ("many words", "days"))):
        case = Case(seed, styles, (rows, 33), 2, "decimals", "few", LAWS[1 + seed], 0.3, 0.1, k=3)
        check(case)
        check(dataclasses.replace(case, rows=(33, rows), missing="gower"))


@pytest.mark.parametrize("columns", [7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 254, 255, 256, 257])
def test_column_counts_around_whole_vectors(columns: int) -> None:
    """Of one sort each: numbers, categories, wide integers, hashes."""
    for seed, (style, categories) in enumerate(
        (("tenths", 50_000), ("words", 50_000), ("close at 2**60", 50_000), ("words", 3))
    ):
        check(Case(seed, (style,), (70, 20), columns, "ones", "few", twins=0.3, noise=0.1, k=3, categories=categories))


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_reference_smaller_than_k(rows: int) -> None:
    """The places without a neighbour are +inf and -1; ties count what there is."""
    for seed, missing in enumerate(MISSING):
        for own in (False, True):
            sizes = (rows,) if own else (rows, 70)
            check(Case(seed, ("normal", "words", "days"), sizes, gaps="half", missing=missing, k=10, own=own))


def test_query_rows_far_outside_all_ranges() -> None:
    """Every number is at distance 1, so that categories alone decide."""
    rng = np.random.default_rng(5)
    inside, outside = rng.random((200, 3)), np.array([[1e308] * 3, [-1e308] * 3, [1e308, -1e308, 0.5], [1e17] * 3])
    words = rng.integers(0, 5, 200)
    numbers = [floats_of(inside[:, i].tolist(), outside[:, i].tolist()) for i in range(3)]
    found = agree(spelled(*numbers, codes_of(words, np.array([0, 1, 2, 9]))), 7)
    assert found.distance[:2, 0].tolist() == [0.75, 0.75]
    assert found.ties.tolist()[3] == 200


def test_one_outlier_at_the_end_of_float64() -> None:
    """All other rows are closer to each other than any scale of codes can show, yet in order."""
    values = [*np.random.default_rng(6).random(300).tolist(), 1e308]
    world = spelled(floats_of(values, [0.5, 0.25, 1e308, 9e307, 0.0, -5.0]))
    found = agree(world, 5)
    assert found.distance[0, 0] < 1e-309
    assert found.row[2:4, 0].tolist() == [300, 300]


def test_a_range_beyond_float64_is_refused() -> None:
    """The fitted tables decide: query rows may lie as far outside as they like."""
    refuses(spelled(floats_of([1e308, -1e308, 0.0], [0.0])), "range overflows float64")
    agree(spelled(floats_of([1e308, 0.0, 1.0], [-1e308, 1.7e308])), 3)
    agree(spelled(floats_of([8.9e307, -8.9e307, 1.0], [-1e308, 1.7e308, 0.0])), 3)


def test_a_range_among_denormal_numbers() -> None:
    """A range of one, five or a thousand of the smallest steps."""
    for steps in (1, 5, 1000):
        values = [i * TINIEST for i in range(steps + 1)]
        world = spelled(
            floats_of(values, [0.0, 2 * TINIEST, 1e-320, 1.0, -TINIEST]), floats_of([1.0] * len(values), [1.0] * 5)
        )
        agree(world, 4)


def test_the_ends_of_64_bit_integers() -> None:
    """Spans of 2**64 - 3 are exact, wider ones are refused."""
    low, high = -(2**63), 2**63 - 1

    def integers(kind: pa.DataType, reference: list[int], query: list[int]) -> World:
        return spelled((lambda values: whole(values, types=(kind,)), {"reference": reference, "query": query}))

    agree(integers(pa.int64(), [low, high - 2, 0, -1, 1], [low, low + 1, 0, high - 2, high - 3]), 5)
    agree(integers(pa.int64(), [high, low + 2, 2**53, 2**53 + 1], [high - 1, low + 2, 2**53 + 2]), 4, fit="query")
    agree(integers(pa.uint64(), [0, 2**64 - 3, 2**63], [2**64 - 4, 2**63 - 1, 1]), 3)
    agree(integers(pa.int64(), [2**60, 2**60 + 1, 2**60 + 2], [2**60 + 5, 0, low]), 3)
    refuses(integers(pa.int64(), [low, high], [0]), "more than 64 bits")
    refuses(integers(pa.uint64(), [0, 2**64 - 1], [0]), "more than 64 bits")


def subsets(weights: Sequence[float], order: Sequence[int]) -> World:
    """Every subset of columns as a reference row that differs in exactly these columns from the query row."""
    p = len(weights)
    reference = (np.arange(2**p)[:, None] >> np.arange(p)) & 1
    query = np.zeros((1, p), np.int64)
    return spelled(*(codes_of(reference[:, i], query[:, i]) for i in order), weights=[weights[i] for i in order])


@pytest.mark.parametrize("seed", range(4))
def test_near_ties_that_differ_in_the_last_bit(seed: int) -> None:
    """0.1 + 0.2 is not 0.3, and in another order of columns the same weights have another sum."""
    rng = np.random.default_rng(seed)
    weights = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1]
    found = agree(subsets(weights, rng.permutation(10).tolist()), 1024, modes=["level", "gower", "max"])
    sums = np.unique(found.distance)
    assert (np.diff(sums) < 1e-15).sum() > 10


def test_near_ties_of_numbers_differ_in_the_last_bit() -> None:
    """Tenths as numbers and as weights; thousands of rows, so that every filter meets them."""
    for seed in range(4):
        styles = ("tenths", "tenths", "thirds", "few floats", "ulps", "flags")
        law = ("independent", "clusters", "latent", "latent")[seed]
        check(Case(seed, styles, (3000, 200), 1 + seed % 2, "decimals", law=law, twins=0.5, noise=0.1, k=10))


def test_distances_that_fill_the_smallest_numbers() -> None:
    """Weights of 1e-320 round every term; none is lost."""
    for seed, weights in enumerate(("tiny", "denormal", "huge", "tiny and one")):
        for styles in (("words", "flags", "counts"), ("tenths", "normal", "many words")):
            check(Case(seed, styles, (700, 100), 3, weights, "few", "clusters", 0.5, 0.1, k=4))


LOST = pytest.mark.xfail(LOSES_FAINT_SUMS, reason="sums above 1e-290 that vanish when divided are lost", strict=True)


@pytest.mark.parametrize("others", [pytest.param(["p", "q"], marks=LOST), ["q", "p"]])
def test_sums_that_vanish_beside_huge_weights_tie(others: list[str]) -> None:
    """1e-25 / 1e300 is 0.0: both reference rows are at distance 0, in any order of rows."""
    world = spelled(
        (classes, {"reference": ["x", "x"], "query": ["x"]}),
        (classes, {"reference": others, "query": ["p"]}),
        weights=[1e300, 1e-25],
    )
    assert agree(world, 1, modes=["level"]).ties.tolist() == [2]


@pytest.mark.parametrize("missing", MISSING)
def test_the_order_of_reference_rows_changes_no_bit(missing: str) -> None:
    """Sorted, reversed and shuffled rows have the same distances and ties, and the ids follow the rows."""
    for seed, styles in enumerate((("tenths", "words", "days"), ("normal", "skewed"), ("flags", "mostly one"))):
        case = Case(seed, styles, (900, 150), 2, "decimals", "few", "latent", 0.3, 0.1, missing=missing, k=6)
        world = world_of(case, ("reference", "query"))
        matrix = world.matrix("query", "reference", ["reference"], missing)
        frame = world.frames["reference"]
        up = np.asarray(pc.sort_indices(frame, [("c0", "ascending"), ("c1", "ascending")]))
        first = None
        for order in (np.arange(900), up, up[::-1], np.random.default_rng(seed).permutation(900)):
            moved = dataclasses.replace(world, frames={**world.frames, "reference": frame.take(pa.array(order))})
            found = search(moved, 6, missing=missing)
            assert_same(found, nearest(matrix[:, order], 6))
            bits = (np.asarray(found.distance).tobytes(), np.asarray(found.ties).tobytes())
            first = first or bits
            assert bits == first


def test_the_order_of_columns_is_that_of_the_schema() -> None:
    """The same columns in another order may have other bits; the brute force says which."""
    seen = set()
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        reference, query = np.array([[1, 1, 0], [0, 0, 1]]), np.zeros((1, 3), np.int64)
        columns = [codes_of(reference[:, i], query[:, i]) for i in order]
        world = spelled(*columns, weights=[(0.1, 0.2, 0.3)[i] for i in order])
        seen.add(agree(world, 2, modes=["level"]).distance.tobytes())
    assert len(seen) > 1
