"""From the tests of many metrics to one answer: adjusted p-values, the overall verdict, rules, bounds on epsilon."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations
from typing import Any, ClassVar

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import daskpriv
from daskpriv.evidence import HOLDOUT, TRAIN, Evidence, Facts, Neighbours
from daskpriv.gates import Gate, interpretable
from daskpriv.judgement import adjusted
from daskpriv.metrics import MembershipInference
from daskpriv.protocol import LabelTest, Result, Verdict
from daskpriv.report.model import Report, report_schema
from daskpriv.report.rules import parse_rules
from daskpriv.stats.epsilon import best_bound, epsilon_lower_bound, log_odds_bound
from daskpriv.stats.labels import labels
from daskpriv.stats.multiple import holm, westfall_young

Tests = Mapping[str, tuple[float, np.ndarray]]

# ---------------------------------------------------------------------------------------------- plain


def plain_p(statistics: Sequence[float]) -> list[float]:
    """Of each among all: the share of all that are at least as large."""
    return [sum(y >= x for y in statistics) / len(statistics) for x in statistics]


def closed_min_p(tests: Tests) -> dict[str, float]:
    """The closed test: a hypothesis goes when every set of hypotheses that holds it is rejected by its smallest p.

    No steps and no order, so that it shares nothing with Westfall & Young's algorithm but its result.
    """
    own = {name: plain_p([observed, *drawn]) for name, (observed, drawn) in tests.items()}
    out = dict.fromkeys(tests, 0.0)
    for some in chain.from_iterable(combinations(tests, n) for n in range(1, len(tests) + 1)):
        smallest = [min(p) for p in zip(*(own[name] for name in some), strict=True)]
        p = sum(s <= smallest[0] for s in smallest) / len(smallest)
        out.update({name: max(out[name], p) for name in some})
    return out


def plain_holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The closed test with Bonferroni's rule in every set."""
    out = dict.fromkeys(p_values, 0.0)
    for some in chain.from_iterable(combinations(p_values, n) for n in range(1, len(p_values) + 1)):
        p = min(1.0, len(some) * min(p_values[name] for name in some))
        out.update({name: max(out[name], p) for name in some})
    return out


# ---------------------------------------------------------------------------------------------- adjustment


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (5.0, 1.0, 0.3, 0.3), (10.0, 10.0, 10.0, 10.0)])
def test_weights_share_out_the_false_alarms(weights: tuple[float, ...]) -> None:
    """Of independent tests: the chance that any p / weight is as small as this one; equal weights change nothing."""
    rng = np.random.default_rng(3)
    drawn = rng.random((4, 20_000))
    observed = (0.99, 0.5, 0.3, 0.2)
    names = [f"t{i}" for i in range(4)]
    tests = {n: (x, d) for n, x, d in zip(names, observed, drawn, strict=True)}
    found = westfall_young(tests, dict(zip(names, weights, strict=True)))
    level = min((1 - x) / w for x, w in zip(observed, weights, strict=True))
    expected = 1 - math.prod(1 - min(1.0, w * level) for w in weights)
    assert min(found.values()) == pytest.approx(expected, abs=0.01)
    if len(set(weights)) == 1:
        assert found == westfall_young(tests)


def test_weighted_reports_err_at_their_level() -> None:
    """Draws in place of the observed labels: the smallest adjusted p is at most 0.05 in 5 % of reports."""
    rng = np.random.default_rng(5)
    hits, reports = 0, 2000
    for _ in range(reports):
        base = rng.normal(size=(3, 200))
        base[1] += base[0]  # dependent
        base[2] = np.floor(base[2])  # few values
        tests = [
            LabelTest(f"t{i}", float(x[0]), x[1:], w)
            for i, (x, w) in enumerate(zip(base, (1.0, 0.3, 5.0), strict=True))
        ]
        hits += min(p for _, p in adjusted({"m": result(*tests)}).tests.values()) <= 0.05
    assert 0.035 <= hits / reports <= 0.06


def test_a_test_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="weight"):
        LabelTest("t", 0.0, np.zeros(9), 0.0)


