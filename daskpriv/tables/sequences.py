"""Event tables: the events of a subject in their order, and one flat row for it.

A flat row holds the subject's attributes, one event, the event that follows it, and how many events there are. Which
event it is, is drawn by a hash of (seed, subject); where events are at the same time, a hash of (seed, subject, event)
says which comes first. So nothing depends on files, blocks, or the order in which rows are stored.

Source: MOSTLY AI, D2.2: two successive events of each subject.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at

from daskpriv.errors import InputError
from daskpriv.tables.hashes import hash_cells, hash_values, mix, numbers_in
from daskpriv.tables.table import Part, decoded
from daskpriv.tables.types import Family, family

NEXT = "next_"
LENGTH = "sequence_length"
_SORTABLE = frozenset({Family.NUMBER, Family.INSTANT, Family.LOCALTIME, Family.CLOCK, Family.DURATION})


@dataclass(frozen=True)
class Lane:
    """Subjects whose hash lies in [low, high]; both ends belong to it, because 2**64 is no uint64."""

    low: int
    high: int

    @classmethod
    def cut(cls, count: int) -> list[Lane]:
        """Cut all subjects into so many lanes, ascending.

        >>> [hex(lane.high) for lane in Lane.cut(2)]
        ['0x7fffffffffffffff', '0xffffffffffffffff']
        """
        edges = [2**64 * i // count for i in range(count + 1)]
        return [cls(low, high - 1) for low, high in itertools.pairwise(edges)]

    def holds(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of the hashes lie in it."""
        return (hashes >= np.uint64(self.low)) & (hashes <= np.uint64(self.high))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which parts of a table are put together: no dictionaries, long text."""
    kind = kind.value_type if at.is_dictionary(kind) else kind
    if at.is_string(kind) or at.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if at.is_binary(kind) or at.is_binary_view(kind) else kind


def check_order(schema: pa.Schema, table: str, order: str) -> None:
    """Refuse an order column that has no order, or one that misleads."""
    kind = schema.field(order).type
    if family(kind) not in _SORTABLE:
        raise InputError(
            f"order_by: column {order!r} of {table} holds {family(kind)} values, which have no order in time; "
            "store it as a number or a time (as text, 10 comes before 9)."
        )


def check_key_type(schema: pa.Schema, table: str, key: str) -> Family:
    """The family of a key column; refuse one that names nobody."""
    of = family(schema.field(key).type)
    if of not in (Family.NUMBER, Family.CATEGORY):
        raise InputError(
            f"subject_key: column {key!r} of {table} holds {of} values, which name nobody; store it as text or whole "
            "numbers."
        )
    return of


def keys_in(column: pa.ChunkedArray, table: str, key: str) -> pa.Array:
    """The keys of rows as int64 or bytes, so that 7 and 7.0 are one subject.

    Raises
    ------
    InputError
        When a key is missing, or is a number but not a whole one of 64 bits.
    """
    column = decoded(column) if at.is_dictionary(column.type) else column
    _refuse_missing(column, table, key)
    whole = pa.int64() if family(column.type) is Family.NUMBER else pa.large_binary()
    try:
        found = column.cast(plain_type(column.type)).cast(whole).combine_chunks()
    except pa.ArrowInvalid:
        raise InputError(
            f"{table}: column {key!r} holds numbers that are not whole or exceed 64 bits, which name nobody; store it "
            "as text or whole numbers."
        ) from None
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _refuse_missing(column: pa.ChunkedArray, table: str, name: str) -> None:
    """Null or NaN; how many is not told, because that depends on how the work is cut."""
    if column.null_count or (at.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()):
        raise InputError(f"{table}: column {name!r} has missing values; fill them or drop those rows.")


def hash_keys(keys: pa.Array) -> NDArray[np.uint64]:
    """A hash of each key, by which subjects are ordered and divided."""
    return mix(numbers_in(keys).view(np.uint64)) if at.is_integer(keys.type) else hash_values(keys)


def read_lane(parts: Sequence[Part], schema: pa.Schema, key: str, lane: Lane) -> tuple[pa.Table, pa.Array]:
    """Rows of the subjects in a lane, with the columns of `schema`, and their keys.

    A part may hold rows of any lane; only one part, and what was kept so far, is held at a time.
    """
    kept, keys = [], []
    for part in parts:
        rows = part.read(schema.names)
        coded = keys_in(rows.column(key), part.name, key).dictionary_encode()
        mine = np.flatnonzero(lane.holds(hash_keys(coded.dictionary))[np.asarray(coded.indices)])
        kept.append(pa.table([_cast(rows.column(f.name), f, part.name) for f in schema], schema=schema).take(mine))
        keys.append(coded.dictionary.take(coded.indices.take(mine)))
        del rows, coded
        # Allocators keep what is freed, in pieces between what stays: from part to part more of it.
        pa.default_memory_pool().release_unused()
    return pa.concat_tables(kept), pa.concat_arrays(keys)


def _cast(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.ChunkedArray:
    try:
        return (decoded(column) if at.is_dictionary(column.type) else column).cast(field.type)
    except pa.ArrowException:
        raise InputError(
            f"{table}: column {field.name!r} holds values that do not fit {field.type}; store it with one type in all "
            "files."
        ) from None


@dataclass(frozen=True, eq=False)
class Histories:
    """Events of some subjects.

    events  Table     (events,)        as they were read
    order   int64     (events,)        their places by subject (in the order of hashes), then in their order in time
    keys    Array     (subjects,)      in the order of hashes
    hashes  uint64    (subjects,)      ascending
    starts  int64     (subjects + 1,)  where each subject begins in `order`
    """

    events: pa.Table
    order: NDArray[np.int64]
    keys: pa.Array
    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]
    seed: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Events of each subject, int64 (subjects,), 1 at least."""
        return np.diff(self.starts)

    @cached_property
    def this(self) -> NDArray[np.int64]:
        """Where in `order` the drawn event of each subject is: uniform among those with a next one, else the first."""
        drawn = mix(self.hashes ^ mix(np.array([self.seed], np.uint64)))
        # A remainder of 64 random bits: its bias is below length / 2**64.
        return self.starts[:-1] + (drawn % np.maximum(self.lengths - 1, 1).astype(np.uint64)).astype(np.int64)

    @property
    def followed(self) -> NDArray[np.bool_]:
        """Whether the drawn event has a next one: not in sequences of one event."""
        return self.lengths > 1

    @property
    def next(self) -> NDArray[np.int64]:
        """Where in `order` the event after the drawn one is; the drawn one itself where none follows."""
        return self.this + self.followed


