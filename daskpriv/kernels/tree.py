"""An order of rows in which neighbours stand together.

Rows are split again and again by the column in which random pairs differ most, numbers near the mean and
categories into two sets, until a tile is left. No choice made here can change a result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.codes import MOST
from daskpriv.kernels.compiling import compiled, inlined
from daskpriv.kernels.lanes import LANES

SAMPLE = 128
LEAF = -1


@compiled
def _spread(
    num: NDArray[np.int32],
    nom: NDArray[np.uint8],
    cap: NDArray[np.int32],
    square: NDArray[np.float32],
    perm: NDArray[np.int64],
    low: int,
    high: int,
    totals: NDArray[np.float32],
) -> int:
    """The column in which random pairs differ most, -1 for none; numbers first, then categories.

    Squares: large differences are what boxes can prove (20 % faster than plain ones on skewed numbers).
    """
    a, b = num.shape[1], nom.shape[1]
    count = high - low
    m = min(count, SAMPLE)
    totals[:] = 0
    for t in range(m):
        i = perm[low + t * count // m]
        j = perm[low + ((t + m // 2 + (t & 3)) % m) * count // m]
        for f in range(a):
            gap = np.float32(min(abs(num[i, f] - num[j, f]), cap[f]))
            totals[f] += gap * gap
        for f in range(b):
            totals[a + f] += square[f] if nom[i, f] != nom[j, f] else np.float32(0.0)
    chosen = int(np.argmax(totals))
    return chosen if totals[chosen] > 0 else -1


@compiled
def _differing(num: NDArray[np.int32], nom: NDArray[np.uint8], perm: NDArray[np.int64], low: int, high: int) -> int:
    """The first column that is not constant, -1 if there is none: what a sample may overlook."""
    first = perm[low]
    for f in range(num.shape[1]):
        for t in range(low + 1, high):
            if num[perm[t], f] != num[first, f]:
                return f
    for f in range(nom.shape[1]):
        for t in range(low + 1, high):
            if nom[perm[t], f] != nom[first, f]:
                return num.shape[1] + f
    return -1


@compiled
def _select(keys: NDArray[np.int64], low: int, high: int, place: int) -> None:
    """Partial sort: keys[place] is what a full sort of keys[low:high] would put there (Hoare)."""
    left, right = low, high - 1
    while left < right:
        a, b, c = keys[left], keys[(left + right) // 2], keys[right]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = left, right
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if place <= j:
            right = j
        elif place >= i:
            left = i
        else:
            return


@compiled
def _cut_number(
    column: NDArray[np.int32], perm: NDArray[np.int64], keys: NDArray[np.int64], low: int, high: int, leaf: int
) -> tuple[int, int]:
    """Reorder perm[low:high] around a middle value; (first place of the upper part, highest code below it)."""
    count = high - low
    mean = 0
    for t in range(low, high):
        keys[t] = (np.int64(column[perm[t]]) << 40) | perm[t]
        mean += keys[t] >> 40
    mean //= count
    under = 0
    for t in range(low, high):
        under += (keys[t] >> 40) <= mean
    target = min(max(under, count // 3), 2 * count // 3)
    middle = low + max(leaf, (target + leaf // 2) // leaf * leaf)
    if middle >= high:
        middle = low + target
    _select(keys, low, high, middle)
    value = keys[middle] >> 40
    below = equal = 0
    for t in range(low, high):
        code = keys[t] >> 40
        below += code < value
        equal += code == value
    cut = middle
    if equal > 1 and (count > 2 * leaf or leaf > LANES):
        # Cut beside the run of equal codes, on the side that leaves the parts more even; the last cuts of a tree of
        # tiles fill the lanes instead.
        first, last = low + below, low + below + equal
        if first == low or (last < high and last - middle < middle - first):
            cut, value = last, value + 1
        else:
            cut = first
    if cut <= low or cut >= high:
        return -1, 0
    # keys < value first
    i, j = low, high - 1
    while i <= j:
        if (keys[i] >> 40) < value:
            i += 1
        else:
            keys[i], keys[j] = keys[j], keys[i]
            j -= 1
    mask = (np.int64(1) << 40) - 1
    for t in range(low, high):
        perm[t] = keys[t] & mask
    return cut, value - 1


@compiled
def _cut_category(
    column: NDArray[np.uint8],
    perm: NDArray[np.int64],
    low: int,
    high: int,
    chosen: NDArray[np.uint8],
    seen: NDArray[np.int64],
) -> int:
    """Reorder perm[low:high]: categories of `chosen` (filled in here) first."""
    seen[:] = 0
    for t in range(low, high):
        seen[column[perm[t]]] += 1
    count = high - low
    chosen[:] = 0
    held = 0
    while True:
        c = np.argmax(seen)
        if seen[c] == 0 or (held > 0 and abs(held + seen[c] - count / 2) > abs(held - count / 2)):
            break
        chosen[c] = 1
        held += seen[c]
        seen[c] = 0
    i, j = low, high - 1
    while i <= j:
        if chosen[column[perm[i]]]:
            i += 1
        else:
            perm[i], perm[j] = perm[j], perm[i]
            j -= 1
    return low + held


@inlined
def _write_set(chosen: NDArray[np.uint8], out: NDArray[np.uint64]) -> None:
    out[:] = np.uint64(0)
    for byte in range(256):
        if chosen[byte]:
            out[byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)


@compiled
def plant(
    num: NDArray[np.int32], nom: NDArray[np.uint8], cap: NDArray[np.int64], add: NDArray[np.int64], leaf: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64]]:
    """Split rows into tiles.

    Parameters
    ----------
    num : int32 (n, a)
        Codes of number columns; -1 = missing.
    nom : uint8 (n, b)
        Bytes of category columns.
    cap, add : int64 (a,), (b,)
        The most a number column, and what a mismatch of a category column, adds to a distance.
    leaf : int
        The most rows of a tile; `LANES` for the lanes.

    Returns
    -------
    perm : int64 (n,)
        Rows in tile order.
    start : int64 (tiles + 1,)
        First place of every tile in `perm`.
    nodes : int32 (m, 4)
        The splits, for `descend`: column, highest code on the left (or place among `sets`), left, right;
        a leaf has column -1 and its tile in the second place.
    sets : uint64 (s, 4)
        One bit for every byte that goes left, for splits by category.
    """
    n, a = num.shape
    perm = np.arange(n)
    caps, squares = cap.astype(np.int32), add.astype(np.float32) ** 2
    totals = np.empty(a + len(add), np.float32)
    keys = np.empty(n, np.int64)
    stack = np.empty((64, 3), np.int64)
    nodes = np.empty((16, 4), np.int32)
    sets = np.full((16, 4), np.uint64(0xFFFFFFFFFFFFFFFF))
    everything = 0
    start = np.empty(16, np.int64)
    made = tiles = 0
    filled = 1
    depth = 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n, -1
    chosen = np.zeros(256, np.uint8)
    seen = np.zeros(256, np.int64)
    while depth > 0:
        depth -= 1
        low, high, parent = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if depth + 2 > len(stack):
            stack = np.concatenate((stack, np.empty_like(stack)))
        if made == len(nodes):
            nodes = np.concatenate((nodes, np.empty_like(nodes)))
        if tiles + 1 >= len(start):
            start = np.concatenate((start, np.empty_like(start)))
        if filled == len(sets):
            sets = np.concatenate((sets, np.empty_like(sets)))
        if parent >= 0:
            nodes[parent >> 1, 2 + (parent & 1)] = made
        cut, column, value = -1, LEAF, 0
        if high - low > leaf:
            column = _spread(num, nom, caps, squares, perm, low, high, totals)
            if column < 0:
                column = _differing(num, nom, perm, low, high)
            if 0 <= column < a:
                cut, value = _cut_number(num[:, column], perm, keys, low, high, leaf)
            elif column >= a:
                cut = _cut_category(nom[:, column - a], perm, low, high, chosen, seen)
                value = filled
                _write_set(chosen, sets[filled])
                filled += 1
            if cut <= low or cut >= high:
                # Equal codes: any cut will do, and `descend` takes the left part.
                column, cut, value = (0, 0, MOST) if a > 0 else (a, 0, everything)
                cut = low + max((high - low) // (2 * leaf) * leaf, leaf)
        if column == LEAF:
            nodes[made, 0], nodes[made, 1], nodes[made, 2], nodes[made, 3] = LEAF, tiles, 0, 0
            start[tiles] = low
            tiles += 1
        else:
            nodes[made, 0], nodes[made, 1] = column, value
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = cut, high, 2 * made + 1
            stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = low, cut, 2 * made
            depth += 2
        made += 1
    start[tiles] = n
    return perm, start[: tiles + 1].copy(), nodes[:made].copy(), sets[:filled].copy()


@compiled
def descend(
    num: NDArray[np.int32], nom: NDArray[np.uint8], nodes: NDArray[np.int32], sets: NDArray[np.uint64]
) -> NDArray[np.int32]:
    """The tile, int32 (n,), to which the splits of a tree lead each row."""
    n, a = num.shape
    tile = np.empty(n, np.int32)
    for i in range(n):
        node = 0
        while nodes[node, 0] != LEAF:
            column, value = nodes[node, 0], nodes[node, 1]
            if column < a:
                left = np.int64(num[i, column] <= value)
            else:
                byte = np.uint64(nom[i, column - a])
                left = np.int64((sets[value, byte >> np.uint64(6)] >> (byte & np.uint64(63))) & np.uint64(1))
            node = nodes[node, 3 - left]
        tile[i] = nodes[node, 1]
    return tile


@compiled
def by_tile(tile: NDArray[np.int32], tiles: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows in the order of their tiles, stable, int64 (n,), and where each tile begins, int64 (tiles + 1,)."""
    start = np.zeros(tiles + 2, np.int64)
    for t in tile:
        start[t + 2] += 1
    start = np.cumsum(start)
    order = np.empty(len(tile), np.int64)
    for i in range(len(tile)):
        order[start[tile[i] + 1]] = i
        start[tile[i] + 1] += 1
    return order, start[: tiles + 1].copy()


