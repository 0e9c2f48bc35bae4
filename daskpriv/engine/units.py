"""Units of work whose results are kept: searches, counts and credits of query rows against a reference.

A unit holds no data, only where its inputs are read from. Its result is a piece of the run store, and whoever needs
a piece that was lost makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from daskpriv.engine import tasks
from daskpriv.engine.cache import BLOCKS
from daskpriv.engine.reference import Reference
from daskpriv.engine.sources import BlockSource
from daskpriv.engine.store import LostPieceError, Store
from daskpriv.evidence import CloserTable, NeighbourTable
from daskpriv.space.searching import compare, nearest, widest


class Unit(Protocol):
    """Work with a result worth keeping."""

    @property
    def label(self) -> str:
        """What to call it in messages."""
        ...

    def run(self, store: Store) -> Any:
        """Do it."""
        ...


@dataclass(frozen=True)
class Piece:
    """The result of a unit, in the store or yet to be made."""

    key: str
    unit: Unit
    name: str = ""

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return self.unit.label

    def load(self, store: Store) -> Any:
        """The result; made again when the store has lost it."""
        return BLOCKS.get(("piece", self.key), lambda: self._read(store))

    def make(self, store: Store) -> pa.Table:
        """Do the work."""
        return to_arrow(self.unit.run(store))

    def _read(self, store: Store) -> Any:
        try:
            table = store.get(self.key, self.name)
        except LostPieceError:
            table = self.make(store)
            if store.reachable:
                store.put(self.key, table)
        return from_arrow(table)


class Answer(Protocol):
    """What is known about the rows of one query block, put together from pieces."""

    def load(self, store: Store) -> Any:
        """Read it."""
        ...


@dataclass(frozen=True)
class Joined:
    """Lists of the slices of a block, one below the other."""

    pieces: tuple[Piece, ...]

    def load(self, store: Store) -> NeighbourTable:
        """Read them."""
        tables = [p.load(store) for p in self.pieces]
        return tables[0] if len(tables) == 1 else tasks.joined_tables(tables)


@dataclass(frozen=True)
class Merged:
    """Lists of the same rows over disjoint references."""

    pieces: tuple[Piece, ...]

    def load(self, store: Store) -> NeighbourTable:
        """Read and merge them."""
        merged: NeighbourTable = tasks.fold(tasks.merge_tables, (), [p.load(store) for p in self.pieces])
        return merged


@dataclass(frozen=True)
class Added:
    """Counts of the same rows over disjoint references."""

    pieces: tuple[Piece, ...]

    def load(self, store: Store) -> CloserTable:
        """Read and add them."""
        added: CloserTable = tasks.fold(tasks.add_closer, (), [p.load(store) for p in self.pieces])
        return added


@dataclass(frozen=True, eq=False)
class WidestTable:
    """The largest difference in any column to the nearest rows of a group: query int64 (n,), widest float64 (n,)."""

    query: np.ndarray[Any, Any]
    widest: np.ndarray[Any, Any]

    def __sizeof__(self) -> int:
        return self.query.nbytes + self.widest.nbytes


@dataclass(frozen=True)
class Least:
    """The smallest of what the groups of a reference say."""

    pieces: tuple[Piece, ...]

    def load(self, store: Store) -> np.ndarray[Any, Any]:
        """Read them, float64 (n,)."""
        least: np.ndarray[Any, Any] = np.minimum.reduce([p.load(store).widest for p in self.pieces])
        return least


@dataclass(frozen=True)
class Search:
    """The k nearest reference rows of some query rows, in one group of a reference.

    With `home`, what these rows found where they belong, only nearer rows are looked for.
    """

    query: BlockSource
    start: int
    stop: int
    k: int
    reference: Reference
    group: int
    same: bool
    home: Merged | None = None

    @property
    def label(self) -> str:
        """Which rows against which table."""
        return f"search of {self.query.label} in {self.reference.role}"

    def run(self, store: Store) -> NeighbourTable:
        """Search."""
        some = self.query.load().slice(self.start, self.stop)
        enough = None if self.home is None else self.home.load(store).distance[:, -1]
        parts = self.reference.held(self.group)
        return NeighbourTable(some.row, *nearest(self.reference.guide.get(), parts, some, self.same, self.k, enough))


@dataclass(frozen=True)
class Together:
    """The lists of a block from those of its groups, merged once."""

    lists: Merged
    of: str

    @property
    def label(self) -> str:
        """Which rows."""
        return f"merge of {self.of}"

    def run(self, store: Store) -> NeighbourTable:
        """Merge."""
        return self.lists.load(store)


@dataclass(frozen=True)
class Closer:
    """How many reference rows of a group lie closer than, and exactly at, the nearest row of `than`."""

    query: BlockSource
    than: Joined
    reference: Reference
    group: int
    same: bool

    @property
    def label(self) -> str:
        """Which rows against which table."""
        return f"count of {self.query.label} in {self.reference.role}"

    def run(self, store: Store) -> CloserTable:
        """Count."""
        query, threshold = self.query.load(), self.than.load(store).nearest
        parts, none = self.reference.held(self.group), np.zeros(len(query), np.int64)
        below, equal, _ = compare(self.reference.guide.get(), parts, query, self.same, threshold, none)
        return CloserTable(query.row, below, equal)


@dataclass(frozen=True)
class Apart:
    """The largest difference in any column to the nearest rows, in one group of the reference."""

    query: BlockSource
    lists: Joined
    reference: Reference
    group: int
    same: bool

    @property
    def label(self) -> str:
        """Which rows against which table."""
        return f"differences of {self.query.label} to {self.reference.role}"

    def run(self, store: Store) -> WidestTable:
        """Look at the nearest rows again."""
        query, threshold = self.query.load(), self.lists.load(store).nearest
        parts = self.reference.held(self.group)
        return WidestTable(query.row, widest(self.reference.guide.get(), parts, query, self.same, threshold))


@dataclass(frozen=True, eq=False)
class Credited:
    """Credits of real rows, ascending by row within each of two tables.

    side    int8  (n,)  0 for the first table, 1 for the second
    row     int64 (n,)
    credit  int64 (n,)  in units of 1 / CreditLaw.UNIT
    """

    side: np.ndarray[Any, Any]
    row: np.ndarray[Any, Any]
    credit: np.ndarray[Any, Any]

    def __sizeof__(self) -> int:
        return self.side.nbytes + self.row.nbytes + self.credit.nbytes

    def within(self, side: int, low: int, high: int) -> tasks.Sparse:
        """Rows [low, high) of one table."""
        here = np.flatnonzero(self.side == side)
        a, b = np.searchsorted(self.row[here], [low, high])
        return self.row[here[a:b]], self.credit[here[a:b]]


@dataclass(frozen=True)
class Credit:
    """Credits that the rows of a query block hand out to the real rows nearest to them, as far as their lists tell."""

    query: BlockSource
    lists: tuple[Joined, Joined]

    @property
    def label(self) -> str:
        """Which rows."""
        return f"ties of {self.query.label}"

    def run(self, store: Store) -> Credited:
        """Credits of rows whose ties all fit their list."""
        found = tasks.listed_credits(*(x.load(store) for x in self.lists))
        side = np.repeat(np.arange(2, dtype=np.int8), [len(f[0]) for f in found])
        row, credit = (np.concatenate([f[i] for f in found]) for i in (0, 1))
        return Credited(side, row, credit)


@dataclass(frozen=True)
class Received:
    """The credit of each real row of a block, added up over all query blocks."""

    made: tuple[Piece, ...]
    side: int
    of: BlockSource

    @property
    def label(self) -> str:
        """Which rows."""
        return f"credits of {self.of.label}"

    def run(self, store: Store) -> Credited:
        """Add up."""
        low, high = self.of.first_row, self.of.first_row + self.of.rows
        total = tasks.NOTHING
        for piece in self.made:
            total = tasks.add_credits(total, piece.load(store).within(self.side, low, high))
        return Credited(np.full(len(total[0]), self.side, np.int8), *total)


@dataclass(frozen=True)
class WideCredit:
    """Credits of query rows with more ties than their list holds: a second search at the known distance.

    In one group of one of the two references; `side` says which.
    """

    query: BlockSource
    lists: tuple[Joined, Joined]
    side: int
    reference: Reference
    group: int
    same: bool

    @property
    def label(self) -> str:
        """Which rows against which table."""
        return f"ties of {self.query.label} in {self.reference.role}"

    def run(self, store: Store) -> Credited:
        """Search again, if there is such a row."""
        first, second = (x.load(store) for x in self.lists)
        wide, found = tasks.wide_ties(first, second, self.side == 0), tasks.NOTHING
        if len(wide.places):
            query, parts = self.query.load().take(wide.places), self.reference.held(self.group)
            guide = self.reference.guide.get()
            _, _, several = compare(guide, parts, query, self.same, wide.distance, wide.share)
            rows, credit = (np.concatenate([f[i] for f in several]) for i in (0, 1))
            found = tasks.add_credits(tasks.NOTHING, (rows, credit))
        return Credited(np.full(len(found[0]), self.side, np.int8), *found)


def to_arrow(value: NeighbourTable | CloserTable | WidestTable | Credited) -> pa.Table:
    """A result as columns."""
    if isinstance(value, NeighbourTable):
        k = value.distance.shape[1]
        columns: dict[str, Any] = {"query": value.query, "ties": value.ties}
        columns |= {f"distance_{i}": value.distance[:, i] for i in range(k)}
        columns |= {f"row_{i}": value.row[:, i] for i in range(k)}
    elif isinstance(value, CloserTable):
        columns = {"query": value.query, "closer": value.closer, "equal": value.equal}
    elif isinstance(value, WidestTable):
        columns = {"query": value.query, "widest": value.widest}
    else:
        columns = {"side": value.side, "row": value.row, "credit": value.credit}
    return pa.table({name: pa.array(np.ascontiguousarray(array)) for name, array in columns.items()})


def from_arrow(table: pa.Table) -> NeighbourTable | CloserTable | WidestTable | Credited:
    """A result from its columns."""
    held = {name: table.column(name).to_numpy() for name in table.column_names}
    if "ties" in held:
        k = (len(held) - 2) // 2
        distance, row = (_side_by_side(held, name, k) for name in ("distance", "row"))
        return NeighbourTable(held["query"], distance, row, held["ties"])
    if "closer" in held:
        return CloserTable(held["query"], held["closer"], held["equal"])
    if "widest" in held:
        return WidestTable(held["query"], held["widest"])
    return Credited(held["side"], held["row"], held["credit"])


def _side_by_side(held: dict[str, Any], name: str, k: int) -> np.ndarray[Any, Any]:
    return np.stack([held[f"{name}_{i}"] for i in range(k)], axis=1)
