"""From what the user names to a running client."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security, get_client, get_worker, rejoin, secede
from distributed.comm.core import FatalCommClosedError, connect

from daskpriv.cluster.settings import scheduler_wait
from daskpriv.cluster.spec import Spec
from daskpriv.errors import InputError

_KNOCK, _CONNECT = 12, 15  # seconds to wait for a scheduler
_SLOW_DISK = "Creating scratch directories"  # what Dask says for every process, a second late, on a busy machine


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
    # Dask's sampling profiler remembers an hour of call stacks in every worker, and nobody looks at them here.
    # Results that wait to be fetched may hold categories or sampled rows: they stay in memory.
    lean = dask.config.set(
        {
            "distributed.worker.profile.enabled": False,
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.nanny.pre-spawn-environ.PYTHONWARNINGS": ",".join(
                filter(None, (os.environ.get("PYTHONWARNINGS"), f"ignore:{_SLOW_DISK}"))
            ),
        }
    )
    try:
        with _deaf_to_interrupts(), lean, warnings.catch_warnings():
            warnings.filterwarnings("ignore", _SLOW_DISK)
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
    with _closed_at_last(cluster), Client(cluster) as client:
        yield client


@contextmanager
def _closed_at_last(cluster: LocalCluster) -> Iterator[None]:
    """Close it at the end; a worker that is slow to die is killed, and what it did stays done."""
    try:
        yield
    finally:
        # Dask gives a worker 4 seconds to leave and 5 to be dead, which are not enough on every busy machine.
        with suppress(TimeoutError):
            cluster.close()


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


@dataclass(frozen=True)
class Certificates:
    """Files of a TLS identity: the authority, our certificate and its key."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def security(self) -> Security | None:
        """What Dask needs of them; None when none is given, then Dask's configuration decides."""
        given = (self.authority, self.certificate, self.key)
        if not any(given):
            return None
        if not all(given):
            raise InputError("TLS needs --tls-ca-file, --tls-cert and --tls-key together.")
        for path in given:
            if not Path(str(path)).is_file():
                raise InputError(f"TLS: there is no file {path!r}; check the path.")
        return Security(
            tls_ca_file=self.authority,
            tls_client_cert=self.certificate,
            tls_client_key=self.key,
            require_encryption=True,
        )


def _quietly(sentence: str) -> None:
    """Tell nobody."""


@contextmanager
def remote_cluster(
    address: str, certificates: Certificates = Certificates(), tell: Callable[[str], None] = _quietly
) -> Iterator[Client]:
    """Connect to a scheduler by address or scheduler file; `tell` hears that it must be waited for."""
    where = _written_address(address) if address.endswith(".json") else address
    security = certificates.security()
    wait = scheduler_wait()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        # Dask waits for ever for something that takes the connection and says nothing, such as a frozen scheduler.
        asyncio.run(_arrive(where, security or Security(), wait, tell))
        client = Client(where, security=security, timeout=_CONNECT)
    except Exception:
        raise InputError(
            f"cluster {address!r} does not answer; check the address or scheduler file, that the scheduler runs, and "
            "for tls:// the certificates."
        ) from None
    with client:
        yield client


def _written_address(path: str) -> str:
    if not Path(path).is_file():
        raise InputError(f"cluster {path!r}: there is no such scheduler file; check the path.")
    try:
        return str(json.loads(Path(path).read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"cluster {path!r}: this is not a scheduler file; give one that `dask scheduler` wrote."
        ) from None


async def _arrive(address: str, security: Security, wait: float, tell: Callable[[str], None]) -> None:
    """Knock until somebody answers: where scheduler and job start together, the scheduler may come minutes later."""
    end, tries = time.monotonic() + wait, 0
    while True:
        tries += 1
        try:
            await _knock(address, security)
            return
        except FatalCommClosedError:
            raise  # it answers, and does not like our certificate
        except OSError:  # time that is up too
            if time.monotonic() >= end:
                raise
            if tries == 1 and wait > _KNOCK:
                tell(f"cluster {address!r} does not answer yet; waiting up to {wait:.0f} seconds for it.")
            await asyncio.sleep(0.5)


async def _knock(address: str, security: Security) -> None:
    asked = connect(address, timeout=_KNOCK, **security.get_connection_args("client"))
    (await asyncio.wait_for(asked, _KNOCK)).abort()


@contextmanager
def described_cluster(path: str) -> Iterator[Client]:
    """Start the cluster that a YAML file describes; closed at the end."""
    spec = Spec.load(path)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with _deaf_to_interrupts(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as: the port of the dashboard is taken
        cluster = spec.start()
    with closing(cluster):
        try:
            client = Client(cluster, timeout=60)
        except Exception as error:
            raise InputError(
                f"cluster {path!r}: {spec.made_by} gives no scheduler to connect to ({type(error).__name__}); check "
                "that it is the class of a Dask cluster, and its arguments."
            ) from None
        with client:
            yield client


def carries_cells_in_clear(client: Client) -> bool:
    """True for a plain connection that leaves this machine."""
    address = str(client.scheduler.address) if client.scheduler is not None else ""
    scheme, _, rest = address.rpartition("://")
    return scheme not in ("tls", "wss", "inproc") and not _is_here(rest.rsplit(":", 1)[0].strip("[]"))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
