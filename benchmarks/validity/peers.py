"""What other tools would have said about the same trial, by the rule they ship, from the report's own numbers.

Ranges and rows are those of the report, not those of the tools (docs/definitions.md says how these differ, the
presets reproduce them): that is to their advantage. SDMetrics' baseline alone needs a search of its own, and Aindo
publishes no limit. Installed programs are compared in tests/metrics/test_peers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import daskpriv
from benchmarks.validity.worlds import PERSON, World, numbers, rng_of
from daskpriv.metrics import METRICS, MembershipInference, Metric, Sequences

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Peer:
    """A score that is larger for more leak, and the value above which the tool speaks of a risk."""

    name: str
    score: Callable[[Report], float | None]
    limit: float


def metrics(asked: str) -> Sequence[str | Metric]:
    """All metrics of rows, and Clearbox's own test, whatever else was asked for."""
    rows = [n for n in METRICS if n != Sequences.name]
    return [MembershipInference(clearbox=True) if n == MembershipInference.name else n for n in rows]


def _details(metric: str) -> Callable[[Report], dict[str, Any]]:
    return lambda report: report["metrics"][metric]["details"]


def _strict(report: Report) -> float:
    return float(_details("dcr_share")(report)["share_strict"])


def _overfitting(report: Report) -> float:
    return -float(_details("neighbour_scores")(report)["dcr_overfitting_protection"]["value"])


def _below_holdout(metric: str) -> Callable[[Report], float | None]:
    def score(report: Report) -> float | None:
        found = _details(metric)(report)
        ours, theirs = (found[f"{q}->train"]["q05"] for q in ("synthetic", "holdout"))
        return None if ours is None or theirs is None else theirs - ours

    return score


def _risk(report: Report) -> float | None:
    found = _details("membership_inference")(report)["clearbox"]
    risk: float | None = found["membership_inference_mean_risk_score"]
    return risk


def _identical(report: Report) -> float:
    parts = _details("neighbour_scores")(report)["identical_match_share"]["parts"]
    return float(parts["synthetic"] - parts["holdout_to_train"])


def _privacy_score(report: Report) -> float | None:
    value = report["metrics"]["privacy_score"]["value"]
    return None if value is None else -float(value)


def _baseline(report: Report) -> float | None:
    """Minus the median distance to train over that of random rows (added to the report by `scores`)."""
    median = _details("dcr")(report)["synthetic->train"]["median"]
    return -min(median / report["random rows"], 1.0) if report["random rows"] else None


PEERS = (
    Peer("share closer to train, strict > 50 % (Clearbox, SURE)", _strict, 0.5),
    Peer("SDMetrics overfitting protection < 1", _overfitting, -1.0),
    Peer("SDMetrics baseline protection < 1", _baseline, -1.0),
    Peer("p5 of DCR below that of holdout (mostlyai-qa)", _below_holdout("dcr"), 0.0),
    Peer("p5 of NNDR below that of holdout", _below_holdout("nndr"), 0.0),
    Peer("identical matches above those of holdout (mostlyai-qa)", _identical, 0.0),
    Peer("Clearbox MI risk > 0.2", _risk, 0.2),
    Peer("privacy score < 100 (after Aindo)", _privacy_score, -100.0),
)


def scores(report: Report, world: World) -> dict[str, float | None]:
    """The score of every peer for one trial."""
    known = {**report, "random rows": _random_median(world.train)}
    return {p.name: p.score(known) for p in PEERS}


def _random_median(train: pd.DataFrame) -> float:
    """Median distance to train of rows drawn as SDMetrics draws them: each column alone, evenly."""
    rng, rows = rng_of("random rows"), train.drop(columns=PERSON, errors="ignore")
    even = set(numbers(rows))
    columns = {
        c: rng.uniform(v.min(), v.max(), len(v)) if c in even else rng.choice(v.astype(object).unique(), len(v))
        for c, v in rows.items()
    }
    found = daskpriv.nearest_neighbours(pd.DataFrame(columns), rows, k=1)
    return float(np.median(found.distance))


def alarms(outcomes: Sequence[Mapping[str, Any]], null: Sequence[Mapping[str, Any]]) -> list[str]:
    """Per peer: how often its rule speaks up, and how often it would with the limit that nobody has.

    That limit is the 95 % quantile of its own scores in trials of the same kind without a leak.
    """
    lines = []
    for peer in PEERS:
        found = _held(outcomes, peer)
        alarmed = 100 * np.mean([s > peer.limit for s in found]) if found else np.nan
        line = f"    {peer.name:<58} {alarmed:5.1f} %"
        if null:
            limit = np.quantile(_held(null, peer), 0.95, method="higher") if _held(null, peer) else np.nan
            line += f"   with an ideal limit {100 * np.mean([s > limit for s in found]):5.1f} %"
        lines.append(line)
    return lines


def _held(outcomes: Sequence[Mapping[str, Any]], peer: Peer) -> list[float]:
    found = (o["peers"][peer.name] for o in outcomes)
    return [s for s in found if s is not None]
