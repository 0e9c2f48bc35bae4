"""How strongly two columns go together, from their contingency table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def cramers_v(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cramer's V, without rows and columns that hold nothing; 0 where fewer than two of either are left.

    Source: Cramer (1946), V = sqrt(chi^2 / (n (min(r, c) - 1))).

    Parameters
    ----------
    counts : int64 (..., r, c)

    Returns
    -------
    float64 (...)

    Examples
    --------
    >>> float(cramers_v(np.array([[5, 0], [0, 5]]))), float(cramers_v(np.array([[5, 5], [5, 5]])))
    (1.0, 0.0)
    """
    rows, columns = counts.sum(axis=-1, keepdims=True), counts.sum(axis=-2, keepdims=True)
    n = rows.sum(axis=-2, keepdims=True)
    expected = rows * columns / np.maximum(n, 1)
    terms = np.where(expected > 0, counts * (counts / np.where(expected > 0, expected, 1.0)), 0.0)
    chi_square = np.maximum(np.sort(terms.reshape(*terms.shape[:-2], -1)).sum(axis=-1) - n[..., 0, 0], 0.0)
    least = np.minimum((rows > 0).sum(axis=(-2, -1)), (columns > 0).sum(axis=(-2, -1)))
    scale = n[..., 0, 0] * np.maximum(least - 1, 1)
    return np.where(least > 1, np.sqrt(np.minimum(chi_square / np.maximum(scale, 1), 1.0)), 0.0)
