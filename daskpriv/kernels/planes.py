"""Small contingency tables from bit planes: one bit per row and bucket, so that a cell is the count of a logical and.

A pass over 512 rows costs three instructions per cell where the processor counts bits in wide registers; a histogram
loads and stores once per row. The cost grows with the cells, so large tables are left to `daskpriv.kernels.crosstab`.
LLVM lowers the operations to what the processor has; nothing here names an instruction set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

from daskpriv.kernels.compiling import compiled, inlined

# Row by row a table costs 0.7 ns per row, here 0.7 ps per row and cell that is not empty (one core of a 4 GHz Zen 5).
MOST_CELLS = 400

intrinsic: Any = _intrinsic  # called in compiled code only, without the typing context that its definition names
_ROWS = 16_384  # the planes of two columns stay in the fastest cache, those of 100 in the next one
_LINE = 8  # words of a cache line
_NO_CODE = 255  # of rows behind the last one

_I8, _I32, _I64 = (ir.IntType(b) for b in (8, 32, 64))
_BYTES = ir.VectorType(_I8, 64)


@intrinsic
def _ones(context: Any, word: Any) -> Any:
    """The bits that are set in a word."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def _equal(context: Any, codes: Any, at: Any, code: Any) -> Any:
    """A word whose bit i says whether codes[at + i] == code."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.PointerType(_BYTES))
        first = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), args[2], _I32(0))
        repeated = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", builder.load(address, align=1), repeated), _I64)

    return types.uint64(codes, types.int64, types.uint8), generate


@inlined
def _lines(count, words):  # type: ignore[no-untyped-def]
    """Uninitialised planes, uint64 (count, words), that begin on a cache line."""
    held = np.empty(count * words + _LINE, np.uint64)
    start = -(held.ctypes.data // 8) % _LINE
    return held[start : start + count * words].reshape(count, words)


@inlined
def _used(widths, combinations):  # type: ignore[no-untyped-def]
    """Which columns are part of a set, and where their planes begin."""
    used = np.zeros(len(widths), np.bool_)
    for columns in combinations:
        for column in columns:
            used[column] = True
    return used, np.concatenate((np.zeros(1, np.int64), np.cumsum(np.where(used, widths, 0))))


@compiled
def _cut(codes, used, first, planes, code, held):  # type: ignore[no-untyped-def]
    """The planes of a block of rows, those without a row left out; `held[column]` remain, plane p is of code[p]."""
    size, words = codes.shape[1], planes.shape[1]
    line = np.full(64 * words, _NO_CODE, np.uint8)
    for column in range(len(codes)):
        held[column] = 0
        if not used[column]:
            continue
        line[:size] = codes[column]
        for bucket in range(first[column + 1] - first[column]):
            place = first[column] + held[column]
            plane, some = planes[place], np.uint64(0)
            for w in range(words):
                plane[w] = _equal(line, 64 * w, np.uint8(bucket))
                some |= plane[w]
            if some:
                code[place] = bucket
                held[column] += 1


@compiled
def _begin(columns, widths, first, planes, code, held, prefix, cell):  # type: ignore[no-untyped-def]
    """Planes of the cells of the columns before the last that hold rows, and where in a table they lie; how many."""
    last = len(columns) - 1
    cells = 1
    for j in range(last):
        cells *= held[columns[j]]
    made = 0
    for x in range(cells):
        plane, rest, step = prefix[made], x, widths[columns[last]]
        plane[:] = ~np.uint64(0)
        cell[made] = 0
        for j in range(last - 1, -1, -1):
            place = first[columns[j]] + rest % held[columns[j]]
            rest //= held[columns[j]]
            cell[made] += step * code[place]
            step *= widths[columns[j]]
            other = planes[place]
            for w in range(len(plane)):
                plane[w] &= other[w]
        some = np.uint64(0)
        for w in range(len(plane)):
            some |= plane[w]
        made += some != 0
    return made


@compiled
def _add(prefix, cell, planes, code, table):  # type: ignore[no-untyped-def]
    """Add to the table the rows that each plane of `prefix` shares with each of the last column."""
    count = len(planes)
    for i in range(len(prefix)):
        x, row = prefix[i], table[cell[i] :]
        for j in range(0, count - 3, 4):  # four at once: every word of x is loaded once for them
            p, q, r, s = planes[j], planes[j + 1], planes[j + 2], planes[j + 3]
            a, b, c, d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
            for w in range(len(x)):
                a += _ones(x[w] & p[w])
                b += _ones(x[w] & q[w])
                c += _ones(x[w] & r[w])
                d += _ones(x[w] & s[w])
            row[code[j]] += np.int64(a)
            row[code[j + 1]] += np.int64(b)
            row[code[j + 2]] += np.int64(c)
            row[code[j + 3]] += np.int64(d)
        for j in range(count - count % 4, count):
            p, a = planes[j], np.uint64(0)
            for w in range(len(x)):
                a += _ones(x[w] & p[w])
            row[code[j]] += np.int64(a)


@inlined
def _begin_alike(a, b, widths):  # type: ignore[no-untyped-def]
    """Whether two sets share the columns before the last, and the rows of their tables are as long."""
    for j in range(len(a) - 1):
        if a[j] != b[j]:
            return False
    return widths[a[-1]] == widths[b[-1]]


@compiled
def count_small(codes, widths, combinations, starts, out):  # type: ignore[no-untyped-def]
    """Add the rows to the tables, int64 (starts[-1],), none of which may have more than `MOST_CELLS` cells.

    The arguments are those of `daskpriv.kernels.crosstab.count`.
    """
    n, last = codes.shape[1], combinations.shape[1] - 1
    words = _LINE * max(1, min(n + 511, _ROWS) // 512)
    used, first = _used(widths, combinations)
    planes, prefix = _lines(first[-1], words), _lines(MOST_CELLS, words)
    code, cell, held = np.empty(first[-1], np.int64), np.empty(MOST_CELLS, np.int64), np.empty(len(widths), np.int64)
    for low in range(0, n, 64 * words):
        _cut(codes[:, low : low + 64 * words], used, first, planes, code, held)
        made = 0
        for t in range(len(combinations)):
            columns = combinations[t]
            if t == 0 or not _begin_alike(columns, combinations[t - 1], widths):
                made = _begin(columns, widths, first, planes, code, held, prefix, cell)
            a, b = first[columns[last]], first[columns[last]] + held[columns[last]]
            _add(prefix[:made], cell[:made], planes[a:b], code[a:b], out[starts[t] : starts[t + 1]])
