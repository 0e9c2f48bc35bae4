"""A grid of cells for distributed numbers, ending at exact order statistics of all of them together.

The cells of a permutation test must not know the labels: edges come from the pooled values only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from daskpriv.stats.selection import Selection

# Fine where small distances are: shares of 0.0001 to 0.01 in steps of about a quarter, then percents.
SHARES = tuple(sorted({*(float(x) for x in np.geomspace(1e-4, 1e-2, 20)), *(i / 100 for i in range(1, 101))}))


def rank_of(share: float, n: int) -> int:
    """The 0-based rank of the smallest of `n` values that at least so large a share of them does not exceed.

    The share is the decimal number it is written as: seven hundredths of 100 values are 7, though 0.07 * 100 is a
    little more in binary.

    >>> rank_of(0.07, 100), rank_of(0.071, 100), rank_of(0.0, 100)
    (6, 7, 0)
    """
    return min(max(math.ceil(Fraction(str(share)) * n) - 1, 0), n - 1)


@dataclass(frozen=True, eq=False)
class Grid:
    """A search for edges: `chunk` partials add up, `advance` gives the next state or the edges, ascending, distinct.

    Cell j of a value is `np.searchsorted(edges, value)`: values in (edges[j - 1], edges[j]]. 0 is always an edge, so
    that cell 0 holds exact zeros only.

    Attributes
    ----------
    distinct : bool
        False gives one value per share, also where they are equal, and no 0.
    """

    selection: Selection
    distinct: bool = True

    @classmethod
    def of(cls, n: int, shares: Sequence[float] = SHARES, distinct: bool = True) -> Grid:
        """Begin: the edges are the smallest values that at least so many of the `n` pooled values do not exceed."""
        ranks = [rank_of(s, n) for s in shares] if n else []
        return cls(Selection.at(sorted(set(ranks)) if distinct else ranks), distinct)

    def chunk(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Partial of some values, NaN left out."""
        return self.selection.count(values)

    def advance(self, partial: NDArray[np.int64]) -> Grid | NDArray[np.float64]:
        """The next state, or the edges, float64 (e,)."""
        found = self.selection.narrow(partial)
        if not found.done:
            return replace(self, selection=found)
        return np.unique(np.append(found.values(), 0.0)) if self.distinct else found.values()
