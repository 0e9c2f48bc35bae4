"""AUC and R2 with the influence of every row, against plain references, and the coverage of their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import r2_score, roc_auc_score

from daskpriv.utility.scores import Scored, auc, macro_auc, mean, percentage_difference, r2


def pairs_won(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """1, 1/2 or 0 for every pair of a positive and another row."""
    a, b = scores[positive][:, None], scores[~positive][None, :]
    return (a > b) + (a == b) / 2


def delong(scores: list[NDArray[np.float64]], positive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Covariance of several AUCs, as DeLong, DeLong & Clarke-Pearson (1988) write it."""
    won = [pairs_won(s, positive) for s in scores]
    first = np.cov([w.mean(axis=1) for w in won]).reshape(len(scores), -1)
    second = np.cov([w.mean(axis=0) for w in won]).reshape(len(scores), -1)
    return first / positive.sum() + second / (~positive).sum()


def drawn(
    seed: int, n: int, strength: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Scores of two models that are equally good and see some of the same, with ties."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.4
    shared = rng.normal(size=n) + strength * positive
    return (*(np.round(shared + rng.normal(size=n), 1) for _ in range(2)), positive)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_auc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([s for s, _ in rows], np.float64)
    positive = np.array([p for _, p in rows], bool)
    if positive.all() or not positive.any():
        return
    found = auc(scores, positive)
    assert found.value == pytest.approx(pairs_won(scores, positive).mean(), abs=1e-15)
    assert abs(found.influence.sum()) < 1e-9
    assert auc(-scores, positive).value == pytest.approx(1 - found.value, abs=1e-15)
    assert auc(np.exp(scores), positive).value == found.value


def test_the_error_of_a_difference_is_delongs() -> None:
    first, second, positive = drawn(0, 400)
    apart = Scored(0.0, auc(first, positive).influence - auc(second, positive).influence)
    covariance = delong([first, second], positive)
    expected = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    assert apart.spread() ** 2 == pytest.approx(expected, rel=0.01)
    assert auc(first, positive).spread() ** 2 == pytest.approx(covariance[0, 0], rel=0.01)


def test_influence_is_what_a_row_changes() -> None:
    """Leave one row out: the score moves by minus its influence over the rows that are left."""
    first, _, positive = drawn(1, 300)
    rng = np.random.default_rng(1)
    actual = rng.normal(size=300)
    predicted = actual + rng.normal(size=300)
    for score, given_rows in ((auc, (first, positive)), (r2, (predicted, actual))):
        whole = score(*given_rows)
        for i in (0, 17, 211):
            rest = [np.delete(x, i) for x in given_rows]
            assert score(*rest).value - whole.value == pytest.approx(-whole.influence[i] / 299, abs=5e-5)


def test_scores_of_many_classes_and_of_numbers_are_the_usual_ones() -> None:
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 4, 500)
    chances = rng.dirichlet(np.ones(4), 500) + 0.3 * np.eye(4)[classes]
    chances /= chances.sum(axis=1, keepdims=True)
    expected = roc_auc_score(classes, chances, multi_class="ovr", average="macro")
    assert macro_auc(chances, classes).value == pytest.approx(expected, abs=1e-12)
    actual = rng.normal(size=500)
    predicted = actual + rng.normal(size=500)
    assert r2(predicted, actual).value == pytest.approx(r2_score(actual, predicted), abs=1e-12)


def test_a_class_that_no_test_row_has_does_not_count() -> None:
    chances = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    assert macro_auc(chances, np.array([0, 1, 0, 1])).value == 1.0


def test_percentages() -> None:
    row = np.array([1.0, -1.0])
    found = percentage_difference(Scored(0.81, row), Scored(0.9, 2 * row))
    assert found is not None
    assert found.value == pytest.approx(-10)
    assert found.influence == pytest.approx(100 * (row - 0.9 * 2 * row) / 0.9)
    assert percentage_difference(Scored(0.5, row), Scored(0.0, row)) is None
    assert percentage_difference(Scored(0.5, row), Scored(-0.2, row)) is None


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_copies_of_a_row_in_one_cluster_tell_no_more(seed: int) -> None:
    first, second, positive = drawn(seed, 60)
    once = percentage_difference(auc(first, positive), auc(second, positive))
    twice = percentage_difference(*(auc(np.repeat(s, 2), np.repeat(positive, 2)) for s in (first, second)))
    assert once is not None and twice is not None
    clusters = np.repeat(np.arange(60), 2)
    assert twice.value == pytest.approx(once.value)
    assert twice.spread(clusters) == pytest.approx(once.spread(), rel=1e-9)
    assert twice.spread() < once.spread()


def covers(found: Scored | None, truth: float, clusters: NDArray[np.int64] | None = None) -> bool:
    assert found is not None
    low, high, _ = found.interval(0.95, clusters)
    return low <= truth <= high


def test_intervals_of_percentage_differences_hold_19_times_in_20() -> None:
    """Two models that are equally good: the true difference is 0."""
    hits = []
    for seed in range(600):
        first, second, positive = drawn(seed, 250)
        hits.append(covers(percentage_difference(auc(first, positive), auc(second, positive)), 0.0))
    assert 0.925 <= np.mean(hits) <= 0.975


def test_intervals_of_r2_hold_19_times_in_20_with_clusters_too() -> None:
    plain, clustered = [], []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        actual, error = rng.normal(size=(2, 200))
        plain.append(covers(r2(actual + error / 2, actual), 0.75))
        twice = [np.repeat(x, 2) for x in (actual + error / 2, actual)]
        clustered.append(covers(r2(*twice), 0.75, np.repeat(np.arange(200), 2)))
    assert 0.92 <= np.mean(plain) <= 0.975
    assert clustered == plain


def test_the_mean_of_scores_knows_that_rows_are_shared() -> None:
    first, _, positive = drawn(3, 100)
    one = auc(first, positive)
    assert mean([one, one]).spread() == pytest.approx(one.spread())
    assert mean([one, one]).value == one.value
