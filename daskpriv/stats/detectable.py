"""The smallest effect that a test would find, told from the spread of its statistic under label draws."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from daskpriv.protocol import LabelTest

# How many standard deviations an effect must have: 5 % one-sided (1.645), 80 % power (0.842).
REACH = float(special.ndtri(0.95) + special.ndtri(0.80))


def mde(test: LabelTest, scale: float) -> float | None:
    """Minimum detectable effect: `scale` x 2.486 x the standard deviation of the drawn statistics.

    `scale` turns a difference of the statistic into the effect that is judged. None where nothing varies, so that no
    effect of any size can be found; draws without a value are left out. An approximation: the statistic is taken for
    normal, and as wide under a leak as without one.

    >>> round(mde(LabelTest("t", 0.0, np.array([-0.01, 0.01])), 2.0), 4)
    0.0497
    """
    drawn = test.drawn[np.isfinite(test.drawn)]
    spread = float(drawn.std()) if len(drawn) and drawn.min() < drawn.max() else 0.0
    return scale * REACH * spread if spread else None


def detectable(test: LabelTest, scale: float) -> float | None:
    """The same for an `Effect`: infinite where nothing varies, None where draws without a value hide how much."""
    return mde(test, scale) or (math.inf if test.p_value == 1.0 else None)
