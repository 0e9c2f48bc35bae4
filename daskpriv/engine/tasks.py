"""What runs on workers: plain functions of blocks and tables. They know nothing of Dask."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import CloserCounts, CloserTable, CreditLaw, Evidence, Neighbours, NeighbourTable, Role
from daskpriv.kernels.gower import Cells
from daskpriv.kernels.topk import merge
from daskpriv.protocol import Metric
from daskpriv.space.block import Block
from daskpriv.space.buckets import Buckets
from daskpriv.space.cover import Cover, Covers
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace, rank_of
from daskpriv.space.guide import Extent, Guide
from daskpriv.space.index import Index
from daskpriv.space.packed import joined, packed
from daskpriv.space.searching import compare, nearest
from daskpriv.stats.selection import Selection
from daskpriv.tables.table import Part

_PILOT = 256
Sparse = tuple[NDArray[np.int64], NDArray[np.int64]]


def same(value: Any) -> Any:
    """The value itself, as the result of a task."""
    return value


def encode(part: Part, encoding: Encoding) -> Block:
    """Read and encode a part."""
    return encoding.encode(part)


def bucket(block: Block, buckets: Buckets) -> Block:
    """Replace numbers by quantile buckets."""
    return buckets.apply(block)


def rank(block: Block, supports: Mapping[int, tuple[NDArray[np.float64], NDArray[np.int64]]]) -> Block:
    """Replace numbers by their mid-ranks."""
    numbers = block.numbers.copy()
    for place, (support, counts) in supports.items():
        numbers[:, place] = rank_of(block.numbers[:, place], support, counts)
    return Block(block.row, numbers, block.wide, block.codes, block.hashes)


def count_digits(block: Block, selections: Mapping[int, Selection]) -> dict[int, NDArray[np.int64]]:
    """One pass of the search for column quantiles."""
    return {place: s.count(block.numbers[:, place]) for place, s in selections.items()}


def add_digits(a: dict[int, NDArray[np.int64]], b: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
    """Merge two such passes."""
    return {place: a[place] + b[place] for place in a}


def distinct_numbers(block: Block) -> dict[int, Any]:
    """Distinct values of each number column and how often they occur."""
    out = {}
    for place in range(block.numbers.shape[1]):
        values = block.numbers[:, place]
        out[place] = np.unique(values[~np.isnan(values)], return_counts=True)
    return out


def add_distinct(a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
    """Merge two such countings."""
    return {place: _sum_by_key(a[place], b[place]) for place in a}


def _sum_by_key(a: Any, b: Any) -> Any:
    keys, inverse = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, np.concatenate([a[1], b[1]]))
    return keys, sums


def extent(block: Block, space: GowerSpace) -> Extent:
    """What an index needs to know of a block beforehand."""
    return Extent.of(space, block)


def scatter(blocks: Sequence[Block], guide: Guide) -> list[Cells]:
    """The rows of some blocks, part by part."""
    return [joined(pieces) for pieces in zip(*map(guide.scatter, blocks), strict=True)]


def sizes(pieces: Sequence[Cells]) -> NDArray[np.int64]:
    """Rows of each piece."""
    return np.array([len(p.row) for p in pieces])


def index_blocks(guide: Guide, blocks: Sequence[Block]) -> Index:
    """One index of whole blocks."""
    return Index.build(guide, 0, [packed(guide.space, b) for b in blocks])


def index_pieces(guide: Guide, part: int, pieces: Sequence[Cells]) -> Index:
    """One index of the rows of one part."""
    return Index.build(guide, part, pieces)


def search(
    query: Block,
    rows: tuple[int, int],
    k: int,
    guide: Guide,
    parts: Sequence[Index],
    same: bool,
    home: NeighbourTable | None = None,
) -> NeighbourTable:
    """The k nearest rows among all `parts` for the rows [start, stop) of a query block.

    When only some parts are held, only of rows that belong to one of them; and of the others, once `home` tells what
    each row found where it belongs.
    """
    some = query.slice(*rows)
    enough = None if home is None else home.distance[:, -1]
    return NeighbourTable(some.row, *nearest(guide, parts, some, same, k, enough))


def pilot(query: Block, k: int, guide: Guide, parts: Sequence[Index], same: bool) -> float:
    """Seconds that a search takes per query row, from a few rows."""
    some = query.take(np.linspace(0, len(query) - 1, min(len(query), _PILOT)).astype(np.int64))
    nearest(guide, parts, some.slice(0, 1), same, k)
    times = []
    for rows in (some.slice(0, 1), some):
        begun = time.thread_time()
        nearest(guide, parts, rows, same, k)
        times.append(time.thread_time() - begun)
    return max(times[1] - times[0], 0.0) / len(some)


def belonging(query: Block, guide: Guide) -> NDArray[np.int64]:
    """How many rows of a block belong to each part, int64 (parts,)."""
    coded = guide.encode(packed(guide.space, query))
    return np.bincount(guide.part_of(coded), minlength=guide.parts)


def cover(index: Index, guide: Guide) -> Cover:
    """The outermost box of a part."""
    return Cover.of(guide, index.planes)


def needed(query: Block, home: NeighbourTable, guide: Guide, covers: Covers) -> NDArray[np.int64]:
    """How many rows of a block may have nearer neighbours in each part than those found where they belong."""
    return covers.needed(guide, query, home.distance[:, -1])


def joined_tables(tables: Sequence[NeighbourTable]) -> NeighbourTable:
    """The lists of a query block from those of its slices."""
    fields = ("query", "distance", "row", "ties")
    return NeighbourTable(*(np.concatenate([getattr(t, f) for t in tables]) for f in fields))


def merge_tables(a: NeighbourTable, b: NeighbourTable) -> NeighbourTable:
    """Merge the lists of one query block over disjoint references."""
    return NeighbourTable(a.query, *merge((a.distance, a.row, a.ties), (b.distance, b.row, b.ties)))


def closer(query: Block, threshold: NeighbourTable, guide: Guide, parts: Sequence[Index], same: bool) -> CloserTable:
    """How many reference rows lie closer than, and exactly at, the nearest distance of `threshold`."""
    below, equal, _ = compare(guide, parts, query, same, threshold.nearest, np.zeros(len(query), np.int64))
    return CloserTable(query.row, below, equal)


def add_closer(a: CloserTable, b: CloserTable) -> CloserTable:
    """Add the counts of one query block over disjoint references."""
    return CloserTable(a.query, a.closer + b.closer, a.equal + b.equal)


def listed_credits(first: NeighbourTable, second: NeighbourTable) -> tuple[Sparse, Sparse]:
    """Credits that the neighbour lists already name: query rows whose ties all fit their list."""
    share, at_first, at_second = _shares(first, second)
    return _from_list(first, share, at_first), _from_list(second, share, at_second)


def _shares(
    first: NeighbourTable, second: NeighbourTable
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Credit per tied row of each query row, and which table(s) hold its nearest rows."""
    at_first = (first.nearest <= second.nearest) & (first.ties > 0)
    at_second = (second.nearest <= first.nearest) & (second.ties > 0)
    tied = np.where(at_first, first.ties, 0) + np.where(at_second, second.ties, 0)
    share = np.rint(CreditLaw.UNIT / np.maximum(tied, 1)).astype(np.int64)
    return share, at_first, at_second


