"""From an interval to a verdict."""

from __future__ import annotations

from daskpriv.protocol import Answers, LabelTest, Metric, Partial, Result, State, Verdict

__all__ = ["Answers", "LabelTest", "Metric", "Partial", "Result", "State", "Verdict", "judge", "judge_test"]


def judge(low: float, high: float, leak_above: float, bounded_below: float) -> Verdict:
    """LEAK when the whole interval lies above `leak_above`, BOUNDED when it lies below `bounded_below`.

    >>> judge(0.1, 0.2, 0.05, 0.05).value, judge(0.0, 0.1, 0.05, 0.05).value
    ('LEAK', 'INCONCLUSIVE')
    """
    if low > leak_above:
        return Verdict.LEAK
    return Verdict.BOUNDED if high < bounded_below else Verdict.INCONCLUSIVE


def judge_test(p_value: float, level: float = 0.95) -> Verdict:
    """LEAK when a test rejects "no leak"; a test without an effect size can never say BOUNDED.

    >>> judge_test(0.01).value, judge_test(0.5).value
    ('LEAK', 'INCONCLUSIVE')
    """
    return Verdict.LEAK if p_value <= 1 - level else Verdict.INCONCLUSIVE
