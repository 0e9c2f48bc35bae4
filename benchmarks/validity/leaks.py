"""Ways to leak: what rows of train become in the synthetic table, and which rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

import daskpriv
from benchmarks.validity.worlds import PERSON, VISITS, Generator, NoWorldError, Places, World, numbers

_JITTER = 0.005
_NEAREST = 5
Frame = pd.DataFrame


# ------------------------------------------------------------------------------------------------------ which rows


def anywhere(world: World, rows: int, rng: Generator) -> Places:
    """Any rows of train."""
    return rng.permutation(len(world.train))[:rows]


def outliers(world: World, rows: int, rng: Generator) -> Places:
    """Of the fiftieth of train that is farthest from its fifth-nearest other row; more where more are asked for."""
    far = np.asarray(_near(world).distance)[:, -1]
    some = max(rows, len(far) // 50, 1)
    return rng.permutation(np.argsort(-far, kind="stable")[:some])[:rows]


def _near(world: World) -> daskpriv.NearestNeighbours:
    """The five nearest other rows of every row of train."""
    rows = world.train.drop(columns=PERSON, errors="ignore")
    return daskpriv.nearest_neighbours(rows, rows, k=_NEAREST, exclude_self=True)


def rare(world: World, rows: int, rng: Generator) -> Places:
    """Of the smallest native countries that together have so many rows."""
    country = world.train["native-country"]
    size = country.map(country.value_counts()).to_numpy()
    order = np.lexsort((rng.random(len(size)), size))
    most = size[order[rows - 1]]
    return rng.permutation(np.flatnonzero(size <= most))[:rows]


def people(world: World, rows: int, rng: Generator) -> Places:
    """All rows of some persons."""
    if PERSON not in world.train:
        raise NoWorldError('the leak "whole people" needs --base subjects')
    chosen = rng.permutation(world.train[PERSON].unique())[: rows // VISITS]
    return np.flatnonzero(world.train[PERSON].isin(chosen))


# ---------------------------------------------------------------------------------------------- what they become


def verbatim(world: World, places: Places, rng: Generator) -> Frame:
    """The rows as they are."""
    return world.train.iloc[places].reset_index(drop=True)


def shaken(rows: Frame, pool: Frame, rng: Generator) -> Frame:
    """Every number moved by a normal 0.5 % of its range, categories kept."""
    out = rows.copy()
    for c in numbers(pool):
        spread = float(pool[c].max() - pool[c].min())
        out[c] = out[c].astype(float) + _JITTER * spread * rng.standard_normal(len(out))
    return out


def jittered(world: World, places: Places, rng: Generator) -> Frame:
    """Numbers shaken, categories kept."""
    return shaken(verbatim(world, places, rng), world.train, rng)


def noisy(world: World, places: Places, rng: Generator) -> Frame:
    """Three columns of each row drawn anew from their marginals, then numbers shaken."""
    out = verbatim(world, places, rng)
    redrawn = rng.random(out.shape).argsort(axis=1) < 3
    for i, c in enumerate(out.columns):
        fresh = world.train[c].iloc[rng.integers(len(world.train), size=len(out))].reset_index(drop=True)
        out[c] = fresh.where(redrawn[:, i], out[c])
    return shaken(out, world.train, rng)


def interpolated(world: World, places: Places, rng: Generator) -> Frame:
    """Between a row and one of its five nearest others: numbers part of the way, categories of either (SMOTE)."""
    here = verbatim(world, places, rng)
    picked = np.asarray(_near(world).row)[places, rng.integers(_NEAREST, size=len(places))]
    there = world.train.iloc[picked].reset_index(drop=True)
    way = rng.random(len(here))
    out = here.where(rng.random(here.shape) < 0.5, there)
    for c in numbers(world.train):
        out[c] = (1 - way) * here[c].astype(float) + way * there[c].astype(float)
    return out


def partial(world: World, places: Places, rng: Generator) -> Frame:
    """Half of the columns from a row of train, the others from a synthetic row."""
    here = verbatim(world, places, rng)
    other = world.synthetic.iloc[rng.integers(len(world.synthetic), size=len(here))].reset_index(drop=True)
    kept = rng.random(here.shape).argsort(axis=1) < here.shape[1] // 2
    columns = {c: here[c].where(kept[:, i], other[c]) for i, c in enumerate(here.columns)}
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Leak:
    """What becomes of which rows."""

    made: Callable[[World, Places, Generator], Frame]
    chosen: Callable[[World, int, Generator], Places] = anywhere


LEAKS = {
    "verbatim": Leak(verbatim),
    "jittered": Leak(jittered),
    "noisy": Leak(noisy),
    "noisy outliers": Leak(noisy, outliers),
    "rare subgroup": Leak(verbatim, rare),
    "interpolated": Leak(interpolated),
    "half of the columns": Leak(partial),
    "whole people": Leak(verbatim, people),
}
FOR_ROWS = tuple(name for name in LEAKS if name != "whole people")


def leaking(world: World, leak: str, rows: int, rng: Generator) -> World:
    """The same world with `rows` synthetic rows replaced by leaked ones."""
    if not rows:
        return world
    if rows > min(len(world.synthetic), len(world.train)):
        raise NoWorldError(f"{rows} rows cannot leak: train or the synthetic table has fewer")
    places = LEAKS[leak].chosen(world, rows, rng)
    leaked = LEAKS[leak].made(world, places, rng)
    kept = world.synthetic.iloc[rng.permutation(len(world.synthetic))[: len(world.synthetic) - len(leaked)]]
    return replace(world, synthetic=appended(kept, leaked), copied=places)


def appended(kept: Frame, leaked: Frame) -> Frame:
    """Both, with numbers that are floats where one of them has floats."""
    floats = {c: float for c in numbers(kept) if kept[c].dtype != leaked[c].dtype}
    return pd.concat([kept.astype(floats), leaked.astype(floats)], ignore_index=True)
