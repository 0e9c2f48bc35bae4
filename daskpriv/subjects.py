"""Whose rows they are: where a person has several rows, labels belong to persons, not to rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_OTHER_SIDE = np.int64(0x2545F4914F6CDD1D)


@dataclass(frozen=True, eq=False)
class Subjects:
    """The subject of every row of two tables, as numbers that do not depend on the order of rows.

    Attributes
    ----------
    first, second : int64 (n_first,), (n_second,)
        Not negative. No number is in both: a subject with rows in both tables counts as two.
    shared : int
        Subjects that had rows in both tables.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    shared: int = 0

    @classmethod
    def of(cls, first: NDArray[np.int64], second: NDArray[np.int64]) -> Subjects:
        """Tell the subjects of the second table from those of the first.

        >>> found = Subjects.of(np.array([5, 5, 8]), np.array([8, 9]))
        >>> found.shared, len(np.intersect1d(found.first, found.second))
        (1, 0)
        """
        both = np.intersect1d(first, second)
        again = np.isin(second, both)
        return cls(first, np.where(again, second ^ _OTHER_SIDE, second), len(both))

    @cached_property
    def distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The subjects of each table, each once, ascending."""
        return np.unique(self.first), np.unique(self.second)

    @property
    def counts(self) -> tuple[int, int]:
        """How many subjects each table has."""
        return len(self.distinct[0]), len(self.distinct[1])

    @cached_property
    def clustering(self) -> float:
        """How many rows tell at worst no more than one, for a mean over rows: sum of squared subject sizes over rows.

        It is the design effect when all rows of a subject are equal; 1 when every subject has one row. Source: Kish
        (1965), with unequal clusters.

        >>> Subjects(np.array([1, 1, 2]), np.array([4])).clustering
        1.5
        """
        sizes = np.concatenate([np.unique(s, return_counts=True)[1] for s in (self.first, self.second)])
        return float((sizes.astype(np.float64) ** 2).sum() / sizes.sum())

    def side(self, second: bool) -> NDArray[np.int64]:
        """The subjects of the rows of one table."""
        return self.second if second else self.first

    def totals(self, second: bool, rows: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up values of rows of one table by subject; int64 (subjects of that table,), in the order of `distinct`.

        >>> Subjects(np.array([7, 3, 7]), np.array([1])).totals(False, np.arange(3), np.array([1, 10, 100]))
        array([ 10, 101])
        """
        names = self.distinct[second]
        out = np.zeros(len(names), np.int64)
        np.add.at(out, np.searchsorted(names, self.side(second)[rows]), values)
        return out
