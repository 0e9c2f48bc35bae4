"""What this test process started and made, marked so that it is found again even after a crash.

Processes carry a mark in their environment, folders and namespaces one in their name. The mark names its owner
(pid and start time), so that a sweep removes only what belongs to nobody alive.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

VARIABLE = "DASKPRIV_TEST_OWNER"
PREFIX = "daskpriv-cluster-"


def started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else after_name[19]


def owner() -> str:
    """The mark of this process."""
    return f"{os.getpid()}.{started(os.getpid())}"


def alive(mark: str) -> bool:
    """Whether the process that owns this mark (`pid.ticks...`) is still there."""
    pid, ticks, *_ = [*mark.split("."), ""]
    return pid.isdigit() and started(int(pid)) == ticks


def marks() -> Iterator[tuple[int, str]]:
    """All marked processes: (pid, mark)."""
    wanted = f"{VARIABLE}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            for pair in (entry / "environ").read_bytes().split(b"\0"):
                if pair.startswith(wanted):
                    yield int(entry.name), pair[len(wanted) :].decode()


def marked(mark: str) -> list[int]:
    """Living processes with this mark, or a mark made from it; never this process."""
    of_it = (pid for pid, found in marks() if found == mark or found.startswith(f"{mark}."))
    return sorted(pid for pid in of_it if pid != os.getpid() and started(pid))


def kill(pids: list[int], patience: float = 60) -> None:
    """SIGKILL, then wait until they are gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + patience
    while any(started(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)


def new_folder() -> Path:
    """A temporary folder of this process."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}-"))


def sweep() -> None:
    """Remove the processes and folders of owners that died without cleaning up."""
    kill([pid for pid, mark in marks() if not alive(mark) and pid != os.getpid()])
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not alive(folder.name.removeprefix(PREFIX).partition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)
