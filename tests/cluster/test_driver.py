"""The driver against real workers: whatever happens to them, units end in a result or in one sentence, in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from daskpriv.cluster.driver import Dask, SchedulerLostError, _Flight, _Stage
from daskpriv.cluster.unit import Outcome
from daskpriv.cluster.watch import Worker, Workers
from daskpriv.errors import InputError, RunError
from daskpriv.events import Event, Warned
from tests.cluster import units
from tests.cluster.harness import RealCluster, until
from tests.cluster.units import Item

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("faults")]

# A busy machine stands still for many seconds, and takes many to import: only what a test is about has a short limit.
PATIENT = {
    "daskpriv.patience": "10 minutes",
    "daskpriv.unit-limit": "10 minutes",
    "daskpriv.stall-limit": "5 minutes",
    "daskpriv.pause-limit": "3 seconds",
    "daskpriv.attempts": 3,
}
IMPATIENT = {"daskpriv.patience": "12 seconds"}
HANGS = {"daskpriv.unit-limit": "4 seconds"}
STALLS = {"daskpriv.stall-limit": "4 seconds"}
Numbers = dict[int, int]


def started(workers: int, **options: Any) -> RealCluster:
    """Workers that have imported what units need before they are there: no limit of a unit covers that."""
    return RealCluster(workers, worker_env=units.PRELOADED, **options)


@contextmanager
def driven(cluster: RealCluster, events: list[Event] | None = None, **settings: Any) -> Iterator[Dask]:
    """A driver whose limits are long, but for these."""
    with dask.config.set({**PATIENT, **settings}), cluster.client() as client:
        driver = Dask(client, (events if events is not None else []).append)
        try:
            yield driver
        finally:
            driver.close()


def items(count: int, folder: Path | str = "", bad: int = -1) -> list[Item]:
    return [Item(i, str(folder), bad) for i in range(count)]


def squares(count: int) -> Numbers:
    return {i: i * i for i in range(count)}


def sees(driver: Dask, threads: int) -> bool:
    """Whether so many threads can be used now."""
    driver.watch.refresh()
    return driver.slots == threads


def later(seconds: float, act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


@pytest.fixture(scope="module")
def three() -> Iterator[RealCluster]:
    """Three workers with nannies, for faults that they survive."""
    with started(3, memory_limit="600MiB") as cluster:
        yield cluster


def test_all_units_are_carried_out(three: RealCluster) -> None:
    with driven(three) as driver:
        assert dict(driver.each("squares", units.square, items(200))) == squares(200)
        assert dict(driver.each("squares", units.square, items(30))) == squares(30)
        assert until(lambda: sees(driver, 3))
        assert driver.statistics.units >= 230
        assert list(driver.each("squares", units.square, [])) == []


def test_a_worker_that_dies_once_costs_nothing(three: RealCluster, tmp_path: Path) -> None:
    with driven(three) as driver:
        assert dict(driver.each("die once", units.die_once, items(40, tmp_path, 7))) == squares(40)


def test_a_unit_that_kills_its_workers_is_named_and_the_rest_is_done(three: RealCluster) -> None:
    with driven(three) as driver:
        done: Numbers = {}
        with pytest.raises(RunError, match="rows of item 5") as told:
            for i, value in driver.each("crash", units.segfault, items(12, bad=5)):
                done[i] = value
        assert done == {i: v for i, v in squares(12).items() if i != 5}
        assert "what is finished is kept" in str(told.value)
        assert driver.statistics.deaths >= 2


def test_a_suspect_leaves_no_double_behind() -> None:
    """A double that was offered to workers which then died never lands: suspects would wait for it for ever."""
    released: list[str] = []
    stage: Any = _Stage(SimpleNamespace(statistics=SimpleNamespace(deaths=0)), "crash", units.segfault, items(2))  # type: ignore[arg-type]
    for place in (0, 1):
        future: Any = SimpleNamespace(release=lambda place=place: released.append(f"double of {place}"))
        stage.flights[f"double of {place}"] = _Flight(place, future, ["tcp://gone:1"], doubled=True)
    assert stage._judge(0, Outcome(kind="KilledWorker", transient=True)) is None
    assert released == ["double of 0"]
    assert (stage.suspects, list(stage.flights)) == ([0], ["double of 1"])


def test_a_unit_that_hangs_on_the_only_worker_is_given_up() -> None:
    """Where no other worker can be asked, it is restarted with the unit on it: each start is a try."""
    released: list[str] = []
    driver: Any = SimpleNamespace(
        statistics=SimpleNamespace(duplicates=0),
        client=SimpleNamespace(status="running"),
        limits=SimpleNamespace(attempts=2, unit=1.0),
        watch=SimpleNamespace(due=True),
    )
    stage = _Stage(driver, "hang", units.hang, items(2))
    future: Any = SimpleNamespace(release=lambda: released.append("it"))
    stage.flights["it"] = _Flight(0, future, None)
    for address, failed in (("tcp://only:1", {}), ("tcp://only:1", {}), ("tcp://again:1", {0: "it takes too long"})):
        hung = Worker(1, 0, False, False, "a unit of work does not end there")
        seen = Workers({address: hung}, {"it": (address, 9.0)}, 1.0)
        driver.watch.refresh = lambda limit, seen=seen: seen
        stage._look_after()
        assert stage.failed == failed
    assert (released, stage.flights, driver.statistics.duplicates) == (["it"], {}, 0)


def test_a_unit_that_hangs_once_is_done_elsewhere(three: RealCluster, tmp_path: Path) -> None:
    begun = time.monotonic()
    with driven(three, **HANGS) as driver:
        assert dict(driver.each("hang once", units.hang_once, items(20, tmp_path, 3))) == squares(20)
        # Where no other worker can be relied on just then, the one that hangs is restarted first.
        assert driver.statistics.duplicates >= 1 or driver.restarts
    assert time.monotonic() - begun < 600


def test_a_unit_that_always_hangs_is_named_and_the_rest_is_done(three: RealCluster) -> None:
    begun = time.monotonic()
    done: Numbers = {}
    with driven(three, **HANGS) as driver, pytest.raises(RunError, match=r"rows of item 3 .*takes too long"):
        for i, value in driver.each("hang", units.hang, items(20, bad=3)):
            done[i] = value
    assert done == {i: v for i, v in squares(20).items() if i != 3}
    assert time.monotonic() - begun < 600


def test_transient_errors_are_tried_again(three: RealCluster, tmp_path: Path) -> None:
    with driven(three) as driver:
        assert dict(driver.each("reset", units.unavailable_twice, items(20, tmp_path, 4))) == squares(20)
        assert driver.statistics.again == 2


def test_an_error_is_named_without_its_text(three: RealCluster) -> None:
    done: Numbers = {}
    with driven(three) as driver, pytest.raises(RunError, match=r"rows of item 2 .*ValueError") as told:
        for i, value in driver.each("raise", units.raise_always, items(20, bad=2)):
            done[i] = value
    assert len(done) == 19
    assert "canary" not in str(told.value)
    assert "canary" not in three.logs()


def test_bad_input_ends_the_stage_with_its_sentence(three: RealCluster) -> None:
    with driven(three) as driver, pytest.raises(InputError, match="column 'age' is unusable"):
        dict(driver.each("bad", units.bad_input, items(20, bad=2)))


def test_a_unit_beyond_the_memory_limit_is_named_and_the_rest_is_done(three: RealCluster) -> None:
    done: Numbers = {}
    with driven(three) as driver, pytest.raises(RunError, match="item 2"):
        for i, value in driver.each("hungry", units.hungry, items(12, bad=2)):
            done[i] = value
    assert done == {i: v for i, v in squares(12).items() if i != 2}


def test_a_stopped_worker_is_avoided(tmp_path: Path) -> None:
    with started(2) as cluster, driven(cluster, **STALLS) as driver:
        later(1, lambda: cluster.stop_worker(0))
        begun = time.monotonic()
        assert dict(driver.each("stopped", units.slow_square, items(30))) == squares(30)
        assert time.monotonic() - begun < 240  # Dask itself would notice after 5 minutes
        assert driver.statistics.duplicates >= 1


def test_without_workers_it_waits_and_then_says_so() -> None:
    events: list[Event] = []
    with started(2, nanny=False) as cluster, driven(cluster, events, **IMPATIENT) as driver:
        later(1, cluster.kill_all_workers)
        begun = time.monotonic()
        with pytest.raises(RunError, match="no usable worker for 12 seconds"):
            dict(driver.each("gone", units.slow_square, items(30)))
        assert time.monotonic() - begun < 240
    assert any(isinstance(e, Warned) and "waiting up to 12 seconds" in e.message for e in events)


def test_workers_that_come_back_in_time_go_on() -> None:
    with started(2, nanny=False) as cluster, driven(cluster) as driver:
        later(1, cluster.kill_all_workers)
        later(4, lambda: cluster.start_worker(wait=False))
        assert dict(driver.each("back", units.slow_square, items(30))) == squares(30)


def test_a_killed_scheduler_is_a_clear_error() -> None:
    with started(2) as cluster, driven(cluster, **IMPATIENT) as driver:
        later(1, cluster.kill_scheduler)
        begun = time.monotonic()
        with pytest.raises(RunError, match="scheduler") as told:
            dict(driver.each("headless", units.slow_square, items(40)))
        assert time.monotonic() - begun < 240
        assert isinstance(told.value, SchedulerLostError)


def test_a_frozen_scheduler_is_waited_for() -> None:
    with started(2) as cluster, driven(cluster) as driver:
        later(1, lambda: cluster.freeze_scheduler(12, wait=False))
        assert dict(driver.each("frozen", units.slow_square, items(40))) == squares(40)


def test_a_late_worker_helps() -> None:
    with started(1) as cluster, driven(cluster) as driver:
        later(0.5, lambda: cluster.start_worker(wait=False))
        assert dict(driver.each("late", units.slow_square, items(40))) == squares(40)
        assert until(lambda: sees(driver, 2))


def test_two_runs_share_a_scheduler(three: RealCluster) -> None:
    found: list[Numbers] = []

    def run() -> None:
        with three.client() as client:
            driver = Dask(client)
            found.append(dict(driver.each("shared", units.square, items(60))))
            driver.close()

    with dask.config.set(PATIENT):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(600)
    assert found == [squares(60)] * 2


def test_published_values_go_with_their_client(three: RealCluster) -> None:
    def held(dask_scheduler: Any) -> int:
        from daskpriv.cluster.shelf import NAME

        return sum(len(v) for v in dask_scheduler.plugins[NAME]._held.values())

    with three.client() as watcher:
        with driven(three) as driver:
            shared = driver.publish(list(range(1000)))
            assert dict(driver.each("sum", _sum_of(shared), items(9))) == dict.fromkeys(range(9), sum(range(1000)))
            assert watcher.run_on_scheduler(held) >= 1
        assert until(lambda: watcher.run_on_scheduler(held) == 0)


class _sum_of:
    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def __call__(self, item: Item) -> int:
        return sum(self.shared.get())
