"""The main job of the command line on the full adult tables."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import watch

DATA = Path(__file__).parent.parent / "daskpriv" / "data" / "adult"


def run(tiny: bool) -> dict[str, Any]:
    """Wall time and peak memory of all processes; goal: below 120 s and 2 GB on 2 cores."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "daskpriv", "evaluate", "--output", folder, "--quiet", "--internal"]
        for role, name in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_good")):
            command += [f"--{role}", str(DATA / f"{name}.parquet")]
        command += ["--metrics", "clones", "--columns", "age,sex,education"] if tiny else []
        seen = watch(command)
        run = json.loads((Path(folder) / "report.json").read_text())["run"]
    return {
        "wall_s": seen["seconds"],
        "peak_gib_all_processes": seen["peak_gib"],
        "exit_code": seen["exit_code"],
        "gpairs": run["pairs"] / 1e9,
        "tasks": run["tasks"],
    }
