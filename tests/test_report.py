"""What a report says: the level of its policy, effects beside margins, the page and the summary in words."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import daskpriv
from daskpriv.gates import Gate
from daskpriv.policy import policy_of
from daskpriv.protocol import Effect, Result, Verdict
from daskpriv.report import model, words
from daskpriv.report.charts import effect_bar
from daskpriv.report.html import page
from daskpriv.report.model import Report, report_schema
from daskpriv.report.text import amount, between, number, summary

V = Verdict
PLACES: dict[str, Any] = {
    "inputs": {"tables": {}, "differences": []},
    "space": {"columns": [], "distance": "Gower", "missing": "level", "range_from": "real"},
    "run": {"started": "", "pairs": 0, "tasks": 0, "seconds": 0.0, "versions": {}},
}


def settings(level: float | None = None) -> dict[str, Any]:
    policy = policy_of(None)
    held = {"level": level or policy.level, "margins": dict(policy.margins), "gates": dict(policy.gates)}
    return {"preset": "daskpriv", "metrics": [], "seed": 0, "options": {}, "policy": held}


def made(metrics: dict[str, Result], level: float | None = None, **more: Any) -> Report:
    return Report(metrics, **{**PLACES, "settings": settings(level), **more})


class Words(HTMLParser):
    """The text of a page, without its style."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.skipped = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.skipped = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.parts.append(data)


def text_of(html: str) -> str:
    reader = Words()
    reader.feed(html)
    return re.sub(r"\s+", " ", " ".join(reader.parts))


# ---------------------------------------------------------------------------------------------- the level


@pytest.mark.parametrize(
    ("level", "p", "leak"),
    [
        (None, 0.05, True),
        (None, 0.0505, False),
        (0.95, 0.05, True),
        (0.99, 0.05, False),
        (0.99, 0.01, True),
        (0.9, 0.1, True),  # 1 - 0.9 is 0.09999999999999998
        (0.9, 0.1005, False),
        (0.8, 0.2, True),
        (0.7, 0.3, True),
    ],
)
def test_the_overall_verdict_follows_the_level_of_the_policy(level: float | None, p: float, leak: bool) -> None:
    given = {} if level is None else {"settings": settings(level)}
    report = Report({"a": Result(0.5, V.LEAK)}, adjusted={"a": p}, **given)
    assert report.verdict is (V.LEAK if leak else V.INCONCLUSIVE)
    assert report.leaks == ["a"] * leak
    assert report.to_dict()["overall"]["level"] == (level or 0.95)


def test_a_fixed_level_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "alpha_of", lambda level: 0.05)
    with pytest.raises(AssertionError):
        test_the_overall_verdict_follows_the_level_of_the_policy(0.99, 0.05, False)


def test_a_level_in_a_file_decides_the_overall_verdict(tmp_path: Any) -> None:
    """Eight copies of 600 rows: p of the clones lies between 0.5 % and 10 %."""
    rng = np.random.default_rng(4)
    train, holdout, fresh = (pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300)}) for _ in range(3))
    synthetic = pd.concat([train.head(5), fresh.head(200)])
    found = {}
    for level in (0.9, 0.99):
        path = tmp_path / "policy.yaml"
        path.write_text(f"daskpriv_policy: 1\nlevel: {level}\n")
        report = daskpriv.evaluate(
            train=train, holdout=holdout, synthetic=synthetic, metrics=["clones"], policy=path, fail_on=["leak"]
        )
        found[level] = report.verdict, report.passed
        assert 0.01 < report.adjusted["clones"] < 0.1
        assert report.level == level
    assert found == {0.9: (V.LEAK, False), 0.99: (V.INCONCLUSIVE, True)}


# ---------------------------------------------------------------------------------------------- a real run


@pytest.fixture(scope="module")
def leaky() -> Report:
    rng = np.random.default_rng(1)

    def table(n: int) -> pd.DataFrame:
        return pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n), "z": rng.choice(list("abc"), n)})

    train, holdout, fresh = table(250), table(200), table(250)
    synthetic = pd.concat([train.head(90), fresh.head(130)])
    return daskpriv.evaluate(train=train, holdout=holdout, synthetic=synthetic, metrics="all", fail_on=["leak"])


def test_the_effect_is_what_the_verdict_was_made_of(leaky: Report) -> None:
    told = leaky.to_dict()
    jsonschema.validate(told, report_schema())
    judged = {n: m for n, m in told["metrics"].items() if m["verdict"] in words.JUDGED}
    assert {"clones", "dcr_share", "dcr_overlap", "nndr", "membership_inference", "exposure"} <= set(judged)
    for name, m in told["metrics"].items():
        assert (m["effect"] is not None) == (name in judged), name
    for name, m in judged.items():
        effect, alpha = m["effect"], 1 - told["overall"]["level"]
        low, high, level = effect["interval"]
        assert level == told["overall"]["level"]
        assert effect["margin"] == policy_of(None).margins.get(name, m["details"].get("margin"))
        assert effect["value"] is None or low <= effect["value"] <= high
        least = 0.0 if name == "clones" else effect["margin"]
        if name in ("clones", "dcr_share"):
            assert (m["verdict"] == "LEAK") == (low > least)
        else:
            assert (m["verdict"] == "LEAK") == (low > least and m["p_value"] <= alpha)
        if high is not None and high < effect["margin"]:
            assert m["verdict"] != "LEAK"
    assert told["metrics"]["exposure"]["effect"]["interval"][1] is None
    assert told["metrics"]["dcr_share"]["effect"]["value"] == told["metrics"]["dcr_share"]["details"]["excess"]
    assert told["metrics"]["dcr_share"]["effect"]["detectable"] == told["metrics"]["dcr_share"]["mde"]
    auc = told["metrics"]["membership_inference"]
    assert auc["effect"]["detectable"] == 2 * auc["mde"]
    assert auc["effect"]["value"] == max(2 * a["auc"] - 1 for a in auc["details"]["attacks"].values())


