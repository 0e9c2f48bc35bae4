"""Bring tables together by column name: one schema for all, and a list of everything that differs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from daskpriv.errors import InputError
from daskpriv.tables.schema import Column, Schema
from daskpriv.tables.table import Table
from daskpriv.tables.types import Family, allowed_kinds, family, natural_kind, short_name

_ID_NAME = re.compile(r"(^|[^a-z])(id|ids|uuid|guid|key|index|rowid|row_id)$", re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Key|Uuid|UUID)$")


def looks_like_id(name: str) -> bool:
    """True for column names such as `id`, `customer_id`, `customerId`, `uuid`."""
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name)) or name.startswith("Unnamed: ")


def draft(
    tables: Mapping[str, Table],
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    exclude: Collection[str] = (),
    weights: Mapping[str, float] | None = None,
) -> Schema:
    """One schema for all tables; the first table (the real one) leads.

    Raises
    ------
    InputError
        When columns are missing or unexpected, types cannot be compared, or an option names an unknown column.
    """
    lead, *others = tables.values()
    exclude = frozenset(exclude)
    _check_known("columns", columns or (), lead)
    _check_known("exclude", exclude, lead)
    _check_known("weights", weights or (), lead)
    chosen = list(columns) if columns is not None else lead.schema.names
    if schema is not None and columns is None:
        chosen = _described(schema, lead, exclude)
    wanted = [n for n in chosen if n not in exclude]
    ids = {c.name for c in schema.columns if not c.used} if schema is not None else set()
    if not wanted:
        raise InputError(f"{lead.name}: no columns are left; exclude fewer.")
    for other in others:
        here = [n for n in other.schema.names if n not in exclude and n not in ids]
        if columns is not None:
            here = [n for n in here if n in columns]
        _same_columns(other.name, here, lead.name, [n for n in wanted if n not in ids])
    out = []
    present = {t.name: dict(zip(t.schema.names, t.schema.types, strict=True)) for t in tables.values()}
    described = {c.name: c for c in schema.columns} if schema is not None else {}
    for name in wanted:
        types = {t: kinds[name] for t, kinds in present.items() if name in kinds}
        declared = described.get(name)
        column = _column(name, types, declared)
        if weights and name in weights:
            column = replace(column, weight=weights[name])
        out.append(column)
    if not any(c.used for c in out):
        raise InputError(f"{lead.name}: every column is an id; declare at least one column of another kind.")
    return Schema(tuple(out))


def _check_known(option: str, names: Iterable[str], lead: Table) -> None:
    known = set(lead.schema.names)
    for name in names:
        if name not in known:
            raise InputError(f"{option}: {lead.name} has no column {name!r}; check the spelling.")


def _described(schema: Schema, lead: Table, exclude: Collection[str]) -> list[str]:
    """The schema's columns, which must be the table's."""
    here, there = set(schema.names), set(lead.schema.names)
    unknown = sorted(here - there)
    if unknown:
        raise InputError(
            f"schema: {lead.name} has no column {unknown[0]!r}; remove it from the schema or check the spelling."
        )
    silent = sorted(there - here - set(exclude))
    if silent:
        raise InputError(
            f"schema: column {silent[0]!r} of {lead.name} is not described; add it (kind id leaves it out)."
        )
    return list(schema.names)


def _same_columns(name: str, here: Sequence[str], lead: str, there: Sequence[str]) -> None:
    missing = sorted(set(there) - set(here))
    extra = sorted(set(here) - set(there))
    if missing or extra:
        raise InputError(
            f"{name} and {lead} have different columns: missing {_some(missing)} ({len(missing)}), "
            f"unexpected {_some(extra)} "
            f"({len(extra)}); pass columns=[...] to compare a subset on purpose."
        )


def _some(names: Sequence[str]) -> str:
    return "[" + ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "") + "]"


def _column(name: str, types: Mapping[str, pa.DataType], declared: Column | None) -> Column:
    families = {t: family(kind) for t, kind in types.items()}
    known = {t: f for t, f in families.items() if f is not Family.NOTHING}
    if len(set(known.values())) > 1 and (declared is None or declared.used):
        told = ", ".join(f"{f} in {t}" for t, f in families.items())
        raise InputError(f"column {name!r} is {told}; cast one side (types are never guessed).")
    of = next(iter(known.values()), Family.NOTHING)
    assert of is not None
    if declared is not None:
        if declared.kind not in allowed_kinds(of):
            raise InputError(
                f"schema: column {name!r} is declared {declared.kind.value}, but the tables hold {of.value} values; "
                f"declare it {natural_kind(of).value} or cast the tables."
            )
        return declared
    return Column(name, natural_kind(of))


def differences(tables: Mapping[str, Table], schema: Schema) -> list[dict[str, str]]:
    """What differs between the tables without making a comparison meaningless."""
    lead, *others = tables.values()
    out = []
    for other in others:
        here, there = set(other.schema.names), set(lead.schema.names)
        if [n for n in other.schema.names if n in there] != [n for n in lead.schema.names if n in here]:
            out.append(
                {
                    "table": other.name,
                    "column": "*",
                    "what": f"columns are in another order than in {lead.name}; matched by name",
                }
            )
        ours = dict(zip(lead.schema.names, lead.schema.types, strict=True))
        theirs = dict(zip(other.schema.names, other.schema.types, strict=True))
        for column in schema.used:
            a, b = ours[column.name], theirs[column.name]
            if a != b and short_name(a).removeprefix("large_") != short_name(b).removeprefix("large_"):
                what = f"type {short_name(b)}, but {short_name(a)} in {lead.name}; compared by value"
                out.append({"table": other.name, "column": column.name, "what": what})
    return out
