"""Stages of work on an executor: units in, results out, and somebody told about it."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from daskpriv.engine import tasks
from daskpriv.engine.executor import Executor, Threads
from daskpriv.engine.plan import Layout
from daskpriv.engine.store import Memory, Store, key_of
from daskpriv.engine.units import Piece, Unit
from daskpriv.events import Listener, StageStarted, TaskDone, silent
from daskpriv.evidence import Role

_BUNCHES = 8  # per slot: a reduction has so many units, each of which merges what it found
Pair = tuple[Role, Role]


@dataclass
class Stages:
    """Runs stages on an executor and tells a listener about them.

    Attributes
    ----------
    store : Store
        Where results that are worth keeping are kept.
    run : str
        The digest of everything that the results depend on; names the pieces in the store and in the memory of
        processes. By default none that any other run has.
    same : set of (query, reference)
        Pairs of roles that are one and the same table, so that a row must not meet itself. Equal roles always are.
    pairs, tasks, reused : int
        Pairs of rows compared and units carried out so far, and pieces that an earlier start had finished.
    """

    executor: Executor
    layout: Layout
    listener: Listener = silent
    same: frozenset[Pair] = frozenset()
    store: Store = field(default_factory=Memory)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    pairs: int = field(default=0, init=False)
    tasks: int = field(default=0, init=False)
    reused: int = field(default=0, init=False)
    _finished: dict[str, str] | None = field(default=None, init=False)
    _reader: Executor | None = field(default=None, init=False)

    @property
    def reader(self) -> Executor:
        """Where pieces of the store can be read: here, when workers do not reach it."""
        if self.store.reachable:
            return self.executor
        self._reader = self._reader or Threads()
        return self._reader

    def _each(
        self,
        stage: str,
        fn: Callable[[Any], Any],
        items: Sequence[Any],
        pairs: Sequence[int] | None = None,
        executor: Executor | None = None,
    ) -> Iterator[tuple[int, Any]]:
        pairs = pairs or [0] * len(items)
        self.listener(StageStarted(stage, len(items), sum(pairs)))
        for i, value in (executor or self.executor).each(stage, fn, items):
            self.tasks += 1
            self.pairs += pairs[i]
            self.listener(TaskDone(stage, pairs[i]))
            yield i, value

    def _ask(
        self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any], executor: Executor | None = None
    ) -> list[Any]:
        """Something small about every item, in their order."""
        found = dict(self._each(stage, fn, items, executor=executor))
        return [found[i] for i in range(len(items))]

    def _fold(
        self,
        stage: str,
        fn: Callable[[Any], Any],
        items: Sequence[Any],
        add: Callable[[Any, Any], Any],
        executor: Executor | None = None,
        bunches_per_slot: int = _BUNCHES,
    ) -> Any:
        """Merge fn of every item with an associative and commutative function; only one partial is held here."""
        total: Any = None
        bunches = _bunched(items, bunches_per_slot * self.executor.slots)
        for _, value in self._each(stage, _Folded(fn, add), bunches, executor=executor):
            total = value if total is None else add(total, value)
        return total

    def finished(self) -> dict[str, str]:
        """{key: name} of the pieces that the store has; listed once."""
        if self._finished is None:
            self._finished = self.store.finished()
        return self._finished

    def _piece(self, unit: Unit, *what: Any) -> Piece:
        """The piece that answers `what` in this run."""
        return Piece(key_of(self.run, *what), unit)

    def _produce(self, stage: str, pieces: Sequence[Piece], pairs: Sequence[int] | None = None) -> list[Piece]:
        """Make the pieces that the store does not have yet; all of them with their names."""
        known = self.finished()
        pairs = pairs or [0] * len(pieces)
        todo = [i for i, p in enumerate(pieces) if p.key not in known]
        self.reused += len(pieces) - len(todo)
        wanted = [pieces[i] for i in todo]
        make = functools.partial(_kept, self.store) if self.store.reachable else _handed_over
        for i, made in self._each(stage, make, wanted, [pairs[i] for i in todo]):
            piece = wanted[i]
            known[piece.key] = made if self.store.reachable else self.store.put(piece.key, made)
        return [Piece(p.key, p.unit, known[p.key]) for p in pieces]

    def close(self) -> None:
        """Stop what was started here."""
        if self._reader is not None:
            self._reader.close()


def _kept(store: Store, piece: Piece) -> str:
    return store.put(piece.key, piece.make(store))


def _handed_over(piece: Piece) -> pa.Table:
    return piece.make(Memory())


@dataclass(frozen=True)
class _Folded:
    """fn of a bunch of items, merged."""

    fn: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]

    def __call__(self, bunch: Sequence[Any]) -> Any:
        return functools.reduce(self.add, map(self.fn, bunch))


def _bunched(items: Sequence[Any], most: int) -> list[list[Any]]:
    size = max(-(-len(items) // most), 1)
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def add(a: Any, b: Any) -> Any:
    """Any two values that know how to add."""
    return a + b


def add_lists(metrics: Any, a: list[Any], b: list[Any]) -> list[Any]:
    """Merge the partials of metrics."""
    return tasks.combine(metrics.get(), a, b)
