"""The policy: levels, margins, thresholds of gates and rules, as data that an auditor may edit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from daskpriv.errors import InputError
from daskpriv.tables.files import refuse_secrets, shown
from daskpriv.tables.schema import load_yaml
from daskpriv.tables.sinks import get

_HEAD = "daskpriv_policy"
_LARGEST = 1e301
_REMEDY = "daskpriv/policy.yaml in the package is a valid one"


@dataclass(frozen=True)
class Policy:
    """How numbers become verdicts; see daskpriv/policy.yaml.

    Attributes
    ----------
    level : float
        Of intervals, between 0.5 and 1.
    margins, gates : {name: number}
    fail_on : tuple of str
    source : str
        Where it was read from; "default" is the one of the package.
    """

    level: float
    margins: Mapping[str, float]
    gates: Mapping[str, float]
    fail_on: tuple[str, ...] = field(default=())
    source: str = "default"


def policy_of(given: Policy | str | os.PathLike[str] | None) -> Policy:
    """The policy in a YAML file, whose missing keys are those of the package; None is the one of the package."""
    if isinstance(given, Policy):
        return given
    default = _parsed(files("daskpriv").joinpath("policy.yaml").read_text("utf-8"), "policy", None)
    if given is None:
        return default
    if not isinstance(given, (str, os.PathLike)):
        raise InputError("policy: give the path of a YAML file.")
    path = os.fspath(given)
    refuse_secrets(path, "policy")
    where = repr(shown(path))
    try:
        text = get(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"policy {where}: not UTF-8 text; {_REMEDY}.") from None
    except Exception as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(f"policy {where}: cannot be read ({reason}); check the path.") from None
    return _parsed(text, f"policy {where}", default)


def _parsed(text: str, source: str, default: Policy | None) -> Policy:
    data = load_yaml(text, source, _REMEDY)
    # True equals 1 in Python, and so does 1.0.
    if not isinstance(data, dict) or type(data.get(_HEAD)) is not int or data[_HEAD] != 1:
        raise InputError(f"{source}: the first line must say {_HEAD}: 1; {_REMEDY}.")
    known = (_HEAD, "level", "margins", "gates", "fail_on")
    for key in data:
        if key not in known:
            raise InputError(f"{source}: unknown key {_shown(key)}; known are {', '.join(known)}.")
    level = _number(data.get("level", default.level if default else None), source, "level", 0.5, 1.0)
    margins = _table(data.get("margins"), source, "margins", default.margins if default else None)
    gates = _table(data.get("gates"), source, "gates", default.gates if default else None)
    rules = data.get("fail_on", list(default.fail_on) if default else [])
    if not isinstance(rules, list) or not all(isinstance(r, str) for r in rules):
        raise InputError(f"{source}: fail_on must be a list of rules in quotes; {_REMEDY}.")
    return Policy(level, margins, gates, tuple(rules), source if default else "default")


def _table(given: Any, source: str, name: str, default: Mapping[str, float] | None) -> dict[str, float]:
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InputError(f"{source}: {name} must hold names and numbers; {_REMEDY}.")
    for key in given:
        if default is not None and key not in default:
            raise InputError(f"{source}: unknown {name} key {_shown(key)}; known are {', '.join(default)}.")
    return {**(default or {}), **{k: _number(v, source, f"{name}.{k}", 0.0, float("inf")) for k, v in given.items()}}


def _shown(key: Any) -> str:
    """A key for a message; numbers of thousands of digits have no text."""
    return repr(key[:80]) if isinstance(key, str) else f"of type {type(key).__name__}"


def _number(value: Any, source: str, name: str, least: float, below: float) -> float:
    small = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < min(below, _LARGEST)
    if not small:
        limits = f"at least {least:g}" + (f" and below {below:g}" if below != float("inf") else "")
        raise InputError(f"{source}: {name} must be a number, {limits}.")
    return float(value)
