"""The settings of daskpriv within Dask's configuration; `daskpriv.yaml` beside this file says what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import dask
import yaml
from dask.utils import parse_timedelta

from daskpriv.errors import InputError

dask.config.update_defaults(yaml.safe_load(files("daskpriv.cluster").joinpath("daskpriv.yaml").read_text("utf-8")))


@dataclass(frozen=True)
class Limits:
    """How long the driver waits for what; seconds, and tries of a unit."""

    patience: float
    unit: float
    stall: float
    pause: float
    attempts: int


def limits() -> Limits:
    """As configured now."""
    patience, unit, stall, pause = map(_seconds, ("patience", "unit-limit", "stall-limit", "pause-limit"))
    attempts = dask.config.get("daskpriv.attempts")
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InputError("Dask configuration: daskpriv.attempts must be a whole number of at least 1.")
    return Limits(patience, unit, stall, pause, attempts)


def scheduler_wait() -> float:
    """Seconds for which a scheduler that does not answer is tried again."""
    return _seconds("scheduler-wait")


def store_wait() -> float:
    """Seconds for which a store that does not answer is knocked at before a run begins."""
    return _seconds("store-wait", or_none=True)


def _seconds(name: str, or_none: bool = False) -> float:
    try:
        value = float(parse_timedelta(dask.config.get(f"daskpriv.{name}")))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        value = -1.0
    if not (value > 0 or (or_none and value == 0)):
        least = "0 or more" if or_none else "above 0"
        raise InputError(f"Dask configuration: daskpriv.{name} must be a time {least}, such as '30 seconds'.")
    return value
