"""Gates: each fails on the input it is there for, passes on a fair one, and takes away the verdicts that rest on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import daskpriv
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts
from daskpriv.gates import Gate, gates, interpretable
from daskpriv.metrics import SplitCheck
from daskpriv.metrics._clearbox_mi import ADVERSARY
from daskpriv.policy import Policy, policy_of
from daskpriv.protocol import Effect, LabelTest, Result, Verdict
from daskpriv.report.model import Report
from daskpriv.stats.detectable import detectable
from daskpriv.subjects import Subjects
from tests.metrics.searched import searched

MIXED, APART, ONE, FIDELITY, POWER, SIZES, DIFFERENT, GIVEN = (
    "train and holdout are mixed",
    "holdout is apart from train",
    "one distance",
    "synthetic rows look like real ones",
    "enough rows to detect the margin",
    "sizes",
    "different tables",
    "holdout",
)
POLICY = policy_of(None)

# ---------------------------------------------------------------------------------------------- gates alone


def surveyed(rows: Mapping[str, int], prints: Mapping[str, int] | None = None) -> Any:
    """As much of a survey as gates look at."""
    prints = prints or {name: i for i, name in enumerate(rows)}
    return SimpleNamespace(
        tables={name: SimpleNamespace(rows=n) for name, n in rows.items()},
        summaries={name: SimpleNamespace(rows=n, fingerprint=prints[name]) for name, n in rows.items()},
    )


def split_result(
    agreement: float = 0.5, p: float = 1.0, twins: tuple[float, float] = (0.5, 1.0), expected: float = 0.5
) -> Result:
    """What a split check found."""
    return Result(
        agreement,
        details={
            "nearest": {"pairs": 400, "agreement": agreement, "expected": expected, "p_value": p, "p_too_few": 1.0},
            "twins": {"pairs": 40, "agreement": twins[0], "expected": 0.5, "p_value": 1.0, "p_too_few": twins[1]},
        },
    )


def by_name(
    rows: Mapping[str, int] | None = None,
    *,
    prints: Mapping[str, int] | None = None,
    results: Mapping[str, Result] | None = None,
    split: Result | None = None,
    per_pair: bool = False,
    policy: Policy = POLICY,
    subjects: Subjects | None = None,
) -> dict[str, Gate]:
    given = surveyed(rows or {TRAIN: 200, HOLDOUT: 200, SYNTHETIC: 200}, prints)
    found = gates(given, results or {}, split, per_pair, policy, subjects)
    assert len({g.name for g in found}) == len(found)
    assert all(g.message.endswith(".") for g in found)
    return {g.name: g for g in found}


def changed(**values: float) -> Policy:
    return replace(POLICY, gates={**POLICY.gates, **values})


def test_which_gates_there_are() -> None:
    assert list(by_name({TRAIN: 200, SYNTHETIC: 200})) == [DIFFERENT, GIVEN, SIZES, ONE]
    assert list(by_name(split=split_result())) == [DIFFERENT, GIVEN, SIZES, MIXED, APART, ONE]
    assert [g.stops for g in by_name(split=split_result()).values()] == [(), (), (), ("*",), ("*",), ("*",)]
    assert [g.caps for g in by_name(split=split_result()).values()] == [(), (), ("*",), (), (), ()]


def test_every_threshold_of_the_policy_is_used() -> None:
    class Watched(dict[str, float]):
        def __getitem__(self, key: str) -> float:
            asked.add(key)
            return super().__getitem__(key)

    asked: set[str] = set()
    dcr = Result(0.1, details={f"{SYNTHETIC}->{TRAIN}": {"median": 0.2}, f"{HOLDOUT}->{TRAIN}": {"median": 0.1}})
    by_name(split=split_result(0.9, 0.001), results={"dcr": dcr}, policy=replace(POLICY, gates=Watched(POLICY.gates)))
    assert asked == set(POLICY.gates)


def test_a_missing_holdout_is_told() -> None:
    found = by_name({TRAIN: 200, SYNTHETIC: 200})[GIVEN]
    assert not found.passed
    assert "no holdout" in found.message
    assert by_name()[GIVEN].passed


@pytest.mark.parametrize(
    ("prints", "told"),
    [
        ({TRAIN: 1, HOLDOUT: 2, SYNTHETIC: 3}, None),
        ({TRAIN: 1, HOLDOUT: 2, SYNTHETIC: 1}, "synthetic and train hold the same rows"),
        ({TRAIN: 1, HOLDOUT: 2, SYNTHETIC: 2}, "synthetic and holdout hold the same rows"),
        ({TRAIN: 1, HOLDOUT: 1, SYNTHETIC: 3}, "holdout and train hold the same rows"),
    ],
)
def test_tables_given_twice(prints: dict[str, int], told: str | None) -> None:
    found = by_name(prints=prints)[DIFFERENT]
    assert found.passed == (told is None)
    assert told is None or told in found.message
    different = by_name({TRAIN: 200, HOLDOUT: 100, SYNTHETIC: 150}, prints=prints)[DIFFERENT]
    assert different.passed  # equal prints of tables of other sizes are chance


def test_sizes() -> None:
    assert by_name({TRAIN: 100, HOLDOUT: 100, SYNTHETIC: 100})[SIZES].passed
    found = by_name({TRAIN: 100, HOLDOUT: 99, SYNTHETIC: 12, ADVERSARY: 3})[SIZES]
    assert not found.passed
    assert found.message == (
        "fewer than 100: holdout (99 rows), synthetic (12 rows); BOUNDED cannot be said, LEAK can."
    )
    assert by_name({TRAIN: 9, HOLDOUT: 9, SYNTHETIC: 9}, policy=changed(rows=9))[SIZES].passed
    assert not by_name(policy=changed(rows=201))[SIZES].passed
    assert not by_name(policy=changed(rows=200.5))[SIZES].passed


def test_sizes_count_subjects_where_rows_have_them() -> None:
    """Four rows of a person are one person."""
    subjects = Subjects.of(np.arange(200) // 4, 1000 + np.arange(200))
    found = by_name(subjects=subjects)[SIZES]
    assert found.message.startswith("fewer than 100: train (50 subjects);")
    assert by_name(subjects=Subjects.of(np.arange(200), 1000 + np.arange(200)))[SIZES].passed


@pytest.mark.parametrize(
    ("verdict", "left"),
    [
        (Verdict.BOUNDED, Verdict.INCONCLUSIVE),
        (Verdict.LEAK, Verdict.LEAK),
        (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (Verdict.NOT_EVALUATED, Verdict.NOT_EVALUATED),
        (Verdict.NOT_INTERPRETABLE, Verdict.NOT_INTERPRETABLE),
    ],
)
def test_small_tables_bound_nothing(verdict: Verdict, left: Verdict) -> None:
    result = Result(0.5, verdict)
    for rows, wanted in ((99, left), (100, verdict)):
        found = list(by_name({TRAIN: rows, HOLDOUT: 200, SYNTHETIC: 200}).values())
        assert interpretable({"m": result}, found)["m"].verdict is wanted


def test_what_stops_a_verdict_is_graver_than_what_caps_it() -> None:
    stopping, capping = Gate("s", False, "", ("*",)), Gate("c", False, "", caps=("m",))
    for found in ([stopping, capping], [capping, stopping]):
        assert interpretable({"m": Result(0.5, Verdict.BOUNDED)}, found)["m"].verdict is Verdict.NOT_INTERPRETABLE
    both = {"m": Result(0.5, Verdict.BOUNDED), "n": Result(0.5, Verdict.BOUNDED)}
    assert [r.verdict for r in interpretable(both, [capping]).values()] == [Verdict.INCONCLUSIVE, Verdict.BOUNDED]
    assert [r.verdict for r in interpretable(both, [replace(capping, passed=True)]).values()] == [Verdict.BOUNDED] * 2


@pytest.mark.parametrize("tests", [(), (LabelTest("t", 1.0, np.zeros(9)),)])
@pytest.mark.parametrize("verdict", [Verdict.LEAK, Verdict.BOUNDED, Verdict.INCONCLUSIVE])
def test_a_gate_for_all_stops_verdicts_with_tests_and_without(verdict: Verdict, tests: tuple[LabelTest, ...]) -> None:
    stopped = interpretable({"m": Result(0.5, verdict, tests=tests)}, [Gate("g", False, "", ("*",))])["m"]
    assert stopped.verdict is Verdict.NOT_INTERPRETABLE
    assert (stopped.value, stopped.tests) == (0.5, tests)
    described = {"m": Result(0.5, tests=tests)}
    assert interpretable(described, [Gate("g", False, "", ("*",))]) == described


@pytest.mark.parametrize(
    ("agreement", "p", "passed"),
    [
        (0.50, 1.0, True),
        (0.70, 0.0005, False),
        (0.30, 0.0005, False),  # less alike than chance: two-sided
        (0.70, 0.0100, False),
        (0.70, 0.0105, True),  # too few rows to say so
        (0.509, 0.0005, True),  # too small to matter
        (0.511, 0.0005, False),
    ],
)
def test_g0_needs_an_effect_and_a_test(agreement: float, p: float, passed: bool) -> None:
    assert by_name(split=split_result(agreement, p))[MIXED].passed is passed


def test_g0_follows_the_policy() -> None:
    split = split_result(0.6, 0.005)
    assert not by_name(split=split)[MIXED].passed
    assert by_name(split=split, policy=changed(split_p=0.004))[MIXED].passed
    assert by_name(split=split, policy=changed(split_effect=0.11))[MIXED].passed
    assert not by_name(split=split_result(0.501, 0.005), policy=changed(split_effect=0.0))[MIXED].passed


@pytest.mark.parametrize(("p", "passed"), [(1.0, True), (0.0105, True), (0.01, False), (0.0005, False)])
def test_g1_asks_whether_too_few_twins_agree(p: float, passed: bool) -> None:
    found = by_name(split=split_result(twins=(0.2, p)))[APART]
    assert found.passed is passed
    if not passed:
        assert found.message.startswith("80.0 % of the equal real rows stand across train and holdout, 50.0 %")
        assert by_name(split=split_result(twins=(0.2, p)), policy=changed(twins_p=p / 2))[APART].passed


def test_tables_without_pairs_pass_g0_and_g1() -> None:
    nothing = {"pairs": 0, "agreement": None, "expected": None, "p_value": 1.0, "p_too_few": 1.0}
    found = by_name(split=Result(None, details={"nearest": nothing, "twins": nothing}))
    assert found[MIXED].passed
    assert found[APART].passed


def test_g3_asks_for_one_distance() -> None:
    assert by_name()[ONE].passed
    assert not by_name(per_pair=True)[ONE].passed


@pytest.mark.parametrize(
    ("ours", "theirs", "passed"), [(0.1, 0.1, True), (0.3, 0.1, True), (0.3001, 0.1, False), (0.0, 0.1, True)]
)
def test_g4_compares_medians(ours: float, theirs: float, passed: bool) -> None:
    details = {f"{SYNTHETIC}->{TRAIN}": {"median": ours}, f"{HOLDOUT}->{TRAIN}": {"median": theirs}}
    ratio = changed(fidelity_ratio=3.0000001)
    found = by_name(results={"dcr": Result(0.1, details=details)}, policy=ratio)[FIDELITY]
    assert found.passed is passed
    assert found.stops == ("privacy_score",)
    assert by_name(results={"dcr": Result(0.1, details=details)}, policy=changed(fidelity_ratio=10))[FIDELITY].passed


@pytest.mark.parametrize(
    "details",
    [
        {},
        {f"{SYNTHETIC}->{TRAIN}": {"median": 0.1}},
        {f"{SYNTHETIC}->{TRAIN}": {"median": 0.1}, f"{HOLDOUT}->{TRAIN}": {"median": 0.0}},
    ],
)
def test_g4_needs_distances_of_the_holdout(details: dict[str, Any]) -> None:
    assert FIDELITY not in by_name(results={"dcr": Result(0.1, details=details)})


def effect(found: float | None) -> Effect:
    return Effect("share that is copied", (0.0, 0.1, 0.95), 0.05, 0.04, found)


@pytest.mark.parametrize(("mde", "passed"), [(0.04, True), (0.05, True), (0.06, False)])
def test_g5_compares_what_can_be_detected_with_the_margin(mde: float, passed: bool) -> None:
    bounded = {"dcr_share": Result(0.5, Verdict.BOUNDED, effect=effect(mde))}
    found = by_name(results=bounded)[POWER]
    assert found.passed is passed
    assert (found.stops, found.caps) == ((), () if passed else ("dcr_share",))
    assert f"dcr_share {100 * mde:.1f} % (margin 5.0 %)" in found.message
    left = interpretable(bounded, [found])["dcr_share"].verdict
    assert left is (Verdict.BOUNDED if passed else Verdict.INCONCLUSIVE)
    assert POWER not in by_name(results={"dcr_share": Result(None)})


@pytest.mark.parametrize(("found", "passed"), [(0.05, True), (0.051, False)])
def test_g5_asks_every_metric_that_was_judged(found: float, passed: bool) -> None:
    results = {"dcr_share": Result(0.5, effect=effect(0.01)), "theirs": Result(0.5, effect=effect(found))}
    gate = by_name(results=results)[POWER]
    assert gate.passed is passed
    assert gate.caps == (() if passed else ("theirs",))


def test_g5_where_nothing_varies() -> None:
    still = Result(0.5, Verdict.BOUNDED, p_value=1.0, effect=effect(math.inf))
    found = by_name(results={"membership_inference": still})[POWER]
    assert not found.passed
    assert found.caps == ("membership_inference",)
    assert "nothing varies" in found.message
    assert POWER not in by_name(results={"membership_inference": replace(still, effect=None)})


@pytest.mark.parametrize(("drawn", "wanted"), [([1.0, 1.0], math.inf), ([math.nan, 1.0], None)])
def test_what_is_found_where_no_spread_is_known(drawn: list[float], wanted: float | None) -> None:
    """A statistic that cannot vary has p = 1; with draws without a value, nothing is known."""
    observed = 1.0 if wanted else 2.0
    assert detectable(LabelTest("t", observed, np.array(drawn)), 1.0) == wanted


def test_g5_leaves_out_what_was_not_computed() -> None:
    assert POWER not in by_name(results={"nndr": Result(0.5, p_value=0.4, effect=effect(None))})


# ---------------------------------------------------------------------------------------------- the split check


def real_rows(points: np.ndarray, n_train: int, block: int) -> Iterator[Evidence]:
    """Evidence of all four searches among real rows, by blocks of query rows."""
    sides = {TRAIN: slice(0, n_train), HOLDOUT: slice(n_train, len(points))}
    distance = np.abs(points[:, None] - points[None, :]).max(axis=2)
    for role, mine in sides.items():
        n = mine.stop - mine.start
        for start in range(0, n, block):
            tables = {}
            for other, theirs in sides.items():
                part = distance[mine, theirs][start : start + block].copy()
                if other == role:  # a row is no neighbour of its own
                    part[np.arange(len(part)), start + np.arange(len(part))] = np.inf
                tables[role, other] = searched(part, 5, start)
            yield Evidence(role, tables)


def checked(points: np.ndarray, n_train: int, block: int = 1000, seed: int = 0) -> dict[str, Any]:
    metric = SplitCheck()
    state = metric.begin(Facts({TRAIN: n_train, HOLDOUT: len(points) - n_train, SYNTHETIC: 1}, points.shape[1], seed))
    partial: dict[str, Any] = {}
    for evidence in [*real_rows(points, n_train, block), Evidence(SYNTHETIC)]:
        partial = metric.combine(metric.chunk(state, evidence), partial)
    found = metric.advance(state, partial, {})
    assert isinstance(found, Result)
    return found.details


def test_the_split_check_counts_nearest_rows_of_the_same_side() -> None:
    rng = np.random.default_rng(0)
    points, n_train = rng.random((90, 2)), 50
    distance = np.abs(points[:, None] - points[None, :]).max(axis=2) + np.diag(np.full(90, np.inf))
    partner = distance.argmin(axis=1)
    same = ((np.arange(90) < n_train) == (partner < n_train)).sum()
    found = checked(points, n_train)
    assert (found["nearest"]["pairs"], found["nearest"]["agreement"]) == (90, same / 90)
    # Two different rows share a label with this chance under random labels.
    alike = (50 * 49 + 40 * 39) / (90 * 89)
    assert found["nearest"]["expected"] == pytest.approx(alike, abs=0.01)
    assert found["twins"]["pairs"] == 0
    assert checked(points, n_train, block=7) == found


def test_the_split_check_looks_at_twins_apart() -> None:
    """Twenty rows of train stand in the holdout again; the others have no twin."""
    rng = np.random.default_rng(1)
    points = rng.random((100, 2))
    points[60:80] = points[:20]
    found = checked(points, 60)
    assert (found["twins"]["pairs"], found["twins"]["agreement"]) == (40, 0.0)
    assert found["twins"]["p_too_few"] == 1 / 2000
    apart = points.copy()
    apart[:40:2], apart[1:40:2] = points[:20], points[:20]
    apart[60:80] = rng.random((20, 2))
    found = checked(apart, 60)  # all twins on one side: no sign of rows that crossed over
    assert (found["twins"]["agreement"], found["twins"]["p_too_few"]) == (1.0, 1.0)


def test_one_pair_of_twins_across_the_split_is_no_sign() -> None:
    """Half of all random splits would part it too."""
    points = np.random.default_rng(3).random((40, 2))
    points[30] = points[0]
    twins = checked(points, 20)["twins"]
    assert (twins["pairs"], twins["agreement"]) == (2, 0.0)
    parted = 2 * 20 * 20 / (40 * 39)
    assert twins["p_too_few"] == pytest.approx(parted, abs=4.5 * (0.25 / 1999) ** 0.5)


def test_the_split_check_is_calibrated() -> None:
    """Random splits of rows with many twins: small p-values are as rare as they should be."""
    rng = np.random.default_rng(2)
    found = [checked(rng.integers(0, 6, (70, 2)).astype(float), 30, seed=seed) for seed in range(150)]
    for key, p in (("nearest", "p_value"), ("twins", "p_value"), ("twins", "p_too_few")):
        for level in (0.05, 0.2):
            rate = np.mean([f[key][p] <= level for f in found])
            assert rate < level + 3 * (level * (1 - level) / 150) ** 0.5, (key, p)
    assert np.mean([f["nearest"]["p_value"] for f in found]) < 0.65  # and not merely large


# ---------------------------------------------------------------------------------------------- evaluations


def table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n), "z": rng.choice(list("abc"), n)})


def evaluated(train: Any, holdout: Any, synthetic: Any, **options: Any) -> tuple[Report, dict[str, bool]]:
    options = {"metrics": ["dcr", "dcr_share", "clones"], **options}
    report = daskpriv.evaluate(train=train, holdout=holdout, synthetic=synthetic, **options)
    return report, {g["name"]: g["passed"] for g in report.gates}


@pytest.fixture(scope="module")
def fair() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(7)
    return table(rng, 300), table(rng, 250), table(rng, 300)


def test_a_fair_evaluation_passes_all_gates(fair: tuple[pd.DataFrame, ...]) -> None:
    wide = replace(POLICY, margins={**POLICY.margins, "dcr_share": 0.4})
    report, passed = evaluated(*fair, policy=wide)
    assert set(passed) == {MIXED, APART, ONE, FIDELITY, POWER, SIZES, DIFFERENT, GIVEN}
    assert all(passed.values())
    assert Verdict.NOT_INTERPRETABLE not in {m.verdict for m in report.metrics.values()}


def test_few_random_splits_fail() -> None:
    failed = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = table(rng, 400)
        rows["y"] = rows["y"].round(0)
        rows = rows.assign(x=rows["x"].round(0)).sample(frac=1, random_state=seed)  # many twins
        report, passed = evaluated(rows.head(250), rows.tail(150), table(rng, 100), metrics=["dcr_share"], seed=seed)
        failed += [name for name in (MIXED, APART) if not passed[name]]
        stopped = report.metrics["dcr_share"].verdict is Verdict.NOT_INTERPRETABLE
        assert stopped == (not passed[MIXED] or not passed[APART])
    assert len(failed) <= 1  # one in a hundred


def test_a_sorted_split_looks_like_a_leak_and_is_stopped() -> None:
    """Train is older than the holdout, the synthetic rows follow train without copying it."""
    rng = np.random.default_rng(5)
    rows = table(rng, 600).sort_values("x")
    train, holdout = rows.tail(350), rows.head(250)
    synthetic = train.assign(y=rng.permutation(train["y"]), x=train["x"] + rng.normal(size=350) / 5)
    report, passed = evaluated(train, holdout, synthetic)
    assert not passed[MIXED]
    assert passed[APART]
    share = report.metrics["dcr_share"]
    assert share.verdict is Verdict.NOT_INTERPRETABLE
    assert share.p_value is not None
    assert share.p_value <= 0.001  # the number itself stays
    assert (report.verdict, report.leaks) == (Verdict.NOT_INTERPRETABLE, [])
    random = rows.sample(frac=1, random_state=0)
    report, passed = evaluated(random.head(350), random.tail(250), synthetic)
    assert passed[MIXED]
    assert report.metrics["dcr_share"].verdict is Verdict.INCONCLUSIVE


def test_a_holdout_of_training_rows_hides_a_leak_and_is_stopped(fair: tuple[pd.DataFrame, ...]) -> None:
    train, holdout, fresh = fair
    leaky = pd.concat([train.head(100), fresh.head(200)])
    report, passed = evaluated(train, holdout, leaky)
    assert passed[APART]
    assert {"clones", "dcr_share"} <= set(report.leaks)
    contaminated = pd.concat([holdout.head(150), train.head(100)])
    report, passed = evaluated(train, contaminated, leaky)
    assert not passed[APART]
    assert {report.metrics[n].verdict for n in ("clones", "dcr_share")} == {Verdict.NOT_INTERPRETABLE}
    assert report.metrics["dcr"].verdict is Verdict.NOT_EVALUATED
    assert report.verdict is Verdict.NOT_INTERPRETABLE
    assert not report.leaks


def test_natural_twins_are_no_contamination() -> None:
    """Rows of few categories repeat, in both tables alike."""
    rng = np.random.default_rng(9)
    rows = pd.DataFrame({c: rng.choice(list("abcd"), 900) for c in "pqr"})
    passed = evaluated(rows.head(400), rows.iloc[400:700], rows.tail(200), metrics=["clones"])[1]
    assert passed[APART]
    assert passed[MIXED]


@pytest.mark.parametrize("range_from", ["pair_union", "pair_reference"])
def test_ranges_per_pair_are_stopped(fair: tuple[pd.DataFrame, ...], range_from: str) -> None:
    report, passed = evaluated(*fair, range_from=range_from)
    assert not passed[ONE]
    assert report.metrics["dcr_share"].verdict is Verdict.NOT_INTERPRETABLE
    assert any("ranges are taken" in w for w in report.warnings)


def test_ranges_of_all_tables_are_one_distance(fair: tuple[pd.DataFrame, ...]) -> None:
    for range_from in ("real", "train", "all"):
        assert evaluated(*fair, range_from=range_from)[1][ONE]


def test_synthetic_rows_off_the_data_stop_the_privacy_score(fair: tuple[pd.DataFrame, ...]) -> None:
    train, holdout, fresh = fair
    away = fresh.assign(x=fresh["x"] + 9, y=fresh["y"] - 9, z="d")
    names = ["dcr", "dcr_share", "privacy_score"]
    report, passed = evaluated(train, holdout, away, metrics=names)
    assert not passed[FIDELITY]
    assert report.metrics["privacy_score"].verdict is Verdict.NOT_INTERPRETABLE
    assert report.metrics["dcr_share"].verdict is not Verdict.NOT_INTERPRETABLE
    report, passed = evaluated(*fair, metrics=names)
    assert passed[FIDELITY]
    assert report.metrics["privacy_score"].verdict is not Verdict.NOT_INTERPRETABLE


def test_small_tables_detect_little(fair: tuple[pd.DataFrame, ...]) -> None:
    train, holdout, fresh = fair
    report, passed = evaluated(train.head(60), holdout.head(99), fresh.head(80))
    assert not passed[POWER]
    assert not passed[SIZES]
    assert report.metrics["clones"].verdict is Verdict.INCONCLUSIVE  # no copy among 60 rows bounds nothing
    mde = report.metrics["dcr_share"].mde
    assert mde is not None
    assert mde > 0.05
    message = next(g["message"] for g in report.gates if g["name"] == POWER)
    assert "BOUNDED cannot be said" in message
    assert report.metrics["dcr_share"].verdict is not Verdict.BOUNDED


def test_the_same_table_twice_is_told(fair: tuple[pd.DataFrame, ...]) -> None:
    train, holdout, _ = fair
    report, passed = evaluated(train, holdout, train)
    assert not passed[DIFFERENT]
    assert report.verdict is Verdict.LEAK
    assert not evaluated(train, holdout, holdout)[1][DIFFERENT]


def test_without_a_holdout_there_is_nothing_to_mix(fair: tuple[pd.DataFrame, ...]) -> None:
    train, _, fresh = fair
    report, passed = evaluated(train, None, fresh)
    assert passed == {DIFFERENT: True, GIVEN: False, SIZES: True, ONE: True}
    assert report.verdict is Verdict.NOT_EVALUATED


def test_nothing_to_detect_is_not_the_power_to_detect_anything() -> None:
    """All rows alike: no share can vary, so these tables detect no copy rate at all."""
    same = pd.DataFrame({"x": [1.0] * 200, "z": ["a"] * 200})
    report, passed = evaluated(same, same.head(150), same.head(120), metrics=["dcr_share"])
    assert report.metrics["dcr_share"].verdict is Verdict.NOT_INTERPRETABLE
    assert not passed.get(POWER, False)


def test_a_preset_checks_no_split(fair: tuple[pd.DataFrame, ...]) -> None:
    """It shows what the published tool would have said; only its distance is judged."""
    rows = pd.concat(fair[:2]).sort_values("x")
    passed = evaluated(rows.head(300), rows.tail(250), fair[2], preset="clearbox", metrics=["dcr", "dcr_share"])[1]
    assert MIXED not in passed
    assert APART not in passed
    assert not passed[ONE]


def test_rules_on_gates(fair: tuple[pd.DataFrame, ...]) -> None:
    train, _, fresh = fair
    assert evaluated(train, None, fresh, fail_on=["gate"])[0].passed is False
    wide = replace(POLICY, margins={**POLICY.margins, "dcr_share": 0.4})
    assert evaluated(*fair, fail_on=["gate"], policy=wide)[0].passed is True
