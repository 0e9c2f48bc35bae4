"""The engine: tables in, evidence out. It owns the shape of the work and sends it to an executor.

Nothing is moved between workers: every unit of work reads its own inputs, results worth keeping go to the run store,
and only summaries of columns, digit counts and finished reductions come here. Their size does not grow with the number
of rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine import tasks
from daskpriv.engine.credits import CreditSums
from daskpriv.engine.crosstabs import MOST_DISTINCT, Crosstabs
from daskpriv.engine.published import Published, value_of
from daskpriv.engine.searches import Found
from daskpriv.engine.sources import Blocks, BlockSource, Ranks, label_of, parts_of, source_of
from daskpriv.engine.stages import Pair, add, add_lists
from daskpriv.engine.store import Store
from daskpriv.engine.units import Added, Credited, Joined, Least, Piece
from daskpriv.errors import InputError
from daskpriv.evidence import (
    HOLDOUT,
    TRAIN,
    CloserCounts,
    Credits,
    Facts,
    Neighbours,
    Request,
    Role,
    RowCredits,
    Widest,
)
from daskpriv.protocol import Answers, Metric, Result
from daskpriv.space.block import Block, stacked
from daskpriv.space.buckets import Buckets
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace
from daskpriv.space.reading import Reading
from daskpriv.space.summary import PartSummary, summarise
from daskpriv.stats.labels import below
from daskpriv.stats.selection import EvenQuantiles, Quantiles, Selection
from daskpriv.tables.keys import numbers_of
from daskpriv.tables.table import Part, Table

__all__ = ["Blocks", "Engine", "Grouping", "Pair"]


@dataclass(frozen=True)
class _Labelled:
    """A part and what to call it in messages."""

    part: Part | Published[Part]

    @property
    def label(self) -> str:
        return label_of(self.part)


@dataclass(frozen=True)
class Grouping:
    """A column by whose values results are wanted: codes, or ranks of an ordinal one, which lie among the numbers."""

    column: str
    ranked: bool
    index: int

    def of(self, block: Block) -> NDArray[np.int64]:
        """The group of each row, int64 (n,): 0 for missing, then the values in their order."""
        if self.ranked:
            return np.nan_to_num(block.numbers[:, self.index] + 1, nan=0.0).astype(np.int64)
        return block.codes[:, self.index].astype(np.int64) + 1


@dataclass(frozen=True)
class _Answers:
    """All answers about one query block."""

    block: BlockSource
    searches: tuple[Neighbours, ...]
    lists: tuple[Joined, ...]
    counts: tuple[CloserCounts, ...]
    counted: tuple[Added, ...]
    apart: tuple[tuple[Widest, Least], ...] = ()
    credit: Piece | None = None
    groups: tuple[Grouping, ...] = ()

    @property
    def label(self) -> str:
        return f"metrics of {self.block.label}"


@dataclass
class Engine(Crosstabs, CreditSums):
    """Reads and encodes tables, runs searches, counts margins, reduces metrics."""

    _sent: dict[str, list[Part | Published[Part]]] = field(default_factory=dict, init=False)

    def _parts(self, table: Table) -> list[Part | Published[Part]]:
        if table.name not in self._sent:
            self._sent[table.name] = parts_of(table, self.layout.block_rows, self.executor)
        return self._sent[table.name]

    def cut_again(self, block_rows: int) -> None:
        """Use blocks of another size from now on: those of the run that is resumed."""
        if block_rows != self.layout.block_rows:
            self.layout = self.layout.with_blocks(block_rows)
            self._sent.clear()

    def summarise(self, table: Table, readings: Sequence[Reading]) -> PartSummary:
        """Read a table once, part by part, and merge what is known about its columns."""
        parts = [_Labelled(p) for p in self._parts(table)]
        summary: PartSummary = self._fold(
            f"read {table.name}", functools.partial(_summary, tuple(readings)), parts, add
        )
        return summary

    def subjects(self, table: Table, key: str) -> NDArray[np.int64]:
        """The number of each row's subject, int64 (rows,), in row order: 8 bytes a row come here."""
        asked = [_Labelled(p) for p in self._parts(table)]
        found: dict[int, NDArray[np.int64]] = self._fold(
            f"subjects of {table.name}", functools.partial(_subjects, key), asked, operator.or_
        )
        return np.concatenate([found[first] for first in sorted(found)])

    def gather(self, blocks: Blocks, most: int, seed: int) -> Block:
        """The rows of a table here, in their order: all, or about `most` of them, drawn by a hash of row id."""
        share = min(1.0, most / blocks.rows)
        fn = functools.partial(_drawn, seed, share)
        return stacked(self._ask(f"rows of {blocks.role}", fn, blocks.sources))

    def encode(self, table: Table, encoding: Encoding) -> Blocks:
        """Say where the encoded blocks of a table come from; they are read when they are needed."""
        shared = self.executor.publish(encoding)
        return Blocks(table.name, tuple(source_of(p, shared) for p in self._parts(table)))

    def bucket(self, blocks: Blocks, buckets: Buckets) -> Blocks:
        """Replace numbers by quantile buckets."""
        return blocks.then(self.executor.publish(buckets))

    def rank(self, blocks: Blocks, supports: Mapping[int, Any]) -> Blocks:
        """Replace numbers by mid-ranks."""
        return blocks.then(self.executor.publish(Ranks(supports)))

    def quantiles(
        self, pool: Sequence[Blocks], wanted: Mapping[int, Quantiles | EvenQuantiles]
    ) -> dict[int, list[float]]:
        """Exact quantiles of number columns over pooled tables; `wanted` counts the non-missing values."""
        selections = {place: Selection.at(q.ranks()) for place, q in wanted.items() if q.n > 0}
        sources = [s for blocks in pool for s in blocks.sources]
        while any(not s.done for s in selections.values()):
            fn = functools.partial(_digits, self.executor.publish(selections))
            counts = self._fold("quantiles", fn, sources, tasks.add_digits)
            selections = {place: s.narrow(counts[place]) for place, s in selections.items()}
        return {place: wanted[place].combine(s.values()) for place, s in selections.items()}

    def distinct(self, pool: Sequence[Blocks], what: str, remedy: str) -> dict[int, Any]:
        """Distinct values of every number column over pooled tables, with counts; `what` needs them."""
        sources = [s for blocks in pool for s in blocks.sources]
        found: dict[int, Any] = self._fold("distinct", _distinct, sources, tasks.add_distinct)
        if max((len(values) for values, _ in found.values()), default=0) > MOST_DISTINCT:
            raise InputError(f"{what}: a column has more than {MOST_DISTINCT:,} distinct values; {remedy} instead.")
        return found

    def measure(
        self,
        metrics: Sequence[Metric],
        facts: Facts,
        blocks: Mapping[Role, Blocks],
        spaces: Mapping[Pair, GowerSpace],
        groups: Sequence[Grouping] = (),
        known: Answers | None = None,
    ) -> tuple[dict[str, Result], Found]:
        """Answer what the metrics need, each search once, and reduce; `known` is what is answered already."""
        wanted: list[Request] = [r for m in metrics for r in m.needs(facts)]
        found = self.search((r for r in wanted if isinstance(r, Neighbours)), blocks, spaces)
        counted = self.count_closer((r for r in wanted if isinstance(r, CloserCounts)), blocks, spaces, found)
        credits = {
            r: self.credits(r, blocks, spaces, found, facts.subjects)
            for r in sorted({r for r in wanted if isinstance(r, Credits)})
        }
        answers: dict[Request, Any] = dict(known or {})
        answers.update(credits.items())
        apart = self.apart((r for r in wanted if isinstance(r, Widest)), blocks, spaces, found)
        by_row: dict[Role, list[Piece]] = {}
        for r in sorted({r for r in wanted if isinstance(r, RowCredits)}):
            by_row |= self.row_credits(r, blocks, spaces, found)
        evidence = _by_block(blocks, found, counted, apart, by_row, tuple(groups))
        states: dict[str, Any] = {m.name: m.begin(facts) for m in metrics}
        results: dict[str, Result] = {}
        while len(results) < len(metrics):
            open_metrics = [m for m in metrics if m.name not in results]
            partials = self._reduce(open_metrics, [states[m.name] for m in open_metrics], evidence)
            for m, partial in zip(open_metrics, partials, strict=True):
                state = m.advance(states[m.name], partial, answers)
                if isinstance(state, Result):
                    results[m.name] = state
                else:
                    states[m.name] = state
        return {m.name: results[m.name] for m in metrics}, found

    def _reduce(self, metrics: Sequence[Metric], states: Sequence[Any], evidence: Sequence[_Answers]) -> list[Any]:
        if not evidence:
            return [None] * len(metrics)
        shared = self.reader.publish((tuple(metrics), tuple(states)))
        kept = self.reader.publish(tuple(metrics))
        fn = functools.partial(_chunk, self.store, shared)
        merge = functools.partial(add_lists, kept)
        partials: list[Any] = self._fold("metrics", fn, evidence, merge, executor=self.reader)
        return partials


