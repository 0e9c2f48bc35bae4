"""The region of practical equivalence and the Bayesian sign test, against other derivations."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from daskpriv.errors import InputError
from daskpriv.utility import SignTest, bayes_sign_test
from daskpriv.utility.practical import in_words


def probabilities(found: SignTest) -> tuple[float, float, float]:
    return found.worse, found.equivalent, found.better


def of_counts(worse: int, equivalent: int, better: int, prior: float = 1.0) -> SignTest:
    found = bayes_sign_test([-5.0] * worse + [0.0] * equivalent + [5.0] * better, prior=prior)
    assert found.counts == (worse, equivalent, better)
    return found


def race(a: int, b: int, c: int) -> Fraction:
    """P(the a-th point of the first of three equal Poisson streams comes after the b-th and the c-th of the others).

    A gamma variable of whole shape is the waiting time for so many points: when the first stream has its a-th point,
    the others have had at least b and c. Each next point is of any stream with the same probability.
    """
    # One minus the chance of fewer than b or fewer than c points before: sums over finitely many cases.

    def joint(i: int, j: int) -> Fraction:
        return Fraction(
            math.factorial(a - 1 + i + j), math.factorial(a - 1) * math.factorial(i) * math.factorial(j)
        ) / (Fraction(3) ** (a + i + j))

    def single(i: int) -> Fraction:
        return Fraction(math.comb(a - 1 + i, i), 2 ** (a + i))

    few_b = sum((single(i) for i in range(b)), Fraction(0))
    few_c = sum((single(j) for j in range(c)), Fraction(0))
    few_both = sum((joint(i, j) for i in range(b) for j in range(c)), Fraction(0))
    return 1 - few_b - few_c + few_both


@pytest.mark.parametrize("counts", [(1, 0, 1), (3, 1, 2), (7, 4, 9), (0, 5, 3), (12, 0, 1)])
def test_whole_counts_agree_with_a_race_of_points(counts: tuple[int, int, int]) -> None:
    shapes = (counts[0], counts[1] + 1, counts[2])
    expected = [
        float(race(shapes[i], *(s for j, s in enumerate(shapes) if j != i))) if shapes[i] else 0.0 for i in range(3)
    ]
    assert sum(expected) == pytest.approx(1)
    assert probabilities(of_counts(*counts)) == pytest.approx(expected, abs=1e-10)


def test_two_regions_are_a_beta_law() -> None:
    found = of_counts(9, 4, 0)
    assert found.worse == pytest.approx(1 - special.betainc(9, 5, 0.5), abs=1e-10)
    assert found.better == 0


@pytest.mark.parametrize("prior", [0.5, 1.0, 2.5])
def test_agrees_with_drawing_from_the_posterior(prior: float) -> None:
    """How Benavoli et al. (2017) compute it: the share of Dirichlet draws in which each region is the largest."""
    rng = np.random.default_rng(0)
    draws = rng.dirichlet([6, 3 + prior, 2], 400_000).argmax(axis=1)
    expected = np.bincount(draws, minlength=3) / len(draws)
    assert probabilities(of_counts(6, 3, 2, prior)) == pytest.approx(expected, abs=0.004)


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=40))
def test_is_a_law_that_mirrors_and_forgets_the_order(differences: list[float]) -> None:
    found = bayes_sign_test(differences)
    assert sum(probabilities(found)) == pytest.approx(1, abs=1e-12)
    assert probabilities(bayes_sign_test([-d for d in differences])) == pytest.approx(
        (found.better, found.equivalent, found.worse), abs=1e-12
    )
    assert bayes_sign_test(sorted(differences)) == found


def test_more_evidence_is_more_sure_and_many_data_sets_are_no_trouble() -> None:
    sure = [of_counts(n, n // 4, 0).worse for n in (4, 8, 16, 32)]
    assert sure == sorted(sure)
    assert of_counts(60_000, 20_000, 0).worse == pytest.approx(1)
    assert probabilities(of_counts(30_000, 29_999, 0)) == pytest.approx((0.5, 0.5, 0), abs=1e-9)


def test_edges_of_the_region_belong_to_it() -> None:
    assert bayes_sign_test([-1.0, 1.0, -1.0001, 1.0001]).counts == (1, 2, 1)
    assert bayes_sign_test([-0.1, 0.1], rope=0.0).counts == (1, 0, 1)
    assert in_words(-1.0, 1.0) == "equivalent"


@pytest.mark.parametrize(
    ("differences", "options"),
    [
        ([], {}),
        ([math.nan], {}),
        ([1.0, math.inf], {}),
        (["x"], {}),
        ([[1.0]], {}),
        ([1.0], {"rope": -1.0}),
        ([1.0], {"rope": math.nan}),
        ([1.0], {"prior": 0.0}),
    ],
)
def test_nonsense_is_one_sentence(differences: list[float], options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"^[a-z]+: give .*\.$"):
        bayes_sign_test(differences, **options)
