"""Parts of a table drawn by hash, and the nearest row of a part, told from a list of the nearest rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.labels import hashes
from daskpriv.stats.labels import Labels
from daskpriv.stats.quotient import quotient

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
Chosen = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Part:
    """One side of the draws of `labels`, one draw per split; the whole table without them."""

    drawn: Labels | None
    first: bool = True

    def of(self, split: int) -> Chosen:
        """Which row ids belong to it, in one split."""
        if self.drawn is None:
            return lambda ids: np.ones(len(ids), bool)
        key, threshold = self.drawn.keys[split], self.drawn.thresholds[split]
        return lambda ids: (hashes(key, np.ascontiguousarray(ids, np.int64)) < threshold) == self.first


def first_chosen(
    distance: NDArray[np.float64],
    row: NDArray[np.int64],
    available: int,
    chosen: Chosen,
) -> Bounds:
    """Bounds of the distance to the nearest chosen row, from lists (n, k) of the nearest among `available` rows.

    Both are the distance of the first listed row that is chosen; without one, at least that of the last listed row,
    or +inf if nothing is left out of the list.

    >>> first_chosen(np.array([[0.1, 0.2]]), np.array([[7, 9]]), 5, lambda ids: ids == 9)
    (array([0.2]), array([0.2]))
    >>> first_chosen(np.array([[0.1, 0.2]]), np.array([[7, 9]]), 5, lambda ids: ids == 8)
    (array([0.2]), array([inf]))
    """
    n, k = distance.shape
    place, still = np.full(n, k), np.arange(n)
    start, width = 0, 1
    while start < k and len(still):  # most rows are done after one or two neighbours: look at few, then at more
        ids = row[still, start : start + width]
        hit = (ids >= 0) & chosen(ids.ravel()).reshape(ids.shape)
        done = hit.any(axis=1)
        place[still[done]] = start + hit[done].argmax(axis=1)
        still = still[~done]
        start, width = start + width, 2 * width
    beyond = np.full(n, np.inf) if k >= available else distance[:, -1]
    low = np.column_stack([distance, beyond])[np.arange(n), place]
    return low, np.where(place < k, low, np.inf)


def ratios(near: Bounds, own: Bounds) -> Bounds:
    """Bounds of near / own on the extended line: 0/0 and inf/inf are 1, y/0 is +inf, y/inf is 0.

    >>> ratios((np.array([0.0, 0.2, 0.2]),) * 2, (np.array([0.0, 0.0, 0.4]),) * 2)[0]
    array([1. , inf, 0.5])
    """
    return quotient(near[0], own[1]), quotient(near[1], own[0])
