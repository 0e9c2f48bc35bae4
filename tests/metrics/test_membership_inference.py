"""Membership inference against plain loops, its required properties, degenerate tables, and published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.metrics import _attacks, membership_inference
from daskpriv.metrics._clearbox_mi import ADVERSARY, sample_size, sampled_rows
from daskpriv.metrics._guesses import mean_risk_interval
from daskpriv.metrics.base import Result
from daskpriv.metrics.membership_inference import RATES, MembershipInference
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.presets import preset as preset_named
from daskpriv.session import engine_for, executor_for, open_any
from daskpriv.space.gower import Missing
from daskpriv.stats.intervals import hypergeometric_tail
from daskpriv.stats.labels import labels
from tests.reference import Col, Rows, distances, ranges_for

COLUMNS = [Col("a", "numeric"), Col("b", "numeric"), Col("c", "nominal")]


def measured(
    metric: MembershipInference,
    train: Any,
    holdout: Any,
    synthetic: Any,
    adversary: Any = None,
    *,
    preset: str | None = None,
    missing: str | None = None,
    block_rows: int | None = None,
    seed: int = 0,
) -> Result:
    """The metric on the engine, without gates and reports; an adversary's table as a fourth one."""
    chosen = preset_named(preset)
    options = chosen.space if missing is None else replace(chosen.space, missing=Missing(missing))
    given = {TRAIN: train, HOLDOUT: holdout, SYNTHETIC: synthetic, ADVERSARY: adversary}
    tables = {name: open_any(t, name) for name, t in given.items() if t is not None}
    real = tuple(n for n in (TRAIN, HOLDOUT) if n in tables)
    with executor_for(None) as executor:
        engine = engine_for(executor, tables, block_rows)
        surveyed = survey(engine, tables, Columns(), real, drops_ids=chosen.drops_ids)
        prepared = spaces_for(engine, surveyed, encode(engine, surveyed), options, real)
        facts = Facts({n: t.rows for n, t in tables.items()}, len(surveyed.encoding.columns), seed)
        return engine.measure([metric], facts, prepared.blocks, prepared.spaces)[0][metric.name]


# ---------------------------------------------------------------------------------------------- plain reference


def quotient(a: float, b: float) -> float:
    return 1.0 if a == b else math.inf if b == 0 else a / b


def plain_scores(train: Rows, holdout: Rows, synthetic: Rows, k: int) -> dict[str, tuple[list[float], list[float]]]:
    """{attack: (numbers of train rows, numbers of holdout rows)}."""
    ranges = ranges_for("real", COLUMNS, train, synthetic, [train, holdout], [train, holdout, synthetic])
    pool = {name: [*train[name], *holdout[name]] for name in train}
    n_train, n = len(train["a"]), len(pool["a"])
    k = min(k, len(synthetic["a"]), n - 1)
    to_synthetic = [sorted(line) for line in distances(COLUMNS, pool, synthetic, ranges)]
    among = distances(COLUMNS, pool, pool, ranges)
    to_others = [sorted(d for j, d in enumerate(line) if j != i) for i, line in enumerate(among)]
    found = {
        "distance": [s[0] for s in to_synthetic],
        "ratio": [quotient(s[0], r[0]) for s, r in zip(to_synthetic, to_others, strict=True)],
        "density": [quotient(s[k - 1], r[k - 1]) for s, r in zip(to_synthetic, to_others, strict=True)],
    }
    return {name: (v[:n_train], v[n_train:]) for name, v in found.items()}


def plain_auc(a: list[float], b: list[float]) -> Fraction:
    wins = sum(2 * (x < y) + (x == y) for x in a for y in b)
    return Fraction(wins, 2 * len(a) * len(b))


def plain_delong(a: list[float], b: list[float]) -> float:
    """Variance of the AUC by placement values."""
    theta = float(plain_auc(a, b))
    of_a = [float(plain_auc([x], b)) for x in a]
    of_b = [float(plain_auc(a, [y])) for y in b]
    return sum(sum((v - theta) ** 2 for v in values) / (len(values) - 1) / len(values) for values in (of_a, of_b))


