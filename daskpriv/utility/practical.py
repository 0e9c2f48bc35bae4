"""Practical equivalence: a difference too small to matter, in one data set and over several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from daskpriv.errors import InputError

# Per cent: differences within [-ROPE, ROPE] do not matter. Source: the protocol of the epsilon-PrivateSMOTE paper.
ROPE = 1.0
_STEPS = 4001


def in_words(low: float, high: float, rope: float = ROPE) -> str:
    """What an interval of a percentage difference says about the region of practical equivalence.

    >>> in_words(-0.5, 0.9), in_words(-9.0, -1.5), in_words(1.1, 2.0), in_words(-1.5, 0.0)
    ('equivalent', 'worse', 'better', 'undecided')
    """
    if -rope <= low and high <= rope:
        return "equivalent"
    if high < -rope:
        return "worse"
    return "better" if low > rope else "undecided"


@dataclass(frozen=True)
class SignTest:
    """Posterior probabilities that over data sets like these the synthetic table is mostly worse, equivalent, better.

    `counts` are the data sets below, within and above the region of practical equivalence.
    """

    worse: float
    equivalent: float
    better: float
    counts: tuple[int, int, int]


def bayes_sign_test(differences: Sequence[float], rope: float = ROPE, prior: float = 1.0) -> SignTest:
    """Bayesian sign test of one difference per data set.

    Each data set is worse, equivalent or better; the shares of the three have a Dirichlet posterior whose prior is
    `prior` data sets that are equivalent. Told is the probability of each that its share is the largest, by numerical
    integration (error below 1e-9) in place of drawing.

    Parameters
    ----------
    differences : sequence of float
        In per cent, such as 100 (synthetic - real) / real of a score.
    rope : float
        Differences within [-rope, rope] are equivalent.
    prior : float
        Above 0.

    Raises
    ------
    InputError
        When there is no difference, or one is no finite number.

    Notes
    -----
    Source: Benavoli, Corani, Demsar & Zaffalon (2017), "Time for a change", JMLR 18(77), section 4.2.1.

    Examples
    --------
    >>> found = bayes_sign_test([-4.0, -3.0, -0.2, -6.0, -2.5])
    >>> found.counts, found.worse > 0.8
    ((4, 1, 0), True)
    """
    values = _numbers(differences)
    if not (math.isfinite(rope) and rope >= 0):
        raise InputError("rope: give a finite number of per cent, 0 or more.")
    if not (math.isfinite(prior) and prior > 0):
        raise InputError("prior: give a finite number above 0.")
    below, above = int((values < -rope).sum()), int((values > rope).sum())
    counts = (below, len(values) - below - above, above)
    shapes = (float(below), counts[1] + prior, float(above))
    chances = [_largest(shapes, i) for i in range(3)]
    total = sum(chances)
    return SignTest(chances[0] / total, chances[1] / total, chances[2] / total, counts)


def _numbers(differences: Sequence[float]) -> np.ndarray:
    try:
        values = np.asarray(differences, np.float64)
    except (TypeError, ValueError):
        raise InputError("differences: give a list of numbers, one per data set.") from None
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise InputError("differences: give a list of finite numbers, one per data set, and at least one.")
    return values


def _largest(shapes: Sequence[float], i: int) -> float:
    """P(share i is the largest) of a Dirichlet law, whose shares are gamma variables over their sum.

    The integral of the density of gamma i times the distribution functions of the others, over the logarithm: there
    the integrand is smooth and falls off at both ends, where the trapezoidal rule converges faster than any power.
    """
    a = shapes[i]
    if a == 0:
        return 0.0
    low = math.log(a) - 45 / min(a, math.sqrt(a))
    high = math.log(a + 50 * math.sqrt(a) + 50)
    t = np.linspace(low, high, _STEPS)
    x = np.exp(t)
    density = np.exp(a * t - x - special.gammaln(a))
    for j, b in enumerate(shapes):
        if j != i and b > 0:
            density = density * special.gammainc(b, x)
    return float(density.sum() * (t[1] - t[0]))
