"""From the results of all metrics to one answer: tests are adjusted for each other, by the draws that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskpriv.protocol import LabelTest, Result
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

    Tests by label draws: Westfall & Young's step-down min-p over the shared draws. Tests with another number of draws,
    and p-values without any (of somebody else's metrics), are families of their own: Bonferroni between families,
    Holm where there are only such.
    """
    drawn = {f"{name}: {t.name}": t for name, r in results.items() for t in r.tests}
    streams: dict[int, dict[str, LabelTest]] = {}
    for name, test in drawn.items():
        streams.setdefault(len(test.drawn), {})[name] = test
    others = {n: r.p_value for n, r in results.items() if r.p_value is not None and not r.tests}
    # A p-value of 1 is no test: nothing could vary.
    families = len(streams) + sum(p < 1.0 for p in others.values())
    joint = {
        name: min(1.0, families * p)
        for tests in streams.values()
        for name, p in westfall_young(
            {n: (t.observed, t.drawn) for n, t in tests.items()}, {n: t.weight for n, t in tests.items()}
        ).items()
    }
    tested = {n: p for n, p in others.items() if p < 1.0}
    alone = {n: min(1.0, families * p) for n, p in tested.items()} if streams else holm(tested)
    per_metric = {**dict.fromkeys(others, 1.0), **alone}
    for name, p in joint.items():
        metric = name.split(": ", 1)[0]
        per_metric[metric] = min(per_metric.get(metric, 1.0), p)
    return Judged(per_metric, {name: (t.p_value, joint[name]) for name, t in drawn.items()})