def plain_rates(a: list[float], b: list[float], rate: float) -> tuple[int, int, float]:
    """True positives, false positives, interpolated true positive rate."""
    points = [(0, 0)] + [(sum(x <= t for x in a), sum(y <= t for y in b)) for t in sorted({*a, *b})]
    place = max(i for i, (_, alarms) in enumerate(points) if alarms <= rate * len(b))
    hits, alarms = points[place]
    if place + 1 == len(points):
        return hits, alarms, hits / len(a)
    more_hits, more_alarms = points[place + 1]
    part = (rate * len(b) - alarms) / (more_alarms - alarms)
    return hits, alarms, (hits + part * (more_hits - hits)) / len(a)


def plain_risks(a: list[float], b: list[float]) -> list[tuple[float, float]]:
    """Threshold and risk at each level; a threshold is the smallest number that so large a share does not exceed."""
    pool, out = sorted([*a, *b]), []
    for level in (0.5, 0.25, 0.2, 0.01):
        t = next(v for v in pool if sum(x <= v for x in pool) >= level * len(pool) - 1e-9)
        tpr, fpr = sum(x <= t for x in a) / len(a), sum(y <= t for y in b) / len(b)
        out.append((t, 2 * tpr / (tpr + fpr) - 1))
    return out


def check_against_plain(train: Rows, holdout: Rows, synthetic: Rows, metric: MembershipInference) -> None:
    found = measured(metric, *(pa.table(t) for t in (train, holdout, synthetic)), block_rows=16)
    json.dumps(found.details)
    plain = plain_scores(train, holdout, synthetic, metric.k)
    n_train, n_holdout = len(train["a"]), len(holdout["a"])
    for name, (a, b) in plain.items():
        check_roc(found.details["attacks"][name], a, b)
    check_tests(found, plain, labels(n_train, n_holdout, 0, metric.draws))
    a, b = plain["distance"]
    assert found.value == found.details["auc"] == pytest.approx(float(plain_auc(a, b)), abs=1e-12)
    wanted = plain_risks(a, b)
    assert found.details["thresholds"] == pytest.approx([t for t, _ in wanted], abs=1e-12)
    assert found.details["risks"] == pytest.approx([r for _, r in wanted], abs=1e-12)
    assert found.details["mean_risk"] == pytest.approx(sum(r for _, r in wanted) / 4, abs=1e-12)
    assert found.details["risks_clipped"] == pytest.approx([max(r, 0) for _, r in wanted], abs=1e-12)
    low, high, _ = found.details["mean_risk_interval"]
    assert -1 <= low <= found.details["mean_risk"] <= high <= 1


def check_roc(held: dict[str, Any], a: list[float], b: list[float]) -> None:
    auc = float(plain_auc(a, b))
    assert held["auc"] == pytest.approx(auc, abs=1e-12)
    gaps = [sum(x <= t for x in a) / len(a) - sum(y <= t for y in b) / len(b) for t in {*a, *b}]
    assert held["advantage"] == pytest.approx(max(0, *gaps), abs=1e-12)
    variance = plain_delong(a, b) if min(len(a), len(b)) > 1 else 0.0
    if variance < 1e-15:
        assert held["auc_interval"] is None
    else:
        half = 1.959963984540054 * variance**0.5
        assert held["auc_interval"][:2] == pytest.approx([max(0, auc - half), min(1, auc + half)], abs=1e-9)
    for rate in RATES:
        point = held["tpr_at_fpr"][f"{rate:g}"]
        hits, alarms, between = plain_rates(a, b, rate)
        assert (point["true_positives"], point["false_positives"]) == (hits, alarms)
        assert point["interpolated"] == pytest.approx(between, abs=1e-12)
        assert point["interval"][0] <= point["tpr"] <= point["interval"][1]


