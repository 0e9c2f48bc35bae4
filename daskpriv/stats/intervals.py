"""Intervals for proportions and counts; scipy does the arithmetic."""

from __future__ import annotations

from scipy import special

Interval = tuple[float, float, float]


def clopper_pearson(hits: int, n: int, level: float = 0.95, clustering: float = 1.0) -> Interval:
    """Exact interval (low, high, level) of a binomial proportion. Source: Clopper & Pearson (1934).

    `clustering` is how many trials tell no more than one: of several rows of one subject, for instance. Source: the
    effective sample size of Korn & Graubard (1998).

    >>> low, high, level = clopper_pearson(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.308)
    """
    tail, k, m = (1 - level) / 2, hits / clustering, n / clustering
    low = 0.0 if hits == 0 else float(special.betaincinv(k, m - k + 1, tail))
    high = 1.0 if hits == n else float(special.betaincinv(k + 1, m - k, 1 - tail))
    return low, high, level


def hypergeometric_tail(hits: int, n: int, marked: int, drawn: int) -> float:
    """P(X >= hits) when `drawn` of `n` rows are taken at random and `marked` of the n are special.

    >>> round(hypergeometric_tail(5, 10, 5, 5), 5)
    0.00397
    """
    from scipy import stats  # imported here: it takes longer to load than the rest of daskpriv

    return float(stats.hypergeom.sf(hits - 1, n, marked, drawn))


def normal_quantile(level: float) -> float:
    """Two-sided standard normal quantile: 1.96 for a level of 0.95."""
    return float(special.ndtri(0.5 + level / 2))
