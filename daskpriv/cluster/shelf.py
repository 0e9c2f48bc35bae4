"""What runs inside the scheduler: values that units ask for, and what the driver wants to know of workers.

Values live here only as long as the client that put them is connected.
"""

from __future__ import annotations

from time import time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from daskpriv.version import __version__

NAME = f"daskpriv-{__version__}"


class Sealed:
    """Bytes that no log shows: at level DEBUG Dask prints every message that a scheduler gets."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return "Sealed()"


class Shelf(SchedulerPlugin):
    """Handlers `daskpriv_put`, `daskpriv_take`, `daskpriv_forget` and `daskpriv_watch`."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Any]] = {}
        self._owner: dict[str, str] = {}
        self._scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Offer the handlers."""
        self._scheduler = scheduler
        for op in (self.put, self.take, self.forget, self.watch):
            scheduler.handlers[f"daskpriv_{op.__name__}"] = op

    def remove_client(self, scheduler: Any, client: str) -> None:
        """The client is gone, and its values with it."""
        for home in [h for h, owner in self._owner.items() if owner == client]:
            self.forget(home)

    def put(self, client: str, home: str, digest: str, data: Any) -> None:
        """Keep a value, as it came over the wire: the scheduler does not open it."""
        self._owner[home] = client
        self._held.setdefault(home, {})[digest] = data

    def take(self, home: str, digest: str) -> Any:
        """Hand out a value."""
        return self._held.get(home, {}).get(digest)

    def forget(self, home: str) -> None:
        """Drop all values of a run."""
        self._held.pop(home, None)
        self._owner.pop(home, None)

    def watch(self, home: str) -> dict[str, Any]:
        """Workers as the scheduler sees them, and where the units of a run are.

        Returns {"workers": {address: [status, seconds since heard of, threads, memory limit, nanny, shared]},
        "units": {key: [address, seconds running]}}; `shared` says that others have work or data there.
        """
        now = time()
        workers, units = {}, {}
        for address, ws in self._scheduler.workers.items():
            running = {ts.key: seconds for ts, seconds in ws.executing.items()}
            keys = [str(ts.key) for ts in ws.processing]
            mine = [k for k in keys if home in k]
            units.update({k: [address, float(running.get(k, 0.0))] for k in mine})
            shared = len(mine) < len(keys) or any(home not in str(ts.key) for ts in ws.has_what)
            seen = max(now - ws.last_seen, 0.0)
            limit = int(ws.memory_limit or 0)
            workers[address] = [ws.status.name, seen, int(ws.nthreads), limit, bool(ws.nanny), shared]
        return {"workers": workers, "units": units}
