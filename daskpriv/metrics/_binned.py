"""Statistics of many histograms at once: one row per label draw, the same cells in every row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile(counts: NDArray[np.int64], edges: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """The value that this share does not exceed, linear within its cell; float64 (b,), NaN where a row is empty.

    `counts` is (b, len(edges)); cell j holds values in (edges[j - 1], edges[j]], cell 0 values of exactly edges[0].

    >>> quantile(np.array([[0, 4, 4], [8, 0, 0]]), np.array([0.0, 0.5, 1.0]), 0.75)
    array([0.75, 0.  ])
    """
    below = counts.cumsum(axis=1)
    wanted = share * below[:, -1]
    cell = (below < wanted[:, None]).sum(axis=1)
    row = np.arange(len(counts))
    inside = counts[row, cell]
    with np.errstate(invalid="ignore"):
        part = (wanted - (below[row, cell] - inside)) / inside
    low = edges[np.maximum(cell - 1, 0)]
    found: NDArray[np.float64] = low + part * (edges[cell] - low)
    return found


def theta(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(a < b) + P(same cell) / 2 of each pair of rows; float64 (n,), NaN where either is empty.

    >>> theta(np.array([[1, 1], [1, 0]]), np.array([[0, 2], [1, 0]]))
    array([0.75, 0.5 ])
    """
    above = b.sum(axis=1, keepdims=True) - b.cumsum(axis=1)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.float64] = (a * (above + 0.5 * b)).sum(axis=1) / (a.sum(axis=1) * b.sum(axis=1))
    return found
