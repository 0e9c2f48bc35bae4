"""Counts of sequences: how long they are, how many values and which they hold, which event follows which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import SequenceCounts


def count_sequences(
    starts: NDArray[np.int64],
    this: NDArray[np.int64],
    values: Sequence[NDArray[np.int64]],
    codes: Sequence[NDArray[np.uint8]],
    widths: Sequence[int],
) -> SequenceCounts:
    """Count sequences of events that stand one behind the other.

    Parameters
    ----------
    starts : int64 (subjects + 1,)
        Where each sequence begins.
    this : int64 (subjects,)
        The drawn event of each; the next one follows it, unless it is the only one.
    values : for each column, int64 (events,)
        Equal for equal values, not below -1.
    codes : for each column, uint8 (events,)
        Buckets, below the column's width.

    Examples
    --------
    >>> city = np.array([0, 1, 0, 2])
    >>> found = count_sequences(np.array([0, 3, 4]), np.array([1, 3]), [city], [city.astype(np.uint8)], [3])
    >>> found.lengths, found.categories, found.holders[0].tolist()
    ({1: 1, 3: 1}, ({1: 1, 2: 1},), [1, 1, 1])
    >>> found.pairs[0].reshape(3, 4).tolist()  # city 1, then 0; city 2, then nothing
    [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    """
    lengths = np.diff(starts)
    whose = np.repeat(np.arange(len(lengths)), lengths)
    following = np.minimum(this + 1, max(len(whose) - 1, 0))
    return SequenceCounts(
        _tally(lengths),
        tuple(_tally(_distinct(whose, column)) for column in values),
        tuple(_holders(whose, code, width) for code, width in zip(codes, widths, strict=True)),
        tuple(
            np.bincount(
                code[this].astype(np.int64) * (width + 1) + np.where(lengths > 1, code[following], width),
                minlength=width * (width + 1),
            )
            for code, width in zip(codes, widths, strict=True)
        ),
    )


def _tally(numbers: NDArray[np.int64]) -> dict[int, int]:
    found, counts = np.unique(numbers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _distinct(whose: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many different values each subject has, int64 (subjects,)."""
    span = int(values.max(initial=-1)) + 2
    return np.bincount(np.unique(whose * span + values + 1) // span)


def _holders(whose: NDArray[np.int64], codes: NDArray[np.uint8], width: int) -> NDArray[np.int64]:
    return np.bincount(np.unique(whose * width + codes) % width, minlength=width)
