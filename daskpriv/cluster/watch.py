"""Which workers can be relied on: what the scheduler says of them, judged by how long it has been so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daskpriv.cluster.settings import Limits
from daskpriv.errors import RunError

_PERIOD = 2.0


@dataclass(frozen=True)
class Worker:
    """A worker as the scheduler sees it; `trouble` says why it is avoided."""

    threads: int
    memory_limit: int
    nanny: bool
    shared: bool
    trouble: str = ""


@dataclass(frozen=True)
class Workers:
    """All workers at one moment.

    Attributes
    ----------
    every : {address: Worker}
    units : {key: (address, seconds it runs)}
    limit : seconds a unit may run
    idle : workers that have had a unit for long without beginning it, though they run no other of this run
    news : what the user should be told
    to_restart : addresses of workers that only a restart can help
    """

    every: dict[str, Worker] = field(default_factory=dict)
    units: dict[str, tuple[str, float]] = field(default_factory=dict)
    limit: float = float("inf")
    idle: frozenset[str] = frozenset()
    news: tuple[str, ...] = ()
    to_restart: tuple[str, ...] = ()

    @property
    def usable(self) -> dict[str, Worker]:
        """Those without trouble."""
        return {a: w for a, w in self.every.items() if not w.trouble}

    @property
    def threads(self) -> int:
        """Of the usable ones."""
        return sum(w.threads for w in self.usable.values())

    @property
    def chosen(self) -> list[str] | None:
        """Addresses that may get work; None, that is anyone, while no worker is in trouble."""
        good = [a for a in self.usable if a not in self.idle] or list(self.usable)
        return good if good and len(good) < len(self.every) else None

    def overdue(self, key: str) -> bool:
        """True for a unit that has been running for too long."""
        return key in self.units and self.units[key][1] > self.limit

    def hopeless(self, key: str, chosen: list[str] | None) -> bool:
        """True for a unit that another worker should be given too; `chosen` are those that it was offered to."""
        if key not in self.units:
            return chosen is not None and bool(self.usable) and not any(a in self.usable for a in chosen)
        address = self.units[key][0]
        worker = self.every.get(address)
        others = bool(set(self.usable) - self.idle)
        return others and (worker is None or bool(worker.trouble) or address in self.idle or self.overdue(key))


class Watch:
    """Asks the scheduler every few seconds and remembers since when things are as they are."""

    def __init__(self, home: str, limits: Limits, look: Callable[[], dict[str, Any] | None]) -> None:
        self._limits, self._look = limits, look
        self.workers = Workers()
        self._asked = 0.0
        self._answered = time.monotonic()
        self._paused: dict[str, float] = {}
        self._hung: set[str] = set()
        self._restarted: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._alone: float | None = None
        self._told = False

    @property
    def due(self) -> bool:
        """True when it is time to look again."""
        return time.monotonic() - self._asked > min(_PERIOD, self._limits.stall / 4, self._limits.patience / 4)

    def refresh(self, unit_limit: float = float("inf")) -> Workers:
        """Look, judge, and give up when there has been no usable worker or no answer for too long."""
        now = self._asked = time.monotonic()
        try:
            seen = self._look()
        except RunError:
            if now - self._answered > self._limits.patience:
                raise
            return self.workers
        if seen is None:
            raise RunError(
                "the scheduler was started anew and knows nothing of this run; run the same command again: what is "
                "finished is kept in the run store."
            )
        self._answered = time.monotonic()
        units = {k: (str(a), float(s)) for k, (a, s) in seen["units"].items()}
        self._hung |= {a for a, s in units.values() if s > unit_limit}
        self._hung &= set(seen["workers"])
        every = {a: self._judged(a, *said) for a, said in seen["workers"].items()}
        idle = self._idle(units, now)
        news = self._news(Workers(every), now)
        self.workers = Workers(every, units, unit_limit, idle, news, self._to_restart(every, idle, now))
        return self.workers

    def _idle(self, units: dict[str, tuple[str, float]], now: float) -> frozenset[str]:
        """Workers that hold units and get on with none: something else keeps their threads, a hung unit perhaps."""
        held = {a for a, _ in units.values()}
        busy = {a for a, seconds in units.values() if seconds > 0}
        waiting = {f"{a} {key}" for key, (a, _) in units.items() if a in held - busy}
        self._begun = {w: self._begun.get(w, now) for w in waiting}
        return frozenset(w.split(" ")[0] for w, since in self._begun.items() if now - since > self._limits.stall)

    def _judged(
        self, address: str, status: str, idle: float, threads: int, memory: int, nanny: bool, shared: bool
    ) -> Worker:
        since = self._paused.setdefault(address, time.monotonic()) if status == "paused" else None
        if since is None:
            self._paused.pop(address, None)
        trouble = ""
        if idle > self._limits.stall:
            trouble = "it does not answer"
        elif since is not None and time.monotonic() - since > self._limits.pause:
            trouble = "it is paused: its memory or its disk is full"
        elif status not in ("running", "paused"):
            trouble = f"it is {status}"
        elif address in self._hung:
            trouble = "a unit of work does not end there"
        return Worker(threads, memory, nanny, shared, trouble)

    def _news(self, workers: Workers, now: float) -> tuple[str, ...]:
        """Tell once when there is no usable worker; end the run when it lasts."""
        if workers.usable:
            self._alone, self._told = None, False
            return ()
        self._alone = self._alone or now
        why = next((w.trouble for w in workers.every.values()), "none is connected")
        if now - self._alone > self._limits.patience:
            raise RunError(
                f"the cluster has had no usable worker for {self._limits.patience:.0f} seconds ({why}); start workers "
                "and run the same command again: what is finished is kept in the run store."
            )
        if self._told:
            return ()
        self._told = True
        return (f"no usable worker ({why}); waiting up to {self._limits.patience:.0f} seconds for one.",)

    def _to_restart(self, every: dict[str, Worker], idle: frozenset[str], now: float) -> tuple[str, ...]:
        """Hung and long paused workers that have a nanny and work for nobody else."""
        out = []
        for address, worker in every.items():
            stuck = address in self._hung or address in idle or worker.trouble.startswith("it is paused")
            if stuck and worker.nanny and not worker.shared and now - self._restarted.get(address, -1e9) > 60:
                self._restarted[address] = now
                self._hung.discard(address)
                out.append(address)
        return tuple(out)
