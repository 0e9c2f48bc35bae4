"""From `--cluster` and its companions to a running client."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import click
import dask
import distributed

from daskpriv.cluster.connect import (
    Certificates,
    carries_cells_in_clear,
    described_cluster,
    local_cluster,
    remote_cluster,
)
from daskpriv.cluster.ship import ship
from daskpriv.engine.executor import available_cpus
from daskpriv.errors import InputError

_LOCAL = re.compile(r"^local(?::(\d+))?$")
_REMOTE = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
_SHAPES = "local, local:N, tcp://host:8786, tls://..., a scheduler file (.json) or a cluster described in YAML."
_NAMES = ("cluster", "workers", "threads", "memory_limit", "tls_ca_file", "tls_cert", "tls_key", "ship")


def cluster_options(command: Any) -> Any:
    """The options from which `client_for` makes a client."""
    positive = click.IntRange(1)
    options: tuple[Callable[[Any], Any], ...] = (
        click.option("--ship", is_flag=True, help="Upload daskpriv to a cluster that lacks it."),
        click.option("--tls-key", type=click.Path(), help="Key of that certificate (PEM)."),
        click.option("--tls-cert", type=click.Path(), help="Certificate of this client (PEM)."),
        click.option("--tls-ca-file", type=click.Path(), help="Authority of a tls:// cluster (PEM)."),
        click.option("--memory-limit", help="Memory of each of them, such as 4GiB."),
        click.option("--threads", type=positive, help="Threads of each of them."),
        click.option("--workers", type=positive, help="Processes of the local cluster."),
        click.option("--cluster", help=_SHAPES),
    )
    for option in options:
        command = option(command)
    return command


@contextmanager
def client_for(options: Mapping[str, Any]) -> Iterator[Any]:
    """A client of the cluster that was asked for; a cluster started here is closed at the end."""
    cluster, workers, threads, memory, ca_file, cert, key, shipped = (options.get(n) for n in _NAMES)
    cluster = (
        cluster or os.environ.get("DASK_SCHEDULER_ADDRESS") or dask.config.get("scheduler-address", None) or "local"
    )
    certificates = Certificates(ca_file, cert, key)
    with _started(cluster, workers, threads, memory, certificates) as client:
        if carries_cells_in_clear(client):
            warn("this connection is not encrypted and carries cells of the tables; use tls:// (docs/clusters.md).")
        if shipped:
            ship(client)
        yield client


def warn(sentence: str) -> None:
    """Say it on stderr, beside all else."""
    click.echo(f"daskpriv: warning: {sentence}", err=True)


@contextmanager
def _started(
    cluster: str, workers: int | None, threads: int | None, memory: str | None, certificates: Certificates
) -> Iterator[Any]:
    local = _LOCAL.match(cluster)
    described = cluster.endswith((".yaml", ".yml"))
    if local is None and not described and not cluster.startswith(_REMOTE) and not cluster.endswith(".json"):
        raise InputError(
            f"cluster {cluster!r} is not understood; give local, local:4, tcp://host:8786, a scheduler file (.json) or "
            "a cluster file (.yaml)."
        )
    if any((certificates.authority, certificates.certificate, certificates.key)) and (local or described):
        raise InputError(
            "--tls-ca-file, --tls-cert and --tls-key belong to a cluster that runs; leave them out, or give "
            "--cluster tls://host:8786."
        )
    if local is None:
        if workers or threads or memory:
            raise InputError(
                "--workers, --threads and --memory-limit belong to a local cluster; leave them out with "
                "--cluster ADDRESS."
            )
        with described_cluster(cluster) if described else remote_cluster(cluster, certificates, warn) as client:
            yield client
        return
    asked = int(local[1]) if local[1] else None
    if asked == 0:
        raise InputError("cluster 'local:0' has no workers; ask for at least one.")
    cpus = available_cpus()
    count = workers or asked or min(4, cpus)
    with local_cluster(count, threads or max(1, cpus // count), memory) as client:
        yield client


def performance_report(path: str | None) -> AbstractContextManager[Any]:
    """Dask's own report of a run, when it is asked for; refused before anything is started."""
    if path is None:
        return nullcontext()
    if importlib.util.find_spec("bokeh") is None:
        raise InputError("--performance-report needs bokeh; install daskpriv[dashboard].")
    report: AbstractContextManager[Any] = distributed.performance_report(filename=path)  # type: ignore[no-untyped-call]
    return report
