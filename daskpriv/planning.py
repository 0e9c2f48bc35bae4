"""What a run will take, told from footers alone: rows, searches, pairs, units, memory and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskpriv.engine.cache import PROGRAM, budget
from daskpriv.engine.plan import (
    Layout,
    check_memory,
    index_row_bytes,
    layout,
    longest_list,
    search_units,
    task_seconds,
    unit_bytes,
)
from daskpriv.evidence import (
    HOLDOUT,
    SYNTHETIC,
    TRAIN,
    CloserCounts,
    Credits,
    Facts,
    MarginNoise,
    Margins,
    Neighbours,
    Role,
    RowCredits,
)
from daskpriv.kernels.crosstab import COUNT_SECONDS, DRAW_SECONDS
from daskpriv.sequences import EventTables
from daskpriv.tables.reconcile import draft
from daskpriv.tables.table import Table

# Seconds of one core per query row against a million reference rows of 15 columns, and how that grows with their
# number (benchmarks/README.md: adult-like census rows; uniform noise, where nothing can be left out).
_CENSUS, _CENSUS_GROWTH = 3.5e-6, 0.13
_NOISE = 1e6 / 1.4e9
_READ = 4e-6  # seconds per row of 15 columns, read and encoded once
_INDEX = 1.5e-6
# Seconds per event of 6 columns: each time that it is read, and once (benchmarks/sequences.py).
_EVENT_READ, _EVENT_SORTED = 1e-7, 1.5e-6


@dataclass(frozen=True)
class PlannedSearch:
    """One direction: who looks for whom, how many units, how long on one core (census-like rows, noise)."""

    name: str
    query_rows: int
    reference_rows: int
    units: int
    groups: int
    seconds: tuple[float, float]

    @property
    def pairs(self) -> int:
        """Pairs of rows that the answer takes into account."""
        return self.query_rows * self.reference_rows


@dataclass(frozen=True)
class PlannedCount:
    """Cross-tabulations of sets of columns: how many of how many, how long on one core, chance included."""

    name: str
    sets: int
    of_how_many: int
    seconds: float


@dataclass(frozen=True)
class RunPlan:
    """The whole run.

    Attributes
    ----------
    tables : {name: (rows, columns, files, bytes)}
    searches : tuple of PlannedSearch
    counts : tuple of PlannedCount
    block_rows, blocks : rows per block, and how many blocks there are
    slots : units that run at once
    unit_memory, worker_memory : bytes of the largest unit, and of a worker while it runs
    seconds : (low, high)
        Wall time on these slots; low for rows like those of a census, high for noise.
    """

    tables: Mapping[str, tuple[int, int, int, int]]
    searches: tuple[PlannedSearch, ...]
    counts: tuple[PlannedCount, ...]
    block_rows: int
    blocks: int
    slots: int
    unit_memory: int
    worker_memory: int
    seconds: tuple[float, float]

    @property
    def pairs(self) -> int:
        """Pairs of rows over all searches."""
        return sum(s.pairs for s in self.searches)

    @property
    def units(self) -> int:
        """Units of all searches."""
        return sum(s.units for s in self.searches)


def plan_run(
    tables: Mapping[Role, Table],
    metrics: Sequence[Any],
    columns: int,
    workers: int,
    threads: int,
    memory: int | None,
    block_rows: int | None = None,
) -> RunPlan:
    """Plan a run on `workers` processes of so many threads and bytes."""
    rows = {name: t.rows for name, t in tables.items()}
    slots = workers * threads
    per_slot = None if memory is None else budget(memory) // threads
    needs = [r for m in metrics for r in m.needs(Facts(rows, columns))]
    k = longest_list(needs)
    cut = layout(rows, slots, block_rows, columns, per_slot, threads, k)
    check_memory(cut, max(rows.values()), 8 * columns + 8, k, per_slot, threads)
    searches = tuple(_search(pair, rows, cut, slots, columns) for pair in _directions(needs))
    extra = _read_seconds(rows, columns, needs, workers)
    unit = max((unit_bytes(cut, rows[q], rows[r], 8 * columns + 8, k) for q, r in _directions(needs)), default=0)
    shared = max((min(cut.group_rows, s.reference_rows) for s in searches), default=0) * index_row_bytes(columns)
    counts = tuple(_counts(rows, columns, needs))
    extra += sum(c.seconds for c in counts)
    low, high = (extra / slots + sum(s.seconds[i] for s in searches) / slots for i in (0, 1))
    described = {n: (t.rows, len(t.schema), len(t.files), sum(f.size for f in t.files)) for n, t in tables.items()}
    blocks = sum(-(-n // cut.block_rows) for n in rows.values())
    # An index takes three times its size while it is built; searches come after.
    worker = PROGRAM + max(3 * shared, shared + threads * (unit - min(shared, unit)))
    return RunPlan(described, searches, counts, cut.block_rows, blocks, slots, unit, worker, (low, high))


def _counts(rows: Mapping[Role, int], columns: int, needs: Sequence[Any]) -> Iterator[PlannedCount]:
    """One line per request of margins; what chance does to some of its sets is part of it."""
    compared = [rows[r] for r in (SYNTHETIC, HOLDOUT) if r in rows]
    for request in dict.fromkeys(r for r in needs if isinstance(r, Margins)):
        sets = request.combinations(columns)
        seconds = sets * (rows[TRAIN] + sum(compared)) * COUNT_SECONDS
        for noise in (r for r in needs if isinstance(r, MarginNoise) and r.of == request):
            pooled = len(compared) * rows[TRAIN] + sum(compared)
            seconds += min(noise.most, sets) * pooled * (noise.draws * DRAW_SECONDS + 2 * COUNT_SECONDS)
        yield PlannedCount(f"sets of {request.order}", sets, request.of_how_many(columns), seconds)


@dataclass(frozen=True)
class PlannedSequences:
    """An event table: how often it is read, for how many rows at most, and the seconds of one core."""

    name: str
    events: int
    lanes: int
    rows: int
    seconds: float


def sequences_planned(events: EventTables, workers: int, threads: int, memory: int | None) -> list[PlannedSequences]:
    """What it takes to make flat rows."""
    per_slot = None if memory is None else budget(memory) // threads
    out = []
    for role, table in events.tables.items():
        lanes, wide = len(events.lanes(role, per_slot, workers * threads)), len(events.schema_of(table)) / 6
        seconds = table.rows * wide * (lanes * _EVENT_READ + _EVENT_SORTED)
        out.append(PlannedSequences(role, table.rows, lanes, events.most_rows(role), seconds))
    return out


def _directions(needs: Sequence[Any]) -> list[tuple[Role, Role]]:
    """Each search once; counts are searches of their own."""
    found = {(r.query, r.reference) for r in needs if isinstance(r, (Neighbours, CloserCounts))}
    found |= {(r.query, x) for r in needs if isinstance(r, (Credits, RowCredits)) for x in (r.first, r.second)}
    return sorted(found)


def _search(pair: tuple[Role, Role], rows: Mapping[Role, int], cut: Layout, slots: int, columns: int) -> PlannedSearch:
    query, reference = rows[pair[0]], rows[pair[1]]
    wide = max(columns, 1) / 15
    census = _CENSUS * wide * max(reference / 1e6, 1e-3) ** _CENSUS_GROWTH
    groups = max(-(-reference // cut.group_rows), 1)
    noise = max(_NOISE * wide * reference / 1e6, census)
    units = search_units(query, cut, census, task_seconds(query, census, slots), groups)
    return PlannedSearch(f"{pair[0]}->{pair[1]}", query, reference, units, groups, (query * census, query * noise))


def _read_seconds(rows: Mapping[Role, int], columns: int, needs: Sequence[Any], workers: int) -> float:
    """Every table is read for its columns and once per use; every worker reads and indexes each reference."""
    wide = max(columns, 1) / 15
    references = {r for _, r in _directions(needs)}
    read = sum(2 * n for n in rows.values()) + workers * sum(rows[r] for r in references)
    return wide * (_READ * read + _INDEX * workers * sum(rows[r] for r in references))


def used_columns(tables: Mapping[str, Table], schema: Any, only: Any, exclude: Any, weights: Any) -> int:
    """How many columns take part; columns that look like ids are known only after reading."""
    return len(draft(tables, schema, only, exclude, weights).used)
