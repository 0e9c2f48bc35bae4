"""The kernels one by one: lanes against numpy, bounds under attack, trees, indexes, compiled code, layouts."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from daskpriv.engine.executor import Executor, Serial, Threads
from daskpriv.engine.plan import Layout
from daskpriv.engine.run import Blocks, Engine
from daskpriv.evidence import CloserCounts, Credits, Neighbours
from daskpriv.kernels import codes, search, tree
from daskpriv.kernels.codes import MOST
from daskpriv.kernels.gower import CODES, DROP, NUMBERS, WIDE, frozen, sum_limit
from daskpriv.kernels.lanes import LANES
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.space.block import Block
from daskpriv.space.gower import Missing, SpaceOptions
from daskpriv.space.guide import Extent, Guide
from daskpriv.space.index import Index
from daskpriv.space.packed import packed
from daskpriv.space.searching import compare, nearest
from daskpriv.tables.open import open_table
from tests import kernel_programs as kit
from tests.kernel_programs import Array, Floats, Generator, World

Words = NDArray[np.uint32]
ROOT = Path(__file__).parent.parent
NOTHING = 2**20


# ---------------------------------------------------------------------------------------------- lanes


def code_values(rng: Generator, *shape: int) -> Array:
    """Codes of every size, often at the ends."""
    most = rng.choice([3, 300, 4000, MOST])
    drawn = rng.integers(0, most, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.1, rng.choice([0, 1, MOST - 1, MOST], shape), drawn)


def repeated(values: Array, bits: int) -> Words:
    """Query words: a code in every 16 or 8 bits; never an array of length 0, as in the search."""
    return np.append(values, 0).astype(np.uint32) * np.uint32(0x10001 if bits == 16 else 0x01010101)


def below(sums: Array, limit: int) -> int:
    """The mask of lanes at or below the limit."""
    return int((sums <= limit) @ (1 << np.arange(LANES, dtype=np.int64)))


def assert_lanes(found: tuple[int, Array], sums: Array, limit: int) -> None:
    """The mask always, the sums wherever one is needed: none is when every lane is above the limit."""
    mask, out = found
    assert mask == below(sums, limit)
    if mask:
        assert out.tolist() == sums.tolist()
    else:
        assert (out > limit).all()
        assert (out <= sums).all()


COUNTS = (0, 0, 1, 2, 5, 7, 8, 9, 15, 16, 17, 24, 40)
LIMITS = (0, 1, 100, 3000, 40_000, MOST - 1, MOST)


def test_row_bounds_are_those_of_numpy() -> None:
    """Every flag, no columns of any kind, counts around eight, sums that saturate, bases above the limit."""
    seen = set()
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        ones, pairs, cats = (int(rng.choice(COUNTS)) for _ in range(3))
        clip, drop = (bool(rng.integers(2)) for _ in range(2))
        base, limit = (int(rng.choice(LIMITS)) for _ in range(2))
        tiles, planes = int(rng.integers(1, 4)), ones + 2 * pairs
        num = code_values(rng, tiles, planes, LANES)
        num[:, ones:] = np.sort(num[:, ones:].reshape(tiles, pairs, 2, LANES), axis=2).reshape(tiles, -1, LANES)
        nom = rng.integers(0, rng.choice([2, 5, 256]), (tiles, cats, LANES))
        q_num, q_nom = code_values(rng, ones + pairs), rng.integers(0, rng.choice([2, 5, 256]), cats)
        cap, add = code_values(rng, ones + pairs), code_values(rng, cats)
        tile = int(rng.integers(tiles))
        out = np.zeros(LANES, np.uint16)
        mask = kit.ROWS(
            num.astype(np.uint16).reshape(-1), tile * planes * LANES, nom.astype(np.uint8).reshape(-1),
            tile * cats * LANES, repeated(q_num, 16), repeated(cap, 16), repeated(q_nom, 8), repeated(add, 16), ones,
            pairs, clip, cats, drop, base, limit, out,
        )  # fmt: skip
        mine, bytes_ = num[tile], nom[tile]
        gap = abs(mine[:ones] - q_num[:ones, None])
        low, high = mine[ones::2], mine[ones + 1 :: 2]
        outside = np.maximum(low - q_num[ones:, None], 0) | np.maximum(q_num[ones:, None] - high, 0)
        differ = (bytes_ != q_nom[:, None]) & ~(drop & (bytes_ == 0))
        sums = base + np.minimum(outside, cap[ones:, None]).sum(axis=0) + (differ * add[:, None]).sum(axis=0)
        sums = np.minimum(sums + (np.minimum(gap, cap[:ones, None]) if clip else gap).sum(axis=0), MOST)
        assert_lanes((int(mask), out), sums, limit)
        seen.add((clip, drop, mask == 0, base > limit, bool((sums == MOST).any())))
    assert len(seen) >= 20


def test_box_bounds_are_those_of_numpy() -> None:
    """Lowest and highest codes, sets of bytes, boxes that hold nothing."""
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        numbers, cats = (int(rng.choice(COUNTS)) for _ in range(2))
        base, limit = (int(rng.choice(LIMITS)) for _ in range(2))
        groups, words = int(rng.integers(1, 4)), cats * 5 + 1
        num = np.sort(code_values(rng, groups, numbers, 2, LANES), axis=2)
        empty = rng.random((groups, numbers, LANES)) < 0.1
        num = np.where(empty[:, :, None], np.array([MOST, 0])[:, None], num)
        held = rng.integers(0, 2**32, (groups, words)) & rng.integers(0, 2**32, (groups, words))
        q_num, q_bit = code_values(rng, numbers), rng.integers(0, words, cats)
        cap, add = code_values(rng, numbers), code_values(rng, cats)
        group = int(rng.integers(groups))
        out = np.zeros(LANES, np.uint16)
        mask = kit.BOXES(
            num.astype(np.uint16).reshape(-1), group * 2 * numbers * LANES, held.astype(np.uint32).reshape(-1),
            group * words, repeated(q_num, 16), repeated(cap, 16), np.append(q_bit, 0).astype(np.uint32),
            repeated(add, 16), numbers, cats, base, limit, out,
        )  # fmt: skip
        low, high = num[group, :, 0], num[group, :, 1]
        outside = np.maximum(low - q_num[:, None], 0) | np.maximum(q_num[:, None] - high, 0)
        absent = (held[group][q_bit][:, None] >> np.arange(LANES)) & 1 == 0
        sums = base + np.minimum(outside, cap[:, None]).sum(axis=0) + (absent * add[:, None]).sum(axis=0)
        assert_lanes((int(mask), out), np.minimum(sums, MOST), limit)


def test_the_lane_to_look_at_next_is_the_first_of_the_least() -> None:
    """Among those of the mask alone."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        bounds = code_values(rng, LANES).astype(np.uint16)
        mask = int(rng.integers(1, 2**32)) & int(rng.choice([2**32 - 1, 0x11, 1 << 31, rng.integers(1, 2**32)]))
        lanes = [i for i in range(LANES) if mask >> i & 1]
        if lanes:
            least, first = kit.LANE(bounds, mask)
            assert least == min(lanes, key=lambda i: (bounds[i], i))
            assert first == lanes[0]


