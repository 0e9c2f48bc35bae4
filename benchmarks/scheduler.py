"""How many workers one Dask scheduler keeps busy: real scheduler and workers, search tasks that only sleep.

The scheduler, the client and up to 1 000 workers (many per process) are distributed's own, over TCP on this machine,
so that the messages and the scheduler's work per task are those of a cluster. Blocks declare their real size, and a
transfer between two workers is a sleep of 1 ms and 4 ns per byte; that a worker serves only 10 others at a time is
not simulated, nor are the processors of the workers, which share this machine. Heartbeats are Dask's; sampling and
ticks of the workers are slowed down. Where `machine_busy` is close to 1, utilisation is a lower bound set by this
machine; the processor time of the scheduler per task is what carries over to a real cluster. `submit` places a task
only where one of its inputs lies, and work stealing spreads it once a second from there, so utilisation can be low
while every process is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import distributed.worker
import psutil
from distributed import Client, Scheduler, Worker, as_completed

ROOT = Path(__file__).parent.parent
SECONDS = (5.0, 1.0, 0.1, 2.0, 0.5)
BUDGET = {10: 60.0, 100: 75.0, 300: 80.0, 1000: 110.0}
_PER_PROCESS = 250
_MOST_TASKS = 2000
_GROUPS, _BLOCKS_PER_GROUP, _FAN_IN = 16, 4, 8
_BLOCK_BYTES, _TABLE_BYTES = 16_384 * 100, 16_384 * 48
_MERGE_SECONDS = 0.005
_LATENCY, _BANDWIDTH = 0.001, 250e6
_PATIENCE = 60.0
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


@dataclass(frozen=True)
class Sized:
    """A value that declares a size without having it, so that the scheduler decides as it would for real blocks."""

    nbytes: int

    def __sizeof__(self) -> int:
        return self.nbytes


Span = tuple[float, float, float]  # begin, end, wanted length
_spans: list[Span] = []
_moved: list[int] = []


async def block(place: int) -> Sized:
    """An encoded block."""
    return Sized(_BLOCK_BYTES)


async def search(query: Sized, k: int, references: Sequence[Sized], before: Any, seconds: float) -> Sized:
    """A search task; `before` is what all tasks share or, in a chain, the result so far."""
    begun = time.monotonic()
    await asyncio.sleep(seconds)
    _spans.append((begun, time.monotonic(), seconds))
    return Sized(_TABLE_BYTES)


async def fold(tables: Sequence[Sized]) -> Sized:
    """A merge task."""
    await asyncio.sleep(_MERGE_SECONDS)
    return Sized(_TABLE_BYTES)


async def _transfer(rpc: Any, keys: Collection[Any], worker: str, **_: Any) -> dict[str, Any]:
    """In place of distributed's transfer between two workers: takes the time of a network, not of this machine."""
    values = {key: Sized(_BLOCK_BYTES if str(key).startswith("encode") else _TABLE_BYTES) for key in keys}
    moved = sum(v.nbytes for v in values.values())
    _moved.append(moved)
    await asyncio.sleep(_LATENCY + moved / _BANDWIDTH)
    return {"status": "OK", "data": values}


def take() -> tuple[list[Span], list[int]]:
    """Searches and transfers of all workers of this process since the last call."""
    taken = list(_spans), list(_moved)
    _spans.clear()
    _moved.clear()
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
    module: Any = distributed.worker
    module.get_data_from_worker = _transfer
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
    """A running simulated cluster."""

    client: Client
    workers: int
    scheduler: psutil.Process
    hosts: dict[str, psutil.Process]

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
        yield Simulated(client, workers, scheduler, hosts)


# ---- the graph of the engine


