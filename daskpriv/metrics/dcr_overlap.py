"""Overlap of two distributions: the distance of synthetic rows to train, and to holdout.

Sources: docs/definitions.md; the histogram comparison of Clearbox SURE; Platzer & Reutterer (2021) for family B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics import _orders, _pooled
from daskpriv.metrics._orders import Orders
from daskpriv.metrics.base import Answers, Effect, LabelTest, Result, drawn_labels, judge_test, shift
from daskpriv.stats.detectable import detectable, mde
from daskpriv.stats.exact import Moments
from daskpriv.stats.grid import Grid
from daskpriv.stats.histogram import histogram
from daskpriv.stats.levels import alpha_of
from daskpriv.stats.selection import Quantiles

PROBABILITIES = {"q01": 0.01, "q05": 0.05, "median": 0.5}
_TO_TRAIN, _TO_HOLDOUT, _ACROSS = "synthetic->train", "synthetic->holdout", "holdout->train"
_RANKS = (1, 2, 4, 8)  # pooled neighbours whose distances make the grid of the tests


@dataclass(frozen=True)
class Shape:
    """Moments and histogram of one direction; the last cell counts rows without any neighbour."""

    moments: Moments
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, nearest: NDArray[np.float64], bins: int) -> Shape:
        """The shape of some distances."""
        return cls(Moments.of(nearest), np.append(histogram(nearest, bins), np.count_nonzero(np.isinf(nearest))))

    def __add__(self, other: Shape) -> Shape:
        return Shape(self.moments + other.moments, self.counts + other.counts)


@dataclass(frozen=True, eq=False)
class Part:
    """Partial of one pass; what a pass does not look at, or a block does not have, is missing."""

    orders: _orders.Partial
    shapes: Mapping[str, Shape]
    grid: NDArray[np.int64] | None = None
    law: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class _State:
    """Orders, shapes (first pass), the search for the grid of the tests, then the tests' law on that grid."""

    facts: Facts
    orders: Orders
    grid: Grid | NDArray[np.float64]
    shapes: Mapping[str, Shape] | None = None
    law: NDArray[np.int64] | None = None

    @property
    def done(self) -> bool:
        return self.orders.done and self.law is not None


@dataclass(frozen=True)
class DcrOverlap:
    """How much the two distributions overlap, and whether train is systematically closer.

    Attributes
    ----------
    bins : int
        Equal bins on [0, 1] for the overlap, the grid of `dcr`.
    margin : float
        Of the verdict: the largest F_train - F_holdout beyond what random labels give.
    """

    name: ClassVar[str] = "dcr_overlap"
    bins: int = 100
    margin: float = 0.05

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        if not facts.has(HOLDOUT):
            return []
        k = _pooled.list_length(facts, 1)
        return [Neighbours(SYNTHETIC, TRAIN, k), Neighbours(SYNTHETIC, HOLDOUT, k), Neighbours(HOLDOUT, TRAIN)]

    def begin(self, facts: Facts) -> _State | None:
        if not facts.has(HOLDOUT):
            return None
        sizes = {r.direction: facts.rows[r.query] for r in self.needs(facts)}
        ranks = {direction: _quantiles(n).ranks() for direction, n in sizes.items()}
        orders = Orders.of(ranks, sizes, [(_TO_TRAIN, _TO_HOLDOUT), (_TO_TRAIN, _ACROSS)])
        return _State(facts, orders, Grid.of(facts.rows[SYNTHETIC] * len(_ranks(facts))))

    def chunk(self, state: _State | None, evidence: Evidence) -> Part | None:
        if state is None:
            return None
        tables = {r.direction: evidence.table(r) for r in self.needs(state.facts) if r.query == evidence.role}
        nearest = {direction: table.nearest for direction, table in tables.items()}
        shapes = {} if state.shapes is not None else {d: Shape.of(v, self.bins) for d, v in nearest.items()}
        part = Part(state.orders.chunk(nearest), shapes)
        if evidence.role != SYNTHETIC or state.law is not None:
            return part
        both = tables[_TO_TRAIN], tables[_TO_HOLDOUT]
        if isinstance(state.grid, Grid):
            known = _pooled.pooled_distances(*both, _ranks(state.facts))
            return replace(part, grid=state.grid.chunk(np.concatenate(known)))
        drawn = drawn_labels(state.facts)
        train, holdout = _pooled.nearest_law(_pooled.Pooled.of(*both, drawn, nearest=1), drawn, state.grid)
        return replace(part, law=train - holdout)

    def combine(self, a: Part | None, b: Part | None) -> Part | None:
        if a is None or b is None:
            return b if a is None else a
        shapes = {d: _sum(a.shapes.get(d), b.shapes.get(d)) for d in {**a.shapes, **b.shapes}}
        return Part(_orders.combine(a.orders, b.orders), shapes, _sum(a.grid, b.grid), _sum(a.law, b.law))

    def advance(self, state: _State | None, partial: Part | None, answers: Answers) -> _State | Result:
        if state is None:
            return Result(
                None, reading="Not evaluated: it compares distances to train and to a holdout, and none was given."
            )
        assert partial is not None
        following = _State(
            state.facts,
            state.orders.advance(partial.orders),
            state.grid.advance(partial.grid)
            if isinstance(state.grid, Grid) and partial.grid is not None
            else state.grid,
            partial.shapes if state.shapes is None else state.shapes,
            partial.law if state.law is None else state.law,
        )
        return _result(following, self.margin) if following.done else following


