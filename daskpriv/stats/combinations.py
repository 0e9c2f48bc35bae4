"""Sets of columns: all of them, or so many chosen by a seed, the same ones for every layout of the work."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.labels import hashes

_KEY = np.uint64(0xA24BAED4963EE407)


def chosen(columns: int, order: int, most: int, seed: int = 0) -> NDArray[np.int64]:
    """Sets of `order` of so many columns, int64 (c, order), ascending within a line and line by line.

    At most `most` of them; every set is as likely as any other to be among them.

    >>> chosen(4, 2, 100).tolist()
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    >>> len(chosen(100, 3, 50)), len(chosen(3, 4, 50))
    (50, 0)
    """
    total = math.comb(columns, order)
    if total >= 2**63:
        raise ValueError(f"{columns} columns have more than 2**63 sets of {order}")
    numbers = np.arange(total) if total <= most else _some(total, most, np.uint64(seed) ^ _KEY ^ np.uint64(order))
    sets = _unranked(numbers.astype(np.int64), columns, order)
    return np.ascontiguousarray(sets[np.lexsort(sets.T[::-1])])


def _some(total: int, most: int, key: np.uint64) -> NDArray[np.int64]:
    """`most` different numbers below `total`."""
    if total <= 4 * most:
        return np.argsort(hashes(key, np.arange(total)), kind="stable")[:most].astype(np.int64)
    drawn = (hashes(key, np.arange(2 * most)) % np.uint64(total)).astype(np.int64)
    _, first = np.unique(drawn, return_index=True)  # at least three quarters are different
    some: NDArray[np.int64] = drawn[np.sort(first)][:most]
    return some


def _unranked(numbers: NDArray[np.int64], columns: int, order: int) -> NDArray[np.int64]:
    """Set number r is {c_1 < ... < c_k} with r = C(c_1, 1) + ... + C(c_k, k). Source: Lehmer's combinatorial number."""
    out, left = np.empty((len(numbers), order), np.int64), numbers.copy()
    for k in range(order, 0, -1):
        below = np.array([min(math.comb(c, k), 2**63 - 1) for c in range(columns + 1)], np.int64)
        out[:, k - 1] = np.searchsorted(below, left, side="right") - 1
        left -= below[out[:, k - 1]]
    return out
