"""daskpriv against a plain float64 reference, on small random tables of every type, cut into blocks at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv import Column, Kind, Schema
from daskpriv.engine import plan
from daskpriv.space import summary
from tests import reference as ref

RANGE_MODES = ("real", "train", "all", "pair_union", "pair_reference")
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
WORDS = ("Graz", "graz", "Linz", "Linz ", "", "Ärger", "a\x00b", "0", "nan", "None")


def examples(number: int) -> settings:
    """So many examples, however long one takes; cells come from a seed, so that shrinking would be slow and vain."""
    return settings(
        max_examples=number,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


# ---------------------------------------------------------------------------------------------- columns to draw


def as_arrow(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of this type."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_floating(kind):
        values = [None if v is None else float(v) for v in values]
    return pa.array(values, kind)


def as_times(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of a time type from nanoseconds."""
    unit = DAY if pa.types.is_date32(kind) else NANOSECONDS[kind.unit]
    return pa.array([None if v is None else v // unit for v in values], kind)


@dataclass(frozen=True)
class Pool:
    """What one column may hold: the values for Arrow and for the reference, and the types to store them in."""

    kind: Kind
    values: Sequence[Any]
    types: Sequence[pa.DataType]
    cells: Sequence[Any] = ()
    levels: tuple[Any, ...] = ()
    declared: bool = False
    build: Callable[[list[Any], pa.DataType], pa.Array] = as_arrow

    @property
    def timed(self) -> bool:
        """True for times, which the reference counts in their common step."""
        return self.kind in (Kind.DATETIME, Kind.TIMEDELTA)

    @property
    def reference_kind(self) -> str:
        """What the reference calls this kind."""
        return "datetime" if self.timed else "nominal" if self.kind is Kind.TEXT else self.kind.value


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """A few values, so that ties are frequent."""
    return st.lists(values, min_size=1, max_size=7)


def small_integers() -> st.SearchStrategy[Pool]:
    """Integers that every type holds, stored as integers or floats."""
    types = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.float32()]
    return some(st.integers(-100, 100)).map(lambda v: Pool(Kind.NUMERIC, v, types))


def large_integers() -> st.SearchStrategy[Pool]:
    """Integers beyond 2**53, far apart or a few units apart."""
    close = st.builds(
        lambda base, steps: [base + s for s in steps], st.integers(-(2**62), 2**62), some(st.integers(0, 200))
    )
    apart = some(st.integers(-(2**62), 2**62))
    return st.one_of(close, apart).map(lambda v: Pool(Kind.NUMERIC, v, [pa.int64()]))


def unsigned_integers() -> st.SearchStrategy[Pool]:
    """Integers up to 2**64 - 1."""
    close = st.builds(lambda steps: [2**64 - 1 - s for s in steps], some(st.integers(0, 200)))
    apart = some(st.integers(2, 2**64 - 1))
    both = some(st.integers(0, 2**63 - 1)).map(lambda v: Pool(Kind.NUMERIC, v, [pa.int64(), pa.uint64()]))
    return st.one_of(both, st.one_of(close, apart).map(lambda v: Pool(Kind.NUMERIC, v, [pa.uint64()])))


def floats() -> st.SearchStrategy[Pool]:
    """Floats: short decimals, both zeros, any in a range that cannot overflow."""
    values = st.one_of(
        st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 0.57, 1.0, 1e-9]),
        st.floats(-10, 10),
        st.floats(-8e307, 8e307),
    )
    return some(values).map(lambda v: Pool(Kind.NUMERIC, v, [pa.float64()]))


def tiny_floats() -> st.SearchStrategy[Pool]:
    """Denormal floats, alone or beside ordinary ones."""
    tiny = st.one_of(st.just(0.0), st.integers(1, 5).map(lambda i: i * 5e-324), st.floats(0, 1e-307))
    return some(st.one_of(tiny, st.sampled_from([1.0, 7e300]))).map(lambda v: Pool(Kind.NUMERIC, v, [pa.float64()]))


def short_floats() -> st.SearchStrategy[Pool]:
    """Single precision, stored as such or widened."""
    values = some(st.floats(-1000, 1000, width=32))
    return values.map(lambda v: Pool(Kind.NUMERIC, v, [pa.float32(), pa.float64()]))


