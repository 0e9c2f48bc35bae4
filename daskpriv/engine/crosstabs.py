"""Contingency tables of whole tables: counts of blocks, added up."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine import tasks
from daskpriv.engine.published import Published
from daskpriv.engine.sources import Blocks, BlockSource, Coded
from daskpriv.engine.stages import Stages, add
from daskpriv.errors import InputError
from daskpriv.evidence import Role
from daskpriv.kernels import crosstab as kernel
from daskpriv.kernels import planes
from daskpriv.kernels.gower import frozen
from daskpriv.space.bins import Bins
from daskpriv.stats.labels import Labels

MOST_DISTINCT = 5_000_000
# Of counts: few units per slot, for each of them sends all counts of a batch.
_UNITS = 2
Counts = NDArray[np.int64]
Distinct = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Sets:
    """Which columns are counted together; see `daskpriv.kernels.crosstab` for the arrays."""

    widths: NDArray[np.int64]
    combinations: NDArray[np.int64]

    @functools.cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the table of each set begins, int64 (c + 1,)."""
        cells = np.prod(self.widths[self.combinations], axis=1)
        return np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)

    @property
    def arrays(self) -> tuple[Counts, Counts, Counts]:
        """In the kernels' order, read-only so that one compiled kernel serves every source of memory."""
        return frozen(self.widths), frozen(self.combinations), frozen(self.starts)

    @property
    def small(self) -> bool:
        """Whether bit planes pay: few cells, and planes that serve many sets."""
        return self.combinations.shape[1] > 1 and int(np.diff(self.starts).max(initial=0)) <= planes.MOST_CELLS

    def slice(self, start: int, stop: int) -> Sets:
        """Some of them."""
        return Sets(self.widths, np.ascontiguousarray(self.combinations[start:stop]))


@dataclass(frozen=True, eq=False)
class _ByRole:
    """Arrays of each table, added up table by table."""

    of: Mapping[Role, Counts]

    def __add__(self, other: _ByRole) -> _ByRole:
        both = {r: self.of[r] + other.of[r] for r in self.of if r in other.of}
        return _ByRole({**self.of, **other.of, **both})


class Crosstabs(Stages):
    """Counts of sets of columns."""

    def coded(self, blocks: Mapping[Role, Blocks], bins: Bins) -> dict[Role, tuple[Coded, ...]]:
        """The blocks as codes of buckets; every process keeps those that it has read."""
        shared = self.executor.publish(bins)
        return {role: tuple(Coded(s, shared) for s in held.sources) for role, held in blocks.items()}

    def crosstabs(self, coded: Mapping[Role, Sequence[Coded]], sets: Sets) -> Mapping[Role, Counts]:
        """The counts of every table, int64 (cells of all sets,)."""
        sources = [s for held in coded.values() for s in held]
        fn = functools.partial(_count, self.executor.publish(sets))
        counted: _ByRole = self._fold("margins", fn, sources, add, bunches_per_slot=_UNITS)
        return counted.of

    def drawn_crosstabs(self, first: Sequence[Coded], second: Sequence[Coded], sets: Sets, labels: Labels) -> Counts:
        """The counts of the rows that each draw labels as the first table's, int64 (draws, cells of all sets)."""
        fn = functools.partial(_count_drawn, self.executor.publish((sets, labels)), first[0].source.role)
        drawn: Counts = self._fold("margins by chance", fn, [*first, *second], add, bunches_per_slot=_UNITS)
        return drawn

    def distinct_hashes(self, pool: Sequence[Blocks], place: int, column: str) -> Distinct:
        """The distinct hashes of a column, ascending, and how many rows hold them."""
        sources = [s for blocks in pool for s in blocks.sources]
        merge = functools.partial(_merged, column)
        found: Distinct = self._fold("categories", functools.partial(_hashes, place), sources, merge)
        return found


def _count(shared: Published[Sets], coded: Coded) -> _ByRole:
    sets = shared.get()
    out = np.zeros(sets.starts[-1], np.int64)
    (planes.count_small if sets.small else kernel.count)(coded.load(), *sets.arrays, out)
    return _ByRole({coded.source.role: out})


def _count_drawn(shared: Published[tuple[Sets, Labels]], first: Role, coded: Coded) -> Counts:
    sets, labels = shared.get()
    source = coded.source
    ids = np.arange(source.first_row, source.first_row + source.rows)
    rows = np.ascontiguousarray(labels.rows(ids, second=source.role != first), np.int64)
    out = np.zeros((labels.draws, sets.starts[-1]), np.int64)
    kernel.count_drawn(coded.load(), *sets.arrays, rows, frozen(labels.keys), frozen(labels.thresholds), out)
    return out


def _hashes(place: int, source: BlockSource) -> Distinct:
    cells = source.passing().hashes[:, 2 * place]
    values, counts = np.unique(cells[cells != 0], return_counts=True)
    return values, counts.astype(np.int64)


def _merged(column: str, a: Distinct, b: Distinct) -> Distinct:
    """Bounded in memory."""
    both: Distinct = tasks.sum_by_key(a, b)
    if len(both[0]) > MOST_DISTINCT:
        raise InputError(
            f"column {column!r} has more than {MOST_DISTINCT:,} distinct values, too many to find the commonest; "
            "exclude it."
        )
    return both