@settings(max_examples=80, derandomize=True)
@given(st.integers(1, 5), st.integers(1, 25), st.sampled_from([3, 50, 10**6]), st.integers(0, 10**6))
def test_westfall_and_young_is_the_closed_test(count: int, draws: int, values: int, seed: int) -> None:
    """With ties of every kind, and tests that say the same or the opposite."""
    rng = np.random.default_rng(seed)
    common = rng.integers(0, values, draws + 1)
    tests = {}
    for i in range(count):
        kind = rng.integers(0, 4)
        x = [common, -common, rng.integers(0, values, draws + 1), common + rng.integers(0, 3, draws + 1)][kind]
        tests[f"t{i}"] = float(x[0] + (values if rng.random() < 0.2 else 0)), x[1:].astype(float)
    found = westfall_young(tests)
    assert list(found) == list(tests)
    assert found == pytest.approx(closed_min_p(tests), abs=1e-12)


@settings(max_examples=100, derandomize=True)
@given(st.lists(st.sampled_from([0.0, 0.01, 0.02, 0.5, 1.0]) | st.floats(0, 1), max_size=6))
def test_holm_is_the_closed_test(p_values: list[float]) -> None:
    given_ = {f"t{i}": p for i, p in enumerate(p_values)}
    assert holm(given_) == pytest.approx(plain_holm(given_), abs=1e-12)


def test_equal_tests_cost_nothing() -> None:
    """The draws carry the dependence: ten copies of one test are one test."""
    drawn = np.random.default_rng(0).random(199)
    one = LabelTest("t", 0.97, drawn).p_value
    tests = {f"t{i}": (0.97, drawn) for i in range(10)}
    assert set(westfall_young(tests).values()) == {one}
    assert westfall_young({}) == {}


def test_independent_tests_cost_what_sidak_says() -> None:
    rng = np.random.default_rng(1)
    tests = {f"t{i}": (float("-inf"), rng.random(19_999)) for i in range(8)}
    tests["t0"] = 0.99, tests["t0"][1]
    p = LabelTest("t", *tests["t0"]).p_value
    assert westfall_young(tests)["t0"] == pytest.approx(1 - (1 - p) ** 8, abs=0.006)


def test_adjusted_is_never_below_the_p_value_and_keeps_the_order() -> None:
    rng = np.random.default_rng(2)
    tests = {f"t{i}": (float(rng.random()), rng.random(99)) for i in range(12)}
    p = {name: LabelTest(name, *t).p_value for name, t in tests.items()}
    found = westfall_young(tests)
    assert all(p[name] <= found[name] <= 1 for name in tests)
    order = sorted(tests, key=lambda name: p[name])
    assert [found[name] for name in order] == sorted(found.values())


# ---------------------------------------------------------------------------------------------- error rates

WORLDS, DRAWS, LEVEL = 300, 399, 0.05
HIGHEST = LEVEL + 3 * (LEVEL * (1 - LEVEL) / WORLDS) ** 0.5


@cache
def some_tests(seed: int) -> dict[str, LabelTest]:
    """Seven dependent statistics of 40 rows whose labels mean nothing."""
    n_first, n = 16, 40
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    scores = [base, -base, base**2, base + rng.normal(size=n), *(rng.permutation(base) for _ in range(2)), base > 1]
    drawn = labels(n_first, n - n_first, seed, DRAWS)
    side = drawn.sums(np.arange(n), np.arange(n), n).astype(float)
    return {f"s{i}": LabelTest(f"s{i}", float(x[:n_first].sum()), side @ x) for i, x in enumerate(scores)}


def result(*tests: LabelTest, p_value: float | None = None, verdict: Verdict = Verdict.INCONCLUSIVE) -> Result:
    return Result(0.5, verdict, p_value=min((t.p_value for t in tests), default=p_value), tests=tests)


def test_reports_without_a_leak_err_as_often_as_one_test() -> None:
    wrong = alone = 0
    for seed in range(WORLDS):
        tests = some_tests(seed)
        found = adjusted({"a": result(*list(tests.values())[:3]), "b": result(*list(tests.values())[3:])})
        wrong += min(found.metrics.values()) <= LEVEL
        alone += min(p for p, _ in found.tests.values()) <= LEVEL
    assert wrong / WORLDS < HIGHEST
    assert wrong / WORLDS > 0.02  # exact, not merely careful
    assert alone / WORLDS > 0.15  # what no adjustment would have said


