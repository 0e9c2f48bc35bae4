"""The driver: numbered inputs per target, run in a process that is replaced when one of them kills it.

Input `number` of a target is drawn from `(seed, target, number)` alone, so that every finding can be run again.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

Target = Callable[[random.Random, Path], None]
_ADDRESS_SPACE = 12 << 30


class Hang(BaseException):
    """The time limit of one input is over."""


def targets() -> dict[str, tuple[Target, float]]:
    """Every target with its share of the executions."""
    from tests.fuzz import commands, files, frames, yamls

    return {
        "parquet": (files.parquet, 0.3),
        "csv": (files.csv_file, 0.12),
        "schema": (yamls.schema, 0.2),
        "yaml": (yamls.weights, 0.08),
        "cli": (commands.cli, 0.1),
        "report": (commands.report, 0.1),
        "frames": (frames.frames, 0.1),
    }


@dataclass
class Outcome:
    """What the inputs of one target ended in."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False


_CLOCKS = ((signal.ITIMER_PROF, signal.SIGPROF, 1.0), (signal.ITIMER_REAL, signal.SIGALRM, 10.0))


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hang` in the main thread after `seconds` of work, or ten times as long without it (a busy machine)."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = {sign: signal.signal(sign, ring) for _, sign, _ in _CLOCKS}
    for clock, _, patience in _CLOCKS:
        signal.setitimer(clock, patience * seconds)
    try:
        yield
    finally:
        for clock, _, _ in _CLOCKS:
            signal.setitimer(clock, 0)
        for sign, handler in before.items():
            signal.signal(sign, handler)


def once(target: str, work: Target, seed: int, number: int, folder: Path, seconds: float) -> dict[str, Any] | None:
    """Run one input; None, or what is wrong."""
    rng = random.Random(f"{seed} {target} {number}")
    _clear(folder)
    try:
        with limited(seconds):
            work(rng, folder)
    except Hang:
        where = traceback.format_exc()
        return _finding(target, seed, number, f"hang: more than {seconds:g} s", where)
    except (KeyboardInterrupt, SystemExit) as error:
        return _finding(target, seed, number, f"{type(error).__name__}", traceback.format_exc())
    except Exception as error:
        return _finding(target, seed, number, f"{type(error).__name__}: {error}", traceback.format_exc())
    return None


def _finding(target: str, seed: int, number: int, what: str, where: str) -> dict[str, Any]:
    frames = [line.strip() for line in where.splitlines() if "/daskpriv/" in line and line.strip().startswith("File")]
    return {
        "target": target,
        "seed": seed,
        "number": number,
        "what": what[:600],
        "place": frames[-1].split("/daskpriv/")[-1] if frames else "",
        "trace": where[-20000:],
    }


def in_this_process(
    target: str, work: Target, seed: int, first: int, executions: int, folder: Path, seconds: float = 20.0
) -> Outcome:
    """Run inputs here, without protection against one that kills the process."""
    out, began = Outcome(target), time.perf_counter()
    for number in range(first, first + executions):
        found = once(target, work, seed, number, folder, seconds)
        out.executions += 1
        if found is not None:
            out.findings.append(found)
    out.seconds = time.perf_counter() - began
    return out


# ---------------------------------------------------------------------------------------------- child


def child(target: str, seed: int, first: int, executions: int, seconds: float, board: str, found: str) -> None:
    """Run inputs, telling the parent through `board` where we are and through `found` what is wrong."""
    _warm()
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work = targets()[target][0]
    lost: list[str] = []
    threading.excepthook = lambda args: lost.append(f"a thread died: {args.exc_type.__name__}: {args.exc_value}")
    sys.unraisablehook = lambda args: lost.append(f"unraisable: {args.exc_type.__name__}: {args.exc_value}")
    with tempfile.TemporaryDirectory(prefix="daskpriv-fuzz-") as folder, open(board, "r+b") as handle:
        place = mmap.mmap(handle.fileno(), 8)
        opened = 0
        for number in range(first, first + executions):
            place[:] = struct.pack("<q", number)
            wrong = once(target, work, seed, number, Path(folder), seconds)
            if wrong is None and lost:
                wrong = _finding(target, seed, number, lost[0], "")
            lost.clear()
            if wrong is not None:
                with open(found, "a") as sink:
                    sink.write(json.dumps(wrong) + "\n")
            if (number - first) % 500 == 499:
                now = len(os.listdir("/proc/self/fd"))
                if opened and now > opened + 20:
                    with open(found, "a") as sink:
                        what = f"{now - opened} file descriptors were left open"
                        sink.write(json.dumps(_finding(target, seed, number, what, "")) + "\n")
                opened = max(opened, now)


def _warm() -> None:
    """Compile the usual kernels outside the time limit."""
    from tests.fuzz.commands import reports

    reports()


def _clear(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            _clear(Path(entry.path))
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


# ---------------------------------------------------------------------------------------------- parent


def supervised(target: str, seed: int, first: int, executions: int, seconds: float = 20.0) -> Outcome:
    """Run inputs in child processes; a death or a stall is a finding, and the next input goes on."""
    out, began, start, stop = Outcome(target), time.perf_counter(), first, first + executions
    with tempfile.TemporaryDirectory(prefix="daskpriv-fuzz-board-") as folder:
        board, found = f"{folder}/board", f"{folder}/found"
        Path(found).touch()
        while first < stop:
            Path(board).write_bytes(struct.pack("<q", first))
            arguments = [target, seed, first, stop - first, seconds, board, found]
            command = [sys.executable, "-m", "tests.fuzz", "--child", json.dumps(arguments)]
            with open(f"{folder}/said", "w+b") as said:
                process = subprocess.Popen(command, stdout=said, stderr=said)
                try:
                    place, stalled = _watch(process, board, 15 * seconds + 60)
                except (KeyboardInterrupt, SystemExit):
                    out.interrupted = True
                    process.kill()
                    stop = struct.unpack("<q", Path(board).read_bytes())[0]
                    break
                said.seek(0)
                told = said.read()[-3000:].decode("utf-8", "replace")
            if process.returncode == 0:
                break
            how = "hang in compiled code or a thread" if stalled else f"the process died with {process.returncode}"
            out.findings.append(_finding(target, seed, place, how, told))
            first = place + 1
        with open(found) as source:
            out.findings += [json.loads(line) for line in source]
    out.executions, out.seconds = stop - start, time.perf_counter() - began
    return out


def _watch(process: subprocess.Popen[bytes], board: str, patience: float) -> tuple[int, bool]:
    """Wait for the child; kill it when one input lasts longer than `patience`."""
    last, since = -1, time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        here = struct.unpack("<q", Path(board).read_bytes())[0]
        if process.returncode is not None:
            return here, False
        if here != last:
            last, since = here, time.monotonic()
        elif time.monotonic() - since > patience:
            process.kill()
            process.wait()
            return here, True


def told(outcome: Outcome) -> str:
    """A few lines: how many inputs, how long, and every kind of finding with its first number."""
    found = f"{len(outcome.findings):>4} findings"
    lines = [f"{outcome.target:<8} {outcome.executions:>7} inputs {outcome.seconds:>8.1f} s {found}"]
    kinds = Counter(_kind(f) for f in outcome.findings)
    for kind, count in kinds.most_common():
        first = next(f for f in outcome.findings if _kind(f) == kind)
        lines.append(f"  {count:>5} x [{first['number']}] {first['place']}: {first['what'][:300]}")
    return "\n".join(lines)


def _kind(finding: dict[str, Any]) -> tuple[str, str]:
    return finding["place"], finding["what"][:40]
