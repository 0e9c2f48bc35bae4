"""What a worker does: carry out one unit and tell how it went, as a value. No exception leaves a unit.

Dask would print the text and the arguments of an exception into its logs, and both may quote cells or secrets.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from typing import Any

from distributed import get_worker
from distributed.utils import sync

from daskpriv.cluster.shelf import Sealed
from daskpriv.engine.cache import forget, share_memory
from daskpriv.engine.executor import peak_memory
from daskpriv.engine.published import fetch_from, no_longer_from
from daskpriv.engine.reference import use_threads
from daskpriv.errors import DaskprivError, InputError, RunError
from daskpriv.tables.retry import is_transient
from daskpriv.version import __version__

_FETCH_SECONDS = 120


@dataclass(frozen=True)
class Payload:
    """A pickled function and its item; says nothing of them in logs."""

    home: str
    version: str
    data: bytes

    def __repr__(self) -> str:
        return "Payload()"


@dataclass(frozen=True)
class Outcome:
    """How a unit went.

    Attributes
    ----------
    value : its result
    error : the error to be told to the user, if it was one of ours
    kind : the name of the class of any other error; empty when all went well
    transient : True when the same unit may well succeed a moment later
    seconds, peak : what it took, and the most memory in bytes that the worker has used so far
    worker : its address
    """

    value: Any = None
    error: DaskprivError | None = None
    kind: str = ""
    transient: bool = False
    seconds: float = 0.0
    peak: int = 0
    worker: str = ""

    def __repr__(self) -> str:
        return f"Outcome({self.kind or 'done'})"


def carry_out(payload: Payload) -> Outcome:
    """Carry out a unit on this worker."""
    worker = get_worker()
    begun = time.perf_counter()
    found = _tried(payload, worker)
    seconds, peak = time.perf_counter() - begun, peak_memory()
    return Outcome(found.value, found.error, found.kind, found.transient, seconds, peak, worker.address)


def _tried(payload: Payload, worker: Any) -> Outcome:
    if payload.version != __version__:
        return Outcome(
            error=InputError(
                f"worker {worker.address} runs daskpriv {__version__}, the client {payload.version}; install one "
                "version everywhere."
            )
        )
    try:
        _at_home(payload.home, worker)
        fn, item = pickle.loads(payload.data)  # noqa: S301  (from the run's own client)
        return Outcome(fn(item))
    except RunError as error:
        return Outcome(error=error, transient=True)
    except DaskprivError as error:
        return Outcome(error=error)
    except ModuleNotFoundError as error:
        missing = error.name or "a package"
        return Outcome(error=InputError(f"worker {worker.address} lacks {missing!r}; install it there too."))
    except Exception as error:
        return Outcome(kind=type(error).__name__, transient=is_transient(error))


def _at_home(home: str, worker: Any) -> None:
    def fetch(digest: str) -> bytes:
        take = worker.scheduler.daskpriv_take
        data = sync(worker.loop, take, home=home, digest=digest, callback_timeout=_FETCH_SECONDS)
        if data is None:
            raise ConnectionError("the client of this run is gone")
        # Within one process nothing is taken out of its wrappers on the way.
        return bytes(data if isinstance(data, bytes) else data.data if isinstance(data, Sealed) else data.data.data)

    fetch_from(home, fetch)
    use_threads(worker.state.nthreads)
    limit = worker.memory_manager.memory_limit
    if limit:
        share_memory(limit)


async def tidy(home: str) -> None:
    """The run is over: forget its rows."""
    no_longer_from(home)
    forget()
