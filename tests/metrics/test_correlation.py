"""Associations of pairs of columns: against plain twins, in tables one can think through, and in the report."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import daskpriv
from daskpriv.errors import InputError
from daskpriv.metrics import Correlation
from daskpriv.protocol import Result, Verdict
from tests.test_association import plain_v

ORDERED = ("age", "income")


def rows(seed: int, n: int, tied: float = 0.8) -> pd.DataFrame:
    """Income and job follow age, city follows nothing."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    income = np.where(rng.random(n) < tied, age * 100.0, rng.integers(1800, 8000, n)) + rng.random(n)
    job = np.where(rng.random(n) < tied, np.array(list("abcd"))[age // 20], rng.choice(list("abcd"), n))
    income[rng.random(n) < 0.05] = np.nan
    return pd.DataFrame({"age": age, "income": income, "job": job, "city": rng.choice(list("glw"), n)})


TRAIN, HOLDOUT, FRESH, LOOSE = rows(0, 600), rows(1, 400), rows(2, 500), rows(3, 500, tied=0.2)


def correlated(synthetic: pd.DataFrame, holdout: pd.DataFrame | None = None, **options: Any) -> Result:
    metric = Correlation(**options)
    return daskpriv.evaluate(TRAIN, synthetic, holdout, metrics=[metric]).metrics["correlation"]


def bucketed(table: pd.DataFrame) -> pd.DataFrame:
    """Deciles of train, everything outside one bucket, missing another; categories as they are."""
    out = {}
    for name in table:
        if name in ORDERED:
            edges = np.unique(np.quantile(TRAIN[name].dropna(), np.linspace(0, 1, 11)))
            out[name] = pd.cut(table[name], list(edges), include_lowest=True, labels=False)
            out[name] = out[name].mask(table[name].notna() & out[name].isna(), 98).fillna(99)
        else:
            out[name] = table[name]
    return pd.DataFrame(out)


def pairs_of(table: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Cramer's V and Spearman's rho of every pair of columns, from the buckets of their rows."""
    held = bucketed(table)
    out: dict[tuple[str, str], tuple[float, float | None]] = {}
    for a, b in itertools.combinations(table, 2):
        rho = None
        if a in ORDERED and b in ORDERED:
            seen = held[(held[a] < 98) & (held[b] < 98)]
            rho = float(scipy.stats.spearmanr(seen[a], seen[b]).statistic)
        out[a, b] = plain_v(pd.crosstab(held[a], held[b]).to_numpy()), rho
    return out


def test_every_pair_is_that_of_the_plain_twin() -> None:
    found = correlated(LOOSE, HOLDOUT)
    expected = {"train": pairs_of(TRAIN), "synthetic": pairs_of(LOOSE), "holdout": pairs_of(HOLDOUT)}
    told = {tuple(p["columns"]): p for p in found.details["worst"]}
    assert told.keys() == expected["train"].keys()
    for pair, line in told.items():
        for table, pairs in expected.items():
            v, rho = pairs[pair]
            assert line["cramers_v"][table] == pytest.approx(v, abs=1e-12)
            assert (line["spearman"] is None) == (rho is None)
            if rho is not None:
                assert line["spearman"][table] == pytest.approx(rho, abs=1e-12)
    apart = {t: [abs(expected[t][p][0] - expected["train"][p][0]) for p in told] for t in ("synthetic", "holdout")}
    assert found.value == pytest.approx(np.mean(apart["synthetic"]), abs=1e-12)
    larger = math.sqrt((1 / 600 + 1 / 500) / (1 / 600 + 1 / 400))
    assert found.expected == pytest.approx(np.mean(apart["holdout"]) * larger, abs=1e-12)
    assert found.verdict is Verdict.NOT_EVALUATED


def test_a_loose_table_differs_most_where_train_holds_together() -> None:
    honest, loose = correlated(FRESH, HOLDOUT), correlated(LOOSE, HOLDOUT)
    assert loose.value > 0.1 > honest.value > 0
    assert {*loose.details["worst"][0]["columns"]} < {"age", "income", "job"}
    assert honest.value == pytest.approx(honest.expected, abs=0.02)


def test_a_copy_differs_nowhere() -> None:
    found = correlated(TRAIN.sample(frac=1, random_state=5))
    assert found.value == 0.0
    assert found.expected is None
    assert found.details["spearman"]["synthetic-train"] == {"pairs": 1, "mean": 0.0, "largest": 0.0}


def test_the_sign_of_a_turned_column_shows_in_spearman_alone() -> None:
    turned = TRAIN.assign(age=97 - TRAIN["age"])  # from 18 .. 79 to 18 .. 79
    pair = next(p for p in correlated(turned).details["worst"] if p["columns"] == ["age", "income"])
    assert pair["spearman"]["train"] > 0.6
    assert pair["spearman"]["synthetic"] < -0.6


def test_the_matrix_holds_every_pair_below_the_diagonal() -> None:
    found = correlated(LOOSE, HOLDOUT).details
    names = found["matrix"]["columns"]
    assert names == list(TRAIN)
    told = {frozenset(p["columns"]): p["cramers_v"] for p in found["worst"]}
    for table, lines in found["matrix"]["cramers_v"].items():
        assert [len(line) for line in lines] == [0, 1, 2, 3]
        for i, j in itertools.combinations(range(4), 2):
            assert lines[j][i] == pytest.approx(told[frozenset((names[i], names[j]))][table], abs=1e-6)


def test_of_many_columns_those_that_differ_most_make_the_matrix() -> None:
    rng = np.random.default_rng(3)
    train = pd.DataFrame({f"x{i:02d}": rng.normal(size=80) for i in range(70)})
    synthetic = train.copy()
    synthetic[["x66", "x67"]] = synthetic[["x66", "x67"]].iloc[::-1].to_numpy()
    report = daskpriv.evaluate(train, synthetic, metrics=["correlation"])
    matrix = report.metrics["correlation"].details["matrix"]
    assert (len(matrix["columns"]), matrix["of"]) == (60, 70)
    assert {"x66", "x67"} < {*matrix["columns"]}
    assert matrix["columns"] == sorted(matrix["columns"])
    assert "The 60 of 70 columns that differ most" in report.to_html()


def test_a_small_budget_takes_a_subset_and_says_so() -> None:
    some = correlated(LOOSE, budget=3 * 1100 * 0.7e-9)
    assert (some.details["pairs"], some.details["of"]) == (3, 6)
    assert some.warnings == ("correlation: 3 of 6 pairs of columns, chosen by the seed.",)
    told = [v for line in some.details["matrix"]["cramers_v"]["train"] for v in line]
    assert (len(told), told.count(None)) == (6, 3)


def test_the_same_to_the_last_bit_for_any_blocks_and_order_of_rows() -> None:
    def told(seed: int | None, block_rows: int | None) -> str:
        tables = [t if seed is None else t.sample(frac=1, random_state=seed) for t in (TRAIN, LOOSE, HOLDOUT)]
        report = daskpriv.evaluate(*tables, metrics=["correlation"], block_rows=block_rows)
        return json.dumps(report.to_dict()["metrics"]["correlation"])

    assert len({told(None, None), told(None, 7), told(5, 64)}) == 1


def test_no_second_column() -> None:
    one = pd.DataFrame({"a": [1, 2, 3]})
    found = daskpriv.evaluate(one, one, metrics=["correlation"])
    assert found.metrics["correlation"].value is None
    assert found.metrics["correlation"].reading == "Not evaluated: one column has nothing to go together with."
    assert "<svg" not in found.to_html()


def test_constant_and_missing_columns_go_with_nothing() -> None:
    def with_them(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(same=1, none=pd.Series(np.nan, index=table.index), word="x")

    found = daskpriv.evaluate(with_them(TRAIN), with_them(FRESH), metrics=["correlation"]).metrics["correlation"]
    lines = [p for p in found.details["worst"] if {*p["columns"]} & {"same", "none", "word"}]
    assert len(lines) == 20 - 6  # the six pairs of the other columns come first
    assert all(v == 0.0 for p in lines for v in p["cramers_v"].values())


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="budget"):
        Correlation(budget=0.0)
    with pytest.raises(ValueError, match="buckets"):
        Correlation(buckets=1)


def test_the_page_shows_the_squares_and_no_cell(tmp_path: Path) -> None:
    strange = {"age": 'a<b>"&', "job": "a column with a long name"}
    tables = [t.rename(columns=strange) for t in (TRAIN, LOOSE, HOLDOUT)]
    report = daskpriv.evaluate(tables[0], tables[1], tables[2], metrics=["correlation"])
    svg = report.plot("correlation").svg
    assert svg in report.to_html()
    assert "a&lt;b&gt;" in svg and "a<b>" not in svg
    assert "a column with a l…" in svg
    assert len(svg) < 6_000
    cells = re.findall(r"h(\d+)v1", svg)
    assert sum(map(int, cells)) == 2 * 16  # every cell of two squares is in one run
    with pytest.raises(InputError, match="this report can plot: correlation"):
        report.plot("dcr")