def test_the_page_tells_everything_of_every_metric(leaky: Report) -> None:
    told, text = leaky.to_dict(), text_of(leaky.to_html())
    parts = re.split(r" (?=(?:" + "|".join(told["metrics"]) + r") (?:LEAK|BOUNDED|INC|NOT))", text)
    section = {p.split(" ", 1)[0]: p for p in parts[1:]}
    assert set(section) == set(told["metrics"])
    for name, m in told["metrics"].items():
        shown = section[name]
        assert shown.startswith(f"{name} {m['verdict']} ")
        for key in ("value", "expected"):
            assert m[key] is None or number(m[key]) in shown, (name, key)
        if m["interval"]:
            assert f"{number(m['interval'][0])} to {number(m['interval'][1])}" in shown
        for key in ("reading", "cannot_show"):
            assert m[key] in shown, (name, key)
        if m["p_value"] is not None:
            assert f"{number(m['p_value'])} {number(m['p_adjusted'])}" in shown
        if e := m["effect"]:
            wanted = "at least" if e["value"] is None else amount(e["value"], e["unit"])
            tail = between(e["interval"], e["unit"], e["value"] is None)
            wanted += f" {tail} {amount(e['margin'], e['unit'])} {amount(e['detectable'], e['unit'])}"
            assert wanted in shown, name
            assert e["meaning"] in shown
        if m["mde"] is not None and (e is None or e["detectable"] is None):
            assert number(m["mde"]) in shown
    for g in told["gates"]:
        assert g["message"] in text
    for t in told["overall"]["tests"]:
        assert f"{t['test']} {number(t['p_value'])} {number(t['p_adjusted'])}" in text
    assert "Rule leak: broken" in text
    assert " ".join(words.overall(told)) in text
    assert text.index(words.overall(told)[0]) < text.index("Verdicts")


def test_the_first_lines_say_what_was_found(leaky: Report) -> None:
    told = leaky.to_dict()
    first = leaky.summary().splitlines()[1:4]
    assert first == ["Overall: LEAK", *words.overall(told)]
    assert all(name in first[1] for name in leaky.leaks)


def test_a_page_of_an_earlier_version_is_drawn(leaky: Report) -> None:
    told = json.loads(leaky.to_json())
    for m in told["metrics"].values():
        del m["effect"]
    del told["overall"]["level"], told["settings"]["policy"]
    text = text_of(page(told))
    assert "LEAK" in text
    assert "clones LEAK - - -" in text
    assert summary(told)


# ---------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("metrics", "more", "told"),
    [
        (
            {"a": Result(0.5, V.LEAK, p_value=0.001), "b": Result(0.5, V.BOUNDED, p_value=0.5)},
            {"adjusted": {"a": 0.002, "b": 1.0}, "tests": {"a: t": (0.001, 0.002), "b: t": (0.5, 1.0)}},
            [
                "The synthetic table gives training rows away: 1 of 2 judged metrics say so (a); adjusted for all 2 "
                "tests of this report, p = 0.0020.",
                "Of tables that leak nothing, at most 10 % are called LEAK.",
            ],
        ),
        (
            {"a": Result(0.5, V.BOUNDED), "b": Result(0.5, V.BOUNDED), "c": Result(1.0)},
            {},
            [
                "No leak above the margins: every judged metric (a and b) has its whole interval below its margin.",
                "Smaller leaks, and what each metric cannot show, remain possible.",
            ],
        ),
        (
            {"a": Result(0.5, V.LEAK), "b": Result(0.5, V.INCONCLUSIVE), "c": Result(0.5, V.BOUNDED)},
            {"adjusted": {"a": 0.2}, "tests": {"a: t": (0.01, 0.2)}},
            [
                "Neither a leak nor its absence is shown.",
                "a says LEAK alone, but not among all 1 tests of this report: no adjusted p-value is at most 0.1, so "
                "that chance can explain it.",
                "b cannot tell whether the leak lies above or below the margin.",
                "c says BOUNDED.",
            ],
        ),
        (
            {"a": Result(0.5, V.NOT_INTERPRETABLE), "b": Result(1.0)},
            {
                "gates": [
                    Gate("g", False, "", ("*",)).told(),
                    Gate("h", True, "", ("*",)).told(),
                    Gate("i", False, "", caps=("*",)).told(),
                ]
            },
            [
                "The input cannot carry a verdict of a: see the failed checks (g).",
                "This is no sign that the table is safe, nor that it leaks.",
            ],
        ),
        (
            {"b": Result(1.0)},
            {},
            [
                "Nothing was judged: without a holdout, copying looks like chance.",
                "This is no sign that the table is safe.",
            ],
        ),
    ],
)
def test_the_overall_verdict_in_words(metrics: dict[str, Result], more: dict[str, Any], told: list[str]) -> None:
    report = made(metrics, 0.9, **more)
    assert words.overall(report.to_dict()) == told
    text = text_of(report.to_html())
    assert all(sentence in text for sentence in told)
    assert not re.search(r"\b(private|anonymous|compliant)\b", text.lower())