# ---------------------------------------------------------------------------------------------- bounds, attacked


@njit(nogil=True)
def _every_bound(coded, coder, planes, measure):  # type: ignore[no-untyped-def]
    """Bounds of all rows, (n, rows), and of all boxes, (n, boxes) in the order of their groups; as the search does."""
    n, levels = len(coded.loose), len(planes.level_at)
    words, walk = search._scratch(len(coder.group), len(coder.source), levels)
    rows = np.zeros((n, planes.start[-1]), np.uint16)
    groups = planes.level_at[levels - 1] + 1
    boxes = np.zeros((n, groups * LANES), np.uint16)
    drop = measure.missing == DROP
    for i in range(n):
        base, clip = codes.spell(coded, i, coder, planes.held_at, measure.missing, words)
        clip = clip or coder.clipped
        for t in range(len(planes.start) - 1):
            search._rows(t, planes, coder, words, clip, drop, base, np.uint16(MOST), walk.bound[0])
            for j in range(planes.start[t], planes.start[t + 1]):
                rows[i, j] = walk.bound[0, j - planes.start[t]]
        for level in range(1, levels):
            last = groups if level == levels - 1 else planes.level_at[level + 1]
            for group in range(last - planes.level_at[level]):
                search._open(walk, level, group, planes, coder, words, base, np.uint16(MOST))
                at = (planes.level_at[level] + group) * LANES
                boxes[i, at : at + LANES] = walk.bound[level]
    return rows, boxes


@njit(nogil=True)
def _kept(coded, coder, planes, measure, allowed):  # type: ignore[no-untyped-def]
    """Whether a search with the limit of a row keeps that row, for each query row."""
    n = len(coded.loose)
    words, walk = search._scratch(len(coder.group), len(coder.source), len(planes.level_at))
    kept = np.zeros(allowed.shape, np.bool_)
    for i in range(n):
        base, clip = codes.spell(coded, i, coder, planes.held_at, measure.missing, words)
        clip = clip or coder.clipped
        for t in range(len(planes.start) - 1):
            for j in range(planes.start[t], planes.start[t + 1]):
                code, lane = np.uint16(allowed[i, j]), np.uint32(j - planes.start[t])
                mask = search._rows(
                    t, planes, coder, words, clip, measure.missing == DROP, base, code, walk.bound[0]
                )  # fmt: skip
                kept[i, j] = (mask >> lane) & np.uint32(1) != 0
    return kept


@njit(nogil=True)
def _limits(distance, coder, total):  # type: ignore[no-untyped-def]
    """Of each distance: the highest bound a row may have at it, and the bound below which a row is surely closer."""
    allowed, sure = np.empty(distance.shape, np.int64), np.empty(distance.shape, np.int64)
    for i in range(distance.shape[0]):
        for j in range(distance.shape[1]):
            d = distance[i, j]
            allowed[i, j] = search._code_limit(sum_limit(d, total), coder.scale, len(coder.group) + 2)
            sure[i, j] = search._sure(d, total, coder)
    return allowed, sure