def test_a_true_leak_in_one_test_does_not_condemn_the_others() -> None:
    wrong = 0
    for seed in range(WORLDS):
        tests = some_tests(seed)
        tests = {**tests, "s0": LabelTest("s0", 1e9, tests["s0"].drawn)}
        found = adjusted({"m": result(*tests.values())}).tests
        assert found["m: s0"][1] <= LEVEL
        wrong += min(q for name, (_, q) in found.items() if name != "m: s0") <= LEVEL
    assert wrong / WORLDS < HIGHEST


def test_metrics_without_draws_do_not_raise_the_error() -> None:
    """Whatever is true of one test with draws: all false alarms together stay as rare as one."""
    rng = np.random.default_rng(6)
    for leak in (False, True):
        worlds, wrong = 3000, 0
        for _ in range(worlds):
            drawn = rng.normal(size=(2, 100))
            tests = [LabelTest(f"t{i}", float(x[0]), x[1:]) for i, x in enumerate(drawn)]
            if leak:
                tests[0] = LabelTest("t0", 1e9, drawn[0, 1:])
            found = adjusted({"ours": result(*tests), "theirs": result(p_value=float(rng.random()))})
            alarms = [found.metrics["theirs"], found.tests["ours: t1"][1], *([] if leak else [found.metrics["ours"]])]
            wrong += min(alarms) <= LEVEL
        assert wrong / worlds < LEVEL + 3 * (LEVEL * (1 - LEVEL) / worlds) ** 0.5, leak


# ---------------------------------------------------------------------------------------------- reports


def label_test(name: str, p: float, draws: int = 99) -> LabelTest:
    """A test with this p-value; two of them are independent enough."""
    order = np.random.default_rng(len(name) + ord(name[0])).permutation(draws) + 1.0
    test = LabelTest(name, draws + 1 - (round(p * (draws + 1)) - 1) - 0.5, order)
    assert test.p_value == pytest.approx(p)
    return test


def test_a_metric_has_the_smallest_of_its_tests() -> None:
    a, b, c = label_test("a", 0.02), label_test("bb", 0.4), label_test("ccc", 0.03)
    found = adjusted({"m": result(a, b), "n": result(c), "o": Result(0.5)})
    joint = westfall_young({f"{m}: {t.name}": (t.observed, t.drawn) for m, t in (("m", a), ("m", b), ("n", c))})
    assert found.tests == {
        "m: a": (0.02, joint["m: a"]),
        "m: bb": (0.4, joint["m: bb"]),
        "n: ccc": (0.03, joint["n: ccc"]),
    }
    assert found.metrics == {"m": joint["m: a"], "n": joint["n: ccc"]}


def test_metrics_without_draws_go_through_holm() -> None:
    p = {"a": 0.01, "b": 0.04, "c": 0.03}
    found = adjusted({name: result(p_value=x) for name, x in p.items()} | {"d": Result(0.5)})
    assert found.metrics == pytest.approx(plain_holm(p))
    assert found.tests == {}


def test_all_tests_with_draws_are_one_family_beside_them() -> None:
    ours = result(label_test("a", 0.02), label_test("bb", 0.5))
    alone = adjusted({"ours": ours}).metrics["ours"]
    found = adjusted({"ours": ours, "x": result(p_value=0.5), "y": result(p_value=0.001)})
    assert found.metrics["y"] == pytest.approx(3 * 0.001)
    assert found.metrics["ours"] == pytest.approx(3 * alone)
    assert 0.5 <= found.metrics["x"] <= 1
    assert found.tests["ours: a"] == (pytest.approx(0.02), pytest.approx(3 * alone))
    assert found.tests["ours: bb"][1] <= 1


def test_what_could_not_vary_was_no_test() -> None:
    found = adjusted({"a": result(p_value=1.0), "b": result(p_value=0.03), "c": result(label_test("t", 0.02))})
    assert found.metrics["a"] == 1.0
    assert found.metrics["b"] == pytest.approx(0.06)  # Bonferroni over three families
    assert found.metrics["c"] == pytest.approx(0.04)


def test_nothing_to_adjust() -> None:
    assert adjusted({}).metrics == {}
    assert adjusted({"a": Result(0.5)}).metrics == {}


V = Verdict


