"""How far two contingency tables lie apart, and how far apart chance alone would put them.

Sums over cells are sums of integers, multiples of 2**-60, so that no order of the cells changes a bit.
"""

from __future__ import annotations

import math

import numpy as np

from daskpriv.kernels.compiling import compiled, inlined

_ONE, _UNIT = 2.0**60, 2.0**50
_KNOWN = 4096  # cells of up to so many rows are the same ones again and again: computed once
# |A| and |B| of normal A and B of correlation r covary by the sum of these times r^2, r^4, ...
_SERIES = np.array([1 / 2, 1 / 24, 1 / 80, 5 / 896, 7 / 2304, 21 / 11264]) * 2 / math.pi

# log(k!) - log of Stirling's formula, for k up to 15; a series beyond. Source: Loader (2000).
_STIRLING = np.array(
    [0.0] + [math.lgamma(k + 1.0) - ((k + 0.5) * math.log(k) - k + 0.5 * math.log(2 * math.pi)) for k in range(1, 16)]
)


@inlined
def _fixed(x):  # type: ignore[no-untyped-def]
    return np.int64(np.rint(x * _ONE))


@inlined
def _coarse(x):  # type: ignore[no-untyped-def]
    """For sums of standard deviations, which may be far above 1."""
    return np.int64(np.rint(x * _UNIT))


@compiled
def compare(first, second, starts, n, m, out):  # type: ignore[no-untyped-def]
    """For tables of n and m rows: tvd, hellinger, jensen_shannon, largest and mean |p - q|; float64 (c, 5).

    first, second : int64 (starts[-1],)
        Counts of the same cells; table t is [starts[t], starts[t + 1]).
    """
    for t in range(len(starts) - 1):
        apart, common, shannon, held, largest = np.int64(0), np.int64(0), np.int64(0), 0, 0.0
        for x in range(starts[t], starts[t + 1]):
            if first[x] == 0 and second[x] == 0:
                continue
            p, q = first[x] / n, second[x] / m
            held += 1
            apart += _fixed(abs(p - q))
            largest = max(largest, abs(p - q))
            common += _fixed(math.sqrt(p * q))
            middle = (p + q) / 2
            both = p * math.log(p / middle) if p > 0 else 0.0
            both += q * math.log(q / middle) if q > 0 else 0.0
            shannon += _fixed(both / 2)
        out[t, 0] = (apart / _ONE) / 2
        out[t, 1] = 0.0 if apart == 0 else math.sqrt(max(1.0 - common / _ONE, 0.0))
        out[t, 2] = max(shannon / _ONE, 0.0)
        out[t, 3] = largest
        out[t, 4] = (apart / _ONE) / held if held else 0.0


@compiled
def apart(first, second, starts, n, m, out):  # type: ignore[no-untyped-def]
    """Total variation distance of each pair of tables, float64 (c,)."""
    for t in range(len(starts) - 1):
        total = np.int64(0)
        for x in range(starts[t], starts[t + 1]):
            total += _fixed(abs(first[x] / n - second[x] / m))
        out[t] = (total / _ONE) / 2


@inlined
def _stirling_error(k):  # type: ignore[no-untyped-def]
    if k <= 15:
        return _STIRLING[int(k)]
    s = 1.0 / (k * k)
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / k


@inlined
def _deviance(x, mean):  # type: ignore[no-untyped-def]
    """X log(x / mean) + mean - x without loss of digits. Source: Loader (2000), bd0."""
    if abs(x - mean) < 0.1 * (x + mean):
        v = (x - mean) / (x + mean)
        s, term = (x - mean) * v, 2 * x * v
        for j in range(1, 1000):
            term *= v * v
            more = s + term / (2 * j + 1)
            if more == s:
                break
            s = more
        return s
    return x * math.log(x / mean) + mean - x


