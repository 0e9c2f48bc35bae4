"""The schema: what each column is, decided once, frozen, saved as YAML that a person may edit."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import yaml

from daskpriv.errors import InputError
from daskpriv.tables.files import refuse_secrets, shown
from daskpriv.tables.sinks import get
from daskpriv.tables.stores import told
from daskpriv.tables.types import Kind

FORMAT = 1


def _number(value: Any) -> float:
    """The value as float64; NaN when it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _is_level(value: Any) -> bool:
    """True for what a cell can hold: no NaN, which differs from itself, no list, no number without end."""
    if isinstance(value, int) and abs(value) >= 10**38:
        return False
    if isinstance(value, (Real, Decimal)):
        return not math.isnan(value)
    return isinstance(value, (str, bytes, date))


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
        if not isinstance(self.name, str):
            raise InputError("schema: column names must be strings; rename them.")
        where = f"schema: column {self.name!r}"
        if self.kind not in tuple(Kind):
            raise InputError(f"{where} has an unknown kind; known are {', '.join(Kind)}.")
        object.__setattr__(self, "kind", Kind(self.kind))
        weight = _number(self.weight)
        if not weight >= 0:
            raise InputError(f"{where}: weight must be a finite number of at least 0.")
        object.__setattr__(self, "weight", weight)
        if self.range is not None:
            span = _number(self.range)
            if not span > 0:
                raise InputError(f"{where}: range must be a finite number above 0.")
            object.__setattr__(self, "range", span)
        if not isinstance(self.levels, (list, tuple)):
            raise InputError(f"{where}: 'levels' must be a list, lowest first.")
        object.__setattr__(self, "levels", tuple(self.levels))
        if not all(map(_is_level, self.levels)):
            raise InputError(f"{where}: every level must be one text, number, truth value or date; mend 'levels'.")
        if self.kind is Kind.ORDINAL and len(self.levels) < 2:
            raise InputError(
                f"{where} is ordinal but lists fewer than two levels; list them lowest first under 'levels'."
            )
        # As the data will be compared: 1, 1.0 and true are one level.
        if len(set(self.levels)) != len(self.levels):
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
        if not isinstance(self.columns, (list, tuple)) or not all(isinstance(c, Column) for c in self.columns):
            raise InputError("schema: give a tuple of daskpriv.Column, or read a schema with Schema.load.")
        object.__setattr__(self, "columns", tuple(self.columns))
        twice = next((name for name, n in Counter(c.name for c in self.columns).items() if n > 1), None)
        if twice is not None:
            raise InputError(f"schema: column {twice!r} is listed twice; list each column once.")

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
        # PyYAML writes unusual line ends such as U+0085 as they are, and then reads them as blanks.
        texts = [*self.names, *(v for c in self.columns for v in c.levels if isinstance(v, str))]
        plain = all(text.isprintable() for text in texts)
        return head + yaml.safe_dump(
            {"daskpriv_schema": FORMAT, "columns": columns}, sort_keys=False, allow_unicode=plain
        )

    @classmethod
    def from_yaml(cls, text: str, source: str = "schema") -> Schema:
        """Read a schema from YAML text; `source` names it in errors."""
        data = load_yaml(text, source, "`daskpriv schema infer` writes a valid file")
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
        """Read a schema file or URL."""
        target = os.fspath(path)
        refuse_secrets(target, "schema")
        where = repr(shown(target))
        try:
            text = get(target).decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"schema: {where} is not UTF-8 text; save it as UTF-8.") from None
        except Exception as error:
            known = told(error, "schema", where, target, begun=False) if "://" in target else None
            reason = getattr(error, "strerror", None) if known is None and "://" not in target else type(error).__name__
            raise known or InputError(f"schema: cannot read {where} ({reason}); check the path.") from None
        return cls.from_yaml(text, f"schema {where}")


class _TwiceError(Exception):
    """A key of a mapping stands there twice."""


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; a repeated key is an error, and so is a merge (`<<`), which may grow without end."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise _TwiceError(_called(key))
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(text: str, source: str, remedy: str) -> Any:
    """Parse YAML that anybody may have written: only plain values, no key twice; `source` names it in errors."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except _TwiceError as error:
        raise InputError(f"{source}: {error} is listed twice; list it once.") from None
    except Exception:
        # PyYAML lets IndexError, AttributeError, KeyError and OverflowError out for scalars such as `!!int ''`.
        raise InputError(f"{source}: this is not valid YAML; {remedy}.") from None


def _called(key: Any) -> str:
    """A key for messages; numbers of thousands of digits have no text."""
    short = isinstance(key, (str, float, bool, type(None))) or (isinstance(key, int) and abs(key) < 10**20)
    return repr(key) if short else f"(of type {type(key).__name__})"


def _column(name: Any, spec: Any, source: str) -> Column:
    if not isinstance(name, str):
        raise InputError(f"{source}: column names must be strings; put quotes around {_called(name)}.")
    spec = {"kind": spec} if isinstance(spec, str) else spec
    if not isinstance(spec, Mapping) or "kind" not in spec:
        raise InputError(f"{source}: column {name!r} needs a 'kind'.")
    unknown = sorted(_called(key) for key in set(spec) - {"kind", "levels", "weight", "range"})
    if unknown:
        raise InputError(
            f"{source}: column {name!r} has the unknown key {unknown[0]}; known are kind, levels, weight, range."
        )
    try:
        kind = Kind(spec["kind"] if isinstance(spec["kind"], str) else "")
    except ValueError:
        raise InputError(
            f"{source}: column {name!r} has an unknown kind; known are {', '.join(k.value for k in Kind)}."
        ) from None
    levels = spec.get("levels", ())
    if not isinstance(levels, Iterable) or isinstance(levels, (str, bytes, Mapping)):
        raise InputError(f"{source}: column {name!r}: 'levels' must be a list, lowest first.")
    return Column(name, kind, spec.get("weight", 1.0), tuple(levels), spec.get("range"))
