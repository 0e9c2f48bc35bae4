"""Made-up census rows of any number, hardly ever two alike: for studies larger than adult."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from daskpriv.bench import adult_like

_FILE_ROWS = 250_000
# Among a million rows about 5 in a million of those of adult have a twin in another million; cents make them rarer.
_PAY = "pay"


def census(rows: int, seed: int) -> pd.DataFrame:
    """The columns of adult and an hourly pay that follows education."""
    out = adult_like(rows, seed)
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 1])))
    cents = np.exp(7 + 0.09 * out["education-num"].to_numpy(float) + 0.4 * rng.standard_normal(rows))
    return out.assign(**{_PAY: np.rint(cents).astype(np.int64)})


def write(
    folder: Path,
    rows: int,
    seed: int,
    change: Callable[[int, pd.DataFrame], pd.DataFrame] = lambda start, part: part,
) -> Path:
    """The same as a directory of Parquet files, one of them in memory at a time.

    `change` sees the number of the first row of each file, and its rows.
    """
    folder.mkdir(parents=True)
    for place, start in enumerate(range(0, rows, _FILE_ROWS)):
        part = change(start, census(min(_FILE_ROWS, rows - start), seed * 1_000_003 + place))
        part.to_parquet(folder / f"part-{place:05d}.parquet", compression="zstd", index=False)
    return folder
