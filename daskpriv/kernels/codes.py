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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.compiling import compiled, inlined
from daskpriv.kernels.gower import ANONYMETER, DROP, HASHES, LEVEL, MAXIMUM, NUMBERS, WIDE, WIDE_MISSING, Cells

OF_CODES, OF_HASHES, OF_NUMBERS, OF_WIDE, GAP_NUMBERS, GAP_WIDE = 0, 1, 2, 3, 4, 5
BYTES = 255
MOST = 65_535
_CHUNK = 256


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
    # Column by column, so that what a column is gets decided once; some rows at a time, so that they stay in cache.
    for low in range(0, n, _CHUNK):
        rows = range(low, min(low + _CHUNK, n))
        for f in range(a):
            s, step = coder.slot[f], coder.step[f]
            if coder.group[f] == WIDE:
                least, most = coder.wide_low[f], coder.wide_high[f]
                for i in rows:
                    value = cells.integer[i, s]
                    held = min(max(value, least), most)
                    code = np.int32(min(float(np.uint64(held) - np.uint64(least)) * step, 65535.0))
                    number[i, f] = -1 if value == WIDE_MISSING else code
                    loose[i] |= held != value
            else:
                bottom, top = coder.low[f], coder.high[f]
                for i in rows:
                    x = cells.number[i, s]
                    y = min(max(x, bottom), top)
                    loose[i] |= x != y
                    number[i, f] = -1 if x != x else np.int32(min((y - bottom) * step, 65535.0))
        for f in range(b):
            _bytes(cells, rows, coder.source[f], coder.place[f], byte[:, f], loose)
    return Codes(number, byte, loose)


@inlined
def _bytes(cells: Cells, rows: Any, source: int, s: int, out: NDArray[np.uint8], loose: NDArray[np.bool_]) -> None:
    """Bytes of a column: 0 = missing, else 1 to 255; of a gap 1 = missing, else 0. Equal cells have equal bytes."""
    if source == OF_CODES:
        for i in rows:
            value = cells.integer[i, s]
            out[i] = np.uint8(0 if value < 0 else 1 + (value if value < BYTES else value % BYTES))
            loose[i] |= value >= BYTES
    elif source == OF_HASHES:
        for i in rows:
            value = cells.integer[i, s]
            out[i] = np.uint8(0 if value == 0 and cells.integer[i, s + 1] == 0 else 1 + _mixed(value))
    elif source == OF_NUMBERS:
        for i in rows:
            x = cells.number[i, s]
            out[i] = np.uint8(0 if x != x else 1 + (_mixed(cells.integer[i, s]) if x != 0.0 else 0))
    elif source == OF_WIDE:
        for i in rows:
            value = cells.integer[i, s]
            out[i] = np.uint8(0 if value == WIDE_MISSING else 1 + _mixed(value))
    elif source == GAP_NUMBERS:
        for i in rows:
            out[i] = np.uint8(cells.number[i, s] != cells.number[i, s])
    else:
        for i in rows:
            out[i] = np.uint8(cells.integer[i, s] == WIDE_MISSING)


@compiled
def gather(cells: Cells, codes: Codes, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], Codes]:
    """The cells, ids and codes of some rows, in this order."""
    n, s = len(order), cells.integer.shape[1]
    integer, row = np.empty((n, s), np.int64), np.empty(n, np.int64)
    number, byte = np.empty((n, codes.number.shape[1]), np.int32), np.empty((n, codes.byte.shape[1]), np.uint8)
    loose = np.empty(n, np.bool_)
    for i in range(n):
        j = order[i]
        row[i], loose[i] = cells.row[j], codes.loose[j]
        for c in range(s):
            integer[i, c] = cells.integer[j, c]
        for f in range(number.shape[1]):
            number[i, f] = codes.number[j, f]
        for f in range(byte.shape[1]):
            byte[i, f] = codes.byte[j, f]
    return integer, row, Codes(number, byte, loose)


@compiled
def extremes(
    cells: Cells, group: NDArray[np.int8], slot: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Lowest and highest cell of every column, as float64 (p, 2) and int64 (p, 2), and its missing cells, int64 (p,).

    +inf, -inf and the ends of int64 where there is none; hashed categories are not looked at.
    """
    p = len(group)
    number = np.empty((p, 2))
    integer = np.empty((p, 2), np.int64)
    gaps = np.zeros(p, np.int64)
    number[:, 0], number[:, 1] = np.inf, -np.inf
    integer[:, 0], integer[:, 1] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for low in range(0, len(cells.row), _CHUNK):
        rows = range(low, min(low + _CHUNK, len(cells.row)))
        for k in range(p):
            s = slot[k]
            if group[k] == NUMBERS:
                for i in rows:
                    x = cells.number[i, s]
                    gaps[k] += x != x
                    number[k, 0] = x if x < number[k, 0] else number[k, 0]
                    number[k, 1] = x if x > number[k, 1] else number[k, 1]
            elif group[k] != HASHES:
                none = WIDE_MISSING if group[k] == WIDE else -1
                for i in rows:
                    value = cells.integer[i, s]
                    if value == none:
                        gaps[k] += 1
                    else:
                        integer[k, 0], integer[k, 1] = min(integer[k, 0], value), max(integer[k, 1], value)
    return number, integer, gaps


@inlined
def _mixed(value: int) -> int:
    """0 to 254 from 64 bits."""
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return int((mixed >> np.uint64(40)) % np.uint64(BYTES))


@inlined
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
