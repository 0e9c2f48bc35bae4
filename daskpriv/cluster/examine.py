"""What `daskpriv doctor` finds out about a cluster."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client

from daskpriv.cluster.connect import carries_cells_in_clear
from daskpriv.cluster.driver import Dask
from daskpriv.cluster.preflight import probe
from daskpriv.errors import DaskprivError
from daskpriv.tables.table import Part, Table

_MATTERS = ("daskpriv", "dask", "distributed", "python", "numpy", "numba", "pyarrow", "pandas")


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it is well, and what to do."""

    what: str
    well: bool
    told: str


def versions(client: Client) -> list[Finding]:
    """The same versions on client, scheduler and workers; a package missing on the scheduler is found too."""
    mine = probe()
    places: dict[str, Any] = {"scheduler": client.run_on_scheduler(probe)}
    places |= {f"worker {a}": found for a, found in client.run(probe, on_error="return").items()}
    return [_compared(place, mine, found) for place, found in places.items()]


def _compared(place: str, mine: dict[str, Any], found: Any) -> Finding:
    if not isinstance(found, dict):
        return Finding(place, False, f"does not answer ({type(found).__name__}); see its log.")
    if found["daskpriv"] is None:
        return Finding(place, False, "lacks daskpriv; install the same version there, or use --ship.")
    differ = [f"{n} {found[n]} (here {mine[n]})" for n in _MATTERS if found[n] != mine[n]]
    told = f"has {', '.join(differ)}; install the same versions." if differ else f"daskpriv {mine['daskpriv']}"
    serious = any(d.startswith(("daskpriv", "dask", "distributed")) for d in differ)
    return Finding(place, not serious, told)


def resources(client: Client) -> Finding:
    """Threads and memory of the workers."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    threads = sum(w["nthreads"] for w in workers.values())
    limits = sorted(int(w["memory_limit"] or 0) for w in workers.values())
    if not limits:
        return Finding("workers", False, "there is none; start at least one.")
    told = f"{len(workers)} worker(s), {threads} thread(s), {limits[0] / 2**30:.1f} GiB in the smallest"
    small = 0 < limits[0] < 2**30
    return Finding("workers", not small, told + ("; give each at least 1 GiB." if small else "."))


def connection(client: Client) -> Finding:
    """Encrypted or not."""
    address = str(client.scheduler.address) if client.scheduler is not None else ""
    if address.startswith("tls://"):
        return Finding("connection", True, "encrypted (TLS).")
    local = not carries_cells_in_clear(client)
    return Finding("connection", local, "stays on this machine." if local else "carries cells in clear; use tls://.")


def sees(driver: Dask, table: Table) -> Finding:
    """Whether workers can read the first row of a table."""
    first = next(table.parts(1), None)
    if first is None:
        return Finding(table.name, False, "holds no rows.")
    asked = list(range(min(driver.slots * 2, 32)))
    reads = functools.partial(_reads, first, table.schema.names[:1])
    found = [seen for _, seen in driver.each("see", reads, asked)]
    told = f"{sum(found)} of {len(found)} units on workers could read it"
    return Finding(table.name, all(found), told + ("." if all(found) else "; give workers the path and credentials."))


def _reads(part: Part, columns: Sequence[str], number: int) -> bool:
    try:
        return bool(part.read(columns).num_rows == 1)
    except DaskprivError:
        return False
