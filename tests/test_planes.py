"""Small contingency tables from bit planes are the tables counted row by row."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from daskpriv.kernels.planes import _ROWS, MOST_CELLS, count_small

Ints = NDArray[np.int64]


def coded(widths: list[int], rows: int, seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(0, w, rows) for w in widths], np.uint8).reshape(len(widths), rows)


def places(widths: list[int], sets: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(np.prod(np.array(widths)[sets], axis=1))])


def plain(codes: NDArray[np.uint8], widths: list[int], sets: Ints, starts: Ints) -> Ints:
    """One table after the other."""
    out = np.zeros(starts[-1], np.int64)
    for columns, start, end in zip(sets, starts[:-1], starts[1:], strict=True):
        cells = np.ravel_multi_index(tuple(codes[columns]), tuple(widths[c] for c in columns))
        np.add.at(out[start:end], cells, 1)
    return out


def counted(codes: NDArray[np.uint8], widths: list[int], order: int) -> tuple[Ints, Ints]:
    """What the kernel finds in all sets of `order` columns, and what the plain loop finds."""
    sets = np.array(list(combinations(range(len(widths)), order)), np.int64).reshape(-1, order)
    starts = places(widths, sets)
    out = np.zeros(starts[-1], np.int64)
    count_small(codes, np.array(widths), sets, starts, out)
    return out, plain(codes, widths, sets, starts)


def _widths(order: int) -> st.SearchStrategy[list[int]]:
    """Of columns any so many of which have a table that is small enough."""
    most = int(MOST_CELLS ** (1 / order) + 1e-9)
    return st.lists(st.integers(1, min(most, 254)), min_size=order, max_size=5)


@settings(max_examples=60)
@given(
    st.integers(1, 4).flatmap(lambda k: st.tuples(st.just(k), _widths(k))),
    st.one_of(st.integers(0, 700), st.just(_ROWS), st.integers(_ROWS - 2, 2 * _ROWS + 99)),
    st.integers(0, 2**32),
)
def test_every_table_is_the_one_counted_row_by_row(asked: tuple[int, list[int]], rows: int, seed: int) -> None:
    order, widths = asked
    found, expected = counted(coded(widths, rows, seed), widths, order)
    assert found.tolist() == expected.tolist()


def test_buckets_without_rows_in_a_block_stay_empty() -> None:
    codes = np.sort(coded([7, 5, 3], 3 * _ROWS, 1), axis=1)  # a block holds few codes
    codes[0][codes[0] == 4] = 6
    found, expected = counted(codes, [9, 5, 3], 3)
    assert found.tolist() == expected.tolist()


def test_rows_add_to_what_is_there() -> None:
    codes, widths, sets = coded([3, 4], 1000, 2), [3, 4], np.array([[0, 1]])
    out, whole = np.zeros(12, np.int64), np.zeros(12, np.int64)
    for part in (codes[:, :333], codes[:, 333:]):
        count_small(part, np.array(widths), sets, np.array([0, 12]), out)
    count_small(codes, np.array(widths), sets, np.array([0, 12]), whole)
    assert out.tolist() == whole.tolist()
    assert out.sum() == 1000


def test_sets_may_come_in_any_order() -> None:
    codes, widths = coded([3, 4, 5, 3], 900, 4), [3, 4, 5, 3]
    sets = np.array([[0, 2], [1, 3], [0, 1], [0, 3], [1, 2]])
    starts = places(widths, sets)
    out = np.zeros(starts[-1], np.int64)
    count_small(codes, np.array(widths), sets, starts, out)
    assert out.tolist() == plain(codes, widths, sets, starts).tolist()


@pytest.mark.parametrize("order", [1, 2])
def test_no_rows_and_no_sets(order: int) -> None:
    out = np.zeros(0, np.int64)
    count_small(coded([3, 3], 0, 0), np.array([3, 3]), np.zeros((0, order), np.int64), np.zeros(1, np.int64), out)
    found, _ = counted(coded([3, 3], 0, 0), [3, 3], order)
    assert not found.any()
