"""The defined distance: the float64 sum, in schema order, of weight x column distance, divided once by the total.

Everything else in this package only decides which pairs need that sum.

A row is packed into 64-bit cells in schema order (see `pack`): a number as float64 (NaN = missing), an integer that
float64 cannot hold as int64 (WIDE_MISSING = missing), a category as its code (-1 = missing), a hashed category as
two int64 ((0, 0) = missing).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.compiling import compiled, inlined

NUMBERS, WIDE, CODES, HASHES = 0, 1, 2, 3
LEVEL, DROP, MAXIMUM, ANONYMETER = 0, 1, 2, 3
WIDE_MISSING = np.iinfo(np.int64).min
# A float64 sum of p <= 4000 non-negative terms errs by less than 1e-12 of itself (SLACK), and by less than TINY where
# terms are denormal; the quotient rounds to a distance at most FAINT below the exact one where it is denormal.
SLACK = 1.0 + 1e-12
TINY = 1e-290
FAINT = 1e-322
_LOOK = 15  # early abandon pays only in wide tables: look at the sum after every 16th column

Rows = tuple[NDArray[Any], ...]


class Cells(NamedTuple):
    """Packed rows: the same memory as float64 (n, s) and as int64 (n, s), and the row ids int64 (n,)."""

    number: NDArray[np.float64]
    integer: NDArray[np.int64]
    row: NDArray[np.int64]

    def __reduce__(self) -> tuple[Any, ...]:
        # The memory travels once, and is read-only where it arrives.
        return cells_of, (self.integer, self.row)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view, so that one compiled kernel serves every source of memory."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def cells_of(integer: NDArray[Any], row: NDArray[Any]) -> Cells:
    """Packed rows from their bits, int64 (n, s), and their ids."""
    return Cells(frozen(integer.view(np.float64)), frozen(integer), frozen(row))


class Measure(NamedTuple):
    """What one search makes of two packed rows; arrays are (p,), in schema order, columns of weight 0 left out."""

    group: NDArray[np.int8]
    slot: NDArray[np.int32]
    range: NDArray[np.float64]
    weight: NDArray[np.float64]
    total: float
    missing: int


@compiled
def pack(rows: Rows, group: NDArray[np.int8], column: NDArray[np.int32], slot: NDArray[np.int32], out: Any) -> None:
    """Write the columns of a block (numbers, wide, codes, hashes) into `out`, int64 (n, s)."""
    numbers, wide, codes, hashes = rows[0], rows[1], rows[2], rows[3]
    bits = numbers.view(np.int64)
    for i in range(out.shape[0]):
        for k in range(len(group)):
            g, c, s = group[k], column[k], slot[k]
            if g == NUMBERS:
                out[i, s] = bits[i, c]
            elif g == CODES:
                out[i, s] = codes[i, c]
            elif g == WIDE:
                out[i, s] = wide[i, c]
            else:
                out[i, s] = hashes[i, 2 * c]
                out[i, s + 1] = hashes[i, 2 * c + 1]


@inlined
def sum_limit(best: float, total: float) -> float:
    """A weighted sum above this proves that its distance is above `best`."""
    return (best + FAINT) * total * SLACK + TINY


@inlined
def _gap(none_a: bool, none_b: bool, missing: int) -> float:
    """Distance of two numbers of which at least one is missing; negative when the pair is to be dropped."""
    if missing == DROP:
        return -1.0
    if missing == ANONYMETER:
        return 1.0 if none_a and none_b else np.inf
    return 0.0 if missing == LEVEL and none_a and none_b else 1.0


@inlined
def _unequal(differ: bool, none: bool, missing: int) -> float:
    """Distance of two categories; `none` when one of them is missing."""
    if none and missing == DROP:
        return -1.0
    if none and missing == MAXIMUM:
        return 1.0
    return 1.0 if differ else 0.0


@inlined
def _step(step: float, span: float) -> float:
    """Distance of two numbers `step` apart; a range of 0 makes the column all-or-nothing."""
    if span > 0.0:
        return min(step / span, 1.0)
    return 0.0 if step == 0.0 else 1.0


@inlined
def _column(k: int, i: int, j: int, q: Cells, r: Cells, measure: Measure) -> float:
    """Distance of query row i and reference row j in the k-th column; negative when the pair is to be dropped."""
    missing = measure.missing
    g, s = measure.group[k], measure.slot[k]
    if g == NUMBERS:
        x, y = q.number[i, s], r.number[j, s]
        step = abs(x - y)
        d = _step(step, measure.range[k]) if step == step else _gap(x != x, y != y, missing)
    elif g == CODES:
        a, b = q.integer[i, s], r.integer[j, s]
        d = _unequal(a != b, a < 0 or b < 0, missing)
    elif g == WIDE:
        a, b = q.integer[i, s], r.integer[j, s]
        if WIDE_MISSING in (a, b):
            d = _gap(a == WIDE_MISSING, b == WIDE_MISSING, missing)
        else:
            # The difference of two int64 fits uint64 exactly; it is rounded once.
            d = _step(float(np.uint64(a) - np.uint64(b) if a >= b else np.uint64(b) - np.uint64(a)), measure.range[k])
    else:
        a, b = q.integer[i, s], r.integer[j, s]
        e, f = q.integer[i, s + 1], r.integer[j, s + 1]
        d = _unequal(a != b or e != f, (a == 0 and e == 0) or (b == 0 and f == 0), missing)
    return d


@inlined
def distance(i: int, j: int, q: Cells, r: Cells, measure: Measure, limit: float) -> float:
    """The defined distance of query row i and reference row j; may be +inf when the sum passes `limit`."""
    missing = measure.missing
    done = 0.0
    seen = 0.0
    for k in range(len(measure.group)):
        d = _column(k, i, j, q, r, measure)
        if d < 0.0:
            continue
        w = measure.weight[k]
        seen += w
        done += w * d
        if (k & _LOOK) == _LOOK and done > limit and missing != DROP:
            return np.inf
    if missing == DROP:
        return done / seen if seen > 0.0 else 1.0
    return done / measure.total


@inlined
def widest(i: int, j: int, q: Cells, r: Cells, measure: Measure) -> float:
    """The largest distance of query row i and reference row j in any column of positive weight; 0 without one."""
    most = 0.0
    for k in range(len(measure.group)):
        if measure.weight[k] > 0.0:
            most = max(most, _column(k, i, j, q, r, measure))
    return most


@compiled
def typical(cells: Cells, pairs: int, measure: Measure) -> float:
    """The mean distance of some pairs of rows, far apart in the table; distances count 1 at most."""
    n = len(cells.row)
    total = 0.0
    for p in range(pairs):
        i, j = p * n // pairs, (p + pairs // 2 + (p & 3)) % pairs * n // pairs
        total += min(distance(i, j, cells, cells, measure, np.inf), 1.0)
    return total / pairs
