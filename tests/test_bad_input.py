"""What unusable and unusual tables and files do to `daskpriv.evaluate`: one sentence, or the defined value.

The numbers in the ids are those of the catalogue of bad tables (there is no 69); files follow behind. Every cell that
could be quoted holds "7731", so that a leak into a message, a log or the screen is found by one search.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import traceback
import unicodedata
from calendar import timegm
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import daskpriv
from daskpriv.events import StageStarted
from tests import bad_files as bad
from tests.reference import Col, closest_of, column_range, distances

CANARY = "7731"
N, COPIED = 60, 10
Tables = dict[str, Any]
Change = Callable[[pd.Series], Any]


# ---------------------------------------------------------------------------------------------- the base case


def people(seed: int, rows: int = N) -> pd.DataFrame:
    """Four mixed columns: float a, integer b, category c, boolean d."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": 7731 + rng.random(rows),
            "b": 77310000 + rng.integers(0, 10_000, rows),
            "c": "CANARY-7731-" + pd.Series(rng.choice(list("uvwxyz"), rows)),
            "d": rng.random(rows) < 0.4,
        }
    )


def base(rows: int = N) -> Tables:
    """Train, holdout and a synthetic table whose first 10 rows are the first 10 of train."""
    train, holdout, synthetic = (people(seed, rows) for seed in (1, 2, 3))
    synthetic = pd.concat([train.head(COPIED), synthetic.iloc[COPIED:]], ignore_index=True)
    return {"train": train, "holdout": holdout, "synthetic": synthetic}


def put(name: str, column: str, change: Change, tables: Tables | None = None) -> Tables:
    """The base case with one column of one table changed; `change` gets the column."""
    tables = base() if tables is None else tables
    tables[name] = tables[name].assign(**{column: change(tables[name][column])})
    return tables


def everywhere(column: str, change: Change) -> Tables:
    """The base case with one column changed in all tables, row by row alike, so that copies stay copies."""
    tables = base()
    for name in tables:
        put(name, column, change, tables)
    return tables


def each(column: str, **changes: Change) -> Tables:
    """The base case with one column changed differently in each table named."""
    tables = base()
    for name, change in changes.items():
        put(name, column, change, tables)
    return tables


def swap(name: str, change: Callable[[pd.DataFrame], Any]) -> Tables:
    """The base case with one table replaced by what `change` makes of it."""
    tables = base()
    return {**tables, name: change(tables[name])}


def swap_all(change: Callable[[pd.DataFrame], Any]) -> Tables:
    """The base case with every table replaced by what `change` makes of it."""
    return {name: change(table) for name, table in base().items()}


# ---------------------------------------------------------------------------------------------- changes of a column


def holes(missing: Any) -> Change:
    """Every tenth cell missing."""
    return lambda s: pd.Series([missing if i % 10 == 3 else v for i, v in enumerate(s.tolist())], dtype=object)


def float_holes(s: pd.Series) -> pd.Series:
    """Every tenth number NaN."""
    return s.where(np.arange(len(s)) % 10 != 3).astype(float)


def cells(*values: Any) -> Change:
    """These Python objects over and over, whatever the column held."""
    return lambda s: pd.Series([values[i % len(values)] for i in range(len(s))], dtype=object, index=s.index)


def each_cell(make: Callable[[Any], Any]) -> Change:
    """A Python object made from each cell."""
    return lambda s: pd.Series([make(v) for v in s.tolist()], dtype=object)


def all_cells(value: Any) -> Change:
    """One value in all cells, in the dtype that pandas infers."""
    return lambda s: pd.Series([value] * len(s))


def first(value: Any, *places: int) -> Change:
    """Another value in these rows (row 20 unless told), which are no copies."""
    return lambda s: pd.Series([value if i in (places or (20,)) else v for i, v in enumerate(s)], dtype=s.dtype)


def plus(amount: Any) -> Change:
    """Add to every cell."""
    return lambda s: s + amount


def big(start: int, step: int = 2, dtype: str = "int64") -> Change:
    """Whole numbers `start` + `step` x (last digits of b): beyond the digits of float64."""
    return lambda s: pd.Series([start + step * (int(v) % 10_000) for v in s], dtype=dtype)


def steps(start: int, step: int) -> Change:
    """Whole numbers that grow by `step` from row to row."""
    return lambda s: pd.Series([start + step * i for i in range(len(s))])


def dates(unit: str = "ns", step: str = "1h", tz: str | None = None) -> Change:
    """Timestamps that grow with the cell."""

    def change(s: pd.Series) -> pd.Series:
        stamps = pd.Timestamp("2021-03-28") + pd.to_timedelta([int(v * 1000) % 997 for v in s]) // pd.Timedelta(
            "1ns"
        ) * pd.Timedelta(step)
        stamps = pd.Series(stamps).astype(f"datetime64[{unit}]")
        return stamps.dt.tz_localize("UTC").dt.tz_convert(tz) if tz else stamps

    return change


def words(change: Callable[[str], str]) -> Change:
    """Every category rewritten."""
    return lambda s: pd.Series([change(v) for v in s.tolist()], index=s.index)


def accented(form: str) -> Change:
    """Categories with an umlaut in this Unicode form."""
    return words(lambda v: unicodedata.normalize(form, v + "é"))


def categorical(order: str) -> Change:
    """A pandas Categorical whose categories stand in this order."""
    return lambda s: pd.Series(pd.Categorical(s, categories=[f"CANARY-7731-{v}" for v in order]))


def big_text(s: pd.Series, last: str) -> pd.Series:
    """A megabyte in rows 0 and 1, a NUL in rows 2 and 3; rows 0 and 2 end in `last`."""
    out = s.tolist()
    out[:4] = ["7731" * 250_000 + last, "7731" * 250_000, "CANARY-7731\x00" + last, "CANARY-7731\x00"]
    return pd.Series(out)


# ---------------------------------------------------------------------------------------------- refused tables


@dataclass(frozen=True)
class Refused:
    """A case that must end in an `InputError` that says all of this."""

    id: str
    make: Callable[[], Tables]
    says: tuple[str, ...]


OTHER_COLUMNS = (
    "train have different columns: missing",
    "unexpected",
    "pass columns=[...] to compare a subset on purpose",
)
NOT_GUESSED = ("train", "holdout", "synthetic", "cast one side (types are never guessed)")
CANNOT = ("mixes Python types or holds values Arrow cannot represent", "cast it to one type")
NO_TABLE = "expected a table (pandas.DataFrame, pyarrow.Table or path), got "
NO_DISTANCE = "which has no distance; drop it or convert it"
INFINITE = "replace them by null or a bound"
OBJECTS = "CANARY-7731", 77317731

