"""The words that metrics and the engine share: requests and their answers.

A metric names what it needs as small frozen values; the engine answers each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.subjects import Subjects

Role = str
TRAIN: Role = "train"
HOLDOUT: Role = "holdout"
SYNTHETIC: Role = "synthetic"


@dataclass(frozen=True, slots=True, order=True)
class Neighbours:
    """For every row of `query`, its `k` nearest rows of `reference`.

    Equal roles mean that a row is never its own neighbour: rows are left out by id, never by value.
    """

    query: Role
    reference: Role
    k: int = 1

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError("k must be at least 1")

    @property
    def direction(self) -> str:
        """The name of this search in reports, such as "synthetic->train"."""
        return f"{self.query}->{self.reference}"


@dataclass(frozen=True, slots=True, order=True)
class CloserCounts:
    """For every row of `query`, how many rows of `reference` lie closer than its nearest row of `than`."""

    query: Role
    reference: Role
    than: Role


@dataclass(frozen=True, slots=True, order=True)
class Credits:
    """How often each real row is a nearest row of `query`, pooled over `first` and `second`.

    Each query row hands out one credit, shared equally among all rows at its smallest distance. With `draws`, also
    what the first table would hold under so many random labels (`daskpriv.stats.labels`, keyed by `seed`).
    """

    query: Role
    first: Role
    second: Role
    seed: int = 0
    draws: int = 0


@dataclass(frozen=True, slots=True, order=True)
class RowCredits:
    """The same credits row by row: every block of `first` and `second` comes with `Evidence.credit`."""

    query: Role
    first: Role
    second: Role


@dataclass(frozen=True, slots=True, order=True)
class Widest:
    """For every row of `query`, the largest difference in any column to its nearest row of `reference`.

    The smallest of it where several rows are nearest. A row close in all columns is told from one that is far in one.
    """

    query: Role
    reference: Role


Request = Neighbours | CloserCounts | Credits | RowCredits | Widest


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """The answer to `Neighbours`: one line per query row, nearest first.

    query     int64   (n,)    row ids, ascending
    distance  float64 (n, k)  in [0, 1], ascending; +inf where the reference had fewer than k rows
    row       int64   (n, k)  reference row ids in the order (distance, id); -1 where distance is +inf
    ties      int64   (n,)    reference rows at exactly distance[:, 0]; 0 where there is none
    """

    query: NDArray[np.int64]
    distance: NDArray[np.float64]
    row: NDArray[np.int64]
    ties: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"NeighbourTable(rows={len(self.query)}, k={self.distance.shape[1]})"

    def __sizeof__(self) -> int:
        return self.query.nbytes + self.distance.nbytes + self.row.nbytes + self.ties.nbytes

    @property
    def nearest(self) -> NDArray[np.float64]:
        """Distance to the closest record, float64 (n,)."""
        return self.distance[:, 0]

    def first(self, k: int) -> NeighbourTable:
        """The same table with only the first `k` neighbours of each row."""
        return NeighbourTable(self.query, self.distance[:, :k], self.row[:, :k], self.ties)


@dataclass(frozen=True, eq=False)
class CloserTable:
    """The answer to `CloserCounts`: reference rows closer than, and exactly at, the threshold; int64 (n,)."""

    query: NDArray[np.int64]
    closer: NDArray[np.int64]
    equal: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"CloserTable(rows={len(self.query)})"


@dataclass(frozen=True, eq=False)
class CreditLaw:
    """The answer to `Credits`, without row ids: how many real rows hold which credit.

    credit  int64 (v,)  distinct credits in units of 1/UNIT, ascending; rows without credit are counted too
    first   int64 (v,)  rows of the first table that hold it
    second  int64 (v,)  rows of the second table that hold it
    drawn   int64 (draws,)  credit of the rows that each draw labels as the first table's
    hubs    int64 (h, 3)    (credit, 0 or 1 for the table, row id) of the at most HUBS rows of most credit, descending
    """

    credit: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    drawn: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    hubs: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64))

    # 16 times the least common multiple of 1 to 20: ties of up to 20 rows share a credit without rounding, and
    # 2.4 billion query rows may all credit one row before int64 overflows.
    UNIT: ClassVar[int] = 16 * 232_792_560
    HUBS: ClassVar[int] = 100


@dataclass(frozen=True)
class Facts:
    """What is known before any distance is computed. Read-only.

    Attributes
    ----------
    rows : {role: rows}
    columns : int
    seed : int
    level : float
        Of intervals.
    subjects : Subjects or None
        Whose the real rows are.
    groups : {column: names of its groups}
        By which results are wanted, in the order of the numbers in `Evidence.groups`.
    """

    rows: Mapping[Role, int]
    columns: int
    seed: int = 0
    level: float = 0.95
    subjects: Subjects | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def train_share(self) -> float:
        """What is labelled (subjects, else rows) in train over what is labelled at all: expected without a leak."""
        units = (self.rows[TRAIN], self.rows[HOLDOUT]) if self.subjects is None else self.subjects.counts
        return units[0] / sum(units)

    @property
    def units(self) -> str:
        """What the tests draw anew: the labels of rows, or subjects."""
        return "labels" if self.subjects is None else "subjects"

    @property
    def clustering(self) -> float:
        """How many rows tell no more than one; 1 without subjects."""
        return 1.0 if self.subjects is None else self.subjects.clustering

    def has(self, *roles: Role) -> bool:
        """True when every one of `roles` was given."""
        return all(role in self.rows for role in roles)


@dataclass(frozen=True)
class Evidence:
    """All per-row answers about one block of query rows of `role`.

    widest : {request: float64 (n,)}
        +inf for a row without any neighbour.
    credit : int64 (n,) or None
        Of the rows themselves, in units of 1 / CreditLaw.UNIT; real rows only, where it was asked for.
    groups : {column: int64 (n,)}
        The group of each row; real rows only.
    """

    role: Role
    neighbours: Mapping[tuple[Role, Role], NeighbourTable] = field(default_factory=dict)
    closer: Mapping[CloserCounts, CloserTable] = field(default_factory=dict)
    widest: Mapping[Widest, NDArray[np.float64]] = field(default_factory=dict)
    credit: NDArray[np.int64] | None = None
    groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def table(self, request: Neighbours) -> NeighbourTable:
        """The answer to `request`, cut to its k."""
        return self.neighbours[request.query, request.reference].first(request.k)