class Attack:
    """A reference in which query rows are sought whose bounds are too high, or too low.

    Cells of both tables are moved to the edges of codes, where rounding down takes or leaves most; then query rows
    climb: a changed row stays when the worst of its pairs got worse.
    """

    def __init__(self, rng: Generator, world: World, edges: bool) -> None:
        self.rng, self.space = rng, world.space
        self.measure = world.space.measure
        self.guide = world.guide()
        self.coder = self.guide.coder
        used = np.flatnonzero(world.space.used)
        place = {int(s): int(used[k]) for k, s in enumerate(self.measure.slot)}
        self.columns = [
            (f, int(world.space.index[place[int(s)]])) for f, s in enumerate(self.coder.slot) if self.coder.step[f] > 0
        ]
        self.reference = self.at_edges(world.reference) if edges else world.reference
        self.query = self.at_edges(world.query) if edges else world.query
        if edges and len(self.query) <= len(self.reference):
            self.query = self.beside(self.reference.slice(0, len(self.query)))
        self.index = Index.build(self.guide, 0, [packed(self.space, self.reference)])
        planes = self.index.planes
        self.rows = planes.ids[planes.first[:-1]]  # one id of every distinct row, in tile order

    def edge(self, f: int, n: int) -> Array:
        """Numbers of a column at, or one step of float64 beside, the place where a code begins."""
        c, most = self.coder, 65_535.0
        if c.group[f] == WIDE:
            width = int(c.wide_high[f]) - int(c.wide_low[f])
            offset = np.floor(self.rng.integers(0, max(1, int(min(width * c.step[f], most))), n) / c.step[f])
            offset = offset + self.rng.integers(-1, 2, n)
            return np.array([int(c.wide_low[f]) + min(max(int(o), 0), width) for o in offset], np.int64)
        top = min((c.high[f] - c.low[f]) * c.step[f], most)
        code = self.rng.integers(0, max(1, int(min(top, self.rng.choice([3.0, most])))), n)
        at = c.low[f] + code / c.step[f]
        return np.clip(self.nudged(at), c.low[f], c.high[f])

    def nudged(self, numbers: Array) -> Array:
        """A step of float64 up or down, or none, or some."""
        for _ in range(2):
            towards = self.rng.choice([-np.inf, np.inf, np.nan], len(numbers))
            numbers = np.where(np.isnan(towards), numbers, np.nextafter(numbers, towards))
        return numbers

    def _changed(self, table: Block, new: Any, share: float) -> Block:
        numbers, wide = table.numbers.copy(), table.wide.copy()
        for f, place in self.columns:
            cells = wide if self.coder.group[f] == WIDE else numbers
            chosen = self.rng.random(len(table)) < share
            chosen &= cells[:, place] == cells[:, place]
            chosen &= cells[:, place] != np.iinfo(np.int64).min
            cells[:, place] = np.where(chosen, new(f, cells[:, place]), cells[:, place])
        return Block(table.row, numbers, wide, table.codes, table.hashes)

    def at_edges(self, table: Block) -> Block:
        """Most numbers at the edge of a code."""
        return self._changed(table, lambda f, cells: self.edge(f, len(cells)), 0.9)

    def beside(self, table: Block) -> Block:
        """Rows a step of float64 beside these: nothing between them but edges of codes."""

        def step(f: int, cells: Array) -> Array:
            if cells.dtype == np.int64:
                low, high = int(self.coder.wide_low[f]), int(self.coder.wide_high[f])
                steps = self.rng.integers(-1, 2, len(cells))
                return np.where((cells > low) & (cells < high), cells + steps, cells)
            return np.clip(self.nudged(cells), self.coder.low[f], self.coder.high[f])

        return self._changed(table, step, 1.0)

    def margins(self, query: Block) -> tuple[Array, Array, dict[str, Array]]:
        """Per query row the worst of: bound - allowed; sure - bound, where bounds hold from above as well."""
        coded = self.guide.encode(packed(self.space, query))
        bound, boxes = _every_bound(coded, self.coder, self.index.planes, self.measure)
        distance = kit.distances(self.space, query, self.reference)[:, self.rows]
        allowed, sure = _limits(distance, self.coder, self.measure.total)
        seen = {"bound": bound.astype(np.int64), "boxes": boxes, "distance": distance, "allowed": allowed, "sure": sure}
        # The highest code of all lets every row through: nothing to attack.
        too_high = np.where(allowed < MOST, seen["bound"] - allowed, -NOTHING).max(axis=1)
        both_ways = self.coder.tight & ~coded.loose
        too_low = np.where(both_ways[:, None] & np.isfinite(distance), sure - seen["bound"], -NOTHING).max(axis=1)
        return too_high, too_low, seen | {"both_ways": both_ways, "coded": coded}

    def climb(self, rounds: int, low: bool) -> tuple[int, int, Block]:
        """The worst of both margins, and the rows that climbed."""
        query = self.query
        too_high, too_low, _ = self.margins(query)
        worst = [int(too_high.max()), int(too_low.max())]
        for _ in range(rounds):
            rows = self.rng.random(len(query)) < 0.5
            tried = self.beside(query) if self.rng.random() < 0.5 else self._edged(query)
            high, less, _ = self.margins(tried)
            worst = [max(worst[0], int(high.max())), max(worst[1], int(less.max()))]
            better = rows & ((less > too_low) if low else (high > too_high))
            too_high, too_low = np.where(better, high, too_high), np.where(better, less, too_low)
            query = mixed(better, tried, query)
        return worst[0], worst[1], query

    def _edged(self, query: Block) -> Block:
        return self._changed(query, lambda f, cells: self.edge(f, len(cells)), 0.3)


def mixed(chosen: Array, a: Block, b: Block) -> Block:
    """Chosen rows of one table, the others of another."""
    pairs = ((a.numbers, b.numbers), (a.wide, b.wide), (a.codes, b.codes), (a.hashes, b.hashes))
    return Block(b.row, *(np.where(chosen[:, None], x, y) for x, y in pairs))


STYLES = list(kit.STYLES)
NUMERIC = ["uniform", "normal", "skewed", "grid", "counts", "outlier", "wide"]
GAPS = ((0.0,), (0.0,), (0.0, 0.0, 0.1, 0.5, 1.0), (0.1,))


