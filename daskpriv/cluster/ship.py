"""Bringing this package to a cluster that lacks it: one archive, to the scheduler and every worker, late ones too.

Dask's own `upload_file` imports a zip file on the event loop, which then answers nobody for 10 seconds and more, and
numba keeps no compiled kernels beside a zip file. Here the archive is unpacked, and imported in a thread.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from daskpriv.errors import RunError

_NAME = "daskpriv-ship"


def ship(client: Client) -> None:
    """Bring daskpriv; what it needs (numba, pyarrow, ...) has to be there."""
    worker, scheduler = _plugins(_archive())
    try:
        client.register_plugin(scheduler, name=_NAME)
        answers = client.register_plugin(worker, name=_NAME)
        failed = [a for a in (answers or {}).values() if a.get("status") != "OK"]
        if failed:
            raise failed[0].get("exception", RuntimeError())
    except Exception as error:
        raise RunError(
            f"daskpriv cannot be shipped to the cluster ({type(error).__name__}); install it there."
        ) from None


def _archive() -> bytes:
    """The package with its compiled kernels, which hold as long as the times of their sources do."""
    root = Path(__file__).parents[1]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(root.rglob("*")):
            inside = file.relative_to(root)
            if file.is_file() and file.suffix != ".pyc" and inside.parts[0] != "data":
                archive.add(file, Path("daskpriv") / inside)
    return out.getvalue()


def _plugins(archive: bytes) -> tuple[WorkerPlugin, SchedulerPlugin]:
    """Classes made in a function travel by value: they must load where there is no daskpriv to import them from."""

    async def unpack(folder: str | None) -> None:
        import asyncio
        import importlib
        import io
        import sys
        import tarfile
        import tempfile

        def load() -> None:
            place = tempfile.mkdtemp(prefix="daskpriv-ship-", dir=folder)
            with tarfile.open(fileobj=io.BytesIO(archive)) as held:
                held.extractall(place, filter="data")
            sys.path.insert(0, place)
            importlib.import_module("daskpriv.cluster.shelf")

        if "daskpriv" not in sys.modules:
            await asyncio.get_running_loop().run_in_executor(None, load)

    class ToWorker(WorkerPlugin):
        async def setup(self, worker: Any) -> None:
            await unpack(worker.local_directory)

    class ToScheduler(SchedulerPlugin):
        async def start(self, scheduler: Any) -> None:
            await unpack(None)

    return ToWorker(), ToScheduler()