@inlined
def _log_binomial(x, n, p):  # type: ignore[no-untyped-def]
    """Log of the probability of x hits in n trials, 0 < p < 1."""
    if x == 0:
        return n * math.log1p(-p)
    if x == n:
        return n * math.log(p)
    rest = n - x
    error = _stirling_error(n) - _stirling_error(x) - _stirling_error(rest)
    return error - _deviance(x, n * p) - _deviance(rest, n * (1 - p)) + 0.5 * math.log(n / (2 * math.pi * x) / rest)


@compiled
def mean_deviation(k, n, m):  # type: ignore[no-untyped-def]
    """E|X - k n / (n + m)| for the X of k marked rows that fall among n of n + m rows at random.

    Closed form, 2 x (m - k + x) / (n + m) P(X = x) at the first x above the mean. Source: Diaconis & Zabell (1991).

    >>> round(mean_deviation(13, 20, 30), 12)
    1.227440003409
    """
    total = n + m
    if k in (0, total):
        return 0.0
    x = (k * n) // total + 1
    # Any p gives the same hypergeometric probability; this one loses no digits.
    p = n / total
    log = _log_binomial(float(x), float(k), p) + _log_binomial(float(n - x), float(total - k), p)
    log -= _log_binomial(float(n), float(total), p)
    return 2.0 * x * ((m - k + x) / total) * math.exp(log)


@inlined
def _covered(r):  # type: ignore[no-untyped-def]
    """The same in closed form."""
    r = min(r, 1.0)
    return (r * math.asin(r) + math.sqrt(1 - r * r) - 1) * 2 / math.pi


@compiled
def noise(first, second, starts, n, m, out):  # type: ignore[no-untyped-def]
    """Mean and standard deviation of the tvd when rows fall to the two tables at random; float64 (c, 2).

    Given how many rows of both together lie in each cell. The mean is exact, and so is the variance of each cell's
    share; covariances of cells are those of normal variables with the exact correlation, in a power series for all
    cells but the fullest.
    """
    total = n + m
    scale = total / (float(n) * m)  # of a deviation in rows, to one of shares
    known = np.full(min(_KNOWN, total) + 1, -1.0)
    powers, squares = np.empty(len(_SERIES), np.int64), np.empty(len(_SERIES), np.int64)
    for t in range(len(starts) - 1):
        top = np.int64(0)  # the cell that holds more than half of all rows, if there is one
        for x in range(starts[t], starts[t + 1]):
            top = max(top, first[x] + second[x])
        top = top if 2 * top > total else np.int64(0)
        odds_of_top, spread_of_top = top / max(total - top, 1), _spread(top, n, m) * scale
        mean, variance = np.int64(0), np.int64(0)
        powers[:], squares[:] = 0, 0
        for x in range(starts[t], starts[t + 1]):
            k = first[x] + second[x]
            if k in (0, total):
                continue
            if k < len(known):
                if known[k] < 0:
                    known[k] = mean_deviation(k, n, m)
                expected = known[k] * scale
            else:
                expected = mean_deviation(k, n, m) * scale
            spread = _spread(k, n, m) * scale
            mean += _fixed(expected)
            variance += _fixed(max(spread * spread - expected * expected, 0.0))
            if k == top:
                continue
            odds = k / (total - k)
            if top:
                variance += _fixed(2 * spread * spread_of_top * _covered(math.sqrt(odds * odds_of_top)))
            power = spread
            for j in range(len(_SERIES)):
                power *= odds
                powers[j] += _coarse(power)
                squares[j] += _coarse(power * power)
        shared = 0.0
        for j in range(len(_SERIES)):
            shared += _SERIES[j] * ((powers[j] / _UNIT) ** 2 - squares[j] / _UNIT)
        out[t, 0] = (mean / _ONE) / 2
        out[t, 1] = math.sqrt(max(variance / _ONE + shared, 0.0)) / 2


@inlined
def _spread(k, n, m):  # type: ignore[no-untyped-def]
    """Standard deviation of the same X."""
    total = float(n + m)
    return math.sqrt(n * (k / total) * (1 - k / total) * (m / (total - 1))) if total > 1 else 0.0
