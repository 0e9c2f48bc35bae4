"""What units are made of: plain functions of blocks and tables. They know neither Dask nor files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import CloserCounts, CloserTable, CreditLaw, Evidence, Neighbours, NeighbourTable, Role, Widest
from daskpriv.kernels.topk import merge
from daskpriv.protocol import Metric
from daskpriv.space.block import Block
from daskpriv.stats.selection import Selection

Sparse = tuple[NDArray[np.int64], NDArray[np.int64]]
NOTHING: Sparse = (np.zeros(0, np.int64), np.zeros(0, np.int64))


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
    return {place: sum_by_key(a[place], b[place]) for place in a}


def sum_by_key(a: Any, b: Any) -> Any:
    """Distinct keys of both, ascending, and the sums of what each holds: pairs of (keys, int64)."""
    keys, inverse = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, np.concatenate([a[1], b[1]]))
    return keys, sums


def joined_tables(tables: Sequence[NeighbourTable]) -> NeighbourTable:
    """The lists of a query block from those of its slices."""
    fields = ("query", "distance", "row", "ties")
    return NeighbourTable(*(np.concatenate([getattr(t, f) for t in tables]) for f in fields))


def merge_tables(a: NeighbourTable, b: NeighbourTable) -> NeighbourTable:
    """Merge the lists of one query block over disjoint references."""
    return NeighbourTable(a.query, *merge((a.distance, a.row, a.ties), (b.distance, b.row, b.ties)))


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
    return sum_by_key((rows, credit), NOTHING)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class WideTies:
    """Query rows with more ties than their list holds: their positions, smallest distances and shares per tied row."""

    places: NDArray[np.int64]
    distance: NDArray[np.float64]
    share: NDArray[np.int64]


def wide_ties(first: NeighbourTable, second: NeighbourTable, of_first: bool) -> WideTies:
    """The rows whose nearest rows in one of two tables need a second search at the known distance."""
    share, at_first, at_second = _shares(first, second)
    table, wins = (first, at_first) if of_first else (second, at_second)
    places = np.flatnonzero(wins & (table.ties > table.row.shape[1]))
    return WideTies(places, table.nearest[places], share[places])


def add_credits(a: Sparse, b: Sparse) -> Sparse:
    """Add credits by row id."""
    return sum_by_key(a, b)  # type: ignore[no-any-return]


def chunk(
    metrics: Sequence[Metric],
    states: Sequence[Any],
    role: Role,
    searches: Sequence[Neighbours],
    tables: Sequence[NeighbourTable],
    counts: Sequence[CloserCounts],
    counted: Sequence[CloserTable],
    widest: Mapping[Widest, NDArray[np.float64]] | None = None,
    credit: NDArray[np.int64] | None = None,
    groups: Mapping[str, NDArray[np.int64]] | None = None,
) -> list[Any]:
    """Partials of all metrics over one query block."""
    evidence = Evidence(
        role,
        {(s.query, s.reference): t for s, t in zip(searches, tables, strict=True)},
        dict(zip(counts, counted, strict=True)),
        widest or {},
        credit,
        groups or {},
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
