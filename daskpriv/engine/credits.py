"""Credits: how often each real row is a nearest row of the synthetic ones; handed out by query blocks, added by row."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine import tasks
from daskpriv.engine.reference import Reference
from daskpriv.engine.searches import Found, Searches
from daskpriv.engine.sources import Blocks
from daskpriv.engine.stages import Pair
from daskpriv.engine.store import Store
from daskpriv.engine.units import Credit, Credited, Piece, Received, WideCredit, to_arrow
from daskpriv.evidence import CreditLaw, Credits, Role, RowCredits
from daskpriv.space.gower import GowerSpace
from daskpriv.stats.labels import labels
from daskpriv.subjects import Subjects

_CREDIT_ROWS = 4_000_000  # real rows whose credits are added up at a time: 64 MB here


class CreditSums(Searches):
    """Answers requests for credits from the neighbours found."""

    def credits(
        self,
        request: Credits,
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Found,
        subjects: Subjects | None = None,
    ) -> CreditLaw:
        """How often each real row is a nearest row; with subjects, the law is that of the credits of subjects."""
        made, references = self._handed_out(request, blocks, spaces, found)
        counts: dict[tuple[int, int], int] = {}
        drawn = np.zeros((request.draws, 1), np.int64)
        hubs = np.empty((0, 3), np.int64)
        sizes = (references[0].rows, references[1].rows)
        chosen = labels(*sizes, request.seed, request.draws, subjects) if request.draws else None
        for side, reference in enumerate(references):
            by_subject = np.zeros(subjects.counts[side] if subjects else 0, np.int64)
            for low in range(0, reference.rows, _CREDIT_ROWS):
                total = self._credited(made, side, low, min(low + _CREDIT_ROWS, reference.rows))
                if subjects is None:
                    _count(counts, side, total)
                else:
                    by_subject += subjects.totals(side == 1, np.arange(low, low + len(total)), total)
                held = np.flatnonzero(total)
                hubs = _largest(np.concatenate([hubs, _as_hubs(total, held, side, low)]))
                if chosen is not None:
                    rows = chosen.rows(held + low, second=side == 1)
                    drawn += chosen.sums(rows, np.zeros(len(rows), np.int64), 1, total[held])
            if subjects is not None:
                _count(counts, side, by_subject)
        levels = np.array(sorted({0} | {credit for _, credit in counts}), np.int64)
        first, second = (np.array([counts.get((side, c), 0) for c in levels.tolist()], np.int64) for side in (0, 1))
        return CreditLaw(levels, first, second, drawn[:, 0], hubs)

    def row_credits(
        self, request: RowCredits, blocks: Mapping[Role, Blocks], spaces: Mapping[Pair, GowerSpace], found: Found
    ) -> dict[Role, list[Piece]]:
        """Where the credits of the rows of each real block are kept, {role: piece per block}."""
        made, _ = self._handed_out(request, blocks, spaces, found)
        known, out = self.finished(), {}
        for side, role in enumerate((request.first, request.second)):
            sources = blocks[role].sources
            wanted = [
                self._piece(Received(tuple(made), side, s), "received", *_what(request), side, s.first_row, s.rows)
                for s in sources
            ]
            # Some millions of rows at a time, so that every piece of credits is read only so often.
            for some in _bunches([s.rows for s in sources], _CREDIT_ROWS):
                low, high = sources[some[0]].first_row, sources[some[-1]].first_row + sources[some[-1]].rows
                if all(wanted[i].key in known for i in some):
                    continue
                total = self._credited(made, side, low, high)
                for i in some:
                    start = sources[i].first_row - low
                    mine = total[start : start + sources[i].rows]
                    held = np.flatnonzero(mine)
                    rows = Credited(np.full(len(held), side, np.int8), held + sources[i].first_row, mine[held])
                    known[wanted[i].key] = self.store.put(wanted[i].key, to_arrow(rows))
            out[role] = [Piece(p.key, p.unit, known[p.key]) for p in wanted]
        return out

    def _handed_out(
        self,
        request: Credits | RowCredits,
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        found: Found,
    ) -> tuple[list[Piece], list[Reference]]:
        """The credits that every query block hands out, and the two references."""
        sides = ((request.query, request.first), (request.query, request.second))
        references = [self.reference(blocks[p[1]], spaces[p]) for p in sides]
        sources = blocks[request.query].sources
        lists = list(zip(found[sides[0]], found[sides[1]], strict=True))
        what = _what(request)
        wanted = [
            self._piece(Credit(s, both), *what, s.first_row, s.rows) for s, both in zip(sources, lists, strict=True)
        ]
        for side, reference in enumerate(references):
            for group, parts in enumerate(reference.groups):
                for s, both in zip(sources, lists, strict=True):
                    unit = WideCredit(s, both, side, reference, group, self._same(sides[side]))
                    wanted.append(self._piece(unit, *what, side, reference.cut, parts, s.first_row, s.rows))
        return self._produce(f"ties-{request.query}", wanted), references

    def _credited(self, made: list[Piece], side: int, low: int, high: int) -> NDArray[np.int64]:
        """The credits of the real rows [low, high) of one side, added up over all query blocks."""
        total = np.zeros(high - low, np.int64)
        fn = functools.partial(_credits_within, self.store, side, low, high)
        for _, (rows, credit) in self._each("credits", fn, _few(made), executor=self.reader):
            total[rows - low] += credit
        return total


def _what(request: Credits | RowCredits) -> tuple[str, ...]:
    """What names the pieces of credits in the store."""
    return ("credits", request.query, request.first, request.second)


def _bunches(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Consecutive blocks of at most so many rows together, one at least, by their positions."""
    out: list[list[int]] = []
    held = 0
    for place, size in enumerate(sizes):
        if not out or held + size > most:
            out.append([])
            held = 0
        out[-1].append(place)
        held += size
    return out


def _count(counts: dict[tuple[int, int], int], side: int, credits: NDArray[np.int64]) -> None:
    """Count how many hold which credit."""
    for credit, times in zip(*np.unique(credits, return_counts=True), strict=True):
        counts[side, int(credit)] = counts.get((side, int(credit)), 0) + int(times)


def _as_hubs(total: NDArray[np.int64], held: NDArray[np.int64], side: int, low: int) -> NDArray[np.int64]:
    return np.stack([total[held], np.full(len(held), side), held + low], axis=1)


def _largest(hubs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of most credit; equal ones in the order of tables and rows."""
    return hubs[np.lexsort((hubs[:, 2], hubs[:, 1], -hubs[:, 0]))[: CreditLaw.HUBS]]


def _few(made: Sequence[Piece], size: int = 16) -> list[list[Piece]]:
    return [list(made[i : i + size]) for i in range(0, len(made), size)]


def _credits_within(store: Store, side: int, low: int, high: int, pieces: Sequence[Piece]) -> tasks.Sparse:
    """Credits of the real rows [low, high) of one side, added over some query blocks."""
    total = tasks.NOTHING
    for piece in pieces:
        total = tasks.add_credits(total, piece.load(store).within(side, low, high))
    return total