def histories(events: pa.Table, keys: pa.Array, table: str, key: str, order: str, seed: int) -> Histories:
    """Put what `read_lane` found in order."""
    _refuse_missing(events.column(order), table, order)
    coded = keys.dictionary_encode()
    hashes = hash_keys(coded.dictionary)
    # Should two subjects have one hash, their keys tell which comes first.
    named = pa.table({"hash": hashes, "key": coded.dictionary})
    ranked = np.asarray(pc.sort_indices(named, [("hash", "ascending"), ("key", "ascending")])).astype(np.int64)
    place = np.empty(len(ranked), np.int64)
    place[ranked] = np.arange(len(ranked))
    subject, hashes = place[np.asarray(coded.indices)], hashes[ranked]
    sorting = _in_order(events, subject, hashes, _instants(events.column(order)), {key, order}, seed)
    starts = np.searchsorted(subject[sorting], np.arange(len(ranked) + 1))
    return Histories(events, sorting, coded.dictionary.take(ranked), hashes, starts, seed)


def _instants(column: pa.ChunkedArray) -> NDArray[Any]:
    """Numbers in the order of the values."""
    cells = pa.concat_arrays(column.chunks)
    if at.is_decimal(cells.type) or at.is_uint64(cells.type):
        return np.asarray(pc.rank(cells, tiebreaker="dense"))
    return numbers_in(cells)


def _in_order(
    events: pa.Table,
    subject: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    instant: NDArray[Any],
    without: set[str],
    seed: int,
) -> NDArray[np.int64]:
    """Places of the events by subject, then instant, then hash of (seed, subject, event)."""
    sorting = np.lexsort((instant, subject))
    whose, when = subject[sorting], instant[sorting]
    again = (whose[1:] == whose[:-1]) & (when[1:] == when[:-1])
    if not again.any():
        return sorting
    tied = sorting[np.append(again, False) | np.append(False, again)]
    draw = np.zeros(len(sorting), np.uint64)
    draw[tied] = mix(
        _content(events.take(tied), without) ^ mix(hashes[subject[tied]] ^ mix(np.array([~seed % 2**64], np.uint64)))
    )
    return np.lexsort((draw, instant, subject))


def _content(events: pa.Table, without: set[str]) -> NDArray[np.uint64]:
    """A hash of each whole event; events without any other column are all alike."""
    out = np.zeros(events.num_rows, np.uint64)
    for name in sorted(set(events.column_names) - without):
        salt = hash_values(pa.array([name]))
        out = mix(out ^ mix(hash_cells(pa.concat_arrays(events.column(name).chunks)) ^ salt))
    return out


def attributes_of(
    held: Histories, rows: pa.Table, keys: pa.Array, table: str, key: str, of: str
) -> tuple[pa.Table, int]:
    """Attributes of each subject of `held` from rows of a subject table, and how many subjects there have no events.

    Raises
    ------
    InputError
        When a subject is missing there, or is there twice.
    """
    if len(pc.unique(keys)) < len(keys):
        raise InputError(f"{table}: column {key!r} names a subject twice; keep one row per subject.")
    found = pc.index_in(held.keys, value_set=keys)
    if found.null_count:
        raise InputError(f"{table}: column {key!r} lacks a subject of {of}; add its row, or drop its events.")
    return rows.drop_columns([key]).take(found), len(keys) - len(found)


def flat_schema(events: pa.Schema, key: str, order: str, attributes: pa.Schema | None = None) -> pa.Schema:
    """The columns of flat rows: key, attributes, an event, the next one, the length."""
    columns = [f for f in events if f.name not in (key, order)]
    known = [f for f in attributes or () if f.name != key]
    following = [pa.field(NEXT + f.name, f.type) for f in columns]
    return pa.schema([events.field(key), *known, *columns, *following, pa.field(LENGTH, pa.int64())])


def flat_rows(held: Histories, schema: pa.Schema, attributes: pa.Table | None) -> pa.Table:
    """One row for each subject, in the order of their hashes."""
    this = held.events.take(held.order[held.this])
    following = held.events.take(pa.array(held.order[held.next], mask=~held.followed))
    columns = {n: this.column(n) for n in this.column_names}
    columns |= {NEXT + n: following.column(n) for n in this.column_names}
    if attributes is not None:
        columns |= {n: attributes.column(n) for n in attributes.column_names}
    columns[LENGTH] = pa.array(held.lengths)
    return pa.table([columns[f.name] for f in schema], schema=schema)
