"""Searches: index each reference once, send every query block through it, merge what was found.

The graph is linear in the number of query blocks (docs/engine.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskpriv.engine import tasks
from daskpriv.engine.executor import Handle
from daskpriv.engine.plan import SMALLEST, bunches, groups, slices, task_seconds
from daskpriv.engine.stages import Blocks, Pair, Stages, add
from daskpriv.evidence import CloserCounts, CreditLaw, Credits, Neighbours, Role
from daskpriv.space.cover import Covers
from daskpriv.space.gower import GowerSpace
from daskpriv.space.guide import Guide


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

    @property
    def held(self) -> list[list[Handle]]:
        """The handles of each group, all of which one task gets."""
        return [[self.parts[p] for p in group] for group in self.groups]


@dataclass(frozen=True)
class _Scan:
    """The search tasks of one direction and the pairs each stands for; per query block, what is to be merged."""

    rows: list[list[Handle]]
    pairs: list[int]
    started: list[Handle] = field(default_factory=list)
    waited: list[Handle] = field(default_factory=list)


@dataclass
class Searches(Stages):
    """Answers requests for neighbours, counts and credits."""

    _indexed: dict[Any, Reference] = field(default_factory=dict, init=False)

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

    def forget_indexes(self) -> None:
        """Searches are over: let the workers have the memory back."""
        self._indexed.clear()

    def _build_index(self, blocks: Blocks, space: GowerSpace) -> Reference:
        submit, role = self.executor.submit, blocks.role
        shared_space = self._share(space)
        extents = [submit(f"extent-{role}", tasks.extent, h, shared_space) for h in blocks.handles]
        extent = self._fetch(f"measure {role}", self._tree(f"extent-{role}", extents, add))
        guide = Guide.fit(space, extent, self.layout.parts(blocks.rows, self.executor.slots))
        shared = self._share(guide)
        if guide.parts == 1:
            handle = submit(f"index-{role}", tasks.index_blocks, shared, list(blocks.handles))
            return Reference(guide, shared, [handle], [[0]], [blocks.rows])
        del extents
        cut = bunches(len(blocks.handles), guide.parts)
        scattered = [submit(f"scatter-{role}", tasks.scatter, [blocks.handles[i] for i in b], shared) for b in cut]
        counted = self._tree(f"sizes-{role}", [submit(f"sizes-{role}", tasks.sizes, h) for h in scattered], add)
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
        fixed = (k, reference.shared, reference.held[0], self._same(pair))
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
        choices = list(zip(reference.groups, reference.held, strict=True))
        same = self._same(pair)

        def start(place: int, parts: list[Handle], *home: Handle) -> Handle:
            rows = (0, query.sizes[place])
            return self.executor.submit(
                name, tasks.search, query.handles[place], rows, k, reference.shared, parts, same, *home
            )

        counts = self._ask("belonging", tasks.belonging, query.handles, reference.shared)
        first = [
            [start(i, parts) for group, parts in choices if sum(count[p] for p in group)]
            for i, count in enumerate(counts)
        ]
        # Merges are started before anything is waited for, so that what they merge need not be kept.
        homes = [self._tree(f"merge-{name}", row, tasks.merge_tables) for row in first]
        del first
        self._run(f"{name} at home", homes, [n * reference.rows for n in query.sizes])
        covers = self._share(self._covers(reference))
        reaches = self._ask("reach", tasks.needed, query.handles, homes, reference.shared, covers)
        scan = _Scan([], [])
        for i, reach in enumerate(reaches):
            second = [start(i, parts, homes[i]) for group, parts in choices if sum(reach[p] for p in group)]
            merged = self._tree(f"merge-{name}", [homes[i], *second], tasks.merge_tables)
            (scan.started if second else scan.waited).append(merged)
            scan.rows.append([merged])
        scan.pairs.extend([0] * len(scan.started))
        return scan

    def _covers(self, reference: Reference) -> Covers:
        held = [p for p, h in enumerate(reference.parts) if h is not None]
        found = self._ask("cover", tasks.cover, [reference.parts[p] for p in held], reference.shared)
        return Covers.of(dict(zip(held, found, strict=True)), reference.groups, len(reference.parts))

    def _finish(self, name: str, scans: Mapping[Any, _Scan], fn: Callable[..., Any]) -> dict[Any, list[Handle]]:
        """Wait for scans, then tree-merge what was found for each query block."""
        if scans:
            handles = [h for s in scans.values() for h in s.started]
            self._run(name, handles, [n for s in scans.values() for n in s.pairs])
        merged = {key: [self._tree(f"merge-{name}", row, fn) for row in scan.rows] for key, scan in scans.items()}
        known = {id(h) for s in scans.values() for h in (*s.started, *s.waited)}
        late = [h for handles in merged.values() for h in handles if id(h) not in known]
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
            name, same = f"count-{pair[0]}-x-{pair[1]}", self._same(pair)
            scan = scans[r] = _Scan([], [])
            for place, size in enumerate(query.sizes):
                fixed = (query.handles[place], found[r.query, r.than][place], reference.shared)
                row = [self.executor.submit(name, tasks.closer, *fixed, parts, same) for parts in reference.held]
                scan.pairs.extend(size * sum(reference.sizes[p] for p in group) for group in reference.groups)
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
            name, same = f"credits-{pair[1]}", self._same(pair)
            for query, (a, b) in zip(blocks[pair[0]].handles, lists, strict=True):
                fixed = (query, a, b, side == 0, reference.shared)
                parts += [
                    self.executor.submit(name, tasks.searched_credits, *fixed, held, same) for held in reference.held
                ]
            self._run(f"ties {pair[0]} x {pair[1]}", parts)
            totals.append(self._tree("merge-credits", parts, tasks.add_credits))
        rows = (blocks[request.first].rows, blocks[request.second].rows)
        law: CreditLaw = self._fetch("credits", self.executor.submit("credit-law", tasks.credit_law, *totals, *rows))
        return law
