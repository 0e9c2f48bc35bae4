"""One file = one idea = one source. A new metric is a new file and one line here."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from daskpriv.errors import InputError
from daskpriv.metrics.accuracy import Accuracy
from daskpriv.metrics.base import Metric, Result, Verdict
from daskpriv.metrics.clones import Clones
from daskpriv.metrics.correlation import Correlation
from daskpriv.metrics.dcr import Dcr
from daskpriv.metrics.dcr_overlap import DcrOverlap
from daskpriv.metrics.dcr_share import DcrShare
from daskpriv.metrics.exposure import Exposure
from daskpriv.metrics.membership_inference import MembershipInference
from daskpriv.metrics.neighbour_scores import NeighbourScores
from daskpriv.metrics.nndr import Nndr
from daskpriv.metrics.privacy_score import PrivacyScore
from daskpriv.metrics.sequences import Sequences
from daskpriv.metrics.split_check import SplitCheck
from daskpriv.metrics.subgroups import Subgroups
from daskpriv.protocol import MODELLED

_EVERY = (
    Dcr,
    Clones,
    DcrShare,
    DcrOverlap,
    Nndr,
    MembershipInference,
    Exposure,
    Subgroups,
    PrivacyScore,
    NeighbourScores,
    Accuracy,
    Correlation,
    Sequences,
)
METRICS: dict[str, type[Any]] = {m.name: m for m in _EVERY}

__all__ = [
    "METRICS",
    "Accuracy",
    "Clones",
    "Correlation",
    "Dcr",
    "DcrOverlap",
    "DcrShare",
    "Exposure",
    "MembershipInference",
    "Metric",
    "NeighbourScores",
    "Nndr",
    "PrivacyScore",
    "Result",
    "Sequences",
    "SplitCheck",
    "Subgroups",
    "Verdict",
    "metric_class",
]


def metric_class(name: str) -> type[Any]:
    """The metric registered under `name`, ours or an entry point of the group `daskpriv.metrics`."""
    if name in METRICS:
        return METRICS[name]
    for point in entry_points(group="daskpriv.metrics"):
        if point.name == name:
            return point.load()  # type: ignore[no-any-return]
    raise InputError(f"unknown metric {name!r}; known are {', '.join((*METRICS, *MODELLED))}.")
