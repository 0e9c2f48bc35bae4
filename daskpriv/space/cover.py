"""The outermost box of every part of a reference table: which parts a query row may have a neighbour in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels import search
from daskpriv.kernels.codes import MOST
from daskpriv.kernels.lanes import LANES
from daskpriv.kernels.search import Planes
from daskpriv.space.arrays import aligned
from daskpriv.space.block import Block
from daskpriv.space.guide import Guide
from daskpriv.space.packed import packed

_WORDS = 257  # 256 bytes, and one word for the byte that no part holds


class Cover(NamedTuple):
    """The outermost box of one part: low, high uint16 (a,), and the bytes that occur, bool (b, 256)."""

    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    held: NDArray[np.bool_]

    @classmethod
    def of(cls, guide: Guide, planes: Planes) -> Cover:
        """The box around the boxes of the top level."""
        top, numbers = planes.level_at[-1], len(guide.coder.group)
        box = planes.box.reshape(-1, numbers, 2, LANES)[top] if numbers else np.zeros((0, 2, LANES), np.uint16)
        held = np.zeros((len(planes.held_at) - 1, 256), np.bool_)
        words = planes.held.reshape(-1, planes.held_at[-1])[top] != 0 if len(held) else np.zeros(0, np.bool_)
        for row, (low, high) in zip(held, itertools.pairwise(planes.held_at), strict=True):
            row[: high - low - 1] = words[low : high - 1]
            row |= words[high - 1]  # a missing cell that matches every byte
        return cls(box[:, 0].min(axis=1), box[:, 1].max(axis=1), held)


@dataclass(frozen=True, eq=False)
class Covers:
    """The covers of all parts as planes for the lanes, 32 parts together."""

    box: NDArray[np.uint16]
    held: NDArray[np.uint32]
    group: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Covers(parts={len(self.group)})"

    @classmethod
    def of(cls, covers: Mapping[int, Cover], groups: Sequence[Sequence[int]], parts: int) -> Covers:
        """From the covers of the parts that hold rows; those of a group are searched together."""
        group = np.full(parts, -1, np.int64)
        for number, members in enumerate(groups):
            group[list(members)] = number
        first = next(iter(covers.values()))
        lines = -(-parts // LANES)
        box = np.zeros((lines, len(first.low), 2, LANES), np.uint16)
        box[:, :, 0] = MOST
        held = np.zeros((lines, len(first.held), _WORDS), np.uint32)
        for part, cover in covers.items():
            g, lane = divmod(part, LANES)
            box[g, :, 0, lane], box[g, :, 1, lane] = cover.low, cover.high
            held[g, :, :256] |= np.where(cover.held, np.uint32(1 << lane), np.uint32(0))
        return cls(box.reshape(-1), held.reshape(-1), group)

    def needed(self, guide: Guide, query: Block, enough: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many rows of a block may have a row within `enough` (n,) in each part of another group than their own.

        Returns
        -------
        int64 (parts,)
        """
        cells = packed(guide.space, query)
        coded = guide.encode(cells)
        held_at = np.arange(len(guide.coder.source) + 1) * _WORDS
        found = search.reach(
            coded, guide.coder, guide.space.measure, aligned(self.box), aligned(self.held), aligned(held_at),
            guide.part_of(coded), aligned(self.group), enough.copy(),
        )  # fmt: skip
        return cast(NDArray[np.int64], found)
