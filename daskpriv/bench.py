"""One large exact search on made-up tables, timed and checked: what `daskpriv bench` runs."""

from __future__ import annotations

import functools
import operator
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from daskpriv.events import Event, StageStarted, silent
from daskpriv.neighbours import nearest_neighbours

_FILE_ROWS = 250_000
_JITTER = {"age": 2, "education-num": 0, "hours-per-week": 1}


def adult_like(rows: int, seed: int, redraw: float = 0.3) -> pd.DataFrame:
    """Rows like those of the adult census: 6 numeric and 9 categorical columns, as many rows as you like.

    Each row starts as a real one; every cell is then drawn again from its column with probability `redraw`
    (1: all columns are independent), and numbers are shaken a little, so that rows are nearly all distinct.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    with as_file(files("daskpriv") / "data" / "adult" / "train.parquet") as path:
        real = pd.read_parquet(path)
    base = rng.integers(0, len(real), rows)
    out: dict[str, Any] = {}
    for name in real.columns:
        chosen = np.where(rng.random(rows) < redraw, rng.integers(0, len(real), rows), base)
        column: Any = real[name].take(chosen).reset_index(drop=True)
        if pd.api.types.is_numeric_dtype(column):
            column = _shaken(column.to_numpy(), name, rng)
        out[name] = column
    return pd.DataFrame(out)


def _shaken(values: NDArray[Any], name: str, rng: np.random.Generator) -> NDArray[Any]:
    """Small steps for small whole numbers, 5 % for the others; 0 stays 0."""
    step = _JITTER.get(name)
    if step is not None:
        return np.clip(values + rng.integers(-step, step + 1, len(values)), values.min(), values.max())
    return np.where(values == 0, 0, np.rint(values * np.exp(rng.normal(0, 0.05, len(values))))).astype(values.dtype)


def write_adult_like(folder: Path, rows: int, seed: int, redraw: float = 0.3, file_rows: int = _FILE_ROWS) -> Path:
    """The same as a directory of Parquet files; file i has seed + i, so that memory stays small."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, start in enumerate(range(0, rows, file_rows)):
        part = adult_like(min(file_rows, rows - start), seed + place, redraw)
        part.to_parquet(folder / f"part-{place:05d}.parquet", compression="zstd", index=False)
    return folder


@dataclass
class Stopwatch:
    """Seconds from the start of each stage to the start of the next."""

    seconds: dict[str, float] = field(default_factory=dict)
    _stage: str = ""
    _begun: float = 0.0

    def __call__(self, event: Event) -> None:
        """Listen to the engine."""
        if isinstance(event, StageStarted):
            self.lap(event.stage)

    def lap(self, stage: str) -> None:
        """The running stage ends, `stage` begins."""
        now = time.perf_counter()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._begun
        self._stage, self._begun = stage, now


@dataclass(frozen=True)
class Headline:
    """What one run took.

    Attributes
    ----------
    rows, references, k : int
    seconds : float
        Wall time of the whole search, from the files to the neighbours in memory.
    stages : {stage: seconds}
    checked, wrong : int
        Query rows compared with a plain float64 search of all reference rows, and how many differ in any bit.
    """

    rows: int
    references: int
    k: int
    seconds: float
    stages: dict[str, float]
    checked: int
    wrong: int

    @property
    def pairs(self) -> int:
        """Pairs of rows that the answer takes into account."""
        return self.rows * self.references

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        rates = {"pairs": self.pairs, "gpairs_per_s": self.pairs / self.seconds / 1e9}
        return {**asdict(self), **rates}


def headline(
    rows: int,
    references: int | None = None,
    k: int = 2,
    redraw: float = 0.3,
    check: int = 50,
    client: Any = None,
    progress: Any = silent,
) -> Headline:
    """Search made-up tables of these sizes and check some rows."""
    references = references or rows
    watch = Stopwatch()

    def listen(event: Event) -> None:
        watch(event)
        progress(event)

    with tempfile.TemporaryDirectory(prefix="daskpriv-bench-") as folder:
        reference = write_adult_like(Path(folder) / "reference", references, 1, redraw)
        query = write_adult_like(Path(folder) / "query", rows, 1_000_003, redraw)
        begun = time.perf_counter()
        watch.lap("open")
        found = nearest_neighbours(str(query), str(reference), k=k, client=client, progress=listen).compute()
        watch.lap("end")
        seconds = time.perf_counter() - begun
        wrong = sum(_differs(found, i, d, j, t) for i, d, j, t in _plain(query, reference, rows, k, check))
    return Headline(rows, references, k, seconds, watch.seconds, min(check, rows), wrong)


def _differs(found: Any, i: int, distance: NDArray[Any], row: NDArray[Any], ties: int) -> bool:
    same = np.array_equal(found.distance[i], distance) and np.array_equal(found.row[i], row)
    return not (same and int(found.ties[i]) == ties)


def _plain(
    query: Path, reference: Path, rows: int, k: int, check: int
) -> Iterator[tuple[int, NDArray[Any], NDArray[Any], int]]:
    """The definition, in NumPy, for some query rows: (row, distances, reference rows, ties)."""
    refs = pd.read_parquet(reference)
    asked = pd.read_parquet(query)
    columns = {name: _values(refs[name]) for name in refs.columns}
    for i in np.linspace(0, rows - 1, min(check, rows)).astype(int):
        gaps = (_gap(asked[name].iloc[i], *column) for name, column in columns.items())
        distance = functools.reduce(operator.add, gaps) / len(refs.columns)
        best = np.argsort(distance, kind="stable")[:k]
        pad = k - len(best)
        yield (
            int(i),
            np.append(distance[best], [np.inf] * pad),
            np.append(best, [-1] * pad),
            int((distance == distance.min()).sum()),
        )


def _values(column: pd.Series[Any]) -> tuple[Any, float]:
    """The cells of a column and their range; 0 where only equality counts."""
    if not pd.api.types.is_numeric_dtype(column):
        return column, 0.0
    values = column.to_numpy().astype(float)
    return values, float(values.max() - values.min())


def _gap(mine: Any, values: Any, span: float) -> NDArray[Any]:
    return np.asarray(np.minimum(np.abs(values - float(mine)) / span, 1.0) if span else values != mine, float)
