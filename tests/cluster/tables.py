"""Tables for tests under faults: adult-like ones in several files and row groups, and ones full of canaries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from daskpriv.bench import adult_like, write_adult_like
from tests.cluster.canary import Canary

_SEEDS = {"train": 1, "holdout": 1_000_003, "synthetic": 2_000_003}


@dataclass(frozen=True)
class Tables:
    """Where the three tables are."""

    train: str
    holdout: str
    synthetic: str

    def options(self) -> list[str]:
        """For the command line."""
        return ["--train", self.train, "--holdout", self.holdout, "--synthetic", self.synthetic]

    def given(self) -> dict[str, str]:
        """For `daskpriv.evaluate`."""
        return {"train": self.train, "holdout": self.holdout, "synthetic": self.synthetic}


def write(folder: Path, frame: pd.DataFrame, files: int = 3, groups: int = 2) -> Path:
    """A directory of Parquet files of unequal lengths, each with so many row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = np.linspace(0, 1, files + 1) ** 1.2 * len(frame)
    for place, (start, stop) in enumerate(zip(ends[:-1].astype(int), ends[1:].astype(int), strict=True)):
        path = folder / f"part-{place:05d}.parquet"
        group = max(1, -(-(stop - start) // groups))
        frame.iloc[start:stop].to_parquet(path, compression="zstd", index=False, row_group_size=group)
    return folder


def _in(folder: Path, names: tuple[str, str, str] = ("train", "holdout", "synthetic")) -> Tables:
    return Tables(*(str(folder / name) for name in names))


def small(folder: Path, rows: int = 2_000, seed: int = 0, copies: int = 50) -> Tables:
    """Three files of two row groups per table; `copies` synthetic rows are training rows."""
    frames = {name: adult_like(rows, key + seed) for name, key in _SEEDS.items()}
    frames["synthetic"] = pd.concat([frames["synthetic"], frames["train"].head(copies)], ignore_index=True)
    for name, frame in frames.items():
        write(folder / name, frame)
    return _in(folder)


def medium(folder: Path, rows: int = 60_000, seed: int = 0, file_rows: int = 12_000) -> Tables:
    """Several files per table: enough work to be hit by faults."""
    for name, key in _SEEDS.items():
        write_adult_like(folder / name, rows, key + seed, file_rows=file_rows)
    return _in(folder)


@dataclass(frozen=True)
class CanaryTables:
    """Tables, and the values that may appear in no log, error, report, key or spill file."""

    tables: Tables
    canaries: list[Canary]


def canaries(folder: Path, rows: int = 240, seed: int = 0) -> CanaryTables:
    """Texts, whole numbers and fractions that occur nowhere else; columns are called as usual."""
    frames, values = {}, list[Canary]()
    for name in _SEEDS:
        frames[name] = _canary_frame(name, rows, seed)
    # Some rows of train also stand in synthetic: exact matches, which tempt a report to show them.
    copied = [frames["train"].head(rows // 8), frames["synthetic"].iloc[rows // 8 :]]
    frames["synthetic"] = pd.concat(copied, ignore_index=True)
    for name, frame in frames.items():
        write(folder / name, frame)
        values += [v for column in ("note", "city") for v in frame[column].unique().tolist()]
        values += [int(v) for v in frame["account"].head(40)] + [float(v) for v in frame["income"].head(40)]
    return CanaryTables(_in(folder), sorted(set(values), key=str))


def _canary_frame(name: str, rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, len(name)])
    tag = name[0].upper()
    return pd.DataFrame(
        {
            "note": [f"CANARY{tag}NOTE{seed}x{i:05d}" for i in range(rows)],
            "city": rng.choice([f"CANARY{tag}CITY{seed}x{i}" for i in range(5)], rows),
            "account": rng.integers(7_310_000_000_000_000, 7_319_999_999_999_999, rows),
            "income": rng.normal(31_415.926, 2_718.28, rows),
            "age": rng.integers(18, 90, rows),
        }
    )


def with_bad_cells(folder: Path, rows: int = 240, seed: int = 0) -> CanaryTables:
    """The same as CSV, and late in train a number column holds text: errors must not quote it."""
    made = canaries(folder / "good", rows, seed)
    bad = f"CANARYBADCELL{seed}"
    for name, source in made.tables.given().items():
        frame = pd.read_parquet(source).astype({"age": object})
        if name == "train":
            frame.loc[rows - 2, "age"] = bad
        frame.to_csv(folder / f"{name}.csv", index=False)
    return CanaryTables(_in(folder, ("train.csv", "holdout.csv", "synthetic.csv")), [*made.canaries, bad])
