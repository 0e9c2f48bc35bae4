"""Cramer's V and Spearman's rho of bucketed columns: tables in the head, plain twins, and what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from daskpriv.stats.association import cramers_v, grade_correlation, of_each

TABLES = arrays(np.int64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(0, 40))
BOTH = pytest.mark.parametrize("measure", [cramers_v, grade_correlation])


def plain_v(table: NDArray[np.int64]) -> float:
    """Bergsma's formulas, cell by cell."""
    rows, columns = [x for x in table.sum(1) if x], [x for x in table.sum(0) if x]
    r, c, n = len(rows), len(columns), int(table.sum())
    if min(r, c) < 2:
        return 0.0
    kept = table[table.sum(1) > 0][:, table.sum(0) > 0]
    squared = 0.0
    for i in range(r):
        for j in range(c):
            expected = rows[i] * columns[j] / n
            squared += (kept[i, j] - expected) ** 2 / expected / n
    squared = max(0.0, squared - (r - 1) * (c - 1) / (n - 1))
    smaller = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return math.sqrt(squared / smaller) if smaller > 1e-9 else 0.0


def rows_of(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One line per row of the table that was counted."""
    i, j = np.indices(table.shape)
    return np.repeat(i.ravel(), table.ravel()), np.repeat(j.ravel(), table.ravel())


def plain_rho(table: NDArray[np.int64]) -> float:
    x, y = rows_of(table)
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return float(scipy.stats.spearmanr(x, y).statistic)


def one(value: NDArray[np.float64]) -> float:
    assert value.shape == ()
    return float(value)


def test_cramers_v_by_hand() -> None:
    # n = 12, phi^2 = 1/9; less 1/11: 2/99. Of 2 - 1/11 - 1 = 10/11: 2/90.
    assert one(cramers_v(np.array([[4, 2], [2, 4]]))) == pytest.approx(math.sqrt(2 / 90), abs=1e-15)
    # Below what chance gives: 0, not the root of something negative.
    assert one(cramers_v(np.array([[2, 1], [1, 2]]))) == 0.0


def test_grade_correlation_by_hand() -> None:
    # Values 1 2 3 against 1 3 2: 1 - 6 * 2 / (3 * 8) = 1/2.
    assert one(grade_correlation(np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]]))) == 0.5
    # Ties: ranks 1.5 1.5 3 against 1 2 3; covariance 1.5, variances 1.5 and 2.
    assert one(grade_correlation(np.array([[1, 1, 0], [0, 0, 1]]))) == pytest.approx(1.5 / math.sqrt(3), abs=1e-15)


@given(TABLES)
def test_cramers_v_is_the_formula(table: NDArray[np.int64]) -> None:
    assert one(cramers_v(table)) == pytest.approx(plain_v(table), abs=1e-7)  # near 0 a root doubles the digits lost
    assert one(cramers_v(table)) ** 2 == pytest.approx(plain_v(table) ** 2, abs=1e-12)


@given(TABLES)
def test_grade_correlation_is_spearman_of_the_buckets(table: NDArray[np.int64]) -> None:
    assert one(grade_correlation(table)) == pytest.approx(plain_rho(table), abs=1e-12)


def test_the_correction_is_all_that_differs_from_scipy() -> None:
    table = np.array([[120, 33, 8], [40, 90, 11], [7, 21, 64], [50, 50, 50]])
    n, plain = table.sum(), scipy.stats.contingency.association(table, method="cramer", correction=False)
    phi = plain**2 * 2 - 3 * 2 / (n - 1)
    assert one(cramers_v(table)) == pytest.approx(math.sqrt(phi / (2 - 4 / (n - 1))), abs=1e-14)


@BOTH
@given(table=TABLES)
def test_which_column_comes_first_does_not_matter_to_a_bit(measure, table) -> None:  # type: ignore[no-untyped-def]
    assert measure(table).tobytes() == measure(table.T.copy()).tobytes()


@given(TABLES, st.randoms())
def test_names_and_order_of_buckets_do_not_matter_to_cramers_v(table: NDArray[np.int64], random) -> None:  # type: ignore[no-untyped-def]
    i, j = (random.sample(range(n), n) for n in table.shape)
    assert cramers_v(table).tobytes() == cramers_v(table[i][:, j]).tobytes()


@given(TABLES)
def test_an_order_turned_round_changes_the_sign_alone(table: NDArray[np.int64]) -> None:
    assert one(grade_correlation(table[::-1])) == -one(grade_correlation(table))


@BOTH
@given(table=TABLES, where=st.integers(0, 6), rows=st.integers(1, 3))
def test_buckets_without_rows_do_not_matter(measure, table, where, rows) -> None:  # type: ignore[no-untyped-def]
    wider = np.insert(np.insert(table, min(where, len(table)), [[0]] * rows, axis=0), 0, 0, axis=1)
    assert measure(table).tobytes() == measure(wider).tobytes()


@BOTH
def test_many_tables_at_once_are_the_tables_one_by_one(measure) -> None:  # type: ignore[no-untyped-def]
    tables = np.random.default_rng(5).integers(0, 50, (3, 40, 7, 9))
    each = np.array([[measure(t) for t in some] for some in tables])
    assert measure(tables).tobytes() == each.tobytes()


@BOTH
def test_tables_of_different_shapes_one_after_the_other(measure) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(6)
    shapes = np.array([(3, 4), (2, 2), (3, 4), (4, 3), (2, 2)])
    tables = [rng.integers(0, 30, shape) for shape in shapes]
    starts = np.cumsum([0, *(t.size for t in tables)])
    found = of_each(measure, np.concatenate([t.ravel() for t in tables]), starts, shapes)
    assert found.tolist() == [float(measure(t)) for t in tables]


@given(arrays(np.int64, st.integers(2, 8), elements=st.integers(2, 10**9)))
def test_a_column_names_itself(rows: NDArray[np.int64]) -> None:
    assert one(cramers_v(np.diag(rows))) == 1.0
    assert one(grade_correlation(np.diag(rows))) == 1.0
    assert one(grade_correlation(np.diag(rows)[::-1])) == -1.0


@BOTH
@given(arrays(np.int64, st.integers(2, 6), elements=st.integers(1, 99)), st.data())
def test_columns_that_are_independent_in_the_table_have_none(measure, rows, data) -> None:  # type: ignore[no-untyped-def]
    columns = data.draw(arrays(np.int64, st.integers(2, 6), elements=st.integers(1, 99)))
    assert abs(one(measure(np.outer(rows, columns)))) < 1e-12


def test_the_correction_takes_away_what_chance_gives() -> None:
    rng = np.random.default_rng(1)
    tables = rng.multinomial(500, np.full(100, 0.01), size=400).reshape(400, 10, 10)
    plain = [scipy.stats.contingency.association(t, method="cramer") for t in tables[:50]]
    assert np.mean(plain) > 0.12
    assert cramers_v(tables).mean() < 0.04


@BOTH
@pytest.mark.parametrize(
    "table",
    [[[0, 0], [0, 0]], [[1, 0], [0, 0]], [[3, 4]], [[3], [4]], [[0, 9], [0, 0]], [[0, 0, 0], [5, 1, 2]]],
    ids=["no row", "one row", "first constant", "second constant", "both constant", "one bucket of two"],
)
def test_a_column_with_one_value_goes_with_nothing(measure, table) -> None:  # type: ignore[no-untyped-def]
    assert one(measure(np.array(table, np.int64))) == 0.0


def test_a_bucket_per_row_shows_nothing() -> None:
    assert one(cramers_v(np.eye(5, dtype=np.int64))) == 0.0


@BOTH
def test_two_to_the_fifty_rows_are_no_trouble(measure) -> None:  # type: ignore[no-untyped-def]
    table = np.array([[120, 33, 8], [40, 90, 11], [7, 21, 64]])
    limit = one(measure(table * 2**41))
    assert limit == pytest.approx(one(measure(table * 2**20)), abs=1e-6)
