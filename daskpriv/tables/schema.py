"""The schema: what each column is, decided once, frozen, saved as YAML that a person may edit."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from daskpriv.errors import InputError
from daskpriv.tables.types import Kind

FORMAT = 1


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of every table.

    Attributes
    ----------
    name : str
    kind : Kind
    weight : float
        Weight in the Gower mean, >= 0.
    levels : tuple
        The ordered levels of an ordinal column, lowest first.
    range : float or None
        An explicit range that replaces the fitted one (numeric columns: in the column's units).
    """

    name: str
    kind: Kind
    weight: float = 1.0
    levels: tuple[Any, ...] = ()
    range: float | None = None

    def __post_init__(self) -> None:
        where = f"schema: column {self.name!r}"
        if not (_number(self.weight) and self.weight >= 0):
            raise InputError(f"{where}: weight must be a finite number of at least 0.")
        if self.range is not None and not (_number(self.range) and self.range > 0):
            raise InputError(f"{where}: range must be a finite number above 0.")
        if self.kind is Kind.ORDINAL and len(self.levels) < 2:
            raise InputError(
                f"{where} is ordinal but lists fewer than two levels; list them lowest first under 'levels'."
            )
        if len(set(map(repr, self.levels))) != len(self.levels):
            raise InputError(f"{where} lists a level twice.")
        if self.levels and self.kind is not Kind.ORDINAL:
            raise InputError(f"{where} lists levels but is {self.kind.value}; make it ordinal or remove 'levels'.")

    @property
    def used(self) -> bool:
        """True when the column takes part in distances."""
        return self.kind is not Kind.ID


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of every table, in the order in which distances are summed."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(f"schema: column {twice[0]!r} is listed twice; list each column once.")

    @property
    def names(self) -> tuple[str, ...]:
        """All column names, in order."""
        return tuple(c.name for c in self.columns)

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that take part in distances."""
        return tuple(c for c in self.columns if c.used)

    def column(self, name: str) -> Column:
        """The column called `name`."""
        return next(c for c in self.columns if c.name == name)

    def to_yaml(self) -> str:
        """The schema as YAML; `from_yaml` reads it back."""
        columns: dict[str, dict[str, Any]] = {}
        for c in self.columns:
            spec: dict[str, Any] = {"kind": c.kind.value}
            if c.levels:
                spec["levels"] = list(c.levels)
            if c.weight != 1.0:
                spec["weight"] = c.weight
            if c.range is not None:
                spec["range"] = c.range
            columns[c.name] = spec
        head = (
            "# kinds: "
            + ", ".join(k.value for k in Kind)
            + "\n# id columns are left out; ordinal columns need 'levels', lowest first\n"
        )
        return head + yaml.safe_dump(
            {"daskpriv_schema": FORMAT, "columns": columns}, sort_keys=False, allow_unicode=True
        )

    @classmethod
    def from_yaml(cls, text: str, source: str = "schema") -> Schema:
        """Read a schema from YAML text; `source` names it in errors."""
        try:
            data = yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise InputError(
                f"{source}: this is not valid YAML; `daskpriv schema infer` writes a valid file."
            ) from None
        if not isinstance(data, Mapping) or not isinstance(data.get("columns"), Mapping):
            raise InputError(
                f"{source}: expected a mapping with 'daskpriv_schema' and 'columns'; see `daskpriv schema infer`."
            )
        if data.get("daskpriv_schema") != FORMAT:
            raise InputError(
                f"{source}: 'daskpriv_schema' must be {FORMAT}; write the file again with `daskpriv schema infer`."
            )
        return cls(tuple(_column(name, spec, source) for name, spec in data["columns"].items()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema file."""
        try:
            text = Path(path).read_text("utf-8")
        except OSError as error:
            raise InputError(f"schema: cannot read {os.fspath(path)!r} ({error.strerror}); check the path.") from None
        except UnicodeDecodeError:
            raise InputError(f"schema: {os.fspath(path)!r} is not UTF-8 text; save it as UTF-8.") from None
        return cls.from_yaml(text, f"schema {os.fspath(path)!r}")


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; a repeated key is an error."""
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        twice = next((k for i, k in enumerate(keys) if k in keys[:i]), None)
        if twice is not None:
            raise InputError(f"schema: {twice!r} is listed twice; list each column once.")
        return super().construct_mapping(node, deep)


def _column(name: Any, spec: Any, source: str) -> Column:
    if not isinstance(name, str):
        raise InputError(f"{source}: column names must be strings; put quotes around {name!r}.")
    spec = {"kind": spec} if isinstance(spec, str) else spec
    if not isinstance(spec, Mapping) or "kind" not in spec:
        raise InputError(f"{source}: column {name!r} needs a 'kind'.")
    unknown = sorted(map(str, set(spec) - {"kind", "levels", "weight", "range"}))
    if unknown:
        raise InputError(
            f"{source}: column {name!r} has the unknown key {unknown[0]!r}; known are kind, levels, weight, range."
        )
    try:
        kind = Kind(spec["kind"])
    except ValueError:
        raise InputError(
            f"{source}: column {name!r} has an unknown kind; known are {', '.join(k.value for k in Kind)}."
        ) from None
    levels = spec.get("levels", ())
    if not isinstance(levels, Iterable) or isinstance(levels, (str, bytes, Mapping)):
        raise InputError(f"{source}: column {name!r}: 'levels' must be a list, lowest first.")
    return Column(name, kind, spec.get("weight", 1.0), tuple(levels), spec.get("range"))