def check_tests(found: Result, plain: dict[str, tuple[list[float], list[float]]], drawn: Any) -> None:
    """With at most 100 real rows every number has a cell of its own, so that the statistics are exact."""
    n = drawn.n_first + drawn.n_second
    assert n <= 100
    is_first = drawn.sums(np.arange(n), np.arange(n), n).astype(bool)
    held = {t.name: t for t in found.tests}
    assert len(held) == len(found.tests) == 3 * len(plain)
    for name, (a, b) in plain.items():
        pool = np.array([*a, *b])
        of_draws = [float(plain_auc(pool[m].tolist(), pool[~m].tolist())) for m in is_first]
        assert held[f"auc {name}"].observed == pytest.approx(float(plain_auc(a, b)), abs=1e-12)
        np.testing.assert_allclose(held[f"auc {name}"].drawn, of_draws, rtol=0, atol=1e-12)
        for top, share in (("0.1%", 0.001), ("1%", 0.01)):
            smallest = pool <= np.sort(pool)[math.ceil(share * n) - 1]
            test = held[f"top {top} {name}"]
            assert test.observed == smallest[: len(a)].sum()
            np.testing.assert_array_equal(test.drawn, (is_first & smallest).sum(axis=1))
            tops = found.details["attacks"][name]["tops"][top]
            assert (tops["rows"], tops["train"]) == (smallest.sum(), smallest[: len(a)].sum())
    assert min(t.p_value for t in found.tests) <= found.p_value <= 1


def tables(seed: int, n_train: int, n_holdout: int, n_synthetic: int) -> list[Rows]:
    """Small numbers with ties and missing cells; some rows stand twice in train, in holdout too, or in synthetic."""
    rng = np.random.default_rng(seed)

    def drawn(n: int) -> Rows:
        return {
            "a": [None if rng.random() < 0.1 else int(v) for v in rng.integers(0, 6, n)],
            "b": [float(v) for v in rng.random(n).round(2)],
            "c": [None if rng.random() < 0.1 else str(v) for v in rng.choice(list("xyz"), n)],
        }

    train, holdout, synthetic = drawn(n_train), drawn(n_holdout), drawn(n_synthetic)
    for name in train:
        train[name][1], holdout[name][-1] = train[name][0], train[name][-1]
        for i in range(0, min(n_synthetic, n_train), 4):
            synthetic[name][i] = train[name][i]
    return [train, holdout, synthetic]


@pytest.mark.parametrize(
    ("n_train", "n_holdout", "n_synthetic"), [(40, 40, 30), (50, 13, 60), (8, 30, 3), (20, 1, 9), (3, 2, 1)]
)
def test_plain_reference(n_train: int, n_holdout: int, n_synthetic: int) -> None:
    check_against_plain(*tables(n_train, n_train, n_holdout, n_synthetic), MembershipInference(draws=99))


CELLS = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["x", "y", None])
)


@st.composite
def small_tables(draw: st.DrawFn) -> list[Rows]:
    out = []
    for least in (2, 1, 1):
        rows = draw(st.lists(CELLS, min_size=least, max_size=7))
        out.append({name: [r[i] for r in rows] for i, name in enumerate("abc")})
    # A column without any value has no type in Arrow; one certain cell each keeps the tables comparable.
    for table in out:
        table["a"][0], table["c"][0] = 1, "x"
    return out


@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(small_tables(), st.integers(1, 3))
def test_plain_reference_on_many_small_tables(three: list[Rows], k: int) -> None:
    check_against_plain(*three, MembershipInference(draws=19, k=k))


MUTATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "upside down": ("quotient", lambda right: lambda a, b: right(b, a)),
    "0/0 is 0": ("quotient", lambda _: lambda a, b: a / np.maximum(b, 1e-300)),
    "another neighbour": ("neighbours", lambda right: lambda facts, k: right(facts, k - 1)),
    "a cell too many": ("prefix", lambda right: lambda rows, share: right(rows, share) + 1),
    "ties lose": ("binned_auc", lambda right: lambda train, rows: right(train, 2 * rows) - 0.01),
    "strictly beyond": ("_next", lambda _: lambda values, threshold: (threshold, 0)),
}


