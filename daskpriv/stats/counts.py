"""Distinct values of two samples with their counts, and exact sums over them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counted = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def counted(a: NDArray[np.float64], b: NDArray[np.float64]) -> Counted:
    """Distinct values of two samples, ascending, with their counts in each; NaN is left out.

    >>> counted(np.array([0.5, 0.1]), np.array([0.5]))
    (array([0.1, 0.5]), array([1, 1]), array([0, 1]))
    """
    pooled = np.concatenate([a, b]) + 0.0
    side = np.repeat([0, 1], [len(a), len(b)])
    keep = ~np.isnan(pooled)
    values, place = np.unique(pooled[keep], return_inverse=True)
    both = np.bincount(place * 2 + side[keep], minlength=2 * len(values)).reshape(-1, 2)
    return values, both[:, 0].astype(np.int64), both[:, 1].astype(np.int64)


def merged(x: Counted, y: Counted) -> Counted:
    """The counts of both."""
    values, place = np.unique(np.concatenate([x[0], y[0]]), return_inverse=True)
    out = []
    for i in (1, 2):
        total = np.zeros(len(values), np.int64)
        np.add.at(total, place, np.concatenate([x[i], y[i]]))
        out.append(total)
    return values, out[0], out[1]


def dot(*factors: NDArray[np.int64]) -> int:
    """The exact sum of products of non-negative integers."""
    if sum(int(f.max(initial=0)).bit_length() for f in factors) + len(factors[0]).bit_length() < 63:
        out = factors[0]
        for f in factors[1:]:
            out = out * f
        return int(out.sum())
    wide = factors[0].astype(object)
    for f in factors[1:]:
        wide = wide * f.astype(object)
    return int(wide.sum())
