"""How the work is cut: rows per block and blocks per task. No choice here changes a bit of any result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daskpriv.errors import PlanError
from daskpriv.evidence import Role

SMALLEST, LARGEST = 1024, 16_384
_TASK_PAIRS = 250_000_000
_MOST_TASKS = 20_000
_LARGEST_GROUP = 65_536


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows per block, and how many reference rows one search task compares its query block with."""

    block_rows: int
    group_rows: int

    def __post_init__(self) -> None:
        if self.block_rows < 1 or self.group_rows < 1:
            raise PlanError("block_rows must be at least 1.")


def layout(rows: Mapping[Role, int], slots: int, block_rows: int | None = None) -> Layout:
    """Cut tables of these sizes for `slots` concurrent tasks.

    Blocks are small enough to keep every slot busy and large enough to keep the number of tasks per search
    below 20 000, so that the graph stays small against Dask's millisecond per task.
    """
    most = max(rows.values())
    if block_rows is None:
        block_rows = min(max(-(-most // (4 * slots)), SMALLEST), LARGEST)
        block_rows = max(block_rows, int(most / _MOST_TASKS**0.5))
    return Layout(block_rows, max(min(_TASK_PAIRS // block_rows, _LARGEST_GROUP), block_rows))


def groups(sizes: Sequence[int], layout: Layout) -> list[list[int]]:
    """Consecutive reference blocks that one task visits together, by their positions."""
    out: list[list[int]] = []
    held = 0
    for place, size in enumerate(sizes):
        if not out or held + size > layout.group_rows:
            out.append([])
            held = 0
        out[-1].append(place)
        held += size
    return out


def check_memory(layout: Layout, rows: int, row_bytes: int, k: int, memory_per_slot: int | None) -> None:
    """Refuse a search task that cannot fit before anything runs; `rows` is the size of the largest table."""
    if memory_per_slot is None:
        return
    need = _need(layout.block_rows, layout.group_rows, rows, row_bytes, k)
    if need <= memory_per_slot:
        return
    fits = min(layout.block_rows, rows)
    while fits > 1 and _need(fits, min(layout.group_rows, _LARGEST_GROUP), rows, row_bytes, k) > memory_per_slot:
        fits //= 2
    raise PlanError(
        f"a search task needs {need:,} bytes but a worker thread has {memory_per_slot:,}; "
        f"use block_rows={fits:,} or fewer, or give workers more memory."
    )


def _need(block_rows: int, group_rows: int, rows: int, row_bytes: int, k: int) -> int:
    """Bytes of a task: its query block, its reference group and the merged lists of the query block."""
    query, reference = min(block_rows, rows), min(max(group_rows, block_rows), rows)
    return (query + reference) * row_bytes * 2 + query * (16 * k + 8) * 3
