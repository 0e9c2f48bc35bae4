"""Random mischief with a cluster and a store while a client works; what happens depends on the seed alone."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.harness import RealCluster

PROCESSES = (
    "kill_worker",
    "terminate_worker",
    "kill_all_workers",
    "stop_worker",
    "late_joiner",
    "freeze_scheduler",
    "restart_scheduler",
)
NETWORK = ("blackhole_worker", "separate_workers", "partition")
STORE = ("truncate_file", "flip_byte", "delete_file", "foreign_file")


@dataclass(frozen=True)
class Deed:
    """What was done, and when: seconds since the start."""

    at: float
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {self.what}  {self.detail}".rstrip()


@dataclass(order=True)
class _Planned:
    at: float
    order: int
    act: Callable[[], str] = field(compare=False)
    what: str = field(compare=False)
    repair: bool = field(compare=False)


class Mischief:
    """A context manager: faults in a background thread from its start, all repaired at its end.

    Parameters
    ----------
    cluster : RealCluster
        Its network faults are used too when it has namespaces.
    seed : int
    store : folder, optional
        Files in it are damaged in place.
    foreign : folder, optional
        Where files from elsewhere come from; default: other files of the store, or noise.
    faults : (least, most)
    window : float
        Faults begin at random moments within so many seconds.
    pause : (least, most)
        Seconds until what was killed is replaced, and what was stopped goes on.
    only, never : names of faults to choose from or to leave out.

    Attributes
    ----------
    log : what was done so far
    failures : errors of the mischief itself; a test wants none
    scheduler_restarts : how often the client lost its scheduler and had to start again
    """

    def __init__(
        self,
        cluster: RealCluster,
        seed: int,
        store: Path | None = None,
        foreign: Path | None = None,
        faults: tuple[int, int] = (1, 8),
        window: float = 10,
        pause: tuple[float, float] = (0.5, 3),
        only: Collection[str] | None = None,
        never: Collection[str] = (),
    ) -> None:
        self.cluster, self.seed, self.store, self.foreign, self.pause = cluster, seed, store, foreign, pause
        self.log: list[Deed] = []
        self.failures: list[str] = []
        self.scheduler_restarts = 0
        self._count = len(cluster.alive_workers()) or cluster.count
        self._leaving: set[int] = set()
        self._order = itertools.count()
        self._queue: list[_Planned] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mischief-{seed}", daemon=True)
        self._begun = time.monotonic()
        self.plan = self._plan(faults, window, only, never)

    def _plan(
        self, faults: tuple[int, int], window: float, only: Collection[str] | None, never: Collection[str]
    ) -> list[tuple[float, str]]:
        """(moment, fault), in order of time."""
        able = [*PROCESSES, *(NETWORK if self.cluster.network else ()), *(STORE if self.store else ())]
        chosen = [f for f in able if f not in never and (only is None or f in only)]
        rng = random.Random(self.seed)
        moments = sorted(rng.uniform(0, window) for _ in range(rng.randint(*faults)))
        return [(m, rng.choice(chosen)) for m in moments]

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        for number, (moment, fault) in enumerate(self.plan):
            rng = random.Random(f"{self.seed}-{number}")
            self._later(moment, fault, lambda fault=fault, rng=rng: getattr(self, f"_{fault}")(rng))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def finished(self) -> bool:
        """All faults done and all repaired."""
        return not self._thread.is_alive()

    def wait(self, timeout: float = 120) -> bool:
        """Until all is done and repaired; False when that took longer."""
        self._thread.join(timeout)
        return self.finished

    def stop(self, timeout: float = 120) -> None:
        """No new faults; repair at once."""
        self._enough.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.failures.append("the mischief did not end")

    def __str__(self) -> str:
        return "\n".join([f"mischief with seed {self.seed}:", *map(str, self.log), *self.failures])

    # ---- the thread

    def _later(self, seconds: float, what: str, act: Callable[[], str], repair: bool = False) -> None:
        at = time.monotonic() - self._begun + seconds
        heapq.heappush(self._queue, _Planned(at, next(self._order), act, what, repair))

    def _run(self) -> None:
        while self._queue:
            ahead = self._queue[0].at - (time.monotonic() - self._begun)
            if ahead > 0 and not self._enough.wait(ahead):
                continue
            planned = heapq.heappop(self._queue)
            if planned.repair or not self._enough.is_set():
                self._do(planned)
        if len(self._staying()) < self._count:
            self._do(_Planned(0, 0, self._refill, "replace", True))

    def _do(self, planned: _Planned) -> None:
        at = time.monotonic() - self._begun
        try:
            detail = planned.act()
        except Exception as error:
            self.failures.append(f"{planned.what}: {type(error).__name__}: {error}")
            detail = "failed"
        self.log.append(Deed(round(at, 2), planned.what, detail))

    def _repair(self, rng: random.Random, what: str, act: Callable[[], str]) -> float:
        seconds = rng.uniform(*self.pause)
        self._later(seconds, what, act, repair=True)
        return round(seconds, 2)

    def _staying(self) -> list[int]:
        """Living workers that were not asked to leave."""
        return [i for i in self.cluster.alive_workers() if i not in self._leaving]

    def _victim(self, rng: random.Random) -> int | None:
        staying = self._staying()
        return rng.choice(staying) if staying else None

    def _refill(self) -> str:
        """As many workers as at the beginning."""
        new = [self.cluster.start_worker(wait=False) for _ in range(self._count - len(self._staying()))]
        return f"new workers {new}"

    # ---- processes

    def _kill_worker(self, rng: random.Random) -> str:
        victim = self._victim(rng)
        if victim is None:
            return "no worker there"
        alone = self.cluster.nanny and rng.random() < 0.3
        self.cluster.kill_worker(victim, child_only=alone)
        if alone:
            return f"w{victim}, its nanny lives"
        return f"w{victim}, replaced after {self._repair(rng, 'replace', self._refill)} s"

    def _terminate_worker(self, rng: random.Random) -> str:
        victim = self._victim(rng)
        if victim is None:
            return "no worker there"
        self._leaving.add(victim)
        self.cluster.terminate_worker(victim)
        return f"w{victim}, replaced after {self._repair(rng, 'replace', self._refill)} s"

    def _kill_all_workers(self, rng: random.Random) -> str:
        alive = self.cluster.alive_workers()
        self.cluster.kill_all_workers()
        return f"{alive}, replaced after {self._repair(rng, 'replace', self._refill)} s"

    def _stop_worker(self, rng: random.Random) -> str:
        victim = self._victim(rng)
        if victim is None:
            return "no worker there"

        def go_on() -> str:
            self.cluster.cont_worker(victim)
            return f"w{victim}"

        self.cluster.stop_worker(victim)
        return f"w{victim} for {self._repair(rng, 'continue_worker', go_on)} s"

    def _late_joiner(self, _: random.Random) -> str:
        return f"w{self.cluster.start_worker(wait=False)}"

    def _freeze_scheduler(self, rng: random.Random) -> str:
        def go_on() -> str:
            self.cluster.cont_scheduler()
            return ""

        self.cluster.stop_scheduler()
        return f"for {self._repair(rng, 'continue_scheduler', go_on)} s"

    def _restart_scheduler(self, rng: random.Random) -> str:
        def again() -> str:
            if self.cluster.scheduler_alive():
                return "is there already"
            self.cluster.restart_scheduler()
            return self._refill()

        self.scheduler_restarts += 1
        self.cluster.kill_scheduler()
        self.cluster.kill_all_workers()
        return f"scheduler and all workers killed, again after {self._repair(rng, 'start_scheduler', again)} s"

    # ---- network

    def _heal(self) -> str:
        self.cluster.heal()
        return ""

    def _blackhole_worker(self, rng: random.Random) -> str:
        victim = self._victim(rng)
        if victim is None:
            return "no worker there"
        self.cluster.blackhole(victim)
        return f"w{victim} for {self._repair(rng, 'heal', self._heal)} s"

    def _separate_workers(self, rng: random.Random) -> str:
        staying = self._staying()
        if len(staying) < 2:
            return "fewer than two workers there"
        a, b = rng.sample(staying, 2)
        self.cluster.separate(a, b)
        return f"w{a} and w{b} for {self._repair(rng, 'heal', self._heal)} s"

    def _partition(self, rng: random.Random) -> str:
        self.cluster.partition()
        return f"for {self._repair(rng, 'heal', self._heal)} s"

    # ---- store

    def _file(self, rng: random.Random) -> Path | None:
        files = files_below(self.store)
        return rng.choice(files) if files else None

    def _damage(self, rng: random.Random, act: Callable[[Path], str]) -> str:
        path = self._file(rng)
        if path is None:
            return "the store is empty"
        try:
            return f"{path.name}: {act(path)}"
        except FileNotFoundError:
            return f"{path.name}: gone meanwhile"

    def _truncate_file(self, rng: random.Random) -> str:
        return self._damage(rng, lambda path: truncate(path, rng))

    def _flip_byte(self, rng: random.Random) -> str:
        return self._damage(rng, lambda path: flip(path, rng))

    def _delete_file(self, rng: random.Random) -> str:
        def act(path: Path) -> str:
            path.unlink()
            return "deleted"

        return self._damage(rng, act)

    def _foreign_file(self, rng: random.Random) -> str:
        others = files_below(self.foreign) or files_below(self.store)
        return self._damage(rng, lambda path: replace(path, [o for o in others if o != path], rng))


def files_below(folder: Path | None) -> list[Path]:
    """All files, in an order that does not depend on the file system."""
    return sorted(p for p in folder.rglob("*") if p.is_file()) if folder and folder.is_dir() else []


def truncate(path: Path, rng: random.Random) -> str:
    """Cut a file to a random shorter length."""
    size = path.stat().st_size
    kept = rng.randrange(size) if size else 0
    os.truncate(path, kept)
    return f"{kept} of {size} bytes"


def flip(path: Path, rng: random.Random) -> str:
    """Change one byte."""
    with path.open("r+b") as file:
        data = file.read()
        if not data:
            return "is empty"
        place = rng.randrange(len(data))
        file.seek(place)
        file.write(bytes([data[place] ^ rng.randrange(1, 256)]))
    return f"byte {place} of {len(data)}"


def replace(path: Path, others: list[Path], rng: random.Random) -> str:
    """Put another file, or noise, in its place."""
    if not path.exists():
        raise FileNotFoundError(path)
    if not others:
        path.write_bytes(rng.randbytes(path.stat().st_size))
        return "is noise now"
    other = rng.choice(others)
    shutil.copyfile(other, path)
    return f"is {other.name} now"
