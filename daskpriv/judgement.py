"""From the results of all metrics to one answer: tests are adjusted for each other, by the draws that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskpriv.protocol import Result
from daskpriv.stats.multiple import holm, westfall_young


@dataclass(frozen=True)
class Judged:
    """p-values adjusted for the number of tests in a report.

    Attributes
    ----------
    metrics : {metric: adjusted p}
        The smallest of a metric's tests.
    tests : {"metric: test": (p, adjusted p)}
    """

    metrics: dict[str, float]
    tests: dict[str, tuple[float, float]]


def adjusted(results: Mapping[str, Result]) -> Judged:
    """Adjust every test of every metric.

    Tests by label draws: Westfall & Young's step-down min-p over the shared draws. A metric that brings a p-value
    without draws (an entry point of somebody else) is one more family: Holm between the families.
    """
    drawn = {f"{name}: {t.name}": t for name, r in results.items() for t in r.tests}
    joint = westfall_young({name: (t.observed, t.drawn) for name, t in drawn.items()})
    others = {n: r.p_value for n, r in results.items() if r.p_value is not None and not r.tests}
    certain = {n: p for n, p in others.items() if p >= 1.0}  # nothing varies: no test was made
    families = {n: p for n, p in others.items() if n not in certain}
    if families and joint:
        within = holm({**families, "": min(joint.values())})
        scale = within.pop("") / min(joint.values())
        joint = {name: min(1.0, p * scale) for name, p in joint.items()}
    else:
        within = holm(families)
    per_metric = {**within, **certain}
    for name, p in joint.items():
        metric = name.split(": ", 1)[0]
        per_metric[metric] = min(per_metric.get(metric, 1.0), p)
    return Judged(per_metric, {name: (t.p_value, joint[name]) for name, t in drawn.items()})
