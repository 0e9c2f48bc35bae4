"""Privacy score: whether training rows lie nearer to the synthetic table than to other training rows.

Source: Aindo's privacy score, with ties, zero denominators and table sizes settled in docs/definitions.md. The training
rows are split into halves R1 and R2 by a hash of their id, several times. No half is searched on its own: the nearest
row of a half is the first listed neighbour that belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours, NeighbourTable, Role
from daskpriv.metrics.base import Answers, Result, Verdict
from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.labels import Labels, labels
from daskpriv.stats.selection import Quantiles, Selection

RULES = ("measured", "published")
# Own streams for the halves of train and for thinning each other table, none of them that of the permutation tests.
_STREAMS = {TRAIN: 0x94D049BB133111EB, SYNTHETIC: 0x2545F4914F6CDD1D, HOLDOUT: 0x369DEA0F31A53F85}
_LISTED, _MOST_LISTED, _MISSED = 40, 64, 1e-6
_COUNTS = (
    "rows",
    "tt",
    "ts",
    "both",
    "undecided",
    "censored",
    "undefined",
    "ttpr_zero_over_zero",
    "ttpr_infinite",
    "tspr_zero_over_zero",
    "tspr_infinite",
)

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
Chosen = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
_Key = tuple[str | int, int]
_Partial = dict[_Key, NDArray[np.int64]]


@dataclass(frozen=True)
class _Comparison:
    """Which table stands against R2, and how many rows of R2 and of that table take part."""

    name: str
    role: Role
    in_r2: int
    rows: int


@dataclass(frozen=True, eq=False)
class _Part:
    """One side of the draws of `labels`, one draw per split; the whole table without them."""

    drawn: Labels | None
    first: bool = True

    def of(self, split: int) -> Chosen:
        """Which row ids belong to it, in one split."""
        if self.drawn is None:
            return lambda ids: np.ones(len(ids), bool)
        one = slice(split, split + 1)
        drawn = replace(self.drawn, keys=self.drawn.keys[one], thresholds=self.drawn.thresholds[one])
        return lambda ids: (drawn.sums(ids, np.arange(len(ids)), len(ids))[0] == 1) == self.first


@dataclass(frozen=True, eq=False)
class _State:
    """Passes fix the quantiles of TTPR digit by digit, a last one counts.

    r1 : the rows that are scored
    r2 : {rows of R2 that take part: which}
    others : {comparison: rows of its table that take part}
    searches : {(rows of R2, split): Selection}
    thresholds : {(rows of R2, split): quantile}, empty until the searches are done
    """

    facts: Facts
    comparisons: tuple[_Comparison, ...]
    r1: _Part
    r2: Mapping[int, _Part]
    others: Mapping[str, _Part]
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
        compared = _comparisons(facts)
        if not compared:
            return []
        wanted = {TRAIN: max(_LISTED, *(_listed(c.in_r2, facts.rows[TRAIN]) for c in compared))}
        for c in compared:
            wanted[c.role] = max(wanted.get(c.role, 1), _listed(c.rows, facts.rows[c.role]))
        return [Neighbours(TRAIN, role, k) for role, k in wanted.items()]

    def begin(self, facts: Facts) -> _State:
        compared = _comparisons(facts)
        r2 = {c.in_r2: _Part(self._draws(facts, TRAIN, facts.rows[TRAIN] - c.in_r2), first=False) for c in compared}
        others = {c.name: _Part(self._draws(facts, c.role, c.rows)) for c in compared}
        ranks = self._ranks(facts)
        searches: dict[_Key, Selection] = {(m, b): Selection.at(ranks) for m in r2 for b in range(self.splits)}
        return _State(facts, compared, _Part(self._draws(facts, TRAIN, _scored(facts))), r2, others, searches, {})

    def _draws(self, facts: Facts, role: Role, first: int) -> Labels | None:
        """Draws of exactly `first` rows; for one table they share their hashes, so that fewer rows are among more."""
        rest = facts.rows[role] - first
        return labels(first, rest, facts.seed ^ _STREAMS[role], self.splits) if rest else None

    def _ranks(self, facts: Facts) -> list[int]:
        n = _scored(facts)
        if self.rule == "published":
            return Quantiles((self.alpha,), n).ranks()
        return [math.ceil(Fraction(str(self.alpha)) * n) - 1]

    def chunk(self, state: _State, evidence: Evidence) -> _Partial:
        if evidence.role != TRAIN or not state.comparisons:
            return {}
        tables = {r.reference: evidence.table(r) for r in self.needs(state.facts)}
        out: _Partial = {}
        for b in range(self.splits):
            own = _near(state, tables, TRAIN, state.r1, b)
            tt = {m: ratios(_near(state, tables, TRAIN, part, b), own) for m, part in state.r2.items()}
            if not state.thresholds:
                out |= {(m, b): state.searches[m, b].count(high) for m, (_, high) in tt.items()}
                continue
            for c in state.comparisons:
                ts = ratios(_near(state, tables, c.role, state.others[c.name], b), own)
                out[c.name, b] = self._tally(tt[c.in_r2], ts, own, state.thresholds[c.in_r2, b])
        return out

    def _tally(self, tt: Bounds, ts: Bounds, own: Bounds, threshold: float) -> NDArray[np.int64]:
        """One split of one block, int64 (len(_COUNTS),); what is not known counts against the synthetic table."""
        below: Callable[..., Any] = np.less if self.rule == "published" else np.less_equal
        in_tt, in_ts = below(tt[1], threshold), below(ts[0], threshold)
        unlike = (in_tt != below(tt[0], threshold)) | (in_ts != below(ts[1], threshold))
        undefined = (own[1] == 0.0) | np.isinf(own[0])
        flags = (
            np.ones(len(in_tt), bool),
            in_tt,
            in_ts,
            in_tt & in_ts,
            unlike,
            (tt[0] != tt[1]) | (ts[0] != ts[1]),
            undefined,
            *(f for x in (tt, ts) for f in (undefined & (x[0] == 1.0) & (x[1] == 1.0), np.isinf(x[0]))),
        )
        return np.array([np.count_nonzero(f) for f in flags], np.int64)

    def combine(self, a: _Partial, b: _Partial) -> _Partial:
        return {**a, **{key: counts + a[key] if key in a else counts for key, counts in b.items()}}

    def advance(self, state: _State, partial: _Partial, answers: Answers) -> _State | Result:
        if not state.comparisons:
            return Result(None, reading="Not evaluated: the score splits train into halves, which needs two rows.")
        if state.thresholds:
            return self._result(state, partial)
        searches = {key: s.narrow(partial[key]) for key, s in state.searches.items()}
        if not all(s.done for s in searches.values()):
            return replace(state, searches=searches)
        return replace(state, thresholds={key: self._threshold(s, state.facts) for key, s in searches.items()})

    def _threshold(self, found: Selection, facts: Facts) -> float:
        values = found.values()
        if self.rule == "published":
            return Quantiles((self.alpha,), _scored(facts)).combine(values)[0]
        return float(values[0])

    def _describe(self, c: _Comparison, state: _State, partial: _Partial) -> dict[str, Any]:
        by_split = np.array([partial[c.name, b] for b in range(self.splits)])
        count = dict(zip(_COUNTS, by_split.T, strict=True))
        thresholds = [state.thresholds[c.in_r2, b] for b in range(self.splits)]
        n = _scored(state.facts)
        tt, ts = (count["tt"] / n).tolist(), (count["ts"] / n).tolist()
        scores = [
            100.0 * min(1.0, (self.alpha if self.rule == "published" else x) / y) if y else 100.0
            for x, y in zip(tt, ts, strict=True)
        ]
        score, risk = _mean(scores), _mean(ts) - _mean(tt)
        shares = {name: int(count[name].sum()) / (n * self.splits) for name in _COUNTS[4:]}
        return {
            "score": score,
            "score_std": _mean([(s - score) ** 2 for s in scores]) ** 0.5,
            "scores": scores,
            "ttpr_fraction": _mean(tt),
            "tspr_fraction": _mean(ts),
            "threshold": _mean(thresholds),
            "ttpr_fractions": tt,
            "tspr_fractions": ts,
            "thresholds": thresholds,
            "risk": max(0.0, risk),
            "risk_unclipped": risk,
            "risk_interval": _paired_interval(count, n, state.facts.level),
            "headroom": max(0.0, -risk),
            "rows_scored": n,
            "rows_reference": c.in_r2,
            "rows_compared": c.rows,
            "n_undecided": int(count["undecided"].sum()),
            "n_censored": int(count["censored"].sum()),
            "shares": {k: shares[k] for k in _COUNTS[6:]},
            "unreliable": shares["undefined"] + shares["undecided"] > self.alpha or math.inf in thresholds,
        }

    def _result(self, state: _State, partial: _Partial) -> Result:
        found = {c.name: self._describe(c, state, partial) for c in state.comparisons}
        control = found.get("control")
        half, rows = state.facts.rows[TRAIN] // 2, state.facts.rows[SYNTHETIC]
        # Sizes that differ by more than a tenth move the score of a harmless table by more than the splits do.
        headline = "matched" if 10 * max(half, rows) > 11 * min(half, rows) else "raw"
        main = found[headline]
        details = {
            **main,
            "headline": headline,
            "raw": found["raw"],
            "matched": found["matched"],
            "control": control,
            "groups": -(-rows // half),
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
            reading=_reading(main, control),
            warnings=("privacy_score: too many ratios are undefined or unknown; the score means little.",) * unreliable,
        )


def _near(state: _State, tables: Mapping[Role, NeighbourTable], role: Role, part: _Part, split: int) -> Bounds:
    """Distances of the rows of R1 in one block to one part of a table, in one split."""
    table = tables[role]
    scored = state.r1.of(split)(table.query)
    available = state.facts.rows[role] - (role == TRAIN)
    return first_chosen(table.distance[scored], table.row[scored], available, part.of(split))


def first_chosen(
    distance: NDArray[np.float64],
    row: NDArray[np.int64],
    available: int,
    chosen: Chosen,
) -> Bounds:
    """Bounds of the distance to the nearest chosen row, from lists (n, k) of the nearest among `available` rows.

    Both are the distance of the first listed row that is chosen; without one, at least that of the last listed row,
    or +inf if nothing is left out of the list.

    >>> first_chosen(np.array([[0.1, 0.2]]), np.array([[7, 9]]), 5, lambda ids: ids == 9)
    (array([0.2]), array([0.2]))
    >>> first_chosen(np.array([[0.1, 0.2]]), np.array([[7, 9]]), 5, lambda ids: ids == 8)
    (array([0.2]), array([inf]))
    """
    n, k = distance.shape
    place, still = np.full(n, k), np.arange(n)
    for j in range(k):
        ids = row[still, j]
        hit = (ids >= 0) & chosen(ids)
        place[still[hit]] = j
        still = still[~hit]
    beyond = np.full(n, np.inf) if k >= available else distance[:, -1]
    low = np.column_stack([distance, beyond])[np.arange(n), place]
    return low, np.where(place < k, low, np.inf)


def ratios(near: Bounds, own: Bounds) -> Bounds:
    """Bounds of near / own on the extended line: 0/0 and inf/inf are 1, y/0 is +inf, y/inf is 0.

    >>> ratios((np.array([0.0, 0.2, 0.2]),) * 2, (np.array([0.0, 0.0, 0.4]),) * 2)[0]
    array([1. , inf, 0.5])
    """
    return _ratio(near[0], own[1]), _ratio(near[1], own[0])


def _ratio(y: NDArray[np.float64], e: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where((y == e) & ((e == 0.0) | np.isinf(e)), 1.0, y / e)


def _comparisons(facts: Facts) -> tuple[_Comparison, ...]:
    half = facts.rows[TRAIN] // 2
    if not half:
        return ()
    rows = facts.rows[SYNTHETIC]
    out = [_Comparison("raw", SYNTHETIC, half, rows), _Comparison("matched", SYNTHETIC, *(min(half, rows),) * 2)]
    if facts.has(HOLDOUT):
        out.append(_Comparison("control", HOLDOUT, *(min(half, facts.rows[HOLDOUT]),) * 2))
    return tuple(out)


def _scored(facts: Facts) -> int:
    """Rows of R1, which has the odd row."""
    return facts.rows[TRAIN] - facts.rows[TRAIN] // 2


def _listed(drawn: int, rows: int) -> int:
    """Neighbours to list so that a part of `drawn` of `rows` rows is missed by one list in a million, up to a cap."""
    return 1 if drawn >= rows else min(_MOST_LISTED, math.ceil(math.log(_MISSED) / math.log1p(-drawn / rows)))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _paired_interval(count: Mapping[str, NDArray[np.int64]], n: int, level: float) -> list[float]:
    """Interval (low, high, level) of F_TS - F_TT, both over the same rows. Source: Agresti & Min (2005).

    Centre and variance are averaged over the splits; the variance stays that of one split, which is wider than the
    mean of splits needs and leaves room for rows that share a neighbour.
    """
    only_ts, only_tt = (count[x] - count["both"] for x in ("ts", "tt"))
    centre = _mean(((only_ts - only_tt) / (n + 2)).tolist())
    variances = (only_ts + only_tt + 1 - (only_ts - only_tt) ** 2 / (n + 2)) / (n + 2) ** 2
    half = normal_quantile(level) * _mean(variances.tolist()) ** 0.5
    return [max(-1.0, centre - half), min(1.0, centre + half), level]


def _reading(main: Mapping[str, Any], control: Mapping[str, Any] | None) -> str:
    text = (
        f"Score {main['score']:.1f} of 100: {100 * main['tspr_fraction']:.1f} % of the scored training rows lie very "
        f"close to {main['rows_compared']} synthetic rows, {100 * main['ttpr_fraction']:.1f} % as close to "
        f"{main['rows_reference']} other training rows; "
    )
    if control is None:
        return text + "with a holdout, its rows would show what is scored without a leak."
    return text + f"the holdout in place of the synthetic table scores {control['score']:.1f}."
