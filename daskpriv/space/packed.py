"""Rows as the kernels read them: every column of a space in 64 bits, in schema order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.gower import HASHES, Cells, Measure, cells_of, frozen, pack
from daskpriv.space.block import Block
from daskpriv.space.gower import GowerSpace


def packed(space: GowerSpace, block: Block) -> Cells:
    """The rows of a block, packed for this space."""
    measure = space.measure
    out = np.empty((len(block), slots(measure)), np.int64)
    column = frozen(space.index[space.used])
    pack(space.view(block).arrays, measure.group, column, measure.slot, out)
    return cells_of(out, block.row)


def slots(measure: Measure) -> int:
    """64-bit cells of a packed row."""
    return int(measure.slot[-1]) + (2 if measure.group[-1] == HASHES else 1)


def take(cells: Cells, order: NDArray[Any]) -> Cells:
    """Some packed rows, in this order."""
    return cells_of(cells.integer[order], cells.row[order])


def joined(parts: Sequence[Cells]) -> Cells:
    """Packed rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    return cells_of(np.concatenate([p.integer for p in parts]), np.concatenate([p.row for p in parts]))
