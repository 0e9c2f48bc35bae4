"""Flat rows from event tables larger than the memory that units may use: peak memory, time, events per second."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.processes import watch

_PROGRAM = """
import json, sys, time
from daskpriv.engine.executor import Threads
from daskpriv.flattening import flattened
from daskpriv.prepare import Columns
from daskpriv.runs import Place
from daskpriv.sequences import EventTables, Sequencing
from daskpriv.tables.open import open_table

class Limited(Threads):
    memory_per_slot = int(sys.argv[2])

tables = {"train": open_table(sys.argv[1], "train")}
opened = EventTables.of(Sequencing("who", "time"), tables, Columns())
begun = time.perf_counter()
with flattened(opened, tables, Limited(), Place(), 0) as found:
    rows, lanes = found.tables["train"].rows, len(found.events["train"][1])
    seconds = time.perf_counter() - begun
print(json.dumps({"subjects": rows, "lanes": lanes, "seconds": seconds}))
"""
_FILE_ROWS = 1_000_000


def write_events(folder: Path, events: int, file_rows: int = _FILE_ROWS, seed: int = 7) -> int:
    """Events of a tenth as many subjects, in random order; the bytes that they take in memory."""
    folder.mkdir()
    size = 0
    for place, first in enumerate(range(0, events, file_rows)):
        n, rng = min(file_rows, events - first), np.random.default_rng([seed, place])
        table = pa.table(
            {
                "who": rng.integers(0, max(events // 10, 1), n),
                "time": pa.array(rng.integers(0, 10**9, n), pa.timestamp("s")),
                "amount": rng.lognormal(3, 1, n).round(2),
                "shop": pa.array(np.array([f"shop {i}" for i in range(50)])[rng.integers(0, 50, n)]),
                "kind": pa.array(np.array(["in", "out", "fee"])[rng.integers(0, 3, n)]),
                "balance": rng.normal(0, 1000, n).round(2),
            }
        )
        size += table.nbytes
        pq.write_table(table, folder / f"{place:04}.parquet", row_group_size=250_000)
    return size


def run(tiny: bool) -> dict[str, Any]:
    """Two sizes under one bound: the larger one takes more lanes, not more memory."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for events in (20_000, 60_000) if tiny else (10_000_000, 50_000_000):
            size = write_events(Path(folder) / str(events), events, min(_FILE_ROWS, events // 2))
            memory = 4 << 20 if tiny else 1 << 30
            seen = watch([sys.executable, "-c", _PROGRAM, f"{folder}/{events}", str(memory)])
            if seen["exit_code"]:
                raise RuntimeError(seen["stderr"])
            found = json.loads(seen["stdout"])
            out[f"events_{events}"] = {
                "gib_in_memory": size / 2**30,
                "peak_gib": seen["peak_gib"],
                **found,
                "events_per_s": events / found["seconds"],
            }
    return out
