"""Units of work on a Dask cluster that may lose anything at any time.

Dask starts and places the units; this driver decides when one has to be started again. A unit depends on no other and
reads its own inputs, so doing it twice is harmless: of two results the first one counts, and both are the same.
Nothing is pinned, scattered or broadcast, and nothing is waited for without a limit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import itertools
import logging
import pickle
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import cloudpickle
import dask
from distributed import Client, Future
from distributed.client import done_callback
from distributed.protocol.serialize import to_serialize

from daskpriv.cluster.preflight import check_scheduler, probe
from daskpriv.cluster.settings import Limits, limits
from daskpriv.cluster.shelf import Sealed, Shelf
from daskpriv.cluster.unit import Outcome, Payload, carry_out, tidy
from daskpriv.cluster.watch import Watch
from daskpriv.engine.cache import budget
from daskpriv.engine.published import Published, digest_of
from daskpriv.errors import DaskprivError, InputError, RunError
from daskpriv.events import Listener, Warned, silent
from daskpriv.version import __version__

T = TypeVar("T")
_LOG = logging.getLogger("daskpriv.cluster")
_WAITING, _LEAST_WAITING = 4, 64
_TICK, _ANSWER, _FETCH, _IMPORT = 0.25, 20.0, 60.0, 120.0
_LONGEST_PAUSE = 30.0
_SPAN = {"name": ("daskpriv",), "ids": ("daskpriv",)}
_LOST = "run the same command again: what is finished is kept in the run store."


class Dask:
    """Carries out units on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        It belongs to the caller.
    listener : callable
        Is told when workers are missing or avoided.
    """

    def __init__(self, client: Client, listener: Listener = silent) -> None:
        if client.asynchronous:
            raise InputError("client: asynchronous clients are not supported; pass Client(..., asynchronous=False).")
        if client.status != "running":
            raise InputError("client: it is closed; connect a new one.")
        self.client, self.listener = client, listener
        self.scheduler: Any = client.scheduler
        self.loop: Any = client.loop
        self.home = uuid.uuid4().hex
        self.limits: Limits = limits()
        self.statistics = Statistics()
        self.numbers = itertools.count()
        self.restarts: list[concurrent.futures.Future[None]] = []
        self._published: set[str] = set()
        self.install()
        self.watch = Watch(self.home, self.limits, self._look)
        self._await_worker()

    def install(self) -> None:
        """Put our handlers into the scheduler."""
        if logging.getLogger("distributed").level >= logging.CRITICAL:
            # Whoever silenced Dask means its client too, which has a level of its own and tells of lost connections.
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        # The scheduler imports daskpriv first, which takes long on a busy machine.
        patience = max(self.limits.patience, _IMPORT)
        check_scheduler(self.call(lambda: self.client.run_on_scheduler(probe, asynchronous=True), patience))
        self.call(lambda: self.client.register_plugin(Shelf(), name=Shelf.name), patience)

    def _look(self) -> dict[str, Any] | None:
        """What the scheduler says; None when it is another one, which lacks our handlers."""
        found: dict[str, Any] | None = self.call(lambda: self.scheduler.daskpriv_watch(home=self.home))
        return found

    def _await_worker(self) -> None:
        """One unit that does nothing: an adaptive cluster starts its first worker for it."""
        for _ in self.each("start", type, [0]):
            pass
        self.watch.refresh()

    @property
    def slots(self) -> int:
        """Threads of all usable workers."""
        return max(self.watch.workers.threads, 1)

    @property
    def threads(self) -> int:
        """Threads of the largest worker."""
        return max((w.threads for w in self.watch.workers.usable.values()), default=1)

    @property
    def memory_per_slot(self) -> int | None:
        """What the smallest worker may hold, per thread."""
        every = self.watch.workers.usable.values()
        return min((budget(w.memory_limit) // max(w.threads, 1) for w in every if w.memory_limit), default=None)

    def publish(self, value: T) -> Published[T]:
        """Lay the value on the scheduler's shelf; each worker that needs it takes it once."""
        data = cloudpickle.dumps(value, protocol=5)
        digest = digest_of(data)
        if digest not in self._published:
            self._published.add(digest)
            self.statistics.sent += len(data)
            what = {"client": self.client.id, "home": self.home, "digest": digest, "data": to_serialize(Sealed(data))}
            patience = max(self.limits.patience, _ANSWER, len(data) / 1e6)
            self.call(lambda: self.scheduler.daskpriv_put(**what), patience)
        return Published(digest, self.home, value)

    def each(self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Carry out units whatever happens to workers; see `_Stage`."""
        return _Stage(self, stage, fn, items).run()

    def call(self, ask: Callable[[], Coroutine[Any, Any, T]], limit: float = _ANSWER) -> T:
        """The scheduler's answer, waited for no longer than `limit` seconds."""
        if self.client.status == "closed":
            raise SchedulerLostError("connection closed")
        task = asyncio.run_coroutine_threadsafe(_bounded(ask, limit), self.loop.asyncio_loop)
        try:
            return task.result()
        except (TimeoutError, OSError, RuntimeError, concurrent.futures.CancelledError) as error:
            raise SchedulerLostError(type(error).__name__) from None

    def close(self) -> None:
        """Take everything of this run off the cluster; the client belongs to the caller."""
        concurrent.futures.wait(self.restarts, timeout=10)
        try:
            self.call(lambda: self.scheduler.daskpriv_forget(home=self.home), limit=5)
            self.call(lambda: self.client.run(tidy, self.home, on_error="ignore", asynchronous=True), limit=5)
        except (SchedulerLostError, DaskprivError):
            _LOG.debug("the scheduler is gone; nothing to tidy")


class SchedulerLostError(RunError):
    """The scheduler did not answer in time, or is gone."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the scheduler does not answer ({kind}); {_LOST}")


async def _bounded(ask: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
    return await asyncio.wait_for(ask(), limit)


@dataclass
class Statistics:
    """What a run cost, over all stages."""

    units: int = 0
    seconds: float = 0.0
    again: int = 0
    duplicates: int = 0
    deaths: int = 0
    sent: int = 0
    peak: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; workers without their addresses."""
        return {
            "worker_seconds": self.seconds,
            "retries": self.again,
            "duplicates": self.duplicates,
            "worker_deaths": self.deaths,
            "bytes_published": self.sent,
            "peak_memory_workers": sorted(self.peak.values()),
        }

    def add(self, outcome: Outcome) -> None:
        """One more unit was carried out."""
        self.units += 1
        self.seconds += outcome.seconds
        self.peak[outcome.worker] = max(self.peak.get(outcome.worker, 0), outcome.peak)


@dataclass(eq=False)
class _Flight:
    """A unit on its way."""

    place: int
    future: Future[Any]
    chosen: list[str] | None
    doubled: bool = False
    late: set[str] = field(default_factory=set)


class _Stage:
    """One stage: which units are done, on their way, suspected or given up.

    An error of the input ends the stage. Any other failed unit is tried again, elsewhere and later; one whose workers
    keep dying is tried alone at the end, so that its neighbours do not suffer; what fails even then is reported by
    name after everything else is done.
    """

    def __init__(self, driver: Dask, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.driver, self.stage, self.fn, self.items = driver, stage, fn, items
        self.todo: list[tuple[float, int]] = [(0.0, i) for i in range(len(items))]
        self.flights: dict[str, _Flight] = {}
        self.done: set[int] = set()
        self.tries: dict[int, int] = {}
        self.suspects: list[int] = []
        self.alone: set[int] = set()
        self.failed: dict[int, str] = {}
        self.landed: SimpleQueue[str] = SimpleQueue()
        self.longest = 0.0

    def run(self) -> Iterator[tuple[int, Any]]:
        """Results in the order of completion."""
        try:
            while len(self.done) + len(self.failed) < len(self.items):
                self._launch()
                for place, outcome in self._arrivals():
                    value = self._judge(place, outcome)
                    if value is not None:
                        yield place, value[0]
                self._look_after()
            self._report_failures()
        except DaskprivError:
            raise
        except Exception:
            # Dask tells of a lost scheduler in many ways.
            if self.driver.client.status != "closed":
                raise
            raise SchedulerLostError("connection closed") from None
        finally:
            self._cancel(list(self.flights))

    # ------------------------------------------------------------------ starting units

    def _launch(self) -> None:
        now = time.monotonic()
        room = max(_WAITING * self.driver.slots, _LEAST_WAITING) - len(self.flights)
        while room > 0 and self.todo and self.todo[0][0] <= now:
            place = heapq.heappop(self.todo)[1]
            if place not in self.done and place not in self.failed:
                self._start(place)
                room -= 1
        if not self.todo and not self.flights and self.suspects:
            place = self.suspects.pop()
            self.alone.add(place)
            self._start(place)

    def _start(self, place: int) -> None:
        """Hand a unit to Dask; workers that are avoided do not get it."""
        data = cloudpickle.dumps((self.fn, self.items[place]), protocol=5)
        payload = Payload(self.driver.home, __version__, data)
        key = f"{self.stage.replace(' ', '-')}-{self.driver.home}-{next(self.driver.numbers)}"
        chosen = self.driver.watch.workers.chosen
        # One span for all: Dask would open another for every stage, and workers keep the statistics of each for ever.
        with dask.annotate(span=_SPAN):
            future = self.driver.client.submit(carry_out, payload, key=key, pure=False, workers=chosen)
        self.flights[key] = _Flight(place, future, chosen)
        # Future.add_done_callback takes a thread, which complains when the process ends while the scheduler is lost.
        self.driver.loop.add_callback(done_callback, future, lambda f: self.landed.put(f.key))

    def _again(self, place: int, pause: float = 0.0) -> None:
        self.driver.statistics.again += 1
        heapq.heappush(self.todo, (time.monotonic() + pause, place))

    # ------------------------------------------------------------------ results

    def _arrivals(self) -> list[tuple[int, Outcome]]:
        """Outcomes of the units that have finished since, all fetched at once."""
        keys = self._landed()
        finished, out = [], []
        for key in keys:
            flight = self.flights.pop(key, None)
            if flight is None or flight.place in self.done:
                continue
            if flight.future.status == "finished":
                finished.append(flight)
            else:
                out.append((flight.place, _unfinished(flight.future)))
        if finished:
            out += self._fetched(finished)
        return out

    def _landed(self) -> list[str]:
        keys = []
        try:
            keys.append(self.landed.get(timeout=_TICK))
            while len(keys) < 256:
                keys.append(self.landed.get_nowait())
        except Empty:
            pass
        return keys

    def _fetched(self, flights: list[_Flight]) -> list[tuple[int, Outcome]]:
        """Results, unless the workers that hold them cannot be reached: then the units are done again."""
        futures = [f.future for f in flights]
        try:
            found = self.driver.call(
                lambda: self.driver.client.gather(futures, errors="skip", direct=False, asynchronous=True),
                limit=_FETCH,
            )
        except SchedulerLostError:
            found = []
        if len(found) != len(flights):
            return [(f.place, Outcome(kind="unreachable result", transient=True)) for f in flights]
        return [(f.place, outcome) for f, outcome in zip(flights, found, strict=True)]

    def _judge(self, place: int, outcome: Outcome) -> tuple[Any] | None:
        """The value of a unit that went well; what to do next about one that did not."""
        if place in self.done:
            return None
        if outcome.error is None and not outcome.kind:
            self.done.add(place)
            self.longest = max(self.longest, outcome.seconds)
            self.driver.statistics.add(outcome)
            self._cancel([k for k, f in self.flights.items() if f.place == place])
            return (outcome.value,)
        if isinstance(outcome.error, InputError):
            raise outcome.error
        if outcome.kind == "KilledWorker":
            self._suspect(place)
            return None
        self.tries[place] = self.tries.get(place, 0) + 1
        if self.tries[place] < self.driver.limits.attempts or outcome.kind == "cancelled":
            self._again(place, min(2.0 ** self.tries[place] / 4, _LONGEST_PAUSE))
        elif outcome.error is not None:
            raise outcome.error
        else:
            self.failed[place] = outcome.kind
        return None

    def _suspect(self, place: int) -> None:
        """Its workers died, perhaps because of a neighbour: at the end it is tried alone."""
        self.driver.statistics.deaths += 1
        # A double of it that no worker takes any more would keep the stage from ever coming to the suspects.
        self._cancel([k for k, f in self.flights.items() if f.place == place])
        if place in self.alone:
            self.failed[place] = "its workers died"
        else:
            self.suspects.append(place)

    def _report_failures(self) -> None:
        if not self.failed:
            return
        place, kind = min(self.failed.items())
        label = str(getattr(self.items[place], "label", f"unit {place}"))
        more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
        raise RunError(
            f"{self.stage}: {label}{more} failed every time ({kind}), everything else is done; mend the file or give "
            f"workers more memory, then {_LOST}"
        )

    # ------------------------------------------------------------------ faults

    def _look_after(self) -> None:
        """See, from time to time, whether workers are there and get on."""
        watch = self.driver.watch
        if not watch.due:
            return
        if self.driver.client.status == "closed":
            raise SchedulerLostError("connection lost")
        limit = max(self.driver.limits.unit, 10 * self.longest)
        workers = watch.refresh(limit)
        for message in workers.news:
            self._tell(message)
        for key, flight in list(self.flights.items()):
            if workers.overdue(key):
                self._late(flight, workers.units[key][0])
            if flight.place in self.failed or flight.doubled or not workers.hopeless(key, flight.chosen):
                continue
            flight.doubled = True
            self.driver.statistics.duplicates += 1
            self._start(flight.place)
        for address in workers.to_restart:
            self._tell("a worker that does not get on is restarted.")
            self._restart(address)

    def _late(self, flight: _Flight, address: str) -> None:
        """It takes too long on this worker, which counts once; when that was so too often, the unit is given up."""
        place = flight.place
        if address in flight.late or place in self.failed:
            return
        flight.late.add(address)
        self.tries[place] = self.tries.get(place, 0) + 1
        if self.tries[place] >= self.driver.limits.attempts:
            self.failed[place] = "it takes too long"
            self._cancel([k for k, f in self.flights.items() if f.place == place])

    def _tell(self, message: str) -> None:
        """To whoever listens, else to the log; not to both, which may be the same terminal."""
        if self.driver.listener is silent:
            _LOG.warning(message)
        else:
            self.driver.listener(Warned(message))

    def _restart(self, address: str) -> None:
        options = {"timeout": _ANSWER, "wait_for_workers": False, "on_error": "return"}
        question = self.driver.scheduler.restart_workers(
            workers=[address], stimulus_id=f"daskpriv-{time.time()}", **options
        )
        self.driver.restarts.append(
            asyncio.run_coroutine_threadsafe(_ignoring(question), self.driver.loop.asyncio_loop)
        )

    def _cancel(self, keys: list[str]) -> None:
        futures = [self.flights.pop(k).future for k in keys if k in self.flights]
        for future in futures:
            future.release()


async def _ignoring(question: Coroutine[Any, Any, Any]) -> None:
    try:
        await asyncio.wait_for(question, 2 * _ANSWER)
    except Exception as error:
        _LOG.debug("a worker could not be restarted (%s)", type(error).__name__)


def _unfinished(future: Future[Any]) -> Outcome:
    """Why a future holds no outcome."""
    if future.status != "error":
        return Outcome(kind="cancelled", transient=True)
    error = future.exception()
    kind = type(error).__name__
    unloadable = isinstance(error, (ImportError, pickle.UnpicklingError)) or "deserializ" in str(error)[:200].lower()
    if unloadable:
        return Outcome(
            error=InputError(
                "the cluster cannot load daskpriv; install the same version on scheduler and workers, or use --ship."
            )
        )
    return Outcome(kind=kind, transient=True)
