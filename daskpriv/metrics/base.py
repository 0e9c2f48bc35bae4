"""From an interval to a verdict."""

from __future__ import annotations

from daskpriv.protocol import Answers, Metric, Partial, Result, State, Verdict

__all__ = ["Answers", "Metric", "Partial", "Result", "State", "Verdict", "judge"]


def judge(low: float, high: float, leak_above: float, bounded_below: float) -> Verdict:
    """LEAK when the whole interval lies above `leak_above`, BOUNDED when it lies below `bounded_below`.

    >>> judge(0.1, 0.2, 0.05, 0.05).value, judge(0.0, 0.1, 0.05, 0.05).value
    ('LEAK', 'INCONCLUSIVE')
    """
    if low > leak_above:
        return Verdict.LEAK
    return Verdict.BOUNDED if high < bounded_below else Verdict.INCONCLUSIVE
