"""Exact search in an index: boxes of boxes, boxes of rows, rows on vector lanes, and the float64 sum for what is left.

A bound below which nothing is skipped: `_code_limit` turns a distance into codes so that every row at or below the
distance has a bound at or below the limit (proof in `codes`). Boxes have the bounds of their best possible row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.codes import MOST, Coder, Codes, Words, spell
from daskpriv.kernels.compiling import compiled, inlined
from daskpriv.kernels.gower import DROP, FAINT, SLACK, Cells, Measure, distance, sum_limit, widest
from daskpriv.kernels.lanes import LANES, box_bounds, first_lane, least_lane, row_bounds

_ALL = np.uint32(0xFFFFFFFF)
_ONE = np.uint32(1)
_SORTED = 6  # boxes of a group opened nearest first; where more must be opened, order no longer pays


class Planes(NamedTuple):
    """The arrays of an index; rows of `cells` are distinct and stand in tile order.

    first     int64 (n + 1,)  row j stands for the rows ids[first[j]:first[j + 1]]; `ids` ascend inside
    start     int64 (t + 1,)  first row of every tile
    num, nom  planes of tiles; box, held: planes of boxes (see `boxes`)
    held_at   int64 (b + 1,)  first word of each category column among those of a group
    level_at  int64 (l + 1,)  first group of each level of boxes; level 1 holds boxes around tiles, 0 is unused
    width     int64 (l + 1,)  boxes of each level
    steps     float64 (m,)    where all columns are categories: the distance of 0, 1, 2 ... mismatches from the left
    even      int             what a mismatch adds to a bound where all columns have one weight, else 0
    far       int             the bound of a row that matches nowhere; more than any bound where there are numbers
    """

    cells: Cells
    first: NDArray[np.int64]
    ids: NDArray[np.int64]
    start: NDArray[np.int64]
    num: NDArray[np.uint16]
    nom: NDArray[np.uint8]
    box: NDArray[np.uint16]
    held: NDArray[np.uint32]
    held_at: NDArray[np.int64]
    level_at: NDArray[np.int64]
    width: NDArray[np.int64]
    steps: NDArray[np.float64]
    even: int
    far: int


class _Walk(NamedTuple):
    """Where a query stands in the tree: per level its group, bounds, boxes still to visit, and how many it opened."""

    group: NDArray[np.int64]
    bound: NDArray[np.uint16]
    mask: NDArray[np.uint32]
    opened: NDArray[np.int64]
    level: NDArray[np.int64]


@inlined
def _code_limit(limit: float, scale: float, slack: int) -> np.uint16:
    """The highest bound that a row at or below the weighted sum `limit` can have."""
    level = limit * scale
    return np.uint16(MOST) if not level < MOST - slack else np.uint16(np.int64(level) + slack)


@inlined
def _first(count: int) -> np.uint32:
    """The mask of the first `count` lanes."""
    return _ALL if count >= LANES else (_ONE << np.uint32(count)) - _ONE


@inlined
def _pick(bound: NDArray[np.uint16], mask: np.uint32) -> int:
    """The lane of `mask` to look at next: nearest first, so that later ones may need no look."""
    return first_lane(mask) if mask & (mask - _ONE) == 0 else least_lane(bound, mask)


@inlined
def _open(
    walk: _Walk, level: int, group: int, planes: Planes, coder: Coder, words: Words, base: int, code: int
) -> None:
    """Bound the 32 boxes of a group."""
    a, b = len(coder.group), len(coder.source)
    at = planes.level_at[level] + group
    walk.group[level] = group
    mask = box_bounds(
        planes.box, at * 2 * LANES * a, planes.held, at * planes.held_at[b], words.number, words.cap, words.bit,
        words.add, a, b, np.uint16(base), code, walk.bound[level],
    )  # fmt: skip
    walk.mask[level] = mask & _first(planes.width[level] - LANES * group)
    walk.opened[level] = 0
    walk.level[0] = level


@inlined
def _next_tile(walk: _Walk, planes: Planes, coder: Coder, words: Words, base: int, code: int) -> int:
    """The next tile that may hold a row at or below `code`; -1 when there is none."""
    top = len(planes.level_at) - 1
    level = walk.level[0]
    tile = -1
    while True:
        mask = walk.mask[level]
        if mask == 0:
            if level == top:
                break
            level += 1
            continue
        sorting = walk.opened[level] < _SORTED
        lane = _pick(walk.bound[level], mask) if sorting else first_lane(mask)
        if walk.bound[level, lane] > code:
            # Nearest first: no other box of the group is nearer.
            walk.mask[level] = np.uint32(0) if sorting else mask & (mask - _ONE)
            continue
        walk.mask[level] = mask & ~(_ONE << np.uint32(lane))
        walk.opened[level] += 1
        child = LANES * walk.group[level] + lane
        if level == 1:
            tile = child
            break
        level -= 1
        _open(walk, level, child, planes, coder, words, base, code)
    walk.level[0] = level
    return tile


@inlined
def _rows(
    tile: int,
    planes: Planes,
    coder: Coder,
    words: Words,
    clip: bool,
    drop: bool,
    base: int,
    code: int,
    out: NDArray[np.uint16],
) -> np.uint32:
    """The mask of rows of a tile at or below `code`; bounds in `out`."""
    a, b, ones = len(coder.group), len(coder.source), coder.ones
    mask = row_bounds(
        planes.num, tile * LANES * (2 * a - ones), planes.nom, tile * LANES * b, words.number, words.cap, words.byte,
        words.add, ones, a - ones, clip, b, drop, np.uint16(base), code, out,
    )  # fmt: skip
    return mask & _first(planes.start[tile + 1] - planes.start[tile])


@compiled
def _scratch(a: int, b: int, levels: int) -> tuple[Words, _Walk]:
    zero = np.uint32(0)
    words = Words(
        np.full(a + 1, zero), np.full(a + 1, zero), np.full(b + 1, zero), np.full(b + 1, zero), np.full(b + 1, zero)
    )
    walk = _Walk(
        np.zeros(levels, np.int64),
        np.zeros((levels, LANES), np.uint16),
        np.zeros(levels, np.uint32),
        np.zeros(levels, np.int64),
        np.zeros(1, np.int64),
    )
    return words, walk


@compiled
def _find(name: int, ids: NDArray[np.int64], low: int, high: int) -> int:
    """The place of row id `name` in ids[low:high], which ascend; -1 where it is not there."""
    at = low + int(np.searchsorted(ids[low:high], name))
    return at if at < high and ids[at] == name else -1


@inlined
def _known(bound: int, even: bool, planes: Planes) -> float:
    """The distance that a bound alone tells, where mismatches decide; -1 where it does not."""
    if even:
        return planes.steps[bound // planes.even]
    return planes.steps[-1] if bound == planes.far else -1.0


@inlined
def _warm(
    i: int, near: NDArray[np.int64], mine: int, q: Cells, planes: Planes, measure: Measure, exclude_self: bool
) -> float:
    """An upper bound of the k-th distance of query row i: the k neighbours of the query row before it.

    When one of them is this very row, the query row before it takes its place.
    """
    worst = 0.0
    for j in near:
        if j >= 0 and exclude_self and _find(q.row[i], planes.ids, planes.first[j], planes.first[j + 1]) >= 0:
            j = mine
        if j < 0:
            return np.inf
        worst = max(worst, distance(i, j, q, planes.cells, measure, np.inf))
    return worst


@inlined
def _repeats(i: int, q: Cells) -> bool:
    """Whether query row i equals the row before it."""
    s = 0
    while s < q.integer.shape[1] and q.integer[i, s] == q.integer[i - 1, s]:
        s += 1
    return s == q.integer.shape[1]


@compiled
def topk(
    q: Cells,
    codes: Codes,
    coder: Coder,
    planes: Planes,
    measure: Measure,
    exclude_self: bool,
    enough: NDArray[np.float64],
    nearest: NDArray[np.float64],
    row: NDArray[np.int64],
    ties: NDArray[np.int64],
) -> None:
    """Offer every reference row to every query row's list, in place.

    `nearest`, `row` (n, k) and `ties` (n,) hold what earlier indexes found (+inf, -1, 0 at the start).
    The order is (distance, row id), so that indexes may come in any order. Rows further than `enough` (n,) need not
    be found. Query rows should stand in an order in which neighbours are close; none is needed.
    """
    k = nearest.shape[1]
    words, walk = _scratch(len(coder.group), len(coder.source), len(planes.level_at))
    near = np.full(k, -1, np.int64)
    slack = len(coder.group) + 2
    drop = measure.missing == DROP
    out = walk.bound[0]
    top = len(planes.level_at) - 1
    mine = -1
    for i in range(len(q.row)):
        if i > 0 and not exclude_self and _repeats(i, q):
            nearest[i], row[i], ties[i] = nearest[i - 1], row[i - 1], ties[i - 1]
            continue
        best = min(nearest[i, k - 1], enough[i], _warm(i, near, mine, q, planes, measure, exclude_self))
        near[:] = -1
        mine = -1
        base, clip = spell(codes, i, coder, planes.held_at, measure.missing, words)
        clip = clip or coder.clipped
        even = planes.even > 0 and not codes.loose[i]
        limit = sum_limit(best, measure.total)
        code = _code_limit(limit, coder.scale, slack)
        _open(walk, top, 0, planes, coder, words, base, code)
        while True:
            tile = _next_tile(walk, planes, coder, words, base, code)
            if tile < 0:
                break
            mask = _rows(tile, planes, coder, words, clip, drop, base, code, out)
            while mask != 0:
                lane = _pick(out, mask)
                if out[lane] > code:
                    break
                mask &= ~(_ONE << np.uint32(lane))
                j = planes.start[tile] + lane
                d = _known(np.int64(out[lane]), even, planes)
                if d < 0.0:
                    d = distance(i, j, q, planes.cells, measure, limit)
                if d == np.inf or d > nearest[i, k - 1]:
                    continue
                for at in range(planes.first[j], planes.first[j + 1]):
                    name = planes.ids[at]
                    if exclude_self and name == q.row[i]:
                        mine = j
                        continue
                    if d < nearest[i, 0]:
                        ties[i] = 1
                    elif d == nearest[i, 0]:
                        ties[i] += 1
                    p = k - 1
                    if d > nearest[i, p] or (d == nearest[i, p] and 0 <= row[i, p] < name):
                        if d == nearest[i, 0]:
                            # Ids ascend: the rest of the group only adds to the ties.
                            ties[i] += planes.first[j + 1] - at - 1
                            if exclude_self and _find(q.row[i], planes.ids, at + 1, planes.first[j + 1]) >= 0:
                                ties[i] -= 1
                                mine = j
                        break
                    while p > 0 and (
                        d < nearest[i, p - 1]
                        or (d == nearest[i, p - 1] and (row[i, p - 1] < 0 or name < row[i, p - 1]))
                    ):
                        nearest[i, p], row[i, p], near[p] = nearest[i, p - 1], row[i, p - 1], near[p - 1]
                        p -= 1
                    nearest[i, p], row[i, p], near[p] = d, name, j
                if nearest[i, k - 1] < best:
                    best = nearest[i, k - 1]
                    limit = sum_limit(best, measure.total)
                    code = _code_limit(limit, coder.scale, slack)


@compiled
def compare(
    q: Cells,
    codes: Codes,
    coder: Coder,
    planes: Planes,
    measure: Measure,
    exclude_self: bool,
    threshold: NDArray[np.float64],
    share: NDArray[np.int64],
    closer: NDArray[np.int64],
    equal: NDArray[np.int64],
    credit: NDArray[np.int64],
    own: NDArray[np.int64],
    apart: NDArray[np.float64],
) -> None:
    """Count reference rows below and exactly at `threshold` (n,), and credit those exactly at it, in place.

    Every reference row at exactly threshold[i] gets share[i]: `credit` (m,) is that of each row of `planes.ids` that
    an index row stands for, `own` (ids,) what single ones of them have less. `apart` (n,), or (0,) when it is not
    wanted, is lowered to the smallest `widest` of the rows exactly at the threshold.
    """
    words, walk = _scratch(len(coder.group), len(coder.source), len(planes.level_at))
    slack = len(coder.group) + 2
    drop = measure.missing == DROP
    out = walk.bound[0]
    top = len(planes.level_at) - 1
    for i in range(len(q.row)):
        base, clip = spell(codes, i, coder, planes.held_at, measure.missing, words)
        clip = clip or coder.clipped
        even = planes.even > 0 and not codes.loose[i]
        limit = sum_limit(threshold[i], measure.total)
        code = _code_limit(limit, coder.scale, slack)
        sure = _sure(threshold[i], measure.total, coder) if coder.tight and not codes.loose[i] else -1
        _open(walk, top, 0, planes, coder, words, base, code)
        while True:
            tile = _next_tile(walk, planes, coder, words, base, code)
            if tile < 0:
                break
            mask = _rows(tile, planes, coder, words, clip, drop, base, code, out)
            while mask != 0:
                lane = first_lane(mask)
                mask &= mask - _ONE
                j = planes.start[tile] + lane
                bound = np.int64(out[lane])
                d = _known(bound, even, planes)
                if d < 0.0 and bound >= sure:
                    d = distance(i, j, q, planes.cells, measure, limit)
                if d > threshold[i]:
                    continue
                low, high = planes.first[j], planes.first[j + 1]
                mine = _find(q.row[i], planes.ids, low, high) if exclude_self else -1
                count = high - low - (mine >= 0)
                if d < threshold[i]:
                    closer[i] += count
                    continue
                equal[i] += count
                credit[j] += share[i]
                if mine >= 0:
                    own[mine] -= share[i]
                if len(apart) > 0 and count > 0:
                    apart[i] = min(apart[i], widest(i, j, q, planes.cells, measure))


@compiled
def restored(
    order: NDArray[np.int64], nearest: NDArray[np.float64], row: NDArray[np.int64], ties: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Lists of query rows that stand in this order, in the order of the query block."""
    out = np.empty_like(nearest), np.empty_like(row), np.empty_like(ties)
    for i in range(len(order)):
        j = order[i]
        out[2][j] = ties[i]
        for p in range(nearest.shape[1]):
            out[0][j, p], out[1][j, p] = nearest[i, p], row[i, p]
    return out


