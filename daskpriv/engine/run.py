"""The engine: tables in, evidence out. It owns the shape of the work and sends it to an executor.

Blocks, neighbour tables and partials stay where the executor keeps them; only summaries of columns, digit counts
and finished reductions come here, and their size does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskpriv.engine import tasks
from daskpriv.engine.executor import Executor, Handle
from daskpriv.engine.plan import SMALLEST, Layout, groups, slices, task_seconds
from daskpriv.errors import InputError
from daskpriv.events import Listener, StageStarted, TaskDone, silent
from daskpriv.evidence import CloserCounts, CreditLaw, Credits, Facts, Neighbours, Request, Role
from daskpriv.protocol import Metric, Result
from daskpriv.space.buckets import Buckets
from daskpriv.space.cover import Covers
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace
from daskpriv.space.guide import Guide
from daskpriv.space.reading import Reading
from daskpriv.space.summary import PartSummary, summarise
from daskpriv.stats.selection import Quantiles, Selection
from daskpriv.tables.table import Table

_FAN_IN = 8
_MOST_DISTINCT = 5_000_000
Pair = tuple[Role, Role]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The encoded blocks of one table, wherever they are."""

    role: Role
    handles: tuple[Handle, ...]
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)


@dataclass(eq=False)
class Reference:
    """A reference table as searches need it.

    Attributes
    ----------
    guide : Guide
    shared : handle of the guide
    parts : handles of the indexes, one per part; None where no row belongs to it
    groups : positions of the parts that one task holds together
    sizes : rows of each part
    """

    guide: Guide
    shared: Handle
    parts: list[Handle | None]
    groups: list[list[int]]
    sizes: list[int]
    ready: bool = False

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(self.sizes)


@dataclass(frozen=True)
class _Scan:
    """The search tasks of one direction and the pairs each stands for; per query block, what is to be merged."""

    rows: list[list[Handle]]
    pairs: list[int]
    started: list[Handle] = field(default_factory=list)


