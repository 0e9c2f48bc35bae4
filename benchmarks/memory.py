"""Peak memory of the client and of each worker of one evaluation, as the number of rows grows a hundredfold.

`queries`: synthetic rows grow, real rows do not. `references`: train grows beyond what a worker can index at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from daskpriv.bench import write_adult_like

_FILE_ROWS, _DISTINCT_FILES = 100_000, 8
_LIMIT = "1200MiB"


def run(tiny: bool) -> dict[str, Any]:
    """Client and worker peaks in MiB, and the plan's figure for a worker."""
    sizes = (1_000, 3_000) if tiny else (100_000, 1_000_000, 10_000_000)
    fixed = 1_000 if tiny else 50_000
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="daskpriv-memory-") as place:
        small = _table(Path(place), "fixed", fixed)
        for rows in sizes:
            grown = _table(Path(place), f"rows-{rows}", rows)
            out[f"queries_{rows}"] = _measured(Path(place), train=small, holdout=small, synthetic=grown)
        for rows in sizes[:-1] if not tiny else sizes[:1]:
            grown = _table(Path(place), f"rows-{rows}", rows)
            out[f"references_{rows}"] = _measured(Path(place), train=grown, holdout=small, synthetic=small)
    return out


def _table(place: Path, name: str, rows: int) -> Path:
    """A directory of Parquet files; after a few of them their contents repeat."""
    folder = place / name
    if not folder.exists():
        write_adult_like(folder, min(rows, _FILE_ROWS * _DISTINCT_FILES), len(name), file_rows=_FILE_ROWS)
        files = sorted(folder.iterdir())
        for i in range(len(files), -(-rows // _FILE_ROWS)):
            os.link(files[i % len(files)], folder / f"part-{i:05d}.parquet")
    return folder


def _measured(place: Path, **tables: Path) -> dict[str, Any]:
    options = [part for name, path in tables.items() for part in (f"--{name}", str(path))]
    options += ["--metrics", "dcr_share", "--memory-limit", _LIMIT, "--workers", "2"]
    program = [sys.executable, "-m", "daskpriv"]
    planned = json.loads(subprocess.run([*program, "plan", *options, "--json"], capture_output=True, check=True).stdout)
    begun = time.perf_counter()
    log = place / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*program, "evaluate", *options, "--output", str(place / "out"), "--quiet"], stderr=errors
        )
        client, workers = _peaks(process)
    if process.returncode != 0:
        raise RuntimeError(log.read_text())
    mib = 1 << 20
    return {
        "seconds": time.perf_counter() - begun,
        "client_mib": client / mib,
        "worker_mib": workers / mib,
        "planned_worker_mib": planned["worker_memory"] / mib,
        "worker_over_plan": workers / planned["worker_memory"],
    }


def _peaks(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """The largest unique memory of the first process and of any of its children."""
    root, client, workers = psutil.Process(process.pid), 0, 0
    while process.poll() is None:
        try:
            client = max(client, root.memory_full_info().uss)
            workers = max([workers, *(p.memory_full_info().uss for p in root.children(recursive=True))])
        except psutil.Error:
            pass
        time.sleep(0.1)
    return client, workers
