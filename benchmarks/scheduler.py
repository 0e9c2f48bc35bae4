"""How many workers one Dask scheduler and our driver keep busy: both are real, the units of work only sleep.

The scheduler, the client and up to 1 000 workers (many per process) are distributed's own, over TCP on this machine,
and `daskpriv.cluster.driver.Dask` hands the units out as it does in a run: payloads as large as those of a search,
outcomes with the name of a piece, a look at all workers every two seconds. Nothing else travels, as in a run: units
read their inputs from storage and write their results there, which is not simulated, nor are the processors of the
workers, which share this machine. Heartbeats are Dask's; sampling and ticks of the workers are slowed down. Where
`machine_busy` is close to 1, utilisation is a lower bound set by this machine; the processor time of the scheduler
and of the client per unit is what carries over to a real cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, Scheduler, Worker

from daskpriv.cluster.driver import Dask

ROOT = Path(__file__).parent.parent
SECONDS = (5.0, 1.0, 0.1, 2.0, 0.5)
BUDGET = {10: 60.0, 100: 75.0, 300: 80.0, 1000: 110.0}
_PER_PROCESS = 250
_MOST_UNITS = 2000
_PAYLOAD, _NAME = bytes(1000), "x" * 76  # a search unit, pickled, and the name of a piece: as long as real ones
_PATIENCE = 300.0
_CHILD = "import sys; from benchmarks.{module} import child; child(*sys.argv[1:])"
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
    "distributed.worker.http.routes": [],
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "1m",
}


# ---- what runs on the simulated workers

Span = tuple[float, float, float]  # begin, end, wanted length
_spans: list[Span] = []


@dataclass(frozen=True)
class Rest:
    """A unit that sleeps."""

    seconds: float
    payload: bytes = _PAYLOAD


def rest(unit: Rest) -> str:
    """Carry it out."""
    begun = time.monotonic()
    time.sleep(unit.seconds)
    _spans.append((begun, time.monotonic(), unit.seconds))
    return _NAME


def take() -> list[Span]:
    """Units of all workers of this process since the last call."""
    taken = list(_spans)
    _spans.clear()
    return taken


def _is_socket(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    except OSError:
        return False  # the descriptor of the listing itself


def wire_bytes() -> int:
    """Bytes that the open TCP connections of this process have sent and received, as the kernel counts them."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        # Only sockets are duplicated: the copy of anything else would stay open.
        if not _is_socket(name):
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as s:
            info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
            total += sum(struct.unpack_from("=QQ", info, 120)) if len(info) == 136 else 0
    return total


def tasks_known(dask_scheduler: Any) -> int:
    """Tasks that the scheduler holds."""
    return len(dask_scheduler.tasks)


# ---- processes


