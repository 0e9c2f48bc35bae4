"""Whose rows they are: the key column of the real tables, if the caller named one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from daskpriv.engine.run import Engine
from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, TRAIN
from daskpriv.subjects import Subjects
from daskpriv.tables.table import Table


def without_key(exclude: Collection[str], key: str | None) -> Collection[str]:
    """What is compared with nothing; the key says who somebody is, not what they are like."""
    if key is not None and not isinstance(key, str):
        raise InputError("subject_key: give the name of one column.")
    return exclude if key is None or isinstance(exclude, str) else (*exclude, key)


def check_key(key: str | None, tables: Mapping[str, Table], columns: Sequence[str] | None, weights: Any) -> None:
    """Refuse a key that a real table lacks, or that is to be compared as well."""
    if key is None:
        return
    for name in (TRAIN, HOLDOUT):
        if name in tables and key not in tables[name].schema.names:
            raise InputError(f"subject_key: {name} has no column {key!r}; name the column that says whose row it is.")
    for option, named in (("columns", columns), ("weights", weights)):
        if named is not None and key in named:
            raise InputError(f"{option}: {key!r} is the subject key, which is not compared; leave it out.")


def subjects_of(engine: Engine, tables: Mapping[str, Table], key: str | None) -> Subjects | None:
    """The subject of every real row; None without a key or a holdout, when nothing is tested."""
    if key is None or HOLDOUT not in tables:
        return None
    return Subjects.of(*(engine.subjects(tables[name], key) for name in (TRAIN, HOLDOUT)))