@pytest.mark.parametrize(
    ("verdicts", "p", "overall", "leaks"),
    [
        ({"a": V.LEAK}, {"a": 0.05}, V.LEAK, ["a"]),
        ({"a": V.LEAK}, {"a": 0.0501}, V.INCONCLUSIVE, []),
        ({"a": V.LEAK}, {}, V.LEAK, ["a"]),  # a metric without a test: its interval stands alone
        ({"a": V.BOUNDED}, {"a": 0.001}, V.BOUNDED, []),  # a small p-value alone is no leak
        ({"a": V.INCONCLUSIVE}, {"a": 0.001}, V.INCONCLUSIVE, []),
        ({"b": V.LEAK, "a": V.LEAK, "c": V.LEAK}, {"a": 0.01, "b": 0.02, "c": 0.2}, V.LEAK, ["a", "b"]),
        ({"a": V.LEAK, "b": V.NOT_INTERPRETABLE}, {"a": 0.01}, V.LEAK, ["a"]),
        ({"a": V.LEAK, "b": V.NOT_INTERPRETABLE}, {"a": 0.3}, V.NOT_INTERPRETABLE, []),
        ({"a": V.LEAK, "b": V.BOUNDED}, {"a": 0.3}, V.INCONCLUSIVE, []),
        ({"a": V.NOT_INTERPRETABLE, "b": V.INCONCLUSIVE}, {}, V.NOT_INTERPRETABLE, []),
        ({"a": V.INCONCLUSIVE, "b": V.BOUNDED}, {}, V.INCONCLUSIVE, []),
        ({"a": V.NOT_EVALUATED, "b": V.BOUNDED}, {}, V.BOUNDED, []),
        ({"a": V.NOT_EVALUATED}, {}, V.NOT_EVALUATED, []),
        ({}, {}, V.NOT_EVALUATED, []),
    ],
)
def test_the_overall_verdict(
    verdicts: dict[str, Verdict], p: dict[str, float], overall: Verdict, leaks: list[str]
) -> None:
    report = Report({n: Result(0.5, v) for n, v in verdicts.items()}, adjusted=p)
    assert (report.verdict, report.leaks) == (overall, leaks)
    told = report.to_dict()["overall"]
    assert (told["verdict"], told["leaks"]) == (overall.value, leaks)
    assert told["p_adjusted"] == min(p.values(), default=None)


def test_the_report_lists_every_test() -> None:
    report = Report({"m": Result(0.5)}, tests={"m: z": (0.5, 0.6), "m: a": (0.01, 0.02)})
    assert report.to_dict()["overall"]["tests"] == [
        {"test": "m: a", "p_value": 0.01, "p_adjusted": 0.02},
        {"test": "m: z", "p_value": 0.5, "p_adjusted": 0.6},
    ]


@pytest.mark.parametrize(
    ("verdicts", "p", "broken"),
    [
        ({"a": V.LEAK}, {"a": 0.01}, True),
        ({"a": V.LEAK, "b": V.BOUNDED}, {"a": 0.2}, False),
        ({"a": V.LEAK, "b": V.INCONCLUSIVE}, {"a": 0.2}, False),
        ({"a": V.LEAK}, {"a": 0.2}, False),  # overall INCONCLUSIVE
        ({"a": V.LEAK, "b": V.LEAK}, {"a": 0.06, "b": 0.06}, False),
        ({"a": V.BOUNDED}, {}, False),
        ({"a": V.INCONCLUSIVE, "b": V.NOT_EVALUATED}, {}, False),
        ({"a": V.NOT_INTERPRETABLE}, {}, True),  # nothing judged is no pass
        ({"a": V.NOT_EVALUATED}, {}, True),
    ],
)
def test_the_rule_leak_follows_the_overall_verdict(
    verdicts: dict[str, Verdict], p: dict[str, float], broken: bool
) -> None:
    report = Report({n: Result(0.5, v) for n, v in verdicts.items()}, adjusted=p)
    judged = report.judged_by(parse_rules(["leak"], list(verdicts)))
    assert judged.rules == (("leak", broken),)
    assert judged.passed is not broken


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("inconclusive", True),
        ("gate", True),
        ("warning", False),
        ("m>0.4", True),
        ("m.p_adjusted<=0.2", True),
        ("m.p_adjusted<0.2", False),
        ("m.p_value<0.05", False),
        ("m.a.b >= 3", True),
        ("m.mde>0", True),  # cannot be told
    ],
)
def test_other_rules(rule: str, broken: bool) -> None:
    held = Result(0.5, V.LEAK, p_value=0.1, details={"a": {"b": 3}})
    report = Report({"m": held}, adjusted={"m": 0.2}, gates=[{"name": "g", "passed": False, "message": ""}])
    assert report.judged_by(parse_rules([rule], ["m"])).passed is not broken


