"""Run `daskpriv evaluate` as a process of its own, kill it at a given moment, and see what it leaves."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.cluster import owned
from tests.cluster.harness import REPOSITORY, RealCluster
from tests.cluster.tables import Tables

Moment = float | str | Callable[[], bool]
LONG = 900.0  # seconds for one command: it may have to compile all kernels, on a machine that is busy with other things
_numbers = itertools.count()


@dataclass(frozen=True)
class Run:
    """How a command ended.

    Attributes
    ----------
    code : exit code, or minus the signal
    stdout, stderr : text
    report : what report.json holds, if it is there and whole
    seconds : until the command itself ended
    killed, timed_out : whether it was ended from here
    lingered : seconds until its last child ended after it
    left_behind : command lines of children that had to be killed in the end
    left_files : what is left in its own TMPDIR (beside `output`)
    """

    code: int
    stdout: str
    stderr: str
    report: dict[str, Any] | None
    seconds: float
    killed: bool
    timed_out: bool
    lingered: float
    left_behind: tuple[str, ...]
    left_files: tuple[str, ...]


def evaluate(
    tables: Tables,
    output: Path,
    cluster: RealCluster | str = "local:2",
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = LONG,
    kill_at: Moment | None = None,
    sig: int = signal.SIGKILL,
    whole_group: bool = True,
    linger: float = 90,
) -> Run:
    """`daskpriv evaluate` of these tables on this cluster, see `command`."""
    address = cluster if isinstance(cluster, str) else cluster.address
    given = {**(cluster.client_env() if isinstance(cluster, RealCluster) else {}), **(env or {})}
    arguments = ["evaluate", *tables.options(), "--output", str(output), "--cluster", address, "--log-json", *args]
    return command(arguments, output, given, timeout, kill_at, sig, whole_group, linger)


def command(
    arguments: Sequence[str],
    output: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = LONG,
    kill_at: Moment | None = None,
    sig: int = signal.SIGKILL,
    whole_group: bool = True,
    linger: float = 90,
) -> Run:
    """`daskpriv` with these arguments; its streams go to files beside `output`.

    It gets the signal `sig` at `kill_at`: after so many seconds, when a text appears on stderr, or when a function
    says so; with `whole_group` its children get it too, else they must end by themselves within `linger` seconds.
    """
    temporary = output.parent / f"{output.name}.tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    mark = f"{owned.owner()}.cli{next(_numbers)}"
    out, err = (output.parent / f"{output.name}.{kind}" for kind in ("stdout", "stderr"))
    with out.open("wb") as to_out, err.open("wb") as to_err:
        popen = subprocess.Popen(
            [sys.executable, "-m", "daskpriv", *arguments],
            cwd=output.parent,
            env=_environment(mark, {"TMPDIR": str(temporary), **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
        )
    begun = time.monotonic()
    try:
        killed, timed_out = _watch(popen, err, begun, timeout, kill_at, sig, whole_group)
        seconds = time.monotonic() - begun
        lingered = _linger(mark, linger)
        left = _command_lines(owned.marked(mark))
    finally:
        owned.kill([*owned.marked(mark), *([popen.pid] if popen.poll() is None else [])])
        popen.wait(60)
    stdout, stderr = (p.read_text(errors="replace") for p in (out, err))
    files = tuple(sorted(str(p.relative_to(temporary)) for p in temporary.rglob("*")))
    return Run(popen.returncode, stdout, stderr, read(output), seconds, killed, timed_out, lingered, left, files)


def _environment(mark: str, more: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "PYTEST_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", owned.VARIABLE: mark, **more}


def _watch(
    popen: subprocess.Popen[bytes],
    err: Path,
    begun: float,
    timeout: float,
    kill_at: Moment | None,
    sig: int,
    whole_group: bool,
) -> tuple[bool, bool]:
    """Wait for the end; (killed, timed out)."""
    killed = False
    while popen.poll() is None:
        passed = time.monotonic() - begun
        if passed > timeout:
            _send(popen, signal.SIGKILL, True)
            popen.wait(60)
            return killed, True
        if not killed and kill_at is not None and _is_now(kill_at, passed, err):
            _send(popen, sig, whole_group)
            killed = True
        time.sleep(0.01)
    return killed, False


def _is_now(moment: Moment, passed: float, err: Path) -> bool:
    if isinstance(moment, str):
        return moment in err.read_text(errors="replace")
    return moment() if callable(moment) else passed >= moment


def _send(popen: subprocess.Popen[bytes], sig: int, whole_group: bool) -> None:
    with suppress(ProcessLookupError):
        (os.killpg if whole_group else os.kill)(popen.pid, sig)


def _linger(mark: str, patience: float) -> float:
    """Seconds until no marked process is left, at most `patience`."""
    begun = time.monotonic()
    while owned.marked(mark) and time.monotonic() - begun < patience:
        time.sleep(0.05)
    return time.monotonic() - begun


def _command_lines(pids: list[int]) -> tuple[str, ...]:
    found = []
    for pid in pids:
        with suppress(psutil.Error):
            found.append(" ".join(psutil.Process(pid).cmdline()))
    return tuple(found)


def read(output: Path) -> dict[str, Any] | None:
    """The report in a folder, if it is there and whole."""
    try:
        found = json.loads((output / "report.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def numbers(report: dict[str, Any]) -> str:
    """Canonical text of all that must not depend on cluster, machine, faults or where the tables lie."""
    kept = {k: v for k, v in report.items() if k not in ("run", "daskpriv")}
    kept = json.loads(json.dumps(kept))
    for table in kept.get("inputs", {}).get("tables", {}).values():
        for place in ("source", "files", "bytes"):
            table.pop(place, None)
    return json.dumps(kept, sort_keys=True, indent=1, ensure_ascii=True)
