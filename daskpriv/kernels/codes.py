"""Compact codes of packed rows: 16 bits per number, 8 per category, on one common scale of distance.

Why a sum of code differences is a lower bound. A number x of a column with weight w and range R gets the code
floor(v(x)), v(x) = (clamp(x) - low) * (w * scale / R), at most 65 535. Clamping moves no two numbers apart, so
|floor v(x) - floor v(y)| < |v(x) - v(y)| + 1 <= scale * w * |x - y| / R + 1; cut at floor(w * scale) it is at most
scale * w * min(|x - y| / R, 1) + 1. Different bytes prove different categories and add floor(w * scale).
Summed over the a number columns: bound <= scale * (weighted sum) + a. v(x) errs by less than 65 536 * 2**-50, that is
2**-22 over 4 000 columns and two rows, and the float64 sum by less than the SLACK of its limit: one unit covers both.

Where no value is clamped and bytes are injective (`tight`), the same steps bound from above:
scale * (weighted sum) < bound + a + b + 1, since every floor takes away less than 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.compiling import compiled
from daskpriv.kernels.gower import ANONYMETER, DROP, LEVEL, MAXIMUM, WIDE, WIDE_MISSING, Cells

OF_CODES, OF_HASHES, OF_NUMBERS, OF_WIDE, GAP_NUMBERS, GAP_WIDE = 0, 1, 2, 3, 4, 5
BYTES = 255
MOST = 65_535


class Coder(NamedTuple):
    """How packed rows of one index become codes. a number columns come first, then b category columns.

    group int8, slot int32, low, high, step float64, wide_low, wide_high int64, caps int64: (a,)
    source int8, place int32, adds int64: (b,)
    The first `ones` number columns have no missing cell in the reference; `clipped` when two reference values of a
    column lie further apart than its range; `tight` when bounds also hold from above.
    """

    group: NDArray[np.int8]
    slot: NDArray[np.int32]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    wide_low: NDArray[np.int64]
    wide_high: NDArray[np.int64]
    step: NDArray[np.float64]
    caps: NDArray[np.int64]
    source: NDArray[np.int8]
    place: NDArray[np.int32]
    adds: NDArray[np.int64]
    ones: int
    clipped: bool
    tight: bool
    scale: float


class Codes(NamedTuple):
    """Codes of rows.

    number int32 (n, a), -1 = missing; byte uint8 (n, b); loose bool (n,): bounds of this row hold only from below
    """

    number: NDArray[np.int32]
    byte: NDArray[np.uint8]
    loose: NDArray[np.bool_]


class Words(NamedTuple):
    """A query row as the lanes want it: uint32 words that repeat a code, one per column."""

    number: NDArray[np.uint32]
    cap: NDArray[np.uint32]
    byte: NDArray[np.uint32]
    bit: NDArray[np.uint32]
    add: NDArray[np.uint32]


@compiled
def encode(cells: Cells, coder: Coder) -> Codes:
    """Codes of packed rows."""
    n, a, b = len(cells.row), len(coder.group), len(coder.source)
    number = np.empty((n, a), np.int32)
    byte = np.empty((n, b), np.uint8)
    loose = np.zeros(n, np.bool_)
    for i in range(n):
        for f in range(a):
            s = coder.slot[f]
            if coder.group[f] == WIDE:
                value = cells.integer[i, s]
                if value == WIDE_MISSING:
                    number[i, f] = -1
                    loose[i] = True
                else:
                    held = min(max(value, coder.wide_low[f]), coder.wide_high[f])
                    loose[i] |= held != value
                    offset = float(np.uint64(held) - np.uint64(coder.wide_low[f]))
                    number[i, f] = np.int32(min(offset * coder.step[f], 65535.0))
            else:
                x = cells.number[i, s]
                if x != x:
                    number[i, f] = -1
                    loose[i] = True
                else:
                    y = min(max(x, coder.low[f]), coder.high[f])
                    loose[i] |= x != y
                    number[i, f] = np.int32(min((y - coder.low[f]) * coder.step[f], 65535.0))
        for f in range(b):
            byte[i, f] = _byte(cells, i, coder.source[f], coder.place[f])
            loose[i] |= coder.source[f] == OF_CODES and cells.integer[i, coder.place[f]] >= BYTES
    return Codes(number, byte, loose)


@compiled
def _byte(cells: Cells, i: int, source: int, s: int) -> int:
    """0 = missing, else 1 to 255; of a gap 1 = missing, else 0. Equal cells have equal bytes."""
    value = cells.integer[i, s]
    if source == OF_CODES:
        return 0 if value < 0 else 1 + value % BYTES
    if source == OF_HASHES:
        return 0 if value == 0 and cells.integer[i, s + 1] == 0 else 1 + _mixed(value)
    if source == OF_NUMBERS:
        x = cells.number[i, s]
        return 0 if x != x else 1 + (_mixed(value) if x != 0.0 else 0)
    if source == OF_WIDE:
        return 0 if value == WIDE_MISSING else 1 + _mixed(value)
    if source == GAP_NUMBERS:
        x = cells.number[i, s]
        return 1 if x != x else 0
    return 1 if value == WIDE_MISSING else 0


@compiled
def _mixed(value: int) -> int:
    """0 to 254 from 64 bits."""
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return int((mixed >> np.uint64(40)) % np.uint64(BYTES))


@compiled
def spell(
    codes: Codes, i: int, coder: Coder, held_at: NDArray[np.int64], missing: int, words: Words
) -> tuple[int, bool]:
    """Fill in the words of query row i; returns what every reference row adds, and whether terms need their cap.

    Missing cells of the query, per policy (docs/definitions.md). Number columns: the term is switched off (cap 0).
    A column without missing reference cells is then at full distance from every row (`level`, `max`, `anonymeter`),
    or left out (`gower`); one with missing cells has a gap column too, which settles `level`.
    """
    base = 0
    clip = False
    for f in range(len(coder.group)):
        code, most = codes.number[i, f], np.uint32(coder.caps[f])
        if code < 0:
            clip = True
            if missing != DROP and (f < coder.ones or missing != LEVEL):
                base += coder.caps[f]
            code, most = 0, np.uint32(0)
        words.number[f] = np.uint32(code) * np.uint32(0x10001)
        words.cap[f] = most * np.uint32(0x10001)
    for f in range(len(coder.source)):
        byte, charge, source = np.uint32(codes.byte[i, f]), np.uint32(coder.adds[f]), coder.source[f]
        if source >= GAP_NUMBERS:
            if byte == 1 and missing != LEVEL:
                charge = np.uint32(0)
        elif byte == 0:
            if missing == MAXIMUM or (missing == ANONYMETER and source >= OF_NUMBERS):
                base += coder.adds[f]
                charge = np.uint32(0)
            elif missing == DROP:
                charge = np.uint32(0)
        words.byte[f] = byte * np.uint32(0x01010101)
        # A byte that the index does not hold has no bit anywhere: the last word of its column.
        words.bit[f] = np.uint32(min(held_at[f] + np.int64(byte), held_at[f + 1] - 1))
        words.add[f] = charge * np.uint32(0x10001)
    return min(base, MOST), clip
