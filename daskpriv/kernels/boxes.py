"""Tiles of 32 rows, boxes around tiles, boxes around 32 boxes, and so on: the planes that `lanes` reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.codes import MOST
from daskpriv.kernels.compiling import compiled
from daskpriv.kernels.lanes import LANES


@compiled
def fill_tiles(
    num: NDArray[np.int32], nom: NDArray[np.uint8], start: NDArray[np.int64], ones: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Planes of every tile, for `row_bounds`; rows stand in tile order.

    A missing number is the interval of all codes: no query is outside it.
    """
    a, b = num.shape[1], nom.shape[1]
    planes = ones + 2 * (a - ones)
    tiles = len(start) - 1
    out_num = np.zeros((tiles, planes, LANES), np.uint16)
    out_nom = np.zeros((tiles, b, LANES), np.uint8)
    for t in range(tiles):
        for j in range(start[t], start[t + 1]):
            lane = j - start[t]
            for f in range(ones):
                out_num[t, f, lane] = num[j, f]
            for f in range(ones, a):
                code = num[j, f]
                at = ones + 2 * (f - ones)
                out_num[t, at, lane] = max(code, 0)
                out_num[t, at + 1, lane] = MOST if code < 0 else code
            for f in range(b):
                out_nom[t, f, lane] = nom[j, f]
    return out_num.reshape(-1), out_nom.reshape(-1)


@compiled
def fill_boxes(
    num: NDArray[np.int32],
    nom: NDArray[np.uint8],
    start: NDArray[np.int64],
    held_at: NDArray[np.int64],
    level_at: NDArray[np.int64],
    drop: bool,
) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]:
    """Boxes of every level, for `box_bounds`; the groups of level l begin at level_at[l]. `drop`: byte 0 is every byte.

    A row of a box is nowhere further inside than the box itself: low <= code <= high and its byte's bit is set, so
    the bound of a box is at most the bound of any row in it.
    """
    a, b = num.shape[1], nom.shape[1]
    words = held_at[b]
    box = np.zeros((level_at[-1], a, 2, LANES), np.uint16)
    box[:, :, 0] = MOST
    held = np.zeros((level_at[-1], words), np.uint32)
    for t in range(len(start) - 1):
        g, lane = level_at[1] + t // LANES, t % LANES
        bit = np.uint32(1) << np.uint32(lane)
        for j in range(start[t], start[t + 1]):
            for f in range(a):
                code = num[j, f]
                box[g, f, 0, lane] = min(box[g, f, 0, lane], np.uint16(max(code, 0)))
                box[g, f, 1, lane] = max(box[g, f, 1, lane], np.uint16(MOST) if code < 0 else np.uint16(code))
            for f in range(b):
                if drop and nom[j, f] == 0:
                    for w in range(held_at[f], held_at[f + 1]):
                        held[g, w] |= bit
                else:
                    held[g, held_at[f] + nom[j, f]] |= bit
    for level in range(2, len(level_at) - 1):
        for child in range(level_at[level - 1], level_at[level]):
            t = child - level_at[level - 1]
            g, lane = level_at[level] + t // LANES, t % LANES
            bit = np.uint32(1) << np.uint32(lane)
            for f in range(a):
                box[g, f, 0, lane] = box[child, f, 0].min()
                box[g, f, 1, lane] = box[child, f, 1].max()
            for w in range(words):
                if held[child, w] != 0:
                    held[g, w] |= bit
    return box.reshape(-1), held.reshape(-1)
