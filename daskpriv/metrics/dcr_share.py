"""DCR share: how often a synthetic row lies closer to the training table than to the holdout.

Sources: docs/definitions.md; Platzer & Reutterer (2021) for `size`; Clearbox SURE for `strict`;
mostlyai-qa for `half`. Fractional ties make the expected value exactly n_train / (n_train + n_holdout) for any
tie structure; the permutation law counts that one real row may attract many synthetic rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import (
    HOLDOUT,
    SYNTHETIC,
    TRAIN,
    CloserCounts,
    CreditLaw,
    Credits,
    Evidence,
    Facts,
    Neighbours,
    Request,
)
from daskpriv.metrics.base import Answers, Effect, LabelTest, Result, Verdict, judge
from daskpriv.stats.detectable import REACH
from daskpriv.stats.exact import Moments
from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.labels import DRAWS
from daskpriv.stats.permutation import ShareLaw, share_law
from daskpriv.stats.thinning import none_drawn

TIES = ("fractional", "strict", "half", "size")
_TO_TRAIN = Neighbours(SYNTHETIC, TRAIN)
_TO_HOLDOUT = Neighbours(SYNTHETIC, HOLDOUT)


@dataclass(frozen=True)
class Tally:
    """Counts over synthetic rows; `fractional` and `balanced` are exact sums of per-row shares."""

    closer: int = 0
    equal: int = 0
    further: int = 0
    at_zero: int = 0
    fractional: Moments = Moments()
    balanced: Moments = Moments()

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.closer + other.closer,
            self.equal + other.equal,
            self.further + other.further,
            self.at_zero + other.at_zero,
            self.fractional + other.fractional,
            self.balanced + other.balanced,
        )


@dataclass(frozen=True)
class DcrShare:
    """The share under every tie rule, with permutation inference for the fractional one.

    Attributes
    ----------
    ties : "fractional", "strict", "half" or "size"
        Which rule gives the headline value.
    margin : float
        LEAK needs the leak-equivalent copy rate to be above this, BOUNDED below it.
    inference : bool
        False leaves out the pass that credits tied real rows.
    clearbox : bool
        Add the percentage of the published tool, with its special cases.
    """

    name: ClassVar[str] = "dcr_share"
    ties: str = "fractional"
    margin: float = 0.05
    inference: bool = True
    clearbox: bool = False

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise ValueError(f"ties must be one of {TIES}")

    def needs(self, facts: Facts) -> Sequence[Request]:
        if not facts.has(HOLDOUT):
            return []
        larger = _larger(facts)
        wanted: list[Request] = [_TO_TRAIN, _TO_HOLDOUT]
        if larger is not None:
            wanted.append(larger)
        if self.inference:
            wanted.append(_credits(facts))
        return wanted

    def begin(self, facts: Facts) -> Facts:
        return facts

    def chunk(self, state: Facts, evidence: Evidence) -> Tally:
        if evidence.role != SYNTHETIC or not state.has(HOLDOUT):
            return Tally()
        train, holdout = evidence.table(_TO_TRAIN), evidence.table(_TO_HOLDOUT)
        a, b = train.nearest, holdout.nearest
        credit = fractional_credit(a, train.ties, b, holdout.ties, _pi(state))
        larger = _larger(state)
        if larger is None:
            balanced = half_credit(a, b)
        else:
            closer = evidence.closer[larger]
            balanced = thinned_credit(closer.closer, closer.equal, state.rows, larger.reference == TRAIN)
        return Tally(
            int(np.count_nonzero(a < b)),
            int(np.count_nonzero(a == b)),
            int(np.count_nonzero(a > b)),
            int(np.count_nonzero(a == 0.0)),
            Moments.of(credit),
            Moments.of(balanced),
        )

    def combine(self, a: Tally, b: Tally) -> Tally:
        return a + b

    def advance(self, state: Facts, partial: Tally, answers: Answers) -> Result:
        if not state.has(HOLDOUT):
            return Result(
                None, reading="Not evaluated: the share compares the training table with a holdout, and none was given."
            )
        return self._result(state, partial, answers[_credits(state)] if self.inference else None)

    def _result(self, facts: Facts, tally: Tally, credit: CreditLaw | None) -> Result:
        n_train, n_holdout, n = facts.rows[TRAIN], facts.rows[HOLDOUT], facts.rows[SYNTHETIC]
        pi = _pi(facts)
        shares = {
            "strict": tally.closer / n,
            "half": float(Fraction(2 * tally.closer + tally.equal, 2 * n)),
            "size": tally.closer / n + pi * (tally.equal / n),
            "fractional": tally.fractional.mean,
        }
        effect = (shares["fractional"] - pi) / (1 - pi)
        details: dict[str, Any] = {
            "n_closer": tally.closer,
            "n_equal": tally.equal,
            "n_further": tally.further,
            **{f"share_{k}": v for k, v in shares.items()},
            "share_balanced": tally.balanced.mean,
            "expected": pi,
            "excess": effect,
            "z": None,
            "n_train": n_train,
            "n_holdout": n_holdout,
            "n_synthetic": n,
            "ties": self.ties,
        }
        if self.clearbox:
            details["clearbox"] = {"percentage": _percentage(tally, n)}
        value = shares[self.ties]
        text = (
            f"{100 * value:.1f} % of the synthetic rows lie closer to train than to holdout; {100 * pi:.1f} % "
            "is expected without a leak."
        )
        common: dict[str, Any] = {
            "expected": pi,
            "cannot_show": (
                "A few copies among many rows do not move a share; see the clones. Copies of a few columns "
                "only stay unseen."
            ),
        }
        if credit is None:
            return Result(value, details=details, reading=text, **common)
        return self._judge(facts, value, details, credit, text, common)

    def _judge(
        self, facts: Facts, value: float, details: dict[str, Any], credit: CreditLaw, text: str, common: dict[str, Any]
    ) -> Result:
        pi, law = details["expected"], _law(credit, facts)
        test = LabelTest("share", float(law.held), credit.drawn.astype(np.float64))
        spread = law.variance**0.5
        half = normal_quantile(facts.level) * spread
        effect, width = details["excess"], half / (1 - pi)
        details |= {
            "z": law.z,
            "standard_error": spread,
            "hubs": _hubs(credit, details["n_synthetic"]),
            "excess_interval": [effect - width, effect + width, facts.level],
            "test": f"permutation of {facts.units}, {DRAWS} draws" if spread else "nothing varies",
            "margin": self.margin,
        }
        verdict = judge(effect - width, effect + width, self.margin, self.margin)
        if spread == 0:
            verdict = Verdict.NOT_INTERPRETABLE
        center = details["share_fractional"]
        warnings: tuple[str, ...] = ()
        if self.ties != "fractional" and details["n_equal"]:
            warnings = (
                f"dcr_share: ties counted as {self.ties!r} give {value:.4f}; without bias (fractional) "
                f"the share is {center:.4f}.",
            )
        interval = (max(0.0, center - half), min(1.0, center + half), facts.level)
        details["fractional_interval"] = list(interval)
        return Result(
            value,
            verdict=verdict,
            interval=interval if value == center else None,
            p_value=test.p_value if spread else 1.0,
            mde=REACH * spread / (1 - pi) if spread else None,
            effect=Effect(
                "share of the synthetic rows that behave like copies of training rows",
                (effect - width, effect + width, facts.level),
                self.margin,
                effect,
                REACH * spread / (1 - pi) if spread else math.inf,
            ),
            details=details,
            reading=text,
            warnings=warnings,
            tests=(test,) if spread else (),
            internal={"hubs": _hub_rows(credit)},
            **common,
        )


def fractional_credit(
    to_train: NDArray[np.float64],
    ties_train: NDArray[np.int64],
    to_holdout: NDArray[np.float64],
    ties_holdout: NDArray[np.int64],
    pi: float = 0.5,
) -> NDArray[np.float64]:
    """Share of the nearest real rows that are training rows, per synthetic row; float64 (n,).

    A row without any neighbour is equally far from every real row, so that its share is `pi`, that of train.

    >>> fractional_credit(np.array([0.1, 0.2]), np.array([1, 3]), np.array([0.2, 0.2]), np.array([1, 1]))
    array([1.  , 0.75])
    """
    train = np.where(to_train <= to_holdout, ties_train, 0)
    holdout = np.where(to_holdout <= to_train, ties_holdout, 0)
    return np.where(np.isinf(to_train) & np.isinf(to_holdout), pi, train / np.maximum(train + holdout, 1))


def half_credit(to_train: NDArray[np.float64], to_holdout: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where train is closer, a half where both are equally close; float64 (n,)."""
    return np.where(to_train < to_holdout, 1.0, np.where(to_train == to_holdout, 0.5, 0.0))


