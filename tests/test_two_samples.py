"""Two samples compared: every statistic against scipy or the pairs written out; grids, cells and their statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from daskpriv.stats.grid import SHARES, Grid, rank_of
from daskpriv.stats.ranks import auc_of_cells, berk_jones
from daskpriv.stats.two_samples import Comparison, TwoSamples, counted

RATES = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0)

# ---------------------------------------------------------------------------------------------- plain


def plain_theta(a: Sequence[float], b: Sequence[float]) -> Fraction:
    return Fraction(sum(2 * (x < y) + (x == y) for x in a for y in b), 2 * len(a) * len(b))


def plain_variance(a: Sequence[float], b: Sequence[float]) -> float:
    """DeLong, DeLong & Clarke-Pearson (1988): sample variances of the placement values of each side."""
    if min(len(a), len(b)) < 2:
        return math.nan
    over = [sum((x < y) + 0.5 * (x == y) for y in b) / len(b) for x in a]
    under = [sum((x < y) + 0.5 * (x == y) for x in a) / len(a) for y in b]
    return float(np.var(over, ddof=1) / len(a) + np.var(under, ddof=1) / len(b))


def plain_gaps(a: Sequence[float], b: Sequence[float]) -> list[Fraction]:
    """F_a - F_b at every value, and 0 before the first."""

    def gap(v: float) -> Fraction:
        return Fraction(sum(x <= v for x in a), len(a)) - Fraction(sum(y <= v for y in b), len(b))

    return [Fraction(0), *(gap(v) for v in {*a, *b})]


def plain_area(a: Sequence[float], b: Sequence[float]) -> float:
    values, total = sorted({*a, *b}), 0.0
    for low, high in pairwise(values):
        height = abs(sum(x <= low for x in a) / len(a) - sum(y <= low for y in b) / len(b))
        total += height * (high - low) if height > 1e-12 else 0.0
    return total


def plain_rate(a: Sequence[float], b: Sequence[float], rate: float) -> tuple[int, int, float]:
    """The largest value that, taken as a threshold, catches at most this share of b."""
    fitting = [v for v in {*a, *b} if sum(y <= v for y in b) / len(b) <= rate]
    if not fitting:
        return 0, 0, -math.inf
    v = max(fitting)
    return sum(x <= v for x in a), sum(y <= v for y in b), v


def plain_list(a: Sequence[float], b: Sequence[float], discovery: Fraction) -> list[float]:
    """Benjamini & Hochberg (1995) over conformal p-values (1 + #{b <= x}) / (1 + n_b): the rejected values of a."""
    p = [Fraction(1 + sum(y <= x for y in b), 1 + len(b)) for x in a]
    ascending = sorted(p)
    k = max((i for i in range(1, len(a) + 1) if ascending[i - 1] <= discovery * i / len(a)), default=0)
    return [x for x, q in zip(a, p, strict=True) if k and q <= ascending[k - 1]]


def compared(
    a: Sequence[float],
    b: Sequence[float],
    rates: Sequence[float] = RATES,
    window: int = 1 << 21,
    discovery: float = 0.0,
    pieces: int = 1,
    seed: int = 0,
) -> tuple[Comparison, int]:
    """The comparison by the library, cut into pieces that are merged in any order; and the passes it took."""
    rng = np.random.default_rng(seed)
    known = [np.asarray(x, np.float64) for x in (a, b)]
    cuts = [np.array_split(x[rng.permutation(len(x))], pieces) for x in known]
    n_a, n_b = (int((~np.isnan(x)).sum()) for x in known)
    state: TwoSamples | Comparison = TwoSamples.of(n_a, n_b, rates, window, discovery)
    passes = 0
    while isinstance(state, TwoSamples):
        partials: list[Any] = [None] + [state.chunk(x, y) for x, y in zip(*cuts, strict=True)]
        while len(partials) > 1:
            i, j = rng.choice(len(partials), 2, replace=False)
            merged = state.combine(partials[i], partials[j])
            partials = [p for k, p in enumerate(partials) if k not in (i, j)] + [merged]
        state, passes = state.advance(partials[0]), passes + 1
    return state, passes


def assert_right(found: Comparison, a: Sequence[float], b: Sequence[float], rates: Sequence[float] = RATES) -> None:
    """All statistics against plain ones."""
    assert (found.n_a, found.n_b) == (len(a), len(b))
    assert found.theta == float(plain_theta(a, b))
    np.testing.assert_allclose(found.variance, plain_variance(a, b), atol=1e-12)
    gaps = plain_gaps(a, b)
    above, below = max(gaps), -min(gaps)
    assert (found.ks_above, found.ks_below, found.ks) == (float(above), float(below), float(max(above, below)))
    np.testing.assert_allclose(found.wasserstein, plain_area(a, b), rtol=1e-9, atol=1e-12)
    assert found.at_rates == {r: plain_rate(a, b, r) for r in rates}


# ---------------------------------------------------------------------------------------------- comparisons

TIED = st.sampled_from([0.0, -0.0, 0.125, 0.5, 0.75, 1.0, math.inf])
ANY = st.floats(0, 1, allow_subnormal=True) | st.just(math.inf) | st.floats(0, allow_nan=False)


@st.composite
def two(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    values = draw(st.sampled_from([TIED, ANY]))
    return draw(st.lists(values, min_size=1, max_size=14)), draw(st.lists(values, min_size=1, max_size=14))


@settings(max_examples=150, derandomize=True)
@given(two())
def test_every_statistic_is_the_plain_one(samples: tuple[list[float], list[float]]) -> None:
    assert_right(compared(*samples)[0], *samples)


@settings(max_examples=60, derandomize=True)
@given(two(), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_windows_and_pieces_change_nothing(
    samples: tuple[list[float], list[float]], window: int, pieces: int, seed: int
) -> None:
    """Windows of 1 to 9 values: the walk goes from one to the next, after eight passes that find their ends."""
    found, passes = compared(*samples, window=window, discovery=0.5, pieces=pieces, seed=seed)
    assert_right(found, *samples)
    whole = compared(*samples, discovery=0.5)[0]
    assert (found.listed, found.theta, found.variance) in ((whole.listed, whole.theta, whole.variance),) or (
        math.isnan(found.variance) and math.isnan(whole.variance) and found.listed == whole.listed
    )
    if sum(map(len, samples)) > window:
        assert passes > 8
    same_window = compared(*samples, window=window, discovery=0.5)[0]
    assert repr(found) == repr(same_window)  # to the last bit, whatever the pieces


def test_against_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = np.round(rng.beta(2, 5, 400), 2), np.round(rng.beta(2, 4, 300), 2)
    for window in (1 << 21, 100):
        found, _ = compared(a, b, window=window, pieces=3)
        assert found.theta == pytest.approx(1 - stats.mannwhitneyu(a, b).statistic / (400 * 300), abs=1e-12)
        for name, side in (("ks", "two-sided"), ("ks_above", "greater"), ("ks_below", "less")):
            wanted = stats.ks_2samp(a, b, alternative=side, method="asymp").statistic
            assert getattr(found, name) == pytest.approx(wanted, abs=1e-12)
        assert found.wasserstein == pytest.approx(stats.wasserstein_distance(a, b), abs=1e-12)


def test_delong_is_the_variance_of_the_area() -> None:
    """The mean of the estimates over many samples is what the area itself varies by."""
    rng = np.random.default_rng(3)
    found = [compared(rng.normal(size=60), rng.normal(0.5, size=40), ())[0] for _ in range(400)]
    thetas = [f.theta for f in found]
    assert np.mean([f.variance for f in found]) == pytest.approx(np.var(thetas), rel=4.5 * (2 / 400) ** 0.5)


def test_an_infinite_value_on_one_side_only() -> None:
    assert compared([0.1, math.inf], [0.1, 0.2])[0].wasserstein == math.inf
    assert compared([0.1, math.inf], [0.2, math.inf])[0].wasserstein == pytest.approx(0.05)
    found = compared([math.inf] * 3, [math.inf] * 2)[0]
    assert (found.theta, found.ks, found.wasserstein, found.variance) == (0.5, 0.0, 0.0, 0.0)
    assert found.at_rates[0.5] == (0, 0, -math.inf)
    assert found.at_rates[1.0] == (3, 2, math.inf)


@pytest.mark.parametrize("window", [1 << 21, 2])
@pytest.mark.parametrize(("a", "b"), [([], []), ([], [0.1, 0.2, 0.3]), ([0.1, math.inf, 0.3], [])])
def test_an_empty_sample_says_nothing(a: list[float], b: list[float], window: int) -> None:
    found, _ = compared(a, b, window=window, discovery=0.1)
    assert (found.n_a, found.n_b) == (len(a), len(b))
    numbers = ("theta", "variance", "ks", "ks_above", "ks_below", "wasserstein")
    assert all(math.isnan(getattr(found, name)) for name in numbers)
    assert found.listed == (0, 0, -math.inf)


def test_one_value_has_no_variance() -> None:
    for a, b in (([0.1], [0.1, 0.2]), ([0.1, 0.2], [0.3]), ([0.1], [0.2])):
        assert_right(compared(a, b)[0], a, b)
        assert math.isnan(compared(a, b)[0].variance)


@pytest.mark.parametrize("window", [1 << 21, 2])
def test_nan_was_never_counted(window: int) -> None:
    a, b = [0.1, math.nan, 0.4, 0.2], [math.nan, 0.2, 0.3, math.nan]
    found, _ = compared(a, b, window=window, discovery=0.3, pieces=2)
    assert repr(found) == repr(compared([0.1, 0.4, 0.2], [0.2, 0.3], window=window, discovery=0.3)[0])


def test_both_zeros_are_one_value() -> None:
    assert compared([-0.0], [0.0])[0].theta == 0.5
    assert [x.tolist() for x in counted(np.array([-0.0]), np.array([0.0, 0.5]))] == [[0.0, 0.5], [1, 0], [1, 1]]


def test_a_sample_of_another_size_than_announced_is_refused() -> None:
    state = TwoSamples.of(2, 2)
    with pytest.raises(ValueError, match="expected 2 and 2 values, got 2 and 1"):
        state.advance(state.chunk(np.array([0.1, 0.2]), np.array([0.1])))


def test_sums_are_exact_beyond_64_bits() -> None:
    """Counts as of four billion rows."""
    a, b = np.array([10**9, 3 * 10**9, 1]), np.array([2 * 10**9, 7, 10**9])
    n_a, n_b = int(a.sum()), int(b.sum())
    found = TwoSamples.of(n_a, n_b, window=n_a + n_b).advance((np.array([0.1, 0.2, 0.3]), a, b))
    assert isinstance(found, Comparison)
    pairs = [(int(x), int(y), (i < j) + Fraction(i == j, 2)) for i, x in enumerate(a) for j, y in enumerate(b)]
    theta = Fraction(sum(x * y * w for x, y, w in pairs)) / (n_a * n_b)
    assert found.theta == float(theta)
    over = [sum(int(y) * ((i < j) + Fraction(i == j, 2)) for j, y in enumerate(b)) / n_b for i in range(3)]
    under = [sum(int(x) * ((i < j) + Fraction(i == j, 2)) for i, x in enumerate(a)) / n_a for j in range(3)]
    spread = [
        sum(int(c) * (v - theta) ** 2 for c, v in zip(counts, values, strict=True)) / (n - 1) / n
        for counts, values, n in ((a, over, n_a), (b, under, n_b))
    ]
    assert found.variance == float(sum(spread))


# ---------------------------------------------------------------------------------------------- rates and lists


def test_true_positives_at_a_rate() -> None:
    a, b = [0.1, 0.1, 0.3, 0.5], [0.1, 0.2, 0.3, 0.4]
    found = compared(a, b, rates=(0.0, 0.2, 0.25, 0.5, 0.99, 1.0))[0].at_rates
    assert found == {
        0.0: (0, 0, -math.inf),
        0.2: (0, 0, -math.inf),
        0.25: (2, 1, 0.1),
        0.5: (2, 2, 0.2),
        0.99: (3, 3, 0.3),
        1.0: (4, 4, 0.5),
    }


@pytest.mark.parametrize("rate", [0.0001, 0.001, 0.01, 0.05, 0.1, 0.2])
def test_a_rate_is_reached_where_it_is_a_whole_number_of_rows(rate: float) -> None:
    """One in ten of ten rows is one row, although 0.1 is no binary number."""
    for times in (1, 3, 7, 9):
        n = round(times / rate)
        found = compared([0.0], np.arange(1, n + 1) / n, rates=(rate,))[0].at_rates[rate]
        assert found[:2] == (1, times)


@settings(max_examples=150, derandomize=True)
@given(two(), st.sampled_from([Fraction(1, 8), Fraction(1, 5), Fraction(1, 2), Fraction(7, 10)]), st.integers(1, 30))
def test_the_list_is_that_of_benjamini_and_hochberg(
    samples: tuple[list[float], list[float]], discovery: Fraction, window: int
) -> None:
    a, b = samples
    found = compared(a, b, (), window, float(discovery))[0]
    members, others, threshold = found.listed
    wanted = plain_list(a, b, discovery)
    assert members == len(wanted)
    assert sorted(x for x in a if x <= threshold) == sorted(wanted)
    if not wanted:
        assert found.listed == (0, 0, -math.inf)
        return
    assert threshold == max(wanted)
    assert others == sum(y <= threshold for y in b)


@pytest.mark.parametrize("window", [1 << 21, 3, 1])
def test_rows_of_the_other_sample_end_no_list(window: int) -> None:
    """Two of b follow the ten listed values of a and would still pass; they are not among the list's false members."""
    a, b = [0.1] * 10 + [0.9] * 2, [0.2, 0.3, *([0.8] * 20)]
    assert compared(a, b, (), window, 0.5)[0].listed == (10, 0, 0.1)
    assert compared(a, [0.05, *b], (), window, 0.5)[0].listed == (10, 1, 0.1)


@pytest.mark.parametrize("discovery", [0.05, 0.07, 0.1, 0.2, 0.3, 0.7])
def test_a_list_is_reached_where_the_rule_holds_with_equality(discovery: float) -> None:
    """(1 + 0) / (1 + n_b) = q k / n_a: seven tenths of 10 are 7, though 0.7 x 10 x 11 need not be 77 in binary."""
    rate = Fraction(str(discovery))
    for times in range(1, 40):
        n_a, k = rate.numerator * times, times  # p = 1 / (1 + n_b) and q k / n_a = 1 / rate.denominator
        n_b = rate.denominator - 1
        found = compared([0.0] * k + [1.0] * (n_a - k), [0.5] * n_b, (), discovery=discovery)[0]
        assert found.listed[:2] == (k, 0), times
        fewer = compared([0.0] * (k - 1) + [1.0] * (n_a - k + 1), [0.5] * n_b, (), discovery=discovery)[0]
        assert fewer.listed[0] == 0, times


@pytest.mark.parametrize("discovery", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("window", [1 << 21, 50])
def test_a_list_of_planted_rows(discovery: float, window: int) -> None:
    rng = np.random.default_rng(2)
    a, b = np.r_[rng.random(40) / 1000, rng.random(160)], rng.random(200)
    members, others, threshold = compared(a, b, (), window, discovery)[0].listed
    wanted = plain_list(a, b, Fraction(str(discovery)))
    assert members == len(wanted) >= 40
    assert (a <= threshold).sum() == members
    assert (b <= threshold).sum() == others


def test_lists_hold_few_false_members() -> None:
    """Nothing planted: a list that is not empty is wrong, and must be as rare as its false discovery rate."""
    rng = np.random.default_rng(4)
    wrong = sum(compared(rng.random(60), rng.random(60), (), discovery=0.25)[0].listed[0] > 0 for _ in range(400))
    assert wrong / 400 < 0.25 + 3 * (0.25 * 0.75 / 400) ** 0.5


# ---------------------------------------------------------------------------------------------- grids


def edges_of(values: np.ndarray, shares: Sequence[float], distinct: bool, pieces: int) -> np.ndarray:
    """The library's edges, from pieces."""
    state: Grid | np.ndarray = Grid.of(int((~np.isnan(values)).sum()), shares, distinct)
    while isinstance(state, Grid):
        state = state.advance(sum(state.chunk(x) for x in np.array_split(values, pieces)))
    return state


@settings(max_examples=60, derandomize=True)
@given(
    st.lists(TIED | ANY | st.just(math.nan), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 0.875, 1.0]), min_size=1, max_size=7, unique=True),
    st.integers(1, 4),
)
def test_edges_are_order_statistics(given_: list[float], shares: list[float], pieces: int) -> None:
    values = np.array(given_)
    known = sorted(x + 0.0 for x in given_ if not math.isnan(x))
    if not known:
        assert edges_of(values, shares, True, pieces).tolist() == [0.0]
        return
    wanted = [next(v for v in known if sum(x <= v for x in known) >= s * len(known)) for s in shares]
    assert edges_of(values, shares, False, pieces).tolist() == wanted
    assert edges_of(values, shares, True, pieces).tolist() == sorted({0.0, *wanted})


def test_the_usual_shares_make_few_cells_that_hold_what_they_say() -> None:
    n = 30_000
    values = np.random.default_rng(0).random(n)
    edges = edges_of(values, SHARES, True, 5)
    assert len(edges) == len(SHARES) + 1 < 128
    assert (np.diff(edges) > 0).all()
    assert edges[-1] == values.max()
    held = np.searchsorted(np.sort(values), edges[1:], side="right")
    assert (held >= np.array(SHARES) * n - 1e-6).all()
    wanted = [math.ceil(Fraction(str(share)) * n) for share in SHARES]
    assert held.tolist() == wanted


@pytest.mark.parametrize("share", [i / 100 for i in range(101)] + [0.001, 0.005])
def test_a_share_is_the_decimal_number_it_is_written_as(share: float) -> None:
    for n in (1, 7, 100, 700, 30_000, 10**9):
        values = Fraction(round(share * 1000), 1000) * n
        assert rank_of(share, n) == max(0, -(-values.numerator // values.denominator) - 1)
    assert Grid.of(700, (share,), distinct=False).selection.rank.tolist() == [rank_of(share, 700)]


def test_all_zero_values_have_one_edge() -> None:
    assert edges_of(np.zeros(50), SHARES, True, 3).tolist() == [0.0]
    assert edges_of(np.zeros(50), (0.25, 0.5), False, 3).tolist() == [0.0, 0.0]


def test_no_values_have_no_order_statistics() -> None:
    assert edges_of(np.empty(0), SHARES, True, 1).tolist() == [0.0]
    assert edges_of(np.empty(0), SHARES, False, 1).tolist() == []


# ---------------------------------------------------------------------------------------------- ranks over cells


@st.composite
def cells(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the first sample in several draws, and of both; int64 (draws, c) and (c,)."""
    both = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    first = [[draw(st.integers(0, n)) for n in both] for _ in range(draw(st.integers(1, 3)))]
    return np.array(first), np.array(both)


@settings(max_examples=100, derandomize=True)
@given(cells())
def test_area_over_cells(given_: tuple[np.ndarray, np.ndarray]) -> None:
    first, both = given_
    found = auc_of_cells(first, both)
    for line, area in zip(first, found, strict=True):
        a = [j for j, n in enumerate(line) for _ in range(n)]
        b = [j for j, n in enumerate(both - line) for _ in range(n)]
        assert area == pytest.approx(float(plain_theta(a, b)) if a and b else 0.5, abs=1e-12)
    assert (auc_of_cells(first[0], both) == found[0]).all()


@settings(max_examples=100, derandomize=True)
@given(cells(), st.floats(0.01, 0.99))
def test_scan_over_cells(given_: tuple[np.ndarray, np.ndarray], share: float) -> None:
    first, both = given_
    found = berk_jones(first, both, share)
    for line, scan in zip(first, found, strict=True):
        wanted = 0.0
        for stop in range(1, len(both) + 1):
            hits, n = int(line[:stop].sum()), int(both[:stop].sum())
            if n and hits / n > share:
                p = hits / n
                surprise = p * math.log(p / share) + ((1 - p) * math.log((1 - p) / (1 - share)) if p < 1 else 0.0)
                wanted = max(wanted, n * surprise)
        assert scan == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert (found >= 0).all()
    assert np.isfinite(found).all()
