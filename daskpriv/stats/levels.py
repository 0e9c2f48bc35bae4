"""From the level of intervals to the p-value at which tests reject."""

from __future__ import annotations


def alpha_of(level: float) -> float:
    """The p-value at which a test rejects: 0.1 for a level of 0.9, though 1 - 0.9 is a little less in binary.

    >>> alpha_of(0.9), alpha_of(0.95)
    (0.1, 0.05)
    """
    return round(1.0 - level, 12)
