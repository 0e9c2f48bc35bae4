"""Stages of work on an executor: start, wait, merge, fetch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskpriv.engine import tasks
from daskpriv.engine.executor import Executor, Handle
from daskpriv.engine.plan import Layout
from daskpriv.events import Listener, StageStarted, TaskDone, silent
from daskpriv.evidence import Role

_FAN_IN = 8
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


@dataclass
class Stages:
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

    def _ask(self, stage: str, fn: Callable[..., Any], handles: Sequence[Handle], *rest: Any) -> list[Any]:
        """Something small about every block; lists among `rest` hold one handle per block."""
        asked = []
        for i, h in enumerate(handles):
            own = [r[i] if isinstance(r, list) else r for r in rest]
            asked.append(self.executor.submit(stage, fn, h, *own))
        self._run(stage, asked)
        return self.executor.gather(asked)


def add(a: Any, b: Any) -> Any:
    """Any two values that know how to add."""
    return a + b