@contextlib.contextmanager
def process(*arguments: str, module: str = "scheduler") -> Iterator[tuple[psutil.Process, str]]:
    """A child that prints one line when it is ready and ends when its standard input closes, or with this process."""
    command = [sys.executable, "-c", _CHILD.format(module=module), *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
    try:
        assert started.stdout is not None
        line = started.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the process {arguments[0]!r} of the benchmark did not start")
        yield psutil.Process(started.pid), line
    finally:
        assert started.stdin is not None
        started.stdin.close()
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def child(kind: str, *arguments: str) -> None:
    """What a child process does: a scheduler, or many workers."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    asyncio.run(_scheduler() if kind == "scheduler" else _workers(arguments[0], int(arguments[1]), arguments[2]))


async def _scheduler() -> None:
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
        await _until_closed(scheduler.address)


async def _workers(address: str, count: int, folder: str) -> None:
    options: dict[str, Any] = {"nthreads": 1, "memory_limit": 0, "dashboard": False, "host": "127.0.0.1"}
    with dask.config.set(_QUIET):
        workers = [Worker(address, local_directory=folder, **options) for _ in range(count)]
        for start in range(0, count, 25):
            await asyncio.gather(*workers[start : start + 25])
        await _until_closed(workers[0].address)


async def _until_closed(line: str) -> None:
    """Tell that all is ready, wait for the end of standard input, and leave without farewells."""
    print(line, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


@dataclass(frozen=True)
class Simulated:
    """A running simulated cluster, and a driver of it as in a run."""

    driver: Dask
    workers: int
    scheduler: psutil.Process
    hosts: dict[str, psutil.Process]

    @property
    def client(self) -> Client:
        """The driver's."""
        return self.driver.client

    def cpu(self) -> tuple[float, float, float]:
        """Processor seconds so far of the scheduler, of all workers together and of the client."""
        return processor(self.scheduler), sum(map(processor, self.hosts.values())), time.process_time()


def processor(of: psutil.Process) -> float:
    """Processor seconds of a process so far."""
    times = of.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def simulated(workers: int) -> Iterator[Simulated]:
    """A scheduler and `workers` workers in a few processes."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        scheduler, address = stack.enter_context(process("scheduler"))
        hosts = {}
        for start in range(0, workers, _PER_PROCESS):
            count = str(min(_PER_PROCESS, workers - start))
            host, first = stack.enter_context(process("workers", address, count, folder))
            hosts[first] = host
        client = stack.enter_context(Client(address, timeout=_PATIENCE, set_as_default=False))
        client.wait_for_workers(workers, timeout=_PATIENCE)
        driver = Dask(client)
        stack.callback(driver.close)
        yield Simulated(driver, workers, scheduler, hosts)


# ---- measurement


def lengths(units: int, seconds: float) -> list[Rest]:
    """Units differ by up to a fifth, so that workers do not march in step; the mean is `seconds`."""
    return [Rest(seconds * (0.8 + 0.4 * (place * 0.6180339887 % 1.0))) for place in range(units)]


def measure(cluster: Simulated, units: int, seconds: float, end: float) -> dict[str, Any]:
    """One stage of so many units of about `seconds` each."""
    client, before = cluster.client, asdict(cluster.driver.statistics)
    # A name of its own: the scheduler learns how long tasks of a name take, and places them by that.
    stage = f"search {chr(ord('a') + int(10 * seconds) % 26)} x {units}"
    client.run(take, workers=list(cluster.hosts))
    meter = Meter(cluster)
    for _ in cluster.driver.each(stage, rest, lengths(units, seconds)):
        if time.monotonic() > end:
            raise TimeoutError
    found = meter.read(units)
    after = asdict(cluster.driver.statistics)
    _forget(client)
    return {"units": units, **found, **{n: after[n] - before[n] for n in ("again", "duplicates", "deaths")}}


class Meter:
    """Clocks and counters of a simulated cluster, read twice."""

    def __init__(self, cluster: Simulated) -> None:
        self.cluster = cluster
        self.wire = cluster.client.run_on_scheduler(wire_bytes)
        self.sent = _sent(cluster.client)
        self.machine = machine_busy()
        self.cpu = cluster.cpu()
        self.begun = time.monotonic()

    def read(self, units: int) -> dict[str, Any]:
        """What `units` units took since the beginning."""
        wall = time.monotonic() - self.begun
        used = [after - before for before, after in zip(self.cpu, self.cluster.cpu(), strict=True)]
        machine, cores = machine_busy() - self.machine, os.cpu_count() or 1
        client, workers = self.cluster.client, self.cluster.workers
        moved, sent = client.run_on_scheduler(wire_bytes) - self.wire, _sent(client) - self.sent
        spans = [s for part in client.run(take, workers=list(self.cluster.hosts)).values() for s in part]
        return {
            "wall_s": wall,
            "units_per_s": units / wall,
            "utilisation": sum(s[2] for s in spans) / (workers * wall),
            "utilisation_steady": _steady(spans, workers),
            "scheduler_ms_per_unit": 1000 * used[0] / units,
            "workers_ms_per_unit": 1000 * used[1] / units,
            "client_ms_per_unit": 1000 * used[2] / units,
            "scheduler_busy": used[0] / wall,
            "client_busy": used[2] / wall,
            "machine_busy": machine / wall / cores,
            "machine_busy_elsewhere": (machine - sum(used)) / wall / cores,
            "bytes_sent_per_unit": sent / units,
            "scheduler_bytes_per_unit": moved / units,
        }


def machine_busy() -> float:
    """Processor seconds that all processes of this machine have used so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _sent(client: Client) -> int:
    comm: Any = client.scheduler_comm
    return int(comm.byte_count)


def _steady(spans: Sequence[Span], workers: int) -> float:
    """Wanted time of the units in the middle half of the run, per worker and second: no start, no last round."""
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    low, high = first + (last - first) / 4, last - (last - first) / 4
    held = sum(
        wanted * max(min(end, high) - max(begin, low), 0.0) / max(end - begin, 1e-9) for begin, end, wanted in spans
    )
    return held / (workers * max(high - low, 1e-9))


def _forget(client: Client) -> None:
    """Wait until the scheduler has forgotten the last stage."""
    end = time.monotonic() + _PATIENCE
    while client.run_on_scheduler(tasks_known) and time.monotonic() < end:
        time.sleep(0.05)


def _units(workers: int, seconds: float) -> int:
    """At least three rounds, better six seconds of work, but never more units than a 2-core machine moves in time."""
    return max(min(int(6 / seconds) * workers, _MOST_UNITS), 3 * workers)


def _name(seconds: float) -> str:
    return f"unit_{seconds:g}_s".replace(".", "_")


def _sweep(workers: int) -> dict[str, Any]:
    """All lengths on one simulated cluster; those that the time does not allow are left out."""
    out: dict[str, Any] = {}
    begun = time.monotonic()
    end = begun + BUDGET[workers]
    with simulated(workers) as cluster, contextlib.suppress(TimeoutError):
        out["start_s"] = time.monotonic() - begun
        for seconds in SECONDS:
            units = _units(workers, seconds)
            if time.monotonic() + 1.5 * units * max(seconds / workers, 0.002) < end:
                out[_name(seconds)] = measure(cluster, units, seconds, end)
        if workers == 100:
            out["empty"] = measure(cluster, 1600, 0.0, end)
    return out


def _summary(sweeps: dict[int, Any]) -> dict[str, Any]:
    """Per number of workers: the shortest unit of the sweep that keeps 90 % busy, and what processors alone allow.

    The scheduler and the client are a process each; the one that needs more time per unit sets the pace. A number of
    workers for which no length of the sweep reached 90 % is left out of the first.
    """
    reached: dict[str, float] = {}
    allowed: dict[str, float] = {}
    for workers, sweep in sweeps.items():
        cells = {s: sweep[_name(s)] for s in SECONDS if _name(s) in sweep}
        good = [s for s, cell in cells.items() if cell["utilisation_steady"] >= 0.9]
        if good:
            reached[f"workers_{workers}"] = min(good)
        if cells:
            cost = min(max(c["scheduler_ms_per_unit"], c["client_ms_per_unit"]) for c in cells.values()) / 1000
            allowed[f"workers_{workers}"] = workers * cost / 0.9
    return {"shortest_unit_s_with_90_percent": reached, "shortest_unit_s_by_cpu": allowed}


def run(tiny: bool) -> dict[str, Any]:
    """Units per second, cost per unit, bytes, and utilisation by length of units and number of workers."""
    if tiny:
        with simulated(8) as cluster:
            return {"workers_8": {_name(0.02): measure(cluster, 40, 0.02, time.monotonic() + _PATIENCE)}}
    sweeps = {n: _sweep(n) for n in BUDGET}
    return {**{f"workers_{n}": s for n, s in sweeps.items()}, **_summary(sweeps)}