def _by_block(
    blocks: Mapping[Role, Blocks],
    found: Found,
    counted: Mapping[CloserCounts, Sequence[Added]],
    apart: Mapping[Widest, Sequence[Least]],
    by_row: Mapping[Role, Sequence[Piece]],
    groups: tuple[Grouping, ...],
) -> list[_Answers]:
    out = []
    for role in sorted({q for q, _ in found}):
        pairs = [p for p in found if p[0] == role]
        counts = tuple(c for c in counted if c.query == role)
        names = tuple(Neighbours(q, r) for q, r in pairs)
        for place, source in enumerate(blocks[role].sources):
            lists = tuple(found[p][place] for p in pairs)
            out.append(
                _Answers(
                    source,
                    names,
                    lists,
                    counts,
                    tuple(counted[c][place] for c in counts),
                    tuple((r, held[place]) for r, held in apart.items() if r.query == role),
                    by_row[role][place] if role in by_row else None,
                    groups if role in (TRAIN, HOLDOUT) else (),
                )
            )
    return out


def _summary(readings: Sequence[Reading], asked: _Labelled) -> PartSummary:
    return summarise(value_of(asked.part), readings)


def _subjects(key: str, asked: _Labelled) -> dict[int, NDArray[np.int64]]:
    part = value_of(asked.part)
    return {part.first_row: numbers_of(part.read([key]).column(key), part.name, key)}


