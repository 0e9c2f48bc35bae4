"""The nearest neighbour distance ratio against plain loops over float64 distances."""

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
from daskpriv.metrics.nndr import EDGES, RULES, Nndr
from daskpriv.protocol import Result, Verdict
from daskpriv.stats.labels import labels
from tests.metrics.searched import frame, matrices, mixed, run, with_copies
from tests.metrics.test_pooled import LEVELS, cut_nearest, first_side

QUANTILES = {"q01": 0.01, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
ZERO = {"one": 1.0, "zero": 0.0, "nan": math.nan}

# ------------------------------------------------------------------------------------------- the reference


def ratio_of(near: float, far: float, rule: str = "one") -> float:
    """One ratio, in the words of the definition."""
    if math.isinf(far):
        return math.nan
    if rule == "mostlyai":
        return (near + 1e-8) / (far + 1e-8)
    if rule == "syntheval":
        return near / (far + 1e-16)
    return near / far if far > 0 else ZERO[rule]


def ratios_of(matrix: np.ndarray, rule: str = "one") -> np.ndarray:
    lines = [[*sorted(line), math.inf, math.inf][:2] for line in matrix.tolist()]
    return np.array([ratio_of(near, far, rule) for near, far in lines])


def summary(ratios: np.ndarray) -> dict[str, Any]:
    """The keys of one direction."""
    x = ratios[~np.isnan(ratios)]
    out: dict[str, Any] = {"n": len(ratios), "n_nan": len(ratios) - len(x)}
    out["mean"] = math.fsum(x) / len(x) if len(x) else None
    out["standard_error"] = float(np.std(x, ddof=1)) / len(x) ** 0.5 if len(x) > 1 else None
    out |= {name: float(np.quantile(x, q)) if len(x) else None for name, q in QUANTILES.items()}
    out["share_below_half"] = float(np.mean(x < 0.5)) if len(x) else None
    out["tenth_smallest"] = sorted(x)[9] if len(x) > 9 else None
    return out


def pairs(a: np.ndarray, b: np.ndarray) -> float:
    """P(a < b) + P(a = b) / 2."""
    a, b = a[~np.isnan(a)][:, None], b[~np.isnan(b)]
    return float(((a < b) + 0.5 * (a == b)).mean()) if a.size and b.size else math.nan


def check_direction(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        close = {"mean": 1e-15, "standard_error": 1e-9}.get(key)  # squares are summed in units of 2^-60
        assert found[key] == (value if close is None or value is None else pytest.approx(value, abs=close)), key


def check(result: Result, given: dict[tuple[str, str], np.ndarray], rule: str = "one") -> None:
    """All that needs no relabelling."""
    ratios = {pair: ratios_of(matrix, rule) for pair, matrix in given.items()}
    for (q, r), x in ratios.items():
        check_direction(result.details[f"{q}->{r}"], summary(x))
    ours, theirs, across = (ratios[p] for p in ((SYNTHETIC, TRAIN), (SYNTHETIC, HOLDOUT), (HOLDOUT, TRAIN)))
    told = result.details["difference"]
    assert result.value == summary(ours)["q05"]
    assert result.expected == summary(theirs)["q05"]
    for name, other in (("a", theirs), ("b", across)):
        low = summary(other)["q05"]
        apart = None if result.value is None or low is None else result.value - low
        assert told[f"family_{name}"] == apart
        assert told[f"theta_{name}"] == pytest.approx(pairs(ours, other), abs=1e-13, nan_ok=True)


def law(matrix: np.ndarray, sides: np.ndarray, k: int) -> list[tuple[float, float]]:
    """Both statistics of every draw, on the fixed cells, by loops."""

    def low(counts: np.ndarray) -> float:
        below = np.cumsum(counts) / counts.sum()
        j = int(np.argmax(below >= 0.05 - 1e-15))
        if j == 0:
            return 0.0
        return float(np.interp(0.05, [below[j - 1], below[j]], [EDGES[j - 1], EDGES[j]]))

    out = []
    for side in sides:
        cells = []
        for mine in (side, ~side):
            ratios = [ratio_of(*cut_nearest(line, mine, k, 2)) for line in matrix]
            cells.append(np.array([sum(x > EDGES) for x in ratios if not math.isnan(x)]))
        counts = [np.bincount(c, minlength=len(EDGES)) for c in cells]
        out.append((low(counts[1]) - low(counts[0]), pairs(cells[0].astype(float), cells[1].astype(float))))
    return out


def random_tables(seed: int, n: int = 60, copies: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    train, holdout = mixed(rng, 40), mixed(rng, 30)
    return {TRAIN: train, HOLDOUT: holdout, SYNTHETIC: with_copies(rng, mixed(rng, n), train, copies)}


# ------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("seed", range(3))
def test_against_loops(seed: int) -> None:
    tables = random_tables(seed, copies=10 * seed)
    frames = {role: frame(table) for role, table in tables.items()}
    reports = [daskpriv.evaluate(**frames, metrics=[Nndr()], block_rows=b) for b in (None, 7)]
    found = reports[0].metrics["nndr"]
    check(found, matrices(tables))
    for report in reports:
        told = report.to_dict()["metrics"]["nndr"]
        assert json.dumps(told) == json.dumps(reports[0].to_dict()["metrics"]["nndr"])


@pytest.mark.parametrize("most", [5, 64])
def test_the_law_is_that_of_relabelling(most: int) -> None:
    given = matrices(random_tables(3, n=12, copies=2))
    with patch.object(_pooled, "MOST", most):
        result = run(Nndr(), given, block_rows=5)
        k = _pooled.list_length(Facts({TRAIN: 40, HOLDOUT: 30}, 3), 2)
    assert k == {5: 5, 64: 31}[most]
    whole = np.hstack([given[SYNTHETIC, TRAIN], given[SYNTHETIC, HOLDOUT]])
    some = 150
    expected = law(whole, first_side(labels(40, 30, 0), 70)[: some + 1], k)
    for place, test in enumerate(result.tests):
        assert test.observed == pytest.approx(expected[0][place], abs=1e-12)
        np.testing.assert_allclose(test.drawn[:some], [x[place] for x in expected[1:]], atol=1e-12)
    assert result.p_value == result.details["p"] == result.tests[0].p_value
    assert result.details["p_theta"] == result.tests[1].p_value


@settings(max_examples=25, derandomize=True)
@given(
    st.integers(2, 6), st.integers(1, 6), st.integers(1, 15), st.integers(0, 2**32), st.sampled_from(RULES), st.data()
)
def test_any_distances(n_train: int, n_holdout: int, n: int, seed: int, rule: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    levels = data.draw(st.sampled_from([LEVELS, [0.0], [math.inf], [0.5], [0.0, 1e-9, 0.3]]))
    given = {
        (SYNTHETIC, TRAIN): rng.choice(levels, (n, n_train)),
        (SYNTHETIC, HOLDOUT): rng.choice(levels, (n, n_holdout)),
        (HOLDOUT, TRAIN): rng.choice(levels, (n_holdout, n_train)),
    }
    results = [run(Nndr(rule), given, block_rows) for block_rows in (4, 1000)]
    check(results[0], given, rule)
    assert repr(results[0].details) == repr(results[1].details)
    assert (results[0].p_value is None) == (not results[0].tests)
    for test in results[0].tests:
        assert 1 / 2000 <= test.p_value <= 1
        assert not np.isnan(test.drawn).any()


def test_a_holdout_without_second_neighbours_is_not_tested() -> None:
    near = np.full((3, 40), 0.25)
    one_near = np.full((3, 40), math.inf)
    one_near[:, 0] = 0.125
    given = {(SYNTHETIC, TRAIN): near, (SYNTHETIC, HOLDOUT): one_near, (HOLDOUT, TRAIN): np.full((40, 40), 0.5)}
    result = run(Nndr(), given)
    assert (result.value, result.expected, result.p_value, result.tests) == (1.0, None, None, ())
    assert "Not tested" in result.reading


@pytest.mark.parametrize(
    ("rule", "both", "copy", "usual"),
    [
        ("one", 1.0, 0.0, 0.5),
        ("zero", 0.0, 0.0, 0.5),
        ("nan", None, 0.0, 0.5),
        ("mostlyai", 1.0, 1e-8 / (0.5 + 1e-8), (0.25 + 1e-8) / (0.5 + 1e-8)),
        ("syntheval", 0.0, 0.0, 0.25 / (0.5 + 1e-16)),
    ],
)
def test_what_zero_over_zero_is(rule: str, both: float | None, copy: float, usual: float) -> None:
    lines = {"both": [0.0, 0.0, 0.5], "copy": [0.5, 0.0, 0.5], "usual": [0.5, 0.25, 0.75]}
    found = {n: run(Nndr(rule), {(SYNTHETIC, TRAIN): np.array([line])}).value for n, line in lines.items()}
    assert found == {"both": both, "copy": copy, "usual": usual}
    with pytest.raises(ValueError, match="zero_zero"):
        Nndr("two")


# ------------------------------------------------------------------------------------------- verdicts


def test_copies_leak_and_fresh_rows_do_not() -> None:
    rng = np.random.default_rng(5)
    train, holdout, fresh = (rng.random((200, 4)) for _ in range(3))

    def apart(synthetic: np.ndarray) -> Result:
        return run(Nndr(), by_numbers(synthetic, train, holdout))

    leaky, good = apart(np.vstack([train[:80], fresh[:120]])), apart(fresh)
    assert (leaky.verdict, leaky.value, leaky.p_value) == (Verdict.LEAK, 0.0, 1 / 2000)
    assert good.verdict is not Verdict.LEAK
    assert good.p_value is not None
    assert good.p_value > 0.05
    assert leaky.expected == pytest.approx(0.45, abs=0.25)


def by_numbers(synthetic: np.ndarray, train: np.ndarray, holdout: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """Mean absolute differences."""

    def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.abs(a[:, None] - b).mean(axis=2)

    return {
        (SYNTHETIC, TRAIN): between(synthetic, train),
        (SYNTHETIC, HOLDOUT): between(synthetic, holdout),
        (HOLDOUT, TRAIN): between(holdout, train),
    }


@pytest.mark.parametrize("seed", [0])
def test_false_alarms_without_a_leak(seed: int) -> None:
    """Unequal tables, coarse numbers with many ties, far too short lists: still 5 % at most."""
    rng = np.random.default_rng(seed)
    alarms, runs = np.zeros(2), 100
    with patch.object(_pooled, "MOST", 4):
        for _ in range(runs):
            real, synthetic = rng.integers(0, 6, (60, 3)) / 5, rng.integers(0, 6, (40, 3)) / 5
            result = run(Nndr(), by_numbers(synthetic, real[:45], real[45:]))
            alarms += [t.p_value <= 0.05 for t in result.tests]
    assert (alarms / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5).all()


# ------------------------------------------------------------------------------------------- degenerate inputs


def test_without_a_holdout() -> None:
    tables = random_tables(1)
    del tables[HOLDOUT]
    result = run(Nndr(), matrices(tables))
    check_direction(result.details["synthetic->train"], summary(ratios_of(matrices(tables)[SYNTHETIC, TRAIN])))
    assert (result.p_value, result.expected, result.verdict) == (None, None, Verdict.NOT_EVALUATED)
    assert "without a holdout" in result.reading


@pytest.mark.parametrize(
    "case", ["one holdout row", "train is synthetic", "all alike", "one synthetic row", "50 times"]
)
def test_degenerate_tables(case: str) -> None:
    tables = random_tables(2)
    if case == "one holdout row":
        tables[HOLDOUT] = {name: cells[:1] for name, cells in tables[HOLDOUT].items()}
    elif case == "train is synthetic":
        tables[SYNTHETIC] = tables[TRAIN]
    elif case == "all alike":
        tables = {role: {n: cells[:1] * len(cells) for n, cells in tables[TRAIN].items()} for role in tables}
    elif case == "one synthetic row":
        tables[SYNTHETIC] = {name: cells[:1] for name, cells in tables[SYNTHETIC].items()}
    else:
        tables[SYNTHETIC] = {name: cells * 20 for name, cells in tables[SYNTHETIC].items()}
        tables[TRAIN] = {name: cells[:24] for name, cells in tables[TRAIN].items()}
    report = daskpriv.evaluate(**{role: frame(table) for role, table in tables.items()}, metrics=[Nndr()])
    result = report.metrics["nndr"]
    check(result, matrices(tables))
    json.dumps(report.to_dict(), allow_nan=False)
    if case == "one holdout row":
        assert (result.p_value, result.expected) == (None, None)
        assert "Not tested" in result.reading
    elif case == "all alike":
        assert (result.p_value, result.value, result.expected) == (1.0, 1.0, 1.0)
    else:
        assert result.p_value is not None


# ------------------------------------------------------------------------------------------- golden numbers


@pytest.mark.published
@pytest.mark.parametrize("generator", ["mostly", "synthpop"])
def test_golden_quantiles(shared: Path, adult: Path, generator: str) -> None:
    rows = json.loads((shared / "golden" / "gower_exact.json").read_text())["rows"]
    golden = next(r for r in rows if (r["dataset"], r["synthesizer"]) == ("adult", generator))
    few = labels(24_421, 24_421, 0, draws=1)
    # The quantiles need no longer lists, and no draws.
    with patch.object(_pooled, "MOST", 2), patch("daskpriv.metrics.nndr.drawn_labels", lambda *_: few):
        report = daskpriv.evaluate(
            train=adult / "train.parquet",
            holdout=adult / "holdout.parquet",
            synthetic=adult / f"synthetic_{'good' if generator == 'mostly' else 'leaky'}.parquet",
            metrics=[Nndr()],
            range_from="all",
        )
    for side in ("train", "holdout"):
        found, expected = report.metrics["nndr"].details[f"synthetic->{side}"], golden[side]
        for key, name in (("mean", "nndr_mean"), ("q05", "nndr_p5"), ("median", "nndr_p50")):
            assert found[key] == pytest.approx(expected[name], abs=1e-9), (side, key)
