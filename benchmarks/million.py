"""The headline: `daskpriv bench`, in a process of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.processes import watch


def run(tiny: bool) -> dict[str, Any]:
    """1 M x 1 M rows, exact, on all cores: wall time by stage, peak memory, rows that differ from a plain search."""
    rows = "2000" if tiny else "1000000"
    seen = watch([sys.executable, "-m", "daskpriv", "bench", "--rows", rows, "--json", "--quiet"])
    if seen["exit_code"] not in (0, 1):
        raise RuntimeError(seen["stderr"])
    found: dict[str, Any] = json.loads(seen["stdout"])
    return {**found, "peak_gib_with_making_the_tables": seen["peak_gib"], "exit_code": seen["exit_code"]}
