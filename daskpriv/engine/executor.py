"""Executors carry out units of work; the engine says which. All of them give the same bytes."""

from __future__ import annotations

import os
import resource
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

from daskpriv.engine import cache
from daskpriv.engine.published import Published

T = TypeVar("T")
_WAITING = 4  # units queued per slot: enough to keep slots busy, few enough to keep results from piling up


class Executor(Protocol):
    """Where units of work are carried out.

    A unit is a function of one picklable item. It reads its own inputs from storage, depends on no other unit of its
    stage, and may run anywhere, in any order, more than once.
    """

    @property
    def slots(self) -> int:
        """How many units run at once."""
        ...

    @property
    def threads(self) -> int:
        """How many of them share one process."""
        ...

    @property
    def memory_per_slot(self) -> int | None:
        """Bytes each running unit may use; None when unknown."""
        ...

    def publish(self, value: T) -> Published[T]:
        """Make a value known to all units."""
        ...

    def each(self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (i, fn(items[i])) in the order of completion; raise the first error that cannot be mended."""
        ...

    def close(self) -> None:
        """Release what this executor started."""
        ...


class Serial:
    """One after the other, here: the simplest executor, for tests and debugging."""

    slots = threads = 1
    memory_per_slot: int | None = None

    def publish(self, value: T) -> Published[T]:
        """Keep it here."""
        return kept_here(value)

    def each(self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Run one unit whenever the next result is asked for."""
        for i, item in enumerate(items):
            yield i, fn(item)

    def close(self) -> None:
        """Forget what was kept between units."""
        cache.forget()


class Threads:
    """Threads of this process; the kernels release the GIL."""

    def __init__(self, threads: int | None = None) -> None:
        self.slots = self.threads = threads or available_cpus()
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="daskpriv")
        free = available_memory()
        if free is not None:
            cache.share_memory(free)

    @property
    def memory_per_slot(self) -> int | None:
        """Three quarters of the machine's free memory, shared by the threads."""
        free = available_memory()
        return None if free is None else int(0.75 * free) // self.slots

    def publish(self, value: T) -> Published[T]:
        """Keep it here."""
        return kept_here(value)

    def each(self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Keep a few units per thread in the queue; the first error ends the stage."""
        running: dict[Future[Any], int] = {}
        queue = iter(enumerate(items))
        try:
            while True:
                for i, item in queue:
                    running[self._pool.submit(fn, item)] = i
                    if len(running) >= _WAITING * self.slots:
                        break
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()
            wait(running)

    def close(self) -> None:
        """Stop the pool and forget what was kept between units."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        cache.forget()


def kept_here(value: T) -> Published[T]:
    """Published within this process: units here see the value itself."""
    return Published(uuid.uuid4().hex, "here", value)


def available_cpus() -> int:
    """Processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def peak_memory() -> int:
    """The most bytes that this process has held at once."""
    try:
        # Linux keeps ru_maxrss when a program starts another: a small worker of a large client would report the client.
        held = Path("/proc/self/status").read_text("ascii", "replace").partition("VmHWM:")[2].split(maxsplit=1)
        return int(held[0]) * 1024
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available_memory() -> int | None:
    """Free bytes of this machine, if the operating system tells."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