def thinned_credit(
    closer: NDArray[np.int64], equal: NDArray[np.int64], rows: Mapping[str, int], train_is_larger: bool
) -> NDArray[np.float64]:
    """Expected half credit if the larger real table were thinned at random to the size of the smaller.

    `closer` and `equal` count rows of the larger table below and at the distance to the smaller one.
    """
    larger, smaller = max(rows[TRAIN], rows[HOLDOUT]), min(rows[TRAIN], rows[HOLDOUT])
    below = none_drawn(larger, smaller, closer)
    upto = none_drawn(larger, smaller, closer + equal)
    wins = 1 - 0.5 * (below + upto)
    return wins if train_is_larger else 1 - wins


def _larger(facts: Facts) -> CloserCounts | None:
    n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
    if n_train == n_holdout:
        return None
    return CloserCounts(SYNTHETIC, TRAIN, HOLDOUT) if n_train > n_holdout else CloserCounts(SYNTHETIC, HOLDOUT, TRAIN)


def _pi(facts: Facts) -> float:
    """What the share is without a leak: that of train among all real rows, or among all subjects."""
    return facts.train_share


def _credits(facts: Facts) -> Credits:
    return Credits(SYNTHETIC, TRAIN, HOLDOUT, facts.seed, DRAWS)


def _law(credit: CreditLaw, facts: Facts) -> ShareLaw:
    return share_law(credit.credit, credit.first, credit.second, facts.rows[SYNTHETIC] * CreditLaw.UNIT)


def _hubs(credit: CreditLaw, n_synthetic: int) -> dict[str, float]:
    """What share of the synthetic rows the real rows of most credit draw; no ids."""
    held = credit.hubs[:, 0].astype(np.float64) / CreditLaw.UNIT / n_synthetic
    return {f"top_{n}_share": float(held[:n].sum()) for n in (1, 10, 100)}


def _hub_rows(credit: CreditLaw) -> dict[str, Any]:
    tables = np.array([TRAIN, HOLDOUT])[credit.hubs[:, 1]]
    return {"table": tables, "row": credit.hubs[:, 2], "synthetic_rows": credit.hubs[:, 0] / CreditLaw.UNIT}


def _percentage(tally: Tally, n: int) -> float:
    """The percentage Clearbox SURE prints: strict; 100 when every row is a clone; 0 when every row ties."""
    if tally.at_zero == n:
        return 100.0
    return 0.0 if tally.equal == n else round(100 * tally.closer / n, 4)
