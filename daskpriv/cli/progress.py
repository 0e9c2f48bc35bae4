"""Progress for people (a bar), for logs (plain lines) and for machines (JSON lines); always on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from daskpriv.events import Event, Listener, RunNamed, StageStarted, TaskDone, Warned, silent


@contextmanager
def listener_for(quiet: bool, as_json: bool) -> Iterator[Listener]:
    """The listener that fits the terminal and the options."""
    if as_json:
        yield _JsonLines()
    elif quiet:
        yield silent
    elif sys.stderr.isatty():
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.fields[work]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield _Bar(bar)
    else:
        yield _Lines()


class _JsonLines:
    """One JSON object per event, with the name of the run as soon as it has one."""

    def __init__(self) -> None:
        self._run = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunNamed):
            self._run = event.run
        fields = {name: getattr(event, name) for name in event.__dataclass_fields__}
        head = {"event": type(event).__name__, "time": round(time.time(), 3), "run": self._run}
        # In one string: Ctrl-C may come between an event and the end of its line.
        print(json.dumps({**head, **fields}) + "\n", end="", file=sys.stderr, flush=True)


def _goes_on(event: RunNamed) -> str:
    return f"run {event.run}: {event.kept:,} finished pieces of an earlier start are used."


@dataclass
class _Stage:
    """How far the running stage is."""

    tasks: int = 0
    pairs: int = 0
    done: int = 0
    done_pairs: int = 0
    began: float = field(default_factory=time.perf_counter)

    @property
    def work(self) -> str:
        """Pairs done and their rate, or tasks done."""
        if not self.pairs:
            return f"{self.done}/{self.tasks} tasks"
        rate = self.done_pairs / max(time.perf_counter() - self.began, 1e-3)
        return f"{_short(self.done_pairs)}/{_short(self.pairs)} pairs, {_short(rate)}/s"

    def finish(self, pairs: int) -> None:
        """One more task is done."""
        self.done += 1
        self.done_pairs += pairs


def _short(n: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f}"


class _Bar:
    """A live bar per stage."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._stage = _Stage()
        self._task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._bar.console.print(f"warning: {event.message}", markup=False, highlight=False)
        elif isinstance(event, RunNamed):
            if event.kept:
                self._bar.console.print(_goes_on(event), markup=False, highlight=False)
        elif isinstance(event, StageStarted):
            self._stage = _Stage(event.tasks, event.pairs)
            if self._task is not None:
                self._bar.remove_task(self._task)
            total = event.pairs or event.tasks
            self._task = self._bar.add_task(event.stage, total=total, work=self._stage.work)
        elif self._task is not None:
            self._stage.finish(event.pairs)
            done = self._stage.done_pairs if self._stage.pairs else self._stage.done
            self._bar.update(self._task, completed=done, work=self._stage.work)


class _Lines:
    """A line when a stage starts, at most one every ten seconds inside it, and one when a search ends."""

    def __init__(self) -> None:
        self._stage = _Stage()
        self._last = time.perf_counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warned):
            _line(f"warning: {event.message}")
        elif isinstance(event, RunNamed):
            if event.kept:
                _line(_goes_on(event))
        elif isinstance(event, StageStarted):
            self._stage = _Stage(event.tasks, event.pairs)
            if event.pairs or event.stage.startswith(("read", "encode")):
                _line(f"{event.stage}: {event.tasks} tasks" + (f", {_short(event.pairs)} pairs" if event.pairs else ""))
        else:
            self._done(event)

    def _done(self, event: TaskDone) -> None:
        self._stage.finish(event.pairs)
        now = time.perf_counter()
        if (self._stage.pairs and self._stage.done == self._stage.tasks) or now - self._last > 10:
            self._last = now
            _line(f"{event.stage}: {self._stage.work}")


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