# ---------------------------------------------------------------------------------------------- gates


def test_gates_take_the_verdict_away() -> None:
    test = label_test("t", 0.01)
    results = {
        "tested": result(test, verdict=V.LEAK),
        "bounded": result(test, verdict=V.BOUNDED),
        "described": Result(0.5),
        "untested": Result(0.5, V.BOUNDED),
        "named": Result(0.5),
        "nothing": Result(None),
    }

    def verdicts(*gates: Gate) -> dict[str, Verdict]:
        return {name: r.verdict for name, r in interpretable(results, gates).items()}

    before = {name: r.verdict for name, r in results.items()}
    assert verdicts(Gate("g", True, "", ("*",)), Gate("g", False, "")) == before
    assert verdicts(Gate("g", False, "", ("*",))) == before | {
        "tested": V.NOT_INTERPRETABLE,
        "bounded": V.NOT_INTERPRETABLE,
        "untested": V.NOT_INTERPRETABLE,
    }
    assert verdicts(Gate("g", False, "", ("named", "nothing", "absent"))) == before | {"named": V.NOT_INTERPRETABLE}
    found = interpretable(results, [Gate("g", False, "", ("*",))])
    assert found["tested"].tests == (test,)
    assert found["tested"].p_value == results["tested"].p_value
    assert results["tested"].verdict is V.LEAK
    assert Report(found, adjusted=adjusted(found).metrics).verdict is V.NOT_INTERPRETABLE


# ---------------------------------------------------------------------------------------------- evaluations


@dataclass(frozen=True)
class Theirs:
    """A metric of somebody else, with a p-value and no draws."""

    name: ClassVar[str] = "theirs"
    p_value: float = 0.5
    verdict: Verdict = Verdict.INCONCLUSIVE

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        return [Neighbours(HOLDOUT, TRAIN)]

    def begin(self, facts: Facts) -> None:
        return None

    def chunk(self, state: None, evidence: Evidence) -> int:
        return 0

    def combine(self, a: int, b: int) -> int:
        return a + b

    def advance(self, state: None, partial: int, answers: Any) -> Result:
        return Result(0.5, self.verdict, p_value=self.p_value)


def worlds(copied: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)

    def table(n: int) -> pd.DataFrame:
        return pd.DataFrame(
            {"x": rng.normal(size=n), "y": rng.normal(size=n).round(1), "z": rng.choice(list("abcd"), n)}
        )

    train, holdout, fresh = table(200), table(150), table(250)
    return {
        "train": train,
        "holdout": holdout,
        "synthetic": pd.concat([train.head(copied), fresh.head(250 - copied)], ignore_index=True),
    }


def test_a_leak_survives_the_adjustment() -> None:
    report = daskpriv.evaluate(**worlds(120))
    assert report.verdict is V.LEAK
    assert {"clones", "dcr_share", "exposure"} <= set(report.leaks)
    told = report.to_dict()
    jsonschema.validate(told, report_schema())
    tests = {t["test"]: t for t in told["overall"]["tests"]}
    assert {name.split(":")[0] for name in tests} == {"clones", "dcr_share", "membership_inference", "exposure"}
    for name, m in told["metrics"].items():
        mine = [t["p_adjusted"] for key, t in tests.items() if key.startswith(f"{name}: ")]
        assert m["p_adjusted"] == min(mine, default=None)
    assert all(1 / 2000 <= t["p_value"] <= t["p_adjusted"] <= 1 for t in tests.values())
    assert told["overall"]["p_adjusted"] == min(t["p_adjusted"] for t in tests.values())
    assert json.dumps(told)


