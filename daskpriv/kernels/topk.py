"""Order and merge of nearest-neighbour lists: associative and commutative, so that blocks may meet in any order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Lists = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def merge(a: Lists, b: Lists) -> Lists:
    """Merge two (distance (n, k), row (n, k), ties (n,)) lists over disjoint reference rows.

    The order is (distance, row id); empty slots (+inf, -1) come last.

    >>> a = (np.array([[0.1]]), np.array([[7]]), np.array([1]))
    >>> b = (np.array([[0.1]]), np.array([[3]]), np.array([2]))
    >>> merge(a, b)
    (array([[0.1]]), array([[3]]), array([3]))
    """
    k = a[0].shape[1]
    distance = np.concatenate([a[0], b[0]], axis=1)
    row = np.concatenate([a[1], b[1]], axis=1)
    order = np.lexsort((np.where(row < 0, np.iinfo(np.int64).max, row), distance), axis=1)[:, :k]
    distance = np.take_along_axis(distance, order, axis=1)
    row = np.take_along_axis(row, order, axis=1)
    best = distance[:, 0]
    ties = a[2] * (a[0][:, 0] == best) + b[2] * (b[0][:, 0] == best)
    return distance, row, ties
