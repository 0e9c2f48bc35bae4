"""The laws of nearest distances and of their ratios under label permutations, from pooled neighbour lists.

The lists of a query row in train and in holdout merge into its k nearest real rows. Relabelled, they tell the nearest
distances on each side up to their last distance, the cut. What lies beyond is counted as at the cut, for the actual
labels too: min(distance, cut) is a function of the labels alone, whatever k is and however ties at the cut were broken,
so that a permutation test of it is exact. A longer list only makes it more powerful. Source: validity.md 2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from daskpriv.evidence import HOLDOUT, TRAIN, Facts, NeighbourTable
from daskpriv.stats.labels import Labels

MOST = 64
_RARE = 1e-6
_AT_ONCE = 8192


def list_length(facts: Facts, needed: int) -> int:
    """Pooled neighbours per query row, so that a draw leaves fewer than `needed` on a side in 1 of 10^6 cases.

    At most 64, where more than 4/5 of the real rows are on one side, and not more than there are rows.

    >>> [list_length(Facts({"train": n, "holdout": 100}, 1), 1) for n in (100, 400, 900)]
    [20, 62, 64]
    """
    n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
    smaller = min(n_train, n_holdout) / (n_train + n_holdout)
    enough = (k for k in range(needed, MOST) if special.bdtr(needed - 1, k, smaller) <= _RARE)
    return min(next(enough, MOST), n_train + n_holdout)


@dataclass(frozen=True, eq=False)
class Pooled:
    """The k nearest real rows of each query row, and the nearest distances per actual side.

    rows        int64   (n, k)  what `Labels.rows` makes of their ids; -1 where there are fewer than k
    distance    float64 (n, k)  ascending; +inf where there is none
    train       float64 (n, j)  nearest distances in train, at most the last pooled one
    holdout     float64 (n, j)  the same in holdout
    """

    rows: NDArray[np.int64]
    distance: NDArray[np.float64]
    train: NDArray[np.float64]
    holdout: NDArray[np.float64]

    @classmethod
    def of(cls, train: NeighbourTable, holdout: NeighbourTable, drawn: Labels, nearest: int) -> Pooled:
        """Merge two lists of equal length k: whoever is among the pooled k nearest is among the k of its side."""
        n, k = train.distance.shape
        rows, distance = np.empty((n, k), np.int64), np.empty((n, k))
        for part in _slices(n):
            both = np.concatenate([train.distance[part], holdout.distance[part]], axis=1)
            ids = np.concatenate([drawn.rows(t.row[part], t is holdout) for t in (train, holdout)], axis=1)
            order = np.argsort(both, axis=1, kind="stable")[:, :k]
            distance[part] = np.take_along_axis(both, order, axis=1)
            rows[part] = np.take_along_axis(ids, order, axis=1)
        cut = distance[:, -1:]
        sides = [np.minimum(t.distance[:, :nearest], cut) for t in (train, holdout)]
        return cls(rows, distance, *sides)

    @property
    def cut(self) -> NDArray[np.float64]:
        """The last distance, float64 (n,); +inf where the list holds all there is."""
        return self.distance[:, -1]


def pooled_distances(
    train: NeighbourTable, holdout: NeighbourTable, ranks: tuple[int, ...]
) -> list[NDArray[np.float64]]:
    """Distances to the pooled neighbours of these ranks (1 is the nearest): they do not know the labels."""
    most = max(ranks)
    both = np.sort(np.concatenate([t.distance[:, :most] for t in (train, holdout)], axis=1), axis=1)
    return [both[:, rank - 1] for rank in ranks]


def nearest_law(pool: Pooled, drawn: Labels, edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Histograms of the nearest distance per side; int64 (2, 1 + draws, len(edges) + 1).

    Place 0 is the actual labels; cell j holds values in (edges[j - 1], edges[j]], the last cell those above all edges.
    """
    beyond = np.searchsorted(edges, pool.cut)

    def count(chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        return drawn.nearest_by_side(pool.rows[chosen], pool.distance[chosen], edges)

    actual = [_cells(np.searchsorted(edges, side[:, 0]), len(edges) + 2) for side in (pool.train, pool.holdout)]
    return _with_actual(actual, _counted(beyond, len(edges) + 2, drawn.draws, count))[..., :-1]


def ratio_law(pool: Pooled, drawn: Labels, edges: NDArray[np.float64], both_zero: float) -> NDArray[np.int64]:
    """Histograms of nearest / second nearest distance per side; int64 (2, 1 + draws, len(edges)).

    Place 0 is the actual labels. The edges begin with 0 and end with 1. Undefined ratios are in no cell: those of
    rows with fewer than two neighbours, and 0/0 when `both_zero` is NaN.
    """
    short = np.isinf(pool.cut)
    of_cut = np.where(pool.cut == 0, both_zero, 1.0)
    beyond = np.where(short, len(edges) + 1, np.searchsorted(edges, of_cut))

    def count(chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        rows, distance = pool.rows[chosen], pool.distance[chosen]
        # The list again, all of it at the cut: a side with one row finds its second distance there.
        again = np.broadcast_to(distance[:, -1:], distance.shape)
        return drawn.ratios_by_side(np.hstack([rows, rows]), np.hstack([distance, again]), edges, both_zero)

    actual = []
    for side in (pool.train, pool.holdout):
        ratio = ratios(side, both_zero)
        cells = np.where(np.isnan(ratio), len(edges) + 1, np.searchsorted(edges, ratio))
        actual.append(_cells(cells, len(edges) + 2))
    return _with_actual(actual, _counted(beyond, len(edges) + 2, drawn.draws, count))[..., :-2]


def ratios(distance: NDArray[np.float64], both_zero: float) -> NDArray[np.float64]:
    """First over second distance, float64 (n,); `both_zero` for 0/0, NaN where there are no two neighbours.

    >>> ratios(np.array([[0.1, 0.4], [0.0, 0.0], [0.2, np.inf]]), 1.0)
    array([0.25, 1.  ,  nan])
    """
    first, second = distance[:, 0], distance[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(second == 0, both_zero, first / second)
    return np.where(np.isinf(second), np.nan, ratio)


def _counted(
    beyond: NDArray[np.int64], n_cells: int, draws: int, count: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Histograms in which a query row that lacks a side (the last cell of `count`) is in its cell `beyond`."""
    out = np.zeros((2, draws, n_cells), np.int64)
    for cell in np.unique(beyond):
        members = np.flatnonzero(beyond == cell)
        for part in _slices(len(members)):
            found = count(members[part])
            lacking = found[..., -1].copy()
            found[..., -1] = 0
            found[..., cell] += lacking
            out += found
    return out


def _with_actual(actual: list[NDArray[np.int64]], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.stack(actual)[:, None], drawn], axis=1)


def _cells(cells: NDArray[np.int64], n_cells: int) -> NDArray[np.int64]:
    return np.bincount(cells, minlength=n_cells).astype(np.int64)


def _slices(n: int) -> Iterator[slice]:
    for start in range(0, n, _AT_ONCE):
        yield slice(start, start + _AT_ONCE)
