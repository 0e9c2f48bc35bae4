"""What a report says in sentences: the overall verdict and why, and the question of each metric.

Everything is told from the report's JSON alone, so that the page can be drawn again from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskpriv.stats.levels import alpha_of

_LEVEL = 0.95
JUDGED = ("LEAK", "BOUNDED", "INCONCLUSIVE")
LEGEND = {
    "LEAK": "the whole interval of the effect lies above the margin, and the test rejects chance",
    "BOUNDED": "the whole interval lies below the margin: no larger leak, as far as this metric sees",
    "INCONCLUSIVE": "neither",
    "NOT_INTERPRETABLE": "a check of the input failed, on which this verdict rests",
    "NOT_EVALUATED": "the metric only describes, or lacks what it needs",
}
QUESTIONS = {
    "clones": "Do synthetic rows equal training rows more often than holdout rows?",
    "dcr": "How far is the closest real row, in every direction?",
    "dcr_share": "Does a synthetic row lie closer to train than to holdout?",
    "dcr_overlap": "How far apart are the distances to train and to holdout?",
    "nndr": "Is the nearest training row much nearer than the second?",
    "membership_inference": "Can somebody tell who was in train?",
    "exposure": "Do training rows stand out in the tails and among isolated rows?",
    "subgroups": "Does the leak fall on isolated rows, or on one group?",
    "privacy_score": "Are training rows nearer to the synthetic table than to each other?",
    "neighbour_scores": "What do the nearest-neighbour scores of other tools say?",
    "utility": "Do models that learn from the synthetic table do as well on real rows?",
    "discriminator": "Can a model tell synthetic rows from real ones?",
}


def level_of(settings: Mapping[str, Any]) -> float:
    """The level of the policy that a report was judged by."""
    return float(settings.get("policy", {}).get("level", _LEVEL))


def overall(report: Mapping[str, Any]) -> list[str]:
    """Why the overall verdict is what it is, in two or three sentences; `report` is `Report.to_dict()`."""
    verdict, metrics = report["overall"]["verdict"], report["metrics"]
    return {
        "LEAK": _leak,
        "BOUNDED": _bounded,
        "INCONCLUSIVE": _inconclusive,
        "NOT_INTERPRETABLE": _stopped,
    }.get(verdict, _nothing)(report, metrics)


def _names(metrics: Mapping[str, Any], *verdicts: str) -> list[str]:
    return [name for name, m in metrics.items() if m["verdict"] in verdicts]


def _listed(names: Sequence[str]) -> str:
    """Names as one reads them aloud.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(x for x in (", ".join(names[:-1]), names[-1]) if x)


def _say(names: Sequence[str]) -> str:
    return f"{_listed(names)} {'says' if len(names) == 1 else 'say'}"


def _percent(level: float) -> str:
    return f"{100 * alpha_of(level):g} %"


def _leak(report: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    leaks, judged = report["overall"]["leaks"], _names(metrics, *JUDGED)
    p = [metrics[n]["p_adjusted"] for n in leaks if metrics[n]["p_adjusted"] is not None]
    tests = len(report["overall"]["tests"])
    whole = f"; adjusted for all {tests} tests of this report, p = {min(p):.4f}" if p and tests else ""
    return [
        f"The synthetic table gives training rows away: {len(leaks)} of {len(judged)} judged metrics say so "
        f"({_listed(leaks)}){whole}.",
        f"Of tables that leak nothing, at most {_percent(level_of(report['settings']))} are called LEAK.",
    ]


def _bounded(report: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    judged = _names(metrics, "BOUNDED")
    return [
        f"No leak above the margins: every judged metric ({_listed(judged)}) has its whole interval below its margin.",
        "Smaller leaks, and what each metric cannot show, remain possible.",
    ]


def _inconclusive(report: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    out = ["Neither a leak nor its absence is shown."]
    alone, open_ = _names(metrics, "LEAK"), _names(metrics, "INCONCLUSIVE")
    if alone:
        level = level_of(report["settings"])
        out.append(
            f"{_say(alone)} LEAK alone, but not among all {len(report['overall']['tests'])} tests of this report: no "
            f"adjusted p-value is at most {alpha_of(level):g}, so that chance can explain it."
        )
    small = [n for n in open_ if _below_margin(metrics[n])]
    seen = [n for n in small if (metrics[n]["p_value"] or 0.0) <= alpha_of(level_of(report["settings"]))]
    for names, told in (
        (seen, "a difference that chance alone does not explain, smaller than the margin"),
        ([n for n in small if n not in seen], "an effect below the margin that a failed check does not let count"),
    ):
        if names:
            out.append(f"{_listed(names)} {'sees' if len(names) == 1 else 'see'} {told}.")
    wide = [n for n in open_ if n not in small]
    if wide:
        out.append(f"{_listed(wide)} cannot tell whether the leak lies above or below the margin.")
    bounded = _names(metrics, "BOUNDED")
    if bounded:
        out.append(f"{_say(bounded)} BOUNDED.")
    return out


def _below_margin(metric: Mapping[str, Any]) -> bool:
    effect = metric.get("effect") or {}
    high = (effect.get("interval") or [None, None])[1]
    return high is not None and effect["margin"] is not None and high < effect["margin"]


def _stopped(report: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    failed = [g["name"] for g in report["gates"] if not g["passed"] and g.get("stops")]
    because = f": see the failed checks ({'; '.join(failed)})" if failed else ""
    return [
        f"The input cannot carry a verdict of {_listed(_names(metrics, 'NOT_INTERPRETABLE'))}{because}.",
        "This is no sign that the table is safe, nor that it leaks.",
    ]


def _nothing(report: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    given = "holdout" in report["inputs"].get("tables", {})
    why = "none of the metrics that were asked for judges" if given else "without a holdout, copying looks like chance"
    return [f"Nothing was judged: {why}.", "This is no sign that the table is safe."]
