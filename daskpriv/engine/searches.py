"""Searches: every query row against all of a reference, in units that read their own inputs.

The number of units is linear in the number of query blocks (docs/engine.md).
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine.plan import SMALLEST, groups, slice_rows, slices, task_seconds
from daskpriv.engine.published import Published, digest_of
from daskpriv.engine.reference import Reference
from daskpriv.engine.sources import Blocks, BlockSource
from daskpriv.engine.stages import Pair, Stages, add
from daskpriv.engine.store import Store
from daskpriv.engine.units import (
    Added,
    Apart,
    Closer,
    Joined,
    Least,
    Merged,
    Piece,
    Search,
    Together,
)
from daskpriv.evidence import CloserCounts, Neighbours, Role, Widest
from daskpriv.space.cover import Cover, Covers
from daskpriv.space.gower import GowerSpace
from daskpriv.space.guide import Extent, Guide
from daskpriv.space.packed import packed
from daskpriv.space.searching import nearest

_PILOT = 256
Found = Mapping[Pair, list[Joined]]


def _forgetful(steps: Mapping[str, int]) -> None:
    """Remember nothing."""


@dataclass
class Searches(Stages):
    """Answers requests for neighbours and what is counted about them.

    Attributes
    ----------
    steps : {direction: rows}
        Query rows per search unit, as first measured; a resumed run cuts the same way.
    remember : callable
        Is given `steps` whenever one is added.
    """

    steps: dict[str, int] = field(default_factory=dict)
    remember: Callable[[Mapping[str, int]], None] = _forgetful
    _references: dict[tuple[Role, str], Reference] = field(default_factory=dict, init=False)

    def search(
        self, requests: Iterable[Neighbours], blocks: Mapping[Role, Blocks], spaces: Mapping[Pair, GowerSpace]
    ) -> dict[Pair, list[Joined]]:
        """Each direction once, with the largest k asked for; one answer per query block."""
        widest: dict[Pair, int] = {}
        for r in requests:
            widest[r.query, r.reference] = max(r.k, widest.get((r.query, r.reference), 0))
        # Directions into one reference follow each other, so that a process need not hold more indexes than that.
        references = list(dict.fromkeys(reference for _, reference in widest))
        order = sorted(widest, key=lambda pair: references.index(pair[1]))
        found = {pair: self._direction(pair, widest[pair], blocks, spaces) for pair in order}
        return {pair: found[pair] for pair in widest}

    def reference(self, blocks: Blocks, space: GowerSpace) -> Reference:
        """What searches need to know of a reference table in this space."""
        key = (blocks.role, _digest(space.digest, *(s.name for s in blocks.sources)))
        if key not in self._references:
            self._references[key] = self._measured(blocks, space, key[1])
        return self._references[key]

    def _measured(self, blocks: Blocks, space: GowerSpace, name: str) -> Reference:
        shared = self.executor.publish(space)
        extent = self._fold(f"measure {blocks.role}", functools.partial(_extent, shared), blocks.sources, add)
        guide = Guide.fit(space, extent, self.layout.parts(blocks.rows, self.executor.threads))
        sources, shared_guide = self.executor.publish(blocks.sources), self.executor.publish(guide)
        # Blocks are measured in any order, which changes the guide: what is made for one guide is not for another.
        cut = digest_of(pickle.dumps(guide))
        name = _digest(name, cut)
        if guide.parts == 1:
            return Reference(name, blocks.role, shared_guide, sources, ((0,),), (blocks.rows,), "")
        sizes = self._fold(f"sort {blocks.role}", functools.partial(_belonging, shared_guide), blocks.sources, add)
        shared_guide = self.executor.publish(guide.without(sizes == 0))
        held = tuple(tuple(g) for g in groups(sizes.tolist(), self.layout))
        return Reference(
            name, blocks.role, shared_guide, sources, held, tuple(sizes.tolist()), cut if len(held) > 1 else ""
        )

    def _same(self, pair: Pair) -> bool:
        return pair[0] == pair[1] or pair in self.same

    def _direction(
        self, pair: Pair, k: int, blocks: Mapping[Role, Blocks], spaces: Mapping[Pair, GowerSpace]
    ) -> list[Joined]:
        query, reference = blocks[pair[0]], self.reference(blocks[pair[1]], spaces[pair])
        scan = _Scan(f"search-{pair[0]}-x-{pair[1]}", query, reference, k, self._same(pair))
        if len(reference.groups) == 1:
            return self._search_slices(scan)
        return self._search_groups(scan)

    def _search_slices(self, scan: _Scan) -> list[Joined]:
        """One unit per slice of a query block, when a process can hold the whole reference."""
        step = self._step(scan)
        cut = [[(s, *rows) for rows in slices(s.rows, step)] for s in scan.query.sources]
        units = [Search(s, a, b, scan.k, scan.reference, 0, scan.same) for block in cut for s, a, b in block]
        wanted = [self._piece(u, *scan.what, u.query.first_row + u.start, u.stop - u.start) for u in units]
        made = iter(self._produce(scan.name, wanted, [(u.stop - u.start) * scan.reference.rows for u in units]))
        return [Joined(tuple(next(made) for _ in block)) for block in cut]

    def _step(self, scan: _Scan) -> int:
        """Query rows per unit: how long a search takes is in the data, so a few rows are tried first."""
        largest = max(scan.query.sizes)
        if largest <= SMALLEST:
            return largest
        if scan.name not in self.steps:
            begun = [largest * i for i in range(max(self.executor.slots // self.executor.threads, 1))]
            source = scan.query.sources[scan.query.sizes.index(largest)]
            pilot = functools.partial(_pilot, source, scan.k, scan.reference, scan.same)
            pace = statistics.median(self._ask(f"index {scan.reference.role}", pilot, begun))
            self.steps[scan.name] = slice_rows(largest, pace, task_seconds(scan.query.rows, pace, self.executor.slots))
            self.remember(self.steps)
        return self.steps[scan.name]

    def _search_groups(self, scan: _Scan) -> list[Joined]:
        """Two rounds, for references of which a process can hold only some parts.

        First every query row searches where it belongs. Then, with the distances found there, it searches elsewhere:
        a group of parts in whose boxes no row of a block can have a nearer neighbour is left out. Units go group by
        group, so that a process builds each index once.
        """
        sources, reference = scan.query.sources, scan.reference
        counts = self._ask("belonging", functools.partial(_belonging, reference.guide), sources)
        first = [
            (i, g)
            for g, parts in enumerate(reference.groups)
            for i in range(len(sources))
            if sum(counts[i][p] for p in parts)
        ]
        homes = self._in_groups(scan, "home", first, {})
        home = {i: Merged(tuple(p for (j, _), p in homes.items() if j == i)) for i in range(len(sources))}
        covers = self.executor.publish(self._covers(reference))
        asked = [(s, home[i]) for i, s in enumerate(sources)]
        needed = functools.partial(_needed, self.store, reference.guide, covers)
        reaches = self._ask("reach", needed, asked, executor=self.reader)
        second = [
            (i, g)
            for g, parts in enumerate(reference.groups)
            for i in range(len(sources))
            if sum(reaches[i][p] for p in parts)
        ]
        beyond = self._in_groups(scan, "beyond", second, home)
        return self._merged(scan, home, beyond)

    def _in_groups(
        self, scan: _Scan, which: str, places: Sequence[tuple[int, int]], home: Mapping[int, Merged]
    ) -> dict[tuple[int, int], Piece]:
        sources, reference = scan.query.sources, scan.reference
        wanted = []
        for i, g in places:
            unit = Search(sources[i], 0, sources[i].rows, scan.k, reference, g, scan.same, home.get(i))
            what = (which, sources[i].first_row, sources[i].rows, reference.cut, reference.groups[g])
            wanted.append(self._piece(unit, *scan.what, *what))
        pairs = [sources[i].rows * sum(reference.sizes[p] for p in reference.groups[g]) for i, g in places]
        return dict(zip(places, self._produce(scan.name, wanted, pairs), strict=True))

    def _merged(self, scan: _Scan, home: Mapping[int, Merged], beyond: Mapping[tuple[int, int], Piece]) -> list[Joined]:
        wanted = []
        for i, s in enumerate(scan.query.sources):
            lists = Merged((*home[i].pieces, *(p for (j, _), p in beyond.items() if j == i)))
            wanted.append(self._piece(Together(lists, s.label), *scan.what, s.first_row, s.rows))
        return [Joined((p,)) for p in self._produce(f"merge-{scan.name}", wanted)]

    def _covers(self, reference: Reference) -> Covers:
        places = range(len(reference.groups))
        found = self._ask("cover", functools.partial(_cover, reference), places)
        held = {part: cover for group in found for part, cover in group.items()}
        return Covers.of(held, [list(g) for g in reference.groups], len(reference.sizes))

    def count_closer(
        self,
        requests: Iterable[CloserCounts],
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Found,
    ) -> dict[CloserCounts, list[Added]]:
        """Answers to `CloserCounts`, one per query block."""
        answers = {}
        for r in sorted(set(requests)):
            pair, query = (r.query, r.reference), blocks[r.query]
            reference = self.reference(blocks[r.reference], spaces[pair])
            wanted, pairs = [], []
            for g, parts in enumerate(reference.groups):
                for s, than in zip(query.sources, found[r.query, r.than], strict=True):
                    unit = Closer(s, than, reference, g, self._same(pair))
                    rows = (s.first_row, s.rows, reference.cut, parts)
                    wanted.append(self._piece(unit, "count", r.query, r.reference, r.than, *rows))
                    pairs.append(s.rows * sum(reference.sizes[p] for p in parts))
            made = self._produce(f"count-{pair[0]}-x-{pair[1]}", wanted, pairs)
            blocks_of = len(query.sources)
            answers[r] = [Added(tuple(made[i::blocks_of])) for i in range(blocks_of)]
        return answers

    def apart(
        self,
        requests: Iterable[Widest],
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Found,
    ) -> dict[Widest, list[Least]]:
        """Answers to `Widest`, one per query block."""
        answers = {}
        for r in sorted(set(requests)):
            pair, sources = (r.query, r.reference), blocks[r.query].sources
            reference = self.reference(blocks[r.reference], spaces[pair])
            wanted = [
                self._piece(
                    Apart(s, lists, reference, g, self._same(pair)),
                    *("apart", *pair, s.first_row, s.rows, reference.cut, parts),
                )
                for g, parts in enumerate(reference.groups)
                for s, lists in zip(sources, found[pair], strict=True)
            ]
            made = self._produce(f"differences-{pair[0]}-x-{pair[1]}", wanted)
            answers[r] = [Least(tuple(made[i :: len(sources)])) for i in range(len(sources))]
        return answers


@dataclass(frozen=True)
class _Scan:
    """One direction of a search."""

    name: str
    query: Blocks
    reference: Reference
    k: int
    same: bool

    @property
    def what(self) -> tuple[Any, ...]:
        """What names its pieces in the store."""
        return ("search", self.query.role, self.reference.role, self.k)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _extent(space: Published[GowerSpace], source: BlockSource) -> Extent:
    """What an index needs to know of a block beforehand."""
    return Extent.of(space.get(), source.load())


def _belonging(guide: Published[Guide], source: BlockSource) -> NDArray[np.int64]:
    """How many rows of a block belong to each part, int64 (parts,)."""
    held = guide.get()
    coded = held.encode(packed(held.space, source.load()))
    return np.bincount(held.part_of(coded), minlength=held.parts)


def _cover(reference: Reference, group: int) -> dict[int, Cover]:
    """The outermost boxes of the parts of a group."""
    guide = reference.guide.get()
    return {index.part: Cover.of(guide, index.planes) for index in reference.held(group)}


def _needed(
    store: Store, guide: Published[Guide], covers: Published[Covers], asked: tuple[BlockSource, Merged]
) -> NDArray[np.int64]:
    """How many rows of a block may have nearer neighbours in each part than those found where they belong."""
    source, home = asked
    return covers.get().needed(guide.get(), source.load(), home.load(store).distance[:, -1])


def _pilot(query: BlockSource, k: int, reference: Reference, same: bool, seed: int) -> float:
    """Seconds that a search takes per query row, from a few rows."""
    block, guide, parts = query.load(), reference.guide.get(), reference.held(0)
    places = (np.linspace(0, len(block) - 1, min(len(block), _PILOT)).astype(np.int64) + seed) % len(block)
    some = block.take(np.sort(places))
    nearest(guide, parts, some.slice(0, 1), same, k)
    spent = []
    for rows in (some.slice(0, 1), some):
        begun = time.thread_time()
        nearest(guide, parts, rows, same, k)
        spent.append(time.thread_time() - begun)
    return max(spent[1] - spent[0], 0.0) / len(some)
