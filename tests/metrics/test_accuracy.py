"""Accuracy: tables worked by hand, an independent reference, laws, and what chance does to honest tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import daskpriv
from daskpriv.engine.executor import Serial
from daskpriv.errors import InputError
from daskpriv.kernels import crosstab
from daskpriv.kernels.deviation import mean_deviation
from daskpriv.metrics import Accuracy
from daskpriv.metrics.accuracy import _DRAWS
from daskpriv.protocol import Result
from daskpriv.stats.combinations import chosen
from daskpriv.stats.fidelity import deviations, spread_of_mean, student_quantile, total_variation
from daskpriv.stats.labels import labels
from daskpriv.stats.selection import EvenQuantiles
from tests import reference as ref
from tests.laws.test_properties import SEEDS, drawn, mapped, mixed, running_on
from tests.laws.worlds import examples

NUMBERS = ("tvd", "hellinger", "jensen_shannon", "max_deviation", "mean_deviation", "expected")


def accuracy(tables: Mapping[str, Any], *orders: int, **options: Any) -> Result:
    metric = Accuracy(**({"orders": orders} if orders else {}), **options)
    with running_on(Serial):
        return daskpriv.evaluate(**tables, metrics=[metric]).metrics["accuracy"]


def every_set(found: Result) -> dict[tuple[str, ...], dict[str, float]]:
    """{columns: {number: value}}."""
    table = dict(found.internal["accuracy"])
    names = [tuple(c) for c in table.pop("columns")]
    return {n: {k: values[i] for k, values in table.items()} for i, n in enumerate(names)}


# ---------------------------------------------------------------------------------------------- by hand

FOUR = {
    "train": pd.DataFrame({"a": ["x", "x", "y", "y"], "b": [1, 2, 3, 4], "c": ["u", "u", "u", None]}),
    "synthetic": pd.DataFrame({"a": ["x", "y", "y", "z"], "b": [1, 1, 4, 9], "c": ["u", "u", "v", None]}),
}


def test_four_rows_by_hand() -> None:
    """Two buckets: of a, the commonest (x, the first of two) and others; of b, [1, 2.5] and (2.5, 4]; 9 is outside."""
    found = every_set(accuracy(FOUR, 1, 2, 3, buckets=(2, 2, 2)))
    tvd = {names: f["synthetic_tvd"] for names, f in found.items()}
    assert tvd == {
        ("a",): 0.25,  # train 2 x, 2 other; synthetic 1 x, 3 other
        ("b",): 0.25,  # 2, 2, 0 against 2, 1, 1
        ("c",): 0.25,  # u, other, missing: 3, 0, 1 against 2, 1, 1
        ("a", "b"): 0.5,  # x1 x1 o2 o2 against x1 o1 o2 o9
        ("a", "c"): 0.25,  # xu xu ou om against xu ou oo om
        ("b", "c"): 0.5,  # 1u 1u 2u 2m against 1u 1u 2o 9m
        ("a", "b", "c"): 0.75,  # x1u x1u o2u o2m against x1u o1u o2o o9m
    }
    x = found["a",]
    assert x["synthetic_max_deviation"] == x["synthetic_mean_deviation"] == 0.25
    assert x["synthetic_hellinger"] == pytest.approx(math.sqrt(1 - math.sqrt(1 / 8) - math.sqrt(3 / 8)))
    # Of 8 rows 3 are x; 0 to 3 of them fall to train in 5, 30, 30 and 5 of 70 ways: |2 k - 3| / 4 on average, twice.
    assert x["synthetic_expected"] == pytest.approx((10 * 0.75 + 60 * 0.25) / 70)


def test_averages_and_headline_by_hand() -> None:
    found = accuracy(FOUR, 1, 2, 3, buckets=(2, 2, 2))
    details = found.details
    averages = [details[n]["accuracy"] for n in ("univariate", "bivariate", "trivariate")]
    assert averages == pytest.approx([0.75, 1 - 1.25 / 3, 0.25], abs=1e-15)
    assert found.value == pytest.approx(sum(averages) / 3, abs=1e-15)
    assert details["bivariate"]["l1d"] == pytest.approx(2.5 / 3, abs=1e-15)
    assert (details["bivariate"]["combinations"], details["bivariate"]["of"]) == (3, 3)
    assert details["trivariate"]["worst"][0]["columns"] == ["a", "b", "c"]
    assert [c["tvd"] for c in details["bivariate"]["per_column"]] == [0.375, 0.5, 0.375]
    assert found.expected == pytest.approx(
        sum(details["expected_noise"][n]["accuracy"] for n in ("univariate", "bivariate", "trivariate")) / 3
    )


# ---------------------------------------------------------------------------------------------- the reference

COLUMNS = (
    ref.Col("age", "numeric"),
    ref.Col("pay", "numeric"),
    ref.Col("city", "nominal"),
    ref.Col("ok", "nominal"),
    ref.Col("day", "datetime"),
)


def cells(frame: pd.DataFrame) -> ref.Rows:
    plain = frame.assign(day=(frame["day"] - pd.Timestamp("2024-01-01")) // pd.Timedelta("1D"))
    return {name: [None if pd.isna(v) else v for v in plain[name].tolist()] for name in plain}


@examples(12)
@given(seed=SEEDS, buckets=st.integers(2, 6), rule=st.sampled_from(["train", "real"]))
def test_every_number_of_every_set_equals_the_reference(seed: int, buckets: int, rule: str) -> None:
    tables = drawn(seed, (25, 20, 30))
    found = every_set(accuracy(tables, 1, 2, 3, buckets=(buckets,) * 3, bins=rule))
    plain = {name: cells(frame) for name, frame in tables.items()}
    fit = plain["train"]
    if rule == "real":
        fit = {name: fit[name] + plain["holdout"][name] for name in fit}
    for size in (1, 2, 3):
        for columns in itertools.combinations(COLUMNS, size):
            for role in ("synthetic", "holdout"):
                wanted = ref.margins(columns, plain["train"], plain[role], buckets, fit)
                got = found[tuple(c.name for c in columns)]
                for number in NUMBERS:
                    assert got[f"{role}_{number}"] == pytest.approx(wanted[number], abs=1e-12), number


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_counts_equal_those_of_pandas(order: int) -> None:
    """Over blocks of several thousand rows, for sets that share their first columns and sets that do not."""
    rng = np.random.default_rng(order)
    widths = np.array([3, 7, 2, 7, 5, 12], np.int64)
    codes = np.stack([rng.integers(0, w, 40_003) for w in widths]).astype(np.uint8)
    sets = chosen(6, order, 9, seed=order)
    starts = np.concatenate([[0], np.cumsum(np.prod(widths[sets], axis=1))])
    counts = np.zeros(starts[-1], np.int64)
    for part in (slice(0, 20_000), slice(20_000, 40_003)):
        crosstab.count(np.ascontiguousarray(codes[:, part]), widths, sets, starts, counts)
    frame = pd.DataFrame(codes.T.astype(int))
    for line, start, stop in zip(sets, starts[:-1], starts[1:], strict=True):
        expected = np.zeros(tuple(widths[line]), np.int64)
        for cell, n in frame.value_counts(line.tolist()).items():
            expected[cell] = n
        assert np.array_equal(counts[start:stop], expected.ravel())


def test_drawn_counts_are_those_of_the_labelled_rows() -> None:
    rng = np.random.default_rng(0)
    widths = np.array([3, 4, 5], np.int64)
    codes = np.stack([rng.integers(0, w, 20_000) for w in widths]).astype(np.uint8)
    sets, some = chosen(3, 2, 10), labels(12_000, 8_000, seed=3, draws=5)
    starts = np.concatenate([[0], np.cumsum(np.prod(widths[sets], axis=1))])
    rows = np.arange(20_000)
    counts = np.zeros((5, starts[-1]), np.int64)
    crosstab.count_drawn(codes, widths, sets, starts, rows, some.keys, some.thresholds, counts)
    for draw in range(5):
        ours = some.sums(rows, rows, 20_000)[draw].astype(bool)
        assert ours.sum() == 12_000
        plain = np.zeros(starts[-1], np.int64)
        crosstab.count(np.ascontiguousarray(codes[:, ours]), widths, sets, starts, plain)
        assert np.array_equal(counts[draw], plain)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), parts=st.integers(2, 12))
def test_quantiles_are_exact_and_rounded_down(values: list[float], parts: int) -> None:
    wanted = EvenQuantiles(parts, len(values))
    found = wanted.combine(np.sort(np.array(values) + 0.0)[wanted.ranks()])
    place = [i * (len(values) - 1) / parts for i in range(parts + 1)]
    np.testing.assert_allclose(found, np.interp(place, np.arange(len(values)), np.sort(values)), rtol=1e-12, atol=1e-9)
    edges = ref.quantile_edges(values, parts)
    for value in values:
        assert sum(value > e for e in set(found)) == sum(value > e for e in edges)


# ---------------------------------------------------------------------------------------------- chance


@given(total=st.integers(2, 400), data=st.data())
def test_the_mean_deviation_in_closed_form(total: int, data: st.DataObject) -> None:
    k, n = data.draw(st.integers(0, total)), data.draw(st.integers(1, total - 1))
    x = np.arange(k + 1)
    plain = np.abs(x - k * n / total) @ stats.hypergeom.pmf(x, total, k, n)
    assert mean_deviation(k, n, total - n) == pytest.approx(plain, rel=1e-9, abs=1e-12)


def test_the_mean_deviation_of_large_counts() -> None:
    """Near a normal law, sqrt(2 / pi) times the standard deviation; every digit is needed for millions of rows."""
    k, n, m = 3_000_000, 400_000_000, 600_000_000
    spread = math.sqrt(k * 0.4 * 0.6 * (1e9 - k) / (1e9 - 1))
    assert mean_deviation(k, n, m) == pytest.approx(math.sqrt(2 / math.pi) * spread, rel=1e-6)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.96, 0.01, 0.03), (0.1,) * 10, tuple(1 / 2**i for i in range(1, 15))])
def test_mean_and_spread_of_one_set_are_those_of_shuffled_rows(shares: Sequence[float]) -> None:
    rng = np.random.default_rng(len(shares))
    n, m, most = 300, 700, len(shares)
    pool = rng.choice(most, n + m, p=np.array(shares) / sum(shares))
    starts, whole = np.array([0, most]), np.bincount(pool, minlength=most)
    shuffled = []
    for _ in range(3000):
        rng.shuffle(pool)
        first = np.bincount(pool[:n], minlength=most)
        shuffled.append(total_variation(first, whole - first, starts)[0])
    found = deviations(first, whole - first, starts, (n, m))
    assert found.expected[0] == pytest.approx(np.mean(shuffled), abs=4 * np.std(shuffled) / math.sqrt(3000))
    assert found.expected_sd[0] == pytest.approx(np.std(shuffled), rel=0.06)


@pytest.mark.parametrize("most", [100, 8])
def test_the_interval_of_honest_tables_holds_95_percent_of_them(most: int) -> None:
    """Of the mean over all 28 pairs of 8 dependent columns, told by draws of all of them or of 8 alone."""
    rng, widths, inside = np.random.default_rng(most), np.full(8, 4, np.int64), 0
    sets, some = chosen(8, 2, 100), chosen(8, 2, most)
    starts, starts_of_some = (np.arange(len(s) + 1) * 16 for s in (sets, some))
    n, m, worlds = 150, 300, 1000
    quantile = student_quantile(0.95, _DRAWS)
    for world in range(worlds):
        base = rng.integers(0, 4, n + m)
        codes = np.where(rng.random((8, n + m)) < 0.5, base, rng.integers(0, 4, (8, n + m))).astype(np.uint8)
        tables = [np.zeros(starts[-1], np.int64) for _ in range(2)]
        for part, counts in zip((slice(0, n), slice(n, n + m)), tables, strict=True):
            crosstab.count(np.ascontiguousarray(codes[:, part]), widths, sets, starts, counts)
        found = deviations(*tables, starts, (n, m))
        drawn_labels = labels(n, m, seed=world, draws=_DRAWS)
        taken, whole = np.zeros((_DRAWS, starts_of_some[-1]), np.int64), np.zeros(starts_of_some[-1], np.int64)
        keys = drawn_labels.keys, drawn_labels.thresholds
        crosstab.count_drawn(codes, widths, some, starts_of_some, np.arange(n + m), *keys, taken)
        crosstab.count(codes, widths, some, starts_of_some, whole)
        under = np.stack([total_variation(t, whole - t, starts_of_some) for t in taken])
        half = quantile * spread_of_mean(under, found.expected_sd, len(sets))
        inside += abs(found.tvd.mean() - found.expected.mean()) <= half
    assert 0.93 <= inside / worlds <= 0.97


# ---------------------------------------------------------------------------------------------- sets of columns


def test_sets_of_columns() -> None:
    for columns, order in ((6, 3), (7, 1), (5, 5), (4, 2)):
        assert chosen(columns, order, 10**6).tolist() == [
            list(c) for c in itertools.combinations(range(columns), order)
        ]
    for columns, order, most in ((100, 4, 500), (12, 3, 200)):
        some = chosen(columns, order, most, seed=1)
        assert len({tuple(line) for line in some.tolist()}) == most
        assert (np.diff(some, axis=1) > 0).all()
        assert some.tolist() == sorted(some.tolist()) == chosen(columns, order, most, seed=1).tolist()
        assert some.tolist() != chosen(columns, order, most, seed=2).tolist()


def test_every_set_is_as_likely() -> None:
    hits = np.zeros((8, 8))
    for seed in range(400):
        for a, b in chosen(8, 2, 5, seed):
            hits[a, b] += 1
    per_set = hits[np.triu_indices(8, 1)]
    assert stats.chisquare(per_set).pvalue > 0.001


def test_beyond_the_budget_a_seeded_subset_is_counted_and_the_report_says_so() -> None:
    tables = drawn(3, (30, 30, 30))
    budget = 4.5 * sum(map(len, tables.values())) * crosstab.COUNT_SECONDS
    found = accuracy(tables, 1, 2, 3, budget=budget)
    assert [found.details[n]["combinations"] for n in ("univariate", "bivariate", "trivariate")] == [4, 4, 4]
    assert found.warnings == (
        "accuracy, univariate: 4 of 5 sets of columns, chosen by the seed.",
        "accuracy, bivariate: 4 of 10 sets of columns, chosen by the seed.",
        "accuracy, trivariate: 4 of 10 sets of columns, chosen by the seed.",
    )
    every = every_set(accuracy(tables))
    assert all(every[names] == numbers for names, numbers in every_set(found).items())


def test_four_columns_together() -> None:
    found = accuracy(drawn(4, (40, 40, 40)), 1, 4)
    assert found.details["4 columns"]["combinations"] == 5
    assert found.details["4 columns"]["tvd"] > found.details["univariate"]["tvd"]


# ---------------------------------------------------------------------------------------------- laws


@examples(4)
@given(seed=SEEDS)
def test_a_copy_is_perfect(seed: int) -> None:
    train = mixed(np.random.default_rng(seed), 40)
    found = accuracy({"train": train, "synthetic": train.sample(frac=1, random_state=1)}, 1, 2, 3)
    assert found.value == 1.0
    for number in NUMBERS[:-1]:
        assert {numbers[f"synthetic_{number}"] for numbers in every_set(found).values()} == {0.0}


def scaled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(age=frame["age"] * 7 + 1_000_003, pay=frame["pay"] * 2.0**9)


def wider(frame: pd.DataFrame) -> pd.DataFrame:
    """Integers beyond 2**53 are cut like others."""
    return frame.assign(age=frame["age"] * 2**52 - 2**58)


@pytest.mark.parametrize("change", [scaled, wider])
def test_units_do_not_matter(change: Any) -> None:
    for seed in range(3):
        tables = drawn(seed, (45, 40, 40))
        assert accuracy(tables).details == accuracy(mapped(tables, change)).details


def test_constant_columns_change_no_set_of_others_and_add_nothing_to_one() -> None:
    tables = drawn(5, (45, 40, 40))
    before = every_set(accuracy(tables))
    after = every_set(accuracy(mapped(tables, lambda f: f.assign(same=1.0, none=None))))
    for names, numbers in after.items():
        others = tuple(n for n in names if n not in ("same", "none"))
        if len(others) == len(names):
            assert numbers == before[names]
        elif others and len(names) < 3:  # five buckets for three columns, ten for less
            for number, value in numbers.items():
                assert value == pytest.approx(before[others][number], abs=1e-12)
        elif not others:
            assert numbers["synthetic_tvd"] == numbers["synthetic_expected"] == 0.0


@pytest.mark.cluster
@pytest.mark.xdist_group("cluster")
def test_the_same_bits_from_worker_processes(cluster: Callable[[int], Client], tmp_path: Path) -> None:
    """Counts travel as bytes there, and blocks are read by whoever needs them."""
    tables = {name: tmp_path / f"{name}.parquet" for name in ("train", "holdout", "synthetic")}
    for seed, path in enumerate(tables.values()):
        mixed(np.random.default_rng(seed), 3000 + seed).to_parquet(path)
    here = accuracy(tables)
    there = daskpriv.evaluate(**tables, metrics=[Accuracy()], client=cluster(2), block_rows=700).metrics["accuracy"]
    assert (here.value, here.details) == (there.value, there.details)
    assert every_set(here) == every_set(there)


# ---------------------------------------------------------------------------------------------- bad and odd input


def test_fewer_columns_than_are_taken_together() -> None:
    one = mapped(FOUR, lambda f: f[["b"]])
    assert accuracy(one).value == accuracy(one, 1).value == 0.5  # ten buckets: 1 and 4 twice among 1, 1, 4, 9
    found = accuracy(one, 2, 3)
    assert found.value is None
    assert found.reading.startswith("Not evaluated")


def test_categories_beyond_fifty_thousand_are_found_by_their_hashes() -> None:
    rng = np.random.default_rng(9)
    names = np.array([f"name {i}" for i in range(52_000)])
    train, synthetic = (
        pd.DataFrame({"a": np.concatenate([names, np.repeat(["Graz", "Linz"], [some, 6_000])])})
        for some in (10_000, int(rng.integers(100)))
    )
    found = every_set(accuracy({"train": train, "synthetic": synthetic}, 1, buckets=(3,)))
    n, m = len(train), len(synthetic)
    graz = abs(10_000 / n - (m - 58_000) / m)
    rest = abs(52_000 / n - 52_000 / m)
    assert found["a",]["synthetic_tvd"] == pytest.approx((graz + abs(6_000 / n - 6_000 / m) + rest) / 2, abs=1e-12)


def test_too_many_cells_are_refused_in_one_sentence() -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.random((300, 4)), columns=list("wxyz"))
    with pytest.raises(
        daskpriv.InputError, match=r"columns 'w', 'x', 'y', 'z' together have .* cells.* use fewer buckets"
    ):
        accuracy({"train": table, "synthetic": table}, 4, buckets=(250,))


@pytest.mark.parametrize(
    "options", [{"orders": ()}, {"orders": (2, 2)}, {"orders": (0,)}, {"buckets": (5,)}, {"budget": 0}, {"bins": "all"}]
)
def test_options_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Accuracy(**options)


def test_the_budget_of_the_caller_bounds_the_sets_that_are_counted() -> None:
    """One core counts 0.7 ns per row and set: 1 400 rows take a microsecond for a set."""
    rng = np.random.default_rng(3)
    tables = {n: pd.DataFrame(rng.integers(0, 4, (700, 6)), columns=list("abcdef")) for n in ("train", "synthetic")}
    report = daskpriv.evaluate(**tables, metrics=["accuracy", "correlation"], budget=7e-6)
    found = report.metrics["accuracy"].details
    assert [found[n]["combinations"] for n in ("univariate", "bivariate", "trivariate")] == [6, 7, 7]
    assert report.metrics["correlation"].details["pairs"] == 7
    assert any("7 of 15 sets of columns, chosen by the seed" in w for w in report.warnings)
    for bad in (0, -1.0, float("nan"), float("inf"), "1"):
        with pytest.raises(InputError, match="budget: give a number of seconds above 0"):
            daskpriv.evaluate(**tables, metrics="accuracy", budget=bad)  # type: ignore[arg-type]