def decimals() -> st.SearchStrategy[Pool]:
    """Decimals of scale 2 in two precisions; large ones in one."""

    def pool(unscaled: list[int]) -> Pool:
        types = [pa.decimal128(38, 2)]
        if max(map(abs, unscaled)) < 10**9:
            types += [pa.decimal128(12, 2), pa.decimal128(18, 4)]
        return Pool(Kind.NUMERIC, [Decimal(u).scaleb(-2) for u in unscaled], types, unscaled)

    return some(st.one_of(st.integers(-500, 500), st.integers(-(10**17), 10**17))).map(pool)


def instants() -> st.SearchStrategy[Pool]:
    """Timestamps with and without zone, in a unit fine enough for the values or finer."""

    def pool(unit: str, zone: str | None, values: list[int]) -> Pool:
        units = list(NANOSECONDS)[list(NANOSECONDS).index(unit) :]
        types = [pa.timestamp(u, zone) for u in units]
        return Pool(Kind.DATETIME, [v * NANOSECONDS[unit] for v in values], types, build=as_times)

    def drawn(unit: str) -> st.SearchStrategy[Pool]:
        most = 9 * 10**18 // NANOSECONDS[unit]
        values = st.one_of(some(st.integers(-most, most)), some(st.integers(1_700_000_000, 1_700_000_900)))
        return st.builds(pool, st.just(unit), st.sampled_from([None, "UTC", "Europe/Vienna"]), values)

    return st.sampled_from(list(NANOSECONDS)).flatmap(drawn)


