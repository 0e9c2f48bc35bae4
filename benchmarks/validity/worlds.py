"""Worlds with a known answer: three tables of which it is known whether, and what, they leak.

The rows are those of adult; the bases named after a generator need its table in ../shared/data. All draws are keyed
by the number of the trial.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.datasets import PACKAGED, SHARED
from benchmarks.validity.census import census

REPEATS, VISITS, PERSON = 20, 4, "person"
Generator = np.random.Generator
Places = npt.NDArray[np.int64]


class NoWorldError(Exception):
    """What was asked for cannot be made; the message says why."""


@dataclass(frozen=True)
class World:
    """Three tables of one trial, how to evaluate them, and which rows of train were leaked."""

    train: pd.DataFrame
    holdout: pd.DataFrame
    synthetic: pd.DataFrame
    options: dict[str, Any] = field(default_factory=dict)
    copied: Places = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def mirrored(self) -> World:
        """The same world had the split fallen the other way."""
        return replace(self, train=self.holdout, holdout=self.train)


def rng_of(*keys: int | str) -> Generator:
    """Randomness of one trial; words count by their bytes, not by their place in a list."""
    numbers = [zlib.crc32(k.encode()) if isinstance(k, str) else k for k in keys]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(numbers)))


@lru_cache(maxsize=4)
def table(name: str) -> pd.DataFrame:
    """One file of adult; train and holdout are in the package, too."""
    path: Path = PACKAGED / f"{name}.parquet"
    path = path if path.exists() else SHARED / "adult" / f"{name}.parquet"
    if not path.exists():
        raise NoWorldError(f"{path} is not there: this base needs ../shared/data.")
    return pd.read_parquet(path)


def real() -> pd.DataFrame:
    """All real rows."""
    return pd.concat([table("train"), table("holdout")], ignore_index=True)


def drawn(pool: pd.DataFrame, rng: Generator, *sizes: int) -> list[pd.DataFrame]:
    """Disjoint random parts of a pool."""
    if sum(sizes) > len(pool):
        raise NoWorldError(f"{sum(sizes)} rows are asked for, and there are {len(pool)}; take a smaller --n.")
    order = rng.permutation(len(pool))[: sum(sizes)]
    ends = np.cumsum(sizes)[:-1]
    return [pool.iloc[part].reset_index(drop=True) for part in np.split(order, ends)]


def numbers(frame: pd.DataFrame) -> list[str]:
    """Columns that hold numbers; whose row it is is none."""
    return [c for c in frame.columns if c != PERSON and pd.api.types.is_numeric_dtype(frame[c])]


# ---------------------------------------------------------------------------------------------------------- bases


def ideal(n: int, rng: Generator) -> World:
    """Synthetic rows that are fresh real ones."""
    return World(*drawn(real(), rng, n, n, n))


def unseen(generator: str, n: int, rng: Generator, synthetic: int | None = None) -> World:
    """Synthetic rows of a generator, and real rows that it never saw."""
    train, holdout = drawn(table("holdout"), rng, n, n)
    return World(train, holdout, *drawn(table(f"syn_{generator}"), rng, synthetic or n))


def collapsed(n: int, rng: Generator, synthetic: int | None = None) -> World:
    """Few distinct synthetic rows, each many times."""
    m = synthetic or n
    train, holdout, few = drawn(real(), rng, n, n, max(1, m // REPEATS))
    return World(train, holdout, pd.concat([few] * REPEATS, ignore_index=True))


def made_up(n: int, rng: Generator) -> World:
    """Rows of a made-up census, as many as one likes."""
    return World(*(census(n, int(rng.integers(2**62))) for _ in range(3)))


def visits(people: pd.DataFrame, first: int, rng: Generator) -> pd.DataFrame:
    """Four nearly equal rows of each person, a year apart."""
    out = people.loc[people.index.repeat(VISITS)].reset_index(drop=True)
    visit = np.tile(np.arange(VISITS), len(people))
    out["age"] += visit
    out["hours-per-week"] = np.clip(out["hours-per-week"] + rng.integers(-1, 2, len(out)), 1, 99)
    out["fnlwgt"] += rng.integers(-50, 51, len(out))
    return out.assign(**{PERSON: first + np.arange(len(out)) // VISITS})


def subjects(n: int, rng: Generator) -> World:
    """Four rows per person, also in the synthetic table; whole persons are in train or in holdout."""
    people = drawn(real(), rng, *[n // VISITS] * 3)
    tables = [visits(some, i * n, rng) for i, some in enumerate(people)]
    return World(*tables, options={"subject_key": PERSON})


GENERATORS = ("ctgan", "tvae", "mostly")
BASES: dict[str, Callable[[int, Generator], World]] = {
    "ideal": ideal,
    "ctgan": lambda n, rng: unseen("ctgan", n, rng),
    "tvae": lambda n, rng: unseen("tvae", n, rng),
    "mostly": lambda n, rng: unseen("mostly", n, rng),
    "mode-collapsed": collapsed,
    "subjects": subjects,
    "made-up": made_up,
}
