"""Contingency tables of many sets of columns in one pass over coded rows.

codes         uint8 (p, n)   one line per column
widths        int64 (p,)     codes of a column are below its width
combinations  int64 (c, k)   ascending; lines that share all but the last column follow each other
starts        int64 (c + 1,) where the table of each set begins in `out`; cells in row-major order of codes
"""

from __future__ import annotations

import numpy as np

from daskpriv.kernels.compiling import compiled, inlined
from daskpriv.kernels.labels import hash_of

# Codes of so many rows of all columns stay in a fast cache while all tables are filled.
_ROWS = 16_384
# Of one core, for one row in one table of two or three columns (2 GHz Xeon; codes of 100 columns, 16 384 rows).
COUNT_SECONDS = 0.7e-9
# The same for one row in one table under one draw.
DRAW_SECONDS = 0.5e-9


@inlined
def _most_cells(starts):  # type: ignore[no-untyped-def]
    most = 0
    for t in range(len(starts) - 1):
        most = max(most, starts[t + 1] - starts[t])
    return most


@inlined
def _fuse(codes, widths, columns, low, size, out):  # type: ignore[no-untyped-def]
    """The cell that the first columns of a set lead to, before the code of the last one is added."""
    for i in range(size):
        out[i] = 0
    for j in range(len(columns) - 1):
        width, column = np.uint32(widths[columns[j + 1]]), codes[columns[j], low : low + size]
        for i in range(size):
            out[i] = (out[i] + np.uint32(column[i])) * width


@inlined
def _same_start(combinations, widths, t):  # type: ignore[no-untyped-def]
    """Whether the table of set t begins with the same columns as the one before it, and its rows are as wide."""
    last = combinations.shape[1] - 1
    for j in range(last):
        if combinations[t, j] != combinations[t - 1, j]:
            return False
    return widths[combinations[t, last]] == widths[combinations[t - 1, last]]


@compiled
def count(codes, widths, combinations, starts, out):  # type: ignore[no-untyped-def]
    """Add the rows to the tables, int64 (starts[-1],)."""
    n, last = codes.shape[1], combinations.shape[1] - 1
    most = _most_cells(starts)
    some = min(n, max(_ROWS, most))
    fused = np.empty(some, np.uint32)
    # Four tables in turn: rows of one cell that follow each other need not wait for each other.
    a, b, c, d = (
        np.zeros(most, np.int32),
        np.zeros(most, np.int32),
        np.zeros(most, np.int32),
        np.zeros(most, np.int32),
    )
    for low in range(0, n, some):
        size = min(n - low, some)
        for t in range(len(combinations)):
            if t == 0 or not _same_start(combinations, widths, t):
                _fuse(codes, widths, combinations[t], low, size, fused)
            column = codes[combinations[t, last], low : low + size]
            for i in range(0, size - 3, 4):
                a[np.uint64(fused[i]) + np.uint64(column[i])] += 1
                b[np.uint64(fused[i + 1]) + np.uint64(column[i + 1])] += 1
                c[np.uint64(fused[i + 2]) + np.uint64(column[i + 2])] += 1
                d[np.uint64(fused[i + 3]) + np.uint64(column[i + 3])] += 1
            for i in range(size - size % 4, size):
                a[np.uint64(fused[i]) + np.uint64(column[i])] += 1
            for x in range(starts[t + 1] - starts[t]):
                out[starts[t] + x] += np.int64(a[x]) + b[x] + c[x] + d[x]
                a[x], b[x], c[x], d[x] = 0, 0, 0, 0


@compiled
def count_drawn(codes, widths, combinations, starts, rows, keys, thresholds, out):  # type: ignore[no-untyped-def]
    """Add to out[draw] the rows that the draw takes into the first table; int64 (draws, starts[-1]).

    rows : int64 (n,)
        What is hashed for each row.
    keys, thresholds : uint64 (draws,)
        A row is taken when its hash under the key is below the threshold.
    """
    n, last = codes.shape[1], combinations.shape[1] - 1
    some = min(n, _ROWS)
    cells = np.empty(some, np.uint32)
    taken = np.empty((len(keys), some), np.uint8)
    for low in range(0, n, some):
        size = min(n - low, some)
        for draw in range(len(keys)):
            for i in range(size):
                taken[draw, i] = np.uint8(hash_of(keys[draw], rows[low + i]) < thresholds[draw])
        for t in range(len(combinations)):
            _fuse(codes, widths, combinations[t], low, size, cells)
            column = codes[combinations[t, last], low : low + size]
            for i in range(size):
                cells[i] += np.uint32(starts[t]) + np.uint32(column[i])
            for draw in range(len(keys)):
                table, mine = out[draw], taken[draw]
                for i in range(size):
                    table[np.uint64(cells[i])] += mine[i]
