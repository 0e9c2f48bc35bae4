"""Random subsets of rows that anybody can recompute for any row: a hash of (draw, row) below a threshold of the draw.

Nothing is stored or sent but one 64-bit threshold per draw, so that no layout of the work changes a label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.compiling import compiled, inlined

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_AT_ONCE = 256
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inlined
def mixed(x):  # type: ignore[no-untyped-def]
    """A bijection of 64 bits that looks random (Steele, Lea & Flood 2014, the variant of Vigna's splitmix64)."""
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@inlined
def hash_of(key, row):  # type: ignore[no-untyped-def]
    """64 random bits of a row in the draw with this key."""
    return mixed(key + np.uint64(row) * _STEP)


@compiled
def hashes(key: np.uint64, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Random bits of many rows, uint64 (n,)."""
    out = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        out[i] = hash_of(key, rows[i])
    return out


@compiled
def window(key, n, low, high, room):  # type: ignore[no-untyped-def]
    """How many of the rows 0 to n - 1 hash below `low`, and the hashes in [low, high), -1 where these overflow."""
    below, held = np.int64(0), np.int64(0)
    inside = np.empty(room, np.uint64)
    some = np.empty(_AT_ONCE, np.uint64)
    for start in range(0, n, _AT_ONCE):
        stop = min(n, start + _AT_ONCE)
        within = np.int64(0)
        for i in range(start, stop):  # compiled to vectors, unlike the loop below, which is seldom entered
            h = hash_of(key, i)
            some[i - start] = h
            below += np.int64(h < low)
            within += np.int64(low <= h) & np.int64(h < high)
        if within:
            if held + within > room:
                return below, np.int64(-1), inside
            for i in range(stop - start):
                if low <= some[i] < high:
                    inside[held] = some[i]
                    held += 1
    return below, held, inside


@compiled
def window_of(key, numbers, low, high, room):  # type: ignore[no-untyped-def]
    """The same as `window` for given numbers, int64 (n,)."""
    below, held = np.int64(0), np.int64(0)
    inside = np.empty(room, np.uint64)
    for i in range(len(numbers)):
        h = hash_of(key, numbers[i])
        below += np.int64(h < low)
        if low <= h < high:
            if held == room:
                return below, np.int64(-1), inside
            inside[held] = h
            held += 1
    return below, held, inside


@compiled
def cell_sums(keys, thresholds, rows, weights, starts, cells, out):  # type: ignore[no-untyped-def]
    """Add to out[draw, cell] the weight of every row drawn into the first table.

    keys, thresholds uint64 (b,); rows, weights int64 (n,), sorted by cell; starts int64 (c + 1,) and cells int64 (c,):
    the rows [starts[j], starts[j + 1]) belong to cells[j]; out int64 (b, cells).
    """
    for b in range(len(keys)):
        key, threshold = keys[b], thresholds[b]
        for j in range(len(cells)):
            total = np.int64(0)
            for i in range(starts[j], starts[j + 1]):  # compiled to vectors
                total += weights[i] * np.int64(hash_of(key, rows[i]) < threshold)
            out[b, cells[j]] += total


@compiled
def sided_cells(keys, thresholds, rows, values, edges, first, second):  # type: ignore[no-untyped-def]
    """Histograms of the distance to the nearest row of each side, in every draw.

    rows int64 (n, k) and values float64 (n, k), ascending, are the pooled neighbours of every query row, -1 where
    there is none. A row none of whose k neighbours is on a side falls into the last cell of that side. Cell j holds
    values in (edges[j - 1], edges[j]].

    first, second : int64 (b, len(edges) + 2), added to.
    """
    n, k = rows.shape
    last = len(edges) + 1
    places = np.empty((n, k), np.int64)
    for i in range(n):
        for j in range(k):
            places[i, j] = np.searchsorted(edges, values[i, j])
    for b in range(len(keys)):
        key, threshold = keys[b], thresholds[b]
        for i in range(n):
            a, o = last, last
            for j in range(k):
                if rows[i, j] < 0:
                    break
                if hash_of(key, rows[i, j]) < threshold:
                    if a == last:
                        a = places[i, j]
                elif o == last:
                    o = places[i, j]
                if last not in (a, o):
                    break
            first[b, a] += 1
            second[b, o] += 1


@compiled
def sided_ratios(keys, thresholds, rows, values, edges, both_zero, first, second):  # type: ignore[no-untyped-def]
    """The same for the ratio of the distances to the two nearest rows of each side.

    0/0 counts as `both_zero`; a row with fewer than two neighbours on a side falls into the last cell.
    """
    n, k = rows.shape
    some = max(1, min(n, (1 << 18) // (k * k)))  # rows whose cells stay in a fast cache
    known = np.empty((some, k, k), np.int16)
    last = len(edges) + 1
    for start in range(0, n, some):
        known[:] = -1
        for b in range(len(keys)):
            key, threshold = keys[b], thresholds[b]
            for i in range(start, min(n, start + some)):
                a1, a2, o1, o2 = -1, -1, -1, -1
                for j in range(k):
                    if rows[i, j] < 0:
                        break
                    if hash_of(key, rows[i, j]) < threshold:
                        if a1 < 0:
                            a1 = j
                        elif a2 < 0:
                            a2 = j
                    elif o1 < 0:
                        o1 = j
                    elif o2 < 0:
                        o2 = j
                    if a2 >= 0 and o2 >= 0:
                        break
                if a2 < 0:
                    first[b, last] += 1
                else:
                    if known[i - start, a1, a2] < 0:
                        known[i - start, a1, a2] = _ratio_cell(values[i, a1], values[i, a2], edges, both_zero)
                    first[b, known[i - start, a1, a2]] += 1
                if o2 < 0:
                    second[b, last] += 1
                else:
                    if known[i - start, o1, o2] < 0:
                        known[i - start, o1, o2] = _ratio_cell(values[i, o1], values[i, o2], edges, both_zero)
                    second[b, known[i - start, o1, o2]] += 1


@inlined
def _ratio_cell(near, far, edges, both_zero):  # type: ignore[no-untyped-def]
    ratio = both_zero if far == 0 else near / far
    return np.searchsorted(edges, ratio)


@compiled
def agreements(keys, thresholds, rows, others, cells, out):  # type: ignore[no-untyped-def]
    """Add to out[draw, cell] the rows whose partner has the same label; rows, others, cells int64 (n,)."""
    for b in range(len(keys)):
        key, threshold = keys[b], thresholds[b]
        for i in range(len(rows)):
            same = (hash_of(key, rows[i]) < threshold) == (hash_of(key, others[i]) < threshold)
            out[b, cells[i]] += np.int64(same)
