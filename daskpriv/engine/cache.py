"""What a process keeps between units of work: values by their digest, the least recently used ones forgotten first."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    ready: bool = False
    value: Any = None
    size: int = 0


class Cache:
    """A bounded memory shared by the threads of a process; each value is made once, whoever asks first.

    Parameters
    ----------
    limit : int
        Bytes to keep. The value asked for last is always kept, however large.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._held = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under `key`, made now unless it is here; other threads that ask meanwhile wait for it."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
        with entry.lock:
            if not entry.ready:
                try:
                    entry.value = make()
                except BaseException:
                    with self._lock:
                        if self._entries.get(key) is entry:
                            del self._entries[key]
                    raise
                size = size_of(entry.value)
                with self._lock:
                    entry.size, entry.ready = size, True
                    if self._entries.get(key) is entry:
                        self._held += size
            value: T = entry.value
        self._trim(key)
        return value

    def held(self, key: Hashable) -> Any:
        """The value under `key` if it is here, else None."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.value if entry is not None and entry.ready else None

    def resize(self, limit: int) -> None:
        """Keep at most so many bytes from now on."""
        self._limit = limit
        self._trim(None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._held = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._held

    def _trim(self, last: Hashable) -> None:
        with self._lock:
            forgotten = []
            for key, entry in self._entries.items():
                if self._held <= self._limit:
                    break
                if entry.ready and key != last:
                    self._held -= entry.size
                    forgotten.append(key)
            for key in forgotten:
                del self._entries[key]


def size_of(value: Any) -> int:
    """Bytes of a value, or of the values in a list of them."""
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return sys.getsizeof(value)


PROGRAM = 300 << 20  # bytes of a worker that has loaded everything and holds nothing

# Encoded blocks and finished tables can be read again in a moment; an index takes far longer to build.
BLOCKS = Cache(1 << 30)
INDEXES = Cache(4 << 30)


def budget(limit: int) -> int:
    """What a process limited to so many bytes may hold: less than where Dask pauses it, and the libraries are in it."""
    return max(limit * 3 // 4 - PROGRAM, limit // 4)


def share_memory(limit: int) -> None:
    """Divide the memory of a process limited to so many bytes: the rest is for the work itself."""
    BLOCKS.resize(budget(limit) // 6)
    INDEXES.resize(budget(limit) // 2)


def forget() -> None:
    """Drop all that is kept."""
    BLOCKS.clear()
    INDEXES.clear()
