"""A searchable part of a reference table: its distinct rows in tree order, their codes and boxes, and their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels import boxes, tree
from daskpriv.kernels.codes import MOST, Codes
from daskpriv.kernels.gower import CODES, DROP, HASHES, Cells, cells_of, frozen
from daskpriv.kernels.lanes import LANES
from daskpriv.kernels.search import Planes
from daskpriv.space.arrays import aligned
from daskpriv.space.guide import Guide
from daskpriv.space.packed import joined, take


@dataclass(frozen=True, eq=False)
class Index:
    """What a search needs of one part of a reference table.

    Attributes
    ----------
    part : int
        Which part of its guide.
    planes : Planes
        What the kernels read.
    nodes, sets : arrays
        The splits that lead a query row to the tile where it would stand.
    """

    part: int
    planes: Planes
    nodes: NDArray[np.int32]
    sets: NDArray[np.uint64]

    def __repr__(self) -> str:
        return f"Index(part={self.part}, rows={self.rows})"

    def __sizeof__(self) -> int:
        # What Dask's memory manager sees.
        return self.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        # The float64 view of the cells does not travel; arrays that arrive are aligned again.
        cells, *rest = self.planes
        return _arrived, (self.part, cells.integer, rest, self.nodes, self.sets)

    @property
    def rows(self) -> int:
        """Reference rows it stands for."""
        return len(self.planes.ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        cells, *rest = self.planes
        arrays = [cells.integer, *(a for a in rest if isinstance(a, np.ndarray)), self.nodes, self.sets]
        return sum(a.nbytes for a in arrays)

    @classmethod
    def build(cls, guide: Guide, part: int, pieces: Sequence[Cells]) -> Index:
        """Index packed rows whose ids ascend."""
        cells = joined(pieces)
        chosen, first, members = tree.distinct(cells.integer)
        ids = cells.row[members]
        if len(chosen) < len(ids):
            cells = take(cells, chosen)
        coded = guide.encode(cells)
        coder = guide.coder
        perm, start, nodes, sets = tree.plant(coded.number, coded.byte, coder.caps, coder.adds, LANES)
        first, ids = _regroup(perm, first, ids)
        planes = _planes(guide, cells.integer[perm], coded.number[perm], coded.byte[perm], start, first, ids)
        return cls(part, planes, frozen(nodes), frozen(sets))

    def order(self, coded: Codes) -> NDArray[np.int64]:
        """The order in which query rows stand next to their neighbours."""
        tile = tree.descend(coded.number, coded.byte, self.nodes, self.sets)
        order: NDArray[np.int64] = tree.by_tile(tile, len(self.planes.start) - 1)[0]
        return order


def _arrived(part: int, integer: NDArray[Any], rest: list[Any], nodes: NDArray[Any], sets: NDArray[Any]) -> Index:
    arrays = [aligned(a) if isinstance(a, np.ndarray) else a for a in rest]
    return Index(part, Planes(_without_ids(integer), *arrays), frozen(nodes), frozen(sets))  # type: ignore[arg-type]


def _without_ids(integer: NDArray[Any]) -> Cells:
    """Cells of index rows: their ids are in `Planes.ids`."""
    return cells_of(integer, np.zeros(0, np.int64))


def _regroup(
    perm: NDArray[np.int64], first: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids of groups of equal rows, in another order of the groups."""
    sizes = np.diff(first)[perm]
    moved = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(first[:-1][perm] - moved[:-1], sizes) + np.arange(len(ids))
    return moved, ids[places]


def _planes(
    guide: Guide,
    integer: NDArray[np.int64],
    number: NDArray[np.int32],
    byte: NDArray[np.uint8],
    start: NDArray[np.int64],
    first: NDArray[np.int64],
    ids: NDArray[np.int64],
) -> Planes:
    width = [0, len(start) - 1]
    sizes = [0, -(-width[1] // LANES)]
    while sizes[-1] > 1:
        width.append(sizes[-1])
        sizes.append(-(-sizes[-1] // LANES))
    level_at = np.concatenate([[0], np.cumsum(sizes)])
    most = byte.max(axis=0).astype(np.int64) if byte.shape[1] else np.zeros(0, np.int64)
    held_at = np.concatenate([[0], np.cumsum(most + 2)])
    num, nom = boxes.fill_tiles(number, byte, start, guide.coder.ones)
    box, held = boxes.fill_boxes(number, byte, start, held_at, level_at, guide.space.measure.missing == DROP)
    arrays = (first, ids, start, num, nom, box, held, held_at, level_at[:-1], np.array(width))
    return Planes(_without_ids(integer), *map(aligned, arrays), *_even_steps(guide))  # type: ignore[arg-type,call-arg]


def _even_steps(guide: Guide) -> tuple[NDArray[np.float64], int, int]:
    """What mismatches alone decide, added up as the definition adds.

    The distance of 0, 1, 2 ... mismatches from the left, what one adds to a bound (0 where columns differ in that),
    and the bound of a row that matches nowhere (65 536 where there are numbers).
    """
    measure = guide.space.measure
    sums = np.cumsum(np.concatenate([[0.0], measure.weight]))
    adds = guide.coder.adds
    categories = measure.missing != DROP and bool(np.isin(measure.group, (CODES, HASHES)).all())
    far = int(adds.sum()) if categories and adds.min() > 0 and adds.sum() < MOST else MOST + 1
    return frozen(sums / measure.total), int(adds[0]) if guide.even else 0, far
