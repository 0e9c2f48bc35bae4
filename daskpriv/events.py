"""What the engine tells whoever listens: progress without knowing about terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins: `tasks` tasks that compare `pairs` pairs of rows in all."""

    stage: str
    tasks: int
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class TaskDone:
    """One task of the running stage has finished, and `pairs` pairs with it."""

    stage: str
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the reader of the report should know; no cell values."""

    message: str


@dataclass(frozen=True, slots=True)
class RunNamed:
    """The run has its name; `kept` pieces of it were finished before and are used again."""

    run: str
    kept: int = 0


Event = StageStarted | TaskDone | Warned | RunNamed
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listen to nothing."""
