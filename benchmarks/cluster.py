"""One worker against two on this machine, with the engine as users call it: speed-up, and what is not search.

Tables are Parquet files, so that units hold names and no rows. The cluster (scheduler, nannies, workers) is a
process of its own, so that the scheduler's processor time is told from the client's. Speed-ups mean something only
where `machine_busy_elsewhere` is close to 0.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from dask.utils import key_split
from distributed import Client, LocalCluster

from benchmarks.scheduler import machine_busy, process, processor, wire_bytes
from daskpriv.bench import write_adult_like
from daskpriv.neighbours import nearest_neighbours

QUERIES, REFERENCES, _K = 3_000_000, 1_000_000, 5
_REDRAW = 1.0  # independent columns: the most work per query row
_TINY, _WARM = 2000, 1000
_FILES = 4
_PATIENCE = 300.0
SHAPES = {"one_worker": (1, 1), "two_workers": (2, 1), "one_worker_two_threads": (1, 2)}


def child(workers: str, threads: str) -> None:
    """A process with a local cluster; it ends when its standard input closes."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=int(workers), threads_per_worker=int(threads), **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()


@dataclass(frozen=True)
class Local:
    """A running local cluster."""

    client: Client
    home: psutil.Process
    slots: int


@contextlib.contextmanager
def local(workers: int, threads: int) -> Iterator[Local]:
    """A local cluster in a process of its own, and a client of it in this one."""
    with (
        process(str(workers), str(threads), module="cluster") as (home, address),
        Client(address, timeout=_PATIENCE, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=_PATIENCE)
        yield Local(client, home, workers * threads)


def transferred(dask_worker: Any) -> int:
    """Bytes that a worker has sent so far: to other workers, and results by way of the scheduler."""
    return int(dask_worker.transfer_outgoing_bytes_total)


class Traffic:
    """Tasks, bytes and scheduler time of what a client does between the beginning and `read`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.get_task_stream(count=0)  # the first call starts the recording
        self.since = time.time()
        self.before = self._bytes()

    def _bytes(self) -> tuple[int, int]:
        return sum(self.client.run(transferred).values()), int(self.client.run_on_scheduler(wire_bytes))

    def read(self) -> dict[str, Any]:
        """Tasks and seconds by key prefix, bytes sent by workers and bytes in and out of the scheduler."""
        between, through = (b - a for a, b in zip(self.before, self._bytes(), strict=True))
        records = self.client.get_task_stream(start=self.since)
        seconds: dict[str, Counter[str]] = {"compute": Counter(), "transfer": Counter()}
        for record in records:
            for span in record["startstops"]:
                held = seconds.setdefault(span["action"], Counter())
                held[key_split(record["key"])] += span["stop"] - span["start"]
        tasks = Counter(key_split(record["key"]) for record in records)
        return {
            "tasks": len(records),
            "tasks_by_prefix": dict(tasks),
            "compute_s_by_prefix": dict(seconds["compute"]),
            "transfer_s": float(sum(seconds["transfer"].values())),
            "mib_sent_by_workers": between / 2**20,
            "mib_through_scheduler": through / 2**20,
            "scheduler_bytes_per_task": through / max(len(records), 1),
            "search_span_s": _span(records),
        }


def _span(records: list[dict[str, Any]]) -> float:
    """From the start of the first search task to the end of the last."""
    spans = [s for r in records if key_split(r["key"]).startswith("search") for s in r["startstops"]]
    return max((s["stop"] for s in spans), default=0.0) - min((s["start"] for s in spans), default=0.0)


def measure(on: Local, query: Path, reference: Path, pairs: int) -> dict[str, Any]:
    """One call of `nearest_neighbours`."""
    traffic = Traffic(on.client)
    scheduler, own, machine = processor(on.home), time.process_time(), machine_busy()
    family = sum(map(processor, on.home.children(recursive=True)))
    begun = time.perf_counter()
    nearest_neighbours(str(query), str(reference), k=_K, client=on.client)
    wall = time.perf_counter() - begun
    scheduler, own = processor(on.home) - scheduler, time.process_time() - own
    family = sum(map(processor, on.home.children(recursive=True))) - family
    machine = machine_busy() - machine
    found = traffic.read()
    searching = sum(s for name, s in found["compute_s_by_prefix"].items() if name.startswith("search"))
    return {
        "call_s": wall,
        "gpairs_per_s": pairs / wall / 1e9,
        "search_task_s": searching,
        "share_outside_search": 1 - searching / (wall * on.slots),
        "share_outside_search_within_span": 1 - searching / max(found["search_span_s"] * on.slots, 1e-9),
        "scheduler_cpu_s": scheduler,
        "scheduler_cpu_ms_per_task": 1000 * scheduler / max(found["tasks"], 1),
        "scheduler_busy": scheduler / wall,
        "client_cpu_s": own,
        "workers_cpu_s": family,
        "machine_busy_elsewhere": (machine - scheduler - own - family) / wall / (os.cpu_count() or 1),
        **found,
    }


def run(tiny: bool) -> dict[str, Any]:
    """The same search on one worker, two workers, and one worker with two threads, each after a small warm run."""
    queries, references = (_TINY, _TINY) if tiny else (QUERIES, REFERENCES)
    shapes = {name: SHAPES[name] for name in (["two_workers"] if tiny else SHAPES)}
    out: dict[str, Any] = {"queries": queries, "references": references}
    with tempfile.TemporaryDirectory() as folder:
        query = write_adult_like(Path(folder) / "query", queries, 1, _REDRAW)
        reference = write_adult_like(Path(folder) / "reference", references, 101, _REDRAW)
        small = write_adult_like(Path(folder) / "small", _WARM, 201, _REDRAW, _WARM // _FILES)
        for name, (workers, threads) in shapes.items():
            with local(workers, threads) as on:
                for _ in range(2 * on.slots):
                    nearest_neighbours(str(small), str(small), k=_K, client=on.client)
                out[name] = measure(on, query, reference, queries * references)
    for name in out.keys() & SHAPES.keys() - {"one_worker"}:
        if "one_worker" in out:
            out[name]["speed_up"] = out["one_worker"]["call_s"] / out[name]["call_s"]
            out[name]["speed_up_of_search_span"] = out["one_worker"]["search_span_s"] / out[name]["search_span_s"]
    return out
