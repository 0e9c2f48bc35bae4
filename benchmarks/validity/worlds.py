"""Worlds with a known answer: where nothing leaks (suites) and where a known number of rows does (leaks).

The rows are those of adult and its synthetic tables in ../shared/data. All draws are keyed by the number of the trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

ADULT = Path(__file__).resolve().parents[3] / "shared" / "data" / "adult"
_LOW = ("workclass", "education", "marital_status", "relationship", "race", "sex", "income")
Generator = np.random.Generator


@dataclass(frozen=True)
class World:
    """Three tables of one trial."""

    train: pd.DataFrame
    holdout: pd.DataFrame
    synthetic: pd.DataFrame


def rng_of(*keys: int) -> Generator:
    """Randomness of one trial."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(keys)))


def table(name: str) -> pd.DataFrame:
    """One file of adult."""
    return pd.read_parquet(ADULT / f"{name}.parquet")


def real() -> pd.DataFrame:
    """All real rows."""
    return pd.concat([table("train"), table("holdout")], ignore_index=True)


def low(frame: pd.DataFrame) -> pd.DataFrame:
    """Seven columns of few values: distances tie."""
    names = {c.replace("-", "_"): c for c in frame.columns}
    return frame[[names[c] for c in _LOW]]


def heavy(frame: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    """Three more columns with tails so heavy that one row sets their range."""
    more = {f"heavy{i}": np.exp(2.5 * rng.standard_normal(len(frame))) for i in range(3)}
    return frame.assign(**more)


def _drawn(pool: pd.DataFrame, rng: Generator, *sizes: int) -> list[pd.DataFrame]:
    """Disjoint random parts of a pool."""
    order = rng.permutation(len(pool))[: sum(sizes)]
    ends = np.cumsum(sizes)[:-1]
    return [pool.iloc[part].reset_index(drop=True) for part in np.split(order, ends)]


def balanced(rng: Generator) -> World:
    """Fifteen columns, equal sizes, synthetic rows that are fresh real ones."""
    return World(*_drawn(real(), rng, 1000, 1000, 1000))


def many_synthetic(rng: Generator) -> World:
    """Twice as many synthetic rows as real ones."""
    return World(*_drawn(real(), rng, 500, 500, 2000))


def four_to_one(rng: Generator) -> World:
    """Train four times as large as holdout."""
    return World(*_drawn(real(), rng, 1600, 400, 1000))


def low_cardinality(rng: Generator) -> World:
    """Seven columns of few values."""
    return World(*_drawn(low(real()), rng, 1000, 1000, 1000))


def low_four_to_one(rng: Generator) -> World:
    """Seven columns of few values, train four times as large."""
    return World(*_drawn(low(real()), rng, 1600, 400, 1000))


def _unseen(name: str) -> Callable[[Generator], World]:
    def world(rng: Generator) -> World:
        train, holdout = _drawn(table("holdout"), rng, 1000, 1000)
        return World(train, holdout, *_drawn(table(name), rng, 1000))

    world.__doc__ = f"Synthetic rows of {name}, real rows that its generator never saw."
    return world


def repeated(rng: Generator) -> World:
    """Fifty synthetic rows, twenty times each."""
    train, holdout, few = _drawn(real(), rng, 1000, 1000, 50)
    return World(train, holdout, pd.concat([few] * 20, ignore_index=True))


def heavy_tails(rng: Generator) -> World:
    """Columns whose range one row sets."""
    return World(*(heavy(part, rng) for part in _drawn(real(), rng, 1000, 1000, 1000)))


SUITES: dict[str, Callable[[Generator], World]] = {
    "balanced": balanced,
    "m = 2N": many_synthetic,
    "80/20": four_to_one,
    "low cardinality": low_cardinality,
    "low cardinality 80/20": low_four_to_one,
    "TVAE, unseen": _unseen("syn_tvae"),
    "CTGAN, unseen": _unseen("syn_ctgan"),
    "50 rows x 20": repeated,
    "heavy tails": heavy_tails,
}


# ---------------------------------------------------------------------------------------------------------- leaks


def numbers(frame: pd.DataFrame) -> list[str]:
    """Columns that hold numbers."""
    return [c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c])]


def verbatim(rows: pd.DataFrame, pool: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    """Training rows as they are."""
    return rows


def jittered(rows: pd.DataFrame, pool: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    """Every number moved by a normal 0.5 % of its range, categories kept."""
    out = rows.copy()
    for c in numbers(pool):
        spread = float(pool[c].max() - pool[c].min())
        out[c] = out[c].astype(float) + 0.005 * spread * rng.standard_normal(len(out))
    return out


def noisy(rows: pd.DataFrame, pool: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    """Three columns of each row drawn anew from their marginals, then jittered."""
    out = rows.copy().reset_index(drop=True)
    for i in range(len(out)):
        for c in rng.choice(len(out.columns), 3, replace=False):
            out.iat[i, c] = pool.iat[int(rng.integers(len(pool))), c]
    return jittered(out, pool, rng)


def isolated(train: pd.DataFrame, share: float = 0.02) -> np.ndarray:
    """The most isolated training rows, by the fifth-nearest other one."""
    import daskpriv

    found = daskpriv.nearest_neighbours(train, train, k=5, exclude_self=True)
    far = np.asarray(found.distance)[:, 4]
    return np.argsort(-far, kind="stable")[: max(1, int(share * len(train)))]


LEAKS = {"verbatim": verbatim, "jittered": jittered, "noisy": noisy, "noisy outliers": noisy}


def base(name: str, n: int, rng: Generator) -> World:
    """A world without a leak: "ideal" (fresh real rows) or a generator that never saw these real rows."""
    if name == "ideal":
        return World(*_drawn(real(), rng, n, n, n))
    train, holdout = _drawn(table("holdout"), rng, n, n)
    return World(train, holdout, *_drawn(table(f"syn_{name}"), rng, n))


def leaking(world: World, leak: str, rows: int, rng: Generator) -> World:
    """The same world with `rows` synthetic rows replaced by leaked ones."""
    if not rows:
        return world
    n = len(world.train)
    if leak == "noisy outliers":
        places = isolated(world.train, max(0.02, rows / n))
        chosen = rng.permutation(places)[:rows]
    else:
        chosen = rng.permutation(n)[:rows]
    leaked = LEAKS[leak](world.train.iloc[chosen].reset_index(drop=True), world.train, rng)
    synthetic = world.synthetic.copy()
    for c in numbers(world.train):
        synthetic[c] = synthetic[c].astype(float)
        leaked[c] = leaked[c].astype(float)
    kept = synthetic.iloc[rng.permutation(len(synthetic))[: len(synthetic) - rows]]
    return World(world.train, world.holdout, pd.concat([kept, leaked], ignore_index=True))
