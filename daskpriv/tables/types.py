"""What an Arrow type means to a distance."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa
from pyarrow import types as at


class Family(StrEnum):
    """Types that can be compared with each other without guessing."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    CATEGORY = "category"
    INSTANT = "instant"
    LOCALTIME = "localtime"
    CLOCK = "time of day"
    DURATION = "duration"
    NOTHING = "all-null"


class Kind(StrEnum):
    """What a column is to the distance; `text` is compared like `nominal`, `id` is left out."""

    NUMERIC = "numeric"
    DATETIME = "datetime"
    TIMEDELTA = "timedelta"
    ORDINAL = "ordinal"
    NOMINAL = "nominal"
    BOOLEAN = "boolean"
    TEXT = "text"
    ID = "id"


CATEGORICAL = frozenset({Kind.NOMINAL, Kind.BOOLEAN, Kind.TEXT})

_NATURAL = {
    Family.NUMBER: Kind.NUMERIC,
    Family.BOOLEAN: Kind.BOOLEAN,
    Family.CATEGORY: Kind.NOMINAL,
    Family.INSTANT: Kind.DATETIME,
    Family.LOCALTIME: Kind.DATETIME,
    Family.CLOCK: Kind.DATETIME,
    Family.DURATION: Kind.TIMEDELTA,
    Family.NOTHING: Kind.NOMINAL,
}
_ALLOWED = {
    Family.NUMBER: {Kind.NUMERIC, Kind.NOMINAL, Kind.ORDINAL, Kind.TEXT, Kind.ID},
    Family.BOOLEAN: {Kind.BOOLEAN, Kind.NOMINAL, Kind.NUMERIC, Kind.ORDINAL, Kind.ID},
    Family.CATEGORY: {Kind.NOMINAL, Kind.TEXT, Kind.ORDINAL, Kind.ID},
    Family.INSTANT: {Kind.DATETIME, Kind.NOMINAL, Kind.ID},
    Family.LOCALTIME: {Kind.DATETIME, Kind.NOMINAL, Kind.ID},
    Family.CLOCK: {Kind.DATETIME, Kind.NOMINAL, Kind.ID},
    Family.DURATION: {Kind.TIMEDELTA, Kind.NOMINAL, Kind.ID},
    Family.NOTHING: set(Kind),
}


def family(kind: pa.DataType) -> Family | None:
    """The family of an Arrow type; None for types without a distance (lists, structs, extensions)."""
    if at.is_dictionary(kind):
        return family(kind.value_type)
    if at.is_boolean(kind):
        return Family.BOOLEAN
    if at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind):
        return Family.NUMBER
    if at.is_timestamp(kind):
        return Family.LOCALTIME if kind.tz is None else Family.INSTANT
    if at.is_date(kind):
        return Family.LOCALTIME
    if at.is_time(kind):
        return Family.CLOCK
    if at.is_duration(kind):
        return Family.DURATION
    if at.is_null(kind):
        return Family.NOTHING
    text = at.is_string(kind) or at.is_large_string(kind) or at.is_string_view(kind)
    binary = at.is_binary(kind) or at.is_large_binary(kind) or at.is_fixed_size_binary(kind) or at.is_binary_view(kind)
    return Family.CATEGORY if text or binary else None


def natural_kind(of: Family) -> Kind:
    """The kind a column of this family gets when nobody says otherwise."""
    return _NATURAL[of]


def allowed_kinds(of: Family) -> set[Kind]:
    """The kinds a schema may declare for a column of this family."""
    return _ALLOWED[of]


def short_name(kind: pa.DataType) -> str:
    """A type's name for error messages: "list", "struct", "extension", else Arrow's own."""
    if isinstance(kind, pa.BaseExtensionType):
        return "extension"
    if at.is_list(kind) or at.is_large_list(kind) or at.is_fixed_size_list(kind):
        return "list"
    return "struct" if at.is_struct(kind) else "map" if at.is_map(kind) else str(kind)