@compiled
def reach(
    codes: Codes,
    coder: Coder,
    measure: Measure,
    box: NDArray[np.uint16],
    held: NDArray[np.uint32],
    held_at: NDArray[np.int64],
    home: NDArray[np.int32],
    group: NDArray[np.int64],
    enough: NDArray[np.float64],
) -> NDArray[np.int64]:
    """How many query rows may find a row within `enough` (n,) in each part, int64 (parts,).

    Parts of the same `group` (parts,) as the one where a row is at `home` (n,) do not count.
    """
    parts = len(group)
    a, b = len(coder.group), len(coder.source)
    words, walk = _scratch(a, b, 1)
    seen = np.zeros(parts, np.int64)
    for i in range(len(enough)):
        base, _ = spell(codes, i, coder, held_at, measure.missing, words)
        code = _code_limit(sum_limit(enough[i], measure.total), coder.scale, a + 2)
        for g in range((parts + LANES - 1) // LANES):
            mask = box_bounds(
                box, g * 2 * LANES * a, held, g * held_at[b], words.number, words.cap, words.bit, words.add, a, b,
                np.uint16(base), code, walk.bound[0],
            )  # fmt: skip
            mask &= _first(parts - LANES * g)
            while mask != 0:
                part = LANES * g + first_lane(mask)
                seen[part] += group[part] != group[home[i]]
                mask &= mask - _ONE
    return seen


@inlined
def _sure(distance: float, total: float, coder: Coder) -> int:
    """A bound below which a row is closer than `distance` without looking (proof in `codes`)."""
    level = max((distance - FAINT) * total / SLACK * coder.scale, 0.0)
    if not level < MOST:
        level = float(MOST)
    return int(level) - len(coder.group) - len(coder.source) - 2
