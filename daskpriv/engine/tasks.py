"""What runs on workers: plain functions of blocks and tables. They know nothing of Dask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import CloserCounts, CloserTable, CreditLaw, Evidence, Neighbours, NeighbourTable, Role
from daskpriv.kernels import gower
from daskpriv.kernels.topk import merge
from daskpriv.protocol import Metric
from daskpriv.space.block import Block
from daskpriv.space.buckets import Buckets
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace, rank_of
from daskpriv.stats.selection import Selection
from daskpriv.tables.table import Part

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


def search(query: Block, k: int, references: Sequence[Block], space: GowerSpace, same: bool) -> NeighbourTable:
    """The k nearest rows of all `references` for every row of a query block.

    Thresholds carry over from block to block, so that later blocks are pruned by what earlier ones found.
    """
    n = len(query)
    distance = np.full((n, k), np.inf)
    row = np.full((n, k), -1, np.int64)
    ties = np.zeros(n, np.int64)
    q = space.view(query)
    for reference in references:
        r = space.view(reference)
        gower.topk(q.arrays, q.low_bytes, r.arrays, r.low_columns, space.measure, space.unit, same, distance, row, ties)
    return NeighbourTable(query.row, distance, row, ties)


def merge_tables(a: NeighbourTable, b: NeighbourTable) -> NeighbourTable:
    """Merge the lists of one query block over disjoint references."""
    return NeighbourTable(a.query, *merge((a.distance, a.row, a.ties), (b.distance, b.row, b.ties)))


def closer(
    query: Block, threshold: NeighbourTable, references: Sequence[Block], space: GowerSpace, same: bool
) -> CloserTable:
    """How many reference rows lie closer than, and exactly at, the nearest distance of `threshold`."""
    n = len(query)
    below, equal = np.zeros(n, np.int64), np.zeros(n, np.int64)
    _compare(query, references, space, same, threshold.nearest, np.zeros(n, np.int64), below, equal)
    return CloserTable(query.row, below, equal)


def add_closer(a: CloserTable, b: CloserTable) -> CloserTable:
    """Add the counts of one query block over disjoint references."""
    return CloserTable(a.query, a.closer + b.closer, a.equal + b.equal)


def _compare(
    query: Block,
    references: Sequence[Block],
    space: GowerSpace,
    same: bool,
    threshold: NDArray[np.float64],
    share: NDArray[np.int64],
    below: NDArray[np.int64],
    equal: NDArray[np.int64],
) -> list[Sparse]:
    q = space.view(query)
    out = []
    for reference in references:
        r = space.view(reference)
        credit = np.zeros(len(r), np.int64)
        gower.compare(
            q.arrays,
            q.low_bytes,
            r.arrays,
            r.low_columns,
            space.measure,
            space.unit,
            same,
            np.ascontiguousarray(threshold),
            share,
            below,
            equal,
            credit,
        )
        held = np.flatnonzero(credit)
        out.append((reference.row[held], credit[held]))
    return out


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
    references: Sequence[Block],
    space: GowerSpace,
    same: bool,
) -> Sparse:
    """Credits of query rows with more ties than their list holds: a second search at the known distance."""
    share, at_first, at_second = _shares(first, second)
    table, wins = (first, at_first) if of_first else (second, at_second)
    places = np.flatnonzero(wins & (table.ties > table.row.shape[1]))
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if len(places) == 0:
        return empty
    some = query.take(places)
    unused = np.zeros((2, len(places)), np.int64)
    found = _compare(some, references, space, same, table.nearest[places], share[places], unused[0], unused[1])
    return (np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))


def pick(pair: tuple[Sparse, Sparse], place: int) -> Sparse:
    """One side of `listed_credits`."""
    return pair[place]


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