@pytest.mark.parametrize("broken", MUTATIONS)
def test_a_broken_formula_is_noticed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    name, mutate = MUTATIONS[broken]
    monkeypatch.setattr(_attacks, name, mutate(getattr(_attacks, name)))
    with pytest.raises(AssertionError):
        check_against_plain(*tables(1, 40, 40, 30), MembershipInference(draws=19))


# ---------------------------------------------------------------------------------------------- properties


def frame(rng: np.random.Generator, n: int) -> pd.DataFrame:
    z = rng.normal(size=n)
    return pd.DataFrame(
        {
            "a": z + rng.normal(size=n),
            "b": (z + rng.normal(size=n)).round(1),
            "c": rng.choice(list("xyzw"), n),
            "d": rng.integers(0, 50, n).astype(float),
        }
    )


def leaked(train: pd.DataFrame, fresh: pd.DataFrame, rows: int) -> pd.DataFrame:
    return pd.concat([train.iloc[:rows], fresh.iloc[rows:]], ignore_index=True)


@pytest.mark.parametrize(("n_train", "n_holdout"), [(60, 60), (61, 60), (90, 20), (30, 1)])
def test_a_full_copy_is_the_worst(n_train: int, n_holdout: int) -> None:
    rng = np.random.default_rng(n_train)
    train = frame(rng, n_train)
    found = measured(MembershipInference(clearbox=True, draws=199), train, frame(rng, n_holdout), train)
    details = found.details
    assert details["auc"] == details["advantage"] == 1
    assert details["risks"] == details["risks_clipped"] == [1.0] * 4
    assert details["mean_risk"] == details["mean_risk_interval"][1] == 1
    assert details["thresholds"] == [0.0] * 4
    assert all(point["tpr"] == point["interpolated"] == 1 for point in details["tpr_at_fpr"].values())
    if n_holdout > 1:
        assert found.verdict == "LEAK"
        published = details["clearbox"]["membership_inference_mean_risk_score"]
        assert published < 0.6
        assert f"{published:.4f}" in found.warnings[0]
        assert "1.0000" in found.warnings[0]


def test_monotone_in_the_leak() -> None:
    rng = np.random.default_rng(5)
    train, holdout, fresh = (frame(rng, 240) for _ in range(3))
    found = [
        measured(MembershipInference(draws=99), train, holdout, leaked(train, fresh, n))
        for n in (0, 48, 96, 144, 192, 240)
    ]
    for attack in ("distance", "ratio", "density"):
        aucs = [f.details["attacks"][attack]["auc"] for f in found]
        assert aucs == sorted(aucs), attack
    for key in ("mean_risk", "advantage"):
        values = [f.details[key] for f in found]
        assert values == sorted(values), key
    for rate in ("0.001", "0.1"):
        values = [f.details["tpr_at_fpr"][rate]["tpr"] for f in found]
        assert values == sorted(values), rate
    assert [f.verdict for f in found] == ["INCONCLUSIVE"] + ["LEAK"] * 5


def test_no_leak() -> None:
    """The AUC is a half on average, and the smallest of nine p-values, adjusted, rejects as rarely as it should."""
    aucs, p_values = [], []
    for seed in range(60):
        rng = np.random.default_rng(100 + seed)
        made = [frame(rng, n) for n in (80, 50, 60)]
        found = measured(MembershipInference(draws=99), *made, seed=seed)
        aucs.append([a["auc"] for a in found.details["attacks"].values()])
        p_values.append(found.p_value)
    spread = np.std(aucs, axis=0) / len(aucs) ** 0.5
    assert np.all(np.abs(np.mean(aucs, axis=0) - 0.5) < 4 * spread)
    assert np.count_nonzero(np.array(p_values) <= 0.05) <= 8  # of 60; more has a chance below 0.5 %
    assert 0.25 < np.mean(p_values) < 0.8


