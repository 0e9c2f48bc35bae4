"""Label permutations: which real rows would be training rows if the split had fallen otherwise.

One stream of draws serves every test of a report, so that their joint law is known (Westfall & Young 1993). A label
is a function of (seed, draw, row), computed where the row is; each draw labels exactly n_first rows. Where a subject
has several rows, labels belong to subjects: a function of (seed, draw, subject), exactly as many as train has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels import labels as kernel
from daskpriv.subjects import Subjects

DRAWS = 1999
_KEYS = np.uint64(0x5DEECE66D1CE4E5B)
_COIN = 0x5B117  # keeps the coins of splits apart from the draws of tests
_WIDTH = 8.0  # standard deviations of a binomial count: missed once in 1e15 draws, and then computed again, wider


@dataclass(frozen=True, eq=False)
class Labels:
    """Draws of `n_first` among `n_first + n_second` rows.

    Rows of the first table are 0 to n_first - 1, those of the second follow.

    keys, thresholds : uint64 (draws,)
        A row belongs to the first side of a draw when its hash under the key is below the threshold.
    subjects : Subjects or None
        Whose each row is; then subjects are drawn in place of rows, and what is hashed is the subject.
    """

    n_first: int
    n_second: int
    keys: NDArray[np.uint64]
    thresholds: NDArray[np.uint64]
    subjects: Subjects | None = None

    @property
    def draws(self) -> int:
        """How many."""
        return len(self.keys)

    def rows(self, ids: NDArray[np.int64], second: bool) -> NDArray[np.int64]:
        """What is hashed for row ids of one table: their place among all rows, or their subject; -1 stays."""
        if self.subjects is not None:
            return np.where(ids >= 0, self.subjects.side(second)[np.maximum(ids, 0)], -1)
        return np.where(ids >= 0, ids + (self.n_first if second else 0), -1)

    def sums(
        self, rows: NDArray[np.int64], cells: NDArray[np.int64], n_cells: int, weights: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Weight of the rows on the first side, per draw and cell; int64 (draws, n_cells).

        `cells` is (n,) or (n, c): a row may be counted in several cells, and in none (-1).
        """
        out = np.zeros((self.draws, n_cells), np.int64)
        given = np.ones(len(rows), np.int64) if weights is None else np.asarray(weights, np.int64)
        for held in cells.reshape(len(rows), -1).T if len(rows) else ():
            order = np.argsort(held, kind="stable")
            order = order[np.searchsorted(held[order], 0) :]
            found, starts = np.unique(held[order], return_index=True)
            sorts = (np.asarray(rows, np.int64)[order], given[order], np.append(starts, len(order)), found)
            kernel.cell_sums(self.keys, self.thresholds, *(np.ascontiguousarray(x, np.int64) for x in sorts), out)
        return out

    def agreements(
        self, rows: NDArray[np.int64], others: NDArray[np.int64], cells: NDArray[np.int64], n_cells: int
    ) -> NDArray[np.int64]:
        """Pairs of rows with equal labels, per draw and cell of the pair; int64 (draws, n_cells)."""
        out = np.zeros((self.draws, n_cells), np.int64)
        given = [np.ascontiguousarray(x, np.int64) for x in (rows, others, cells)]
        kernel.agreements(self.keys, self.thresholds, *given, out)
        return out

    def nearest_by_side(
        self, rows: NDArray[np.int64], values: NDArray[np.float64], edges: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Histograms of the distance to each side, int64 (2, draws, len(edges) + 2); see the kernel."""
        out = np.zeros((2, self.draws, len(edges) + 2), np.int64)
        kernel.sided_cells(self.keys, self.thresholds, *_contiguous(rows, values, edges), out[0], out[1])
        return out

    def ratios_by_side(
        self, rows: NDArray[np.int64], values: NDArray[np.float64], edges: NDArray[np.float64], both_zero: float
    ) -> NDArray[np.int64]:
        """Histograms of the ratio of the two nearest distances on each side, int64 (2, draws, len(edges) + 2)."""
        out = np.zeros((2, self.draws, len(edges) + 2), np.int64)
        held = _contiguous(rows, values, edges)
        kernel.sided_ratios(self.keys, self.thresholds, *held, both_zero, out[0], out[1])
        return out


def _contiguous(
    rows: NDArray[np.int64], values: NDArray[np.float64], edges: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    return (
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(values, np.float64),
        np.ascontiguousarray(edges, np.float64),
    )


@lru_cache(maxsize=8)
def labels(n_first: int, n_second: int, seed: int, draws: int = DRAWS, subjects: Subjects | None = None) -> Labels:
    """The draws of a report.

    >>> drawn = labels(3, 5, seed=0, draws=4)
    >>> drawn.sums(np.arange(8), np.zeros(8, np.int64), 1)[:, 0]
    array([3, 3, 3, 3])
    """
    if n_first < 1 or n_second < 1:
        raise ValueError("both tables need rows")
    keys = kernel.hashes(np.uint64(seed) ^ _KEYS, np.arange(draws, dtype=np.int64))
    if subjects is None:
        n, wanted, numbers = n_first + n_second, n_first, None
    else:
        numbers = np.concatenate(subjects.distinct)
        n, wanted = len(numbers), subjects.counts[0]
    thresholds = np.array([_threshold(k, n, wanted, numbers) for k in keys], np.uint64)
    return Labels(n_first, n_second, keys, thresholds, subjects)


def _threshold(key: np.uint64, n: int, wanted: int, numbers: NDArray[np.int64] | None = None) -> np.uint64:
    """The hash that exactly `wanted` of `numbers` (0 to n - 1 unless given) lie below."""
    share, width = wanted / n, _WIDTH
    while True:
        half = width * (n * share * (1 - share)) ** 0.5 + 16
        low = np.uint64(max(0.0, share - half / n) * 2.0**63) << np.uint64(1)
        high = np.uint64(min(1.0 - 2.0**-53, share + half / n) * 2.0**63) << np.uint64(1)
        room = int(min(n, 6 * half + 64))
        below, held, inside = (
            kernel.window(key, n, low, high, room)
            if numbers is None
            else kernel.window_of(key, numbers, low, high, room)
        )
        rank = wanted - below
        if 0 <= rank < held:
            return np.uint64(np.partition(inside[:held], rank)[rank])
        width *= 4


def below(seed: int, numbers: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """A coin of its own for each number, true with probability `share`; bool (n,).

    >>> bool(below(1, np.arange(1000), 0.5).sum() in range(450, 550))
    True
    """
    key = kernel.hashes(np.uint64(seed), np.array([_COIN], np.int64))[0]
    found: NDArray[np.bool_] = kernel.hashes(key, np.ascontiguousarray(numbers, np.int64)) < np.uint64(share * 2.0**64)
    return found
