"""Units of work that go wrong in every way; the workers import this module."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from daskpriv.cluster import unit  # noqa: F401  (workers that preload this module begin their first unit at once)
from daskpriv.errors import InputError

PRELOADED = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "tests.cluster.units"}


@dataclass(frozen=True)
class Item:
    """A number, with the name that messages call it by, and a folder in which units leave marks."""

    number: int
    folder: str = ""
    bad: int = -1

    @property
    def label(self) -> str:
        return f"rows of item {self.number}"

    @property
    def is_bad(self) -> bool:
        return self.number == self.bad

    def visits(self) -> int:
        """How often the unit was begun before."""
        place = Path(self.folder, str(self.number))
        place.mkdir(parents=True, exist_ok=True)
        seen = len(list(place.iterdir()))
        (place / f"{time.time_ns()}-{os.getpid()}").touch()
        return seen


def square(item: Item) -> int:
    time.sleep(0.05)
    return item.number**2


def slow_square(item: Item) -> int:
    time.sleep(0.5)
    return item.number**2


def segfault(item: Item) -> int:
    if item.is_bad:
        ctypes.string_at(0)
    return slow_square(item)


def die_once(item: Item) -> int:
    if item.is_bad and item.visits() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(item)


def hang_once(item: Item) -> int:
    if item.is_bad and item.visits() == 0:
        time.sleep(3600)
    return square(item)


def hang(item: Item) -> int:
    if item.is_bad:
        time.sleep(3600)
    return square(item)


def raise_always(item: Item) -> int:
    if item.is_bad:
        raise ValueError("canary-cell-value")
    return square(item)


def unavailable_twice(item: Item) -> int:
    if item.is_bad and item.visits() < 2:
        raise ConnectionResetError(errno.ECONNRESET, "canary-secret")
    return square(item)


def bad_input(item: Item) -> int:
    if item.is_bad:
        raise InputError("train: column 'age' is unusable; mend it.")
    return square(item)


def hungry(item: Item) -> int:
    if item.is_bad:
        held = []
        for _ in range(4000):
            held.append(bytearray(os.urandom(1 << 20)))
            time.sleep(0.002)
    return square(item)
