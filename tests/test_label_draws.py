"""Label draws: exact sizes, the same bits as a plain-Python hash, counts against plain loops, and their law.

The plain side below shares nothing with the library: Python integers instead of numba, sorting instead of thresholds.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from daskpriv.kernels import labels as kernel
from daskpriv.stats import labels as module
from daskpriv.stats.labels import DRAWS, Labels, below, labels
from daskpriv.stats.permutation import share_law

MASK = 2**64 - 1
STEP = 0x9E3779B97F4A7C15
KEYS, COIN = 0x5DEECE66D1CE4E5B, 0x5B117

# ---------------------------------------------------------------------------------------------- plain Python


def plain_hash(key: int, row: int) -> int:
    """Output `row` of splitmix64 started at `key`, as Vigna wrote it."""
    z = (key + row * STEP) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def plain_labels(n_first: int, n_second: int, seed: int, draws: int) -> np.ndarray:
    """True for the rows with the `n_first` smallest hashes; bool (draws, n)."""
    n = n_first + n_second
    out = np.zeros((draws, n), bool)
    for b in range(draws):
        key = plain_hash(seed ^ KEYS, b)
        out[b, sorted(range(n), key=lambda r: plain_hash(key, r))[:n_first]] = True
    return out


def label_matrix(drawn: Labels) -> np.ndarray:
    """Every label, by giving each row a cell of its own; bool (draws, n)."""
    n = drawn.n_first + drawn.n_second
    found = drawn.sums(np.arange(n), np.arange(n), n)
    assert set(np.unique(found)) <= {0, 1}
    return found.astype(bool)


# ---------------------------------------------------------------------------------------------- labels


def test_the_hash_is_splitmix64() -> None:
    """The published first outputs for the seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [plain_hash(1234567, r) for r in (1, 2, 3)] == published
    assert kernel.hashes(np.uint64(1234567), np.array([1, 2, 3])).tolist() == published


@settings(derandomize=True)
@given(st.integers(0, MASK), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_hashes_are_those_of_plain_python(key: int, rows: list[int]) -> None:
    found = kernel.hashes(np.uint64(key), np.array(rows, np.int64))
    assert found.tolist() == [plain_hash(key, r) for r in rows]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (2, 1), (5, 5), (1, 60), (60, 1), (37, 300), (400, 123)])
@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_labels_agree_with_plain_python_label_by_label(sizes: tuple[int, int], seed: int) -> None:
    assert (label_matrix(labels(*sizes, seed, 9)) == plain_labels(*sizes, seed, 9)).all()


@settings(max_examples=60, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, MASK))
def test_any_small_sizes_agree_with_plain_python(n_first: int, n_second: int, seed: int) -> None:
    assert (label_matrix(labels(n_first, n_second, seed, 4)) == plain_labels(n_first, n_second, seed, 4)).all()


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [
        ((1, 1), DRAWS),
        ((1, 2), DRAWS),
        ((2, 1), DRAWS),
        ((3, 4), DRAWS),
        ((1, 1000), DRAWS),
        ((1000, 1), DRAWS),
        ((255, 1), DRAWS),  # as many rows as are hashed at once, and one more or less
        ((128, 127), DRAWS),
        ((2, 255), DRAWS),
        ((3, 20_000), 300),
        ((20_000, 3), 300),
        ((50_000, 50_000), 60),
        ((7, 1_000_003), 12),
        ((1_000_003, 7), 12),
    ],
)
def test_every_draw_labels_exactly_so_many_rows(sizes: tuple[int, int], draws: int) -> None:
    drawn = labels(*sizes, 11, draws)
    n = sum(sizes)
    assert drawn.draws == draws
    assert (drawn.sums(np.arange(n), np.zeros(n, np.int64), 1) == sizes[0]).all()


def test_sizes_below_one_are_refused() -> None:
    for sizes in ((0, 3), (3, 0)):
        with pytest.raises(ValueError, match="both tables need rows"):
            labels(*sizes, 0)


def test_fewer_draws_are_the_first_of_more() -> None:
    few, many = labels(30, 50, 3, 20), labels(30, 50, 3, 90)
    assert (label_matrix(few) == label_matrix(many)[:20]).all()


def test_seeds_and_draws_differ() -> None:
    found = np.concatenate([label_matrix(labels(30, 30, seed, 50)) for seed in (0, 1, 2**63)])
    assert len(np.unique(found, axis=0)) == 150


