"""Presets: a distance and metric options that reproduce a published tool, with what is known to mislead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from daskpriv.errors import InputError
from daskpriv.space.gower import Missing, RangeFrom, SpaceOptions


@dataclass(frozen=True)
class Preset:
    """One way to run an evaluation.

    Attributes
    ----------
    space : SpaceOptions
    bucketed : bool
        Quantile buckets and Hamming distance instead of Gower.
    drops_ids : bool
        Leave out columns that look like ids; published tools compare every column.
    options : {metric: {option: value}}
    metrics : tuple of str
        The metrics of this preset when none are named.
    warnings : tuple of str
        Printed with every report.
    """

    name: str
    space: SpaceOptions = SpaceOptions()
    bucketed: bool = False
    drops_ids: bool = True
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("dcr", "clones", "dcr_share", "membership_inference", "exposure")
    warnings: tuple[str, ...] = ()


_DIRECTIONS = (("synthetic", "train"), ("synthetic", "holdout"), ("holdout", "train"))

DEFAULT = Preset("default")
PRESETS = {
    p.name: p
    for p in (
        DEFAULT,
        Preset(
            "mostly-paper",
            bucketed=True,
            drops_ids=False,
            options={
                "dcr_share": {"ties": "size"},
                "dcr": {"directions": _DIRECTIONS},
                "accuracy": {"bins": "paper"},
                "correlation": {"bins": "paper"},
            },
            metrics=("dcr", "dcr_share"),
            warnings=(
                "preset mostly-paper: numbers are cut into 100 buckets, so a near copy and a far row of "
                "one bucket look alike, "
                "and ties are credited by table size, which is biased when train and holdout differ in size.",
            ),
        ),
        Preset(
            "clearbox",
            SpaceOptions(Missing.CLEARBOX, RangeFrom.PAIR_UNION),
            drops_ids=False,
            options={
                "dcr_share": {"ties": "strict", "clearbox": True},
                "membership_inference": {"attacks": ("distance",), "clearbox": True},
                "dcr": {"zero_bar": True, "bins": 20, "directions": _DIRECTIONS},
            },
            metrics=("dcr", "dcr_share", "membership_inference"),
            warnings=(
                "preset clearbox: ranges are taken anew for every pair of tables, so distances to train "
                "and to holdout are "
                "on different scales and the share can be far from 1/2 without any leak; ties count as further away.",
            ),
        ),
        Preset(
            "sdmetrics",
            SpaceOptions(Missing.LEVEL, RangeFrom.PAIR_REFERENCE),
            options={
                "neighbour_scores": {"scores": ("dcr_overfitting_protection",)},
                "dcr_share": {"ties": "strict"},
                "dcr": {"directions": _DIRECTIONS},
            },
            metrics=("neighbour_scores", "dcr", "dcr_share"),
            warnings=(
                "preset sdmetrics: ranges are taken from the reference of each search, so distances to train and to "
                "holdout are on different scales and the score can be far from 1 without any leak; ties count as "
                "further from train, so copies among ties look safe; where train is larger than the holdout, less "
                "than 1 is to be expected of the best generator.",
            ),
        ),
    )
}


def preset(name: str | None) -> Preset:
    """The preset called `name`; None is the default."""
    if name is None:
        return DEFAULT
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; known are {', '.join(PRESETS)}.")
    return PRESETS[name]