def test_top_counts_are_hypergeometric() -> None:
    rng = np.random.default_rng(3)
    train, holdout = frame(rng, 200), frame(rng, 300)
    found = measured(MembershipInference(), train, holdout, leaked(train, frame(rng, 100), 9))
    test = next(t for t in found.tests if t.name == "top 1% distance")
    rows = found.details["attacks"]["distance"]["tops"]["1%"]["rows"]
    assert rows == test.observed == 9
    counts = np.bincount(test.drawn.astype(int), minlength=rows + 1)
    tails = np.cumsum(counts[::-1])[::-1] / len(test.drawn)
    exact = [hypergeometric_tail(h, 500, 200, rows) for h in range(rows + 1)]
    np.testing.assert_allclose(tails, exact, atol=0.05)
    assert test.p_value == pytest.approx(exact[9], abs=0.001)  # 9 of 9: 0.0002


def test_the_interval_of_the_mean_risk_covers() -> None:
    """Train is copied with chance 0.1, else like the holdout: the share of train up to each threshold is known."""
    n_train, n_holdout, copied = 200, 120, 0.1
    weight = n_train / (n_train + n_holdout)
    risks = []
    for level in (0.5, 0.25, 0.2, 0.01):
        t = max((level - weight * copied) / (weight * (1 - copied) + 1 - weight), 0.0)
        tpr = copied + (1 - copied) * t
        risks.append((tpr - t) / (tpr + t))
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        a = np.where(rng.random(n_train) < copied, 0.0, rng.random(n_train))
        b = rng.random(n_holdout)
        ends = [np.sort([*a, *b])[math.ceil(level * 320) - 1] for level in (0.5, 0.25, 0.2, 0.01)]
        hits, alarms = [int((a <= t).sum()) for t in ends], [int((b <= t).sum()) for t in ends]
        low, high, _ = mean_risk_interval(hits, alarms, Facts({TRAIN: n_train, HOLDOUT: n_holdout}, 1))
        held += low <= np.mean(risks) <= high
    assert held >= 186


def test_layout_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    train, holdout = frame(rng, 60), frame(rng, 45)
    synthetic = leaked(train, frame(rng, 50), 10)
    metric = MembershipInference(draws=99, clearbox=True)

    def told(block_rows: int | None) -> Any:
        report = daskpriv.evaluate(
            train=train, holdout=holdout, synthetic=synthetic, metrics=[metric], block_rows=block_rows
        )
        return report.to_dict()["metrics"]

    whole = told(None)
    assert told(7) == whole
    monkeypatch.setattr(membership_inference, "WINDOW", 60)  # several walks through the ordered values
    assert told(7) == whole


def test_only_the_distance_needs_no_search_among_real_rows() -> None:
    rng = np.random.default_rng(8)
    made = [frame(rng, n) for n in (50, 40, 30)]
    facts = Facts({TRAIN: 50, HOLDOUT: 40, SYNTHETIC: 30}, 4)
    alone = MembershipInference(attacks=("distance",), draws=99)
    assert {(r.reference, r.k) for r in alone.needs(facts)} == {(SYNTHETIC, 1)}
    one, all_of_them = measured(alone, *made), measured(MembershipInference(draws=99), *made)
    assert one.details["attacks"]["distance"]["tpr_at_fpr"] == all_of_them.details["tpr_at_fpr"]
    assert (one.value, one.interval) == (all_of_them.value, all_of_them.interval)
    assert len(one.tests) == 3


def test_prevalence_weighs_precision_only() -> None:
    rng = np.random.default_rng(9)
    made = [frame(rng, n) for n in (50, 40, 30)]
    rare = measured(MembershipInference(draws=9, prevalence=0.01), *made).details
    for tp, fp, p, even in zip(
        *(rare[k] for k in ("true_positives", "false_positives", "precisions_at_prevalence", "precisions")), strict=True
    ):
        assert p == pytest.approx(0.01 * tp / 50 / (0.01 * tp / 50 + 0.99 * fp / 40))
        assert even == pytest.approx(tp / 50 / (tp / 50 + fp / 40))


def test_without_a_holdout() -> None:
    rng = np.random.default_rng(0)
    found = measured(MembershipInference(clearbox=True), frame(rng, 20), None, frame(rng, 20))
    assert (found.value, found.p_value, found.verdict) == (None, None, "NOT_EVALUATED")
    assert "no holdout" in found.reading