@pytest.mark.parametrize("share", [0.001, 0.5, 0.93])
def test_a_window_that_misses_is_widened(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """The same thresholds come out however narrow the first guess is."""
    n = 20_000
    sizes = int(share * n), n - int(share * n)
    wanted = labels(*sizes, 5, 40).thresholds
    widths, window = [], kernel.window

    def watched(key: Any, rows: int, low: Any, high: Any, room: int) -> Any:
        widths.append(int(high) - int(low))
        return window(key, rows, low, high, room)

    monkeypatch.setattr(module, "_WIDTH", 1e-3)
    monkeypatch.setattr(kernel, "window", watched)
    labels.cache_clear()
    again = labels(*sizes, 5, 40).thresholds
    labels.cache_clear()
    assert (again == wanted).all()
    if share == 0.5:
        assert len(widths) > 60  # a standard deviation is 70 rows, the first window holds 16 on each side


@settings(max_examples=50, derandomize=True)
@given(st.integers(0, MASK), st.integers(1, 700), st.floats(0, 0.99), st.floats(0, 0.5), st.integers(0, 400))
def test_windows_hold_what_lies_between(key: int, n: int, start: float, width: float, room: int) -> None:
    low, high = int(start * 2**64), int(min(0.9999, start + width) * 2**64)
    hashes = [plain_hash(key, r) for r in range(n)]
    inside = [h for h in hashes if low <= h < high]
    under, held, found = kernel.window(np.uint64(key), n, np.uint64(low), np.uint64(high), room)
    if len(inside) > room:
        assert held == -1
    else:
        assert under == sum(h < low for h in hashes)
        assert found[:held].tolist() == inside


def test_rows_of_the_second_table_follow_those_of_the_first() -> None:
    drawn, ids = labels(10, 5, 0, 2), np.array([0, 4, -1])
    assert drawn.rows(ids, second=False).tolist() == [0, 4, -1]
    assert drawn.rows(ids, second=True).tolist() == [10, 14, -1]


# ---------------------------------------------------------------------------------------------- counts


@st.composite
def pooled(draw: st.DrawFn, columns: bool) -> tuple[Labels, np.ndarray, np.random.Generator, int]:
    """Labels of few rows, and rows to look up, with repeats."""
    n_first, n_second = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, k = draw(st.integers(0, 25)), draw(st.integers(1, 6)) if columns else 1
    rows = rng.integers(0, n_first + n_second, (n, k) if columns else n)
    return labels(n_first, n_second, draw(st.integers(0, 3)), 7), rows, rng, k


@settings(max_examples=80, derandomize=True)
@given(pooled(columns=False), st.integers(1, 4), st.booleans())
def test_sums_are_those_of_a_loop(
    given_: tuple[Labels, np.ndarray, np.random.Generator, int], c: int, weighted: bool
) -> None:
    drawn, rows, rng, _ = given_
    cells = rng.integers(-1, 5, (len(rows), c) if c > 1 else len(rows))
    weights = rng.integers(-3, 9, len(rows)) if weighted else None
    wanted = np.zeros((drawn.draws, 6), np.int64)
    side = label_matrix(drawn)
    for b in range(drawn.draws):
        for i, row in enumerate(rows):
            for cell in np.atleast_1d(cells[i]):
                if cell >= 0 and side[b, row]:
                    wanted[b, cell] += 1 if weights is None else weights[i]
    found = drawn.sums(rows, cells, 6, weights)
    assert found.dtype == np.int64
    assert (found == wanted).all()
    order, cut = rng.permutation(len(rows)), rng.integers(0, len(rows) + 1)
    parts = [order[:cut], order[cut:]]
    pieces = [drawn.sums(rows[p], cells[p], 6, None if weights is None else weights[p]) for p in parts]
    assert (sum(pieces) == wanted).all()


@settings(max_examples=60, derandomize=True)
@given(pooled(columns=False))
def test_agreements_are_those_of_a_loop(given_: tuple[Labels, np.ndarray, np.random.Generator, int]) -> None:
    drawn, rows, rng, _ = given_
    others = rng.integers(0, drawn.n_first + drawn.n_second, len(rows))
    cells = rng.integers(0, 3, len(rows))
    wanted = np.zeros((drawn.draws, 3), np.int64)
    side = label_matrix(drawn)
    for b in range(drawn.draws):
        for row, other, cell in zip(rows, others, cells, strict=True):
            wanted[b, cell] += side[b, row] == side[b, other]
    assert (drawn.agreements(rows, others, cells, 3) == wanted).all()
    order, cut = rng.permutation(len(rows)), rng.integers(0, len(rows) + 1)
    pieces = [drawn.agreements(rows[p], others[p], cells[p], 3) for p in (order[:cut], order[cut:])]
    assert (sum(pieces) == wanted).all()


def neighbour_lists(rng: np.random.Generator, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists that end early in some lines, ascending distances with ties and zeros, edges that meet some of them."""
    values = np.sort(rng.choice([0.0, 0.0, 0.1, 0.25, 0.5, 0.7, 1.0], rows.shape), axis=1)
    rows = rows.copy()
    for i in range(len(rows)):
        kept = rng.integers(0, rows.shape[1] + 1)
        rows[i, kept:], values[i, kept:] = -1, np.inf
    edges = np.unique(rng.choice([0.0, 0.1, 0.2, 0.25, 0.5, 0.9, 1.0], 4))
    return rows, values, edges


def cell_of(edges: np.ndarray, value: float) -> int:
    """Cell j holds values in (edges[j - 1], edges[j]]."""
    return sum(1 for e in edges if e < value)


def sides_of(side: np.ndarray, rows: np.ndarray, values: np.ndarray) -> tuple[list[float], list[float]]:
    """Distances of one line of neighbours, by the side of the neighbour."""
    out: tuple[list[float], list[float]] = ([], [])
    for row, value in zip(rows, values, strict=True):
        if row < 0:
            break
        out[0 if side[row] else 1].append(float(value))
    return out


@settings(max_examples=60, derandomize=True)
@given(pooled(columns=True))
def test_nearest_by_side_is_that_of_a_loop(given_: tuple[Labels, np.ndarray, np.random.Generator, int]) -> None:
    drawn, rows, rng, _ = given_
    rows, values, edges = neighbour_lists(rng, rows)
    last = len(edges) + 1
    wanted = np.zeros((2, drawn.draws, last + 1), np.int64)
    for b, side in enumerate(label_matrix(drawn)):
        for i in range(len(rows)):
            for s, held in enumerate(sides_of(side, rows[i], values[i])):
                wanted[s, b, cell_of(edges, held[0]) if held else last] += 1
    assert (drawn.nearest_by_side(rows, values, edges) == wanted).all()
    cut = len(rows) // 3
    pieces = [drawn.nearest_by_side(rows[p], values[p], edges) for p in (slice(cut), slice(cut, None))]
    assert (sum(pieces) == wanted).all()


def plain_ratios(
    drawn: Labels, rows: np.ndarray, values: np.ndarray, edges: np.ndarray, both_zero: float
) -> np.ndarray:
    last = len(edges) + 1
    out = np.zeros((2, drawn.draws, last + 1), np.int64)
    for b, side in enumerate(label_matrix(drawn)):
        for i in range(len(rows)):
            for s, held in enumerate(sides_of(side, rows[i], values[i])):
                if len(held) < 2:
                    out[s, b, last] += 1
                else:
                    ratio = both_zero if held[1] == 0 else held[0] / held[1]
                    out[s, b, cell_of(edges, ratio)] += 1
    return out


@settings(max_examples=60, derandomize=True)
@given(pooled(columns=True), st.sampled_from([0.0, 1.0]))
def test_ratios_by_side_are_those_of_a_loop(
    given_: tuple[Labels, np.ndarray, np.random.Generator, int], both_zero: float
) -> None:
    drawn, rows, rng, _ = given_
    rows, values, edges = neighbour_lists(rng, rows)
    wanted = plain_ratios(drawn, rows, values, edges, both_zero)
    assert (drawn.ratios_by_side(rows, values, edges, both_zero) == wanted).all()
    cut = len(rows) // 3
    pieces = [drawn.ratios_by_side(rows[p], values[p], edges, both_zero) for p in (slice(cut), slice(cut, None))]
    assert (sum(pieces) == wanted).all()


def test_ratios_of_more_rows_than_are_cached_at_once() -> None:
    """64 neighbours leave room for 64 rows at a time."""
    rng = np.random.default_rng(0)
    drawn = labels(100, 150, 0, 3)
    rows, values, edges = neighbour_lists(rng, rng.integers(0, 250, (150, 64)))
    wanted = plain_ratios(drawn, rows, values, edges, 1.0)
    assert (drawn.ratios_by_side(rows, values, edges, 1.0) == wanted).all()


def test_every_row_is_counted_once_on_each_side() -> None:
    rng = np.random.default_rng(1)
    drawn = labels(40, 60, 0, 50)
    rows, values, edges = neighbour_lists(rng, rng.integers(0, 100, (33, 5)))
    for found in (drawn.nearest_by_side(rows, values, edges), drawn.ratios_by_side(rows, values, edges, 1.0)):
        assert (found.sum(axis=2) == 33).all()


def test_inputs_of_other_kinds_are_taken() -> None:
    """Narrow integers and arrays that are not contiguous give the same counts."""
    rng = np.random.default_rng(2)
    drawn = labels(40, 60, 0, 5)
    rows, values, edges = neighbour_lists(rng, rng.integers(0, 100, (30, 4)))
    wanted = drawn.nearest_by_side(rows, values, edges)
    turned = np.asfortranarray(rows.astype(np.int32)), np.asfortranarray(values)
    assert (drawn.nearest_by_side(*turned, edges) == wanted).all()
    cells = np.arange(30) % 3
    assert (
        drawn.sums(rows[:, 0].astype(np.int32), cells.astype(np.int8), 3, np.ones(30, np.int8))
        == drawn.sums(rows[:, 0].copy(), cells, 3)
    ).all()


# ---------------------------------------------------------------------------------------------- law


def test_sums_have_the_moments_of_sampling_without_replacement() -> None:
    """Mean and variance of a weighted sum (Cochran, ch. 2), for rows whose weights have a pattern."""
    n_first, n_second, draws = 70, 130, 20_000
    n = n_first + n_second
    drawn = labels(n_first, n_second, 1, draws)
    patterns = {
        "first rows": np.r_[np.ones(20, np.int64), np.zeros(n - 20, np.int64)],
        "every other": np.arange(n) % 2,
        "ascending": np.arange(n),
        "one heavy": np.r_[np.zeros(n - 1, np.int64), 100],
        "first table": np.r_[np.ones(n_first, np.int64), np.zeros(n_second, np.int64)],
    }
    for name, weights in patterns.items():
        found = drawn.sums(np.arange(n), np.zeros(n, np.int64), 1, weights)[:, 0]
        mean = n_first * weights.mean()
        variance = n_first * n_second / n * weights.var(ddof=1)
        assert abs(found.mean() - mean) < 4.5 * (variance / draws) ** 0.5, name
        # The variance of a sample variance is (kurtosis - 1) / draws; weights that hit one row are far from normal.
        kurtosis = stats.kurtosis(found, fisher=False)
        assert abs(found.var() / variance - 1) < 4.5 * ((kurtosis - 1) / draws) ** 0.5, name


def test_each_row_and_each_pair_is_drawn_as_often_as_any() -> None:
    n_first, n_second, draws = 12, 28, 20_000
    n = n_first + n_second
    side = label_matrix(labels(n_first, n_second, 4, draws)).astype(float)
    share = n_first / n
    z = (side.mean(axis=0) - share) / (share * (1 - share) / draws) ** 0.5
    assert np.abs(z).max() < 4.5
    both = (side.T @ side / draws)[np.triu_indices(n, 1)]
    pair = share * (n_first - 1) / (n - 1)
    z = (both - pair) / (pair * (1 - pair) / draws) ** 0.5
    assert np.abs(z).max() < 5
    assert 0.9 < z.std() < 1.1


def test_draws_do_not_follow_each_other() -> None:
    n, draws = 300, 20_000
    found = labels(100, 200, 9, draws).sums(np.arange(n), np.zeros(n, np.int64), 1, np.arange(n))[:, 0]
    z = (found - found.mean()) / found.std()
    for lag in (1, 2, 7, 64):
        assert abs((z[lag:] * z[:-lag]).mean()) < 4.5 / draws**0.5


@pytest.mark.parametrize("sizes", [(30, 30), (8, 72), (72, 8)])
def test_p_values_of_a_null_statistic_are_uniform(sizes: tuple[int, int]) -> None:
    """The real labels are one more draw: p = (1 + draws at least as large) / (1 + draws) is uniform on 1/100 to 1."""
    n_first, n = sizes[0], sum(sizes)
    rng = np.random.default_rng(5)
    found = []
    for seed in range(400):
        weights = rng.integers(0, 10**6, n)  # no ties
        observed = weights[:n_first].sum()
        drawn = labels(*sizes, seed, 99).sums(np.arange(n), np.zeros(n, np.int64), 1, weights)[:, 0]
        found.append((1 + (drawn >= observed).sum()) / 100)
    spread = np.array(found) - rng.random(len(found)) / 100
    assert stats.kstest(spread, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.05) < 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_coins_are_fair_and_their_own() -> None:
    numbers = np.arange(50_000)
    for share in (0.0, 0.1, 0.5, 0.99):
        heads = below(3, numbers, share)
        assert abs(heads.mean() - share) <= 4.5 * (share * (1 - share) / len(numbers)) ** 0.5
        assert below(3, numbers[::-1], share).tolist() == heads[::-1].tolist()
    plain = [plain_hash(plain_hash(3, COIN), r) < 2**63 for r in range(500)]
    assert below(3, numbers[:500], 0.5).tolist() == plain
    assert below(3, np.array([-(2**63), 2**63 - 1]), 0.5).tolist() == [
        plain_hash(plain_hash(3, COIN), r) < 2**63 for r in (-(2**63), 2**63 - 1)
    ]
    agree = below(3, numbers, 0.5) == below(4, numbers, 0.5)
    assert abs(agree.mean() - 0.5) < 4.5 * 0.5 / len(numbers) ** 0.5


# ---------------------------------------------------------------------------------------------- share law


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), st.data())
def test_the_law_of_a_share_is_that_of_all_splits(credits: list[int], data: st.DataObject) -> None:
    """Every split of the rows written out: mean and variance of the first table's share of all credit."""
    n_first = data.draw(st.integers(1, len(credits) - 1))
    nobody = data.draw(st.integers(0, 3))  # query rows without any neighbour
    whole = sum(credits) + nobody
    if whole == 0:
        return
    values = sorted(set(credits))
    first = [credits[:n_first].count(c) for c in values]
    second = [credits[n_first:].count(c) for c in values]
    law = share_law(np.array(values), np.array(first), np.array(second), whole)
    expected = Fraction(n_first, len(credits))
    shares = [
        (Fraction(sum(credits[i] for i in some)) + expected * nobody) / whole
        for some in combinations(range(len(credits)), n_first)
    ]
    mean = sum(shares) / len(shares)
    variance = sum((s - mean) ** 2 for s in shares) / len(shares)
    assert law.expected == pytest.approx(float(mean), abs=1e-12)
    assert law.variance == pytest.approx(float(variance), abs=1e-12)
    assert law.observed == pytest.approx(float((sum(credits[:n_first]) + expected * nobody) / whole), abs=1e-12)
    assert law.held == sum(credits[:n_first])
    if variance:
        assert law.z == pytest.approx((law.observed - law.expected) / float(variance) ** 0.5)
    else:
        assert law.z == 0.0


def test_the_law_of_a_share_agrees_with_the_draws() -> None:
    """Closed form and label draws tell the same story about the same credits."""
    rng = np.random.default_rng(8)
    credit = rng.poisson(2.0, 150) * 2**20
    n_first = 60
    values = np.unique(credit)
    counts = [np.array([(side == v).sum() for v in values]) for side in (credit[:n_first], credit[n_first:])]
    whole = int(credit.sum())
    law = share_law(values, *counts, whole)
    drawn = labels(60, 90, 2, 20_000).sums(np.arange(150), np.zeros(150, np.int64), 1, credit)[:, 0] / whole
    assert drawn.mean() == pytest.approx(law.expected, abs=4.5 * (law.variance / 20_000) ** 0.5)
    assert drawn.var() == pytest.approx(law.variance, rel=4.5 * (2 / 20_000) ** 0.5)


def test_credits_that_differ_by_rounding_only_do_not_vary() -> None:
    unit = 10**6
    law = share_law(np.array([unit, unit + 3]), np.array([2, 1]), np.array([1, 2]), 6 * unit + 9)
    assert (law.variance, law.z) == (0.0, 0.0)
    assert law.held == 3 * unit + 3 - 6
    law = share_law(np.array([unit, unit + 7]), np.array([2, 1]), np.array([1, 2]), 6 * unit + 21)
    assert law.variance > 0
