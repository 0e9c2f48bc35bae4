"""From `--cluster` and its companions to a running client."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import dask

from daskpriv.engine.dask import local_cluster, remote_cluster
from daskpriv.engine.executor import available_cpus
from daskpriv.errors import InputError

_LOCAL = re.compile(r"^local(?::(\d+))?$")
_REMOTE = ("tcp://", "tls://", "ws://", "wss://", "ucx://")


def cluster_options(shapes: str) -> Callable[[Any], Any]:
    """The options from which `client_for` makes a client; `shapes` says what --cluster understands."""

    def decorated(command: Any) -> Any:
        positive = click.IntRange(1)
        for option in (
            click.option("--memory-limit", help="Memory of each of them, such as 4GiB."),
            click.option("--threads", type=positive, help="Threads of each of them."),
            click.option("--workers", type=positive, help="Processes of the local cluster."),
            click.option("--cluster", help=shapes),
        ):
            command = option(command)
        return command

    return decorated


@contextmanager
def client_for(cluster: str | None, workers: int | None, threads: int | None, memory: str | None) -> Iterator[Any]:
    """A client of the cluster that was asked for; a cluster started here is closed at the end."""
    cluster = (
        cluster or os.environ.get("DASK_SCHEDULER_ADDRESS") or dask.config.get("scheduler-address", None) or "local"
    )
    local = _LOCAL.match(cluster)
    if local is None and not cluster.startswith(_REMOTE) and not cluster.endswith(".json"):
        raise InputError(
            f"cluster {cluster!r} is not understood; give local, local:4, tcp://host:8786 or a scheduler file (.json)."
        )
    if local is None:
        if workers or threads or memory:
            raise InputError(
                "--workers, --threads and --memory-limit belong to a local cluster; leave them out with "
                "--cluster ADDRESS."
            )
        with remote_cluster(cluster) as client:
            yield client
        return
    asked = int(local[1]) if local[1] else None
    if asked == 0:
        raise InputError("cluster 'local:0' has no workers; ask for at least one.")
    cpus = available_cpus()
    count = workers or asked or min(4, cpus)
    with local_cluster(count, threads or max(1, cpus // count), memory) as client:
        yield client