def _drawn(seed: int, share: float, source: BlockSource) -> Block:
    block = source.load()
    return block if share >= 1 else block.take(np.flatnonzero(below(seed, block.row, share)))


def _digits(selections: Published[dict[int, Selection]], source: BlockSource) -> Any:
    return tasks.count_digits(source.load(), selections.get())


def _distinct(source: BlockSource) -> dict[int, Any]:
    return tasks.distinct_numbers(source.load())


def _chunk(store: Store, shared: Published[tuple[tuple[Metric, ...], tuple[Any, ...]]], asked: _Answers) -> list[Any]:
    """Partials of all metrics over one query block."""
    metrics, states = shared.get()
    tables = [x.load(store) for x in asked.lists]
    counted = [x.load(store) for x in asked.counted]
    apart = {r: x.load(store) for r, x in asked.apart}
    credit = None if asked.credit is None else _dense(asked.credit.load(store), asked.block)
    groups: dict[str, NDArray[np.int64]] = {}
    if asked.groups:
        plain = source_of(asked.block.part, asked.block.encoding).load()
        groups = {g.column: g.of(plain) for g in asked.groups}
    return tasks.chunk(
        metrics, states, asked.block.role, asked.searches, tables, asked.counts, counted, apart, credit, groups
    )


def _dense(held: Credited, source: BlockSource) -> NDArray[np.int64]:
    """The credit of every row of a block, int64 (rows,)."""
    out = np.zeros(source.rows, np.int64)
    out[held.row - source.first_row] = held.credit
    return out
