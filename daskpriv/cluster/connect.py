"""The only module that talks to Dask."""

from __future__ import annotations

import itertools
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pyarrow as pa
from distributed import Client, LocalCluster, as_completed, futures_of, get_client, get_worker, rejoin, secede

from daskpriv.engine.executor import Done, Handle
from daskpriv.errors import DaskprivError, InputError, RunError
from daskpriv.tables.frames import from_frame
from daskpriv.tables.recent import recent
from daskpriv.tables.table import Table, check_names

_PATIENCE = 30


class Dask:
    """Functions run on the workers of a Dask cluster; handles are futures.

    Tasks are never pinned to workers and nothing is broadcast, so that Dask's own recovery works.
    """

    def __init__(self, client: Client) -> None:
        if client.asynchronous:
            raise InputError("client: asynchronous clients are not supported; pass Client(..., asynchronous=False).")
        if client.status != "running":
            raise InputError("client: it is closed; connect a new one.")
        self.client = client
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise InputError(f"the cluster has had no workers for {_PATIENCE} seconds; start at least one.") from None
        self._token = uuid.uuid4().hex
        self._number = itertools.count()

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(int(sum(self.client.nthreads().values())), 1)

    @property
    def memory_per_slot(self) -> int | None:
        """The smallest worker's memory limit per thread."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [int(w["memory_limit"] / max(w["nthreads"], 1)) for w in workers if w["memory_limit"]]
        return min(limits, default=None)

    def submit(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Handle:
        """Start on any worker; the key shows `name` on the dashboard."""
        key = f"{name}-{self._token}-{next(self._number)}"
        return self.client.submit(fn, *args, key=key, pure=False)

    def wait(self, handles: Sequence[Handle], done: Done) -> None:
        """Wait in the order of completion; a failed task cancels the rest."""
        place = {h.key: i for i, h in enumerate(handles)}
        for future in as_completed(handles, loop=self.client.loop):
            if future.status != "finished":
                error = future.exception() if future.status == "error" else None
                self.client.cancel(list(handles))
                raise _ours(error)
            done(place[future.key])

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Bring finished values to this process."""
        return list(self.client.gather(list(handles)))

    def close(self) -> None:
        """The client belongs to the caller."""


def _ours(error: BaseException | None) -> BaseException:
    if isinstance(error, DaskprivError):
        return error
    kind = type(error).__name__ if error is not None else "cancelled"
    return RunError(
        f"a task failed on the cluster ({kind}); the worker logs say more. If workers were killed, give "
        "them more memory."
    )


def active_client() -> Client | None:
    """The client that is active in this process or on this worker, if any."""
    try:
        client: Client = get_client(timeout=2)
    except ValueError:
        return None
    return client


@contextmanager
def outside_the_slot() -> Iterator[None]:
    """Inside a Dask task, give the worker's thread back while waiting for tasks of our own."""
    inside = _in_a_task()
    if inside:
        secede()
    try:
        yield
    finally:
        if inside:
            rejoin()


def _in_a_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True


@contextmanager
def local_cluster(workers: int | None, threads: int | None, memory: str | None) -> Iterator[Client]:
    """A cluster of processes on this machine, closed at the end; loopback only, no dashboard."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"memory_limit": memory} if memory else {}
    try:
        with _deaf_to_interrupts():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=threads or 1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                **options,
            )
    except (ValueError, TypeError):
        raise InputError(
            "the local cluster cannot start; check --workers, --threads and --memory-limit (such as 4GiB)."
        ) from None
    with cluster, Client(cluster) as client:
        yield client


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Worker processes started here inherit that Ctrl-C is not for them: only the client answers it, once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def remote_cluster(address: str) -> Iterator[Client]:
    """Connect to a scheduler by address or scheduler file."""
    if address.endswith(".json") and not Path(address).is_file():
        raise InputError(f"cluster {address!r}: there is no such scheduler file; check the path.")
    try:
        client = (
            Client(scheduler_file=address, timeout=15) if address.endswith(".json") else Client(address, timeout=15)
        )
    except Exception:
        raise InputError(
            f"cluster {address!r} does not answer; check the address or scheduler file and that the scheduler runs."
        ) from None
    with client:
        yield client


def is_dask_frame(source: Any) -> bool:
    """True for Dask DataFrames."""
    return dask.is_dask_collection(source) and hasattr(source, "to_delayed") and hasattr(source, "npartitions")


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """Rows [start, stop) of one partition of a Dask DataFrame, computed where it is read."""

    partition: Any
    start: int
    stop: int

    def __repr__(self) -> str:
        return f"DelayedPiece({self.rows} rows)"

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> DelayedPiece:
        """Only the rows [start, stop) of this piece."""
        return DelayedPiece(self.partition, self.start + start, self.start + stop)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Compute the partition in this thread and convert it."""
        table = recent(self.partition.key, self._whole, self.stop)
        return table.slice(self.start, self.rows).select(list(columns))

    def _whole(self) -> pa.Table:
        frame = self.partition.compute(scheduler="synchronous")
        (piece,) = from_frame(frame, "a Dask partition").pieces
        return piece.read(list(frame.columns))


def from_dask(frame: Any, name: str) -> Table:
    """Open a Dask DataFrame: one pass counts the rows of each partition."""
    check_names(name, list(frame.columns))
    if futures_of(frame):
        raise InputError(f"{name}: the Dask DataFrame is persisted on a cluster; pass it as it was before .persist().")
    partitions = frame.to_delayed()
    try:
        found = dask.compute(*[dask.delayed(_measure_partition)(p) for p in partitions])
    except DaskprivError:
        raise
    except Exception as error:
        raise InputError(
            f"{name}: the Dask DataFrame cannot be computed ({type(error).__name__}); try .compute() on it."
        ) from None
    schemas = [schema for rows, schema in found if rows] or [found[0][1]]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise InputError(
            f"{name}: the partitions of the Dask DataFrame differ in types; cast them to one type."
        ) from None
    pieces = tuple(DelayedPiece(p, 0, rows) for p, (rows, _) in zip(partitions, found, strict=True) if rows)
    return Table(name, schema, pieces, ("dask.DataFrame",))


def _measure_partition(frame: Any) -> tuple[int, pa.Schema]:
    return len(frame), from_frame(frame, "a Dask partition").schema


def lazy_columns(handles: Sequence[Handle], sizes: Sequence[int], k: int) -> tuple[Any, Any, Any]:
    """Neighbour tables as three Dask arrays (distance, row, ties) whose blocks stay on the workers."""
    out = []
    for name, dtype, shape in (("distance", "float64", (k,)), ("row", "int64", (k,)), ("ties", "int64", ())):
        blocks = [
            da.from_delayed(dask.delayed(getattr)(h, name), (n, *shape), dtype=dtype)
            for h, n in zip(handles, sizes, strict=True)
        ]
        out.append(da.concatenate(blocks))
    return out[0], out[1], out[2]