@dataclass
class Engine:
    """Runs stages on an executor and tells a listener about them.

    Attributes
    ----------
    same : set of (query, reference)
        Pairs of roles that are one and the same table, so that a row must not meet itself. Equal roles always are.
    """

    executor: Executor
    layout: Layout
    listener: Listener = silent
    same: frozenset[Pair] = frozenset()
    pairs: int = field(default=0, init=False)
    tasks: int = field(default=0, init=False)
    _sent: dict[str, list[tuple[int, Any]]] = field(default_factory=dict, init=False)
    _indexed: dict[Any, Reference] = field(default_factory=dict, init=False)

    # ---- plumbing

    def _run(self, stage: str, handles: Sequence[Handle], pairs: Sequence[int] | None = None) -> None:
        pairs = pairs or [0] * len(handles)
        self.pairs += sum(pairs)
        self.tasks += len(handles)
        self.listener(StageStarted(stage, len(handles), sum(pairs)))
        self.executor.wait(handles, lambda i: self.listener(TaskDone(stage, pairs[i])))

    def _tree(self, name: str, handles: Sequence[Handle], fn: Callable[..., Any], *fixed: Any) -> Handle:
        """Merge handles with an associative and commutative function, a few at a time."""
        level = list(handles)
        while len(level) > 1:
            level = [
                self.executor.submit(name, tasks.fold, fn, fixed, level[i : i + _FAN_IN])
                if len(level) > i + 1
                else level[i]
                for i in range(0, len(level), _FAN_IN)
            ]
        return level[0]

    def _share(self, value: Any) -> Handle:
        """A value that many tasks need: sent once, not with every task."""
        return self.executor.submit("share", tasks.same, value)

    def _fetch(self, stage: str, handle: Handle) -> Any:
        self._run(stage, [handle])
        return self.executor.gather([handle])[0]

    # ---- tables

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
        whole = self._tree(f"merge-{table.name}", handles, _add)
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

    # ---- evidence

    def search(
        self, requests: Iterable[Neighbours], blocks: Mapping[Role, Blocks], spaces: Mapping[Pair, GowerSpace]
    ) -> dict[Pair, list[Handle]]:
        """Each direction once, with the largest k asked for; one handle of a neighbour table per query block."""
        widest: dict[Pair, int] = {}
        for r in requests:
            widest[r.query, r.reference] = max(r.k, widest.get((r.query, r.reference), 0))
        indexed = {pair: self.index(blocks[pair[1]], spaces[pair]) for pair in widest}
        self._await_indexes(indexed.values())
        scans = {pair: self._scan(pair, k, blocks[pair[0]], indexed[pair]) for pair, k in widest.items()}
        return self._finish("search", scans, tasks.merge_tables)

    def index(self, blocks: Blocks, space: GowerSpace) -> Reference:
        """Index a reference table once for all searches in this space; the parts stay on the workers."""
        key = (blocks, space.digest)
        if key not in self._indexed:
            self._indexed[key] = self._build_index(blocks, space)
        return self._indexed[key]

    def _build_index(self, blocks: Blocks, space: GowerSpace) -> Reference:
        submit, role = self.executor.submit, blocks.role
        shared_space = self._share(space)
        extents = [submit(f"extent-{role}", tasks.extent, h, shared_space) for h in blocks.handles]
        extent = self._fetch(f"measure {role}", self._tree(f"extent-{role}", extents, _add))
        guide = Guide.fit(space, extent, self.layout.parts(blocks.rows, self.executor.slots))
        shared = self._share(guide)
        if guide.parts == 1:
            handle = submit(f"index-{role}", tasks.index_blocks, shared, list(blocks.handles))
            return Reference(guide, shared, [handle], [[0]], [blocks.rows])
        scattered = [submit(f"scatter-{role}", tasks.scatter, h, shared) for h in blocks.handles]
        counted = self._tree(f"sizes-{role}", [submit(f"sizes-{role}", tasks.sizes, h) for h in scattered], _add)
        sizes = [int(n) for n in self._fetch(f"sort {role}", counted)]
        parts: list[Handle | None] = [None] * guide.parts
        for part in np.flatnonzero(sizes):
            pieces = [submit(f"piece-{role}", tasks.pick, h, int(part)) for h in scattered]
            parts[part] = submit(f"index-{role}", tasks.index_pieces, shared, int(part), pieces)
        guide = guide.without(np.array(sizes) == 0)
        return Reference(guide, self._share(guide), parts, groups(sizes, self.layout), sizes)

    def _await_indexes(self, indexed: Iterable[Reference]) -> None:
        new = [h for r in {id(r): r for r in indexed}.values() if not r.ready for h in r.parts if h is not None]
        if new:
            self._run("index", new)
        for r in indexed:
            r.ready = True

    def _same(self, pair: Pair) -> bool:
        return pair[0] == pair[1] or pair in self.same

    def _scan(self, pair: Pair, k: int, query: Blocks, reference: Reference) -> _Scan:
        """Start the search of every query block: one task per slice when all parts can be held, else two rounds."""
        name = f"search-{pair[0]}-x-{pair[1]}"
        if len(reference.groups) > 1:
            return self._scan_groups(name, pair, k, query, reference)
        parts = [reference.parts[p] for p in reference.groups[0]]
        fixed = (k, reference.shared, parts, self._same(pair))
        pace = self._pace(query, fixed)
        seconds = task_seconds(query.rows, pace, self.executor.slots)
        scan = _Scan([], [])
        for handle, size in zip(query.handles, query.sizes, strict=True):
            cut = slices(size, pace, seconds)
            found = [self.executor.submit(name, tasks.search, handle, rows, *fixed) for rows in cut]
            scan.pairs.extend((b - a) * reference.rows for a, b in cut)
            scan.started.extend(found)
            scan.rows.append(found if len(found) == 1 else [self.executor.submit("join", tasks.joined_tables, found)])
        return scan

    def _pace(self, query: Blocks, fixed: tuple[Any, ...]) -> float:
        """Seconds per query row, measured on a few rows when there are many: how long a task takes is in the data."""
        if max(query.sizes) <= SMALLEST:
            return 0.0
        place = query.sizes.index(max(query.sizes))
        pace: float = self._fetch("pilot", self.executor.submit("pilot", tasks.pilot, query.handles[place], *fixed))
        return pace

    def _scan_groups(self, name: str, pair: Pair, k: int, query: Blocks, reference: Reference) -> _Scan:
        """Two rounds, for references of which a worker can hold only some parts.

        First every query row searches where it belongs. Then, with the distances found there, it searches elsewhere:
        a group of parts in whose boxes no row of a block can have a nearer neighbour is left out.
        """
        groups = [(group, [reference.parts[p] for p in group]) for group in reference.groups]
        same = self._same(pair)

        def start(place: int, parts: list[Handle | None], *home: Handle) -> Handle:
            rows = (0, query.sizes[place])
            return self.executor.submit(
                name, tasks.search, query.handles[place], rows, k, reference.shared, parts, same, *home
            )

        counts = self._ask("belonging", tasks.belonging, query.handles, reference.shared)
        first = [
            [start(i, parts) for group, parts in groups if sum(count[p] for p in group)]
            for i, count in enumerate(counts)
        ]
        pairs = [n * reference.rows // len(row) for n, row in zip(query.sizes, first, strict=True) for _ in row]
        self._run(f"{name} at home", [h for row in first for h in row], pairs)
        homes = [self._tree(f"merge-{name}", row, tasks.merge_tables) for row in first]
        covers = self._share(self._covers(reference))
        reaches = self._ask("reach", tasks.needed, query.handles, homes, reference.shared, covers)
        scan = _Scan([], [])
        for i, reach in enumerate(reaches):
            second = [start(i, parts, homes[i]) for group, parts in groups if sum(reach[p] for p in group)]
            scan.started.extend(second)
            scan.rows.append([homes[i], *second])
        scan.pairs.extend([0] * len(scan.started))
        return scan

    def _ask(self, stage: str, fn: Callable[..., Any], handles: Sequence[Handle], *rest: Any) -> list[Any]:
        """Something small about every block; lists among `rest` hold one handle per block."""
        asked = []
        for i, h in enumerate(handles):
            own = [r[i] if isinstance(r, list) else r for r in rest]
            asked.append(self.executor.submit(stage, fn, h, *own))
        self._run(stage, asked)
        return self.executor.gather(asked)

    def _covers(self, reference: Reference) -> Covers:
        held = [p for p, h in enumerate(reference.parts) if h is not None]
        found = self._ask("cover", tasks.cover, [reference.parts[p] for p in held])
        return Covers.of(dict(zip(held, found, strict=True)), reference.groups, len(reference.parts))

    def _finish(self, name: str, scans: Mapping[Any, _Scan], fn: Callable[..., Any]) -> dict[Any, list[Handle]]:
        """Wait for scans, then tree-merge what was found for each query block."""
        if scans:
            handles = [h for s in scans.values() for h in s.started]
            self._run(name, handles, [n for s in scans.values() for n in s.pairs])
        merged = {key: [self._tree(f"merge-{name}", row, fn) for row in scan.rows] for key, scan in scans.items()}
        started = {id(h) for s in scans.values() for h in s.started}
        late = [h for handles in merged.values() for h in handles if id(h) not in started]
        if late:
            self._run(f"merge {name}", late)
        return merged

    def count_closer(
        self,
        requests: Iterable[CloserCounts],
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Mapping[Pair, list[Handle]],
    ) -> dict[CloserCounts, list[Handle]]:
        """Answers to `CloserCounts`, one handle per query block."""
        scans = {}
        for r in sorted(set(requests)):
            pair, query = (r.query, r.reference), blocks[r.query]
            reference = self.index(blocks[r.reference], spaces[pair])
            scan = scans[r] = _Scan([], [])
            for place, size in enumerate(query.sizes):
                row = []
                for group in reference.groups:
                    parts = [reference.parts[p] for p in group]
                    row.append(
                        self.executor.submit(
                            f"count-{pair[0]}-x-{pair[1]}",
                            tasks.closer,
                            query.handles[place],
                            found[r.query, r.than][place],
                            reference.shared,
                            parts,
                            self._same(pair),
                        )
                    )
                    scan.pairs.append(size * sum(reference.sizes[p] for p in group))
                scan.started.extend(row)
                scan.rows.append(row)
        return self._finish("count", scans, tasks.add_closer)

    def credits(
        self,
        request: Credits,
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Mapping[Pair, list[Handle]],
    ) -> CreditLaw:
        """How often each real row is a nearest row: lists name most of them, wide ties need a second look."""
        sides = ((request.query, request.first), (request.query, request.second))
        lists = list(zip(found[sides[0]], found[sides[1]], strict=True))
        listed = [self.executor.submit("credits", tasks.listed_credits, a, b) for a, b in lists]
        totals = []
        for side, pair in enumerate(sides):
            parts = [self.executor.submit("credits", tasks.pick, h, side) for h in listed]
            reference = self.index(blocks[pair[1]], spaces[pair])
            for place, (a, b) in enumerate(lists):
                for group in reference.groups:
                    held = [reference.parts[p] for p in group]
                    parts.append(
                        self.executor.submit(
                            f"credits-{pair[1]}",
                            tasks.searched_credits,
                            blocks[pair[0]].handles[place],
                            a,
                            b,
                            side == 0,
                            reference.shared,
                            held,
                            self._same(pair),
                        )
                    )
            self._run(f"ties {pair[0]} x {pair[1]}", parts)
            totals.append(self._tree("merge-credits", parts, tasks.add_credits))
        rows = (blocks[request.first].rows, blocks[request.second].rows)
        law: CreditLaw = self._fetch("credits", self.executor.submit("credit-law", tasks.credit_law, *totals, *rows))
        return law

    # ---- metrics

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


def _add(a: Any, b: Any) -> Any:
    return a + b
