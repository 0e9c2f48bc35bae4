"""From what the user names to a running client."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, Security, get_client, get_worker, rejoin, secede

from daskpriv.cluster.spec import Spec
from daskpriv.errors import InputError


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


@contextmanager
def remote_cluster(address: str, certificates: Certificates = Certificates()) -> Iterator[Client]:
    """Connect to a scheduler by address or scheduler file."""
    by_file = address.endswith(".json")
    if by_file and not Path(address).is_file():
        raise InputError(f"cluster {address!r}: there is no such scheduler file; check the path.")
    security = certificates.security()
    where: dict[str, Any] = {"scheduler_file": address} if by_file else {"address": address}
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(**where, security=security, timeout=15)
    except Exception:
        raise InputError(
            f"cluster {address!r} does not answer; check the address or scheduler file, that the scheduler runs, and "
            "for tls:// the certificates."
        ) from None
    with client:
        yield client


@contextmanager
def described_cluster(path: str) -> Iterator[Client]:
    """Start the cluster that a YAML file describes; closed at the end."""
    spec = Spec.load(path)
    with _deaf_to_interrupts():
        cluster = spec.start()
    with closing(cluster), Client(cluster, timeout=60) as client:
        yield client


def carries_cells_in_clear(client: Client) -> bool:
    """True for a plain connection that leaves this machine."""
    address = str(client.scheduler.address) if client.scheduler is not None else ""
    host = address.rsplit("://", 1)[-1].rsplit(":", 1)[0]
    return address.startswith(("tcp://", "ws://")) and host not in ("127.0.0.1", "localhost", "[::1]")
