"""Rank statistics of two samples from counts in ordered cells; they broadcast over draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def auc_of_cells(first: NDArray[np.int64], both: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(first < second) + P(same cell) / 2, along the last axis; 1/2 where a sample is empty.

    Source: Mann & Whitney (1947), with ties.

    >>> float(auc_of_cells(np.array([2, 1, 0]), np.array([2, 2, 2])))
    0.9444444444444444
    """
    a = np.asarray(first, np.float64)
    b = np.asarray(both, np.float64) - a
    above = np.cumsum(b[..., ::-1], axis=-1)[..., ::-1] - b
    wins = (a * (above + b / 2)).sum(axis=-1)
    pairs = a.sum(axis=-1) * b.sum(axis=-1)
    return np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), 0.5)


def berk_jones(first: NDArray[np.int64], both: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Largest surprise over all prefixes of cells that the first sample holds more than `share` of them.

    rows x KL(observed share, expected share), along the last axis; 0 where no prefix holds more than expected.
    Source: Berk & Jones (1979).

    >>> round(float(berk_jones(np.array([4, 0]), np.array([4, 4]), 0.5) / np.log(2)), 9)
    4.0
    """
    hits, n = np.cumsum(first, axis=-1).astype(np.float64), np.cumsum(both, axis=-1).astype(np.float64)
    p = np.where(n > 0, hits / np.maximum(n, 1), share)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = np.where(p > 0, p * np.log(p / share), 0.0)
        surprise += np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - share)), 0.0)
    out: NDArray[np.float64] = np.where(p > share, n * surprise, 0.0).max(axis=-1)
    return out