def _sum(a: Any, b: Any) -> Any:
    """The sum of what is there."""
    return a if b is None else b if a is None else a + b


def _ranks(facts: Facts) -> tuple[int, ...]:
    k = _pooled.list_length(facts, 1)
    return tuple(r for r in _RANKS if r <= k)


def _quantiles(n: int) -> Quantiles:
    return Quantiles(tuple(PROBABILITIES.values()), n)


def _result(state: _State, margin: float) -> Result:
    facts = state.facts
    assert state.shapes is not None and state.law is not None and not isinstance(state.grid, Grid)
    train, holdout = (state.shapes[d] for d in (_TO_TRAIN, _TO_HOLDOUT))
    n = facts.rows[SYNTHETIC]
    overlap = int(np.minimum(train.counts, holdout.counts).sum()) / n
    found = state.orders.comparison(_TO_TRAIN, _TO_HOLDOUT)
    closer, mean, apart = _tests(state.law, state.grid, n)
    details: dict[str, Any] = {
        "ovl": overlap,
        "ks": found.ks,
        "wasserstein": found.wasserstein,
        "mean_difference": holdout.moments.mean - train.moments.mean,
        "dominance": _dominance(state, _TO_HOLDOUT),
        "p_values": {"ks_above": closer.p_value, "mean_difference": mean.p_value, "wasserstein": apart.p_value},
        "test": "permutation of train and holdout labels, largest F_train - F_holdout on a label-free grid, one-sided",
        "pooled_neighbours": _pooled.list_length(facts, 1),
        "family_b": {
            **_dominance(state, _ACROSS),
            "note": "confounded by fidelity: holdout and synthetic rows may differ in more than copying; not judged",
        },
    }
    effect, low, high = shift(closer, 1.0, facts.level)
    details |= {"effect": effect, "effect_interval": [low, high, facts.level], "margin": margin}
    return Result(
        overlap,
        verdict=judge_test(closer.p_value, low, high, margin, facts.level),
        p_value=closer.p_value,
        mde=mde(closer, 1.0),
        effect=Effect(
            "largest difference of the distributions of distances to train and to holdout, beyond chance",
            (low, high, facts.level),
            margin,
            effect,
            detectable(closer, 1.0),
        ),
        details=details,
        cannot_show="A few copies among many rows do not move a distribution; see the clones.",
        reading=_reading(facts, closer.p_value, overlap),
        tests=(closer, mean),
    )


def _reading(facts: Facts, p: float, overlap: float) -> str:
    sizes = (
        ""
        if facts.rows[TRAIN] == facts.rows[HOLDOUT]
        else "; train and holdout differ in size, which alone sets their distances apart: the p-value accounts for it, "
        "the overlap does not"
    )
    closer = "" if p <= alpha_of(facts.level) else "not "
    return (
        f"Synthetic rows are {closer}systematically closer to train than to holdout (p = {p:.4f}); "
        f"the distances overlap by {overlap:.3f}{sizes}."
    )


def _dominance(state: _State, other: str) -> dict[str, Any]:
    """Whether the distances to train are smaller than those of another direction: by order, by F and by quantiles."""
    found = state.orders.comparison(_TO_TRAIN, other)
    ours = _quantiles(found.n_a).combine(state.orders.ranked[_TO_TRAIN].values())
    theirs = _quantiles(found.n_b).combine(state.orders.ranked[other].values())
    ratios = [1.0 if a == b else a / b if b else float("inf") for a, b in zip(ours, theirs, strict=True)]
    return {
        **_orders.theta(found, state.facts.level),
        "ks_above": found.ks_above,
        "quantile_ratios": dict(zip(PROBABILITIES, ratios, strict=True)),
    }


def _tests(law: NDArray[np.int64], edges: NDArray[np.float64], n: int) -> tuple[LabelTest, LabelTest, LabelTest]:
    """Tests that train is closer, by the largest F_train - F_holdout and by the means, and that there is a difference.

    `law` counts rows to train minus rows to holdout, per draw and cell. The mean difference and the Wasserstein
    distance are the signed and the whole area between the two step functions, up to the last finite edge.
    """
    gaps = law[:, : len(edges)].cumsum(axis=1) / n
    widths = np.diff(edges[np.isfinite(edges)])
    areas = gaps[:, : len(widths)] * widths
    found = {
        "dcr_overlap_ks": gaps.max(axis=1).clip(min=0.0),
        "dcr_overlap_mean": areas.sum(axis=1),
        "dcr_overlap_wasserstein": np.abs(areas).sum(axis=1),
    }
    closer, mean, apart = (LabelTest(name, float(x[0]), x[1:]) for name, x in found.items())
    return closer, mean, apart