def test_a_failed_check_says_what_it_takes_away() -> None:
    def told(gate: Gate) -> str:
        report = made({"a": Result(0.5)}, gates=[gate.told()]).to_dict()
        return text_of(page(report))

    assert "Not interpretable: all verdicts." in told(Gate("g", False, "No.", ("*",)))
    assert "Not interpretable: x, y." in told(Gate("g", False, "No.", ("x", "y")))
    for gate in (Gate("g", False, "No.", caps=("*",)), Gate("g", True, "Yes.", ("*",))):
        assert "Not interpretable:" not in told(gate)
    old = {"name": "g", "passed": False, "message": "No."}  # of an earlier version
    assert "Check failed, g: No." in text_of(page({**made({}).to_dict(), "gates": [old]}))


def test_inconclusive_for_another_reason_than_a_wide_interval() -> None:
    def judged(p: float, high: float) -> Result:
        effect = Effect("share that is copied", (0.0, high, 0.95), 0.05, 0.01)
        return Result(0.5, V.INCONCLUSIVE, p_value=p, effect=effect)

    for p, high, wanted in (
        (0.01, 0.04, "dcr_share sees a difference that chance alone does not explain, smaller than the margin."),
        (0.5, 0.04, "dcr_share sees an effect below the margin that a failed check does not let count."),
        (0.5, 0.06, "dcr_share cannot tell whether the leak lies above or below the margin."),
    ):
        assert words.overall(made({"dcr_share": judged(p, high)}).to_dict())[1:] == [wanted]


def test_every_metric_has_a_question() -> None:
    assert set(daskpriv.metrics.METRICS) - {"split_check"} <= set(words.QUESTIONS)
    assert set(words.LEGEND) == {v.value for v in V}


# ---------------------------------------------------------------------------------------------- effects and bars


def test_a_metric_of_somebody_else_tells_its_effect() -> None:
    mine = Effect("share that is copied", (0.4, float("inf"), 0.9), 0.3, detectable=float("inf"))
    told = made({"theirs": Result(0.1, V.LEAK, effect=mine), "dcr": Result(0.1)}).to_dict()
    assert told["metrics"]["dcr"]["effect"] is None
    assert told["metrics"]["theirs"]["effect"] == {
        "meaning": "share that is copied",
        "interval": [0.4, None, 0.9],
        "margin": 0.3,
        "value": None,
        "detectable": None,
        "unit": "share",
    }


@pytest.mark.parametrize("low", [-0.5, 0.0, 0.02])
@pytest.mark.parametrize("high", [0.03, 0.5, None])
@pytest.mark.parametrize("margin", [0.05, None])
def test_a_bar_keeps_the_order_of_its_parts(low: float, high: float | None, margin: float | None) -> None:
    value = None if high is None else (low + high) / 2
    bar = effect_bar({"interval": [low, high, 0.95], "value": value, "margin": margin})
    assert bar is not None
    ends = bar["low"], bar["low"] + bar["width"]
    assert 0 <= bar["zero"] <= 160
    assert 0 <= ends[0] < ends[1] <= 160.1
    assert (bar["zero"] < ends[0]) == (low > 0)
    if value is None:
        assert bar["value"] is None
        assert ends[1] == pytest.approx(160)
    else:
        assert ends[0] - 1.6 <= bar["value"] <= ends[1]
    if margin is None:
        assert bar["margin"] is None
    elif high is not None:
        assert (ends[0] > bar["margin"]) == (low > margin)
        assert (ends[1] < bar["margin"]) == (high < margin)


def test_no_interval_no_bar() -> None:
    assert effect_bar(None) is None
    assert effect_bar({"interval": None, "value": 0.5, "margin": 0.1}) is None
    still = effect_bar({"interval": [0.0, 0.0, 0.95], "value": 0.0, "margin": 0.0})
    assert still is not None
    assert still["width"] > 0
    assert effect_bar({"interval": [None, None, 0.95], "value": None, "margin": None}) is not None


def test_numbers_for_people() -> None:
    shown = {0.0: "0", 907.0: "907", 24421.0: "24,421", 62.8: "62.8000", 2e-5: "2.0e-05", 0.05: "0.0500"}
    assert {x: number(x) for x in shown} == shown
    assert (number(-0.0), number(None)) == ("0", "-")
