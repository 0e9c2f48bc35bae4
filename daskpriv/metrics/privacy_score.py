"""Privacy score: whether training rows lie nearer to the synthetic table than to other training rows.

Source: Aindo's privacy score, with ties, zero denominators and table sizes settled in docs/definitions.md. The training
rows are split into halves R1 and R2 by a hash of their id, several times. No half is searched on its own: the nearest
row of a half is the first listed neighbour that belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours, NeighbourTable, Role
from daskpriv.metrics._score_told import PUBLISHED, Comparison, Halves, described, reading, tally
from daskpriv.metrics.base import Answers, Result, Verdict
from daskpriv.stats.labels import Labels, labels
from daskpriv.stats.parts import Bounds, Part, first_chosen, ratios
from daskpriv.stats.selection import Quantiles, Selection

RULES = ("measured", PUBLISHED)
# Own streams for the halves of train and for thinning each other table, none of them that of the permutation tests.
_STREAMS = {TRAIN: 0x94D049BB133111EB, SYNTHETIC: 0x2545F4914F6CDD1D, HOLDOUT: 0x369DEA0F31A53F85}
_LISTED, _MOST_LISTED, _MISSED = 40, 64, 1e-6
_FOLDS = (3, 4, 5)  # a list of 64 misses a fifth of train once in a million

_Key = tuple[str | Halves, int]
_Partial = dict[_Key, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class _State:
    """Passes fix the quantiles of TTPR digit by digit, a last one counts.

    scored : {(table, how many of its rows are scored): which}
    r2 : {rows of R2 that take part: which}
    others : {comparison: rows of its table that take part}
    searches : {(halves, split): Selection}
    thresholds : {(halves, split): quantile}, empty until the searches are done
    """

    facts: Facts
    comparisons: tuple[Comparison, ...]
    scored: Mapping[tuple[Role, int], Part]
    r2: Mapping[int, Part]
    others: Mapping[str, Part]
    searches: Mapping[_Key, Selection]
    thresholds: Mapping[_Key, float]


@dataclass(frozen=True)
class PrivacyScore:
    """100 x min(1, F_TT / F_TS), averaged over splits, next to the same with equally many rows on both sides.

    Attributes
    ----------
    alpha : float
        The threshold is this quantile of the ratios between the halves of train (TTPR).
    splits : int
    rule : "measured" or "published"
        "published" interpolates the quantile, counts ratios strictly below it and takes `alpha` for F_TT.
    """

    name: ClassVar[str] = "privacy_score"
    alpha: float = 0.05
    splits: int = 10
    rule: str = "measured"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {RULES}")
        if not 0 < self.alpha < 1 or self.splits < 1:
            raise ValueError("alpha must lie between 0 and 1, and splits must be at least 1")

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        wanted: dict[tuple[Role, Role], int] = {}
        for c in _comparisons(facts):
            for reference, drawn in ((c.of, c.scored), (TRAIN, c.in_r2), (c.role, c.rows)):
                least = _LISTED if (c.of, reference) == (TRAIN, TRAIN) else 1
                k = max(least, _listed(drawn, facts.rows[reference]))
                wanted[c.of, reference] = max(wanted.get((c.of, reference), 1), k)
        return sorted(Neighbours(query, reference, k) for (query, reference), k in wanted.items())

    def begin(self, facts: Facts) -> _State:
        compared = _comparisons(facts)
        scored = {(c.of, c.scored): Part(self._draws(facts, c.of, c.scored)) for c in compared}
        r2 = {c.in_r2: Part(self._draws(facts, TRAIN, facts.rows[TRAIN] - c.in_r2), first=False) for c in compared}
        others = {c.name: Part(self._draws(facts, c.role, c.rows)) for c in compared}
        searches: dict[_Key, Selection] = {
            (c.halves, b): Selection.at(self._ranks(facts, c.scored)) for c in compared for b in range(self.splits)
        }
        return _State(facts, compared, scored, r2, others, searches, {})

    def _draws(self, facts: Facts, role: Role, first: int) -> Labels | None:
        """Draws of exactly `first` rows; for one table they share their hashes, so that fewer rows are among more."""
        rest = facts.rows[role] - first
        return labels(first, rest, facts.seed ^ _STREAMS[role], self.splits) if rest else None

    def _ranks(self, facts: Facts, scored: int | None = None) -> list[int]:
        n = _scored(facts) if scored is None else scored
        if self.rule == PUBLISHED:
            return Quantiles((self.alpha,), n).ranks()
        return [math.ceil(Fraction(str(self.alpha)) * n) - 1]

    def chunk(self, state: _State, evidence: Evidence) -> _Partial:
        mine = [c for c in state.comparisons if c.of == evidence.role]
        if not mine:
            return {}
        tables = {r.reference: evidence.table(r) for r in self.needs(state.facts) if r.query == evidence.role}
        out: _Partial = {}
        query = tables[TRAIN].query
        for b in range(self.splits):
            rows = {c.scored: state.scored[c.of, c.scored].of(b)(query) for c in mine}
            near = _Near(state.facts, evidence.role, tables, b)
            own = {n: near.to(evidence.role, state.scored[evidence.role, n], chosen) for n, chosen in rows.items()}
            tt = {
                c.halves: ratios(near.to(TRAIN, state.r2[c.in_r2], rows[c.scored]), own[c.scored])
                for c in {c.halves: c for c in mine}.values()
            }
            if not state.thresholds:
                out |= {(h, b): state.searches[h, b].count(high) for h, (_, high) in tt.items()}
                continue
            for c in mine:
                ts = ratios(near.to(c.role, state.others[c.name], rows[c.scored]), own[c.scored])
                out[c.name, b] = tally(tt[c.halves], ts, own[c.scored], state.thresholds[c.halves, b], self.rule)
        return out

    def combine(self, a: _Partial, b: _Partial) -> _Partial:
        return {**a, **{key: counts + a[key] if key in a else counts for key, counts in b.items()}}

    def advance(self, state: _State, partial: _Partial, answers: Answers) -> _State | Result:
        if not state.comparisons:
            return Result(None, reading="Not evaluated: the score splits train into halves, which needs two rows.")
        if state.thresholds:
            return self._result(state, partial)
        # A table of which no rows came takes no part.
        searches = {key: s.narrow(partial[key]) for key, s in state.searches.items() if key in partial}
        if not all(s.done for s in searches.values()):
            return replace(state, searches=searches)
        return replace(state, thresholds={key: self._threshold(s, key[0]) for key, s in searches.items()})

    def _threshold(self, found: Selection, halves: str | Halves) -> float:
        values = found.values()
        if self.rule == PUBLISHED:
            return Quantiles((self.alpha,), int(halves[1])).combine(values)[0]
        return float(values[0])

    def _describe(self, c: Comparison, state: _State, partial: _Partial) -> dict[str, Any]:
        by_split = np.array([partial[c.name, b] for b in range(self.splits)])
        thresholds = [state.thresholds[c.halves, b] for b in range(self.splits)]
        return described(c, by_split, thresholds, self.alpha, self.rule, state.facts.level)

    def _result(self, state: _State, partial: _Partial) -> Result:
        found = {c.name: self._describe(c, state, partial) for c in state.comparisons if (c.name, 0) in partial}
        control, scored = found.get("control"), found.get("holdout_scored")
        headline = _headline(state.facts)
        main = found[headline]
        details = {
            **main,
            "headline": headline,
            "raw": found["raw"],
            "matched": found["matched"],
            "k_fold": {**found["k_fold"], "k": _folds(state.facts)} if "k_fold" in found else None,
            "control": control,
            "holdout_scored": scored,
            "risk_beyond_holdout": None if scored is None else main["risk_unclipped"] - scored["risk_unclipped"],
            "groups": -(-state.facts.rows[SYNTHETIC] // (state.facts.rows[TRAIN] // 2)),
            "alpha": self.alpha,
            "splits": self.splits,
            "rule": self.rule,
        }
        unreliable = main["unreliable"]
        return Result(
            main["score"],
            verdict=Verdict.NOT_INTERPRETABLE if unreliable else Verdict.NOT_EVALUATED,
            expected=None if control is None or control["unreliable"] else control["score"],
            details=details,
            cannot_show=(
                "A synthetic table that fits badly scores 100 even if it holds copies, up to the headroom; the score "
                "also depends on the sizes of the tables, and matching them thins copies out."
            ),
            reading=reading(main, found),
            warnings=("privacy_score: too many ratios are undefined or unknown; the score means little.",) * unreliable,
        )


@dataclass(frozen=True, eq=False)
class _Near:
    """Distances of the scored rows of one block to parts of tables, in one split."""

    facts: Facts
    of: Role
    tables: Mapping[Role, NeighbourTable]
    split: int

    def to(self, role: Role, part: Part, rows: NDArray[np.bool_]) -> Bounds:
        table = self.tables[role]
        available = self.facts.rows[role] - (role == self.of)
        return first_chosen(table.distance[rows], table.row[rows], available, part.of(self.split))


def _comparisons(facts: Facts) -> tuple[Comparison, ...]:
    train, rows, scored = facts.rows[TRAIN], facts.rows[SYNTHETIC], _scored(facts)
    half = train // 2
    if not half:
        return ()
    both = {"raw": (half, rows), "matched": (min(half, rows),) * 2}
    out = [Comparison(name, SYNTHETIC, *sizes, scored) for name, sizes in both.items()]
    k = _folds(facts)
    if k is not None:
        fold = -(-train // k)
        out.append(Comparison("k_fold", SYNTHETIC, *(min(train - fold, rows),) * 2, fold))
    if facts.has(HOLDOUT):
        held = facts.rows[HOLDOUT]
        out.append(Comparison("control", HOLDOUT, *(min(half, held),) * 2, scored))
        if held > 1:
            sizes = both[_headline(facts)]
            out.append(Comparison("holdout_scored", SYNTHETIC, *sizes, min(scored, held), HOLDOUT))
    return tuple(out)


def _headline(facts: Facts) -> str:
    """Sizes that differ by more than a tenth move the score of a harmless table by more than the splits do."""
    half, rows = facts.rows[TRAIN] // 2, facts.rows[SYNTHETIC]
    return "matched" if 10 * max(half, rows) > 11 * min(half, rows) else "raw"


def _folds(facts: Facts) -> int | None:
    """Of how many parts R1 is one, so that R2 has as many rows as S, or nearly; None where a half has enough."""
    train, rows = facts.rows[TRAIN], facts.rows[SYNTHETIC]
    if 10 * rows <= 11 * (train // 2):
        return None
    return next((k for k in _FOLDS if train - -(-train // k) >= rows), _FOLDS[-1])


def _scored(facts: Facts) -> int:
    """Rows of R1, which has the odd row."""
    return facts.rows[TRAIN] - facts.rows[TRAIN] // 2


def _listed(drawn: int, rows: int) -> int:
    """Neighbours to list so that a part of `drawn` of `rows` rows is missed by one list in a million, up to a cap."""
    return 1 if drawn >= rows else min(_MOST_LISTED, math.ceil(math.log(_MISSED) / math.log1p(-drawn / rows)))
