"""Nearest neighbour distance ratio (NNDR): how much nearer the nearest real row is than the second nearest.

Sources: docs/definitions.md; Lowe (2004) for the ratio; Platzer & Reutterer (2021) for its use on synthetic tables;
mostlyai-qa and SynthEval for the compatible rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics import _binned, _orders, _pooled
from daskpriv.metrics._orders import Orders
from daskpriv.metrics.base import Answers, Effect, LabelTest, Result, drawn_labels, judge_test, shift
from daskpriv.stats.detectable import detectable, mde
from daskpriv.stats.exact import Moments
from daskpriv.stats.selection import Quantiles

PROBABILITIES = {"q01": 0.01, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
RULES = ("one", "zero", "nan", "mostlyai", "syntheval")
# Fixed cells for the tests: exact zeros, halvings below 1/128 (near copies), then steps of 1/128.
EDGES = np.array([0.0, *(2.0**-i for i in range(20, 7, -1)), *(i / 128 for i in range(1, 129))])
_TO_TRAIN, _TO_HOLDOUT, _ACROSS = "synthetic->train", "synthetic->holdout", "holdout->train"
_BOTH_ZERO = {"zero": 0.0, "syntheval": 0.0, "nan": np.nan}
_MOSTLYAI, _SYNTHEVAL = 1e-8, 1e-16
_TENTH = 9


@dataclass(frozen=True)
class Tally:
    """What the first pass knows about one direction: moments of the defined ratios, and how many are not."""

    moments: Moments = Moments()
    below_half: int = 0
    undefined: int = 0

    @classmethod
    def of(cls, ratio: NDArray[np.float64]) -> Tally:
        """The tally of some ratios, NaN where undefined."""
        defined = ratio[~np.isnan(ratio)]
        return cls(Moments.of(defined), int(np.count_nonzero(defined < 0.5)), len(ratio) - len(defined))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.moments + other.moments, self.below_half + other.below_half, self.undefined + other.undefined)


@dataclass(frozen=True, eq=False)
class First:
    """Partial and state of the first pass: tallies by direction, and the ratios' laws under the label draws."""

    tallies: Mapping[str, Tally]
    law: NDArray[np.int64] | None = None

    def __add__(self, other: First) -> First:
        merged = {d: self.tallies.get(d, Tally()) + t for d, t in other.tallies.items()}
        if self.law is None or other.law is None:
            law = other.law if self.law is None else self.law
        else:
            law = self.law + other.law
        return First({**self.tallies, **merged}, law)


@dataclass(frozen=True, eq=False)
class _State:
    facts: Facts
    first: First | None = None
    orders: Orders | None = None


