"""What each metric is judged by: an effect with an interval, beside its margin, on one scale with what can be found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from daskpriv.protocol import Result

Interval = list[float | None] | None
_Found = tuple[float | None, Interval]

# What turns the detectable effect (`mde`) of a metric into the scale of its margin: AUC into 2 AUC - 1.
DETECTS = {"dcr_share": 1.0, "membership_inference": 2.0, "dcr_overlap": 1.0, "nndr": 1.0}


@dataclass(frozen=True)
class Effect:
    """How large the leak is that a metric measures.

    Attributes
    ----------
    meaning : str
        In words, without a leak it is 0.
    unit : "share" or "log odds"
    value : float or None
        None where only its ends are known.
    interval : [low, high, level] or None
        What is compared with the margin; an end beyond all numbers is None in the report.
    margin : float or None
        LEAK needs an interval above it (for clones above 0), BOUNDED one below it.
    detectable : float or None
        What these sizes find four times in five.
    """

    meaning: str
    unit: str
    value: float | None
    interval: Interval
    margin: float | None
    detectable: float | None

    def told(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)


def _keyed(value: str, interval: str) -> Callable[[Mapping[str, Any]], _Found]:
    return lambda details: (details.get(value), details.get(interval))


def _attacks(details: Mapping[str, Any]) -> _Found:
    areas = [a["auc"] for a in details.get("attacks", {}).values() if a.get("auc") is not None]
    return (2 * max(areas) - 1 if areas else None), details.get("effect_interval")


def _stands_out(details: Mapping[str, Any]) -> _Found:
    """Only its lower end is known: how much it is at least."""
    found = details.get("stands_out", {})
    least = found.get("log_odds")
    return None, None if least is None else [least, math.inf, found.get("level")]


_SHARE, _ODDS = "share", "log odds"
_OTHERS = {"subgroups": "excess of the share of train in the group where it is most surprising"}
_KNOWN: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], _Found]]] = {
    "clones": (
        "share of the training rows that is copied exactly, beyond chance",
        _SHARE,
        _keyed("copied_train_rows", "copied_train_rows_interval"),
    ),
    "dcr_share": (
        "share of the synthetic rows that behave like copies of training rows",
        _SHARE,
        _keyed("excess", "excess_interval"),
    ),
    "dcr_overlap": (
        "largest difference of the distributions of distances to train and to holdout, beyond chance",
        _SHARE,
        _keyed("effect", "effect_interval"),
    ),
    "nndr": (
        "how much smaller the ratios are towards train than towards holdout (2 theta - 1), beyond chance",
        _SHARE,
        _keyed("effect", "effect_interval"),
    ),
    "membership_inference": ("how well the strongest attack tells members (2 AUC - 1)", _SHARE, _attacks),
    "exposure": ("rise of the log odds of being in train, for the rows that stand out", _ODDS, _stands_out),
}


def effect_of(name: str, result: Result, margin: float | None = None, level: float | None = None) -> Effect | None:
    """The effect of a metric that was judged; None of one that only describes.

    `margin` and `level` are those of the policy, for a metric that does not tell its own.
    """
    details = result.details
    margin = details.get("margin", margin)
    if name in _KNOWN:
        meaning, unit, found = _KNOWN[name]
        value, interval = found(details)
    elif margin is not None or "effect" in details:
        meaning, unit = _OTHERS.get(name, "effect"), _SHARE
        value, interval = details.get("effect", result.value), details.get("effect_interval", result.interval)
    else:
        return None
    if value is None and interval is None:
        return None
    detectable = None if result.mde is None or name not in DETECTS else result.mde * DETECTS[name]
    if interval is not None:
        interval = [*interval[:2], interval[2] if interval[2] is not None else level]
    return Effect(meaning, unit, value, interval, margin, detectable)