def worlds(first: int, count: int) -> Iterator[tuple[int, Generator, World]]:
    """Small tables of every sort."""
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        p = int(rng.choice([1, 2, 3, 5, 9, 17]))
        family = [
            STYLES,
            STYLES,
            NUMERIC,
            ["codes"],
            ["codes", "uniform"],
            ["extreme", "large", "denormal", "wide", "both ends"],
        ]
        styles = list(rng.choice(family[seed % len(family)], p))
        weights = str(rng.choice(["ones", "ones", "decimals", "any", *kit.WEIGHTS]))
        gaps = GAPS[rng.integers(len(GAPS))]
        n, m = int(rng.choice([1, 2, 40, 90])), int(rng.choice([1, 8, 24]))
        made = kit.world(rng, styles, n, m, kit.POLICIES[seed // 6 % 4], weights, gaps, float(rng.choice([0.0, 0.4])))
        yield seed, rng, made


def plain(rng: Generator, p: int, missing: Missing = Missing.LEVEL, weights: str = "any") -> World:
    """Numbers within their range, and a few categories: the bounds of all rows hold from below and from above."""
    n, m = 64, 32
    cells = rng.random((n + m, p))
    cells[:2] = [[0.0], [1.0]]
    kinds = [NUMBERS if i % 4 < 3 else CODES for i in range(p)]
    given = [c if g == NUMBERS else np.floor(5 * c) for g, c in zip(kinds, cells.T, strict=True)]
    columns = list(zip(kinds, given, strict=True))
    tables = [kit.block([(g, c[rows]) for g, c in columns]) for rows in (slice(n), slice(n, None))]
    drawn = kit.WEIGHTS[weights](rng, p).tolist()
    return World(kit.space_of(kinds, [1.0] * p, drawn, missing), *tables)


def assert_bounds(attack: Attack, query: Block, told: str) -> None:
    """No row is passed by at its own distance, no box before its rows, no row is taken for closer than it is."""
    too_high, too_low, seen = attack.margins(query)
    planes, bound, distance = attack.index.planes, seen["bound"], seen["distance"]
    assert too_high.max() <= 0, f"{told}: a row would be passed by at its own distance"
    assert too_low.max() <= 0, f"{told}: a row would be taken for closer than it is"
    allowed = np.where(seen["allowed"] > MOST, MOST, seen["allowed"])
    coded = seen["coded"]
    assert _kept(coded, attack.coder, planes, attack.measure, allowed).all(), told
    assert_boxes(attack, seen, told)
    for beside in (np.nextafter(distance, 0.0), distance, np.nextafter(distance, 2.0)):
        _, sure = _limits(beside, attack.coder, attack.measure.total)
        closer = (bound < sure) & seen["both_ways"][:, None]
        assert (distance < beside)[closer].all(), told
    if planes.even:
        exact = planes.steps[bound // planes.even] == distance
        assert exact[~coded.loose].all(), told


def assert_boxes(attack: Attack, seen: dict[str, Any], told: str) -> None:
    """The bound of the box of every level is at most that of each row in it."""
    planes, bound = attack.index.planes, seen["bound"]
    inner = np.minimum.reduceat(bound, planes.start[:-1], axis=1)
    for level in range(1, len(planes.level_at)):
        begin = planes.level_at[level] * LANES
        boxes = seen["boxes"][:, begin : begin + inner.shape[1]]
        assert planes.width[level] == inner.shape[1], told
        assert (boxes <= inner).all(), f"{told}: a box of level {level} is further than a row in it"
        inner = np.minimum.reduceat(inner, np.arange(0, inner.shape[1], LANES), axis=1)


def test_no_bound_passes_by_a_row_at_its_own_distance() -> None:
    """Tables of every sort; numbers at the edges of codes; query rows that climb towards a violation."""
    both_ways = even = 0
    for seed, rng, world in worlds(0, 240):
        told = f"seed {seed}: {world}"
        attack = Attack(rng, world, edges=bool(seed % 3))
        high, low, climbed = attack.climb(4, bool(seed % 2))
        assert high <= 0, told
        assert low <= 0, told
        assert_bounds(attack, climbed, told)
        both_ways += attack.coder.tight
        even += attack.index.planes.even > 0
    assert both_ways > 20
    assert even > 5


def climbed_margins(first: int, count: int) -> tuple[int, int]:
    """The worst of both margins over tables in which both can be reached."""
    worst = [-NOTHING, -NOTHING]
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        attack = Attack(rng, plain(rng, 9, kit.POLICIES[seed % 4]), edges=True)
        high, low, _ = attack.climb(12, bool(seed % 2))
        worst = [max(worst[0], high), max(worst[1], low)]
    return worst[0], worst[1]


def test_the_attack_comes_within_a_few_codes_of_the_limit() -> None:
    """The proof leaves two codes on either side: the attack came as close as 2 above and 3 below, and never closer."""
    high, low = climbed_margins(0, 24)
    assert -4 <= high <= 0
    assert -6 <= low <= 0


@pytest.mark.parametrize("lowered", [6, "twice the columns"])
def test_the_attack_finds_a_slack_that_is_too_small(lowered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits of less slack, in plain numpy, rows are passed by and others taken for closer than they are."""
    honest = _limits

    def twin(distance: Floats, coder: Any, total: float, less: int = 0) -> tuple[Array, Array]:
        a, b = len(coder.group), len(coder.source)
        level = ((distance + 1e-322) * total * (1 + 1e-12) + 1e-290) * coder.scale
        slack = a + 2 - less
        allowed = np.where(level < MOST - slack, np.minimum(level, MOST).astype(np.int64) + slack, MOST)
        level = np.clip((distance - 1e-322) * total / (1 + 1e-12) * coder.scale, 0, MOST)
        return allowed, np.trunc(level).astype(np.int64) - a - b - 2 + less

    def checked(distance: Floats, coder: Any, total: float) -> tuple[Array, Array]:
        found, expected = honest(distance, coder, total), twin(distance, coder, total)
        assert (found[0] == expected[0]).all()
        assert (found[1] == expected[1]).all()
        return twin(distance, coder, total, 6 if lowered == 6 else 2 * (len(coder.group) + len(coder.source)))

    monkeypatch.setattr(sys.modules[__name__], "_limits", checked)
    high, low = climbed_margins(0, 6)
    assert high > 0
    assert low > 0


@pytest.mark.parametrize(("n", "m", "levels"), [(1100, 12, 2), (2100, 12, 2), (34_000, 3, 3)])
@pytest.mark.parametrize("missing", kit.POLICIES)
def test_boxes_of_every_level_are_no_further_than_their_rows(n: int, m: int, levels: int, missing: Missing) -> None:
    """Two and three levels of boxes."""
    rng = np.random.default_rng(n)
    gaps = (0.0,) if n > 2100 else (0.0, 0.1)
    world = kit.world(rng, ["uniform", "codes", "skewed", "wide", "hashed"], n, m, missing, "any", gaps)
    attack = Attack(rng, world, edges=False)
    assert len(attack.index.planes.level_at) == levels + 1
    too_high, too_low, seen = attack.margins(attack.query)
    assert too_high.max() <= 0
    assert too_low.max() <= 0
    assert_boxes(attack, seen, f"{world}")


def test_lists_and_counts_are_those_of_the_matrix() -> None:
    """The same tables through the whole search, at thresholds exactly at a distance and beside it."""
    for seed, rng, world in worlds(1000, 120):
        attack = Attack(rng, world, edges=bool(seed % 2))
        for own in (False, True):
            query = attack.reference if own else attack.query
            matrix = kit.distances(attack.space, query, attack.reference)
            k = int(rng.integers(1, 6))
            found = nearest(attack.guide, [attack.index], query, own, k)
            for a, b in zip(found, kit.lists_of(matrix, k, own), strict=True):
                assert a.tolist() == b.tolist(), f"seed {seed}: {world}"
            at = matrix[np.arange(len(query)), rng.integers(0, matrix.shape[1], len(query))]
            met = ~np.eye(*matrix.shape, dtype=bool) if own else np.ones(matrix.shape, bool)
            for threshold in (at, np.nextafter(at, 0.0), np.nextafter(at, 2.0)):
                share = np.arange(1, len(query) + 1)
                less, equal, credits = compare(attack.guide, [attack.index], query, own, threshold, share)
                assert less.tolist() == ((matrix < threshold[:, None]) & met).sum(axis=1).tolist()
                held = (matrix == threshold[:, None]) & met
                assert equal.tolist() == held.sum(axis=1).tolist()
                credit = np.zeros(matrix.shape[1], np.int64)
                credit[credits[0][0]] = credits[0][1]
                assert credit.tolist() == (share @ held).tolist()


# ---------------------------------------------------------------------------------------------- trees


Shape = tuple[int, int, int, int]  # rows, number columns, category columns, distinct values of each
SHAPES: tuple[Shape, ...] = (
    (1, 2, 2, 5), (1, 0, 1, 1), (33, 1, 0, 1), (33, 0, 1, 1), (33, 2, 2, 1), (64, 1, 0, 2), (65, 1, 0, 1),
    (100, 1, 0, 3), (500, 0, 3, 4), (500, 3, 0, 70_000), (500, 2, 2, 6), (1025, 1, 1, 70_000), (1025, 2, 0, 3),
    (5000, 3, 2, 300), (2000, 1, 0, 2), (2000, 0, 1, 255), (3000, 0, 12, 2), (32, 3, 3, 9), (4000, 1, 0, 1),
)  # fmt: skip


def unpacked(sets: np.ndarray) -> np.ndarray:
    """The bits of `plant`'s sets as bool (s, 256)."""
    return (sets[:, np.arange(256) >> 6] >> (np.arange(256) & 63).astype(np.uint64)) & np.uint64(1) != 0


def planted(shape: Shape, leaf: int = LANES) -> tuple[Array, Array, tuple[Array, Array, Array, Array]]:
    """Random codes and their tree."""
    n, a, b, most = shape
    rng = np.random.default_rng([n, a, b, most])
    num = np.minimum(rng.integers(0, most, (n, a)) - (rng.random((n, a)) < 0.1) * (most > 3), MOST).astype(np.int32)
    num = np.maximum(num, -1) if most > 3 else num
    nom = rng.integers(0, min(most, 256), (n, b)).astype(np.uint8)
    cap, add = frozen(rng.integers(1, MOST, a)), frozen(rng.integers(0, 5000, b))
    return num, nom, tree.plant(num, nom, cap, add, leaf)


@pytest.mark.parametrize("leaf", [LANES, 1, 500])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_hold_every_row_once_and_never_more_than_they_may(shape: Shape, leaf: int) -> None:
    """`perm` is a permutation, `start` covers it, no tile is empty."""
    _, _, (perm, start, nodes, _) = planted(shape, leaf)
    assert sorted(perm.tolist()) == list(range(shape[0]))
    assert start[0] == 0
    assert start[-1] == shape[0]
    assert np.diff(start).min() >= 1
    assert np.diff(start).max() <= leaf
    assert sorted(nodes[nodes[:, 0] == tree.LEAF, 1].tolist()) == list(range(len(start) - 1))


def spans(nodes: Array, start: Array) -> dict[int, tuple[int, int]]:
    """The places in tile order below every node; children come after their parents."""
    held: dict[int, tuple[int, int]] = {}
    for i in reversed(range(len(nodes))):
        column, value, left, right = nodes[i].tolist()
        held[i] = (int(start[value]), int(start[value + 1])) if column < 0 else (held[left][0], held[right][1])
        assert column < 0 or held[left][1] == held[right][0]
    return held


@pytest.mark.parametrize("shape", SHAPES)
def test_the_splits_lead_every_row_to_its_own_tile(shape: Shape) -> None:
    """Unless equal codes lie on both sides of a cut: then to the side where an equal code is."""
    num, nom, (perm, start, nodes, packed_sets) = planted(shape)
    sets = unpacked(packed_sets)
    a = num.shape[1]
    held = spans(nodes, start)
    assert held[0] == (0, shape[0])
    tile = np.repeat(np.arange(len(start) - 1), np.diff(start))
    found = tree.descend(num[perm], nom[perm], frozen(nodes), frozen(packed_sets))
    codes_of = np.hstack([num, nom])[perm]
    for column, value, left, right in nodes[nodes[:, 0] >= 0].tolist():
        lower, upper = (codes_of[slice(*held[side]), column] for side in (left, right))
        if column < a and value != MOST:
            assert lower.max() <= upper.min()
        elif column >= a and not sets[value].all():
            assert sets[value][lower].all()
            assert not sets[value][upper].any()
        else:
            assert (codes_of[slice(held[left][0], held[right][1])] == codes_of[held[left][0]]).all()
    for place in np.flatnonzero(found != tile):
        node = 0
        while True:
            column, value, left, right = nodes[node].tolist()
            code = codes_of[place, column]
            node = left if (code <= value if column < a else sets[value][code]) else right
            low, high = held[node]
            if not low <= place < high:
                assert code in codes_of[low:high, column]
                break


def test_rows_whose_codes_all_differ_are_led_home() -> None:
    """No cut has the same code on both sides."""
    rng = np.random.default_rng(0)
    for n in (1, 31, 33, 64, 65, 1025, 5000):
        num = np.stack([rng.permutation(n) * 7 for _ in range(3)], axis=1).astype(np.int32)
        nom = np.zeros((n, 0), np.uint8)
        perm, start, nodes, sets = tree.plant(num, nom, frozen(np.full(3, MOST)), frozen(np.zeros(0, np.int64)), LANES)
        tile = np.repeat(np.arange(len(start) - 1), np.diff(start))
        assert tree.descend(num[perm], nom[perm], frozen(nodes), frozen(sets)).tolist() == tile.tolist()


def test_rows_in_the_order_of_their_tiles() -> None:
    """Stable; tiles without rows too."""
    rng = np.random.default_rng(0)
    for n, tiles in ((0, 1), (1, 1), (5, 40), (1000, 7)):
        tile = rng.integers(0, tiles, n).astype(np.int32)
        order, start = tree.by_tile(tile, tiles)
        assert order.tolist() == np.argsort(tile, kind="stable").tolist()
        assert np.diff(start).tolist() == np.bincount(tile, minlength=tiles).tolist()


@pytest.mark.parametrize("most", [1, 2, 3, 2**62])
@pytest.mark.parametrize("n", [1, 2, 33, 3000])
@pytest.mark.parametrize("columns", [1, 2, 6])
def test_equal_rows_are_grouped(n: int, columns: int, most: int) -> None:
    """Exactly the equal ones, in the order of their first rows, ids ascending; cells as bits of floats too."""
    rng = np.random.default_rng([n, columns])
    cells = rng.integers(-most, most, (n, columns))
    if n % 2:
        cells = (cells / 8).view(np.int64)
    chosen, first, members = tree.distinct(frozen(cells))
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(cells.tolist()):
        groups.setdefault(tuple(row), []).append(i)
    assert chosen.tolist() == [g[0] for g in groups.values()]
    assert [members[a:b].tolist() for a, b in itertools.pairwise(first)] == list(groups.values())


# ---------------------------------------------------------------------------------------------- indexes


def arrays_of(index: Index) -> dict[str, Array]:
    """Every array an index holds."""
    planes = {name: a for name, a in index.planes._asdict().items() if isinstance(a, np.ndarray)}
    return {**planes, "cells": index.planes.cells.integer, "nodes": index.nodes, "sets": index.sets}


def held_bytes(index: Index) -> int:
    """Bytes of the memory that its arrays keep alive, each once, however small a piece of it they use."""
    roots: dict[int, int] = {}
    for array in arrays_of(index).values():
        base: Any = array
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        roots[id(base)] = memoryview(base).nbytes
    return sum(roots.values())


@functools.cache
def adult_index(path: Path) -> tuple[Guide, Index, dict[str, Block]]:
    """An index of the bundled training table."""
    engine = Engine(Serial(), Layout(100_000, 2**40))
    tables = {role: open_table(path / f"{file}.parquet", role) for role, file in ADULT.items()}
    surveyed = survey(engine, tables, Columns(None), ("train",))
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed, tuple(ADULT), 2), SpaceOptions(), ("train",))
    reference = engine.reference(prepared.blocks["train"], prepared.spaces["synthetic", "train"])
    (index,) = reference.held(0)
    return reference.guide.get(), index, {role: prepared.blocks[role].sources[0].load() for role in ADULT}


ADULT = {"train": "train", "holdout": "holdout", "synthetic": "synthetic_good"}


def test_a_pickled_index_answers_as_before(adult: Path) -> None:
    """Its arrays are the same, on cache lines and read-only again; the float64 view does not travel."""
    guide, index, blocks = adult_index(adult)
    sent = pickle.dumps(index)
    arrived: Index = pickle.loads(sent)
    assert len(sent) < 1.01 * index.nbytes + 10_000
    assert repr(arrived) == repr(index)
    for name, array in arrays_of(arrived).items():
        before = arrays_of(index)[name]
        assert array.dtype == before.dtype
        assert array.tobytes() == before.tobytes()
        assert not array.flags.writeable, name
        assert not before.flags.writeable, name
        if name in ("num", "nom", "box", "held"):
            assert array.ctypes.data % 64 == 0, name
            assert before.ctypes.data % 64 == 0, name
    assert np.shares_memory(arrived.planes.cells.number, arrived.planes.cells.integer)
    some = blocks["synthetic"].slice(0, 500)
    there = pickle.loads(pickle.dumps(guide))
    for k in (1, 3):
        answers = [nearest(g, [i], some, False, k) for g, i in ((guide, index), (there, arrived))]
        assert [a.tobytes() for a in answers[0]] == [a.tobytes() for a in answers[1]]
    signatures = len(search.topk.signatures)
    assert signatures == 1


def test_an_index_tells_how_much_memory_it_holds(adult: Path) -> None:
    """Its own count against the memory that its arrays keep alive, here and where it arrived."""
    _, index, _ = adult_index(adult)
    for one in (index, pickle.loads(pickle.dumps(index))):
        assert one.nbytes == pytest.approx(held_bytes(one), rel=0.05)
        assert sys.getsizeof(one) >= one.nbytes


def memory_ratio(index: Index, guide: Guide) -> float:
    """Bytes of an index by those of the codes and the float64 columns of its rows."""
    coder = guide.coder
    row = 2 * len(coder.group) + len(coder.source) + 8 * index.planes.cells.integer.shape[1]
    return index.nbytes / (index.rows * row)


def test_the_index_of_adult_fits_its_memory_goal(adult: Path) -> None:
    """At most 1.5 times codes and float64 columns of the rows."""
    guide, index, _ = adult_index(adult)
    assert index.rows == len(index.planes.ids)
    assert memory_ratio(index, guide) <= 1.5


def test_a_million_equal_rows_are_one_row() -> None:
    """The index stands for all of them with one; the nearest are the first by id."""
    n = 1_000_000
    columns = [(NUMBERS, np.full(n, 1.5)), (CODES, np.full(n, 3)), (WIDE, np.full(n, 2**60))]
    table = kit.block(columns)
    space = kit.space_of([g for g, _ in columns], [1.0, 1.0, 5.0], [1.0, 2.0, 0.5], Missing.LEVEL)
    guide = Guide.fit(space, Extent.of(space, table), 1)
    index = Index.build(guide, 0, [packed(space, table)])
    assert len(index.planes.cells.integer) == 1
    assert index.rows == n
    some = table.slice(n - 3, n)
    for own in (False, True):
        distance, row, ties = nearest(guide, [index], some, own, 4)
        assert distance.tolist() == [[0.0] * 4] * 3
        assert row.tolist() == [[0, 1, 2, 3]] * 3
        assert ties.tolist() == [n - own] * 3
        less, equal, credits = compare(guide, [index], some, own, np.zeros(3), np.array([1, 10, 100]))
        assert less.tolist() == [0] * 3
        assert equal.tolist() == [n - own] * 3
        expected = np.full(n, 111)
        expected[n - 3 :] -= np.array([1, 10, 100]) * own
        assert (credits[0][1] == expected).all()


# ---------------------------------------------------------------------------------------------- compiled code


def run_program(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What `kernel_programs` tells, in a process of its own with its own cache."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel_programs", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A first run on this processor, and its cache."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, run_program(folder)


CALLED = ("search.topk", "search.compare", "codes.encode", "gower.pack", "gower.typical", "boxes.fill_tiles")
CALLED = (*CALLED, "boxes.fill_boxes", "tree.plant", "tree.descend", "tree.by_tile", "tree.distinct")


def test_one_compiled_kernel_serves_tables_of_every_shape(cold: tuple[Path, dict[str, Any]]) -> None:
    """1 to 40 columns, all policies, k = 1 to 5, memory of every sort."""
    signatures = cold[1]["signatures"]
    assert {name: signatures[name] for name in CALLED} == dict.fromkeys(CALLED, 1)
    assert {name: n for name, n in signatures.items() if n > 1} == {}


def test_a_second_process_loads_every_kernel_from_the_cache(cold: tuple[Path, dict[str, Any]]) -> None:
    """And compiles none."""
    folder, first = cold
    assert all(first["misses"][name] for name in CALLED)
    again = run_program(folder)
    assert again["hash"] == first["hash"]
    assert all(again["hits"][name] == first["misses"][name] for name in CALLED)
    assert sum(again["misses"].values()) == 0
    assert again["seconds"] < first["seconds"]


OTHERS = {
    "without AVX": ({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, ("ymm", "zmm")),
    "AVX2": ({"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+avx,+sse4.2,+ssse3,+bmi,+bmi2"}, ("zmm",)),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names of x86-64 processors")
@pytest.mark.parametrize("processor", OTHERS)
def test_other_processors_find_the_same_bytes(
    processor: str, cold: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Vectors of 16 or 32 bytes instead of the widest there are."""
    environment, absent = OTHERS[processor]
    told = run_program(tmp_path, **environment)
    assert [told["registers"][r] for r in absent] == [0] * len(absent)
    assert told["registers"]["xmm"] > 0
    assert told["hash"] == cold[1]["hash"]


def test_the_lanes_compile_for_arm(tmp_path: Path) -> None:
    """As NEON instructions: saturating sums and differences, comparisons and the least of 16-bit lanes."""
    told = run_program(tmp_path, "arm")
    if "missing" in told:
        pytest.skip(f"llvmlite cannot compile for aarch64: {told['missing']}")
    assert all(told[kernel][word] for kernel in ("rows", "boxes") for word in ("uqadd", "uqsub", "cmhs", "umin"))
    assert told["lane"]["umin"]


def test_no_kernel_holds_the_lock_of_the_interpreter() -> None:
    """Nor is any compiled with liberties in arithmetic."""
    kernels = dict(kit.compiled_kernels())
    assert set(CALLED) <= set(kernels)
    assert all(k.targetoptions.get("nogil") and not k.targetoptions.get("fastmath") for k in kernels.values())


# ---------------------------------------------------------------------------------------------- layouts


@dataclass(frozen=True)
class Held:
    """Some rows of a table that are in memory, in the place of a `BlockSource`."""

    role: str
    block: Block
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def first_row(self) -> int:
        return int(self.block.row[0])

    @property
    def rows(self) -> int:
        return len(self.block)

    @property
    def label(self) -> str:
        return self.role

    def load(self) -> Block:
        return self.block


def cut(role: str, table: Block, rows: int) -> Blocks:
    """A table in blocks of so many rows."""
    edges = [*range(0, len(table), rows), len(table)]
    return Blocks(role, tuple(Held(role, table.slice(a, b)) for a, b in itertools.pairwise(edges)))  # type: ignore[arg-type]


def everything(tables: dict[str, Block], world: World, layout: Layout, executor: Executor, k: int) -> list[bytes]:
    """Lists, counts and credits of two references, one of them the query table itself; as bytes."""
    engine = Engine(executor, layout)
    blocks = {role: cut(role, table, layout.block_rows) for role, table in tables.items()}
    pairs = [("synthetic", "train"), ("synthetic", "holdout"), ("train", "train"), ("synthetic", "synthetic")]
    spaces = dict.fromkeys([*pairs, ("train", "holdout")], world.space)
    found = engine.search([Neighbours(q, r, k) for q, r in pairs], blocks, spaces)
    asked = [
        CloserCounts("synthetic", "train", "holdout"), CloserCounts("synthetic", "holdout", "train"),
        CloserCounts("synthetic", "synthetic", "train"), CloserCounts("train", "holdout", "train"),
    ]  # fmt: skip
    counted = engine.count_closer(asked, blocks, spaces, found)
    law = engine.credits(Credits("synthetic", "train", "holdout"), blocks, spaces, found)
    told = [law.credit.tobytes(), law.first.tobytes(), law.second.tobytes()]
    for answers, names in (
        *((found[p], ("query", "distance", "row", "ties")) for p in pairs),
        *((counted[c], ("query", "closer", "equal")) for c in asked),
    ):
        parts = [answer.load(engine.store) for answer in answers]
        told.extend(np.concatenate([getattr(p, name) for p in parts]).tobytes() for name in names)
    return told


def three_tables(seed: int, styles: Sequence[str], missing: Missing, twins: float) -> tuple[World, dict[str, Block]]:
    """A space and three tables, with duplicates inside and across them."""
    rng = np.random.default_rng(seed)
    world = kit.world(rng, styles, 700, 400, missing, "decimals", (0.0, 0.05), twins)
    train, more = world.reference, world.query
    copied = more.take(np.sort(rng.integers(0, 400, 150)))
    cells = [np.vstack([a[:100], b]) for a, b in zip(arrays(train), arrays(copied), strict=True)]
    synthetic = Block(np.arange(250), *cells)
    holdout = Block(np.arange(300), *(a[100:] for a in arrays(more)))
    return world, {"train": train, "holdout": holdout, "synthetic": synthetic}


def arrays(table: Block) -> list[Array]:
    """The cells of a table."""
    return [table.numbers, table.wide, table.codes, table.hashes]


LAYOUTS = [Layout(b, g) for b, g in ((1000, 300), (1000, 61), (90, 150), (97, 17), (700, 699), (250, 90))]
TABLES = (
    (("uniform", "codes", "skewed", "counts"), 0.3),
    (("grid", "counts", "codes"), 0.95),
    (("counts", "counts"), 0.5),
    (("codes", "hashed", "wide"), 0.5),
)


def check_lists(tables: dict[str, Block], world: World, told: list[bytes], k: int) -> None:
    """The first two lists are those of the matrix."""
    for place, reference in enumerate(("train", "holdout")):
        matrix = kit.distances(world.space, tables["synthetic"], tables[reference])
        found = told[3 + 4 * place : 7 + 4 * place]
        assert found[1:] == [a.tobytes() for a in kit.lists_of(matrix, k, False)]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("case", range(len(TABLES)))
def test_references_in_groups_give_the_same_bytes(case: int, k: int) -> None:
    """Groups far smaller than the reference: two rounds of searches, counts and credits."""
    styles, twins = TABLES[case]
    world, tables = three_tables(case, styles, kit.POLICIES[(case + k) % 4], twins)
    expected = everything(tables, world, Layout(1000, 2**40), Serial(), k)
    check_lists(tables, world, expected, k)
    grouped = 0
    for layout in LAYOUTS:
        engine = Engine(Serial(), layout)
        blocks = cut("train", tables["train"], layout.block_rows)
        grouped += len(engine.reference(blocks, world.space).groups) > 1
        assert everything(tables, world, layout, Serial(), k) == expected, layout
    assert grouped >= 5


def test_massive_ties_in_groups_give_the_same_bytes() -> None:
    """Two nominal columns: far fewer distinct rows than groups, and ties that no list holds."""
    rng = np.random.default_rng(5)
    cells = {role: rng.integers(0, 3, (n, 2)) for role, n in (("train", 600), ("holdout", 500), ("synthetic", 200))}
    tables = {role: kit.block([(CODES, c[:, 0]), (CODES, c[:, 1])]) for role, c in cells.items()}
    world = World(kit.space_of([CODES, CODES], [1.0, 1.0], [1.0, 1.0], Missing.LEVEL), tables["train"], tables["train"])
    for k in (1, 3):
        expected = everything(tables, world, Layout(1000, 2**40), Serial(), k)
        check_lists(tables, world, expected, k)
        for layout in (Layout(100, 40), Layout(600, 7), Layout(333, 250)):
            assert everything(tables, world, layout, Serial(), k) == expected, layout


def test_two_threads_give_the_same_bytes() -> None:
    """Searches run side by side without the interpreter's lock and share one index."""
    world, tables = three_tables(9, ("uniform", "codes", "skewed", "wide"), Missing.LEVEL, 0.3)
    expected = everything(tables, world, Layout(1000, 2**40), Serial(), 2)
    threads = Threads(2)
    try:
        for layout in (Layout(20, 2**40), Layout(20, 100), Layout(70, 2**40)) * 3:
            assert everything(tables, world, layout, threads, 2) == expected
    finally:
        threads.close()