@compiled
def distinct(cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows that differ, and which rows each of them stands for.

    Parameters
    ----------
    cells : int64 (n, s)

    Returns
    -------
    chosen : int64 (m,)
        The first row of every group of equal rows.
    first, members : int64 (m + 1,), (n,)
        members[first[g]:first[g + 1]] are the rows of group g, ascending.
    """
    n, s = cells.shape
    size = 16
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    group = np.empty(n, np.int64)
    chosen = np.empty(n, np.int64)
    made = 0
    for i in range(n):
        mixed = np.uint64(1469598103934665603)
        for c in range(s):
            mixed = (mixed ^ np.uint64(cells[i, c])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        at = np.int64(mixed & np.uint64(size - 1))
        while table[at] >= 0:
            j = chosen[table[at]]
            same = True
            for c in range(s):
                if cells[i, c] != cells[j, c]:
                    same = False
                    break
            if same:
                break
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            table[at] = made
            chosen[made] = i
            made += 1
        group[i] = table[at]
    first = np.zeros(made + 2, np.int64)
    for i in range(n):
        first[group[i] + 2] += 1
    first = np.cumsum(first)
    members = np.empty(n, np.int64)
    for i in range(n):
        members[first[group[i] + 1]] = i
        first[group[i] + 1] += 1
    return chosen[:made].copy(), first[: made + 1].copy(), members
