"""Fuzzed frames: pandas, Arrow and polars tables of random types, names, sizes and options."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import daskpriv
from daskpriv.report.model import report_schema
from tests.fuzz.checks import Failure, attempt, harmless, shareable
from tests.fuzz.mutate import odd_text

_BASE = 77317731
_DAY = date(7731, 7, 31)
_NOON = datetime(7731, 7, 31, 12)

# ---------------------------------------------------------------------------------------------- columns
#
# A maker turns small whole numbers into a column; each has a name, so that other tables can have the same one.

Maker = Callable[[list[int], random.Random], Any]


def _with_gaps(values: list[Any], rng: random.Random, gap: Any = None) -> list[Any]:
    share = rng.choice((0.0, 0.1, 0.5, 1.0))
    return [gap if rng.random() < share else v for v in values]


def _object(make: Callable[[int], Any]) -> Maker:
    return lambda n, rng: pd.Series([make(v) for v in n], dtype=object)


def _numpy(kind: str, make: Callable[[int], Any] = lambda v: _BASE + v) -> Maker:
    return lambda n, rng: pd.Series([make(v) for v in n], dtype=kind)


def _arrow(kind: pa.DataType, make: Callable[[int], Any]) -> Maker:
    return lambda n, rng: pa.array(_with_gaps([make(v) for v in n], rng), kind)


def _extremes(n: list[int], rng: random.Random) -> Any:
    some = (0.0, -0.0, 1e308, -1e308, 1.7e308, 5e-324, -5e-324, 1e-310, 2.0**53, 2.0**53 + 2, math.nan)
    odd = (*some, math.inf, -math.inf) if rng.random() < 0.2 else some
    return pd.Series([rng.choice(odd) for _ in n], dtype=float)


def _wide(n: list[int], rng: random.Random) -> Any:
    kind, some = rng.choice((("int64", (-(2**63), 2**63 - 1, 0, 1, 2**53 + 1)), ("uint64", (0, 2**64 - 1, 2**63, 1))))
    return pd.Series([rng.choice(some) for _ in n], dtype=kind)


def _dictionary(n: list[int], rng: random.Random) -> Any:
    """Dictionaries as no sane writer makes them: repeated, missing or unused values."""
    values = rng.choice(
        (
            pa.array(["CANARY", "CANARY", "CANARY-1", None]),
            pa.array([_BASE, _BASE, None, 3]),
            pa.array([1.5, math.nan, -0.0, 0.0]),
            pa.array([True, False, None, True]),
            pa.array([_NOON, None, _NOON, _NOON], pa.timestamp("us", "UTC")),
            pa.array([Decimal("1.10"), Decimal("1.1"), None, Decimal(2)], pa.decimal128(9, 2)),
            pa.array([b"CANARY", b"", None, b"CANARY"]),
            pa.array([["CANARY"], [], None, []]),
        )
    )
    places = pa.array(_with_gaps([v % 4 for v in n], rng), rng.choice((pa.int8(), pa.int32(), pa.uint8())))
    return pa.DictionaryArray.from_arrays(places, values)


def _categorical(n: list[int], rng: random.Random) -> Any:
    categories = rng.choice(
        (
            ["CANARY-0", "CANARY-1", "CANARY-2", "CANARY-3"],
            [_BASE, _BASE + 1, 2, 3],
            [1.5, 2.5, math.inf, -0.5],
            [True, False],
            ["CANARY", 1, 2.5, b"CANARY"],
            list(pd.date_range("2021-07-31", periods=4, tz="UTC")),
            list(pd.interval_range(0, 4)),
            [_DAY, _DAY + timedelta(1), _DAY + timedelta(2)],
            [("CANARY", 1), ("CANARY", 2), (), (3,)],
        )
    )
    codes = [v % len(categories) if rng.random() < 0.9 else -1 for v in n]
    return pd.Series(
        pd.Categorical.from_codes(
            codes, categories=pd.Index(categories, tupleize_cols=False), ordered=rng.random() < 0.3
        )
    )


def _mixed(n: list[int], rng: random.Random) -> Any:
    pool = (
        *("CANARY", _BASE, _BASE + 0.5, True, None, math.nan, pd.NA, pd.NaT, b"CANARY", _DAY, _NOON, timedelta(1)),
        *(
            Decimal("1.1"),
            Fraction(1, 3),
            10**30,
            1j,
            (1, 2),
            [1],
            {"CANARY": 1},
            {1},
            object,
            np.int8(3),
            np.datetime64("NaT"),
        ),
        *(
            _NOON.replace(tzinfo=UTC),
            time(7, 31),
            "\ud800",
            "",
            np.float32(1.5),
            np.str_("CANARY"),
            pd.Timestamp("2021-07-31"),
        ),
    )
    some = rng.sample(pool, rng.randrange(1, 4))
    return pd.Series([rng.choice(some) for _ in n], dtype=object)


def _chunks(n: list[int], rng: random.Random) -> Any:
    kind, make = rng.choice(((pa.string(), lambda v: f"CANARY-{v}"), (pa.float64(), float), (pa.large_string(), str)))
    whole = pa.array(_with_gaps([make(v) for v in n], rng), kind)
    at = rng.randrange(len(n) + 1)
    return pa.chunked_array([whole[:at], whole[at:at], whole[at:]], kind)


def _near(v: int) -> np.datetime64:
    return np.datetime64("2021-07-31") + np.timedelta64(v, "D")


def _zone(n: list[int], rng: random.Random) -> Any:
    start = pd.Timestamp("2021-10-31", tz=rng.choice(("UTC", "Europe/Vienna")))
    return pd.Series(start + pd.to_timedelta(n, unit="h"))


MAKERS: dict[str, Maker] = {
    **{k: _numpy(k) for k in ("int64", "int32", "uint64", "float64", "float32", "complex128", "Int64", "Float64")},
    **{k: _numpy(k, lambda v: v) for k in ("int8", "uint8", "float16", "longdouble")},
    **{k: _numpy(k, lambda v: v % 2 == 0) for k in ("bool", "boolean")},
    **{k: _numpy(k, lambda v: f"CANARY-{v % 4}") for k in ("object", "string", "category", "string[pyarrow]", "U9")},
    **{f"datetime64[{u}]": _numpy(f"datetime64[{u}]", _near) for u in ("s", "ms", "us", "ns")},
    **{f"timedelta64[{u}]": _numpy(f"timedelta64[{u}]", lambda v: np.timedelta64(v, "D")) for u in ("s", "ns")},
    "far": _numpy("datetime64[s]", lambda v: np.datetime64("7731-07-31") + np.timedelta64(v * 10_000, "D")),
    "zone": _zone,
    "zones": _object(lambda v: pd.Timestamp("2021-07-31", tz=("UTC", "Asia/Tokyo")[v % 2])),
    "period": lambda n, rng: pd.Series(pd.period_range("7731-07", periods=len(n), freq="M")),
    "interval": lambda n, rng: pd.Series(pd.interval_range(_BASE, periods=len(n))),
    "sparse": lambda n, rng: pd.Series(pd.arrays.SparseArray([v % 3 for v in n])),
    "categorical": _categorical,
    "gaps": lambda n, rng: pd.Series(_with_gaps([_BASE + v for v in n], rng, pd.NA), dtype="Int64"),
    "holes": lambda n, rng: pd.Series(_with_gaps([f"CANARY-{v % 3}" for v in n], rng), dtype=object),
    "nans": lambda n, rng: pd.Series(_with_gaps([_BASE + v / 7 for v in n], rng, math.nan)),
    "nothing": lambda n, rng: pd.Series([None] * len(n), dtype=object),
    "constant": lambda n, rng: pd.Series([_BASE] * len(n)),
    "empties": _object(lambda v: ""),
    "unique": _object(lambda v: f"CANARY-{v}-{v * v}"),
    "long": _object(lambda v: "CANARY" * (v * 50)),
    "odd words": lambda n, rng: pd.Series([odd_text(rng) for _ in n], dtype=object),
    "surrogates": _object(lambda v: "\ud800CANARY"),
    "bytes": _object(lambda v: b"CANARY\xff"),
    "dates": _object(lambda v: _DAY + timedelta(v)),
    "moments": _object(lambda v: _NOON + timedelta(v)),
    "clocks": _object(lambda v: time(7, v % 60, 31)),
    "spans": _object(timedelta),
    "decimals": _object(lambda v: Decimal(_BASE + v).scaleb(-(v % 5))),
    "big decimals": _object(lambda v: Decimal(_BASE) ** 4 + v),
    "tiny decimals": _object(lambda v: Decimal(v).scaleb(-60)),
    "nan decimals": _object(lambda v: Decimal("NaN") if v % 3 else Decimal(v)),
    "huge ints": _object(lambda v: 10**25 + v),
    "lists": _object(lambda v: ["CANARY"] * (v % 3)),
    "dicts": _object(lambda v: {"CANARY": v}),
    "arrays": _object(lambda v: np.arange(v % 3)),
    "mixed": _mixed,
    "extremes": _extremes,
    "wide": _wide,
    "dictionary": _dictionary,
    "chunks": _chunks,
    "a decimal": _arrow(pa.decimal128(12, 2), lambda v: Decimal(_BASE + v).scaleb(-2)),
    "a wide decimal": _arrow(pa.decimal256(60, 3), lambda v: Decimal(_BASE) ** 5),
    "a negative scale": _arrow(pa.decimal128(9, -2), lambda v: Decimal(v).scaleb(3)),
    "a short decimal": _arrow(pa.decimal32(9, 2), Decimal),
    "a time32": _arrow(pa.time32("s"), lambda v: time(7, 31, v % 60)),
    "a time64": _arrow(pa.time64("ns"), lambda v: time(7, 31, v % 60)),
    "a date64": _arrow(pa.date64(), lambda v: _DAY + timedelta(v)),
    "a duration": _arrow(pa.duration("ms"), timedelta),
    "an old zone": _arrow(pa.timestamp("us", "-07:31"), lambda v: _NOON),
    "a strange zone": _arrow(pa.timestamp("us", "Nowhere/CANARY"), lambda v: v),
    "a far stamp": _arrow(pa.timestamp("s"), lambda v: 2**62 - v),
    "a far duration": _arrow(pa.duration("s"), lambda v: 2**62 - v),
    "a half": _arrow(pa.float16(), np.float16),
    "a view": _arrow(pa.string_view(), lambda v: f"CANARY-{v % 4}" * 5),
    "a binary view": _arrow(pa.binary_view(), lambda v: b"CANARY\xff" * 3),
    "a fixed binary": _arrow(pa.binary(6), lambda v: b"CANARY"),
    "a null": _arrow(pa.null(), lambda v: None),
    "a list": _arrow(pa.list_(pa.string()), lambda v: ["CANARY"]),
    "a list view": _arrow(pa.list_view(pa.int8()), lambda v: [v % 9]),
    "a fixed list": _arrow(pa.list_(pa.int8(), 2), lambda v: [1, 2]),
    "a map": _arrow(pa.map_(pa.string(), pa.int8()), lambda v: [("CANARY", 1)]),
    "a struct": _arrow(pa.struct([("x", pa.int8())]), lambda v: {"x": v % 9}),
    "months": _arrow(pa.month_day_nano_interval(), lambda v: pa.MonthDayNano([v, 1, 1])),
    "a uuid": lambda n, rng: pa.array([bytes(16)] * len(n), pa.binary(16)).cast(pa.uuid()),
    "runs": lambda n, rng: pa.array(["CANARY"] * len(n), pa.run_end_encoded(pa.int32(), pa.string())),
    "a union": lambda n, rng: pa.UnionArray.from_sparse(pa.array([0] * len(n), pa.int8()), [pa.array(n, pa.int64())]),
}
_COMMON = (
    "int64",
    "float64",
    "object",
    "bool",
    "category",
    "datetime64[ns]",
    "gaps",
    "holes",
    "nans",
    "decimals",
    "constant",
)


def _polars(kind: Any, make: Callable[[int], Any]) -> Callable[[list[int]], pl.Series]:
    return lambda n: pl.Series([make(v) if v % 7 else None for v in n], dtype=kind)


_POLARS: dict[str, Callable[[list[int]], pl.Series]] = {
    "int64": _polars(pl.Int64, lambda v: _BASE + v),
    "float64": _polars(pl.Float64, lambda v: math.nan if v % 5 == 0 else _BASE + v / 3),
    "object": _polars(pl.String, lambda v: f"CANARY-{v % 4}"),
    "bool": _polars(pl.Boolean, lambda v: v % 2 == 0),
    "category": _polars(pl.Categorical, lambda v: f"CANARY-{v % 4}"),
    "datetime64[ns]": _polars(pl.Datetime("ns", "Europe/Vienna"), lambda v: datetime(2021, 10, 31, v % 24, tzinfo=UTC)),
    "gaps": _polars(pl.UInt8, lambda v: v),
    "holes": _polars(pl.Enum(["CANARY-0", "CANARY-1"]), lambda v: f"CANARY-{v % 2}"),
    "nans": _polars(pl.Float32, lambda v: math.inf if v == 39 else v),
    "decimals": _polars(pl.Decimal(12, 2), lambda v: Decimal(_BASE + v).scaleb(-2)),
    "constant": _polars(pl.Date, lambda v: _DAY),
    "dates": _polars(pl.Date, lambda v: _DAY + timedelta(v)),
    "clocks": _polars(pl.Time, lambda v: time(7, v % 60, 31)),
    "spans": _polars(pl.Duration("ms"), timedelta),
    "bytes": _polars(pl.Binary, lambda v: b"CANARY\xff"),
    "nothing": _polars(pl.Null, lambda v: None),
    "huge ints": _polars(pl.Int128, lambda v: 10**25 + v),
    "mixed": _polars(pl.Object, lambda v: ("CANARY", v)),
    "lists": _polars(pl.List(pl.String), lambda v: ["CANARY"]),
    "dicts": _polars(pl.Struct({"x": pl.Int8}), lambda v: {"x": v}),
}


# ---------------------------------------------------------------------------------------------- tables


def _table(columns: dict[str, str], rows: int, rng: random.Random, home: str) -> Any:
    """A frame of these columns {name: maker}; `home` is the library, left where it cannot hold them."""
    n = [rng.randrange(40) for _ in range(rows)]
    odd = any("\ud800" <= c <= "\udfff" for name in columns for c in name)
    if home == "polars" and not odd and all(maker in _POLARS for maker in columns.values()):
        return pl.DataFrame({name: _POLARS[maker](n) for name, maker in columns.items()})
    made = {name: MAKERS[maker](n, rng) for name, maker in columns.items()}
    if home == "arrow" or any(isinstance(c, _ARROW) for c in made.values()):
        try:
            return pa.table({k: c if isinstance(c, _ARROW) else pa.Array.from_pandas(c) for k, c in made.items()})
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            made = {k: c for k, c in made.items() if not isinstance(c, _ARROW)}
    frame = pd.DataFrame(dict(enumerate(made.values())), index=range(rows))
    frame.columns = pd.Index(list(made), dtype=object)  # pandas' own string labels cannot hold half a character
    if rng.random() < 0.2:
        frame.index = pd.Index(rng.choice((["CANARY"] * rows, [math.nan] * rows, list(range(rows, 0, -1)))), name="a")
    return frame


def _pandas_names(frame: Any, rng: random.Random) -> Any:
    """Column labels that are no plain distinct strings."""
    if not isinstance(frame, pd.DataFrame) or frame.shape[1] == 0:
        return frame
    labels = rng.choice(
        (
            lambda p: list(range(p)),
            lambda p: [None] * p,
            lambda p: [frame.columns[0]] * p,
            lambda p: [math.nan] * p,
            lambda p: pd.MultiIndex.from_product([["x"], [str(i) for i in range(p)]]),
            lambda p: [("CANARY", i) for i in range(p)],
            lambda p: pd.CategoricalIndex([f"c{i}" for i in range(p)]),
            lambda p: pd.date_range("2021-07-31", periods=p),
            lambda p: [np.str_(f"c{i}") for i in range(p)],
            lambda p: [b"c%d" % i for i in range(p)],
        )
    )(frame.shape[1])
    return frame.set_axis(pd.Index(labels, tupleize_cols=False) if isinstance(labels, list) else labels, axis=1)


def _names(rng: random.Random, count: int) -> list[str]:
    out: dict[str, None] = {}
    while len(out) < count:
        out[odd_text(rng) if rng.random() < 0.15 else rng.choice(("a", "b", "c", "id", "user_id", "x.y", "Ä"))] = None
    return list(out)


_ARROW = (pa.Array, pa.ChunkedArray)
_JUNK = (
    None,
    0,
    -1,
    1.5,
    "x",
    b"x",
    [],
    {},
    (),
    set(),
    object(),
    math.nan,
    True,
    Path(),
    np.int64(3),
    [None],
    [1],
    {"x": None},
    {1: 1},
)


def _options(rng: random.Random, names: list[str]) -> dict[str, Any]:
    made: dict[str, Callable[[], Any]] = {
        "columns": lambda: rng.choice((names, names[:1], names[::-1], names * 2, ["nope"], tuple(names))),
        "weights": lambda: {
            n: rng.choice((0, 1, 2.5, 1e308, 5e-324, -1, math.nan, np.float32(2), True, "x")) for n in names
        },
        "missing": lambda: rng.choice(("level", "gower", "max", "anonymeter", "clearbox", "nope")),
        "block_rows": lambda: rng.choice((1, 2, 7, 10**9, 2**70)),
        "schema": lambda: daskpriv.Schema(
            tuple(daskpriv.Column(n, rng.choice(list(daskpriv.Kind))) for n in names if n)
        ),
    }
    out = {}
    for name, make in made.items():
        if rng.random() < 0.12:
            out[name] = make if False else _tried(make)
        elif rng.random() < 0.01:
            out[name] = rng.choice(_JUNK)
    return {k: v for k, v in out.items() if v is not NotImplemented}


def _tried(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except daskpriv.InputError:
        return NotImplemented


def frames(rng: random.Random, folder: Path) -> None:
    """Random tables, most of them of one shape, and random options."""
    names = _names(rng, rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 8)))
    wild = rng.choice((0.0, 0.0, 0.1, 0.5))
    kinds = [rng.choice(list(MAKERS)) if rng.random() < wild else rng.choice(_COMMON) for _ in names]
    columns = dict(zip(names, kinds, strict=True))
    home = rng.choice(("pandas", "pandas", "arrow", "polars"))
    tables: dict[str, Any] = {}
    for role in ("train", "holdout", "synthetic"):
        mine = dict(columns)
        if mine and rng.random() < wild / 4:
            mine[rng.choice(list(mine))] = rng.choice(list(MAKERS))
        if mine and rng.random() < 0.03:
            mine.pop(rng.choice(list(mine)))
        if rng.random() < 0.1:
            mine = dict(rng.sample(list(mine.items()), len(mine)))
        tables[role] = _table(
            mine, rng.choice((0, 1, 2, 5, 5, 20, 20, 20, 20, 20, 120)), rng, home if rng.random() < 0.9 else "pandas"
        )
        if rng.random() < 0.03:
            tables[role] = _pandas_names(tables[role], rng)
        if rng.random() < 0.005:
            tables[role] = rng.choice(_JUNK)
    if rng.random() < 0.3:
        tables["synthetic"] = tables["train"]
    if rng.random() < 0.3:
        del tables["holdout"]
    options = _options(rng, names) if rng.random() < 0.5 else {}
    if rng.random() < 0.5:
        _evaluated(tables, options, rng, folder)
    else:
        _searched(tables["synthetic"], tables["train"], options, rng)


def _evaluated(tables: dict[str, Any], options: dict[str, Any], rng: random.Random, folder: Path) -> None:
    more = {
        "range_from": lambda: rng.choice(
            ("real", "train", "all", "pair_union", "pair_reference", "quantile", "iqr", "rank")
        ),
        "preset": lambda: rng.choice(("default", "mostly-paper", "clearbox")),
        "metrics": lambda: rng.choice(("default", "all", "clones", ["dcr"], "dcr,clones", [], "nope")),
        "seed": lambda: rng.choice((1, 2**64 - 1, -1, 2**64)),
        "fail_on": lambda: rng.choice((["leak"], ["gate", "dcr_share>0.5"], "leak")),
        "output": lambda: str(folder / rng.choice(("out", "<script>", "a'b\"c&d", "x" * 300))),
    }
    for name, make in more.items():
        if rng.random() < 0.12:
            options[name] = make()
        elif rng.random() < 0.01:
            options[name] = rng.choice(_JUNK)
    if not isinstance(options.get("output"), str):
        options.pop("output", None)
    report = attempt(lambda: daskpriv.evaluate(**tables, **options))
    if report is None:
        return
    whole = shareable(report)
    if rng.random() < 0.2:
        jsonschema.validate(whole, report_schema())
    for role, table in tables.items():
        if table is not None and whole["inputs"]["tables"][role]["rows"] != len(table):
            raise Failure(f"{role} has {len(table)} rows, but the report tells another number")
    if "output" in options:
        harmless((Path(options["output"]) / "report.html").read_text("utf-8"))
    copied = tables["synthetic"] is tables["train"] and not {"missing", "preset"} & set(options)
    clones = report.metrics.get("clones")
    if copied and clones is not None and clones.details["n_synthetic_train"] != len(tables["train"]):
        raise Failure("a table is not a copy of itself")


def _searched(query: Any, reference: Any, options: dict[str, Any], rng: random.Random) -> None:
    more = {
        "k": lambda: rng.choice((1, 2, 3, 200, 0, 2**70, 1.5, "1")),
        "exclude_self": lambda: True,
        "fit": lambda: rng.choice(("query", "reference", "both", reference, [query, reference])),
    }
    for name, make in more.items():
        if rng.random() < 0.15:
            options[name] = make()
        elif rng.random() < 0.01:
            options[name] = rng.choice(_JUNK)
    found = attempt(lambda: daskpriv.nearest_neighbours(query, reference, **options))
    if found is None:
        return
    distance, row = np.asarray(found.distance), np.asarray(found.row)
    if len(distance) != len(query) or len(row) != len(query):
        raise Failure(f"{len(distance)} answers for {len(query)} rows")
    held = distance[np.isfinite(distance)]
    if np.isnan(distance).any() or (held < 0).any() or (held > 1).any():
        raise Failure("a distance is not in [0, 1]")
    if ((row < 0) != np.isinf(distance)).any() or (row >= len(reference)).any():
        raise Failure("a neighbour is not a row of the reference")
    if query is reference and not {"missing", "exclude_self"} & set(options) and (distance[:, 0] != 0).any():
        raise Failure("a row is not its own nearest row")
