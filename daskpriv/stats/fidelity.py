"""How far cross-tabulations lie apart, beside how far apart those of an honest sample would lie.

Honest means that synthetic rows come from where training rows come from: then it is chance which of the rows of both
tables are the training rows, and how many of the k rows of a cell are among them is hypergeometric. Given k there is
no unknown parameter, so that the expected distance is exact, for sparse cells too; the usual half-normal formula errs
by 8 % there. What is not accounted for: buckets are fitted on train, an effect of one row in n.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import Deviations
from daskpriv.kernels import deviation as kernel

Counts = NDArray[np.int64]


def deviations(first: Counts, second: Counts, starts: Counts, rows: tuple[int, int]) -> Deviations:
    """Compare tables of counts.

    Parameters
    ----------
    first, second : int64 (starts[-1],)
        Counts of the same cells in two tables of `rows` rows.
    starts : int64 (c + 1,)
        Table t is [starts[t], starts[t + 1]).

    Examples
    --------
    >>> found = deviations(np.array([2, 2]), np.array([4, 0]), np.array([0, 2]), (4, 4))
    >>> float(found.tvd[0]), float(found.max_deviation[0]), round(float(found.hellinger[0]), 6)
    (0.5, 0.5, 0.541196)
    """
    apart, chance = np.empty((len(starts) - 1, 5)), np.empty((len(starts) - 1, 2))
    kernel.compare(first, second, starts, *rows, apart)
    kernel.noise(first, second, starts, *rows, chance)
    return Deviations(*np.ascontiguousarray(apart.T), *np.ascontiguousarray(chance.T))


def total_variation(first: Counts, second: Counts, starts: Counts) -> NDArray[np.float64]:
    """Total variation distance of tables of counts, float64 (c,); as many rows as the first table of each holds."""
    out = np.empty(len(starts) - 1)
    rows = [int(counts[: starts[1]].sum()) for counts in (first, second)]
    kernel.apart(first, second, starts, *rows, out)
    return out


def spread_of_mean(drawn: NDArray[np.float64], single: NDArray[np.float64], of_how_many: int) -> float:
    """Standard deviation of the mean over all sets of columns, from draws of some of them.

    With v the mean variance of a set and c the mean covariance of two, the mean of N sets has the variance
    v / N + (1 - 1 / N) c. Draws of s sets tell c.

    Parameters
    ----------
    drawn : float64 (draws, s)
        Distances of each set under each draw.
    single : float64 (s or more,)
        Standard deviation of sets alone.
    of_how_many : int
        N.
    """
    some = drawn.shape[1]
    variance = float(np.mean(single**2))
    of_mean = float(np.var([math.fsum(line) / some for line in drawn], ddof=1))
    if some == of_how_many:
        return math.sqrt(of_mean)
    common = max(of_mean - variance / some, 0.0) / (1 - 1 / some) if some > 1 else variance
    return math.sqrt(variance / of_how_many + (1 - 1 / of_how_many) * common)


def student_quantile(level: float, draws: int) -> float:
    """Two-sided quantile for a standard deviation that so many draws tell.

    >>> round(student_quantile(0.95, 39), 3)
    2.024
    """
    from scipy import special

    return float(special.stdtrit(draws - 1, 0.5 + level / 2))
