"""`daskpriv doctor`: whether a cluster is fit for a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click
import pandas as pd

from daskpriv.cli.clusters import client_for, cluster_options
from daskpriv.cluster.examine import Finding, connection, resources, sees, versions
from daskpriv.neighbours import nearest_neighbours
from daskpriv.runs import reaches
from daskpriv.session import executor_for, open_any
from daskpriv.tables.files import shown


@click.command("doctor")
@cluster_options
@click.option("--store", help="Also check that workers can write this run store.")
@click.argument("tables", nargs=-1)
@click.pass_context
def doctor_command(ctx: click.Context, /, **options: Any) -> None:
    """Check a cluster: versions everywhere, the connection, memory, and whether workers see the TABLES and the store.

    Exit codes: 0 all is well, 1 something should be mended, 2 it cannot work.
    """
    with client_for(options) as client:
        well = True
        for finding in _findings(client, options["tables"], options["store"]):
            well = well and finding.well
            click.echo(f"{'ok  ' if finding.well else 'BAD '} {finding.what}: {finding.told}")
    ctx.exit(0 if well else 1)


def _findings(client: Any, tables: tuple[str, ...], store: str | None) -> Iterator[Finding]:
    yield connection(client)
    yield resources(client)
    yield from versions(client)
    with executor_for(client) as driver:
        for path in tables:
            yield sees(driver, open_any(path, f"table {shown(path)!r}"))  # type: ignore[arg-type]
        if store is not None:
            seen = reaches(store, driver)
            told = (
                "workers can write it." if seen else "workers cannot write it; results would pass through the client."
            )
            yield Finding("store", seen, told)
    yield _first_search(client)


def _first_search(client: Any) -> Finding:
    """Kernels are compiled once and kept on disk, where there is a place for them."""
    frame = pd.DataFrame({"a": range(50), "b": ["x", "y"] * 25})
    begun = time.perf_counter()
    nearest_neighbours(frame, frame, client=client)
    seconds = time.perf_counter() - begun
    hint = "set NUMBA_CACHE_DIR to a writable directory on workers, so that later starts are fast."
    return Finding("kernels", True, f"{seconds:.1f} s for a first search" + (f"; {hint}" if seconds > 15 else "."))
