"""Worlds where nothing leaks, each hard for some test: what the false alarms are counted in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.validity.worlds import Generator, World, collapsed, drawn, real, subjects, unseen

_LOW = ("workclass", "education", "marital-status", "relationship", "race", "sex", "income")
_N = 1000


def low(frame: pd.DataFrame) -> pd.DataFrame:
    """Seven columns of few values: distances tie."""
    return frame[list(_LOW)]


def heavy(frame: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    """Three more columns with tails so heavy that one row sets their range."""
    more = {f"heavy{i}": np.exp(2.5 * rng.standard_normal(len(frame))) for i in range(3)}
    return frame.assign(**more)


def balanced(rng: Generator) -> World:
    """Fifteen columns, equal sizes, synthetic rows that are fresh real ones."""
    return World(*drawn(real(), rng, _N, _N, _N))


def many_synthetic(rng: Generator) -> World:
    """Twice as many synthetic rows as real ones."""
    return World(*drawn(real(), rng, 500, 500, 2000))


def four_to_one(rng: Generator) -> World:
    """Train four times as large as holdout."""
    return World(*drawn(real(), rng, 1600, 400, _N))


def low_cardinality(rng: Generator) -> World:
    """Seven columns of few values."""
    return World(*drawn(low(real()), rng, _N, _N, _N))


def low_four_to_one(rng: Generator) -> World:
    """Seven columns of few values, train four times as large."""
    return World(*drawn(low(real()), rng, 1600, 400, _N))


def heavy_tails(rng: Generator) -> World:
    """Columns whose range one row sets."""
    return World(*(heavy(part, rng) for part in drawn(real(), rng, _N, _N, _N)))


def keyless(rng: Generator) -> World:
    """The suite "subjects", evaluated as if every row were another person."""
    world = subjects(_N, rng)
    tables = (t.drop(columns="person") for t in (world.train, world.holdout, world.synthetic))
    return World(*tables)


SUITES: dict[str, Callable[[Generator], World]] = {
    "balanced": balanced,
    "m = 2N": many_synthetic,
    "80/20": four_to_one,
    "low cardinality": low_cardinality,
    "low cardinality 80/20": low_four_to_one,
    "TVAE, unseen": lambda rng: unseen("tvae", _N, rng),
    "CTGAN, unseen": lambda rng: unseen("ctgan", _N, rng),
    "50 rows x 20": lambda rng: collapsed(_N, rng),
    "heavy tails": heavy_tails,
    "subjects": lambda rng: subjects(_N, rng),
}
# What the key of subjects is for; no goal holds here, and "all" leaves it out.
MISUSED = {"subjects, key not told": keyless}
PLACE = {name: place for place, name in enumerate((*SUITES, *MISUSED))}
