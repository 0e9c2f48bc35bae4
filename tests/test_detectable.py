"""The minimum detectable effect: what is found four times in five, and none where nothing can be found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from daskpriv.protocol import LabelTest
from daskpriv.stats import detectable
from daskpriv.stats.detectable import REACH, mde
from daskpriv.stats.labels import labels


def drawn(*values: float) -> LabelTest:
    return LabelTest("t", 0.0, np.array(values, float))


def test_the_reach_is_that_of_five_percent_and_four_in_five() -> None:
    assert pytest.approx(stats.norm.ppf(0.95) + stats.norm.ppf(0.8), abs=1e-12) == REACH
    assert round(REACH, 3) == 2.486


def test_it_is_the_spread_of_the_draws_on_the_scale_of_the_effect() -> None:
    values = np.random.default_rng(0).normal(3, 0.2, 1999)
    found = mde(LabelTest("t", 99.0, values), 1.0)
    assert found == pytest.approx(2.4865 * values.std(), rel=1e-4)
    assert mde(LabelTest("t", -99.0, values + 7), 0.5) == pytest.approx(found / 2)


@pytest.mark.parametrize(
    "values", [(), (0.3,), (0.1,) * 1999, (math.inf,) * 5, (math.nan,) * 5, (math.inf, 0.5, -math.inf, 0.5)]
)
def test_nothing_that_varies_detects_nothing(values: tuple[float, ...]) -> None:
    """0.1 added 1999 times and divided by 1999 is not 0.1: the deviation of equal numbers is not 0 by itself."""
    assert mde(drawn(*values), 1.0) is None


def test_draws_without_a_value_are_left_out() -> None:
    assert mde(drawn(0.0, math.inf, 1.0, math.nan, -math.inf), 1.0) == mde(drawn(0.0, 1.0), 1.0)
    assert mde(drawn(0.0, math.inf, 1.0), 1.0) == pytest.approx(REACH / 2)


def rejected(n: int, effect: float, reports: int) -> float:
    """How often a test of 5 % says that the first n of 2n rows are larger, when their mean is by `effect`."""
    lines = labels(n, n, 1, 399).sums(np.arange(2 * n), np.arange(2 * n), 2 * n).T  # (rows, draws)
    rng, found = np.random.default_rng(5), 0
    for _ in range(reports):
        values = rng.normal(size=2 * n)
        values[:n] += effect
        test = LabelTest("mean", float(values[:n].sum()), values @ lines)
        found += test.p_value <= 0.05
    return found / reports


def test_an_effect_of_this_size_is_found_four_times_in_five() -> None:
    n, lines = 60, labels(60, 60, 1, 399).sums(np.arange(120), np.arange(120), 120).T
    values = np.random.default_rng(7).normal(size=120)
    # The sum of the first n rows, less what labels give, is half of n times the difference of the means.
    effect = mde(LabelTest("mean", 0.0, values @ lines), 2 / n)
    assert effect is not None
    effect /= values.std()  # of these rows; those of other reports have a deviation of 1
    power = rejected(n, effect, 400)
    assert power == pytest.approx(0.8, abs=0.06)
    assert rejected(n, 0.0, 400) == pytest.approx(0.05, abs=0.035)
    assert rejected(n, effect / 2, 400) < 0.5


def test_a_shorter_reach_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectable, "REACH", 1.645)
    with pytest.raises(AssertionError):
        test_an_effect_of_this_size_is_found_four_times_in_five()