def dates() -> st.SearchStrategy[Pool]:
    """Days, stored as dates or timestamps."""
    types = [pa.date32(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns")]
    values = some(st.integers(-40_000, 40_000))
    return values.map(lambda v: Pool(Kind.DATETIME, [d * DAY for d in v], types, build=as_times))


def durations() -> st.SearchStrategy[Pool]:
    """Durations in two units."""
    types = [pa.duration("ms"), pa.duration("ns")]
    values = some(st.integers(-(10**9), 10**9))
    return values.map(lambda v: Pool(Kind.TIMEDELTA, [d * 10**6 for d in v], types, build=as_times))


def clocks() -> st.SearchStrategy[Pool]:
    """Times of day in two units."""
    types = [pa.time64("us"), pa.time64("ns")]
    values = some(st.integers(0, 86_400 * 10**6 - 1))
    return values.map(lambda v: Pool(Kind.DATETIME, [d * 1000 for d in v], types, build=as_times))


def booleans() -> st.SearchStrategy[Pool]:
    """Yes and no."""
    return some(st.booleans()).map(lambda v: Pool(Kind.BOOLEAN, v, [pa.bool_()]))


def few_words() -> st.SearchStrategy[Pool]:
    """A few strings that look alike, plain or dictionary encoded."""
    types = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    return some(st.sampled_from(WORDS)).map(lambda v: Pool(Kind.NOMINAL, v, types))


def many_words() -> st.SearchStrategy[Pool]:
    """Nearly every cell another string; more than 256 of them, so that the low byte of a code repeats."""
    start = st.integers(0, 1000)
    return start.map(lambda s: Pool(Kind.NOMINAL, [f"w{s + i}" for i in range(600)], [pa.string()]))


def blobs() -> st.SearchStrategy[Pool]:
    """Bytes."""
    return some(st.binary(max_size=2)).map(lambda v: Pool(Kind.NOMINAL, v, [pa.binary(), pa.large_binary()]))


def labels() -> st.SearchStrategy[Pool]:
    """Integers declared nominal."""
    types = [pa.int16(), pa.int64()]
    return some(st.integers(-3, 300)).map(lambda v: Pool(Kind.NOMINAL, v, types, declared=True))


def ranks() -> st.SearchStrategy[Pool]:
    """Ordinal words and ordinal integers, some levels never used."""

    def pool(levels: list[Any], used: list[int], types: list[pa.DataType]) -> Pool:
        values = [levels[u % len(levels)] for u in used]
        return Pool(Kind.ORDINAL, values, types, levels=tuple(levels), declared=True)

    words = st.permutations(["low", "mid", "high", "top"]).map(lambda p: list(p[:3]))
    numbers = st.lists(st.integers(-9, 9), min_size=2, max_size=8, unique=True)
    used = some(st.integers(0, 7))
    return st.one_of(
        st.builds(pool, words, used, st.just([pa.string()])),
        st.builds(pool, numbers, used, st.just([pa.int8(), pa.int64()])),
    )


POOLS = st.one_of(
    small_integers(),
    large_integers(),
    unsigned_integers(),
    floats(),
    tiny_floats(),
    short_floats(),
    decimals(),
    instants(),
    dates(),
    durations(),
    clocks(),
    booleans(),
    few_words(),
    many_words(),
    blobs(),
    labels(),
    ranks(),
)


# ---------------------------------------------------------------------------------------------- tables to draw


@dataclass(frozen=True)
class World:
    """Some tables with the same columns, for daskpriv and for the reference."""

    columns: list[ref.Col]
    frames: dict[str, Any]
    cells: dict[str, ref.Rows]
    schema: Schema | None
    weights: dict[str, float] | None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments both public functions take."""
        return {"schema": self.schema, "weights": self.weights}


def picks(rng: np.random.Generator, pools: Sequence[Pool], rows: int, gaps: Sequence[float]) -> np.ndarray:
    """For every cell the place of its value in its pool, -1 where missing."""
    columns = [
        np.where(rng.random(rows) < gap, -1, rng.integers(0, len(p.values), rows))
        for p, gap in zip(pools, gaps, strict=True)
    ]
    return np.stack(columns, axis=1)


def copy_rows(rng: np.random.Generator, target: np.ndarray, source: np.ndarray, share: float) -> None:
    """Overwrite some rows by rows of another table."""
    chosen = np.flatnonzero(rng.random(len(target)) < share)
    target[chosen] = source[rng.integers(0, len(source), len(chosen))]


def held(values: Sequence[Any], places: np.ndarray) -> list[Any]:
    """The values at these places; None where missing."""
    return [None if p < 0 else values[p] for p in places]


def wrapped(table: pa.Table, container: str) -> Any:
    """The table as one of the frames people have."""
    if container == "polars":
        return pl.from_arrow(table)
    return table.to_pandas(types_mapper=pd.ArrowDtype) if container == "pandas" else table


@st.composite
def worlds(draw: st.DrawFn, sizes: dict[str, int]) -> World:
    """Tables of these names with at least so many rows; the first one leads."""
    pools = draw(st.lists(POOLS, min_size=1, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    places = {}
    for name, least in sizes.items():
        gaps = [draw(st.sampled_from([0.0, 0.0, 0.0, 0.15, 0.5, 1.0])) for _ in pools]
        places[name] = picks(rng, pools, draw(st.integers(least, 40)), gaps)
    for target in list(places.values()):
        for source in list(places.values()):
            copy_rows(rng, target, source, draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])))
    weights = [draw(st.sampled_from([1.0, 1.0, 1.0, 0.1, 0.7, 3.0, 0.0])) for _ in pools]
    weights[0] = weights[0] or 1.0
    return draw(assembled(pools, places, weights))


@st.composite
def assembled(draw: st.DrawFn, pools: Sequence[Pool], places: dict[str, np.ndarray], weights: Sequence[float]) -> World:
    """A world from what every cell holds."""
    names = [f"c{i}" for i in range(len(pools))]
    arrays: dict[str, dict[str, pa.Array]] = {t: {} for t in places}
    cells: dict[str, ref.Rows] = {t: {} for t in places}
    for i, (name, pool) in enumerate(zip(names, pools, strict=True)):
        mine = [held(pool.cells or pool.values, p[:, i]) for p in places.values()]
        for table, values in zip(places, ref.counted(mine) if pool.timed else mine, strict=True):
            cells[table][name] = values
            kind = draw(st.sampled_from(list(pool.types)))
            arrays[table][name] = pool.build(held(pool.values, places[table][:, i]), kind)
    frames = {}
    for place, table in enumerate(places):
        order = names if place == 0 else draw(st.permutations(names))
        container = draw(st.sampled_from(["arrow", "arrow", "arrow", "polars", "pandas"]))
        frames[table] = wrapped(pa.table({n: arrays[table][n] for n in order}), container)
    columns = [ref.Col(n, p.reference_kind, w, p.levels) for n, p, w in zip(names, pools, weights, strict=True)]
    declare = any(p.declared for p in pools) or draw(st.booleans())
    described = [Column(n, p.kind, w, p.levels) for n, p, w in zip(names, pools, weights, strict=True)]
    return World(
        columns,
        frames,
        cells,
        Schema(tuple(described)) if declare else None,
        None if declare else dict(zip(names, weights, strict=True)),
    )


@contextmanager
def small_limits(group_rows: int, categories: int) -> Iterator[None]:
    """Make small tables take the ways of large ones: many groups of parts, categories too many to number."""
    with patch.object(plan, "_LARGEST_GROUP", group_rows), patch.object(summary, "MOST_CATEGORIES", categories):
        yield


LIMITS = st.tuples(st.sampled_from([1, 8, 2**40]), st.sampled_from([3, 50_000, 50_000]))
MISSING = st.sampled_from(ref.MISSING_MODES)
BLOCKS = st.one_of(st.none(), st.integers(1, 45))


# ---------------------------------------------------------------------------------------------- the comparison


def assert_same_neighbours(found: Any, expected: ref.Neighbours) -> None:
    """Bit for bit."""
    assert np.asarray(found.distance).tolist() == expected.distance
    assert np.asarray(found.row).tolist() == expected.row
    assert np.asarray(found.ties).tolist() == expected.ties


@examples(150)
@given(
    data=st.data(), missing=st.sampled_from(ref.MISSING_MODES), k=st.integers(1, 5), block_rows=BLOCKS, limits=LIMITS
)
def test_nearest_neighbours_are_those_of_the_reference(
    data: st.DataObject, missing: str, k: int, block_rows: int | None, limits: tuple[int, int]
) -> None:
    """Distances bit for bit, row ids and ties, for any cut into blocks."""
    world = data.draw(worlds({"reference": 1, "query": 1}))
    fit = data.draw(st.sampled_from([None, "query", "both"]))
    fitted = {None: ["reference"], "query": ["query"], "both": ["query", "reference"]}[fit]
    if missing == "clearbox" and limits[1] < 50_000:
        limits = (limits[0], 50_000)
    ranges = {c.name: ref.column_range(c, *(world.cells[t] for t in fitted)) for c in world.columns}
    matrix = ref.distances(world.columns, world.cells["query"], world.cells["reference"], ranges, missing)
    with small_limits(*limits):
        found = daskpriv.nearest_neighbours(
            world.frames["query"],
            world.frames["reference"],
            k=k,
            fit=fit,
            missing=missing,
            block_rows=block_rows,
            **world.options,
        )
    assert_same_neighbours(found, ref.nearest(matrix, k))


@examples(40)
@given(
    data=st.data(), missing=st.sampled_from(ref.MISSING_MODES), k=st.integers(1, 4), block_rows=BLOCKS, limits=LIMITS
)
def test_a_row_is_not_its_own_neighbour(
    data: st.DataObject, missing: str, k: int, block_rows: int | None, limits: tuple[int, int]
) -> None:
    """Self exclusion by id: equal rows stay neighbours of each other."""
    world = data.draw(worlds({"table": 1}))
    if missing == "clearbox":
        limits = (limits[0], 50_000)
    table = world.cells["table"]
    ranges = {c.name: ref.column_range(c, table) for c in world.columns}
    matrix = ref.distances(world.columns, table, table, ranges, missing)
    with small_limits(*limits):
        found = daskpriv.nearest_neighbours(
            world.frames["table"],
            world.frames["table"],
            k=k,
            exclude_self=True,
            missing=missing,
            block_rows=block_rows,
            **world.options,
        )
    assert_same_neighbours(found, ref.nearest(matrix, k, exclude_self=True))


DIRECTIONS = ("ST", "SH", "HT", "TS", "HS", "TT", "SS", "HH")
TABLES = {"T": "train", "H": "holdout", "S": "synthetic"}


def matrices(world: World, missing: str, mode: str) -> dict[tuple[str, str], ref.Matrix]:
    """The distances of every direction."""
    cells = world.cells
    real, every = (cells["train"], cells["holdout"]), tuple(cells.values())
    out = {}
    for q, r in ((TABLES[d[0]], TABLES[d[1]]) for d in DIRECTIONS):
        ranges = ref.ranges_for(mode, world.columns, cells[q], cells[r], real, every)
        out[q, r] = ref.distances(world.columns, cells[q], cells[r], ranges, missing)
    return out


def same(found: float | None, expected: float | None, tolerance: float) -> bool:
    """Equal within an absolute tolerance; infinities and NaN must be the same."""
    if found is None or expected is None:
        return found is expected
    return found == expected or (math.isnan(found) and math.isnan(expected)) or abs(found - expected) <= tolerance


def assert_dcr(details: dict[str, Any], found: dict[tuple[str, str], ref.Matrix]) -> None:
    """Every direction's statistics: order statistics exact, moments to 1e-12."""
    for (q, r), matrix in found.items():
        got = details[f"{q}->{r}"]
        expected = ref.dcr_statistics(ref.closest_of(matrix, exclude_self=q == r))
        for key in ("n", "min", "max", "n_zero"):
            assert got[key] == expected[key], (q, r, key)
        for key in ("mean", "std", *(name for name, _ in ref.QUANTILES)):
            # A standard deviation is the root of a difference of numbers known to 2**-60.
            assert same(got[key], expected[key], 1e-8 if key == "std" else 1e-12), (q, r, key)
        assert got["histogram"]["counts"] == expected["counts"], (q, r)


def assert_share(details: dict[str, Any], expected: dict[str, Any]) -> None:
    """Counts exact, shares to 1e-12, the permutation law to 1e-8."""
    for key in ("n_closer", "n_equal", "n_further", "n_train", "n_holdout", "n_synthetic"):
        assert details[key] == expected[key], key
    for key in ("share_strict", "share_half", "share_size", "share_fractional", "share_balanced", "expected"):
        assert same(details[key], expected[key], 1e-12), (key, details[key], expected[key])
    slack = 1 + expected["n_train"] / expected["n_holdout"]
    assert same(details["excess"], expected["excess"], 1e-12 * slack)
    assert same(details["standard_error"] ** 2, expected["variance"], 1e-8)
    if expected["variance"] > 0:
        assert same(details["z"], expected["z"], 1e-6), (details["z"], expected["z"])


@examples(100)
@given(
    data=st.data(),
    missing=MISSING,
    mode=st.sampled_from(RANGE_MODES),
    block_rows=BLOCKS,
    limits=LIMITS,
)
def test_metrics_are_those_of_the_reference(
    data: st.DataObject, missing: str, mode: str, block_rows: int | None, limits: tuple[int, int]
) -> None:
    """DCR, clones and the share with its permutation law, for every missing and range mode."""
    world = data.draw(worlds({"train": 2, "holdout": 1, "synthetic": 1}))
    if missing == "clearbox":
        limits = (limits[0], 50_000)
    found = matrices(world, missing, mode)
    to_train, to_holdout = found["synthetic", "train"], found["synthetic", "holdout"]
    with small_limits(*limits):
        report = daskpriv.evaluate(
            **world.frames, missing=missing, range_from=mode, block_rows=block_rows, **world.options
        )
    assert_dcr(report.metrics["dcr"].details, found)
    clones = report.metrics["clones"].details
    for key, value in ref.clones(to_train, to_holdout, found["holdout", "train"]).items():
        assert clones[key] == value, key
    assert_share(report.metrics["dcr_share"].details, ref.dcr_share(to_train, to_holdout))


# ---------------------------------------------------------------------------------------------- edges, one by one


def nearest(query: Any, reference: Any, **options: Any) -> list[list[float]]:
    """The distances alone, small tables as {column: cells}."""
    tables = [pa.table(t) if isinstance(t, dict) else t for t in (query, reference)]
    return np.asarray(daskpriv.nearest_neighbours(*tables, **options).distance).tolist()


def one(name: str, kind: Kind, **more: Any) -> Schema:
    """A schema of one column."""
    return Schema((Column(name, kind, **more),))


def test_distances_are_summed_in_the_order_of_the_schema() -> None:
    """The same schema gives the same bits, whatever the order of columns in the tables."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((40, 5)), columns=list("abcde"))
    schema = Schema(tuple(Column(c, Kind.NUMERIC) for c in "edcba"))
    assert nearest(frame, frame, k=3, schema=schema) == nearest(frame, frame[list("edcba")], k=3, schema=schema)


def test_integers_beyond_2_53_keep_their_differences() -> None:
    """The smallest values of two tables say nothing about the steps between the others."""
    base = 2**60
    query, reference = {"a": [base + 50, base + 60]}, {"a": [base, base + 1, base + 100]}
    assert nearest(query, reference, k=3) == [[0.49, 0.5, 0.5], [0.4, 0.59, 0.6]]


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2]])
def test_ties_of_denormal_distances_do_not_depend_on_row_order(order: list[int]) -> None:
    """A distance that rounds to 0 ties with 0, whichever comes first."""
    column = pa.array([0.0, 5e-324, 1.0]).take(pa.array(order))
    reference = pa.table({"a": column, "b": [0, 0, 0], "c": [0, 0, 0]})
    found = daskpriv.nearest_neighbours(pa.table({"a": [5e-324], "b": [0], "c": [0]}), reference, k=1)
    assert np.asarray(found.ties).tolist() == [2]


def test_negative_zero_is_not_a_missing_category() -> None:
    """A nominal float is never confused with a missing cell."""
    table = pa.table({"a": [0.0, -0.0, 1.0]})
    assert nearest(table, {"a": pa.array([None], pa.float64())}, k=1, schema=one("a", Kind.NOMINAL)) == [[1.0]] * 3


def test_unsigned_categories_beyond_int64() -> None:
    """A nominal column may hold any unsigned integer."""
    table = pa.table({"a": pa.array([2**63 + 1, 0, 2**63 + 2], pa.uint64())})
    assert nearest(table, table, k=2, schema=one("a", Kind.NOMINAL)) == [[0.0, 1.0]] * 3


def test_nominal_nanoseconds_stay_apart() -> None:
    """Times of day that differ by nanoseconds are different categories, and none is missing."""
    table = pa.table({"a": pa.array([0, 1, 1001, None], pa.time64("ns"))})
    assert nearest(table, table, k=2, schema=one("a", Kind.NOMINAL)) == [[0.0, 1.0]] * 4


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["x", "y"])])
def test_categories_of_polars(kind: Any) -> None:
    """Polars stores categories as views."""
    frame = pl.DataFrame({"a": ["x", "y", "x", None]}, schema={"a": kind})
    assert nearest(frame, frame, k=3) == [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]


def test_a_decimal_equals_the_float_that_is_written_like_it() -> None:
    """A database column of decimals and its copy read as floats are the same rows."""
    texts = [f"{i / 100:.2f}" for i in range(1000)]
    decimals, floats = [Decimal(t) for t in texts], [float(t) for t in texts]
    assert nearest({"a": floats}, {"a": pa.array(decimals, pa.decimal128(10, 2))}, k=1) == [[0.0]] * 1000


def test_blocks_of_one_row_fit_into_memory() -> None:
    """Small blocks need little memory, however many rows a task could take."""
    table = pa.table({f"c{i}": ["x", "y"] for i in range(8)})
    assert nearest(table, table, k=2, block_rows=1) == [[0.0, 1.0]] * 2
    report = daskpriv.evaluate(train=table, synthetic=table, block_rows=1)
    assert report.metrics["clones"].details["n_synthetic_train"] == 2


def test_histogram_counts_follow_the_edges_they_are_printed_with() -> None:
    """A distance that is exactly an edge belongs to the bin that starts there."""
    train = pa.table({"a": [0, 100]})
    for i in range(1, 50):
        report = daskpriv.evaluate(train=train, synthetic=pa.table({"a": [i]}), metrics="dcr")
        shown = report.metrics["dcr"].details["synthetic->train"]["histogram"]
        assert shown["edges"][shown["counts"].index(1)] == i / 100


@pytest.mark.parametrize("weight", [1e308, 1e-320])
def test_extreme_weights_give_distances_or_are_refused(weight: float) -> None:
    """Weights whose sum overflows, or that vanish against rounding, never end in NaN or infinity."""
    table = pa.table({c: ["x", "y"] for c in "abc"})
    try:
        found = nearest(table, table, k=2, weights=dict.fromkeys("abc", weight))
    except daskpriv.InputError:
        return
    assert found == [[0.0, 1.0]] * 2


def test_the_unit_of_a_long_span_of_times_changes_no_bit() -> None:
    """Microseconds and nanoseconds over 288 years."""
    values = np.random.default_rng(0).integers(-9_100_000_000_000_000, 9_100_000_000_000_000, 100)
    coarse = pa.table({"a": pa.array(values, pa.timestamp("us"))})
    fine = coarse.cast(pa.schema([("a", pa.timestamp("ns"))]))
    assert nearest(coarse, coarse, k=4) == nearest(fine, fine, k=4)


def test_clearbox_joins_unseen_and_missing_categories_or_says_that_it_cannot() -> None:
    """The rule never changes silently where categories become too many to number."""
    query, reference = {"a": ["p", "q", None]}, {"a": ["r", "s", "t", "u", None]}
    expected = [[1.0] * 5, [1.0] * 5, [0.0] * 5]
    assert nearest(query, reference, k=5, missing="clearbox") == expected
    with (
        small_limits(250_000_000, 3),
        pytest.raises(daskpriv.InputError, match="cannot be compared with missing='clearbox'"),
    ):
        nearest(query, reference, k=5, missing="clearbox")


def unreachable(synthetic: list[float | None]) -> dict[str, pa.Table]:
    """Tables in which a missing synthetic number is, in the anonymeter mode, infinitely far from all real rows."""
    return {
        "train": pa.table({"a": [1.0, 2.0]}),
        "holdout": pa.table({"a": [3.0, 4.0, 5.0]}),
        "synthetic": pa.table({"a": pa.array(synthetic, pa.float64())}),
    }


@pytest.mark.parametrize("synthetic", [[None], [None, None], [1.0, None], [None, 3.0, 9.0]])
def test_a_row_without_neighbours_favours_neither_table(synthetic: list[float | None]) -> None:
    """It ties with every real row, so that the expected share stays the expected share."""
    tables = unreachable(synthetic)
    cells = {name: {"a": table.column("a").to_pylist()} for name, table in tables.items()}
    world = World([ref.Col("a", "numeric")], tables, cells, None, None)
    found = matrices(world, "anonymeter", "real")
    details = daskpriv.evaluate(**tables, missing="anonymeter", metrics="dcr_share").metrics["dcr_share"].details
    assert_share(details, ref.dcr_share(found["synthetic", "train"], found["synthetic", "holdout"]))


def test_quantiles_of_finite_distances_stay_finite_beside_infinite_ones() -> None:
    """Two zeros and an infinity have the median 0."""
    tables = unreachable([1.0, None, 2.0])
    details = daskpriv.evaluate(**tables, missing="anonymeter", metrics="dcr").metrics["dcr"].details
    assert details["synthetic->train"]["median"] == 0.0
    assert details["synthetic->train"]["q95"] == math.inf


@pytest.mark.parametrize("train", [[0, 0], [0, 1]])
def test_equal_credits_vary_nothing(train: list[int]) -> None:
    """Three thirds are one: where every real row holds the same credit there is no law to test against."""
    holdout = [0, 1] if train == [0, 0] else [0, 0]
    tables = {"train": train, "holdout": holdout, "synthetic": [0, 0, 0, 1]}
    found = daskpriv.evaluate(**{k: pa.table({"a": v}) for k, v in tables.items()}).metrics["dcr_share"]
    assert found.p_value == 1.0
    assert found.details["standard_error"] == 0.0
    assert found.verdict == "NOT_INTERPRETABLE"