@dataclass
class Graph:
    """Futures of one search, sent as the engine sends them."""

    client: Client
    seconds: float
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: Iterator[int] = field(default_factory=itertools.count)

    @property
    def kind(self) -> str:
        """A key prefix of its own: the scheduler learns how long tasks of a prefix take, and places them by that."""
        return "search-" + self.token[:6].translate(str.maketrans("0123456789", "ghijklmnop"))

    def submit(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """As daskpriv.engine.dask.Dask.submit."""
        return self.client.submit(fn, *args, key=f"{name}-{self.token}-{next(self.number)}", pure=False)

    def blocks(self, count: int) -> list[Any]:
        """Blocks that lie on the workers before the search starts."""
        made = [self.submit("encode", block, i) for i in range(count)]
        _done(self.client, made, time.monotonic() + _PATIENCE)
        return made

    def length(self, place: int) -> float:
        """Tasks differ by up to a fifth, so that workers do not march in step; the mean is `seconds`."""
        return self.seconds * (0.8 + 0.4 * (place * 0.6180339887 % 1.0))

    def grouped(self, queries: Sequence[Any], groups: Sequence[list[Any]], shared: Any) -> list[list[Any]]:
        """Every query block against every group on its own."""
        places = itertools.count()
        return [
            [self.submit(self.kind, search, q, 2, g, shared, self.length(next(places))) for g in groups]
            for q in queries
        ]

    def chained(self, queries: Sequence[Any], groups: Sequence[list[Any]], shared: Any) -> list[list[Any]]:
        """Every query block visits the groups one after the other, starting at different ones."""
        rows: list[list[Any]] = [[] for _ in queries]
        for step, (place, query) in itertools.product(range(len(groups)), enumerate(queries)):
            before = rows[place][-1] if step else shared
            length = self.length(step * len(queries) + place)
            group = groups[(place + step) % len(groups)]
            rows[place].append(self.submit(self.kind, search, query, 2, group, before, length))
        return rows

    def merged(self, row: Sequence[Any]) -> Any:
        """The tree of one query block."""
        level = list(row)
        while len(level) > 1:
            level = [self.submit("merge-search", fold, level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0]


def _done(client: Client, futures: Sequence[Any], end: float) -> None:
    for future in as_completed(futures, loop=client.loop, timeout=max(end - time.monotonic(), 0.1)):
        if future.status != "finished":
            raise RuntimeError(f"a simulated task ended as {future.status}")


# ---- measurement


def measure(
    cluster: Simulated, tasks: int, seconds: float, end: float, chain: bool = False, groups: int = _GROUPS
) -> dict[str, Any]:
    """One search of about `tasks` tasks of `seconds` each."""
    graph, client = Graph(cluster.client, seconds), cluster.client
    queries = graph.blocks(-(-tasks // groups))
    references = [graph.blocks(_BLOCKS_PER_GROUP) for _ in range(groups)]
    shared = graph.blocks(1)[0]
    client.run(take, workers=list(cluster.hosts))
    before = next(graph.number) + 1
    meter = Meter(cluster)
    rows = (graph.chained if chain else graph.grouped)(queries, references, shared)
    submitted = time.monotonic() - meter.begun
    _done(client, [f for row in rows for f in row], end)
    searched = time.monotonic() - meter.begun
    final = [row[-1] if chain else graph.merged(row) for row in rows]
    _done(client, final, end)
    count = next(graph.number) - before
    out = {"tasks": count, "submit_s": submitted, **meter.read(count)}
    del rows, final, queries, references, shared
    _forget(client)
    return {**out, "merge_s": out["wall_s"] - searched}


class Meter:
    """Clocks and counters of a simulated cluster, read twice."""

    def __init__(self, cluster: Simulated) -> None:
        self.cluster = cluster
        self.wire = cluster.client.run_on_scheduler(wire_bytes)
        self.sent = _sent(cluster.client)
        self.machine = machine_busy()
        self.cpu = cluster.cpu()
        self.begun = time.monotonic()

    def read(self, tasks: int) -> dict[str, Any]:
        """What `tasks` tasks took since the beginning."""
        wall = time.monotonic() - self.begun
        used = [after - before for before, after in zip(self.cpu, self.cluster.cpu(), strict=True)]
        machine, cores = machine_busy() - self.machine, os.cpu_count() or 1
        client, workers = self.cluster.client, self.cluster.workers
        moved, sent = client.run_on_scheduler(wire_bytes) - self.wire, _sent(client) - self.sent
        taken = client.run(take, workers=list(self.cluster.hosts)).values()
        spans, transfers = [s for part, _ in taken for s in part], [n for _, part in taken for n in part]
        return {
            "wall_s": wall,
            "tasks_per_s": tasks / wall,
            "utilisation": sum(s[2] for s in spans) / (workers * wall),
            "utilisation_steady": _steady(spans, workers),
            "scheduler_ms_per_task": 1000 * used[0] / tasks,
            "workers_ms_per_task": 1000 * used[1] / tasks,
            "client_ms_per_task": 1000 * used[2] / tasks,
            "scheduler_busy": used[0] / wall,
            "machine_busy": machine / wall / cores,
            "machine_busy_elsewhere": (machine - sum(used)) / wall / cores,
            "graph_bytes_per_task": sent / tasks,
            "scheduler_bytes_per_task": moved / tasks,
            "transfers_per_task": len(transfers) / tasks,
            "worker_mib_per_task": sum(transfers) / 2**20 / tasks,
        }


def machine_busy() -> float:
    """Processor seconds that all processes of this machine have used so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _sent(client: Client) -> int:
    comm: Any = client.scheduler_comm
    return int(comm.byte_count)


def _steady(spans: Sequence[Span], workers: int) -> float:
    """Wanted time of the searches in the middle half of the run, per worker and second: no start, no last round."""
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    low, high = first + (last - first) / 4, last - (last - first) / 4
    held = sum(
        wanted * max(min(end, high) - max(begin, low), 0.0) / max(end - begin, 1e-9) for begin, end, wanted in spans
    )
    return held / (workers * max(high - low, 1e-9))


def _forget(client: Client) -> None:
    """Wait until the scheduler has forgotten the last search."""
    end = time.monotonic() + _PATIENCE
    while client.run_on_scheduler(tasks_known) and time.monotonic() < end:
        time.sleep(0.05)


def _tasks(workers: int, seconds: float) -> int:
    """At least three rounds, better six seconds of work, but never more tasks than a 2-core machine moves in time."""
    return max(min(int(6 / seconds) * workers, _MOST_TASKS), 3 * workers)


def _name(seconds: float) -> str:
    return f"task_{seconds:g}_s".replace(".", "_")


def _sweep(workers: int) -> dict[str, Any]:
    """All task lengths on one simulated cluster; those that the time does not allow are left out."""
    out: dict[str, Any] = {}
    begun = time.monotonic()
    end = begun + BUDGET[workers]
    with simulated(workers) as cluster, contextlib.suppress(TimeoutError):
        out["start_s"] = time.monotonic() - begun
        for seconds in SECONDS:
            tasks = _tasks(workers, seconds)
            if time.monotonic() + 1.5 * tasks * max(seconds / workers, 0.002) < end:
                out[_name(seconds)] = measure(cluster, tasks, seconds, end)
        if workers == 100:
            out["chain_1_s"] = measure(cluster, 4 * workers, 1.0, end, chain=True, groups=4)
            out["empty"] = measure(cluster, 1600, 0.0, end)
    return out


def _summary(sweeps: dict[int, Any]) -> dict[str, Any]:
    """Per number of workers: the shortest task of the sweep that keeps 90 % busy, and what the scheduler alone allows.

    A number of workers for which no length of the sweep reached 90 % is left out of the first.
    """
    reached: dict[str, float] = {}
    allowed: dict[str, float] = {}
    for workers, sweep in sweeps.items():
        cells = {s: sweep[_name(s)] for s in SECONDS if _name(s) in sweep}
        good = [s for s, cell in cells.items() if cell["utilisation_steady"] >= 0.9]
        if good:
            reached[f"workers_{workers}"] = min(good)
        if cells:
            cost = min(c["scheduler_ms_per_task"] for c in cells.values()) / 1000
            allowed[f"workers_{workers}"] = workers * cost / 0.9
    return {"shortest_task_s_with_90_percent": reached, "shortest_task_s_by_scheduler_cpu": allowed}


def run(tiny: bool) -> dict[str, Any]:
    """Tasks per second, cost per task, bytes, and utilisation by task length and number of workers."""
    if tiny:
        with simulated(8) as cluster:
            return {"workers_8": {_name(0.02): measure(cluster, 40, 0.02, time.monotonic() + _PATIENCE, groups=10)}}
    sweeps = {n: _sweep(n) for n in BUDGET}
    return {**{f"workers_{n}": s for n, s in sweeps.items()}, **_summary(sweeps)}