def test_fair_tables_do_not_leak() -> None:
    named = []
    for seed in range(6):
        report = daskpriv.evaluate(**worlds(0, seed), metrics=["clones", "dcr_share", "exposure"])
        named += report.leaks
        assert (report.verdict is V.LEAK) == bool(report.leaks)
        for name in report.leaks:
            assert report.adjusted[name] <= 0.05
    assert len(named) <= 1  # one report in twenty


def test_a_metric_of_somebody_else_takes_part() -> None:
    tables = worlds(0)
    alone = daskpriv.evaluate(**tables, metrics=["dcr_share"])
    p = alone.adjusted["dcr_share"]
    report = daskpriv.evaluate(**tables, metrics=["dcr_share", Theirs(0.001, V.LEAK)])
    assert report.adjusted == pytest.approx({"theirs": 0.002, "dcr_share": min(1.0, 2 * p)})
    assert report.leaks == ["theirs"]
    assert report.metrics["theirs"].p_value == 0.001
    report = daskpriv.evaluate(**tables, metrics=["dcr_share", Theirs(0.03, V.LEAK)])
    assert (report.leaks, report.verdict) == ([], V.INCONCLUSIVE)
    assert report.adjusted["theirs"] == pytest.approx(0.06)


def test_metrics_with_other_numbers_of_draws_are_adjusted_together() -> None:
    """`MembershipInference(draws=99)` is an option like any other: its tests join those of 1999 draws."""
    report = daskpriv.evaluate(**worlds(0), metrics=["dcr_share", MembershipInference(draws=99)])
    assert set(report.adjusted) == {"dcr_share", "membership_inference"}
    for name in report.adjusted:
        own = min(p for test, (p, _) in report.tests.items() if test.startswith(f"{name}: "))
        assert own <= report.adjusted[name] <= 1


# ---------------------------------------------------------------------------------------------- epsilon


@pytest.mark.parametrize(("correct", "guesses"), [(1, 1), (7, 10), (10, 10), (60, 100), (999, 1000), (10**6, 10**6)])
@pytest.mark.parametrize("error", [0.05, 0.001])
def test_epsilon_is_where_so_many_right_guesses_become_unlikely(correct: int, guesses: int, error: float) -> None:
    bound = epsilon_lower_bound(correct, guesses, error)
    assert 0 <= bound < math.inf
    if bound:
        right = math.exp(bound) / (1 + math.exp(bound))
        assert stats.binom.sf(correct - 1, guesses, right) == pytest.approx(error, rel=1e-6)
    else:
        assert stats.binom.sf(correct - 1, guesses, 0.5) >= error


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_epsilon_is_bounded_from_above_seldom(epsilon: float) -> None:
    """Exactly: over all numbers of right guesses, whatever is guessed with the best possible chance."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    for n in (1, 5, 40):
        missed = sum(
            stats.binom.pmf(c, n, right) for c in range(n + 1) if epsilon_lower_bound(c, n, 0.05) > epsilon + 1e-12
        )
        assert missed <= 0.05 + 1e-12


@pytest.mark.parametrize(("correct", "guesses"), [(1, 10), (5, 10), (9, 10), (400, 1000)])
def test_log_odds_may_be_below_nought(correct: int, guesses: int) -> None:
    bound = log_odds_bound(correct, guesses, 0.05)
    right = 1 / (1 + math.exp(-bound))
    assert stats.binom.sf(correct - 1, guesses, right) == pytest.approx(0.05, rel=1e-6)
    assert epsilon_lower_bound(correct, guesses, 0.05) == max(0.0, bound)


def test_several_bounds_share_the_error() -> None:
    guesses = [(10, 10), (55, 60), (100, 200)]
    bounds = [(log_odds_bound(c, n, 0.05 / 3), c, n) for c, n in guesses]
    assert best_bound(guesses, 0.05) == max(bounds)
    assert best_bound([(10, 10)]) == (log_odds_bound(10, 10), 10, 10)
    assert best_bound([]) == best_bound([(0, 0)]) == (-math.inf, 0, 0)


@pytest.mark.parametrize(("correct", "guesses"), [(0, 0), (0, 10), (5, 10), (50, 100)])
def test_nothing_learnt_bounds_nothing(correct: int, guesses: int) -> None:
    assert epsilon_lower_bound(correct, guesses) == 0.0
    assert log_odds_bound(correct, guesses) < 0