@pytest.mark.parametrize(
    "wrong",
    [
        {"attacks": ()},
        {"attacks": ("ratio",)},
        {"attacks": ("distance", "x")},
        {"attacks": ("distance", "distance")},
        {"k": 0},
        {"prevalence": 1.0},
    ],
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MembershipInference(**wrong)


# ---------------------------------------------------------------------------------------------- degenerate tables


def test_all_rows_equal() -> None:
    same = pd.DataFrame({"a": [1.0] * 12, "c": ["x"] * 12})
    found = measured(MembershipInference(draws=99, clearbox=True), same, same.head(5), same.head(3))
    assert [a["auc"] for a in found.details["attacks"].values()] == [0.5] * 3
    assert found.interval is None
    assert found.p_value == 1.0
    assert found.mde is None
    assert found.details["risks"] == [0.0] * 4
    assert found.details["clearbox"]["membership_inference_mean_risk_score"] == 0.0


def test_a_holdout_inside_train() -> None:
    rng = np.random.default_rng(1)
    train = frame(rng, 40)
    found = measured(MembershipInference(draws=99), train, train.head(40), leaked(train, frame(rng, 40), 20))
    assert all(a["auc"] == 0.5 and a["advantage"] == 0.0 for a in found.details["attacks"].values())
    assert found.verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("n_holdout", "n_synthetic"), [(1, 1), (1, 40), (2, 1), (3, 1000)])
def test_tiny_and_lopsided_tables(n_holdout: int, n_synthetic: int) -> None:
    rng = np.random.default_rng(n_synthetic)
    made = [frame(rng, n) for n in (20, n_holdout, n_synthetic)]
    found = measured(MembershipInference(draws=99, clearbox=True), *made)
    assert 0 <= found.value <= 1
    assert 0 < found.p_value <= 1
    assert (found.interval is None) or n_holdout > 1
    json.dumps(found.details)
    if n_holdout == 1:
        # One of 21 rows: no test can reject at 5 %, however the labels fall (a p-value of about 1 / 21 for each).
        assert min(t.p_value for t in found.tests) > 0.01


def test_infinite_distances() -> None:
    """`anonymeter`: a number and a missing cell are no neighbours at all."""
    train = pa.table({"a": [1.0, None, 3.0, None], "c": ["x", "y", "x", "z"]})
    holdout = pa.table({"a": [None, 2.0], "c": ["x", "x"]})
    synthetic = pa.table({"a": [1.0, 2.5], "c": ["x", "x"]})
    found = measured(MembershipInference(draws=99, clearbox=True), train, holdout, synthetic, missing="anonymeter")
    # Distances 0, inf, 1/4, inf against inf, 1/4.
    assert found.details["auc"] == (1.0 + 0.25 + 0.75 + 0.25) / 4
    assert found.details["clearbox"]["membership_inference_mean_risk_score"] is None  # 6 rows: nothing is sampled
    assert 0 < found.p_value <= 1


# ---------------------------------------------------------------------------------------------- the published test


GOLDEN = Path(__file__).parents[1] / "data" / "golden"
CALL = "adversary"


def cases(path: Path) -> dict[str, Any]:
    found = {}
    for name, case in json.loads(path.read_text())["cases"].items():
        call = next((v for k, v in case["calls"].items() if k.startswith(CALL)), None)
        if call is not None:
            found[name] = (case, call)
    return found


def adversary(train: pa.Table, holdout: pa.Table) -> pa.Table:
    m = sample_size(len(train), len(holdout))
    return pa.concat_tables([train.take(sampled_rows(len(train), m)), holdout.take(sampled_rows(len(holdout), m))])


def check_published(expected: dict[str, Any], train: pa.Table, holdout: pa.Table, synthetic: pa.Table) -> None:
    """Thresholds to float32, precisions and the score to the last digits."""
    found = measured(
        MembershipInference(attacks=("distance",), draws=9, clearbox=True),
        train,
        holdout,
        synthetic,
        adversary(train, holdout),
        preset="clearbox",
    ).details["clearbox"]
    assert found["own_table"]
    for key, tolerance in (("adversary_distance_thresholds", 5e-8), ("adversary_precisions", 1e-15)):
        assert found[key] == pytest.approx(expected[key], abs=tolerance), key
    score = "membership_inference_mean_risk_score"
    assert found[score] == pytest.approx(expected[score], abs=1e-15)
    assert found["n_adversary"] == expected.get("n_adversary", found["n_adversary"])


