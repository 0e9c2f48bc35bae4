"""How the work is cut: rows per block, per part of an index and per task. No choice here changes any result."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskpriv.errors import PlanError
from daskpriv.evidence import Neighbours, Role

SMALLEST, LARGEST = 1024, 65_536
_MOST_TASKS = 50_000
_LARGEST_PART, _SMALLEST_PART, _MOST_SIDE_BY_SIDE = 2_000_000, 100_000, 32
_LARGEST_GROUP = 2**40
_TASK_SECONDS = 2.0
# Of a process, for the indexes that its units share: building one takes three times its size.
_INDEX_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows per block, and how many reference rows the indexes that one search task holds may stand for.

    `neighbours` is the length of the longest list that a query row carries.
    """

    block_rows: int
    group_rows: int
    neighbours: int = 2

    def __post_init__(self) -> None:
        if self.block_rows < 1 or self.group_rows < 1:
            raise PlanError("block_rows must be at least 1.")

    def with_blocks(self, block_rows: int) -> Layout:
        """The same with blocks of another size."""
        return replace(self, block_rows=block_rows)

    def parts(self, rows: int, threads: int) -> int:
        """Parts of a reference of so many rows: enough for the threads of a process, few enough to search fast.

        Every query row looks at the outermost box of every part, which costs about 0.1 microseconds.
        """
        side_by_side = min(threads, rows // _SMALLEST_PART, _MOST_SIDE_BY_SIDE)
        return max(-(-rows // min(self.group_rows, _LARGEST_PART)), side_by_side, 1)


def layout(
    rows: Mapping[Role, int],
    slots: int,
    block_rows: int | None = None,
    columns: int = 0,
    memory_per_slot: int | None = None,
    threads: int = 1,
    neighbours: int = 2,
) -> Layout:
    """Cut tables of these sizes, of at most so many columns, for `slots` concurrent tasks.

    Blocks are small enough to keep every slot busy and large enough to keep the graph small against Dask's
    millisecond per task. A search is one task per block, or two per block and group of index parts where a worker
    cannot hold all parts at once; its tasks stay below 50 000 either way.
    """
    most = max(rows.values())
    group_rows = _LARGEST_GROUP
    if memory_per_slot is not None:
        group_rows = max(min(int(memory_per_slot * threads * _INDEX_SHARE) // index_row_bytes(columns), group_rows), 1)
    if block_rows is None:
        block_rows = min(max(-(-most // (4 * slots)), SMALLEST), LARGEST)
        rounds = 1 if most <= group_rows else 2 * (most // group_rows + 1)
        block_rows = max(block_rows, -(-most * rounds // _MOST_TASKS))
        if memory_per_slot is not None:
            room = int(memory_per_slot * (0.9 - _INDEX_SHARE))
            block_rows = min(block_rows, max(room // _query_row_bytes(8 * columns + 8, neighbours), SMALLEST))
    return Layout(block_rows, group_rows, neighbours)


def groups(sizes: Sequence[int], layout: Layout) -> list[list[int]]:
    """Consecutive parts that one task holds together, by their positions; empty ones are left out."""
    out: list[list[int]] = []
    held = 0
    for place, size in enumerate(sizes):
        if size == 0:
            continue
        if not out or held + size > layout.group_rows:
            out.append([])
            held = 0
        out[-1].append(place)
        held += size
    return out


def longest_list(needs: Iterable[Any]) -> int:
    """The most neighbours per row that any request asks for, 2 at least."""
    return max((r.k for r in needs if isinstance(r, Neighbours)), default=2)


def task_seconds(rows: int, seconds_per_row: float, slots: int) -> float:
    """How long a search task should take: two seconds, less where every slot would get only a few of them.

    One scheduler starts 150 tasks a second (benchmarks/scheduler.py): on more than 300 slots tasks are longer.
    """
    all_rows = rows * seconds_per_row
    longest = min(max(_TASK_SECONDS, slots / 150), 10.0)
    return max(min(max(all_rows / (16 * slots), 0.25), longest), all_rows / _MOST_TASKS)


def slice_rows(rows: int, seconds_per_row: float, seconds: float = _TASK_SECONDS) -> int:
    """Query rows per search unit of about so many seconds, out of a block of `rows`."""
    return rows if seconds_per_row <= 0 else min(max(int(seconds / seconds_per_row), 256), rows)


def slices(rows: int, step: int) -> list[tuple[int, int]]:
    """Cut the rows of a query block into even slices of about `step` rows."""
    count = -(-rows // step)
    edges = [rows * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def search_units(rows: int, cut: Layout, seconds_per_row: float, seconds: float, groups: int = 1) -> int:
    """How many units a search of so many query rows has: slices of blocks, or two rounds over groups and a merge."""
    blocks = -(-rows // cut.block_rows)
    if groups > 1:
        return blocks * (2 * groups + 1)
    step = cut.block_rows if cut.block_rows <= SMALLEST else slice_rows(cut.block_rows, seconds_per_row, seconds)
    return sum(-(-min(cut.block_rows, rows - i * cut.block_rows) // step) for i in (0, blocks - 1)) + (
        (blocks - 2) * -(-cut.block_rows // step)
    )


def unit_bytes(cut: Layout, query_rows: int, reference_rows: int, row_bytes: int, k: int) -> int:
    """Bytes of one search unit: its query rows, and the indexed rows that it holds."""
    held = min(cut.group_rows, reference_rows) * index_row_bytes(row_bytes // 8)
    return min(cut.block_rows, query_rows) * _query_row_bytes(row_bytes, k) + held


def check_memory(
    layout: Layout, rows: int, row_bytes: int, k: int, memory_per_slot: int | None, threads: int = 1
) -> None:
    """Refuse a search task that cannot fit before anything runs; `rows` is the size of the largest table."""
    if memory_per_slot is None:
        return
    need = _need(layout, layout.block_rows, rows, row_bytes, k, threads)
    if need <= memory_per_slot:
        return
    fits = min(layout.block_rows, rows)
    while fits > 1 and _need(layout, fits, rows, row_bytes, k, threads) > memory_per_slot:
        fits //= 2
    raise PlanError(
        f"a search task needs {need:,} bytes but a worker thread has {memory_per_slot:,}; "
        f"use block_rows={fits:,} or fewer, or give workers more memory."
    )


def index_row_bytes(columns: int) -> int:
    """Bytes of one indexed row, at most: per column 64 bits and codes in tiles half full, ids, boxes.

    Hashed categories count twice.
    """
    return 16 * columns + 48


def _query_row_bytes(row_bytes: int, k: int) -> int:
    """Bytes of a query row in a task: encoded, packed, in search order, coded, and its lists."""
    return 6 * row_bytes + 3 * (16 * k + 8)


def _need(layout: Layout, block_rows: int, rows: int, row_bytes: int, k: int, threads: int) -> int:
    """Bytes of a unit: its query rows, and its share of the indexed rows that a process holds."""
    held = min(layout.group_rows, rows) * index_row_bytes(row_bytes // 8)
    return min(block_rows, rows) * _query_row_bytes(row_bytes, k) + held // threads
