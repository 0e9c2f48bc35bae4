"""Histograms on a grid that every table shares, so that they can be laid over each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def histogram(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Counts of values in [0, 1] in equal bins, the last one closed on both sides; int64 (bins,).

    >>> histogram(np.array([0.0, 0.24, 0.25, 1.0]), 4)
    array([2, 1, 0, 1])
    """
    counts, _ = np.histogram(values[np.isfinite(values)], bins=np.asarray(edges(bins)))
    return counts.astype(np.int64)


def edges(bins: int) -> list[float]:
    """The edges of that grid, bins + 1 of them."""
    return [i / bins for i in range(bins + 1)]
