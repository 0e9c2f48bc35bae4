"""Event tables: where a subject has a sequence of events, a row that is compared stands for a subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from daskpriv.engine.executor import Executor
from daskpriv.engine.flattening import READ_ROWS, Events, Rows, lanes_for, row_bytes
from daskpriv.engine.sources import parts_of
from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Role
from daskpriv.metrics import Metric, Sequences
from daskpriv.prepare import Columns
from daskpriv.session import open_any
from daskpriv.tables.schema import Column, Schema
from daskpriv.tables.sequences import LENGTH, NEXT, Lane, check_key_type, check_order, flat_schema, plain_type
from daskpriv.tables.table import Table
from daskpriv.tables.types import Kind

_ROLES = (TRAIN, HOLDOUT, SYNTHETIC)


@dataclass(frozen=True)
class Sequencing:
    """What the caller says of event tables.

    Attributes
    ----------
    key, order : str
        The columns that say whose event it is, and when it was.
    subjects : {role: table}
        Where the attributes of subjects are; for every role, or for none.
    """

    key: str
    order: str
    subjects: Mapping[Role, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, subject_key: str | None, order_by: Any, subjects: Any) -> Sequencing | None:
        """The choice, checked; None when rows are no events."""
        if subjects is not None and not (isinstance(subjects, Mapping) and set(subjects) <= set(_ROLES)):
            raise InputError("subjects: give a mapping from 'train', 'holdout' and 'synthetic' to tables of subjects.")
        given = {role: table for role, table in (subjects or {}).items() if table is not None}
        if order_by is None:
            if given:
                raise InputError("subjects: they belong to event tables; name the column of their order (order_by).")
            return None
        if not isinstance(order_by, str):
            raise InputError("order_by: give the name of one column.")
        if subject_key is None:
            raise InputError("order_by: name the column that says whose event it is as well (subject_key).")
        if order_by == subject_key:
            raise InputError(f"order_by: {order_by!r} is the subject key; name the column that orders its events.")
        return cls(subject_key, order_by, given)


def with_sequences(wanted: Sequence[Metric], asked: Sequencing | None, metrics: Any) -> list[Metric]:
    """The metrics; "default" includes the one that knows sequences where there are some, "all" only there."""
    has = any(m.name == Sequences.name for m in wanted)
    if asked is not None:
        return [*wanted, *([Sequences()] if metrics == "default" and not has else [])]
    if has and metrics != "all":
        raise InputError("metrics: 'sequences' is about events; name the columns subject_key and order_by as well.")
    return [m for m in wanted if m.name != Sequences.name]


@dataclass(frozen=True, eq=False)
class EventTables:
    """Event tables that fit each other, and the tables of their subjects; only footers were read.

    Attributes
    ----------
    read : frozenset of str
        The columns wanted.
    columns : Columns
        What the caller said of columns, told of flat rows.
    """

    asked: Sequencing
    tables: Mapping[Role, Table]
    subjects: Mapping[Role, Table]
    read: frozenset[str]
    columns: Columns

    @classmethod
    def of(cls, asked: Sequencing, tables: Mapping[Role, Table], columns: Columns) -> EventTables:
        """Open the tables of subjects and check what can be told from types.

        Raises
        ------
        InputError
            When a column is missing, has no order, names nobody, or would meet another one of its name.
        """
        if asked.subjects and set(asked.subjects) != set(tables):
            raise InputError(f"subjects: give a table of subjects for each of {', '.join(tables)}, or for none.")
        subjects = {role: open_any(asked.subjects[role], f"{role}-subjects") for role in tables if asked.subjects}
        for table in (*tables.values(), *subjects.values()):
            if table.rows == 0:
                raise InputError(f"{table.name}: the table has no rows; give one row per subject.")
            if asked.key not in table.schema.names:
                raise InputError(f"subject_key: {table.name} has no column {asked.key!r}; name the column of subjects.")
        for role, table in tables.items():
            if asked.order not in table.schema.names:
                raise InputError(f"order_by: {role} has no column {asked.order!r}; name the column of the order.")
            check_order(table.schema, role, asked.order)
            _check_apart(table, subjects.get(role), asked)
        _check_keys(tables, subjects, asked.key)
        named = [n for n in tables[TRAIN].schema.names if n not in (asked.key, asked.order)]
        for option, names in (("columns", columns.only), ("weights", columns.weights)):
            if asked.order in (names or ()):
                raise InputError(f"{option}: {asked.order!r} is the order column, which is not compared; leave it out.")
        left_out = {n for n in named if not _wanted(n, columns)}
        everything = {n for t in (*tables.values(), *subjects.values()) for n in t.schema.names}
        told = _of_flat_rows(columns, set(named), left_out, asked.order)
        return cls(asked, tables, subjects, frozenset(everything - left_out), told)

    def events(self, role: Role, executor: Executor, seed: int) -> Events:
        """What units read of a table."""
        parent = self.subjects.get(role)
        known = None if parent is None else self._rows(parent, executor)
        return Events(self._rows(self.tables[role], executor), self.asked.order, seed, known)

    def _rows(self, table: Table, executor: Executor) -> Rows:
        parts = tuple(parts_of(table, READ_ROWS, executor))
        return Rows(table.name, parts, self.schema_of(table), self.asked.key)

    def schema_of(self, table: Table) -> pa.Schema:
        """The columns that are read of a table."""
        return pa.schema([pa.field(f.name, plain_type(f.type)) for f in table.schema if f.name in self.read])

    def flat_schema(self, role: Role) -> pa.Schema:
        """The columns of flat rows."""
        parent = self.subjects.get(role)
        known = None if parent is None else self.schema_of(parent)
        return flat_schema(self.schema_of(self.tables[role]), self.asked.key, self.asked.order, known)

    def planned(self) -> dict[Role, Table]:
        """Flat rows at most, as tables that can be counted, but not read."""
        return {
            role: replace(table, schema=self.flat_schema(role), pieces=(_Unread(self.most_rows(role)),))
            for role, table in self.tables.items()
        }

    def lanes(self, role: Role, memory_per_slot: int | None, slots: int) -> list[Lane]:
        """The subjects of a table, divided so that a slot can hold the events of each lane."""
        return lanes_for(self.tables[role].rows, self.schema_of(self.tables[role]), memory_per_slot, slots)

    def most_rows(self, role: Role) -> int:
        """Flat rows at most: its subjects where a table lists them, else as many as there are events."""
        return min([t.rows for t in (self.tables[role], self.subjects.get(role)) if t is not None])

    def most_bytes(self, role: Role) -> int:
        """Bytes of these rows."""
        return self.most_rows(role) * row_bytes(self.flat_schema(role))


@dataclass(frozen=True)
class _Unread:
    """So many rows that do not exist yet."""

    rows: int

    def cut(self, start: int, stop: int) -> _Unread:
        return _Unread(stop - start)

    def read(self, columns: Sequence[str]) -> pa.Table:
        raise TypeError("planned rows cannot be read")


def as_events(
    asked: Sequencing | None, tables: Mapping[Role, Table], columns: Columns
) -> tuple[EventTables | None, Columns]:
    """The tables as event tables, if they are, and what the caller said of columns, told of the rows compared."""
    opened = None if asked is None else EventTables.of(asked, tables, columns)
    return opened, columns if opened is None else opened.columns


def _check_apart(table: Table, parent: Table | None, asked: Sequencing) -> None:
    """Refuse columns that a flat row would hold twice."""
    names = flat_schema(table.schema, asked.key, asked.order, None if parent is None else parent.schema).names
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InputError(
            f"{table.name}: a flat row would hold column {twice!r} twice (it adds {NEXT!r} to the name of each column, "
            f"and {LENGTH!r}); rename it."
        )


def _check_keys(tables: Mapping[Role, Table], subjects: Mapping[Role, Table], key: str) -> None:
    """Keys are compared within a role and between the real tables; those of synthetic subjects may be of any kind."""
    kinds = {t.name: check_key_type(t.schema, t.name, key) for t in (*tables.values(), *subjects.values())}
    pairs = [(role, subjects[role].name) for role in subjects] + [(TRAIN, HOLDOUT)]
    for one, other in pairs:
        if other in kinds and kinds[one] is not kinds[other]:
            raise InputError(
                f"subject_key: column {key!r} is {kinds[one]} in {one} but {kinds[other]} in {other}; cast one side."
            )


def _wanted(name: str, columns: Columns) -> bool:
    """Whether this event or the next one is compared in this column."""
    both = {name, NEXT + name}
    chosen = both if columns.only is None else both & set(columns.only)
    return name not in columns.exclude and bool(chosen - set(columns.exclude))


def _of_flat_rows(columns: Columns, events: set[str], left_out: set[str], order: str) -> Columns:
    """An event's column stands for two columns of flat rows, unless the caller names these."""

    def twice(names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(x for n in names for x in ((n, NEXT + n) if n in events else (n,))))

    gone = {*twice(sorted(left_out)), order}
    given = {n: w for n, w in (columns.weights or {}).items() if n not in gone}
    weights = {**{NEXT + n: w for n, w in given.items() if n in events}, **given}
    only = None if columns.only is None else twice(columns.only)
    exclude = [n for n in twice(list(columns.exclude)) if n not in gone]
    return Columns(_described(columns.schema, events, gone), only, exclude, weights)


def _described(schema: Schema | None, events: set[str], gone: set[str]) -> Schema | None:
    """The schema of flat rows: the next event is described as this one is, the length is a number."""
    if schema is None:
        return None
    told = {c.name: c for c in schema.columns if c.name not in gone}
    told |= {NEXT + n: replace(told[n], name=NEXT + n) for n in told if n in events and NEXT + n not in told}
    told.setdefault(LENGTH, Column(LENGTH, Kind.NUMERIC))
    return Schema(tuple(told.values()))
