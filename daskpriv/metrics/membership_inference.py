"""Membership inference: whether the synthetic table tells which real rows were in train.

Sources: docs/definitions.md; Hilprecht et al. (2019) and Clearbox for guesses by distance; Carlini et al. (2022) for
TPR at a low FPR; van Breugel et al. (2023) for the density ratio; Ward et al. (2025) for the best of several attacks.
Every training and every holdout row is attacked; the tests redraw which of them are called train.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics._attacks import (
    ATTACKS,
    CELLS,
    DISTANCE,
    REAL,
    Floats,
    Tally,
    guessed,
    label_tests,
    neighbours,
    scores,
    searches,
    strongest,
    tops,
)
from daskpriv.metrics._clearbox_mi import PublishedTest
from daskpriv.metrics._guesses import auc_interval, risks, roc
from daskpriv.metrics.base import Answers, Effect, Result, drawn_labels, judge_test
from daskpriv.stats.detectable import detectable, mde
from daskpriv.stats.grid import Grid
from daskpriv.stats.labels import DRAWS, Labels
from daskpriv.stats.multiple import westfall_young
from daskpriv.stats.two_samples import WINDOW, Comparison, TwoSamples

RATES = (1e-4, 1e-3, 1e-2, 1e-1)
_CANNOT_SHOW = (
    "The error rates are averages over all rows of one release, not those of one record; attackers with models of the "
    "generator, with several releases or with another distance can do better."
)
_Partial = dict[tuple[str, str], Any]


@dataclass(frozen=True, eq=False)
class _State:
    """What is still searched for, and what was found: ROC statistics and cells of every attack."""

    facts: Facts
    drawn: Labels | None = None
    samples: Mapping[str, TwoSamples | Comparison] = field(default_factory=dict)
    grids: Mapping[str, Grid | Floats] = field(default_factory=dict)
    published: PublishedTest | None = None

    @property
    def found(self) -> dict[str, Comparison]:
        return {n: s for n, s in self.samples.items() if isinstance(s, Comparison)}

    @property
    def edges(self) -> dict[str, Floats]:
        return {n: g for n, g in self.grids.items() if not isinstance(g, Grid)}

    @property
    def searching(self) -> bool:
        """True until everything is known that the last pass counts by."""
        waits = self.published is not None and self.published.answer is None
        return waits or len(self.found) + len(self.edges) < len(self.samples) + len(self.grids)


@dataclass(frozen=True)
class MembershipInference:
    """Attacks on all real rows: AUC, advantage, TPR at low FPR, risk of guesses, and one p-value for all of them.

    Attributes
    ----------
    attacks : tuple of "distance", "ratio", "density"
        "distance", which gives the headline value, must be among them; it needs no search among the real rows.
    k : int
        Which neighbour the density is measured by.
    prevalence : float
        The share of members among the candidates of an attacker, for `precisions_at_prevalence`.
    draws : int
        Label draws of the tests.
    margin : float
        Of the verdict: 2 AUC - 1 of the strongest attack, the share of training rows whose copies would explain it.
    clearbox : bool
        Add the risk of the published tool, which is neither monotone nor unbiased.
    """

    name: ClassVar[str] = "membership_inference"
    attacks: tuple[str, ...] = ATTACKS
    k: int = 5
    prevalence: float = 0.5
    draws: int = DRAWS
    margin: float = 0.05
    clearbox: bool = False

    def __post_init__(self) -> None:
        once = set(self.attacks)
        if DISTANCE not in once or not once <= set(ATTACKS) or len(once) < len(self.attacks):
            raise ValueError(f"attacks must be some of {ATTACKS}, each once, {DISTANCE!r} among them")
        if self.k < 1:
            raise ValueError("k must be at least 1")
        if not 0 < self.prevalence < 1:
            raise ValueError("prevalence must lie between 0 and 1")

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        if not facts.has(HOLDOUT):
            return []
        published = PublishedTest.of(facts).needs if self.clearbox else []
        return [*searches(facts, self.attacks, self.k), *published]

    def begin(self, facts: Facts) -> _State:
        if not facts.has(HOLDOUT):
            return _State(facts)
        n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
        # All attacks together hold no more distinct values than one comparison of two samples may.
        window = WINDOW // len(self.attacks)
        return _State(
            facts,
            drawn_labels(facts, self.draws),
            {name: TwoSamples.of(n_train, n_holdout, RATES, window) for name in self.attacks},
            {name: Grid.of(n_train + n_holdout, CELLS) for name in self.attacks},
            PublishedTest.of(facts) if self.clearbox else None,
        )

    def chunk(self, state: _State, evidence: Evidence) -> _Partial:
        out: _Partial = {}
        if state.published is not None and state.published.answer is None:
            out["published", ""] = state.published.chunk(evidence)
        if evidence.role not in REAL or not state.samples:
            return out
        values = scores(evidence, self.attacks, searches(state.facts, self.attacks, self.k))
        if not state.searching:
            out["tally", ""] = self._tally(state, evidence, values)
        for name, sample in state.samples.items():
            if isinstance(sample, TwoSamples):
                sides = (values[name], values[name][:0])
                out["sample", name] = sample.chunk(*(sides if evidence.role == TRAIN else sides[::-1]))
        for name, grid in state.grids.items():
            if isinstance(grid, Grid):
                out["grid", name] = grid.chunk(values[name])
        return out

    @staticmethod
    def _tally(state: _State, evidence: Evidence, values: Mapping[str, Floats]) -> Tally:
        assert state.drawn is not None
        places = state.drawn.rows(evidence.neighbours[evidence.role, SYNTHETIC].query, evidence.role == HOLDOUT)
        return Tally.of(values, places, evidence.role == TRAIN, state.drawn, state.edges, state.found)

    def combine(self, a: _Partial, b: _Partial) -> _Partial:
        out = dict(a)
        for key, value in b.items():
            mine = out.get(key)
            out[key] = value if mine is None else mine if value is None else _MERGE[key[0]](mine, value)
        return out

    def advance(self, state: _State, partial: _Partial | None, answers: Answers) -> _State | Result:
        if not state.samples:
            return Result(
                None,
                cannot_show=_CANNOT_SHOW,
                reading="Not evaluated: the attacks compare training rows with holdout rows, and no holdout was given.",
            )
        assert partial is not None
        if not state.searching:
            return self._result(state, partial["tally", ""])
        published = state.published
        if published is not None and published.answer is None:
            published = published.advance(partial["published", ""])
        samples = {
            n: s.advance(partial.get(("sample", n))) if isinstance(s, TwoSamples) else s
            for n, s in state.samples.items()
        }
        return replace(
            state,
            samples=samples,
            grids={n: g.advance(partial["grid", n]) if isinstance(g, Grid) else g for n, g in state.grids.items()},
            published=published,
        )

    def _result(self, state: _State, tally: Tally) -> Result:
        facts, found, edges = state.facts, state.found, state.edges
        tests = {name: label_tests(name, tally, edges) for name in self.attacks}
        every = tuple(t for held in tests.values() for t in held)
        adjusted = westfall_young({t.name: (t.observed, t.drawn) for t in every})
        following = np.stack([tally.train_at, tally.holdout_at], axis=1).reshape(len(self.attacks), len(RATES), 2)
        attacks = {
            name: {
                **roc(found[name], beyond.tolist(), facts),
                "tops": tops(tally, edges, name),
                "tests": {t.name: {"p_value": t.p_value, "p_adjusted": adjusted[t.name]} for t in tests[name]},
            }
            for name, beyond in zip(self.attacks, following, strict=True)
        }
        best = strongest(tests, attacks, adjusted)
        details = {
            "n_train": facts.rows[TRAIN],
            "n_holdout": facts.rows[HOLDOUT],
            "k": neighbours(facts, self.k),
            **{key: attacks[DISTANCE][key] for key in ("auc", "advantage", "tpr_at_fpr")},
            **risks(*guessed(tally, edges), facts, self.prevalence),
            "attacks": attacks,
            "best_attack": best,
            "test": (
                f"permutation of {facts.units}, {self.draws} draws; least p of {len(every)} tests (Westfall & Young)"
            ),
        }
        low, high = _copied(found, facts)
        details |= {"effect_interval": [low, high, facts.level], "margin": self.margin}
        if state.published is not None:
            details["clearbox"] = state.published.answer
        return Result(
            details["auc"],
            verdict=judge_test(best["p_adjusted"], low, high, self.margin, facts.level),
            interval=auc_interval(found[DISTANCE], facts),
            p_value=best["p_adjusted"],
            expected=0.5,
            mde=mde(tests[DISTANCE][0], 1.0),
            effect=Effect(
                "how well the strongest attack tells members (2 AUC - 1)",
                (low, high, facts.level),
                self.margin,
                max(2 * a["auc"] - 1 for a in attacks.values()),
                detectable(tests[DISTANCE][0], 2.0),
            ),
            details=details,
            reading=_reading(details),
            cannot_show=_CANNOT_SHOW,
            warnings=_warnings(details),
            tests=every,
        )


_MERGE: dict[str, Any] = {
    **dict.fromkeys(("grid", "tally"), operator.add),
    "sample": TwoSamples.of(0, 0).combine,
    "published": PublishedTest.combine,
}


def _copied(found: Mapping[str, Comparison], facts: Facts) -> tuple[float, float]:
    """2 AUC - 1 of the attacks: the largest lower and the largest upper end."""
    ends = [auc_interval(c, facts) or (c.theta, c.theta, facts.level) for c in found.values()]
    return max(2 * low - 1 for low, _, _ in ends), max(2 * high - 1 for _, high, _ in ends)


def _reading(details: Mapping[str, Any]) -> str:
    low, best = details["tpr_at_fpr"]["0.001"], details["best_attack"]
    return (
        f"Calling the real rows nearest to a synthetic row members has AUC {details['auc']:.4f} (0.5 is guessing) and "
        f"finds {100 * low['tpr']:.2f} % of the training rows at {100 * low['fpr']:.2f} % false alarms; the strongest "
        f"attack is {best['name']} (AUC {best['auc']:.4f}, adjusted p = {best['p_adjusted']:.4f})."
    )


def _warnings(details: Mapping[str, Any]) -> tuple[str, ...]:
    if "clearbox" not in details:
        return ()
    risk = details["clearbox"]["membership_inference_mean_risk_score"]
    return (
        f"membership_inference: the published risk (clearbox) is {'undefined' if risk is None else f'{risk:.4f}'}; it "
        "saturates, is not monotone in the leak (a full copy of train can score low) and is above 0 without a leak. "
        f"Over all rows the mean risk is {details['mean_risk']:.4f} and the AUC {details['auc']:.4f}.",
    )