def test_published_census() -> None:
    folder = Path(__file__).parents[1] / "data" / "sure-census"
    tables = [pq.read_table(folder / f"{n}.parquet") for n in ("train", "holdout", "syn_clearbox")]
    check_published(cases(GOLDEN / "clearbox_sure.json")["sure-census/clearbox"][1], *tables)


def test_published_numbers_of_sure(shared: Path) -> None:
    found = cases(shared / "golden" / "clearbox_sure.json")
    assert len(found) == 8
    for name, (case, expected) in found.items():
        if name == "sure-census/clearbox":
            continue  # above
        folder, generator = shared / name.split("/")[0], name.split("/")[1]
        synthetic = pq.read_table(folder / f"syn_{generator}.parquet")
        if "head" in case["synthetic_rows_used"]:
            synthetic = synthetic.slice(0, 4000)
        real = [pq.read_table(folder / f"{n}.parquet") for n in ("train", "holdout")]
        check_published(expected, *real, synthetic)


def test_published_numbers_of_the_kit(shared: Path) -> None:
    found = cases(shared / "golden" / "clearbox_kit.json")
    assert len(found) == 2
    for name, (_, expected) in found.items():
        folder, generator = shared / name.split("/")[0], name.split("/")[1]
        sizes = {"train": 6000, "holdout": 3000, f"syn_{generator}": 3000}
        check_published(expected, *(pq.read_table(folder / f"{n}.parquet").slice(0, m) for n, m in sizes.items()))


def test_the_sample_is_that_of_pandas() -> None:
    for n, m in ((999, 49), (41, 20), (7, 7)):
        expected = pd.DataFrame({"x": range(n)}).sample(m, replace=False, random_state=42)["x"]
        assert sampled_rows(n, m).tolist() == sorted(expected)


def test_the_published_test_without_a_table_of_its_own() -> None:
    """The sampled rows by the distances of this report, against NumPy."""
    rng = np.random.default_rng(4)
    train, holdout = frame(rng, 150), frame(rng, 100)
    synthetic = leaked(train, frame(rng, 90), 30)
    found = measured(MembershipInference(draws=9, clearbox=True), train, holdout, synthetic, block_rows=40)
    m = sample_size(150, 100)
    assert m == 25
    fit = [train, holdout]
    near = [
        daskpriv.nearest_neighbours(t.iloc[sampled_rows(len(t), m)], synthetic, k=1, fit=fit).distance[:, 0]
        for t in fit
    ]
    d = np.concatenate(near).astype(np.float32)
    levels = [0.5, 0.25, 0.2, float(d.min()) + 0.01]
    thresholds = [float(np.quantile(d.astype(float), q)) for q in levels]
    guesses = [d < np.float32(t) for t in thresholds]
    precisions = [max(g[:m].sum() / g.sum(), 0.5) if g.any() else 0.5 for g in guesses]
    held = found.details["clearbox"]
    assert not held["own_table"]
    assert held["adversary_distance_thresholds"] == pytest.approx(thresholds, abs=1e-8)
    assert held["adversary_precisions"] == pytest.approx(precisions)
    assert held["membership_inference_mean_risk_score"] == pytest.approx(max(2 * np.mean(precisions) - 1, 0))


def test_the_published_test_where_it_fails() -> None:
    """No row sampled, or the smallest distance is no quantile level."""
    far = pd.DataFrame({"c": ["q"] * 10})
    for n_train, n_holdout in ((3, 3), (20, 20), (2, 90)):
        real = [pd.DataFrame({"c": ["x"] * n}) for n in (n_train, n_holdout)]
        found = measured(MembershipInference(draws=9, clearbox=True), *real, far)
        assert found.details["clearbox"]["membership_inference_mean_risk_score"] is None
        assert "undefined" in found.warnings[0]
