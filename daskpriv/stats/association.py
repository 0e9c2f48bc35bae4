"""How strongly two bucketed columns go together, from the counts of their joint buckets.

The counts are integers, so any cut of the rows gives the same bits. Terms are summed in the order of their size: the
bits do not depend on which column comes first, on the order of its buckets, or on buckets that hold no row either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def cramers_v(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cramer's V with Bergsma's correction for the bias that chance gives to small tables.

    0 where a column has one bucket only, or where every row has a bucket of its own, because then there is nothing to
    see; 1 for two columns that name each other's buckets.
    Source: Bergsma, A bias-correction for Cramer's V and Tschuprow's T, J. Korean Statistical Society 42 (2013).

    Parameters
    ----------
    counts : int64 (..., r, c)
        Rows in every pair of buckets; buckets without rows count as absent.

    Returns
    -------
    float64 (...)
        In [0, 1].

    Examples
    --------
    >>> float(cramers_v(np.array([[5, 0], [0, 5]]))), float(cramers_v(np.array([[3, 3], [4, 4]])))
    (1.0, 0.0)
    """
    first, second = counts.sum(-1, keepdims=True), counts.sum(-2, keepdims=True)
    free = _at_least_1(counts.sum((-2, -1)) - 1)
    squared = _sum_of((counts / _at_least_1(first)) * (counts / _at_least_1(second))) - 1.0
    r, c = ((m > 0).sum((-2, -1)) - 1.0 for m in (first, second))
    seen, possible = np.maximum(squared - r * c / free, 0.0), np.minimum(r - r * r / free, c - c * c / free)
    shown = (r > 0) & (c > 0) & (possible > 0)
    return np.where(shown, np.sqrt(np.minimum(seen / np.where(shown, possible, 1.0), 1.0)), 0.0)


def grade_correlation(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of two bucketed columns whose buckets have an order; equal buckets share a rank.

    0 where a column has one bucket only. The caller leaves out buckets without a place in the order, such as missing.
    Source: Spearman (1904), with mid-ranks; Pearson's correlation of the grades.

    Parameters
    ----------
    counts : int64 (..., r, c)
        Rows in every pair of buckets, buckets ascending.

    Returns
    -------
    float64 (...)
        In [-1, 1].

    Examples
    --------
    >>> float(grade_correlation(np.array([[5, 0], [0, 5]]))), float(grade_correlation(np.array([[0, 5], [5, 0]])))
    (1.0, -1.0)
    """
    first, second = counts.sum(-1), counts.sum(-2)
    n = _at_least_1(counts.sum((-2, -1)))[..., None]
    x, y = _grades(first) / n, _grades(second) / n
    products = (counts / n[..., None]) * (x[..., :, None] * y[..., None, :])
    together = _sum_of(np.maximum(products, 0.0)) - _sum_of(np.maximum(-products, 0.0))
    # The same products as above, so that the quotient of identical columns is exactly 1.
    own = _sum_of(((first / n) * (x * x))[..., None]) * _sum_of(((second / n) * (y * y))[..., None])
    return np.where(own > 0, np.clip(together / np.sqrt(np.where(own > 0, own, 1.0)), -1.0, 1.0), 0.0)


def of_each(
    measure: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    counts: NDArray[np.int64],
    starts: NDArray[np.int64],
    shapes: NDArray[np.int64],
) -> NDArray[np.float64]:
    """A measure of many tables that lie one after the other, those of equal shape at once.

    Parameters
    ----------
    measure : function of int64 (t, r, c) that gives float64 (t,)
    counts : int64 (starts[-1],)
    starts : int64 (p + 1,)
        Table i is [starts[i], starts[i + 1]), in row-major order.
    shapes : int64 (p, 2)

    Returns
    -------
    float64 (p,)
    """
    out = np.empty(len(shapes))
    for r, c in np.unique(shapes, axis=0):
        tables = np.flatnonzero((shapes == (r, c)).all(axis=1))
        cells = starts[tables, None] + np.arange(r * c)
        out[tables] = measure(counts[cells].reshape(-1, r, c))
    return out


def _grades(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows below a bucket minus rows above it, int64 (..., r): twice the mid-rank, centred."""
    upwards = np.cumsum(rows, axis=-1)
    return 2 * upwards - rows - upwards[..., -1:]


def _at_least_1(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A divisor: what would be 0 divides 0 only."""
    return np.maximum(rows, 1)


def _sum_of(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the last two axes, smallest term first; terms are at least 0."""
    cells = np.sort(terms.reshape(*terms.shape[:-2], -1), axis=-1)
    total = np.zeros(cells.shape[:-1])
    for place in range(cells.shape[-1]):  # one after the other: np.sum would group them by their number
        total += cells[..., place]
    return total
