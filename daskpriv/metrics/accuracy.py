"""Accuracy: how much of the real table survives, in cross-tabulations of one, two and three columns.

Every column is cut into buckets; 1 - total variation distance between the joint frequencies of synthetic and train is
the accuracy of a set of columns. All rows, all sets while that is affordable, and beside each number what an honest
sample of the same size scores.
Sources: MOSTLY AI, ANITA D2.2 (2020); Platzer & Reutterer (2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import (
    HOLDOUT,
    SYNTHETIC,
    TRAIN,
    Deviations,
    DrawnMargin,
    Facts,
    Margin,
    MarginNoise,
    Margins,
)
from daskpriv.kernels.crosstab import COUNT_SECONDS, DRAW_SECONDS
from daskpriv.metrics.base import Answers, FromAnswers, Result
from daskpriv.stats.fidelity import spread_of_mean, student_quantile

# Seconds of one core for the sets of one order: ten minutes on two of them.
BUDGET = 1200.0
_NOISE_BUDGET = 5.0
_DRAWS = 39
_MOST_SETS, _MOST_LARGE_SETS, _MOST_DRAWN = 1_000_000, 10_000, 300
_WORST = 20
_NAMES = {1: "univariate", 2: "bivariate", 3: "trivariate"}
_AVERAGED = ("tvd", "hellinger", "jensen_shannon", "max_deviation", "mean_deviation")


@dataclass(frozen=True)
class Accuracy(FromAnswers):
    """Total variation distances of cross-tabulations, averaged.

    It describes utility and is not judged: a copy of train scores best.

    Attributes
    ----------
    orders : tuple of int
        How many columns are taken together. Above 3 always a subset of at most 10 000 sets, chosen by the seed.
    buckets : tuple of int or None
        Of a column, for each order; by default 10 for one and two columns, 5 for more.
    bins : "train", "real", "paper" or "mostlyai-qa"
        Who says where buckets begin; see `daskpriv.space.bins`.
    budget : float
        Seconds of one core for the sets of each order; beyond, a subset is chosen by the seed.
    """

    name: ClassVar[str] = "accuracy"
    orders: tuple[int, ...] = (1, 2, 3)
    buckets: tuple[int, ...] | None = None
    bins: str = "train"
    budget: float = BUDGET

    def __post_init__(self) -> None:
        if not self.orders or len(set(self.orders)) < len(self.orders):
            raise ValueError("orders must be different whole numbers")
        if self.buckets is not None and len(self.buckets) != len(self.orders):
            raise ValueError("buckets must name one number for each order")
        if not self.budget > 0:
            raise ValueError("budget must be above 0")
        for order, buckets in self._asked.items():
            Margins(order, buckets, self.bins)

    @property
    def _asked(self) -> dict[int, int]:
        return dict(zip(self.orders, self.buckets or [10 if k <= 2 else 5 for k in self.orders], strict=True))

    def needs(self, facts: Facts) -> Sequence[Margins | MarginNoise]:
        asked = self._requests(facts)
        return [*asked.values(), *(self._noise(m, facts) for m in asked.values())]

    def _requests(self, facts: Facts) -> dict[int, Margins]:
        return {
            order: margins_within(self.budget, facts, order, buckets, self.bins)
            for order, buckets in self._asked.items()
            if order <= facts.columns
        }

    def _noise(self, margins: Margins, facts: Facts) -> MarginNoise:
        rows = sum(facts.rows[TRAIN] + facts.rows[r] for r in (SYNTHETIC, HOLDOUT) if facts.has(r))
        most = max(int(min(_NOISE_BUDGET, self.budget) / (rows * _DRAWS * DRAW_SECONDS)), 20)
        return MarginNoise(margins, min(most, _MOST_DRAWN), _DRAWS, facts.seed)

    def advance(self, state: Facts, partial: None, answers: Answers) -> Result:
        facts, orders = state, {}
        details: dict[str, Any] = {}
        for order, request in self._requests(facts).items():
            name, margin = _NAMES.get(order, f"{order} columns"), answers[request]
            orders[name] = margin, answers[self._noise(request, facts)]
            details[name] = {**_order(facts, margin), "buckets": request.buckets}
        if not orders:
            return Result(None, reading="Not evaluated: the table has fewer columns than are taken together.")
        details["expected_noise"] = {n: _noise_of(facts, SYNTHETIC, *found) for n, found in orders.items()}
        details["reference_holdout"] = (
            {n: _reference(facts, *found) for n, found in orders.items()} if facts.has(HOLDOUT) else None
        )
        return replace(_result(list(orders), details), internal={"accuracy": _every_set(facts, orders.values())})


def margins_within(budget: float, facts: Facts, order: int, buckets: int, bins: str) -> Margins:
    """All sets of columns, or as many as one core counts in `budget` seconds."""
    rows = sum(facts.rows[r] for r in (TRAIN, SYNTHETIC, HOLDOUT) if facts.has(r))
    most = min(max(int(budget / (rows * COUNT_SECONDS)), 1), _MOST_SETS)
    return Margins(order, buckets, bins, most if order <= 3 else min(most, _MOST_LARGE_SETS), facts.seed)


def _every_set(facts: Facts, found: Iterable[tuple[Margin, DrawnMargin]]) -> dict[str, list[Any]]:
    """One line per set of columns, for the owner of the data."""
    out: dict[str, list[Any]] = {"columns": []}
    for margin, _ in found:
        out["columns"] += [[facts.names[c] for c in line] for line in margin.columns]
        for role, deviations in margin.compared.items():
            for name in (*_AVERAGED, "expected", "expected_sd"):
                out.setdefault(f"{role}_{name}", []).extend(getattr(deviations, name).tolist())
    return out


def _averages(found: Deviations) -> dict[str, float]:
    """Means over sets of columns; exact sums, rounded once."""
    out = {name: math.fsum(getattr(found, name)) / len(found.tvd) for name in _AVERAGED}
    return {**out, "l1d": 2 * out["tvd"], "accuracy": 1 - out["tvd"]}


def _order(facts: Facts, margin: Margin) -> dict[str, Any]:
    found = margin.compared[SYNTHETIC]
    worst = np.lexsort([*margin.columns.T[::-1], -found.tvd])[:_WORST]
    return {
        **_averages(found),
        "combinations": len(margin.columns),
        "of": margin.of_how_many,
        "worst": [
            {
                "columns": [facts.names[c] for c in margin.columns[i]],
                "tvd": float(found.tvd[i]),
                "expected": float(found.expected[i]),
                "expected_sd": float(found.expected_sd[i]),
            }
            for i in worst
        ],
        "per_column": _per_column(facts, margin.columns, found),
    }


def _per_column(facts: Facts, columns: NDArray[np.int64], found: Deviations) -> list[dict[str, Any]]:
    """Means over the sets that hold a column; none where a subset misses it."""
    out = []
    for place, name in enumerate(facts.names):
        held = np.flatnonzero((columns == place).any(axis=1))
        if len(held):
            tvd, expected = (math.fsum(x[held]) / len(held) for x in (found.tvd, found.expected))
            out.append({"column": name, "tvd": tvd, "expected": expected})
    return out


def _noise_of(facts: Facts, role: str, margin: Margin, drawn: DrawnMargin) -> dict[str, Any]:
    """What an honest table of that size scores, and how far chance moves that."""
    found = margin.compared[role]
    expected = 1 - math.fsum(found.expected) / len(found.expected)
    sd = spread_of_mean(drawn.drawn[role], found.expected_sd, len(found.tvd))
    half = student_quantile(facts.level, len(drawn.drawn[role])) * sd
    return {"accuracy": expected, "low": expected - half, "high": min(expected + half, 1.0), "sd": sd}


def _reference(facts: Facts, margin: Margin, drawn: DrawnMargin) -> dict[str, Any]:
    """The same numbers for the holdout; its p-value asks whether it differs from train more than chance explains."""
    seen = math.fsum(drawn.observed[HOLDOUT])
    more = sum(math.fsum(line) >= seen for line in drawn.drawn[HOLDOUT])
    return {
        **_averages(margin.compared[HOLDOUT]),
        "expected_noise": _noise_of(facts, HOLDOUT, margin, drawn),
        "p_value": (1 + more) / (1 + len(drawn.drawn[HOLDOUT])),
    }


def _result(names: Sequence[str], details: dict[str, Any]) -> Result:
    """The mean over orders, beside what an honest table and the holdout score."""

    def mean(of: Mapping[str, Any], key: str = "accuracy") -> float:
        return math.fsum(of[n][key] for n in names) / len(names)

    noise, reference = details["expected_noise"], details["reference_holdout"]
    value, expected = mean(details), mean(noise)
    # Chance moves all orders together: the mean of the ends is no narrower than the interval of the mean.
    half = max(expected - mean(noise, "low"), 0.0)
    noise["all"] = {"accuracy": expected, "low": expected - half, "high": mean(noise, "high")}
    of_holdout = f"the holdout {mean(reference):.4f}" if reference else "there is no holdout to compare with"
    some = [
        f"{n}: {details[n]['combinations']:,} of {details[n]['of']:,} sets of columns, chosen by the seed"
        for n in names
        if details[n]["combinations"] < details[n]["of"]
    ]
    return Result(
        value,
        expected=expected,
        details=details,
        cannot_show="This is utility, not privacy: a copy of train scores best. It does not see within a bucket.",
        reading=(
            f"Cross-tabulations of the synthetic table agree with train to {value:.4f} (mean of {', '.join(names)}); "
            f"an honest sample of this size scores {expected:.4f} +- {half:.4f}, {of_holdout}."
        ),
        warnings=tuple(f"accuracy, {text}." for text in some),
    )
