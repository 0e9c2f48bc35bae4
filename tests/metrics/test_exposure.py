"""Exposure, its list, its per-record file and its bound on epsilon, against plain loops over float64 distances.

With fewer than 100 real rows every cell holds one distinct score, so that all statistics can be told exactly.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats

import daskpriv
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, NeighbourTable, Widest
from daskpriv.metrics.exposure import Exposure
from daskpriv.protocol import Result
from daskpriv.report.model import report_schema
from daskpriv.stats.epsilon import best_bound, epsilon_lower_bound
from tests import reference as ref
from tests.metrics import by_hand, searched

SCANS = ("scan by distance", "scan by relative distance", "scan by largest difference")
WIDEST = "top 1 % by largest difference"
TOPS = {"top 0.1 % by relative distance": 0.001, "top 0.5 % by relative distance": 0.005}
AUCS = {
    "relative distance": 0.0,
    "relative distance, isolated tenth": 0.9,
    "relative distance, isolated fiftieth": 0.98,
}
Tables = dict[str, ref.Rows]

# ------------------------------------------------------------------------------------------- tables


def drawn_tables(seed: int, sizes: tuple[int, int, int], copies: int = 0, repeats: int = 1) -> Tables:
    """Mixed tables with ties, duplicates and gaps; `repeats` writes each real row so often."""
    rng = np.random.default_rng(seed)
    train, holdout, synthetic = (searched.mixed(rng, n) for n in sizes)
    if repeats > 1:
        train, holdout = (
            {k: (v[: -(-len(v) // repeats)] * repeats)[: len(v)] for k, v in t.items()} for t in (train, holdout)
        )
    return {
        TRAIN: train,
        HOLDOUT: holdout,
        SYNTHETIC: searched.with_copies(rng, synthetic, train, copies) if copies else synthetic,
    }


def evaluated(tables: Tables, metric: Any = "exposure", **options: Any) -> Result:
    frames = {name: searched.frame(t) for name, t in tables.items()}
    return daskpriv.evaluate(**frames, metrics=[metric], **options).metrics["exposure"]


def leaky(seed: int, kind: str, planted: int = 25, rows: int = 1000) -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    """Ten numbers and five categories; `planted` training rows are copied into synthetic, in one of three ways.

    As they are; with noise of half a percent of each range; or rows far out, with that noise and three columns of
    each drawn anew.
    """
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(10, 10)) / 3
    numbers, categories = [f"x{i}" for i in range(10)], [f"c{i}" for i in range(5)]

    def table(n: int) -> pd.DataFrame:
        x = rng.normal(size=(n, 10)) @ mixing + rng.standard_t(4, size=(n, 10))
        cells: dict[str, Any] = dict(zip(numbers, x.T, strict=True))
        return pd.DataFrame(cells | {c: rng.choice(list("pqrs"), n, p=[0.5, 0.3, 0.15, 0.05]) for c in categories})

    train, holdout, synthetic = table(rows), table(rows), table(rows)
    spread = (train[numbers].max() - train[numbers].min()).to_numpy()
    chosen = np.sort(rng.permutation(rows)[:planted])
    if kind == "outlier":
        far = (train[numbers] - train[numbers].median()).abs() / spread
        rare = sum(1 - train[c].map(train[c].value_counts(normalize=True)) for c in categories)
        chosen = np.sort(np.argsort(-(far.sum(axis=1) + rare).to_numpy())[:planted])
    copies = train.iloc[chosen].reset_index(drop=True)
    if kind != "verbatim":
        copies[numbers] += rng.normal(0, 0.005, (planted, 10)) * spread
    if kind == "outlier":
        for i in range(planted):
            for name in rng.permutation(numbers + categories)[:3]:
                copies.loc[i, name] = train[name].iloc[rng.integers(rows)]
    synthetic.iloc[:planted] = copies
    return {TRAIN: train, HOLDOUT: holdout, SYNTHETIC: synthetic}, chosen


# ------------------------------------------------------------------------------------------- the reference


class Plain:
    """Scores of all real rows, train first, and the labels of every draw."""

    def __init__(self, tables: Tables, seed: int = 0) -> None:
        own, to_synthetic = by_hand.between_all(searched.COLUMNS, *(tables[r] for r in (TRAIN, HOLDOUT, SYNTHETIC)))
        self.n_train, self.n = ref.n_rows(tables[TRAIN]), len(own)
        self.distance = to_synthetic.min(axis=1)
        self.widest = by_hand.widest_all(
            searched.COLUMNS, *(tables[r] for r in (TRAIN, HOLDOUT, SYNTHETIC)), to_synthetic
        )
        others = np.sort(own, axis=1)
        self.isolation = others[:, 4] if self.n >= 5 else np.full(self.n, math.inf)
        self.relative = np.array([quotient(d, i) for d, i in zip(self.distance, self.isolation, strict=True)])
        self.train = np.arange(self.n) < self.n_train
        self.labels = by_hand.drawn_labels(self.n_train, self.n - self.n_train, seed)

    def test(self, statistic: Any, rows: np.ndarray) -> by_hand.Test:
        """Observed and drawn values of a function of (labels)."""
        return float(statistic(self.train[None, rows])[0]), statistic(self.labels[:, rows])

    def far(self, share: float) -> np.ndarray:
        """Rows more isolated than the smallest isolation that at least this share does not exceed."""
        return self.isolation > by_hand.smallest_share(self.isolation, share) if share else np.ones(self.n, bool)

    def tests(self) -> dict[str, by_hand.Test]:
        everyone, out = np.ones(self.n, bool), {}
        for name, score in zip(SCANS, (self.distance, self.relative, self.widest), strict=True):
            out[name] = self.test(lambda x, s=score: by_hand.scan(s, x, self.n_train / self.n), everyone)
        for name, some in TOPS.items():
            close = self.relative <= by_hand.smallest_share(self.relative, some)
            out[name] = self.test(lambda x: x.sum(axis=1).astype(float), close)
        out[WIDEST] = self.test(
            lambda x: x.sum(axis=1).astype(float), self.widest <= by_hand.smallest_share(self.widest, 0.01)
        )
        for name, share in AUCS.items():
            far = self.far(share)
            out[name] = self.test(lambda x, far=far: by_hand.auc(self.relative[far], x), far)
        return out

    def within(self) -> dict[str, dict[str, int]]:
        out = {}
        for radius in (0.0, 1 / 300, 1 / 100, 1 / 30):
            hit = self.distance <= radius
            out[f"{radius:.4f}"] = {"train": int((hit & self.train).sum()), "holdout": int((hit & ~self.train).sum())}
        return out

    def by_isolation(self) -> list[dict[str, Any]]:
        edges = [by_hand.smallest_share(self.isolation, i / 10) for i in range(1, 10)]
        out = []
        for low, high in zip([-math.inf, *edges], [*edges, math.inf], strict=True):
            rows = (self.isolation > low) & (self.isolation <= high)
            observed, drawn = self.test(lambda x, rows=rows: by_hand.auc(self.distance[rows], x), rows)
            n_train = int((rows & self.train).sum())
            out.append(
                {
                    "n_train": n_train,
                    "n_holdout": int(rows.sum()) - n_train,
                    "auc": observed,
                    "p_value": by_hand.at_least(observed, drawn),
                }
            )
        return out

    def list_of(self, rate: Fraction = Fraction(1, 10)) -> tuple[int, int, float | None]:
        """Benjamini & Hochberg over conformal p-values, one training row after the other."""
        ours, theirs = self.relative[: self.n_train], self.relative[self.n_train :]
        p = sorted((Fraction(1 + int((theirs <= x).sum()), len(theirs) + 1), x) for x in ours)
        passing = [x for rank, (value, x) in enumerate(p, 1) if value <= rate * rank / len(p)]
        if not passing:
            return 0, 0, None
        limit = max(passing)
        return int((ours <= limit).sum()), int((theirs <= limit).sum()), float(limit)

    def log_odds(self, groups: tuple[float, ...], widest: bool = False) -> tuple[float, int, int]:
        """The largest lower bound on the log odds of train, over the rows closest for their surroundings.

        In groups of the most isolated rows, for several numbers of rows with all their ties, each at its share of 5 %;
        with `widest` also over the rows of all with the smallest of the largest differences.
        """
        tried = []
        ranked_by = [(self.far(share), self.relative) for share in groups]
        for far, score in [*ranked_by, *([(self.far(0.0), self.widest)] if widest else [])]:
            ranked = np.sort(score[far])
            numbers = [g for g in (10, 30, 100, 300, 1_000, 10_000, 100_000) if g <= far.sum()]
            for limit in {float(ranked[g - 1]) for g in numbers}:
                close = far & (score <= limit)
                tried.append((int((close & self.train).sum()), int(close.sum())))
        made = []
        for right, rows in tried:
            low = stats.beta.ppf(0.05 / len(tried), right, rows - right + 1) if right else 0.0
            made.append((math.log(low / (1 - low)) if low else -math.inf, right, rows))
        return max(made, default=(-math.inf, 0, 0))


def quotient(a: float, b: float) -> float:
    """A / b with 0/0 = inf/inf = 1 and y/0 = inf."""
    if a == b and a in (0.0, math.inf):
        return 1.0
    return math.inf if b == 0 else a / b


SIZES = [
    (59, 40, 50, 0, 1),
    (30, 69, 45, 6, 1),
    (64, 16, 30, 0, 3),
    (40, 40, 25, 25, 2),
    (7, 9, 8, 2, 1),
    (49, 50, 9, 7, 10),
]


@pytest.mark.parametrize(("n_train", "n_holdout", "n", "copies", "repeats"), SIZES)
def test_every_number_is_that_of_plain_loops(n_train: int, n_holdout: int, n: int, copies: int, repeats: int) -> None:
    tables = drawn_tables(n_train + copies, (n_train, n_holdout, n), copies, repeats)
    found, plain = evaluated(tables, seed=11), Plain(tables, seed=11)
    details, tests = found.details, plain.tests()
    assert (np.sum((plain.distance == 0) & (plain.isolation == 0)) > 0) == (repeats == 10)
    assert details["within"] == plain.within()
    for ours, theirs in zip(details["by_isolation"], plain.by_isolation(), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)
    assert details["tests"] == pytest.approx({k: by_hand.at_least(*t) for k, t in tests.items()}, abs=1e-12)
    for test in found.tests:
        assert test.observed == pytest.approx(tests[test.name][0], abs=1e-9)
        assert test.drawn == pytest.approx(tests[test.name][1], abs=1e-9)
    everyone = np.ones(plain.n, bool)
    assert details["auc_relative"] == pytest.approx(
        plain.test(lambda x: by_hand.auc(plain.relative, x), everyone)[0], abs=1e-12
    )
    listed = details["list"]
    assert (
        listed["rows"],
        listed["holdout_rows_below_its_threshold"],
        listed["relative_distance_up_to"],
    ) == plain.list_of()
    assert listed["shortest_possible"] == math.ceil(Fraction(10 * n_train, n_holdout + 1))
    assert found.value == listed["rows"]
    p = {k: by_hand.at_least(*t) for k, t in tests.items()}
    assert details["strongest_test"] == min(p, key=lambda name: (p[name], name))
    assert found.p_value == pytest.approx(by_hand.smallest_adjusted(tests), abs=1e-12)


@pytest.mark.parametrize(("n_train", "n_holdout", "n", "copies", "repeats"), SIZES)
def test_the_bound_on_epsilon_is_that_of_plain_loops(
    n_train: int, n_holdout: int, n: int, copies: int, repeats: int
) -> None:
    tables = drawn_tables(n_train + copies, (n_train, n_holdout, n), copies, repeats)
    found = evaluated(tables, Exposure(randomised=True)).details["epsilon"]
    plain = Plain(tables)
    bound, right, rows = plain.log_odds((0.0,))
    assert found["lower_bound"] == pytest.approx(max(0.0, bound), abs=1e-9)
    assert (found["correct"], found["guesses"]) == (right, rows)
    assert found["level"] == 0.95
    without = evaluated(tables).details
    assert without["epsilon"] is None
    rise, right, rows = plain.log_odds((0.0, 0.9, 0.98), widest=True)
    assert without["stands_out"]["log_odds"] == pytest.approx(rise - math.log(n_train / n_holdout), abs=1e-9)
    assert (without["stands_out"]["train"], without["stands_out"]["rows"]) == (right, rows)


# ------------------------------------------------------------------------------------------- bounds on epsilon


@pytest.mark.parametrize("guesses", [1, 2, 7, 40, 1000])
def test_the_bound_is_the_smallest_epsilon_that_explains_the_guesses(guesses: int) -> None:
    """At the bound so many right guesses have a chance of 5 %; with fewer right guesses it is smaller."""
    before = 0.0
    for correct in range(0, guesses + 1, max(1, guesses // 20)):
        bound = epsilon_lower_bound(correct, guesses)
        assert before <= bound < math.inf
        if bound > 0:
            chance = stats.binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-bound)))
            assert chance == pytest.approx(0.05, abs=1e-9)
        else:
            assert stats.binom.sf(correct - 1, guesses, 0.5) >= 0.05 - 1e-12
        before = bound
    assert (epsilon_lower_bound(guesses, guesses, 0.01) < before) == (before > 0)


def test_no_guesses_and_no_right_guesses_bound_nothing() -> None:
    assert epsilon_lower_bound(0, 0) == epsilon_lower_bound(0, 1000) == 0.0
    assert best_bound([])[1:] == (0, 0)
    assert best_bound([])[0] <= 0


def test_several_tries_share_the_error() -> None:
    """Twenty tries cost each of them: a twentieth of the error, and the best of them counts."""
    tries = [(25, 25), *[(10, 20)] * 19]
    assert best_bound(tries) == (epsilon_lower_bound(25, 25, 0.05 / 20), 25, 25)
    assert best_bound(tries)[0] < best_bound(tries[:1])[0] == epsilon_lower_bound(25, 25)


# ------------------------------------------------------------------------------------------- no leak


@pytest.mark.parametrize("kind", ["fresh rows", "rows of either table"])
def test_without_a_leak_p_is_seldom_small(kind: str) -> None:
    """40 tables; more than 6 p-values up to 5 % would come by chance once in 290 times, lists in more than 9 in 190.

    Rows of either table are copied whatever their label, some of them often: the labels stay exchangeable.
    """
    small = listed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tables = {TRAIN: searched.mixed(rng, 50), HOLDOUT: searched.mixed(rng, 30), SYNTHETIC: searched.mixed(rng, 45)}
        if kind == "rows of either table":
            pool = {k: tables[TRAIN][k] + tables[HOLDOUT][k] for k in tables[TRAIN]}
            tables[SYNTHETIC] = searched.with_copies(
                rng, tables[SYNTHETIC], searched.with_copies(rng, pool, pool, 5), 30
            )
        found = evaluated(tables, Exposure(randomised=True), seed=seed)
        small += found.p_value <= 0.05
        listed += found.value > 0
        assert (found.verdict == "LEAK") <= (found.p_value <= 0.05)
    assert small <= 6
    assert listed <= 9


# ------------------------------------------------------------------------------------------- leaks


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["verbatim", "jitter", "outlier"])
def test_25_of_1000_rows_that_leak_are_found(kind: str, seed: int, tmp_path: Path) -> None:
    """Copied as they are, with noise of half a percent of each range, or far out with three more columns drawn anew."""
    tables, planted = leaky(seed, kind)
    report = daskpriv.evaluate(**tables, metrics="exposure", output=tmp_path, internal=True)
    found = report.metrics["exposure"]
    assert found.p_value <= 0.01
    assert (found.verdict, report.verdict) == ("LEAK", "LEAK") or kind == "outlier"
    if kind == "outlier":
        assert min(found.details["tests"][name] for name in AUCS if "isolated" in name) <= 0.01
        return
    rows = pq.read_table(tmp_path / "internal" / "real_rows.parquet").to_pandas()
    listed = rows[rows["listed"]]
    assert set(listed["table"]) == {"train"}
    assert set(planted) <= set(listed["row"])
    assert found.value == len(listed) <= 40
    if kind == "verbatim":
        assert found.details["within"]["0.0000"] == {"train": 25, "holdout": 0}


# ------------------------------------------------------------------------------------------- layout, tables missing


def test_no_cut_into_blocks_changes_a_bit() -> None:
    tables = drawn_tables(5, (61, 38, 40), copies=9)
    frames = {name: searched.frame(t) for name, t in tables.items()}
    options = {"metrics": [Exposure(randomised=True)], "seed": 3}
    whole, cut = (daskpriv.evaluate(**frames, **options, block_rows=n).to_dict() for n in (None, 7))
    assert whole["metrics"] == cut["metrics"]
    assert whole["overall"] == cut["overall"]


def test_without_a_holdout_nothing_is_claimed() -> None:
    tables = drawn_tables(6, (30, 20, 25), copies=25)
    del tables[HOLDOUT]
    found = evaluated(tables, Exposure(randomised=True))
    assert (found.value, found.p_value, found.verdict, found.tests, found.details) == (
        None,
        None,
        "NOT_EVALUATED",
        (),
        {},
    )
    assert "none were given" in found.reading


# ------------------------------------------------------------------------------------------- degenerate tables


def checked(tables: dict[str, pd.DataFrame], **options: Any) -> Result:
    """The result of a report that follows its schema and whose numbers are all defined."""
    report = daskpriv.evaluate(**tables, metrics=[Exposure(randomised=True)], **options)
    jsonschema.validate(json.loads(report.to_json()), report_schema())
    found = report.metrics["exposure"]
    p = [found.p_value, *found.details["tests"].values(), *(d["p_value"] for d in found.details["by_isolation"])]
    assert all(0 < x <= 1 for x in p)
    assert all(0 <= d["auc"] <= 1 for d in found.details["by_isolation"])
    for role in ("train", "holdout"):
        assert sum(d[f"n_{role}"] for d in found.details["by_isolation"]) == len(tables[role])
    assert 0 <= found.value <= len(tables[TRAIN])
    assert 0 <= found.details["epsilon"]["lower_bound"] < math.inf
    assert 0 <= found.details["auc_relative"] <= 1
    return found


def smooth(seed: int, rows: int) -> pd.DataFrame:
    x = np.random.default_rng(seed).normal(size=(rows, 3))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + x[:, 1], "c": np.exp(x[:, 2])})


@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 2, 2), (3, 1, 2), (2, 30, 1), (30, 1, 40)])
def test_tables_of_one_or_two_rows(sizes: tuple[int, int, int]) -> None:
    names = (TRAIN, HOLDOUT, SYNTHETIC)
    found = checked({name: smooth(i, n) for i, (name, n) in enumerate(zip(names, sizes, strict=True))})
    assert sizes[0] > 3 or found.details["epsilon"]["guesses"] == 0 or sizes[1] > 3


def test_one_real_row_on_each_side() -> None:
    """What the command refuses, another engine may ask: no row has a neighbour on its own side."""

    def table(distance: float) -> NeighbourTable:
        found = math.isfinite(distance)
        lists = np.full((1, 5), math.inf), np.full((1, 5), -1, np.int64)
        if found:
            lists[0][0, 0], lists[1][0, 0] = distance, 0
        return NeighbourTable(np.array([0]), *lists, np.array([int(found)]))

    metric, facts = Exposure(randomised=True), Facts({TRAIN: 1, HOLDOUT: 1, SYNTHETIC: 1}, 1)
    blocks = [
        Evidence(
            q,
            {(q, q): table(math.inf), (q, r): table(0.5), (q, SYNTHETIC): table(d)},
            widest={Widest(q, SYNTHETIC): np.ones(1)},
        )
        for q, r, d in ((TRAIN, HOLDOUT, 0.0), (HOLDOUT, TRAIN, 0.25))
    ]
    state: Any = metric.begin(facts)
    while not isinstance(state, Result):
        partial = metric.chunk(state, Evidence(SYNTHETIC))
        for block in blocks:
            partial = metric.combine(metric.chunk(state, block), partial)
        state = metric.advance(state, partial, {})
    assert state.p_value == pytest.approx(1.0, abs=0.55)
    assert state.details["within"]["0.0000"] == {"train": 1, "holdout": 0}
    assert state.value == 0


def test_rows_that_are_all_equal_say_nothing() -> None:
    found = checked({name: pd.DataFrame({"a": [3] * n}) for name, n in ((TRAIN, 12), (HOLDOUT, 9), (SYNTHETIC, 7))})
    assert set(found.details["tests"].values()) == {1.0}
    assert (found.value, found.p_value, found.details["auc_relative"]) == (0, 1.0, 0.5)
    assert found.details["within"]["0.0000"] == {"train": 12, "holdout": 9}


def test_a_copy_of_train_exposes_every_row() -> None:
    train = smooth(0, 40)
    found = checked({TRAIN: train, HOLDOUT: smooth(1, 30), SYNTHETIC: train})
    assert (found.value, found.details["auc_relative"], found.p_value) == (40, 1.0, 1 / 2000)
    assert found.details["list"]["holdout_rows_below_its_threshold"] <= 0.1 * 40
    assert found.details["within"]["0.0000"] == {"train": 40, "holdout": 0}
    assert found.details["epsilon"]["lower_bound"] == epsilon_lower_bound(40, 40)


def test_a_holdout_inside_train_hides_every_copy() -> None:
    train = smooth(0, 40)
    found = checked({TRAIN: train, HOLDOUT: train.head(20), SYNTHETIC: train})
    assert (found.value, found.details["auc_relative"], found.p_value) == (0, 0.5, 1.0)


def test_many_more_synthetic_rows_than_real_ones() -> None:
    found = checked({TRAIN: smooth(0, 12), HOLDOUT: smooth(1, 12), SYNTHETIC: smooth(2, 600)})
    assert found.p_value > 0.05


@pytest.mark.parametrize("missing", ["anonymeter", "gower", "max", "clearbox"])
def test_rows_without_any_neighbour(missing: str) -> None:
    """Where one side lacks a number, `anonymeter` knows no distance: scores are infinite."""
    rng = np.random.default_rng(0)
    tables = {name: searched.frame(searched.mixed(rng, n)) for name, n in ((TRAIN, 20), (HOLDOUT, 15), (SYNTHETIC, 10))}
    tables[HOLDOUT] = tables[HOLDOUT].assign(age=pd.NA).astype({"age": "Int64"})
    checked(tables, missing=missing)


# ------------------------------------------------------------------------------------------- per-record files


@pytest.mark.parametrize("block_rows", [None, 7])
def test_every_real_row_has_its_line(tmp_path: Path, block_rows: int | None) -> None:
    tables = drawn_tables(8, (41, 33, 35), copies=30)
    tables[SYNTHETIC] = {k: tables[TRAIN][k] + tables[HOLDOUT][k][:1] for k in tables[TRAIN]}
    frames = {name: searched.frame(t) for name, t in tables.items()}
    report = daskpriv.evaluate(**frames, metrics="exposure", output=tmp_path, internal=True, block_rows=block_rows)
    listed = report.metrics["exposure"].details["list"]
    path, plain = tmp_path / "internal" / "real_rows.parquet", Plain(tables)
    rows = pq.read_table(path).to_pandas()
    assert rows["table"].tolist() == ["train"] * 41 + ["holdout"] * 33
    assert rows["row"].tolist() == [*range(41), *range(33)]
    assert rows["distance_synthetic"].tolist() == plain.distance.tolist()
    assert rows["isolation"].tolist() == plain.isolation.tolist()
    assert rows["relative_distance"].tolist() == plain.relative.tolist()
    assert rows["nearest_synthetic_row"].tolist() == nearest_rows(tables)
    expected = plain.relative <= listed["relative_distance_up_to"]
    assert rows["listed"].tolist() == (expected & plain.train).tolist()
    assert int(rows["listed"].sum()) == listed["rows"] > 0
    assert listed["holdout_rows_below_its_threshold"] > 0
    assert path.stat().st_mode & 0o077 == 0


def nearest_rows(tables: Tables) -> list[int]:
    _, to_synthetic = by_hand.between_all(searched.COLUMNS, *(tables[r] for r in (TRAIN, HOLDOUT, SYNTHETIC)))
    return [int(i) for i in to_synthetic.argmin(axis=1)]


def test_every_synthetic_row_has_its_line(tmp_path: Path) -> None:
    tables = drawn_tables(9, (25, 19, 31), copies=6)
    frames = {name: searched.frame(t) for name, t in tables.items()}
    daskpriv.evaluate(**frames, output=tmp_path, internal=True, block_rows=8)
    rows = pq.read_table(tmp_path / "internal" / "records.parquet").to_pandas()
    _, to_synthetic = by_hand.between_all(searched.COLUMNS, *(tables[r] for r in (TRAIN, HOLDOUT, SYNTHETIC)))
    assert rows["row"].tolist() == list(range(31))
    for name, to in (("train", to_synthetic[:25].T), ("holdout", to_synthetic[25:].T)):
        assert rows[f"distance_{name}"].tolist() == to.min(axis=1).tolist()
        assert rows[f"nearest_{name}_row"].tolist() == to.argmin(axis=1).tolist()
        assert rows[f"ties_{name}"].tolist() == (to == to.min(axis=1)[:, None]).sum(axis=1).tolist()


def test_without_a_holdout_rows_have_no_isolation_and_none_is_listed(tmp_path: Path) -> None:
    tables = drawn_tables(10, (25, 5, 20), copies=20)
    del tables[HOLDOUT]
    daskpriv.evaluate(
        **{n: searched.frame(t) for n, t in tables.items()}, metrics="dcr,exposure", output=tmp_path, internal=True
    )
    rows = pq.read_table(tmp_path / "internal" / "real_rows.parquet").to_pandas()
    assert rows["table"].tolist() == ["train"] * 25
    assert rows[["isolation", "relative_distance"]].isna().all(axis=None)
    assert not rows["listed"].any()


def test_the_isolation_is_right_or_missing_whatever_was_searched(tmp_path: Path) -> None:
    """A published preset with one metric lists 40 neighbours in train, but one in holdout: five of both are unknown."""
    rng = np.random.default_rng(0)
    frames = {
        name: pd.DataFrame({f"c{i}": rng.choice(list("pqrs"), n) for i in range(6)})
        for name, n in ((TRAIN, 60), (HOLDOUT, 30), (SYNTHETIC, 20))
    }
    daskpriv.evaluate(**frames, metrics="privacy_score", preset="clearbox", output=tmp_path, internal=True)
    rows = pq.read_table(tmp_path / "internal" / "real_rows.parquet").to_pandas().query("table == 'train'")
    real = pd.concat([frames[TRAIN], frames[HOLDOUT]]).to_numpy()
    own = (real[:, None] != real).mean(axis=2)
    np.fill_diagonal(own, np.inf)
    expected = np.sort(own, axis=1)[:60, 4]
    isolation = rows["isolation"].to_numpy()
    known = ~np.isnan(isolation)
    assert isolation[known] == pytest.approx(expected[known])
