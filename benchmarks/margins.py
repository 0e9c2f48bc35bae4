"""The kernels that count cross-tabulations of two and three columns: row by row, and from bit planes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from daskpriv.kernels import crosstab, planes
from daskpriv.stats.combinations import chosen

ROWS, COLUMNS = 1_000_000, 100
_BLOCK = 65_536


def codes(rows: int, columns: int, width: int) -> np.ndarray[Any, Any]:
    """Skewed codes, as buckets of categories have them; uint8 (columns, rows)."""
    rng = np.random.default_rng(0)
    draws = (rng.integers(0, width, (columns, rows), dtype=np.uint8) for _ in range(2))
    return np.minimum(*draws)


def cpu(work: Callable[[], Any], times: int = 3) -> float:
    """Seconds of one core, the fastest of some runs."""
    found = []
    for _ in range(times):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return min(found)


def compared(rows: int, columns: int, order: int, width: int, most: int) -> dict[str, float]:
    """The counting alone, on one block of rows, and what all sets of all rows take at this pace."""
    table, sets = codes(min(rows, _BLOCK), columns, width), chosen(columns, order, most)
    widths = np.full(columns, width, np.int64)
    starts = np.arange(len(sets) + 1) * width**order
    out: dict[str, float] = {}
    counts = {}
    for name, count in (("row_by_row", crosstab.count), ("planes", planes.count_small)):
        counts[name] = np.zeros(starts[-1], np.int64)
        count(table, widths, sets, starts, counts[name])
        spare = np.zeros(starts[-1], np.int64)
        per = (
            cpu(lambda count=count, spare=spare: count(table, widths, sets, starts, spare)) / table.shape[1] / len(sets)
        )
        out[f"{name}_ns_per_row_and_set"] = per * 1e9
        out[f"{name}_all_sets_of_one_table_cpu_s"] = per * rows * math.comb(columns, order)
    return {**out, "bit_identical": float((counts["planes"] == counts["row_by_row"]).all())}


def run(tiny: bool) -> dict[str, Any]:
    """Pairs of twelve codes and triples of seven, as `accuracy` has them."""
    rows, columns = (5_000, 10) if tiny else (ROWS, COLUMNS)
    pairs = compared(rows, columns, 2, 12, 45 if tiny else 4950)
    triples = compared(rows, columns, 3, 7, 120 if tiny else 4950)
    both = pairs.pop("bit_identical") == triples.pop("bit_identical") == 1.0
    return {"pairs": pairs, "triples": triples, "bit_identical": both}
