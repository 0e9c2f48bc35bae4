"""The engine: tables in, evidence out. It owns the shape of the work and sends it to an executor.

Blocks, indexes, neighbour tables and partials stay where the executor keeps them; only summaries of columns, digit
counts and finished reductions come here, and their size does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskpriv.engine import tasks
from daskpriv.engine.executor import Handle
from daskpriv.engine.searches import Searches
from daskpriv.engine.stages import Blocks, Pair, add
from daskpriv.errors import InputError
from daskpriv.evidence import CloserCounts, Credits, Facts, Neighbours, Request, Role
from daskpriv.protocol import Metric, Result
from daskpriv.space.buckets import Buckets
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace
from daskpriv.space.reading import Reading
from daskpriv.space.summary import PartSummary, summarise
from daskpriv.stats.selection import Quantiles, Selection
from daskpriv.tables.table import Table

__all__ = ["Blocks", "Engine", "Pair"]

_MOST_DISTINCT = 5_000_000


@dataclass
class Engine(Searches):
    """Reads and encodes tables, runs searches, reduces metrics."""

    _sent: dict[str, list[tuple[int, Any]]] = field(default_factory=dict, init=False)

    def _parts(self, table: Table) -> list[tuple[int, Any]]:
        """Parts with their row counts; rows that are in memory here are sent once and kept for the second pass."""
        if table.name not in self._sent:
            parts = list(table.parts(self.layout.block_rows))
            self._sent[table.name] = [(p.rows, p if table.files else self._share(p)) for p in parts]
        return self._sent[table.name]

    def summarise(self, table: Table, readings: Sequence[Reading]) -> PartSummary:
        """Read a table once, part by part, and merge what is known about its columns."""
        parts = self._parts(table)
        handles = [self.executor.submit(f"summarise-{table.name}", summarise, p, readings) for _, p in parts]
        self._run(f"read {table.name}", handles)
        whole = self._tree(f"merge-{table.name}", handles, add)
        result: PartSummary = (
            self.executor.gather([whole])[0] if len(handles) == 1 else self._fetch(f"merge {table.name}", whole)
        )
        return result

    def encode(self, table: Table, encoding: Encoding) -> Blocks:
        """Read a table again and leave its encoded blocks on the workers."""
        parts = self._parts(table)
        shared = self._share(encoding)
        handles = [self.executor.submit(f"encode-{table.name}", tasks.encode, p, shared) for _, p in parts]
        self._run(f"encode {table.name}", handles)
        return Blocks(table.name, tuple(handles), tuple(rows for rows, _ in parts))

    def _each(self, blocks: Blocks, name: str, fn: Callable[..., Any], argument: Any) -> Blocks:
        shared = self._share(argument)
        handles = [self.executor.submit(f"{name}-{blocks.role}", fn, h, shared) for h in blocks.handles]
        self._run(f"{name} {blocks.role}", handles)
        return Blocks(blocks.role, tuple(handles), blocks.sizes)

    def bucket(self, blocks: Blocks, buckets: Buckets) -> Blocks:
        """Replace numbers by quantile buckets."""
        return self._each(blocks, "bucket", tasks.bucket, buckets)

    def rank(self, blocks: Blocks, supports: Mapping[int, Any]) -> Blocks:
        """Replace numbers by mid-ranks."""
        return self._each(blocks, "rank", tasks.rank, supports)

    def quantiles(self, pool: Sequence[Blocks], wanted: Mapping[int, Quantiles]) -> dict[int, list[float]]:
        """Exact quantiles of number columns over pooled tables; `wanted` counts the non-missing values."""
        selections = {place: Selection.at(q.ranks()) for place, q in wanted.items() if q.n > 0}
        handles = [h for blocks in pool for h in blocks.handles]
        while any(not s.done for s in selections.values()):
            partial = [self.executor.submit("quantiles", tasks.count_digits, h, selections) for h in handles]
            counts = self._fetch("quantiles", self._tree("merge-quantiles", partial, tasks.add_digits))
            selections = {place: s.narrow(counts[place]) for place, s in selections.items()}
        return {place: wanted[place].combine(s.values()) for place, s in selections.items()}

    def distinct(self, pool: Sequence[Blocks]) -> dict[int, Any]:
        """Distinct values of every number column over pooled tables, with counts."""
        handles = [
            self.executor.submit("distinct", tasks.distinct_numbers, h) for blocks in pool for h in blocks.handles
        ]
        found: dict[int, Any] = self._fetch("distinct", self._tree("merge-distinct", handles, tasks.add_distinct))
        if max((len(values) for values, _ in found.values()), default=0) > _MOST_DISTINCT:
            raise InputError(
                f"range 'rank': a column has more than {_MOST_DISTINCT:,} distinct values; use range "
                "'quantile' instead."
            )
        return found

    def measure(
        self, metrics: Sequence[Metric], facts: Facts, blocks: Mapping[Role, Blocks], spaces: Mapping[Pair, GowerSpace]
    ) -> tuple[dict[str, Result], dict[Pair, list[Handle]]]:
        """Answer what the metrics need, each search once, and reduce."""
        wanted: list[Request] = [r for m in metrics for r in m.needs(facts)]
        found = self.search((r for r in wanted if isinstance(r, Neighbours)), blocks, spaces)
        counted = self.count_closer((r for r in wanted if isinstance(r, CloserCounts)), blocks, spaces, found)
        answers = {
            r: self.credits(r, blocks, spaces, found) for r in sorted({r for r in wanted if isinstance(r, Credits)})
        }
        self.forget_indexes()
        states: dict[str, Any] = {m.name: m.begin(facts) for m in metrics}
        results: dict[str, Result] = {}
        while len(results) < len(metrics):
            open_metrics = [m for m in metrics if m.name not in results]
            partials = self._reduce(open_metrics, [states[m.name] for m in open_metrics], blocks, found, counted)
            for m, partial in zip(open_metrics, partials, strict=True):
                state = m.advance(states[m.name], partial, answers)
                if isinstance(state, Result):
                    results[m.name] = state
                else:
                    states[m.name] = state
        return {m.name: results[m.name] for m in metrics}, found

    def _reduce(
        self,
        metrics: Sequence[Metric],
        states: Sequence[Any],
        blocks: Mapping[Role, Blocks],
        found: Mapping[Pair, list[Handle]],
        counted: Mapping[CloserCounts, list[Handle]],
    ) -> list[Any]:
        handles = []
        for role in sorted({q for q, _ in found}):
            pairs = [p for p in found if p[0] == role]
            counts = [c for c in counted if c.query == role]
            names = [Neighbours(q, r) for q, r in pairs]
            for place in range(len(blocks[role].handles)):
                tables = [found[p][place] for p in pairs]
                extra = [counted[c][place] for c in counts]
                handles.append(
                    self.executor.submit("metrics", tasks.chunk, metrics, states, role, names, tables, counts, extra)
                )
        if not handles:
            return [None] * len(metrics)
        partials: list[Any] = self._fetch("metrics", self._tree("merge-metrics", handles, tasks.combine, metrics))
        return partials