@dataclass(frozen=True)
class Nndr:
    """The ratio's distribution towards train, next to holdout, with permutation tests of the difference.

    Attributes
    ----------
    zero_zero : "one", "zero", "nan", "mostlyai" or "syntheval"
        What 0/0 is: 1 (two identical real rows: not singled out), 0 or undefined. "mostlyai" adds 1e-8 to both
        distances, "syntheval" 1e-16 to the second, as these tools do.
    margin : float
        Of the verdict: 2 theta - 1 beyond what random labels give.
    """

    name: ClassVar[str] = "nndr"
    zero_zero: str = "one"
    margin: float = 0.05

    def __post_init__(self) -> None:
        if self.zero_zero not in RULES:
            raise ValueError(f"zero_zero must be one of {RULES}")

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        if not facts.has(HOLDOUT):
            return [Neighbours(SYNTHETIC, TRAIN, 2)]
        k = _pooled.list_length(facts, 2)
        return [Neighbours(SYNTHETIC, TRAIN, k), Neighbours(SYNTHETIC, HOLDOUT, k), Neighbours(HOLDOUT, TRAIN, 2)]

    def begin(self, facts: Facts) -> _State:
        return _State(facts)

    def chunk(self, state: _State, evidence: Evidence) -> First | _orders.Partial:
        tables = {r.direction: evidence.table(r) for r in self.needs(state.facts) if r.query == evidence.role}
        values = {direction: self.ratio(table.distance[:, :2]) for direction, table in tables.items()}
        if state.orders is not None:
            return state.orders.chunk(values)
        tallies = {direction: Tally.of(ratio) for direction, ratio in values.items()}
        if evidence.role != SYNTHETIC or not _testable(state.facts):
            return First(tallies)
        drawn = drawn_labels(state.facts)
        pool = self._shifted(_pooled.Pooled.of(tables[_TO_TRAIN], tables[_TO_HOLDOUT], drawn, nearest=2))
        return First(tallies, _pooled.ratio_law(pool, drawn, EDGES, _BOTH_ZERO.get(self.zero_zero, 1.0)))

    def ratio(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """The ratio of the two nearest distances, float64 (n, 2) to (n,); NaN with fewer than two neighbours."""
        if self.zero_zero == "mostlyai":
            distance = distance + _MOSTLYAI
        if self.zero_zero == "syntheval":
            distance = distance + np.array([0.0, _SYNTHEVAL])
        return _pooled.ratios(distance, _BOTH_ZERO.get(self.zero_zero, 1.0))

    def _shifted(self, pool: _pooled.Pooled) -> _pooled.Pooled:
        if self.zero_zero != "mostlyai":
            return pool
        shifted = {f: getattr(pool, f) + _MOSTLYAI for f in ("distance", "train", "holdout")}
        return replace(pool, **shifted)

    def combine(self, a: First | _orders.Partial, b: First | _orders.Partial) -> First | _orders.Partial:
        if isinstance(a, First):
            assert isinstance(b, First)
            return a + b
        assert not isinstance(b, First)
        return _orders.combine(a, b)

    def advance(self, state: _State, partial: First | _orders.Partial, answers: Answers) -> _State | Result:
        if isinstance(partial, First):
            named = [r.direction for r in self.needs(state.facts)]
            return replace(state, first=partial, orders=_orders_of({d: partial.tallies[d] for d in named}))
        assert state.first is not None and state.orders is not None
        orders = state.orders.advance(partial)
        if not orders.done:
            return replace(state, orders=orders)
        details = {d: _described(d, state.first.tallies[d], orders) for d in orders.ranked}
        if not state.facts.has(HOLDOUT):
            return _alone(details)
        return _compared(state.facts, details, orders, _tests(state.first.law), self.margin)


def _testable(facts: Facts) -> bool:
    """A side with one row has no ratio."""
    return facts.has(HOLDOUT) and min(facts.rows[TRAIN], facts.rows[HOLDOUT]) > 1


def _orders_of(tallies: Mapping[str, Tally]) -> Orders:
    sizes = {d: t.moments.n for d, t in tallies.items()}
    ranks = {}
    for direction, n in sizes.items():
        ranks[direction] = [*_quantiles(n).ranks(), min(_TENTH, n - 1)] if n else []
    pairs = [(_TO_TRAIN, other) for other in (_TO_HOLDOUT, _ACROSS) if other in sizes]
    return Orders.of(ranks, sizes, pairs)


def _quantiles(n: int) -> Quantiles:
    return Quantiles(tuple(PROBABILITIES.values()), n)


def _described(direction: str, tally: Tally, orders: Orders) -> dict[str, Any]:
    n = tally.moments.n
    found = orders.ranked[direction].values()
    return {
        "n": n + tally.undefined,
        "n_nan": tally.undefined,
        "mean": tally.moments.mean if n else None,
        "standard_error": tally.moments.std / (n - 1) ** 0.5 if n > 1 else None,
        **dict.fromkeys(PROBABILITIES),
        **(dict(zip(PROBABILITIES, _quantiles(n).combine(found[:-1]), strict=True)) if n else {}),
        "share_below_half": tally.below_half / n if n else None,
        "tenth_smallest": float(found[-1]) if n > _TENTH else None,
        "tenth_smallest_note": "as mostlyai-qa reports it; not comparable between tables of different sizes",
    }


def _tests(law: NDArray[np.int64] | None) -> tuple[LabelTest, ...]:
    """Tests of "the ratio is not smaller towards train": by the 5 % quantiles, and by all pairs."""
    if law is None or not law[:, 0].sum(axis=1).all():
        return ()
    train, holdout = law
    found = {
        "nndr_q05": _binned.quantile(holdout, EDGES, 0.05) - _binned.quantile(train, EDGES, 0.05),
        "nndr_theta": _binned.theta(train, holdout),
    }
    return tuple(LabelTest(n, float(x[0]), np.where(np.isnan(x[1:]), np.inf, x[1:])) for n, x in found.items())


def _alone(details: dict[str, Any]) -> Result:
    value = details[_TO_TRAIN]["q05"]
    return Result(
        value,
        details=details,
        cannot_show=_CANNOT_SHOW,
        reading=(
            f"{_told(value)}; without a holdout nothing says how small it is by chance."
            if value is not None
            else "Not evaluated: no synthetic row has a defined ratio."
        ),
    )


def _compared(
    facts: Facts, details: dict[str, Any], orders: Orders, tests: tuple[LabelTest, ...], margin: float
) -> Result:
    value, expected, across = (details[d]["q05"] for d in (_TO_TRAIN, _TO_HOLDOUT, _ACROSS))
    if value is None or expected is None:  # up to the cut of the pooled lists there may be ratios all the same
        tests = ()
    family_a = _orders.theta(orders.comparison(_TO_TRAIN, _TO_HOLDOUT), facts.level)
    family_b = _orders.theta(orders.comparison(_TO_TRAIN, _ACROSS), facts.level)
    details["difference"] = {
        "family_a": None if value is None or expected is None else value - expected,
        "family_b": None if value is None or across is None else value - across,
        "theta_a": family_a["theta"],
        "theta_a_interval": family_a["theta_interval"],
        "theta_b": family_b["theta"],
        "theta_b_interval": family_b["theta_interval"],
        "family_b_note": "confounded by fidelity: holdout and synthetic rows may differ in more than copying",
    }
    details["p"] = tests[0].p_value if tests else None
    details["p_theta"] = tests[1].p_value if tests else None
    common: dict[str, Any] = {"expected": expected, "details": details, "cannot_show": _CANNOT_SHOW}
    if not tests:
        return Result(value, reading="Not tested: a ratio needs two neighbours in train and in holdout.", **common)
    details["test"] = "permutation of train and holdout labels, binned 5 % quantiles, one-sided"
    details["pooled_neighbours"] = _pooled.list_length(facts, 2)
    p = tests[0].p_value
    effect, low, high = shift(tests[1], 2.0, facts.level)
    details |= {"effect": effect, "effect_interval": [low, high, facts.level], "margin": margin}
    return Result(
        value,
        p_value=p,
        verdict=judge_test(p, low, high, margin, facts.level),
        mde=mde(tests[1], 2.0),
        effect=Effect(
            "how much smaller the ratios are towards train than towards holdout (2 theta - 1), beyond chance",
            (low, high, facts.level),
            margin,
            effect,
            detectable(tests[1], 2.0),
        ),
        reading=f"{_told(value)}, and at {expected:.3f} towards holdout (p = {p:.4f}).",
        tests=tests,
        **common,
    )


def _told(value: float) -> str:
    return f"5 % of the synthetic rows have a distance ratio at or below {value:.3f} towards train"


_CANNOT_SHOW = (
    "Copies of training rows that come in pairs or crowds keep an ordinary ratio, and so do copies with several "
    "changed columns."
)
