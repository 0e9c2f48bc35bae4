"""Wide made-up tables with the mix that real ones have: skewed numbers, heavy zeros, long tails of categories.

Columns hang together through a few hidden traits, some strongly, some not at all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

NUMERIC, CATEGORICAL = 60, 40
_TRAITS = 6
_GROUP_ROWS = 100_000
_CARDINALITIES = (2, 2, 3, 4, 5, 7, 9, 12, 16, 25, 40, 80, 200, 1_000)
_MISSING = (0.0, 0.0, 0.02, 0.0, 0.15)

Floats = npt.NDArray[np.float64]


def write_wide(path: Path, rows: int, seed: int, shaken: float = 0.0) -> Path:
    """A Parquet file of `NUMERIC + CATEGORICAL` columns, mixed; `shaken` moves it away from the table without."""
    with pq.ParquetWriter(path, wide(1, seed).schema, compression="zstd") as file:
        for place, start in enumerate(range(0, rows, _GROUP_ROWS)):
            file.write_table(wide(min(_GROUP_ROWS, rows - start), seed, place, shaken))
    return path


def wide(rows: int, seed: int, part: int = 0, shaken: float = 0.0) -> pa.Table:
    """One part of such a table, float64, int64 and string columns, three of five columns numeric."""
    rng = np.random.Generator(np.random.Philox(key=[seed, part]))
    traits = rng.normal(0, 1, (_TRAITS, rows))
    columns: dict[str, pa.Array] = {}
    for i in range(NUMERIC + CATEGORICAL):
        grade = _grade(i, traits, rng, shaken)
        missing = rng.random(rows) < _MISSING[i % len(_MISSING)]
        if i % 5 < 3:
            columns[f"n{i:02d}"] = pa.array(_numbers(i, grade), mask=missing)
        else:
            columns[f"c{i:02d}"] = pa.array(_names(i, grade), mask=missing)
    return pa.table(columns)


def _grade(i: int, traits: Floats, rng: np.random.Generator, shaken: float) -> Floats:
    """A standard normal number per row: the share of a hidden trait grows with the column's place modulo 7."""
    share = (i % 7) / 7 * (1 - shaken)
    return np.sqrt(share) * traits[i % _TRAITS] + np.sqrt(1 - share) * rng.normal(0, 1, traits.shape[1])


def _numbers(i: int, grade: Floats) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """Amounts, whole amounts with many zeros, ages, measurements."""
    kind = i % 4
    if kind == 0:
        return np.round(np.exp(6 + 1.2 * grade), 2)
    if kind == 1:
        return np.where(grade < 0.8, 0, np.rint(np.exp(4 + grade))).astype(np.int64)
    return np.clip(np.rint(40 + 13 * grade), 17, 90).astype(np.int64) if kind == 2 else grade


def _names(i: int, grade: Floats) -> pa.Array:
    """Categories whose shares fall like 1 / rank, in the order of the grade."""
    wanted = _CARDINALITIES[i % len(_CARDINALITIES)]
    shares = np.cumsum(1 / np.arange(1, wanted + 1))
    place = np.searchsorted(shares / shares[-1], 1 / (1 + np.exp(-1.7 * grade)))  # close to the normal distribution
    names = pa.array([f"c{i:02d}-{j:04d}" for j in range(wanted)])
    return names.take(pa.array(np.minimum(place, wanted - 1)))
