"""Label draws, distances and p-values of small tables in plain NumPy: nothing here comes from daskpriv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tests import reference as ref

DRAWS = 1999
MASK = 2**64 - 1
Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]
Test = tuple[float, Floats]


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea & Flood 2014, as published by Vigna)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(key: int, rows: Sequence[int]) -> NDArray[np.uint64]:
    """64 random bits of each row under a key."""
    steps = np.asarray(rows, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed(np.uint64(key & MASK) + steps)


def drawn_labels(n_train: int, n_holdout: int, seed: int = 0) -> Labels:
    """Which real rows each draw calls train, bool (draws, n): those of the smallest hashes."""
    n = n_train + n_holdout
    keys = hashes(seed ^ 0x5DEECE66D1CE4E5B, range(DRAWS))
    found = np.stack([hashes(int(k), range(n)) for k in keys])
    out = np.zeros(found.shape, bool)
    np.put_along_axis(out, np.argsort(found, axis=1)[:, :n_train], True, axis=1)
    return out


def between_all(
    columns: Sequence[ref.Col], train: ref.Rows, holdout: ref.Rows, synthetic: ref.Rows
) -> tuple[Floats, Floats]:
    """Distances of all real rows (train first) to each other, inf to themselves, and to all synthetic rows."""
    real = {name: [*train[name], *holdout[name]] for name in train}
    ranges = ref.ranges_for("real", columns, real, real, [train, holdout], [train, holdout, synthetic])
    own = np.array(ref.distances(columns, real, real, ranges))
    np.fill_diagonal(own, np.inf)
    return own, np.array(ref.distances(columns, real, synthetic, ranges))


def widest_all(
    columns: Sequence[ref.Col], train: ref.Rows, holdout: ref.Rows, synthetic: ref.Rows, distance: Floats
) -> Floats:
    """The largest difference in any column to the nearest synthetic rows, the smallest of all these; float64 (n,)."""
    real = {name: [*train[name], *holdout[name]] for name in train}
    ranges = ref.ranges_for("real", columns, real, real, [train, holdout], [train, holdout, synthetic])
    most = np.zeros(distance.shape)
    for col in columns:
        cells = [
            [ref.cell_distance(col, x, y, ranges[col.name], "level") for y in synthetic[col.name]]
            for x in real[col.name]
        ]
        most = np.maximum(most, np.array(cells, float) * (col.weight > 0))
    return np.where(distance == distance.min(axis=1, keepdims=True), most, np.inf).min(axis=1)


def at_least(observed: float, drawn: Floats) -> float:
    """(1 + draws at least as large) / (1 + draws); numbers that only rounding sets apart are equal."""
    return (1 + int(np.sum(drawn >= observed - 1e-9))) / (1 + len(drawn))


def smallest_adjusted(tests: Mapping[str, Test]) -> float:
    """How often the smallest p-value of any draw is as small as the smallest observed one (Westfall & Young 1993).

    The observed labels count as one more draw, and the p-value of a draw is its place among all of them.
    """
    places = []
    for observed, drawn in tests.values():
        whole = np.append(drawn, observed)
        places.append([int(np.sum(whole >= x - 1e-9)) for x in whole])
    smallest = np.min(places, axis=0)
    return float(np.mean(smallest <= smallest[-1]))


def auc(values: Floats, labels: Labels) -> Floats:
    """P(a < b) + P(a = b) / 2 for rows a labelled train and b not; float64 (draws,); 1/2 without pairs."""
    if not len(values):
        return np.full(len(labels), 0.5)
    wins = np.where(values[:, None] < values, 1.0, np.where(values[:, None] == values, 0.5, 0.0))
    first = labels.astype(np.float64)
    pairs = first.sum(axis=1) * (1 - first).sum(axis=1)
    won = np.einsum("bi,bi->b", first @ wins, 1 - first)
    return np.where(pairs > 0, won / np.maximum(pairs, 1), 0.5)


def scan(values: Floats, labels: Labels, share: float) -> Floats:
    """The largest n KL(share of train, expected share) over all prefixes of rows in the order of their values."""
    best = np.zeros(len(labels))
    for limit in np.unique(values):
        inside = values <= limit
        n, hits = int(inside.sum()), labels[:, inside].sum(axis=1)
        p = hits / n
        with np.errstate(divide="ignore", invalid="ignore"):
            kl = np.where(p > 0, p * np.log(p / share), 0) + np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - share)), 0)
        best = np.maximum(best, np.where(p > share, n * kl, 0))
    return best


def smallest_share(values: Floats, share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return float(min(v for v in values if np.mean(values <= v) >= share - 1e-12))
