"""Flat rows from event tables that may be larger than memory: one unit of work for the subjects of each lane.

A unit reads the whole event table, part by part, and keeps the events of its own subjects. There are as many lanes as
it takes for those to fit a slot; no event is written anywhere.
"""

from __future__ import annotations

import functools
import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as at

from daskpriv.engine.published import Published, value_of
from daskpriv.engine.stages import Stages
from daskpriv.tables.sequences import (
    Histories,
    Lane,
    attributes_of,
    flat_rows,
    flat_schema,
    histories,
    read_lane,
)
from daskpriv.tables.sinks import get, join, put, remove
from daskpriv.tables.table import Part

READ_ROWS = 2**18  # of a part
_GROUP_ROWS = 65_536
_TEXT = 32  # bytes of a text and its offset, as a guess
_SORTING = 64  # bytes per event: subject, instant, draw, places
_LARGE = 2**20  # events of which a lane of its own is worth the reading
_UNKNOWN = 1 << 30
_MARK = "open"


@dataclass(frozen=True)
class Rows:
    """Rows that are read by key: where they are, and the columns wanted."""

    name: str
    parts: tuple[Part | Published[Part], ...]
    schema: pa.Schema
    key: str

    def read(self, lane: Lane) -> tuple[pa.Table, pa.Array]:
        """The rows of a lane, and their keys."""
        return read_lane([value_of(p) for p in self.parts], self.schema, self.key, lane)

    def misfits(self) -> dict[str, int]:
        """Cells that do not fit the type of their column, by column."""
        found = dict.fromkeys(self.schema.names, 0)
        for part in self.parts:
            for name, n in value_of(part).misfits(self.schema.names).items():
                found[name] += n
        return {name: n for name, n in found.items() if n}


@dataclass(frozen=True)
class Events:
    """An event table, and the table of its subjects, if there is one."""

    rows: Rows
    order: str
    seed: int
    subjects: Rows | None = None

    def histories(self, lane: Lane) -> Histories:
        """The sequences of the subjects of a lane."""
        return histories(*self.rows.read(lane), self.rows.name, self.rows.key, self.order, self.seed)

    @property
    def columns(self) -> frozenset[str]:
        """What an event is: neither whose it is, nor when it was."""
        return frozenset(self.rows.schema.names) - {self.rows.key, self.order}

    @property
    def flat(self) -> pa.Schema:
        """The columns of its flat rows."""
        known = None if self.subjects is None else self.subjects.schema
        return flat_schema(self.rows.schema, self.rows.key, self.order, known)


@dataclass(frozen=True)
class FlatLane:
    """Flat rows of a lane, here or in a file.

    Attributes
    ----------
    rows : pyarrow.Table or None
    file : str
        Where they were written, when `rows` is None; "" when there is none.
    idle : int
        Rows of the table of subjects whose subject has no events.
    misfits : {column: cells}
        Of the whole event table; told by the first lane only.
    """

    rows: pa.Table | None
    file: str = ""
    idle: int = 0
    misfits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One lane of an event table."""

    place: int
    lane: Lane
    name: str

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return f"sequences of {self.name}, lane {self.place + 1}"


def row_bytes(schema: pa.Schema) -> int:
    """Bytes of a row in memory, as far as types tell."""
    return sum(1 if at.is_boolean(t) else t.bit_width // 8 if at.is_primitive(t) else _TEXT for t in schema.types)


def lanes_for(rows: int, schema: pa.Schema, memory_per_slot: int | None, slots: int) -> list[Lane]:
    """As few lanes as fit half the memory of a slot each, but one for each slot while the table is large.

    Flat rows take no more than the events that they come from: two events of each subject, if it has two.
    """
    return Lane.cut(lane_count(rows, 2 * row_bytes(schema) + _SORTING, memory_per_slot, slots))


def lane_count(rows: int, bytes_each: int, memory_per_slot: int | None, slots: int) -> int:
    """How many lanes so many events are cut into.

    >>> lane_count(10**6, 100, 10**8, 4), lane_count(10**8, 100, 10**9, 4)
    (2, 20)
    """
    room = (memory_per_slot or _UNKNOWN) // 2
    return max(-(-rows * bytes_each // room), min(slots, rows // _LARGE), 1)


class Flattening(Stages):
    """Makes flat rows."""

    def flatten(self, events: Published[Events], name: str, lanes: Sequence[Lane], target: str) -> list[FlatLane]:
        """The flat rows of a table, lane by lane: in memory, or in files below `target` when that is not empty."""
        return self._ask(f"sequences of {name}", functools.partial(_flat, events, target), asked(name, lanes))


def asked(name: str, lanes: Sequence[Lane]) -> list[Asked]:
    """The items of a stage."""
    return [Asked(i, lane, name) for i, lane in enumerate(lanes)]


def _flat(published: Published[Events], target: str, item: Asked) -> FlatLane:
    events = published.get()
    misfits = events.rows.misfits() if item.place == 0 else {}
    held = events.histories(item.lane)
    attributes, idle = None, 0
    if events.subjects is not None:
        parent = events.subjects
        attributes, idle = attributes_of(held, *parent.read(item.lane), parent.name, parent.key, events.rows.name)
    rows = flat_rows(held, events.flat, attributes)
    if not target:
        return FlatLane(rows, "", idle, misfits)
    return FlatLane(None, _written(rows, target, item.place) if rows.num_rows else "", idle, misfits)


def _written(rows: pa.Table, target: str, place: int) -> str:
    """Write a file of its own name, as a copy of this unit may write another; unless the run is over."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", row_group_size=_GROUP_ROWS)
    file = join(target, f"{place:06}-{uuid.uuid4().hex}.parquet")
    get(join(target, _MARK))
    put(file, sink.getvalue(), private=True)
    return file


@contextmanager
def writable(target: str) -> Iterator[None]:
    """Let units write below `target`: a copy that comes late, when the mark is gone, must not bring cells back."""
    put(join(target, _MARK), b"", private=True)
    try:
        yield
    finally:
        remove(join(target, _MARK))
