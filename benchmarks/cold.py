"""The first result of a new process, with compiled kernels on disk: import, and 10 000 x 10 000 rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.datasets import PACKAGED

_PROGRAM = """
import json, sys, time
begun = time.perf_counter()
import pandas as pd
import daskpriv
imported = time.perf_counter()
folder, rows = sys.argv[1], int(sys.argv[2])
a = pd.read_parquet(folder + "/train.parquet").head(rows)
b = pd.read_parquet(folder + "/synthetic_good.parquet").head(rows)
read = time.perf_counter()
daskpriv.nearest_neighbours(b, a)
first = time.perf_counter()
daskpriv.nearest_neighbours(b, a)
again = time.perf_counter()
print(json.dumps({"import_s": imported - begun, "first_search_s": first - read, "next_search_s": again - first,
                  "import_and_first_s": imported - begun + first - read}))
"""


def run(tiny: bool) -> dict[str, Any]:
    """The second of two processes: the first one fills the disk cache."""
    command = [sys.executable, "-c", _PROGRAM, str(PACKAGED), "500" if tiny else "10000"]
    for _ in range(1 if tiny else 2):
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(out)
    return found
