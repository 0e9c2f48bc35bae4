"""Do columns go together in the synthetic table as they do in train? One association for every pair of columns.

Cramer's V of bucketed columns serves all kinds, so that one matrix holds a mixed table; pairs of ordered columns also
have a sign, Spearman's rho of their buckets. All rows, the cross-tabulations of `accuracy`.
Source: Bergsma (2013); Spearman (1904); see daskpriv.stats.association.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts, Margin, Margins
from daskpriv.metrics.accuracy import BUDGET, margins_within
from daskpriv.metrics.base import Answers, FromAnswers, Result

_WORST = 20
_MATRIX = 60  # columns; what a page can show
_DIGITS = 6


@dataclass(frozen=True)
class Correlation(FromAnswers):
    """Mean absolute difference between the associations of synthetic and train, beside that of holdout and train.

    It describes utility and is not judged.

    Attributes
    ----------
    buckets : int
        Of a column.
    bins : "train", "real" or "paper"
        Who says where buckets begin; see `daskpriv.space.bins`.
    budget : float
        Seconds of one core; beyond, a subset of the pairs is chosen by the seed.
    """

    name: ClassVar[str] = "correlation"
    buckets: int = 10
    bins: str = "train"
    budget: float = BUDGET

    def __post_init__(self) -> None:
        if not self.budget > 0:
            raise ValueError("budget must be above 0")
        Margins(2, self.buckets, self.bins)

    def needs(self, facts: Facts) -> Sequence[Margins]:
        return [margins_within(self.budget, facts, 2, self.buckets, self.bins)] if facts.columns > 1 else []

    def advance(self, state: Facts, partial: None, answers: Answers) -> Result:
        requests = self.needs(state)
        if not requests:
            return Result(None, reading="Not evaluated: one column has nothing to go together with.")
        return _result(state, answers[requests[0]])


def _result(facts: Facts, margin: Margin) -> Result:
    roles = [r for r in (SYNTHETIC, HOLDOUT) if facts.has(r)]
    v = {r: margin.association[r].cramers_v for r in (TRAIN, *roles)}
    rho = {r: margin.association[r].spearman for r in (TRAIN, *roles)}
    apart = {r: np.abs(v[r] - v[TRAIN]) for r in roles}
    value, expected = _mean(apart[SYNTHETIC]), None
    if HOLDOUT in apart:
        expected = _mean(apart[HOLDOUT]) * _same_size(facts)
    order = np.lexsort([*margin.columns.T[::-1], -apart[SYNTHETIC]])
    details: dict[str, Any] = {
        "pairs": len(margin.columns),
        "of": margin.of_how_many,
        "cramers_v": {f"{r}-{TRAIN}": {"mean": _mean(d), "largest": float(d.max())} for r, d in apart.items()},
        "spearman": {f"{r}-{TRAIN}": _signed(rho[r], rho[TRAIN]) for r in roles},
        "worst": [_pair(facts, margin, i) for i in order[:_WORST]],
        "matrix": _matrix(facts, margin),
    }
    first = details["worst"][0]
    names = " and ".join(repr(n) for n in first["columns"])
    of_holdout = (
        "without a holdout there is no yardstick"
        if expected is None
        else f"by the holdout {expected:.4f} is to be expected of an honest sample of this size"
    )
    return Result(
        value,
        expected=expected,
        details=details,
        cannot_show="This is utility, not privacy. It sees pairs of columns, and nothing within a bucket.",
        reading=(
            f"Associations of two columns (Cramer's V) differ from train by {value:.4f} on average; {of_holdout}. "
            f"Most for {names}: {first['cramers_v'][SYNTHETIC]:.4f} in place of {first['cramers_v'][TRAIN]:.4f}."
        ),
        warnings=tuple(
            f"correlation: {len(margin.columns):,} of {margin.of_how_many:,} pairs of columns, chosen by the seed."
            for _ in range(len(margin.columns) < margin.of_how_many)
        ),
    )


def _mean(values: NDArray[np.float64]) -> float:
    """Exact sum, rounded once."""
    return math.fsum(values) / len(values)


def _same_size(facts: Facts) -> float:
    """By what a difference to train grows when the holdout has as many rows as the synthetic table.

    A difference of two samples has a standard deviation proportional to the root of 1/n + 1/m.
    """
    n = facts.rows
    return math.sqrt((1 / n[TRAIN] + 1 / n[SYNTHETIC]) / (1 / n[TRAIN] + 1 / n[HOLDOUT]))


def _signed(of: NDArray[np.float64], train: NDArray[np.float64]) -> dict[str, Any]:
    """Over pairs of ordered columns."""
    apart = np.abs(of - train)
    apart = apart[~np.isnan(apart)]
    pairs = len(apart)
    return {"pairs": pairs, "mean": _mean(apart) if pairs else None, "largest": float(apart.max()) if pairs else None}


def _pair(facts: Facts, margin: Margin, place: int) -> dict[str, Any]:
    """Both associations of one pair in every table; None where there is no order."""
    held = margin.association
    rho = {r: float(a.spearman[place]) for r, a in held.items()}
    return {
        "columns": [facts.names[c] for c in margin.columns[place]],
        "cramers_v": {r: float(a.cramers_v[place]) for r, a in held.items()},
        "spearman": None if math.isnan(rho[TRAIN]) else rho,
    }


def _matrix(facts: Facts, margin: Margin) -> dict[str, Any]:
    """Cramer's V below the diagonal, one list per column; the columns that differ most where there are too many."""
    p = facts.columns
    first, second = margin.columns.T
    apart = np.zeros((p, p))
    synthetic, train = (margin.association[r].cramers_v for r in (SYNTHETIC, TRAIN))
    apart[first, second] = apart[second, first] = np.abs(synthetic - train)
    kept = np.sort(np.argsort(-apart.max(axis=1), kind="stable")[:_MATRIX])
    tables = {}
    for role, found in margin.association.items():
        whole = np.full((p, p), None)  # pairs outside a subset
        whole[second, first] = np.round(found.cramers_v, _DIGITS)
        tables[role] = [whole[c, kept[:i]].tolist() for i, c in enumerate(kept)]
    return {"columns": [facts.names[c] for c in kept], "of": p, "cramers_v": tables}
