"""Searches of one query block in the parts of a reference table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels import codes, search, tree
from daskpriv.kernels.codes import Codes
from daskpriv.kernels.gower import Cells, cells_of
from daskpriv.space.block import Block
from daskpriv.space.guide import Guide
from daskpriv.space.index import Index
from daskpriv.space.packed import packed

Lists = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


class _Queries:
    """Query rows in an order in which neighbours stand together: part by part, and in the tile order of each part."""

    def __init__(self, guide: Guide, parts: Sequence[Index], query: Block) -> None:
        cells = packed(guide.space, query)
        coded = guide.encode(cells)
        if guide.parts == 1:
            order, self.start = np.arange(len(query)), np.array([0, len(query)])
        else:
            order, self.start = tree.by_tile(guide.part_of(coded), guide.parts)
        held = {index.part: index for index in parts}
        for part in np.flatnonzero(np.diff(self.start)):
            s = slice(self.start[part], self.start[part + 1])
            mine = order[s]
            near = held.get(int(part), parts[0])
            order[s] = near.order(coded) if len(mine) == len(query) else mine[near.order(_some(coded, mine))]
        self.order = order
        integer, row, self.codes = codes.gather(cells, coded, order)
        self.cells = cells_of(integer, row)
        self.inside = sorted(held)
        self.outside = [p for p in range(guide.parts) if p not in held]

    def _slices(self, parts: Iterable[int]) -> list[slice]:
        """The rows of some parts, ascending: neighbouring ones in one slice, none empty."""
        out: list[slice] = []
        for p in parts:
            low, high = int(self.start[p]), int(self.start[p + 1])
            if out and out[-1].stop == low:
                out[-1] = slice(out[-1].start, high)
            elif high > low:
                out.append(slice(low, high))
        return out

    def home(self, index: Index) -> list[slice]:
        """The rows that belong to this part."""
        return self._slices([index.part])

    def beside(self, index: Index) -> list[slice]:
        """The rows that belong to another part that is held."""
        return self._slices(p for p in self.inside if p != index.part)

    def away(self, index: Index) -> list[slice]:
        """The rows that belong to a part that is not held."""
        return self._slices(self.outside)


def _some(coded: Codes, rows: NDArray[np.int64] | slice) -> Codes:
    return Codes(coded.number[rows], coded.byte[rows], coded.loose[rows])


def nearest(
    guide: Guide, parts: Sequence[Index], query: Block, same: bool, k: int, enough: NDArray[np.float64] | None = None
) -> Lists:
    """The lists (distance (n, k), row (n, k), ties (n,)) of a query block over all rows of the parts held.

    Without `enough`: only of query rows that belong to one of these parts (all of them, when every part is held);
    each searches its own part first, and what it finds there lets it pass by most of the others.
    With `enough` (n,): only of query rows that belong elsewhere; rows further than that need not be found.
    The lists of other query rows stay empty.
    """
    q = _Queries(guide, parts, query)
    n = len(query)
    distance, row, ties = np.full((n, k), np.inf), np.full((n, k), -1, np.int64), np.zeros(n, np.int64)
    limit = np.full(n, np.inf) if enough is None else enough[q.order]
    for which in (q.home, q.beside) if enough is None else (q.away,):
        for index in parts:
            for s in which(index):
                search.topk(
                    _cells(q.cells, s), _some(q.codes, s), guide.coder, index.planes, guide.space.measure, same,
                    limit[s], distance[s], row[s], ties[s],
                )  # fmt: skip
    found: Lists = search.restored(q.order, distance, row, ties)
    return found


def _cells(cells: Cells, s: slice) -> Cells:
    return Cells(cells.number[s], cells.integer[s], cells.row[s])


def widest(
    guide: Guide, parts: Sequence[Index], query: Block, same: bool, threshold: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest difference in any column to the rows exactly at the threshold, float64 (n,).

    The smallest of it, where several rows are at the threshold; +inf where none is.
    """
    q = _Queries(guide, parts, query)
    limits, none = np.ascontiguousarray(threshold[q.order]), np.zeros(len(query), np.int64)
    apart = np.full(len(query), np.inf)
    for index in parts:
        planes = index.planes
        credit, own = np.zeros(len(planes.first) - 1, np.int64), np.zeros(index.rows, np.int64)
        search.compare(
            q.cells, q.codes, guide.coder, planes, guide.space.measure, same, limits, none, none.copy(), none.copy(),
            credit, own, apart,
        )  # fmt: skip
    out = np.empty_like(apart)
    out[q.order] = apart
    return out


def compare(
    guide: Guide,
    parts: Sequence[Index],
    query: Block,
    same: bool,
    threshold: NDArray[np.float64],
    share: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[NDArray[np.int64], NDArray[np.int64]]]]:
    """Rows closer than, and exactly at, the threshold of each query row, and the credit of those exactly at it.

    Returns
    -------
    closer, equal : int64 (n,)
    credits : list of (row ids, credit), one per part; each query row gives share (n,) to every row at its threshold
    """
    q = _Queries(guide, parts, query)
    limits, shares = np.ascontiguousarray(threshold[q.order]), np.ascontiguousarray(share[q.order])
    counts = np.zeros((2, len(query)), np.int64)
    credits = []
    for index in parts:
        planes = index.planes
        credit, own = np.zeros(len(planes.first) - 1, np.int64), np.zeros(index.rows, np.int64)
        search.compare(
            q.cells, q.codes, guide.coder, planes, guide.space.measure, same, limits, shares, counts[0], counts[1],
            credit, own, np.empty(0),
        )  # fmt: skip
        own += np.repeat(credit, np.diff(planes.first))
        held = np.flatnonzero(own)
        credits.append((planes.ids[held], own[held]))
    out = np.empty_like(counts)
    out[:, q.order] = counts
    return out[0], out[1], credits
