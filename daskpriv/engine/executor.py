"""Executors start functions; the engine owns the shape of the work. All of them give the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Protocol

Handle = Any
Done = Callable[[int], None]


class Executor(Protocol):
    """Where functions run.

    A handle among the arguments of `submit`, or inside a list there, is replaced by its value. A function may run
    anywhere, in any order, more than once.
    """

    @property
    def slots(self) -> int:
        """How many functions run at once."""
        ...

    @property
    def memory_per_slot(self) -> int | None:
        """Bytes each running function may use; None when unknown."""
        ...

    def submit(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Handle:
        """Start `fn` some time; `name` is what dashboards show."""
        ...

    def wait(self, handles: Sequence[Handle], done: Done) -> None:
        """Block until all are finished, calling `done(i)` for each; raise the first error, cancel the rest."""
        ...

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Bring finished values here."""
        ...

    def close(self) -> None:
        """Release what this executor started."""
        ...


class Serial:
    """Everything at once, here: the simplest executor, for tests and debugging."""

    slots = 1
    memory_per_slot: int | None = None

    def submit(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Handle:
        """Run now."""
        return fn(*args)

    def wait(self, handles: Sequence[Handle], done: Done) -> None:
        """Everything is finished already."""
        for i in range(len(handles)):
            done(i)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Handles are values."""
        return list(handles)

    def close(self) -> None:
        """Nothing to release."""


class Threads:
    """Threads of this process; the kernels release the GIL.

    The pool is first in, first out and handles precede their users, so that the oldest unfinished task never
    waits for one that has not started: no deadlock with any number of threads.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.slots = threads or available_cpus()
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="daskpriv")

    @property
    def memory_per_slot(self) -> int | None:
        """Three quarters of the machine's free memory, shared by the threads."""
        free = available_memory()
        return None if free is None else int(0.75 * free) // self.slots

    def submit(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Handle:
        """Queue."""
        return self._pool.submit(_call, fn, args)

    def wait(self, handles: Sequence[Handle], done: Done) -> None:
        """Wait in the order of completion."""
        place = {h: i for i, h in enumerate(handles)}
        for future in as_completed(handles):
            error = future.exception()
            if error is not None:
                for h in handles:
                    h.cancel()
                raise error
            done(place[future])

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Values of finished handles."""
        return [h.result() for h in handles]

    def close(self) -> None:
        """Stop the pool."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    return fn(*(_value(a) for a in args))


def _value(argument: Any) -> Any:
    if isinstance(argument, Future):
        return argument.result()
    return [_value(a) for a in argument] if isinstance(argument, list) else argument


def available_cpus() -> int:
    """Processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def available_memory() -> int | None:
    """Free bytes of this machine, if the operating system tells."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
