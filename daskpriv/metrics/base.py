"""From an interval to a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from daskpriv.evidence import HOLDOUT, TRAIN, Evidence, Facts
from daskpriv.protocol import ODDS, Answers, Effect, LabelTest, Metric, Partial, Result, State, Verdict
from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.labels import DRAWS, Labels, labels
from daskpriv.stats.levels import alpha_of

__all__ = [
    "ODDS",
    "Answers",
    "Effect",
    "FromAnswers",
    "LabelTest",
    "Metric",
    "Partial",
    "Result",
    "State",
    "Verdict",
    "added",
    "drawn_labels",
    "judge",
    "judge_test",
    "shift",
]


def added(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Both partials, what they share added up.

    >>> added({"rows": 2}, {"rows": 3, "hits": 1})
    {'rows': 5, 'hits': 1}
    """
    return {**a, **b, **{k: a[k] + b[k] for k in a.keys() & b.keys()}}


class FromAnswers:
    """The passes of a metric that looks at no row: its requests are answered for whole tables."""

    def begin(self, facts: Facts) -> Facts:
        """All there is to know."""
        return facts

    def chunk(self, state: Facts, evidence: Evidence) -> None:
        """Nothing."""

    def combine(self, a: None, b: None) -> None:
        """Nothing."""


def drawn_labels(facts: Facts, draws: int = DRAWS) -> Labels:
    """The label draws that all tests of a report share."""
    return labels(facts.rows[TRAIN], facts.rows[HOLDOUT], facts.seed, draws, facts.subjects)


def judge(low: float, high: float, leak_above: float, bounded_below: float) -> Verdict:
    """LEAK when the whole interval lies above `leak_above`, BOUNDED when it lies below `bounded_below`.

    >>> judge(0.1, 0.2, 0.05, 0.05).value, judge(0.0, 0.1, 0.05, 0.05).value
    ('LEAK', 'INCONCLUSIVE')
    """
    if low > leak_above:
        return Verdict.LEAK
    return Verdict.BOUNDED if high < bounded_below else Verdict.INCONCLUSIVE


def judge_test(p_value: float, low: float, high: float, margin: float, level: float = 0.95) -> Verdict:
    """The verdict of a test with an effect; many rows make every difference significant, which is no verdict.

    LEAK when the test rejects "no leak" and the whole interval of the effect lies above the margin; BOUNDED when the
    test does not reject and the interval lies below it.

    >>> judge_test(0.01, 0.1, 0.2, 0.05).value, judge_test(0.01, 0.0, 0.02, 0.05).value
    ('LEAK', 'INCONCLUSIVE')
    >>> judge_test(0.5, -0.01, 0.02, 0.05).value
    'BOUNDED'
    """
    rejects = p_value <= alpha_of(level)
    if rejects and low > margin:
        return Verdict.LEAK
    return Verdict.BOUNDED if high < margin and not rejects else Verdict.INCONCLUSIVE


def shift(test: LabelTest, scale: float, level: float) -> tuple[float, float, float]:
    """How far a statistic lies from where random labels put it: (effect, low, high), by the spread of the draws."""
    drawn = test.drawn[np.isfinite(test.drawn)]
    if not len(drawn) or not np.isfinite(test.observed):
        return 0.0, -math.inf, math.inf  # nothing to compare with
    center, spread = float(drawn.mean()), float(drawn.std())
    effect, half = (test.observed - center) * scale, normal_quantile(level) * spread * scale
    return effect, effect - half, effect + half
