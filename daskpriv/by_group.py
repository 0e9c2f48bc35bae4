"""Columns by whose values results are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskpriv.engine.run import Grouping
from daskpriv.errors import InputError
from daskpriv.kernels.gower import CODES, NUMBERS
from daskpriv.metrics import Metric, Subgroups
from daskpriv.prepare import Surveyed
from daskpriv.space.encoding import ColumnCode
from daskpriv.tables.types import Kind

_MOST = 100


def columns_of(group_by: Any) -> tuple[str, ...]:
    """The names, checked."""
    if group_by is None:
        return ()
    if isinstance(group_by, str) or not all(isinstance(c, str) for c in group_by):
        raise InputError("group_by: give a list of column names.")
    return tuple(dict.fromkeys(group_by))


def with_subgroups(wanted: Sequence[Metric], columns: Sequence[str]) -> list[Metric]:
    """The metrics, with the one that knows groups when some were asked for."""
    has = any(m.name == Subgroups.name for m in wanted)
    return [*wanted, *([Subgroups()] if columns and not has else [])]


def groupings_of(surveyed: Surveyed, columns: Sequence[str]) -> dict[Grouping, tuple[str, ...]]:
    """Where the groups of each column are read from, and what they are called; the caller asked to see the values."""
    known = {c.name: c for c in surveyed.encoding.columns}
    out = {}
    for name in columns:
        if name not in known:
            raise InputError(f"group_by: column {name!r} is not among the columns that are compared; check the name.")
        out[_grouping(known[name])] = ("missing", *_names(known[name]))
    total = sum(map(len, out.values()))
    if total > _MOST:
        raise InputError(
            f"group_by: {total} groups are too many to tell apart, {_MOST} at most; name columns of fewer categories."
        )
    return out


def _grouping(column: ColumnCode) -> Grouping:
    ranked = column.reading.column.kind is Kind.ORDINAL and column.group == NUMBERS
    if column.group != CODES and not ranked:
        raise InputError(
            f"group_by: column {column.name!r} has no list of categories; name a nominal, boolean or ordinal column."
        )
    return Grouping(column.name, ranked, column.index)


def _names(column: ColumnCode) -> list[str]:
    return [str(v) for v in column.categories.to_pylist()] if column.categories is not None else []