def _from_list(table: NeighbourTable, share: NDArray[np.int64], wins: NDArray[np.bool_]) -> Sparse:
    k = table.row.shape[1]
    listed = wins & (table.ties <= k)
    inside = np.arange(k) < table.ties[:, None]
    use = listed[:, None] & inside
    rows = table.row[use]
    credit = np.broadcast_to(share[:, None], table.row.shape)[use]
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    return _sum_by_key((rows, credit), empty)  # type: ignore[no-any-return]


def searched_credits(
    query: Block,
    first: NeighbourTable,
    second: NeighbourTable,
    of_first: bool,
    guide: Guide,
    parts: Sequence[Index],
    same: bool,
) -> Sparse:
    """Credits of query rows with more ties than their list holds: a second search at the known distance."""
    share, at_first, at_second = _shares(first, second)
    table, wins = (first, at_first) if of_first else (second, at_second)
    places = np.flatnonzero(wins & (table.ties > table.row.shape[1]))
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if len(places) == 0:
        return empty
    _, _, found = compare(guide, parts, query.take(places), same, table.nearest[places], share[places])
    return (np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))


def pick(values: Sequence[Any], place: int) -> Any:
    """One of several results of a task."""
    return values[place]


def add_credits(a: Sparse, b: Sparse) -> Sparse:
    """Add credits by row id."""
    return _sum_by_key(a, b)  # type: ignore[no-any-return]


def credit_law(first: Sparse, second: Sparse, rows_first: int, rows_second: int) -> CreditLaw:
    """Forget row ids: how many rows of each table hold which credit."""
    levels = np.unique(np.concatenate([first[1], second[1], [0]]))
    counts = []
    for held, rows in ((first[1], rows_first), (second[1], rows_second)):
        count = np.bincount(np.searchsorted(levels, held), minlength=len(levels)).astype(np.int64)
        count[0] += rows - len(held)
        counts.append(count)
    return CreditLaw(levels, counts[0], counts[1])


def chunk(
    metrics: Sequence[Metric],
    states: Sequence[Any],
    role: Role,
    searches: Sequence[Neighbours],
    tables: Sequence[NeighbourTable],
    counts: Sequence[CloserCounts],
    counted: Sequence[CloserTable],
) -> list[Any]:
    """Partials of all metrics over one query block."""
    evidence = Evidence(
        role,
        {(s.query, s.reference): t for s, t in zip(searches, tables, strict=True)},
        dict(zip(counts, counted, strict=True)),
    )
    return [m.chunk(s, evidence) for m, s in zip(metrics, states, strict=True)]


def combine(metrics: Sequence[Metric], a: list[Any], b: list[Any]) -> list[Any]:
    """Merge two lists of partials."""
    return [m.combine(x, y) for m, x, y in zip(metrics, a, b, strict=True)]


def fold(fn: Any, fixed: tuple[Any, ...], values: Sequence[Any]) -> Any:
    """Merge a handful of values with an associative and commutative function."""
    out = values[0]
    for value in values[1:]:
        out = fn(*fixed, out, value)
    return out
