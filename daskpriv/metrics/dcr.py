"""Distance to the closest record (DCR), in every direction between the tables.

Source: docs/definitions.md; Platzer & Reutterer (2021); the statistics block of Clearbox SURE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics.base import Answers, Result, Verdict
from daskpriv.stats.exact import Moments
from daskpriv.stats.histogram import edges, histogram
from daskpriv.stats.selection import Quantiles, Selection

PROBABILITIES = {"min": 0.0, "q01": 0.01, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}
DIRECTIONS = (
    (SYNTHETIC, TRAIN),
    (SYNTHETIC, HOLDOUT),
    (HOLDOUT, TRAIN),
    (TRAIN, SYNTHETIC),
    (HOLDOUT, SYNTHETIC),
    (TRAIN, TRAIN),
    (HOLDOUT, HOLDOUT),
    (SYNTHETIC, SYNTHETIC),
)


@dataclass(frozen=True, eq=False)
class _Pass:
    """One direction's reduction: moments and histogram come with the first pass, quantiles need several."""

    selection: Selection
    moments: Moments | None = None
    n_zero: int = 0
    counts: NDArray[np.int64] | None = None


_Partial = dict[str, tuple[NDArray[np.int64], Moments | None, int, NDArray[np.int64] | None]]


@dataclass(frozen=True)
class Dcr:
    """Mean, exact quantiles, zeros and histogram of the distance to the closest record.

    Attributes
    ----------
    bins : int
        Equal bins on [0, 1], the same for every direction.
    directions : tuple of (query, reference)
    zero_bar : bool
        Add the published statistics block with a bar for exact zeros.
    """

    name: ClassVar[str] = "dcr"
    bins: int = 100
    directions: tuple[tuple[str, str], ...] = DIRECTIONS
    zero_bar: bool = False

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        return [Neighbours(q, r) for q, r in self.directions if facts.has(q, r)]

    def begin(self, facts: Facts) -> dict[Neighbours, tuple[Quantiles, _Pass]]:
        state = {}
        for request in self.needs(facts):
            wanted = Quantiles(tuple(PROBABILITIES.values()), facts.rows[request.query])
            state[request] = (wanted, _Pass(Selection.at(wanted.ranks())))
        return state

    def chunk(self, state: dict[Neighbours, tuple[Quantiles, _Pass]], evidence: Evidence) -> _Partial:
        out: _Partial = {}
        for request, (_, step) in state.items():
            if request.query != evidence.role:
                continue
            nearest = evidence.table(request).nearest
            digits = step.selection.count(nearest)
            if step.moments is None:
                zero = int(np.count_nonzero(nearest == 0.0))
                out[request.direction] = (digits, Moments.of(nearest), zero, self._histogram(nearest))
            else:
                out[request.direction] = (digits, None, 0, None)
        return out

    def _histogram(self, nearest: NDArray[np.float64]) -> NDArray[np.int64]:
        return histogram(nearest[nearest > 0] if self.zero_bar else nearest, self.bins)

    def combine(self, a: _Partial, b: _Partial) -> _Partial:
        out = dict(a)
        for direction, (digits, moments, zero, counts) in b.items():
            if direction not in out:
                out[direction] = (digits, moments, zero, counts)
                continue
            other = out[direction]
            both = moments is not None and other[1] is not None
            out[direction] = (
                digits + other[0],
                moments + other[1] if both else None,  # type: ignore[operator]
                zero + other[2],
                counts + other[3] if both else None,  # type: ignore[operator]
            )
        return out

    def advance(
        self, state: dict[Neighbours, tuple[Quantiles, _Pass]], partial: _Partial, answers: Answers
    ) -> dict[Neighbours, tuple[Quantiles, _Pass]] | Result:
        following = {}
        for request, (wanted, step) in state.items():
            digits, moments, zero, counts = partial[request.direction]
            first = step.moments is None
            following[request] = (
                wanted,
                _Pass(
                    step.selection.narrow(digits),
                    moments if first else step.moments,
                    zero if first else step.n_zero,
                    counts if first else step.counts,
                ),
            )
        if not all(step.selection.done for _, step in following.values()):
            return following
        return self._result({r.direction: self._describe(*pair) for r, pair in following.items()})

    def _describe(self, wanted: Quantiles, step: _Pass) -> dict[str, Any]:
        assert step.moments is not None and step.counts is not None
        quantiles = dict(zip(PROBABILITIES, wanted.combine(step.selection.values()), strict=True))
        n = step.moments.n
        out = {
            "n": n,
            "mean": step.moments.mean,
            "std": step.moments.std,
            **quantiles,
            "n_zero": step.n_zero,
            "share_zero": step.n_zero / n,
            "histogram": {"edges": edges(self.bins), "counts": step.counts.tolist()},
        }
        if self.zero_bar:
            keys = {"min": "min", "25%": "q25", "median": "median", "75%": "q75", "max": "max"}
            out["clearbox"] = {"mean": out["mean"], **{k: out[v] for k, v in keys.items()}}
            out["histogram"] = {"edges": edges(self.bins), "counts": step.counts.tolist(), "zero": step.n_zero}
        return out

    def _result(self, details: dict[str, Any]) -> Result:
        main = details[f"{SYNTHETIC}->{TRAIN}"]
        other = details.get(f"{HOLDOUT}->{TRAIN}")
        reading = f"Half of the synthetic rows lie within {main['median']:.4f} of a training row"
        reading += (
            f"; half of the holdout rows lie within {other['median']:.4f}."
            if other
            else "; without a holdout there is no yardstick."
        )
        return Result(
            value=main["median"],
            verdict=Verdict.NOT_EVALUATED,
            expected=other["median"] if other else None,
            details=details,
            cannot_show="A distance has no threshold of its own: it describes, the share and the clones judge.",
            reading=reading,
        )
