"""The overlap of distances to train and to holdout against plain loops over float64 distances."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.metrics import _pooled
from daskpriv.metrics.dcr_overlap import DcrOverlap
from daskpriv.protocol import Result, Verdict
from daskpriv.stats.grid import SHARES
from daskpriv.stats.labels import labels
from tests.metrics.searched import frame, matrices, mixed, run, with_copies
from tests.metrics.test_nndr import by_numbers, pairs
from tests.metrics.test_pooled import LEVELS, cut_nearest, first_side
from tests.reference import quantile

QUANTILES = {"q01": 0.01, "q05": 0.05, "median": 0.5}

# ------------------------------------------------------------------------------------------- the reference


def share_up_to(x: np.ndarray, value: float) -> float:
    return float(np.mean(x <= value))


def gaps(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """F_a - F_b at every value that occurs."""
    values = np.unique(np.concatenate([a, b]))
    return values, [share_up_to(a, v) - share_up_to(b, v) for v in values]


def wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    """Mean difference of the sorted samples, each repeated to a common size."""
    size = math.lcm(len(a), len(b))
    x, y = (np.sort(np.repeat(s, size // len(s))) for s in (a, b))
    return float(np.mean([0.0 if i == j else abs(i - j) for i, j in zip(x, y, strict=True)]))


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The common area of two histograms; rows without a neighbour have a bin of their own."""
    total = 0.0
    for i in range(101):
        low, high = i / 100, (i + 1) / 100 if i < 99 else 1.1
        inside = [np.isinf(x) if i == 100 else (low <= x) & (x < high) for x in (a, b)]
        total += min(float(np.mean(side)) for side in inside)
    return total


def ratio(a: float, b: float) -> float:
    return 1.0 if a == b else math.inf if b == 0 else a / b


def check_dominance(found: dict[str, Any], ours: np.ndarray, theirs: np.ndarray) -> None:
    assert found["theta"] == pytest.approx(pairs(ours, theirs), abs=1e-13)
    assert found["ks_above"] == pytest.approx(max(0.0, *gaps(ours, theirs)[1]), abs=1e-13)
    for name, q in QUANTILES.items():
        assert found["quantile_ratios"][name] == ratio(quantile(ours, q), quantile(theirs, q)), name


def check(result: Result, given: dict[tuple[str, str], np.ndarray]) -> None:
    """All that needs no relabelling."""
    ours, theirs, across = (given[p].min(axis=1) for p in ((SYNTHETIC, TRAIN), (SYNTHETIC, HOLDOUT), (HOLDOUT, TRAIN)))
    told = result.details
    assert result.value == told["ovl"] == pytest.approx(overlap(ours, theirs), abs=1e-13)
    assert told["ks"] == pytest.approx(max(map(abs, gaps(ours, theirs)[1])), abs=1e-13)
    assert told["wasserstein"] == pytest.approx(wasserstein(ours, theirs), abs=1e-13)
    if np.isfinite([*ours, *theirs]).all():
        assert told["mean_difference"] == pytest.approx(theirs.mean() - ours.mean(), abs=1e-13)
    check_dominance(told["dominance"], ours, theirs)
    check_dominance(told["family_b"], ours, across)
    assert result.p_value == told["p_values"]["ks_above"]


def statistics(matrix: np.ndarray, sides: np.ndarray, k: int) -> list[tuple[float, float, float]]:
    """KS+, mean difference and Wasserstein distance of every draw, on edges taken from pooled distances only."""
    ranked = np.sort(matrix, axis=1)[:, [r - 1 for r in (1, 2, 4, 8) if r <= k]].ravel()
    edges = {0.0, *(sorted(ranked)[max(math.ceil(s * len(ranked)) - 1, 0)] for s in SHARES)}
    edges = np.array(sorted(e for e in edges if e < math.inf))
    out = []
    for side in sides:
        a, b = (np.array([cut_nearest(line, mine, k, 1)[0] for line in matrix]) for mine in (side, ~side))
        steps = [share_up_to(a, e) - share_up_to(b, e) for e in edges]
        areas = [g * w for g, w in zip(steps, np.diff(edges), strict=False)]
        out.append((max(0.0, *steps), math.fsum(areas), math.fsum(map(abs, areas))))
    return out