REFUSED = (
    Refused(
        "01-synthetic-misses-a-column",
        lambda: swap("synthetic", lambda t: t.drop(columns="b")),
        ("synthetic", *OTHER_COLUMNS, "missing ['b'] (1)", "unexpected [] (0)"),
    ),
    Refused(
        "02-synthetic-has-an-extra-column",
        lambda: swap("synthetic", lambda t: t.assign(e=77317731)),
        ("synthetic", *OTHER_COLUMNS, "missing [] (0)", "unexpected ['e'] (1)"),
    ),
    Refused(
        "03-holdout-misses-a-column",
        lambda: swap("holdout", lambda t: t.drop(columns="b")),
        ("holdout", *OTHER_COLUMNS, "missing ['b'] (1)", "unexpected [] (0)"),
    ),
    Refused(
        "05-column-renamed-by-case",
        lambda: swap("synthetic", lambda t: t.rename(columns={"a": "A"})),
        ("synthetic", *OTHER_COLUMNS, "missing ['a'] (1)", "unexpected ['A'] (1)"),
    ),
    Refused(
        "06-no-common-column",
        lambda: swap("synthetic", lambda t: t.add_suffix("_")),
        ("synthetic", *OTHER_COLUMNS, "missing ['a', 'b', 'c', 'd'] (4)", "unexpected ['a_', 'b_', 'c_', 'd_'] (4)"),
    ),
    Refused(
        "08-numeric-strings",
        lambda: put("synthetic", "b", lambda s: s.astype(str)),
        ("column 'b'", "number in train", "number in holdout", "category in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "09-codes-int-and-str",
        lambda: each("c", train=cells(1, 2), holdout=cells(1, 2), synthetic=cells("7731-1", "7731-2")),
        ("column 'c'", "number in train", "number in holdout", "category in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "10-bool-and-int",
        lambda: put("synthetic", "d", lambda s: s.astype(int)),
        ("column 'd'", "number in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "13-duplicate-column-names",
        lambda: swap("train", lambda t: t.set_axis(["a", "b", "c", "c"], axis=1)),
        ("train", "duplicate column name(s) 'c'"),
    ),
    Refused(
        "14-non-string-column-names",
        lambda: swap_all(lambda t: t.set_axis(range(4), axis=1)),
        ("train", "column names must be strings; 4 of 4 are not"),
    ),
    Refused(
        "15-multiindex-columns",
        lambda: swap_all(lambda t: pd.concat({"x": t}, axis=1)),
        ("train", "multi-level column index is not supported; flatten the column names"),
    ),
    Refused(
        "29-inf-in-train",
        lambda: put("train", "a", first(math.inf)),
        ("train", "column 'a' holds 1 infinite value(s)", INFINITE),
    ),
    Refused(
        "30-minus-inf-in-synthetic",
        lambda: put("synthetic", "a", first(-math.inf)),
        ("synthetic", "column 'a' holds 1 infinite value(s)", INFINITE),
    ),
    Refused(
        "31-both-infinities",
        lambda: put("train", "a", first(-math.inf, 30), put("train", "a", first(math.inf, 40))),
        ("train", "column 'a' holds 2 infinite value(s)", INFINITE),
    ),
    Refused(
        "38-python-ints-beyond-64-bits",
        lambda: everywhere("b", cells(7731 * 10**20, 7732 * 10**20)),
        ("train", "column 'b'", "OverflowError", *CANNOT),
    ),
    Refused(
        "41-range-overflow",
        lambda: everywhere("a", cells(1.7731e308, -1.7731e308)),
        ("column 'a'", "range overflows float64; rescale it"),
    ),
    Refused("43-complex", lambda: everywhere("a", lambda s: s.astype(complex)), ("train", "column 'a'", *CANNOT)),
    Refused(
        "47-aware-and-naive",
        lambda: each("a", train=dates(tz="UTC"), holdout=dates(tz="UTC"), synthetic=dates()),
        ("column 'a'", "instant in train", "instant in holdout", "localtime in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "50-dates-as-strings",
        lambda: each("a", train=dates(), holdout=dates(), synthetic=lambda s: "7731: " + dates()(s).astype(str)),
        ("column 'a'", "localtime in train", "localtime in holdout", "category in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "52c-far-dates-and-nanoseconds",
        lambda: each("a", train=dates(), holdout=dates(), synthetic=cells(date(9999, 12, 31))),
        ("synthetic", "column 'a'", "do not fit timestamp[ns]", "one type"),
    ),
    Refused("53-mixed-int-and-str", lambda: everywhere("c", cells(*OBJECTS)), ("train", "column 'c'", *CANNOT)),
    Refused(
        "53b-mixed-in-synthetic-only",
        lambda: put("synthetic", "c", cells(*OBJECTS)),
        ("synthetic", "column 'c'", *CANNOT),
    ),
    Refused(
        "53c-numbers-for-words",
        lambda: put("synthetic", "c", cells(77317731)),
        ("column 'c'", "category in train", "category in holdout", "number in synthetic", *NOT_GUESSED),
    ),
    Refused(
        "54-one-in-four-types",
        lambda: everywhere("c", cells("CANARY-7731", 1, 1.0, True)),
        ("train", "column 'c'", *CANNOT),
    ),
    Refused(
        "56-lists",
        lambda: everywhere("c", cells(["CANARY-7731"], [])),
        ("train", "column 'c' has type list", NO_DISTANCE),
    ),
    Refused(
        "57-dicts",
        lambda: everywhere("c", cells({"x": "CANARY-7731"})),
        ("train", "column 'c' has type struct", NO_DISTANCE),
    ),
    Refused(
        "58-arrays",
        lambda: everywhere("c", cells(np.arange(7731, 7734))),
        ("train", "column 'c' has type list", NO_DISTANCE),
    ),
    Refused(
        "59-intervals",
        lambda: everywhere("c", lambda s: pd.interval_range(7731, periods=len(s))),
        ("train", "column 'c' has type extension", NO_DISTANCE),
    ),
    Refused(
        "60-periods",
        lambda: everywhere("c", lambda s: pd.period_range("7731-01", periods=len(s), freq="M")),
        ("train", "column 'c' has type extension", NO_DISTANCE),
    ),
    Refused(
        "61-sparse",
        lambda: everywhere("b", pd.arrays.SparseArray),
        ("train", "column 'b'", "sparse", "to_dense()"),
    ),
    Refused(
        "72-empty-synthetic",
        lambda: swap("synthetic", lambda t: t.head(0)),
        ("synthetic: 0 row(s), this evaluation needs at least 1",),
    ),
    Refused(
        "73-empty-train",
        lambda: swap("train", lambda t: t.head(0)),
        ("train: 0 row(s), this evaluation needs at least 2",),
    ),
    Refused(
        "74-empty-holdout",
        lambda: swap("holdout", lambda t: t.head(0)),
        ("holdout: 0 row(s), this evaluation needs at least 1",),
    ),
    Refused(
        "75-single-row-train",
        lambda: swap("train", lambda t: t.head(1)),
        ("train: 1 row(s), this evaluation needs at least 2",),
    ),
    Refused("77-no-columns", lambda: swap_all(lambda t: t[[]]), ("train: table has no columns",)),
    Refused(
        "90-numpy-array", lambda: swap("train", lambda t: t[["a", "b"]].to_numpy()), ("train: " + NO_TABLE + "ndarray",)
    ),
    Refused("91-series", lambda: swap("train", lambda t: t["c"]), ("train: " + NO_TABLE + "Series",)),
    Refused(
        "92-none-as-synthetic", lambda: swap("synthetic", lambda t: None), ("synthetic: " + NO_TABLE + "NoneType",)
    ),
    Refused(
        "93-list-of-dicts", lambda: swap("train", lambda t: t.to_dict("records")), ("train: " + NO_TABLE + "list",)
    ),
)


# ---------------------------------------------------------------------------------------------- accepted tables


@dataclass(frozen=True)
class Accepted:
    """A case with a defined value.

    clones   synthetic rows that equal a row of train
    warns    words that one warning must hold; without any, there must be no warning
    alike    the numbers must be those of the base case
    check    whatever else is defined
    options  of `evaluate`
    """

    id: str
    make: Callable[[], Tables]
    clones: int = COPIED
    warns: tuple[str, ...] = ()
    alike: bool = False
    check: Callable[[daskpriv.Report], None] | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()


def dcr(report: daskpriv.Report, direction: str = "synthetic->train") -> dict[str, Any]:
    """The distances of one direction."""
    found: dict[str, Any] = report.metrics["dcr"].details[direction]
    return found


def all_zero(report: daskpriv.Report) -> None:
    """Every row of every table has a twin."""
    assert dcr(report)["max"] == dcr(report, "holdout->train")["max"] == 0.0
    assert report.metrics["clones"].value == 1.0


def one_column_apart(report: daskpriv.Report) -> None:
    """No synthetic row is nearer than one whole column of four."""
    assert dcr(report)["min"] >= 0.25


def unseen(report: daskpriv.Report) -> None:
    """Categories that no real table has are reported, and match nothing."""
    one_column_apart(report)
    assert [d["column"] for d in report.inputs["differences"] if "no real table has" in d["what"]] == ["c"]


def other_type(report: daskpriv.Report) -> None:
    """A difference in type is on record."""
    assert any("compared by value" in d["what"] for d in report.inputs["differences"])


def other_order(report: daskpriv.Report) -> None:
    """A difference in column order is on record."""
    assert any("another order" in d["what"] for d in report.inputs["differences"])


def alarm(name: str, *said: str) -> Callable[[daskpriv.Report], None]:
    """A gate that must not be passed, and what it must say."""

    def check(report: daskpriv.Report) -> None:
        gate = next(g for g in report.gates if g["name"] == name)
        assert not gate["passed"]
        assert all(word in gate["message"] for word in said)

    return check


def copies(report: daskpriv.Report) -> None:
    """A copy of train is a leak, all distances are 0 and the gate is loud."""
    assert dcr(report)["max"] == 0.0
    assert report.metrics["clones"].value == 1.0
    assert report.verdict == "LEAK"
    alarm("different tables", "synthetic and train")(report)


def left_out(report: daskpriv.Report) -> None:
    """The id took no part."""
    assert {c["name"]: c["kind"] for c in report.space["columns"]}["person_id"] == "id"


def kind_of_c(kind: str) -> Callable[[daskpriv.Report], None]:
    """Column 'c' got this kind."""

    def check(report: daskpriv.Report) -> None:
        assert {c["name"]: c["kind"] for c in report.space["columns"]}["c"] == kind

    return check


def half_contaminated() -> Tables:
    """Every other holdout row stands in train."""
    tables = base()
    mixed = pd.concat([tables["train"].iloc[::2], tables["holdout"].iloc[::2]], ignore_index=True)
    return {**tables, "holdout": mixed}


def wide_table() -> Tables:
    """2000 columns, every 20th a number, in 12 rows of which 10 are copied."""
    out = {}
    for name, table in base().items():
        digits = table["b"].head(12)
        texts = ["7731-" + (digits % (i + 2)).astype(str) for i in range(19)]
        out[name] = pd.DataFrame(
            {f"x{i}": texts[i % 20 - 1] if i % 20 else digits * (i + 1) % 7733 for i in range(2000)}
        )
    return out


def huge_synthetic() -> Tables:
    """12 rows of train and 100 times as many synthetic ones."""
    tables = base()
    return {**tables, "train": tables["train"].head(12), "synthetic": people(5, 1200)}


def with_ids(column: str) -> Tables:
    """Strings that are all distinct, within and between tables."""
    return {name: t.assign(**{column: [f"7731-{name}-{i}" for i in range(N)]}) for name, t in base().items()}


def zeros(sign: float) -> Change:
    """Half of the numbers are a zero of this sign."""
    return lambda s: s.where(s < 7731.5, math.copysign(0.0, sign))


SCRIPT = '<script>alert("x")</script>\nc'
LOOKALIKE = ("synthetic", "column 'c'", "case, blanks or", "form")
ALL_NOMINAL = daskpriv.Schema(
    tuple(
        daskpriv.Column(n, k)
        for n, k in zip("abcd", map(daskpriv.Kind, ("nominal", "nominal", "nominal", "boolean")), strict=True)
    )
)

ACCEPTED = (
    Accepted("00-baseline", base, alike=True),
    Accepted(
        "04-columns-reordered",
        lambda: swap("synthetic", lambda t: t[["d", "b", "c", "a"]]),
        alike=True,
        check=other_order,
    ),
    Accepted(
        "07-int-and-float", lambda: put("synthetic", "b", lambda s: s.astype(float)), alike=True, check=other_type
    ),
    Accepted(
        "11-categoricals-of-other-order",
        alike=True,
        make=lambda: each(
            "c", train=categorical("uvwxyz"), holdout=categorical("zyxwvu"), synthetic=categorical("qzwyxvu")
        ),
    ),
    Accepted("11b-categorical-and-strings", lambda: put("synthetic", "c", categorical("zyxwvu")), alike=True),
    Accepted(
        "12-disjoint-categories", lambda: put("synthetic", "c", words(lambda v: v + "-new")), clones=0, check=unseen
    ),
    Accepted("16-hostile-column-name", lambda: swap_all(lambda t: t.rename(columns={"c": SCRIPT})), alike=True),
    Accepted("17-duplicated-row-index", lambda: swap_all(lambda t: t.set_axis([7731] * N, axis=0)), alike=True),
    Accepted(
        "17b-index-with-a-name",
        lambda: swap_all(lambda t: t.set_axis(pd.Index(range(N, 0, -1), name="a"), axis=0)),
        alike=True,
    ),
    Accepted("18-nan-in-numeric", lambda: everywhere("a", float_holes)),
    Accepted("19-none-in-categorical", lambda: everywhere("c", holes(None))),
    Accepted("20-nan-only-in-synthetic", lambda: put("synthetic", "a", float_holes), clones=COPIED - 1),
    Accepted("21-all-null-numeric-everywhere", lambda: everywhere("a", all_cells(math.nan))),
    Accepted(
        "22-all-null-numeric-in-synthetic",
        lambda: put("synthetic", "a", all_cells(math.nan)),
        clones=0,
        check=one_column_apart,
    ),
    Accepted("22b-all-none-in-synthetic", lambda: put("synthetic", "a", cells(None)), clones=0, check=one_column_apart),
    Accepted(
        "22c-all-null-numeric-in-train",
        lambda: put("train", "a", all_cells(math.nan)),
        clones=0,
        check=one_column_apart,
    ),
    Accepted("23-all-null-object", lambda: everywhere("c", cells(None))),
    Accepted("23b-all-null-object-in-train", lambda: put("train", "c", cells(None)), clones=0, check=one_column_apart),
    Accepted(
        "24-all-rows-all-null",
        lambda: swap_all(lambda t: pd.DataFrame(None, t.index, t.columns, dtype=object)),
        clones=N,
        check=all_zero,
    ),
    Accepted(
        "24b-all-rows-all-nan",
        lambda: swap_all(lambda t: pd.DataFrame(math.nan, t.index, t.columns)),
        clones=N,
        check=all_zero,
    ),
    Accepted("25-na-in-nullable-int", lambda: everywhere("b", lambda s: holes(pd.NA)(s).astype("Int64"))),
    Accepted("26-na-in-string-dtype", lambda: everywhere("c", lambda s: holes(pd.NA)(s).astype("string"))),
    Accepted(
        "27-none-nan-and-the-word-nan", lambda: everywhere("c", cells(None, "nan", math.nan, "None", "CANARY-7731"))
    ),
    Accepted("27b-none-equals-nan", lambda: each("c", train=cells(None, "x7731"), synthetic=cells(math.nan, "x7731"))),
    Accepted(
        "27c-the-word-is-not-missing",
        lambda: each("c", train=cells("nan"), holdout=cells("nan"), synthetic=cells("x", None)),
        clones=0,
        check=one_column_apart,
    ),
    Accepted("28-nat", lambda: everywhere("a", lambda s: dates()(s).where(np.arange(len(s)) % 10 != 3))),
    Accepted("32-constant-everywhere", lambda: everywhere("a", all_cells(7731.5))),
    Accepted(
        "33-constant-in-the-real-tables",
        lambda: each("a", train=all_cells(7731.5), holdout=all_cells(7731.5)),
        clones=0,
        check=one_column_apart,
    ),
    Accepted("34-constant-zero", lambda: everywhere("a", all_cells(0.0))),
    Accepted("35-negative-only", lambda: everywhere("a", lambda s: -s)),
    Accepted("36-wide-ints-copied", lambda: everywhere("b", big(2**60))),
    Accepted(
        "36b-wide-ints-last-bit",
        lambda: each("b", train=big(2**60), holdout=big(2**60), synthetic=big(2**60 + 1)),
        clones=0,
    ),
    Accepted("36c-wide-range-copied", lambda: everywhere("b", big(-(2**62), 2**49 + 1))),
    Accepted(
        "36d-wide-range-last-bit",
        clones=0,
        make=lambda: each(
            "b", train=big(-(2**62), 2**49), holdout=big(-(2**62), 2**49), synthetic=big(1 - 2**62, 2**49)
        ),
    ),
    Accepted(
        "36e-wide-ints-of-one-minimum",
        clones=1,
        make=lambda: each(
            "b", train=steps(2**60, 1000), holdout=steps(2**60 + 512, 1000), synthetic=steps(2**60, 1001)
        ),
    ),
    Accepted("37-uint64-copied", lambda: everywhere("b", big(2**64 - 20_000, 2, "uint64"))),
    Accepted(
        "37b-uint64-last-bit",
        clones=0,
        make=lambda: each(
            "b",
            train=big(2**64 - 20_000, 2, "uint64"),
            holdout=big(2**64 - 20_000, 2, "uint64"),
            synthetic=big(2**64 - 19_999, 2, "uint64"),
        ),
    ),
    Accepted("39-decimals", lambda: everywhere("a", each_cell(lambda v: Decimal(round(v * 10**6)) / 10**4))),
    Accepted(
        "39b-decimals-of-other-scale",
        lambda: each(
            "a",
            train=cells(Decimal("1.10"), Decimal("7.73")),
            holdout=cells(Decimal("2.5")),
            synthetic=cells(Decimal("1.1"), Decimal("7.73000")),
        ),
    ),
    Accepted(
        "39c-decimals-last-digit",
        clones=0,
        make=lambda: each(
            "a",
            train=cells(Decimal("0.12345678901234567")),
            holdout=cells(Decimal("0.22345678901234567")),
            synthetic=cells(Decimal("0.12345678901234568")),
        ),
    ),
    Accepted(
        "40-float32-of-the-same-values",
        lambda: each("a", train=lambda s: s.round(0), synthetic=lambda s: s.round(0).astype("float32")),
    ),
    Accepted("40b-float32-of-other-values", lambda: put("synthetic", "a", lambda s: s.astype("float32")), clones=0),
    Accepted("42-denormal-range", lambda: everywhere("a", cells(0.0, 5e-324, 1e-323))),
    Accepted("44-huge-outlier", lambda: put("train", "a", first(1e18))),
    Accepted("45-negative-zero", lambda: each("a", train=zeros(-1.0), holdout=zeros(1.0), synthetic=zeros(1.0))),
    Accepted(
        "45b-negative-zero-as-category",
        lambda: each("a", train=all_cells(-0.0), holdout=all_cells(0.0), synthetic=all_cells(0.0)),
        options={"schema": ALL_NOMINAL},
    ),
    Accepted("46-datetime-ns", lambda: everywhere("a", dates())),
    Accepted(
        "46b-one-nanosecond-apart",
        clones=0,
        make=lambda: each("a", train=dates(), holdout=dates(), synthetic=lambda s: dates()(s) + pd.Timedelta("1ns")),
    ),
    Accepted("46c-ns-and-us", lambda: each("a", train=dates(), holdout=dates("us"), synthetic=dates("s"))),
    Accepted(
        "48-time-zones-between-tables",
        lambda: each("a", train=dates(tz="UTC"), holdout=dates(tz="Europe/Vienna"), synthetic=dates(tz="Asia/Tokyo")),
    ),
    Accepted(
        "48b-time-zones-in-one-column",
        lambda: each(
            "a",
            train=dates(tz="UTC"),
            holdout=dates(tz="UTC"),
            synthetic=lambda s: pd.Series(
                [
                    v.tz_convert(z)
                    for v, z in zip(dates(tz="UTC")(s), ["Asia/Tokyo", "America/Lima"] * (N // 2), strict=True)
                ],
                dtype=object,
            ),
        ),
    ),
    Accepted("49-timedelta", lambda: everywhere("a", lambda s: pd.to_timedelta((s * 1000).astype("int64")))),
    Accepted("51-date-objects", lambda: everywhere("a", lambda s: dates(step="1D")(s).dt.date)),
    Accepted(
        "51b-dates-and-timestamps",
        lambda: each(
            "a", train=lambda s: dates(step="1D")(s).dt.date, holdout=dates(step="1D"), synthetic=dates(step="1D")
        ),
    ),
    Accepted("52-far-dates", lambda: everywhere("a", cells(date(9999, 12, 31), date(2021, 1, 1), date(1, 1, 1)))),
    Accepted(
        "52b-far-datetimes",
        lambda: everywhere("a", cells(datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2021, 1, 1))),
    ),
    Accepted("55-bytes", lambda: everywhere("c", each_cell(lambda v: b"\xff\x00" + v.encode()))),
    Accepted(
        "62-arrow-backed", lambda: swap("synthetic", lambda t: t.convert_dtypes(dtype_backend="pyarrow")), alike=True
    ),
    Accepted("63-bool-with-none", lambda: everywhere("d", holes(None))),
    Accepted(
        "64-nfc-and-nfd",
        lambda: each("c", train=accented("NFC"), holdout=accented("NFC"), synthetic=accented("NFD")),
        clones=0,
        warns=LOOKALIKE,
        check=unseen,
    ),
    Accepted(
        "65-trailing-blanks",
        lambda: put("synthetic", "c", words(lambda v: v + " ")),
        clones=0,
        warns=LOOKALIKE,
        check=unseen,
    ),
    Accepted("66-upper-case", lambda: put("synthetic", "c", words(str.upper)), clones=0, warns=LOOKALIKE, check=unseen),
    Accepted(
        "67-unique-ids",
        lambda: with_ids("person_id"),
        alike=True,
        warns=("column 'person_id'", "id", "left out"),
        check=left_out,
        without=("person_id",),
    ),
    Accepted(
        "67b-unique-strings", lambda: everywhere("c", lambda s: pd.Series([f"CANARY-7731-{i}" for i in range(N)]))
    ),
    Accepted(
        "68-empty-string-is-not-missing",
        lambda: each("c", train=cells(""), holdout=cells(""), synthetic=cells(None, "CANARY-7731")),
        clones=0,
        check=one_column_apart,
    ),
    Accepted("68b-both-copied", lambda: everywhere("c", cells("", None, "CANARY-7731"))),
    Accepted(
        "70-nul-and-a-megabyte",
        lambda: each("c", train=lambda s: big_text(s, "x"), synthetic=lambda s: big_text(s, "y")),
        clones=COPIED - 2,
    ),
    Accepted(
        "71-free-text",
        lambda: {
            n: t.assign(c=[f"On day {v} CANARY-7731 wrote: {i}." for i, v in enumerate(t["a"])])
            for n, t in base(120).items()
        },
        check=kind_of_c("text"),
    ),
    Accepted("76-single-row-synthetic", lambda: swap("synthetic", lambda t: t.head(1)), clones=1),
    Accepted("78-single-numeric-column", lambda: swap_all(lambda t: t[["a"]])),
    Accepted("79-single-categorical-column", lambda: swap_all(lambda t: t[["c"]]), clones=N, check=all_zero),
    Accepted("80-all-categorical", lambda: swap_all(lambda t: t[["c"]].assign(e=t["b"].astype(str), d=t["d"]))),
    Accepted("81-all-numeric", lambda: swap_all(lambda t: t[["a", "b"]])),
    Accepted("82-2000-columns", wide_table),
    Accepted("83-synthetic-is-train", lambda: {**base(), "synthetic": base()["train"]}, clones=N, check=copies),
    Accepted(
        "84-holdout-is-train",
        lambda: {**base(), "holdout": base()["train"]},
        check=alarm("different tables", "holdout and train"),
    ),
    Accepted(
        "85-half-of-holdout-in-train",
        half_contaminated,
        check=alarm("holdout is apart from train", "100.0 % of the equal real rows", "contaminated"),
    ),
    Accepted(
        "86-one-row-repeated",
        lambda: {name: base()["train"].iloc[[0] * N] for name in base()},
        clones=N,
        check=all_zero,
    ),
    Accepted("87-synthetic-100-times-larger", huge_synthetic, clones=0),
    Accepted("88-single-row-holdout", lambda: swap("holdout", lambda t: t.head(1))),
    Accepted("89-two-rows-of-train", lambda: swap("train", lambda t: t.head(2)), clones=2),
)


# ---------------------------------------------------------------------------------------------- what is asserted


def message_of(given: Tables, **options: Any) -> str:
    """The sentence of the InputError that `evaluate` raises, checked for form and for leaks."""
    with pytest.raises(daskpriv.InputError) as caught:
        daskpriv.evaluate(**given, **options)
    error, text = caught.value, str(caught.value)
    assert "\n" not in text and text.endswith(".") and not re.search(r"[a-z)]\. [A-Z]", text), "not one sentence"
    assert CANARY not in text, "quotes a cell"
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    shown = "".join(traceback.format_exception(error))
    assert CANARY not in shown, "the traceback quotes a cell"
    assert "During handling" not in shown and "direct cause" not in shown
    return text


def snapshot(tables: Tables) -> Tables:
    """A deep copy to compare with."""
    return copy.deepcopy(tables)


def same_table(a: Any, b: Any) -> None:
    """Values, dtypes and labels are unchanged."""
    if isinstance(a, pd.DataFrame) and a.columns.is_unique:
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    else:
        assert repr(a) == repr(b)


def exact(value: Any) -> Any:
    """A cell as an exact Python value: whole nanoseconds for times, None where missing."""
    if not isinstance(value, (list, dict)) and pd.isna(value):
        return None
    if isinstance(value, (timedelta, pd.Timedelta)):
        return value // pd.Timedelta("1ns")
    if isinstance(value, (date, datetime)):
        whole = timegm(value.utctimetuple() if isinstance(value, datetime) else value.timetuple())
        return whole * 10**9 + getattr(value, "microsecond", 0) * 1000 + getattr(value, "nanosecond", 0)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return Fraction(value)
    return float(value) if isinstance(value, np.floating) else int(value) if isinstance(value, np.integer) else value


def defined(tables: Tables, without: tuple[str, ...], nominal: bool) -> dict[str, list[float]]:
    """Distances to the closest record, {direction: one per query row}, from the definition alone."""
    names = [n for n in tables["train"].columns if n not in without]
    rows = {t: {n: [exact(v) for v in frame[n].tolist()] for n in names} for t, frame in tables.items()}

    def kind(name: str) -> str:
        values = [v for t in rows.values() for v in t[name] if v is not None]
        return "numeric" if values and not nominal and not isinstance(values[0], (str, bytes)) else "nominal"

    columns = [Col(n, kind(n)) for n in names]
    ranges = {c.name: column_range(c, rows["train"], rows["holdout"]) for c in columns}
    pairs = (("synthetic", "train"), ("synthetic", "holdout"), ("holdout", "train"))
    return {f"{q}->{r}": closest_of(distances(columns, rows[q], rows[r], ranges)) for q, r in pairs}


def follows_the_definition(report: daskpriv.Report, expected: dict[str, list[float]]) -> None:
    """Zeros exactly, extremes and mean to the last digits."""
    for direction, nearest in expected.items():
        found = dcr(report, direction)
        assert found["n_zero"] == sum(d == 0.0 for d in nearest), direction
        for key, value in (("min", min(nearest)), ("max", max(nearest)), ("mean", math.fsum(nearest) / len(nearest))):
            assert found[key] == pytest.approx(value, rel=1e-12, abs=1e-300), (direction, key)


def shareable(report: daskpriv.Report) -> None:
    """Strict JSON and no cell in anything that is text (the names of partition directories have their own test)."""
    whole = report.to_dict()
    json.dumps(whole, allow_nan=False)
    assert "CANARY" not in json.dumps({**whole, "inputs": whole["inputs"]["differences"]})
    texts = [*report.warnings, *(g["message"] for g in report.gates), *(m.reading for m in report.metrics.values())]
    texts += [d["what"] for d in report.inputs["differences"]]
    assert not [t for t in texts if CANARY in t or "\n" in t]


def same_numbers(report: daskpriv.Report, other: daskpriv.Report) -> None:
    """Every metric has the same value, verdict, p-value and details."""
    for name, metric in report.metrics.items():
        assert metric == other.metrics[name], name


def warned(report: daskpriv.Report, words_of_it: tuple[str, ...]) -> None:
    """One warning holds all words; without words there is no warning."""
    if words_of_it:
        assert [w for w in report.warnings if all(word in w for word in words_of_it)], report.warnings
    else:
        assert report.warnings == []


@pytest.fixture(autouse=True)
def nothing_printed(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test may leave a cell on the screen or in a log."""
    yield
    shown = capfd.readouterr()
    assert CANARY not in shown.out + shown.err + caplog.text


@pytest.fixture(scope="module")
def baseline() -> daskpriv.Report:
    """The report of the base case."""
    return daskpriv.evaluate(**base())


def named(case: Any) -> str:
    """The id of a case."""
    return str(case.id)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_refused_table(case: Refused) -> None:
    given = case.make()
    before = snapshot(given)
    text = message_of(given)
    assert [word for word in case.says if word not in text] == [], text
    for name in given:
        same_table(given[name], before[name])


@pytest.mark.parametrize("case", ACCEPTED, ids=named)
def test_accepted_table(case: Accepted, baseline: daskpriv.Report) -> None:
    given = case.make()
    before = snapshot(given)
    report = daskpriv.evaluate(**given, **case.options)
    for name in given:
        same_table(given[name], before[name])
    assert report.metrics["clones"].details["n_synthetic_train"] == case.clones
    follows_the_definition(report, defined(before, case.without, nominal="schema" in case.options))
    shareable(report)
    warned(report, case.warns)
    if case.alike:
        same_numbers(report, baseline)
    if case.check:
        case.check(report)


@pytest.mark.parametrize(
    "kind", [pl.Categorical, pl.Enum([f"CANARY-7731-{v}" for v in "zyxwvu"])], ids=["categorical", "enum"]
)
def test_polars_categories_are_texts(kind: Any, baseline: daskpriv.Report) -> None:
    report = daskpriv.evaluate(**swap_all(lambda t: pl.from_pandas(t).with_columns(pl.col("c").cast(kind))))
    same_numbers(report, baseline)


def test_hostile_column_names_are_text_in_the_page(tmp_path: Path) -> None:
    report = daskpriv.evaluate(**swap_all(lambda t: t.rename(columns={"c": SCRIPT})), output=tmp_path)
    assert "<script>alert" not in (tmp_path / "report.html").read_text("utf-8")
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["space"]["columns"][2]["name"] == SCRIPT
    assert report.space["columns"][2]["name"] == SCRIPT


def test_hostile_column_names_leave_one_line_of_error() -> None:
    text = message_of(swap("synthetic", lambda t: t.rename(columns={"c": SCRIPT})))
    assert "missing ['c'] (1)" in text


def test_more_neighbours_than_rows() -> None:
    tables = base()
    found = daskpriv.nearest_neighbours(tables["synthetic"], tables["train"].head(2), k=5)
    assert np.isinf(found.distance[:, 2:]).all() and (found.row[:, 2:] == -1).all()
    assert np.isfinite(found.distance[:, :2]).all() and found.distance[0, 0] == 0.0


# ---------------------------------------------------------------------------------------------- refused files


@dataclass(frozen=True)
class RefusedFile:
    """Files that must end in an `InputError` that says all of this; `make` gets a folder and the base case."""

    id: str
    make: bad.Maker
    says: tuple[str, ...]


def whole(**changes: Any) -> bad.Maker:
    """The base case in memory, with these arguments instead."""
    return lambda folder, frames: {**frames, **changes}


def inside(path: str, argument: str = "train") -> bad.Maker:
    """The base case with a path in the (otherwise empty) folder as one argument."""
    return lambda folder, frames: {**frames, argument: str(folder / path)}


def schema_file(text: str | bytes) -> bad.Maker:
    """The base case with a schema file of this content."""

    def make(folder: Path, frames: bad.Frames) -> bad.Given:
        path = folder / "schema.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {**frames, "schema": str(path)}

    return make


def schema_of(
    *lines: str, kinds: tuple[str, ...] = ("a: numeric", "b: numeric", "c: nominal", "d: boolean")
) -> bad.Maker:
    """The base case with a schema of these columns, then these lines."""
    return schema_file("\n".join(["daskpriv_schema: 1", "columns:", *(f"  {line}" for line in (*kinds, *lines))]))


def times(frames: bad.Frames, tz: str | None) -> bad.Frames:
    """The tables with timestamps in column 'a'."""
    return {name: t.assign(a=dates("us", tz=tz)(t["a"])) for name, t in frames.items()}


INCOMPLETE = ("train", "file 'train.parquet'", "is not a complete Parquet file")
DAMAGED = ("train", "file 'train.parquet'", "damaged")
BAD_CSV = ("train", "is not well-formed CSV")
SECRET = ("the URL carries a credential", "remove it")

REFUSED_FILES = (
    RefusedFile("missing-file", inside("nowhere.parquet"), ("train", "nowhere.parquet", "does not exist")),
    RefusedFile(
        "missing-synthetic", inside("nowhere.csv", "synthetic"), ("synthetic", "nowhere.csv", "does not exist")
    ),
    RefusedFile(
        "missing-file-in-a-list",
        lambda f, t: {**t, "train": [bad.parquet(t["train"], f / "x.parquet"), str(f / "nowhere.parquet")]},
        ("train", "nowhere.parquet", "does not exist"),
    ),
    RefusedFile("missing-directory", inside("nowhere/"), ("train", "does not exist")),
    RefusedFile(
        "broken-link", lambda f, t: {**t, "train": bad.broken_link(f)}, ("train", "link.parquet", "does not exist")
    ),
    RefusedFile("empty-path", whole(train=""), ("train", "the path is empty")),
    RefusedFile("nul-in-the-path", whole(train="train\x00.parquet"), ("train", "NUL")),
    RefusedFile("glob-without-match", inside("part-*.parquet"), ("train", "no file matches", "part-*.parquet")),
    RefusedFile("empty-directory", bad.nothing_but([]), ("train", "directory", "holds no Parquet or CSV file")),
    RefusedFile(
        "directory-of-markers",
        bad.nothing_but(["_SUCCESS", ".hidden.parquet", "README.txt"]),
        ("train", "holds no Parquet or CSV file"),
    ),
    RefusedFile("mixed-formats", bad.mixed_formats, ("train", "mixes CSV and Parquet")),
    RefusedFile("empty-list", whole(train=[]), ("train",)),
    RefusedFile(
        "0-bytes-parquet", bad.swapped("train.parquet", b""), ("train", "file 'train.parquet' is empty (0 bytes)")
    ),
    RefusedFile("0-bytes-csv", bad.swapped("train.csv", b""), ("train", "file 'train.csv' is empty (0 bytes)")),
    RefusedFile(
        "0-bytes-csv-gz", bad.swapped("train.csv.gz", b""), ("train", "file 'train.csv.gz' is empty (0 bytes)")
    ),
    RefusedFile("truncated", bad.damaged(lambda data: data[: len(data) // 2]), INCOMPLETE),
    RefusedFile("last-byte-missing", bad.damaged(lambda data: data[:-1]), INCOMPLETE),
    RefusedFile(
        "first-half-missing", bad.damaged(lambda data: data[len(data) // 2 :]), ("train", "file 'train.parquet'")
    ),
    RefusedFile(
        "hole-of-zeros",
        bad.damaged(lambda data: data[:100] + bytes(400) + data[500:], write_page_checksum=True),
        DAMAGED,
    ),
    RefusedFile("flipped-byte-a", bad.flipped("a", checksum=True), DAMAGED),
    RefusedFile("flipped-byte-b", bad.flipped("b", checksum=True), DAMAGED),
    RefusedFile("flipped-byte-c", bad.flipped("c", checksum=True), DAMAGED),
    RefusedFile("csv-named-parquet", bad.text_file("train.parquet", str), (*INCOMPLETE, "name a CSV file .csv")),
    RefusedFile("parquet-named-csv", lambda f, t: {**t, "train": bad.parquet(t["train"], f / "train.csv")}, BAD_CSV),
    RefusedFile(
        "parquet-named-gz",
        lambda f, t: {**t, "train": bad.parquet(t["train"], f / "train.csv.gz")},
        ("train", "not a complete gzip file"),
    ),
    RefusedFile(
        "no-rows-parquet",
        lambda f, t: {**t, "train": bad.parquet(t["train"].head(0), f / "train.parquet")},
        ("train: 0 row(s)",),
    ),
    RefusedFile(
        "no-columns-parquet",
        lambda f, t: {**t, "train": bad.parquet(t["train"][[]], f / "train.parquet")},
        ("train: table has no columns",),
    ),
    RefusedFile(
        "files-one-lacks-a-column",
        lambda f, t: bad.halves(f, t, lambda p: p.drop_columns(["b"])),
        ("train", "'part-1.parquet'", "lacks column 'b'", "'part-0.parquet'"),
    ),
    RefusedFile(
        "files-one-has-more",
        lambda f, t: bad.halves(f, t, lambda p: p.append_column("e", p.column("c"))),
        ("train", "'part-1.parquet'", "extra column 'e'"),
    ),
    RefusedFile(
        "files-number-and-text",
        lambda f, t: bad.halves(f, t, bad.cast("b", pa.string())),
        ("train", "column 'b' is int64 in file 'part-0.parquet' and string in file 'part-1.parquet'", "one type"),
    ),
    RefusedFile(
        "files-bool-and-number",
        lambda f, t: bad.halves(f, t, bad.cast("d", pa.int8())),
        ("train", "column 'd'", "one type"),
    ),
    RefusedFile(
        "files-aware-and-naive",
        lambda f, t: bad.halves(f, times(t, None), bad.cast("a", pa.timestamp("us", "UTC"))),
        ("train", "column 'a'", "one type"),
    ),
    RefusedFile(
        "nested-struct", bad.nested([{"x": "CANARY-7731"}]), ("train", "column 'c' has type struct", NO_DISTANCE)
    ),
    RefusedFile("nested-list", bad.nested([["CANARY-7731"], []]), ("train", "column 'c' has type list", NO_DISTANCE)),
    RefusedFile("text-that-is-not-utf-8", bad.not_utf8, ("train", "column 'c'", "UTF-8")),
    RefusedFile("nested-map", bad.mapped, ("train", "column 'c' has type map", NO_DISTANCE)),
    RefusedFile(
        "encrypted-footer", bad.encrypted(plaintext_footer=False), ("train", "file 'train.parquet'", "encrypted")
    ),
    RefusedFile(
        "encrypted-columns", bad.encrypted(plaintext_footer=True), ("train", "file 'train.parquet'", "encrypted")
    ),
    RefusedFile("hive-in-one-file-only", bad.uneven_hive, ("train", "'part-1.parquet'", "column 'c'")),
    RefusedFile(
        "url-with-password", whole(train="https://user:CANARY-7731@example.invalid/x.parquet"), ("train", *SECRET)
    ),
    RefusedFile(
        "url-with-keys-of-s3", whole(synthetic="s3://CANARY-7731:CANARY-7731@bucket/x.parquet"), ("synthetic", *SECRET)
    ),
    RefusedFile(
        "url-with-signature",
        whole(train="https://example.invalid/x.parquet?X-Amz-Signature=CANARY-7731"),
        ("train", *SECRET),
    ),
    RefusedFile(
        "url-with-sas", whole(train="https://example.invalid/x.parquet?sv=2024&sig=CANARY-7731"), ("train", *SECRET)
    ),
    RefusedFile(
        "url-with-password-in-a-list",
        whole(train=["ftp://user:CANARY-7731@example.invalid/x.parquet"]),
        ("train", *SECRET),
    ),
    RefusedFile(
        "url-with-token-as-user", whole(train="https://CANARY-7731@example.invalid/x.parquet"), ("train", *SECRET)
    ),
    RefusedFile(
        "url-with-password-in-a-chain",
        whole(train="simplecache::https://user:CANARY-7731@example.invalid/x.parquet"),
        ("train", *SECRET),
    ),
    RefusedFile(
        "url-of-unknown-protocol", whole(train="foo://bucket/x.parquet"), ("train", "no file system for", "foo://")
    ),
    RefusedFile(
        "endpoint-down", whole(train="http://127.0.0.1:9/x.parquet"), ("train", "http://127.0.0.1:9/x.parquet")
    ),
    RefusedFile("no-permission-to-list", whole(train="refusing://locked/x.parquet"), ("train", "no permission")),
    RefusedFile("no-permission-to-read", whole(train="refusing://unreadable/x.parquet"), ("train", "no permission")),
    RefusedFile("no-credentials", whole(synthetic="refusing://keyless/x.parquet"), ("synthetic", "credentials")),
    RefusedFile("wrong-credentials", whole(train="refusing://forbidden/x.csv"), ("train", "no permission")),
    RefusedFile("credentials-that-expire", whole(holdout="refusing://expired/x.parquet"), ("holdout", "x.parquet")),
    RefusedFile("endpoint-that-hangs-up", whole(train="refusing://down/x.parquet"), ("train", "endpoint")),
    RefusedFile(
        "csv-ragged",
        bad.text_file("train.csv", lambda text: text + "7731,CANARY-7731\n"),
        (*BAD_CSV, "file 'train.csv'", "as many cells"),
    ),
    RefusedFile(
        "csv-row-too-long",
        bad.text_file("train.csv", lambda text: text + "1,2,CANARY-7731,True,7731\n"),
        (*BAD_CSV, "as many cells"),
    ),
    RefusedFile(
        "csv-named-gz", bad.text_file("train.csv.gz", lambda text: text), ("train", "not a complete gzip file")
    ),
    RefusedFile(
        "csv-without-header", bad.text_file("train.csv", lambda text: text.split("\n", 1)[1]), ("train", "header")
    ),
    RefusedFile(
        "csv-without-header-synthetic", lambda f, t: {**t, "synthetic": bad.headless(f, t)}, ("synthetic", "header")
    ),
    RefusedFile(
        "csv-header-only", bad.text_file("train.csv", lambda text: text.split("\n", 1)[0] + "\n"), ("train: 0 row(s)",)
    ),
    RefusedFile("csv-blank-lines-only", bad.text_file("train.csv", lambda text: "\n\n\n"), ("train", "no header line")),
    RefusedFile(
        "csv-duplicate-header",
        bad.text_file("train.csv", lambda text: text.replace("a,b,c,d", "a,b,c,c")),
        ("train", "duplicate column name(s) 'c'"),
    ),
    RefusedFile(
        "csv-latin-1",
        bad.text_file("train.csv", lambda text: text.replace("CANARY", "CÄNARY"), "latin-1"),
        (*BAD_CSV, "UTF-8"),
    ),
    RefusedFile("csv-utf-16", bad.text_file("train.csv", str, "utf-16"), (*BAD_CSV, "UTF-8")),
    RefusedFile(
        "csv-open-quote", bad.text_file("train.csv", lambda text: text + '7731.5,77310000,"CANARY-7731,True\n'), BAD_CSV
    ),
    RefusedFile(
        "csv-semicolons",
        lambda f, t: {**t, "train": bad.csv(t["train"], f / "train.csv", sep=";")},
        ("train", "separates cells by ';'"),
    ),
    RefusedFile("csv-gz-truncated", bad.zipped(lambda data: data[:-20]), ("train", "file 'train.csv.gz'")),
    RefusedFile(
        "csv-gz-flipped",
        bad.zipped(lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]),
        ("train", "file 'train.csv.gz'"),
    ),
    RefusedFile(
        "08-csv-words-for-numbers",
        lambda f, t: {**t, "synthetic": bad.csv(t["synthetic"].assign(b="CANARY-7731"), f / "s.csv")},
        ("synthetic", "column 'b'", "do not fit"),
    ),
    RefusedFile(
        "29-csv-inf",
        bad.text_file("train.csv", lambda text: text + "inf,77310000,CANARY-7731-u,True\n"),
        ("train", "column 'a' holds 1 infinite value(s)", INFINITE),
    ),
    RefusedFile(
        "schema-missing", lambda f, t: {**t, "schema": str(f / "schema.yaml")}, ("schema", "cannot read", "schema.yaml")
    ),
    RefusedFile("schema-is-a-directory", lambda f, t: {**t, "schema": str(f)}, ("schema", "cannot read")),
    RefusedFile(
        "schema-broken", schema_file("columns: [CANARY-7731\n  }: {"), ("schema", "schema.yaml", "not valid YAML")
    ),
    RefusedFile(
        "schema-with-an-object",
        schema_file("columns: !!python/object/apply:os.system ['echo CANARY-7731']"),
        ("schema", "not valid YAML"),
    ),
    RefusedFile("schema-not-utf-8", schema_file(b"columns: \xff"), ("schema", "schema.yaml", "not UTF-8")),
    RefusedFile("schema-control-characters", schema_file("columns: \x00"), ("schema", "not valid YAML")),
    RefusedFile("schema-a-list", schema_file("- CANARY-7731"), ("schema", "expected a mapping", "'columns'")),
    RefusedFile("schema-empty", schema_file(""), ("schema", "expected a mapping")),
    RefusedFile(
        "schema-of-another-format",
        schema_file("daskpriv_schema: 7731000\ncolumns: {a: numeric}"),
        ("schema", "'daskpriv_schema' must be 1"),
    ),
    RefusedFile("schema-unknown-column", schema_of("nope: nominal"), ("schema", "train", "'nope'")),
    RefusedFile(
        "schema-lacks-a-column", schema_of(kinds=("a: numeric", "b: numeric", "c: nominal")), ("schema", "train", "'d'")
    ),
    RefusedFile("schema-column-twice", schema_of("e: nominal", "e: id"), ("schema", "'e'")),
    RefusedFile(
        "schema-unknown-kind",
        schema_of(kinds=("a: numerical", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a' has an unknown kind", "numeric, datetime"),
    ),
    RefusedFile(
        "schema-kind-is-a-list",
        schema_of(kinds=("a: {kind: [numeric]}", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a'", "kind"),
    ),
    RefusedFile(
        "schema-unknown-key",
        schema_of(kinds=("a: {kind: numeric, wieght: 2}", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a' has the unknown key 'wieght'"),
    ),
    RefusedFile(
        "schema-without-kind",
        schema_of(kinds=("a: {weight: 2}", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a' needs a 'kind'"),
    ),
    RefusedFile(
        "schema-wrong-kind",
        schema_of(kinds=("a: numeric", "b: numeric", "c: numeric", "d: boolean")),
        ("schema", "column 'c' is declared numeric", "category", "nominal"),
    ),
    RefusedFile(
        "schema-negative-weight",
        schema_of(kinds=("a: {kind: numeric, weight: -1}", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a'", "weight"),
    ),
    RefusedFile(
        "schema-weight-as-text",
        schema_of(kinds=("a: {kind: numeric, weight: heavy}", "b: numeric", "c: nominal", "d: boolean")),
        ("schema", "column 'a'", "weight"),
    ),
    RefusedFile(
        "schema-all-weights-zero",
        schema_of(
            kinds=tuple(
                f"{n}: {{kind: {k}, weight: 0}}"
                for n, k in zip("abcd", ("numeric", "numeric", "nominal", "boolean"), strict=True)
            )
        ),
        ("weight", "above 0"),
    ),
    RefusedFile(
        "schema-all-ids", schema_of(kinds=("a: id", "b: id", "c: id", "d: id")), ("train", "every column is an id")
    ),
    RefusedFile(
        "schema-levels-incomplete",
        schema_of(kinds=("a: numeric", "b: numeric", "c: {kind: ordinal, levels: [x, y]}", "d: boolean")),
        ("train", "column 'c' is ordinal", "levels"),
    ),
    RefusedFile(
        "schema-levels-of-another-type",
        schema_of(kinds=("a: numeric", "b: numeric", "c: {kind: ordinal, levels: [1, 2]}", "d: boolean")),
        ("schema", "column 'c'", "levels"),
    ),
    RefusedFile(
        "schema-levels-nested",
        schema_of(kinds=("a: numeric", "b: numeric", "c: {kind: ordinal, levels: [[1], {x: 2}]}", "d: boolean")),
        ("schema", "column 'c'", "levels"),
    ),
)


@pytest.mark.parametrize("case", REFUSED_FILES, ids=named)
def test_refused_file(case: RefusedFile, tmp_path: Path) -> None:
    text = message_of(case.make(tmp_path, base()))
    assert [word for word in case.says if word not in text] == [], text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["train.parquet", "train.csv"])
def test_unreadable_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (bad.parquet if name.endswith("parquet") else bad.csv)(base()["train"], path)
    path.chmod(0)
    text = message_of({**base(), "train": str(path)})
    assert "train" in text and "no permission" in text


@pytest.mark.parametrize("what", ["other-rows", "other-values", "gone", "truncated"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_file_that_changes_between_the_passes(suffix: str, what: str, tmp_path: Path) -> None:
    write = bad.parquet if suffix == ".parquet" else bad.csv
    path = tmp_path / f"train{suffix}"
    write(base()["train"], path)
    size = path.stat().st_size

    def spoil(event: Any) -> None:
        if event != StageStarted("read synthetic", 1):
            return
        if what == "gone":
            path.unlink()
        elif what == "truncated":
            path.write_bytes(path.read_bytes()[:-50])
        else:
            write(people(9, N if what == "other-values" else 2 * N), path)
        assert not path.exists() or path.stat().st_size != size

    text = message_of({**base(), "train": str(path)}, progress=spoil)
    assert "train" in text and path.name in text and "changed" in text


# ---------------------------------------------------------------------------------------------- accepted files


def lists_of_files(folder: Path, frames: bad.Frames) -> bad.Given:
    """Every table as a list of two files of other Arrow types."""
    out: bad.Given = {}
    for name, frame in frames.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        narrow = bad.cast("b", pa.int32())(bad.cast("c", pa.dictionary(pa.int8(), pa.string()))(table.slice(25)))
        out[name] = [bad.parquet(table.slice(0, 25), folder / name / "1.parquet"), folder / name / "2.parquet"]
        bad.parquet(narrow, folder / name / "2.parquet")
    return out


def zones(folder: Path, frames: bad.Frames) -> bad.Given:
    """Train as two files whose timestamps have other zones."""
    return bad.halves(folder, times(frames, "UTC"), bad.cast("a", pa.timestamp("ns", "Asia/Tokyo")))


def quoted(folder: Path, frames: bad.Frames) -> bad.Given:
    """CSV with a byte order mark, carriage returns, and newlines, commas and quotes inside cells."""
    odd = {
        name: t.assign(c=t["c"].replace({"CANARY-7731-u": 'CANARY, "7731"\nu', "CANARY-7731-v": " CANARY-7731 "}))
        for name, t in frames.items()
    }
    return bad.saved_csv(folder, odd, encoding="utf-8-sig", lineterminator="\r\n")


def odd_words(frames: bad.Frames) -> bad.Frames:
    """Categories that a directory name must escape."""
    return {name: t.assign(c=t["c"].str.replace("-u", "/ü %").str.replace("-v", "=v:v")) for name, t in frames.items()}


def gaps(frames: bad.Frames) -> bad.Frames:
    """Every tenth category missing."""
    return {name: t.assign(c=holes(None)(t["c"])) for name, t in frames.items()}


def repeated(frames: bad.Frames) -> bad.Frames:
    """Train and holdout 200 times below themselves: 12 000 rows, more than a block of a small run."""
    return {name: t if name == "synthetic" else pd.concat([t] * 200, ignore_index=True) for name, t in frames.items()}


@dataclass(frozen=True)
class AcceptedFile:
    """Files with the numbers of the base case, or of `like`."""

    id: str
    make: bad.Maker
    like: Callable[[bad.Frames], bad.Frames] = lambda frames: frames


ACCEPTED_FILES = (
    AcceptedFile("parquet", bad.saved),
    AcceptedFile("parquet-with-checksums", lambda f, t: bad.saved(f, t, write_page_checksum=True, row_group_size=7)),
    AcceptedFile("csv", bad.saved_csv),
    AcceptedFile("csv-gz", lambda f, t: bad.saved_csv(f, t, ".csv.gz")),
    AcceptedFile(
        "csv-odd-but-valid",
        quoted,
        lambda t: {n: v.assign(c=v["c"].replace({"CANARY-7731-u": "1", "CANARY-7731-v": "2"})) for n, v in t.items()},
    ),
    AcceptedFile("directory-with-litter", bad.littered),
    AcceptedFile("one-row-files", bad.one_row_files),
    AcceptedFile(
        "files-of-other-column-order", lambda f, t: bad.halves(f, t, lambda p: p.select(["d", "c", "b", "a"]))
    ),
    AcceptedFile("files-int64-and-int32", lambda f, t: bad.halves(f, t, bad.cast("b", pa.int32()))),
    AcceptedFile("files-int-and-float", lambda f, t: bad.halves(f, t, bad.cast("b", pa.float64()))),
    AcceptedFile(
        "files-plain-and-dictionary",
        lambda f, t: bad.halves(f, t, bad.cast("c", pa.dictionary(pa.int8(), pa.string()))),
    ),
    AcceptedFile("files-of-other-dictionaries", bad.other_dictionaries),
    AcceptedFile("one-row-group-for-many-blocks", lambda f, t: bad.saved(f, repeated(t)), repeated),
    AcceptedFile("files-text-and-large-text", lambda f, t: bad.halves(f, t, bad.cast("c", pa.large_string()))),
    AcceptedFile("files-of-other-zones", zones, lambda t: times(t, "UTC")),
    AcceptedFile("lists-of-files", lists_of_files),
    AcceptedFile("hive", bad.hive),
    AcceptedFile("hive-with-odd-values", lambda f, t: bad.hive(f, odd_words(t)), odd_words),
    AcceptedFile("hive-with-missing", lambda f, t: bad.hive(f, gaps(t)), gaps),
)


def numbers(report: daskpriv.Report) -> dict[str, Any]:
    """What must not depend on files, their order or their types."""
    keys = ("n", "n_zero", "min", "median", "max", "mean")
    out = {
        (d, k): dcr(report, d)[k] for d in ("synthetic->train", "synthetic->holdout", "holdout->train") for k in keys
    }
    return out | {"clones": report.metrics["clones"].details, "share": report.metrics["dcr_share"].value}


@pytest.mark.parametrize("case", ACCEPTED_FILES, ids=named)
def test_accepted_file(case: AcceptedFile, tmp_path: Path) -> None:
    report = daskpriv.evaluate(**case.make(tmp_path, base()))
    expected = daskpriv.evaluate(**case.like(base()))
    assert numbers(report) == numbers(expected)
    assert report.metrics["clones"].details["n_synthetic_train"] == COPIED
    shareable(report)
    assert report.warnings == []


def test_partition_values_stay_out_of_the_report(tmp_path: Path) -> None:
    report = daskpriv.evaluate(**bad.hive(tmp_path, base()))
    assert "CANARY" not in json.dumps(report.to_dict())


def test_flipped_byte_without_checksum_changes_the_fingerprint(tmp_path: Path) -> None:
    sound = daskpriv.evaluate(**bad.saved(tmp_path, base())).inputs["tables"]
    flipped = daskpriv.evaluate(**bad.flipped("a", checksum=False)(tmp_path, base())).inputs["tables"]
    assert flipped["train"]["fingerprint"] != sound["train"]["fingerprint"]
    assert flipped["holdout"]["fingerprint"] == sound["holdout"]["fingerprint"]


def test_few_csv_cells_that_do_not_fit_count_as_missing_and_warn(tmp_path: Path) -> None:
    given = bad.saved_csv(tmp_path, base())
    path = Path(given["synthetic"])
    lines = path.read_text().split("\n")
    lines[21] = lines[21].replace("773", "CANARY-7731-x", 1)
    path.write_text("\n".join(lines))
    report = daskpriv.evaluate(**given)
    warned(report, ("synthetic", "column 'a'", "1 of 60 cells", "count as missing"))
    assert report.space["columns"][0]["missing"] == {"train": 0, "holdout": 0, "synthetic": 1}
    shareable(report)


# ---------------------------------------------------------------------------------------------- many and large


def test_thousands_of_small_files(tmp_path: Path) -> None:
    tables = base()
    train = pd.concat([tables["train"]] * 30, ignore_index=True)
    whole = pa.Table.from_pandas(train, preserve_index=False)
    for i in range(len(train)):
        bad.parquet(whole.slice(i, 1), tmp_path / "train" / f"{i % 7}" / f"part-{i:05}.parquet")
    report = daskpriv.evaluate(**{**tables, "train": str(tmp_path / "train")})
    expected = daskpriv.evaluate(**{**tables, "train": train})
    assert report.inputs["tables"]["train"]["files"] == len(train)
    assert numbers(report) == numbers(expected)


LARGE = """
import resource, sys
import pandas as pd
import daskpriv
small = pd.DataFrame({"a": [0, 1], "c": ["x", "y"]})
daskpriv.nearest_neighbours(small, small, 1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (250 << 20), used + (250 << 20)))
try:
    daskpriv.nearest_neighbours(small, sys.argv[1], 1)
except daskpriv.DaskprivError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit needs /proc")
def test_a_row_group_that_does_not_fit_into_memory(tmp_path: Path) -> None:
    million = pa.table({"a": pa.array(np.zeros(10**6, np.int64)), "c": pa.array(["CANARY-7731"] * 10**6)})
    path = bad.parquet(pa.concat_tables([million] * 50), tmp_path / "train.parquet", row_group_size=10**9)
    done = subprocess.run([sys.executable, "-c", LARGE, path], capture_output=True, text=True, check=False, timeout=900)
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert CANARY not in done.stdout + done.stderr
    assert done.stdout.startswith("reference: out of memory while reading") and done.stdout.count("\n") == 1


# ---------------------------------------------------------------------------------------------- the catalogue

CATALOGUE = (
    (0, "accepted", "baseline (valid)"),
    (1, "refused", "synthetic misses a column"),
    (2, "refused", "synthetic has an extra column"),
    (3, "refused", "holdout misses a column"),
    (4, "accepted", "synthetic columns reordered"),
    (5, "refused", "synthetic column renamed (case: A)"),
    (6, "refused", "no common column at all"),
    (7, "accepted", "int in train, float in synthetic"),
    (8, "refused", "numeric in train, numeric strings in synthetic"),
    (9, "refused", "category codes int in train, str in synthetic"),
    (10, "refused", "bool in train, 0/1 int in synthetic"),
    (11, "accepted", "pandas Categorical with different category sets"),
    (12, "accepted", "category values disjoint"),
    (13, "refused", "duplicate column names"),
    (14, "refused", "non-string column names (0,1,2,3)"),
    (15, "refused", "MultiIndex columns"),
    (16, "accepted", "column name with HTML/newline"),
    (17, "accepted", "non-default / duplicated row index"),
    (18, "accepted", "NaN in numeric (10%)"),
    (19, "accepted", "None in categorical (10%)"),
    (20, "accepted", "NaN only in synthetic"),
    (21, "accepted", "all-null numeric column in all"),
    (22, "accepted", "all-null numeric column only in synthetic"),
    (23, "accepted", "all-null object column"),
    (24, "accepted", "all rows all null"),
    (25, "accepted", "pd.NA in nullable Int64"),
    (26, "accepted", "string dtype with pd.NA"),
    (27, "accepted", "both None and NaN and 'nan' string in one column"),
    (28, "accepted", "NaT in datetimes"),
    (29, "refused", "+inf in train numeric"),
    (30, "refused", "-inf in synthetic numeric"),
    (31, "refused", "both +inf and -inf"),
    (32, "accepted", "constant numeric column (range 0) everywhere"),
    (33, "accepted", "constant in train, varies in synthetic (range 0 by train)"),
    (34, "accepted", "constant zero column"),
    (35, "accepted", "negative-only column (range vs max)"),
    (36, "accepted", "int64 > 2**53 differing in the last bit"),
    (37, "accepted", "uint64 near 2**64"),
    (38, "refused", "python ints > int64 (object)"),
    (39, "accepted", "Decimal objects"),
    (40, "accepted", "float32 vs float64"),
    (41, "refused", "float range overflow (1e308, -1e308)"),
    (42, "accepted", "denormal range (5e-324)"),
    (43, "refused", "complex numbers"),
    (44, "accepted", "huge outlier dominates range (1e18)"),
    (45, "accepted", "negative zero vs zero"),
    (46, "accepted", "datetime64[ns]"),
    (47, "refused", "datetime tz-aware in train, naive in synthetic"),
    (48, "accepted", "mixed time zones"),
    (49, "accepted", "timedelta"),
    (50, "refused", "datetime as strings in synthetic"),
    (51, "accepted", "datetime.date objects"),
    (52, "accepted", "out-of-bounds dates (9999-12-31) as objects"),
    (53, "refused", "mixed int/str object column"),
    (54, "refused", "'1' vs 1 vs 1.0 vs True in one object column"),
    (55, "accepted", "bytes column"),
    (56, "refused", "lists in cells"),
    (57, "refused", "dict/struct in cells"),
    (58, "refused", "numpy arrays in cells"),
    (59, "refused", "pandas Interval"),
    (60, "refused", "pandas Period"),
    (61, "refused", "sparse dtype"),
    (62, "accepted", "arrow-backed dtypes"),
    (63, "accepted", "bool column with None"),
    (64, "accepted", "unicode NFC vs NFD"),
    (65, "accepted", "trailing whitespace in synthetic categories"),
    (66, "accepted", "upper/lower case differences"),
    (67, "accepted", "unique string ID column (all rows distinct)"),
    (68, "accepted", "empty strings vs null"),
    (70, "accepted", "NUL char and 1 MB string"),
    (71, "accepted", "free text"),
    (72, "refused", "empty synthetic (0 rows)"),
    (73, "refused", "empty train (0 rows)"),
    (74, "refused", "empty holdout (0 rows)"),
    (75, "refused", "single-row train"),
    (76, "accepted", "single-row synthetic"),
    (77, "refused", "0 columns"),
    (78, "accepted", "single numeric column"),
    (79, "accepted", "single categorical column"),
    (80, "accepted", "all categorical"),
    (81, "accepted", "all numeric"),
    (82, "accepted", "2000 columns"),
    (83, "accepted", "train == synthetic (copies)"),
    (84, "accepted", "holdout == train"),
    (85, "accepted", "half of holdout rows are in train"),
    (86, "accepted", "all rows duplicates of one row"),
    (87, "accepted", "synthetic 100x larger than train"),
    (88, "accepted", "holdout 1 row, train 60"),
    (89, "accepted", "k/n_neighbors larger than rows (train 2 rows)"),
    (90, "refused", "numpy array instead of DataFrame"),
    (91, "refused", "Series instead of DataFrame"),
    (92, "refused", "None as synthetic"),
    (93, "refused", "list of dicts"),
)

SECTION_5: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "missing file",
        ("missing-file", "missing-synthetic", "missing-file-in-a-list", "missing-directory", "broken-link"),
    ),
    ("glob that matches nothing", ("glob-without-match",)),
    ("empty directory", ("empty-directory", "directory-of-markers")),
    ("0 bytes", ("0-bytes-parquet", "0-bytes-csv", "0-bytes-csv-gz")),
    ("truncated", ("truncated", "first-half-missing", "csv-gz-truncated")),
    ("last byte missing", ("last-byte-missing",)),
    ("one flipped byte under a page checksum", ("flipped-byte-a", "flipped-byte-b", "flipped-byte-c", "hole-of-zeros")),
    ("one flipped byte without a checksum", ("test_flipped_byte_without_checksum_changes_the_fingerprint",)),
    ("CSV named .parquet", ("csv-named-parquet", "parquet-named-csv", "csv-named-gz", "parquet-named-gz")),
    ("files of other schemas", ("files-one-lacks-a-column", "files-one-has-more")),
    ("files of other dtypes", ("files-number-and-text", "files-bool-and-number", "files-int64-and-int32")),
    ("files of other dictionaries", ("files-plain-and-dictionary", "files-of-other-dictionaries")),
    ("files of other time zones", ("files-aware-and-naive", "files-of-other-zones")),
    ("files of other column order", ("files-of-other-column-order",)),
    ("nested columns", ("nested-struct", "nested-list", "nested-map")),
    ("encrypted", ("encrypted-footer", "encrypted-columns")),
    ("no read permission", ("test_unreadable_file", "no-permission-to-list", "no-permission-to-read")),
    ("wrong or missing credentials", ("no-credentials", "wrong-credentials", "credentials-that-expire")),
    ("endpoint down", ("endpoint-down", "endpoint-that-hangs-up")),
    ("listing changes between plan and run", ("test_file_that_changes_between_the_passes",)),
    ("100 000 small files", ("one-row-files", "test_thousands_of_small_files")),
    ("one 10 GB row group", ("one-row-group-for-many-blocks", "test_a_row_group_that_does_not_fit_into_memory")),
    ("directory with _SUCCESS, hidden and foreign files", ("directory-with-litter", "mixed-formats")),
    ("hive partition columns", ("hive", "hive-with-odd-values", "hive-with-missing", "hive-in-one-file-only")),
    ("a URL with a password in it", ("url-with-password", "url-with-keys-of-s3", "url-with-password-in-a-list")),
)


@pytest.mark.parametrize(("number", "outcome", "what"), CATALOGUE, ids=[f"{n:02}-{w}" for n, _, w in CATALOGUE])
def test_catalogued(number: int, outcome: str, what: str) -> None:
    held = {"refused": (*REFUSED, *REFUSED_FILES), "accepted": (*ACCEPTED, *ACCEPTED_FILES)}[outcome]
    assert [case.id for case in held if re.match(rf"{number:02}\D", case.id)], what


@pytest.mark.parametrize(("what", "cases"), SECTION_5, ids=[what for what, _ in SECTION_5])
def test_every_bad_file_has_a_case(what: str, cases: tuple[str, ...]) -> None:
    held = {case.id for case in (*REFUSED_FILES, *ACCEPTED_FILES)} | set(globals())
    assert set(cases) <= held, what


def test_the_catalogue_is_complete() -> None:
    ids = [case.id for case in (*REFUSED, *ACCEPTED, *REFUSED_FILES, *ACCEPTED_FILES)]
    assert len(set(ids)) == len(ids) >= 100
    assert {number for number, _, _ in CATALOGUE} == set(range(94)) - {69}
