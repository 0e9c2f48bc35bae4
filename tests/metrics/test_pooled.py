"""Laws under label permutations against a brute-force relabelling of every draw; quantiles and theta of histograms."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskpriv.evidence import Facts
from daskpriv.metrics import _binned, _orders, _pooled
from daskpriv.metrics._orders import Orders
from daskpriv.metrics._pooled import Pooled, list_length, nearest_law, pooled_distances, ratio_law
from daskpriv.stats.labels import Labels, labels
from daskpriv.stats.selection import Quantiles
from tests.metrics.searched import searched

EDGES = np.array([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])
LEVELS = [0.0, 0.0, 0.125, 0.25, 0.25, 0.5, 1.0, math.inf]


def first_side(drawn: Labels, n: int) -> np.ndarray:
    """Which rows each draw puts first, bool (1 + draws, n); place 0 is the actual labels."""
    chosen = drawn.sums(np.arange(n), np.arange(n), n).astype(bool)
    assert (chosen.sum(axis=1) == drawn.n_first).all()
    return np.vstack([np.arange(n) < drawn.n_first, chosen])


def cut_nearest(line: np.ndarray, mine: np.ndarray, k: int, wanted: int) -> list[float]:
    """The nearest distances of one side, at most the k-th distance of all rows."""
    cut = sorted(line)[k - 1]
    near = sorted(line[mine])[:wanted]
    return [min(d, cut) for d in [*near, *[math.inf] * (wanted - len(near))]]


def brute_force(
    matrix: np.ndarray, sides: np.ndarray, k: int, edges: np.ndarray, both_zero: float | None = None
) -> np.ndarray:
    """Histograms of each draw on both sides; of ratios when `both_zero` is given."""
    out = np.zeros((2, len(sides), len(edges) + (both_zero is None)), np.int64)
    for b, side in enumerate(sides):
        for place, mine in enumerate((side, ~side)):
            for line in matrix:
                if both_zero is None:
                    (value,) = cut_nearest(line, mine, k, 1)
                else:
                    near, far = cut_nearest(line, mine, k, 2)
                    value = math.nan if math.isinf(far) else both_zero if far == 0 else near / far
                if not math.isnan(value):
                    out[place, b, sum(e < value for e in edges)] += 1
    return out


def pool_of(matrix: np.ndarray, n_train: int, k: int, drawn: Labels, nearest: int) -> Pooled:
    train, holdout = searched(matrix[:, :n_train], k), searched(matrix[:, n_train:], k)
    return Pooled.of(train, holdout, drawn, nearest)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    """Distances with many ties to the rows of two tables; train rows; list length, often far too short."""
    n_train, n_holdout = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    n, k = draw(st.integers(1, 8)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.choice(LEVELS, (n, n_train + n_holdout)), n_train, min(k, n_train + n_holdout)


@settings(max_examples=60, derandomize=True)
@given(problems(), st.integers(0, 5))
def test_nearest_law_is_that_of_every_relabelling(problem: tuple[np.ndarray, int, int], seed: int) -> None:
    matrix, n_train, k = problem
    drawn = labels(n_train, matrix.shape[1] - n_train, seed, draws=40)
    with patch.object(_pooled, "_AT_ONCE", 3):
        law = nearest_law(pool_of(matrix, n_train, k, drawn, 1), drawn, EDGES)
    np.testing.assert_array_equal(law, brute_force(matrix, first_side(drawn, matrix.shape[1]), k, EDGES))


@settings(max_examples=60, derandomize=True)
@given(problems(), st.integers(0, 5), st.sampled_from([1.0, 0.0, math.nan]))
def test_ratio_law_is_that_of_every_relabelling(
    problem: tuple[np.ndarray, int, int], seed: int, both_zero: float
) -> None:
    matrix, n_train, k = problem
    drawn = labels(n_train, matrix.shape[1] - n_train, seed, draws=40)
    with patch.object(_pooled, "_AT_ONCE", 3):
        law = ratio_law(pool_of(matrix, n_train, k, drawn, 2), drawn, EDGES, both_zero)
    np.testing.assert_array_equal(law, brute_force(matrix, first_side(drawn, matrix.shape[1]), k, EDGES, both_zero))


@settings(max_examples=50, derandomize=True)
@given(problems())
def test_pooled_lists_are_the_nearest_of_all(problem: tuple[np.ndarray, int, int]) -> None:
    matrix, n_train, k = problem
    drawn = labels(n_train, matrix.shape[1] - n_train, 0, draws=2)
    pool, whole = pool_of(matrix, n_train, k, drawn, 1), searched(matrix, k)
    np.testing.assert_array_equal(pool.distance, whole.distance)
    np.testing.assert_array_equal(pool.rows, whole.row)  # (distance, side, id) is (distance, id) among all rows
    ranks = tuple(r for r in (1, 2, 4) if r <= k)
    train, holdout = searched(matrix[:, :n_train], k), searched(matrix[:, n_train:], k)
    for rank, found in zip(ranks, pooled_distances(train, holdout, ranks), strict=True):
        np.testing.assert_array_equal(found, whole.distance[:, rank - 1])


@pytest.mark.parametrize(
    ("n_train", "n_holdout", "one", "two"),
    [(100, 100, 20, 25), (700, 300, 39, 48), (300, 700, 39, 48), (800, 200, 62, 64), (999, 1, 64, 64), (3, 2, 5, 5)],
)
def test_list_length(n_train: int, n_holdout: int, one: int, two: int) -> None:
    facts = Facts({"train": n_train, "holdout": n_holdout}, 1)
    assert (list_length(facts, 1), list_length(facts, 2)) == (one, two)


def test_a_list_is_no_longer_than_it_must_be() -> None:
    for share in (0.5, 0.3, 0.25):
        facts = Facts({"train": round(1000 * share), "holdout": round(1000 * (1 - share))}, 1)
        k = list_length(facts, 2)
        missed = [(1 - share) ** n + n * share * (1 - share) ** (n - 1) for n in (k - 1, k)]
        assert missed[1] <= 1e-6 < missed[0]


@settings(max_examples=50, derandomize=True)
@given(st.lists(st.sampled_from(EDGES[1:].tolist()), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_binned_quantile_is_in_the_cell_of_the_exact_one(values: list[float], share: float) -> None:
    counts = np.bincount(np.searchsorted(EDGES, values), minlength=len(EDGES))[None]
    found = float(_binned.quantile(counts, EDGES, share)[0])
    exact = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    assert EDGES[np.searchsorted(EDGES, exact) - 1] <= found <= exact


def test_binned_statistics_of_nothing_are_nan() -> None:
    none, one = np.zeros((1, 3), np.int64), np.array([[0, 1, 0]])
    assert np.isnan(_binned.quantile(none, np.array([0.0, 0.5, 1.0]), 0.05)).all()
    assert np.isnan(_binned.theta(none, one)).all()


@settings(max_examples=40, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_binned_theta_counts_pairs(a: list[int], b: list[int]) -> None:
    counts = [np.bincount(x, minlength=6)[None] for x in (a, b)]
    pairs = [1.0 if x < y else 0.5 if x == y else 0.0 for x in a for y in b]
    assert _binned.theta(*counts)[0] == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_orders_of_blocks_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    samples = {"a": rng.integers(0, 9, 50) / 8, "b": rng.random(30)}
    samples["b"][3] = np.nan
    known = {name: x[~np.isnan(x)] for name, x in samples.items()}
    quantiles = {name: Quantiles((0.1, 0.5), len(x)) for name, x in known.items()}
    ranks = {name: q.ranks() for name, q in quantiles.items()}
    orders = Orders.of(ranks, {name: len(x) for name, x in known.items()}, [("a", "b")])
    while not orders.done:
        partials = [orders.chunk({name: x[i : i + 7]}) for name, x in samples.items() for i in range(0, len(x), 7)]
        whole: _orders.Partial = {}
        for partial in partials:
            whole = _orders.combine(partial, whole)
        orders = orders.advance(whole)
    for name, x in known.items():
        assert quantiles[name].combine(orders.ranked[name].values()) == np.quantile(x, (0.1, 0.5)).tolist()
    wins = (known["a"][:, None] < known["b"]) + 0.5 * (known["a"][:, None] == known["b"])
    told = _orders.theta(orders.comparison("a", "b"), 0.95)
    assert told["theta"] == pytest.approx(wins.mean(), abs=1e-14)
    spread = wins.mean(axis=1).var(ddof=1) / 50 + wins.mean(axis=0).var(ddof=1) / 29
    low, high, level = told["theta_interval"]
    assert level == 0.95
    assert (high - low) / 2 == pytest.approx(1.959963984540054 * spread**0.5, rel=1e-9)
