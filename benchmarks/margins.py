"""Cross-tabulations of all sets of two and three columns: seconds of one core, beside a loop over pandas' crosstab."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import daskpriv
from daskpriv.kernels import crosstab
from daskpriv.metrics import Accuracy
from daskpriv.stats.combinations import chosen

ROWS, COLUMNS = 1_000_000, 100
_BLOCK = 65_536
_SOME_PAIRS = 10


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


def kernel(rows: int, columns: int, order: int, width: int, most: int) -> dict[str, float]:
    """The counting alone, on one block of rows, and what all sets of all rows take at this pace."""
    table, sets = codes(min(rows, _BLOCK), columns, width), chosen(columns, order, most)
    widths = np.full(columns, width, np.int64)
    starts = np.arange(len(sets) + 1) * width**order
    out = np.zeros(starts[-1], np.int64)
    seconds = cpu(lambda: crosstab.count(table, widths, sets, starts, out))
    per = seconds / table.shape[1] / len(sets)
    return {"ns_per_row_and_set": per * 1e9, "all_sets_of_one_table_cpu_s": per * rows * math.comb(columns, order)}


def whole(rows: int, columns: int) -> float:
    """Seconds of one core for everything between two frames and the report of all pairs."""
    values = {f"c{i}": line for i, line in enumerate(codes(rows, columns, 10).astype(float))}
    train = pd.DataFrame(values)
    synthetic = train.sample(frac=1.0, replace=True, random_state=0)
    return cpu(lambda: daskpriv.evaluate(train, synthetic, metrics=[Accuracy(orders=(2,))]), 1)


def run(tiny: bool) -> dict[str, Any]:
    """Kernel, whole call, and pandas on the same codes."""
    rows, columns = (5_000, 10) if tiny else (ROWS, COLUMNS)
    frame = pd.DataFrame(codes(rows, _SOME_PAIRS + 1, 10).T)
    pandas = cpu(lambda: [pd.crosstab(frame[0], frame[i + 1]) for i in range(_SOME_PAIRS)], 1) / _SOME_PAIRS
    pairs = kernel(rows, columns, 2, 12, 45 if tiny else 4950)
    return {
        "pairs": pairs,
        "triples": kernel(rows, columns, 3, 7, 120 if tiny else 4950),
        "whole_call_all_pairs_cpu_s": whole(rows // 10, columns),
        "pandas_ns_per_row_and_pair": pandas / rows * 1e9,
        "times_pandas_crosstab": pandas / rows * 1e9 / pairs["ns_per_row_and_set"],
    }
