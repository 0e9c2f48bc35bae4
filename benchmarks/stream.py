"""Reading, schema and encoding of a directory larger than the blocks held: memory must not follow the rows."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import watch
from daskpriv.bench import write_adult_like

_PROGRAM = """
import json, sys, time
from daskpriv.engine.executor import Serial
from daskpriv.engine.plan import Layout
from daskpriv.engine.run import Engine
from daskpriv.prepare import Columns, survey
from daskpriv.tables.open import open_table

begun = time.perf_counter()
engine = Engine(Serial(), Layout(65_536, 65_536))
table = open_table(sys.argv[1], "train")
surveyed = survey(engine, {"train": table}, Columns(), ("train",))
middle = time.perf_counter()
rows = held = 0
for part in table.parts(65_536):
    block = surveyed.encoding.encode(part)
    rows, held = rows + len(block), max(held, block.nbytes)
end = time.perf_counter()
print(json.dumps({"rows": rows, "block_bytes": held, "survey_s": middle - begun, "encode_s": end - middle}))
"""


def run(tiny: bool) -> dict[str, Any]:
    """Peak memory at 1 and 5 million rows (one process), and rows per second."""
    sizes = (20_000, 100_000) if tiny else (1_000_000, 5_000_000)
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            table = write_adult_like(Path(folder) / str(rows), rows, 7, file_rows=sizes[0] // 10)
            seen = watch([sys.executable, "-c", _PROGRAM, str(table)])
            if seen["exit_code"]:
                raise RuntimeError(seen["stderr"])
            found = json.loads(seen["stdout"])
            out[f"rows_{rows}"] = {
                "peak_gib": seen["peak_gib"],
                "survey_s": found["survey_s"],
                "encode_s": found["encode_s"],
                "rows_per_s": rows / (found["survey_s"] + found["encode_s"]),
            }
    peaks = [v["peak_gib"] for v in out.values()]
    out["peak_growth"] = peaks[-1] / peaks[0]
    return out