def random_tables(seed: int, copies: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    train, holdout = mixed(rng, 40), mixed(rng, 25)
    return {TRAIN: train, HOLDOUT: holdout, SYNTHETIC: with_copies(rng, mixed(rng, 50), train, copies)}


# ------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("seed", range(3))
def test_against_loops(seed: int) -> None:
    tables = random_tables(seed, copies=10 * seed)
    frames = {role: frame(table) for role, table in tables.items()}
    reports = [daskpriv.evaluate(**frames, metrics=[DcrOverlap()], block_rows=b) for b in (None, 7)]
    check(reports[0].metrics["dcr_overlap"], matrices(tables))
    told = [json.dumps(r.to_dict()["metrics"]["dcr_overlap"]) for r in reports]
    assert told[0] == told[1]


@pytest.mark.parametrize("most", [3, 64])
def test_the_law_is_that_of_relabelling(most: int) -> None:
    given = matrices(random_tables(4, copies=3))
    given = {pair: m[:15] if pair[0] == SYNTHETIC else m for pair, m in given.items()}
    with patch.object(_pooled, "MOST", most):
        result = run(DcrOverlap(), given, block_rows=4)
        k = _pooled.list_length(Facts({TRAIN: 40, HOLDOUT: 25}, 3), 1)
    assert k == {3: 3, 64: 29}[most]
    whole = np.hstack([given[SYNTHETIC, TRAIN], given[SYNTHETIC, HOLDOUT]])
    some = 150
    expected = statistics(whole, first_side(labels(40, 25, 0), 65)[: some + 1], k)
    assert [t.name for t in result.tests] == ["dcr_overlap_ks", "dcr_overlap_mean"]
    for place, test in enumerate(result.tests):
        assert test.observed == pytest.approx(expected[0][place], abs=1e-12)
        np.testing.assert_allclose(test.drawn[:some], [x[place] for x in expected[1:]], atol=1e-12)
    assert result.details["p_values"]["mean_difference"] == result.tests[1].p_value


def test_the_wasserstein_test_counts_every_difference() -> None:
    """Train further away than holdout: no test of a leak fires, but that of any difference does."""
    rng = np.random.default_rng(0)
    holdout, train = rng.random((60, 2)), 0.2 + rng.random((60, 2))
    result = run(DcrOverlap(), by_numbers(holdout[:40] + 1e-3, train, holdout))
    p = result.details["p_values"]
    assert p["wasserstein"] < 0.01
    assert min(p["ks_above"], p["mean_difference"]) > 0.5


@settings(max_examples=25, derandomize=True)
@given(
    st.integers(2, 6),
    st.integers(1, 6),
    st.integers(1, 15),
    st.integers(0, 2**32),
    st.sampled_from([LEVELS, [0.0], [math.inf], [0.5], [0.0, 1e-9, 0.3]]),
)
def test_any_distances(n_train: int, n_holdout: int, n: int, seed: int, levels: list[float]) -> None:
    rng = np.random.default_rng(seed)
    given = {
        (SYNTHETIC, TRAIN): rng.choice(levels, (n, n_train)),
        (SYNTHETIC, HOLDOUT): rng.choice(levels, (n, n_holdout)),
        (HOLDOUT, TRAIN): rng.choice(levels, (n_holdout, n_train)),
    }
    results = [run(DcrOverlap(), given, block_rows) for block_rows in (4, 1000)]
    check(results[0], given)
    assert repr(results[0].details) == repr(results[1].details)
    for test in results[0].tests:
        assert not np.isnan([test.observed, *test.drawn]).any()
    if len(set(levels)) == 1:
        assert (results[0].value, results[0].p_value) == (1.0, 1.0)


# ------------------------------------------------------------------------------------------- verdicts


def test_near_copies_leak_and_fresh_rows_do_not() -> None:
    rng = np.random.default_rng(5)
    train, holdout, fresh = (rng.random((200, 4)) for _ in range(3))
    leaky = run(DcrOverlap(), by_numbers(np.vstack([train[:60] + 1e-3, fresh[:140]]), train, holdout))
    good = run(DcrOverlap(), by_numbers(fresh, train, holdout))
    assert (leaky.verdict, leaky.p_value) == (Verdict.LEAK, 1 / 2000)
    assert "are systematically closer" in leaky.reading
    assert good.verdict is Verdict.INCONCLUSIVE
    assert "are not systematically closer" in good.reading
    assert leaky.value is not None
    assert good.value is not None
    assert leaky.value < good.value


def test_unequal_sizes_are_no_leak() -> None:
    """Synthetic rows are far closer to a train four times larger; the test knows, and the reading says so."""
    rng = np.random.default_rng(6)
    result = run(DcrOverlap(), by_numbers(rng.random((150, 3)), rng.random((200, 3)), rng.random((50, 3))))
    assert result.details["dominance"]["ks_above"] > 0.2
    assert result.verdict is not Verdict.LEAK
    assert "differ in size" in result.reading


def test_false_alarms_without_a_leak() -> None:
    """Unequal tables, coarse numbers with many ties, far too short lists: still 5 % at most."""
    rng = np.random.default_rng(1)
    alarms, runs = np.zeros(3), 100
    with patch.object(_pooled, "MOST", 3):
        for _ in range(runs):
            real, synthetic = rng.integers(0, 6, (60, 3)) / 5, rng.integers(0, 6, (40, 3)) / 5
            result = run(DcrOverlap(), by_numbers(synthetic, real[:45], real[45:]))
            alarms += [p <= 0.05 for p in result.details["p_values"].values()]
    assert (alarms / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5).all()


# ------------------------------------------------------------------------------------------- degenerate inputs


def test_without_a_holdout() -> None:
    tables = random_tables(1)
    frames = {role: frame(tables[role]) for role in (TRAIN, SYNTHETIC)}
    result = daskpriv.evaluate(**frames, metrics=[DcrOverlap()]).metrics["dcr_overlap"]
    assert (result.value, result.p_value, result.verdict) == (None, None, Verdict.NOT_EVALUATED)
    assert "holdout" in result.reading


@pytest.mark.parametrize(
    "case", ["one holdout row", "train is synthetic", "holdout in train", "all alike", "one synthetic row", "50 times"]
)
def test_degenerate_tables(case: str) -> None:
    tables = random_tables(2)
    first = {role: {name: cells[:1] for name, cells in table.items()} for role, table in tables.items()}
    if case == "one holdout row":
        tables[HOLDOUT] = first[HOLDOUT]
    elif case == "train is synthetic":
        tables[SYNTHETIC] = tables[TRAIN]
    elif case == "holdout in train":
        tables[HOLDOUT] = {name: cells[:20] for name, cells in tables[TRAIN].items()}
    elif case == "all alike":
        tables = {role: {name: cells * 20 for name, cells in first[TRAIN].items()} for role in tables}
    elif case == "one synthetic row":
        tables[SYNTHETIC] = first[SYNTHETIC]
    else:
        tables[SYNTHETIC] = {name: cells * 20 for name, cells in tables[SYNTHETIC].items()}
        tables[TRAIN] = {name: cells[:20] for name, cells in tables[TRAIN].items()}
    report = daskpriv.evaluate(**{role: frame(table) for role, table in tables.items()}, metrics=[DcrOverlap()])
    check(report.metrics["dcr_overlap"], matrices(tables))
    json.dumps(report.to_dict(), allow_nan=False)
    if case == "train is synthetic":
        assert report.metrics["dcr_overlap"].p_value == 1 / 2000
    if case == "all alike":
        assert report.metrics["dcr_overlap"].p_value == 1.0


# ------------------------------------------------------------------------------------------- golden numbers


@pytest.mark.published
@pytest.mark.parametrize("generator", ["mostly", "synthpop"])
def test_golden_quantile_ratios(shared: Path, adult: Path, generator: str) -> None:
    rows = json.loads((shared / "golden" / "gower_exact.json").read_text())["rows"]
    golden = next(r for r in rows if (r["dataset"], r["synthesizer"]) == ("adult", generator))
    few = labels(24_421, 24_421, 0, draws=1)
    # The quantiles need no longer lists, and no draws.
    with patch.object(_pooled, "MOST", 1), patch("daskpriv.metrics.dcr_overlap.drawn_labels", lambda *_: few):
        report = daskpriv.evaluate(
            train=adult / "train.parquet",
            holdout=adult / "holdout.parquet",
            synthetic=adult / f"synthetic_{'good' if generator == 'mostly' else 'leaky'}.parquet",
            metrics=[DcrOverlap()],
            range_from="all",
        )
    found = report.metrics["dcr_overlap"].details
    for name, key in (("q01", "dcr_p1"), ("q05", "dcr_p5"), ("median", "dcr_p50")):
        expected = golden["train"][key] / golden["holdout"][key]
        assert found["dominance"]["quantile_ratios"][name] == pytest.approx(expected, abs=1e-5), name
    apart = golden["holdout"]["dcr_mean"] - golden["train"]["dcr_mean"]
    assert found["mean_difference"] == pytest.approx(apart, abs=1e-9)
