"""Is the holdout a random part of the real rows? Every label test rests on it.

If labels are exchangeable, the nearest other real row of a row shares its label as often as random labels do. More
often: train and holdout differ (time, place, source). Less often: holdout rows repeat training rows.

Source: the nearest-neighbour two-sample test of Schilling (1986) and Henze (1988), k = 1, by label draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, TRAIN, Evidence, Facts, Neighbours, NeighbourTable
from daskpriv.kernels.labels import hashes
from daskpriv.metrics.base import Answers, Result, added, drawn_labels
from daskpriv.stats.labels import Labels

_K = 5
_REAL = (TRAIN, HOLDOUT)
_CHOICE = np.uint64(0x7F4A7C159E3779B9)
_State = tuple[Facts, Labels] | None


@dataclass(frozen=True)
class SplitCheck:
    """How often a real row and its nearest other real row have the same label, over all rows and over twins."""

    name: ClassVar[str] = "split_check"

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        return [Neighbours(q, r, _K) for q in _REAL for r in _REAL] if facts.has(HOLDOUT) else []

    def begin(self, facts: Facts) -> _State:
        if not facts.has(HOLDOUT):
            return None
        return facts, drawn_labels(facts)

    def chunk(self, state: _State, evidence: Evidence) -> dict[str, Any]:
        if state is None or evidence.role not in _REAL:
            return {}
        _, drawn = state
        tables = [evidence.table(Neighbours(evidence.role, r, _K)) for r in _REAL]
        place = drawn.rows(tables[0].query, evidence.role == HOLDOUT)
        partner, in_holdout, distance = _partners(tables, place, drawn)
        some = partner >= 0
        same = in_holdout == (evidence.role == HOLDOUT)
        cells = (distance == 0).astype(np.int64)  # 1: twins
        return {
            "pairs": np.bincount(cells[some], minlength=2),
            "same": np.bincount(cells[some & same], minlength=2),
            "drawn": drawn.agreements(place[some], partner[some], cells[some], 2),
        }

    def combine(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return added(a, b)

    def advance(self, state: _State, partial: dict[str, Any], answers: Answers) -> Result:
        if state is None:
            return Result(None, reading="Not evaluated: without a holdout there is no split to check.")
        pairs, same, drawn = (np.asarray(partial[k]) for k in ("pairs", "same", "drawn"))
        everyone = _compared(int(pairs.sum()), int(same.sum()), drawn.sum(axis=1))
        twins = _compared(int(pairs[1]), int(same[1]), drawn[:, 1])
        return Result(
            everyone["agreement"],
            expected=everyone["expected"],
            p_value=None,
            details={"nearest": everyone, "twins": twins},
            reading="How often a real row and its nearest other real row are on the same side of the split.",
            cannot_show="A small drift between train and holdout can pass.",
        )


def _compared(pairs: int, same: int, drawn: NDArray[np.int64]) -> dict[str, Any]:
    """Two-sided p by the distance from the mean of the draws, and one-sided of "too few agree"."""
    if not pairs:
        return {"pairs": 0, "agreement": None, "expected": None, "p_value": 1.0, "p_too_few": 1.0}
    center, n = float(drawn.mean()), len(drawn) + 1
    away = int(np.count_nonzero(np.abs(drawn - center) >= abs(same - center)))
    few = int(np.count_nonzero(drawn <= same))
    return {
        "pairs": pairs,
        "agreement": same / pairs,
        "expected": center / pairs,
        "p_value": (1 + away) / n,
        "p_too_few": (1 + few) / n,
    }


def _partners(
    tables: Sequence[NeighbourTable], place: NDArray[np.int64], drawn: Labels
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """The nearest other real row of each row among all real rows, whether it is a holdout row, and its distance.

    -1 where there is none.

    Of several at the same distance one is drawn by a hash of the row: first the table, by the numbers of ties in
    each, so that no order of tables or rows decides; then one of its listed rows.
    """
    nearest = [t.nearest for t in tables]
    distance = np.minimum(*nearest)
    ties = [np.where(d == distance, t.ties, 0) for d, t in zip(nearest, tables, strict=True)]
    dice = hashes(_CHOICE, place)
    total = (ties[0] + ties[1]).astype(np.uint64)
    second = (dice >> np.uint64(32)) % np.maximum(total, np.uint64(1)) >= ties[0].astype(np.uint64)
    out = np.full(len(place), -1, np.int64)
    for is_second, table, tied in zip((False, True), tables, ties, strict=True):
        mine = np.flatnonzero((second == is_second) & (tied > 0) & np.isfinite(distance))
        listed = np.minimum(tied[mine], table.row.shape[1]).astype(np.uint64)
        column = ((dice[mine] & np.uint64(0xFFFFFFFF)) % listed).astype(np.int64)
        out[mine] = drawn.rows(table.row[mine, column], is_second)
    return out, second, distance
