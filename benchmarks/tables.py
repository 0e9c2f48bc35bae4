"""Seeded tables of any size that look like the adult census: skewed numbers, categories of unequal frequency."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_CATEGORIES = {
    "work": 8,
    "education": 16,
    "marital": 7,
    "job": 14,
    "relation": 6,
    "race": 5,
    "sex": 2,
    "country": 41,
    "class": 2,
}


def adult_like(rows: int, seed: int) -> pa.Table:
    """6 numeric and 9 categorical columns; rows of different seeds are independent."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    group = rng.integers(0, 50, rows)
    columns: dict[str, pa.Array] = {
        "age": pa.array(np.clip(rng.normal(38 + group % 7, 13, rows), 17, 90).astype(np.int64)),
        "weight": pa.array(rng.lognormal(12, 0.5, rows).astype(np.int64)),
        "years": pa.array(np.clip(rng.normal(10 + group % 3, 2.5, rows), 1, 16).astype(np.int64)),
        "gain": pa.array(np.where(rng.random(rows) < 0.08, rng.lognormal(8, 1, rows), 0).astype(np.int64)),
        "loss": pa.array(np.where(rng.random(rows) < 0.05, rng.normal(1900, 350, rows), 0).astype(np.int64)),
        "hours": pa.array(np.clip(rng.normal(40, 12, rows), 1, 99).astype(np.int64)),
    }
    for name, size in _CATEGORIES.items():
        code = np.minimum(rng.geometric(min(0.9, 3.0 / size), rows) - 1 + (group % 3 == 0), size - 1)
        columns[name] = pa.array([f"{name}-{i}" for i in range(size)]).take(pa.array(code))
    return pa.table(columns)


def write_directory(folder: Path, rows: int, rows_per_file: int, seed: int) -> Path:
    """A directory of Parquet files, written file by file."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, start in enumerate(range(0, rows, rows_per_file)):
        table = adult_like(min(rows_per_file, rows - start), seed + place)
        pq.write_table(table, folder / f"part-{place:05d}.parquet", compression="zstd")
    return folder
