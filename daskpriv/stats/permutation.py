"""The law of the DCR share when the train/holdout labels of the real rows mean nothing.

Source: sampling without replacement of n_T from N labelled credits (Cochran, Sampling Techniques, ch. 2). The
credit of a real row is the number of synthetic rows nearest to it, ties shared; a binomial law would ignore
that one real row may draw many synthetic rows, and rejects a true null in 11 to 63 % of runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1000


@dataclass(frozen=True, slots=True)
class ShareLaw:
    """Expected value and variance of the fractional share under exchangeable labels, and the share itself.

    Attributes
    ----------
    expected, variance, observed : float
    held : int
        Credit of the first table, less what the rounding of shares among more than 20 rows may have added: a draw
        that holds as much is as extreme.
    """

    expected: float
    variance: float
    observed: float
    held: int

    @property
    def z(self) -> float:
        """Standard score of the observed share; 0 when nothing can vary."""
        return (self.observed - self.expected) / self.variance**0.5 if self.variance > 0 else 0.0


def share_law(credit: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64], whole: int) -> ShareLaw:
    """Permutation law of the share of credit held by the first table.

    Parameters
    ----------
    credit : int64 (v,)
        Distinct credits of real rows, any unit; zero included.
    first, second : int64 (v,)
        Rows of each table that hold this credit.
    whole : int
        All credit in the same unit. What no row holds (query rows without any neighbour) counts as expected.

    Examples
    --------
    >>> law = share_law(np.array([0, 1]), np.array([0, 2]), np.array([2, 0]), whole=2)
    >>> law.observed, law.expected, round(law.variance, 4)
    (1.0, 0.5, 0.0833)
    """
    rows = first + second
    n_first, n = int(first.sum()), int(rows.sum())
    mass = sum(int(c) * int(r) for c, r in zip(credit, rows, strict=True))
    square = sum(int(c) ** 2 * int(r) for c, r in zip(credit, rows, strict=True))
    held = sum(int(c) * int(r) for c, r in zip(credit, first, strict=True))
    expected = Fraction(n_first, n)
    observed = (held + expected * (whole - mass)) / whole
    rounding = min(n, _ROUNDING) if whole > _ROUNDING else 0
    if n < 2 or int(credit.max()) - int(credit[rows > 0].min()) <= rounding:
        return ShareLaw(float(expected), 0.0, float(observed), held - rounding)
    spread = Fraction(square) - Fraction(mass * mass, n)
    variance = expected * (1 - expected) * Fraction(n, n - 1) * spread / Fraction(whole) ** 2
    return ShareLaw(float(expected), float(variance), float(observed), held - rounding)
