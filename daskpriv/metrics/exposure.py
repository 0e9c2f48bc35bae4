"""Exposure: do training rows stand out from holdout rows where it matters: in the tails, and among isolated rows.

Every score is computed without looking at the train/holdout label; the label enters in the last count. So with a
random split all tests are exact for any generator, any sizes and any duplicates. Averages do not see a few copied
rows; these tests look at the closest rows, the rows close for their surroundings, and rows far from all others.

Source: docs/definitions.md. Scan: Berk & Jones (1979). List: Benjamini & Hochberg (1995) over conformal p-values,
Bates et al. (2023). Relative distance: a nearest-neighbour form of the density ratio of van Breugel et al. (2023),
each real row left out of its own isolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours, Request, Widest
from daskpriv.metrics._isolated import REAL, scores_of, searches
from daskpriv.metrics.base import ODDS, Answers, Effect, LabelTest, Result, drawn_labels, judge_test
from daskpriv.stats.epsilon import best_bound
from daskpriv.stats.grid import Grid
from daskpriv.stats.labels import Labels
from daskpriv.stats.levels import alpha_of
from daskpriv.stats.multiple import westfall_young
from daskpriv.stats.ranks import auc_of_cells, berk_jones
from daskpriv.stats.two_samples import Comparison, TwoSamples

_RADII = (1 / 300, 1 / 100, 1 / 30)
_GROUPS = {"class": (0.5, 0.9, 0.98), "decile": tuple(i / 10 for i in range(1, 10))}
_SCORES = ("distance", "relative", "widest")
_GUESSES = (10, 30, 100, 300, 1_000, 10_000, 100_000)
_TOPS = (0.001, 0.005)


@dataclass(frozen=True, eq=False)
class _State:
    """Pass by pass: first edges of all cells from the pooled rows, then the counts.

    edges : {score: edges or the search for them}
    listing : the walk through relative distances that makes the exposure list
    """

    facts: Facts
    labels: Labels
    edges: dict[str, Grid | NDArray[np.float64]]
    listing: TwoSamples | Comparison
    counted: dict[str, NDArray[np.int64]] | None = None

    @property
    def ready(self) -> bool:
        """True when every edge is known."""
        return not any(isinstance(e, Grid) for e in self.edges.values())


@dataclass(frozen=True)
class Exposure:
    """Label tests on the tails and among isolated rows, and how many rows an exposure list holds.

    Attributes
    ----------
    discovery : float
        False discovery rate of the exposure list.
    margin : float
        Of the verdict: how much the log odds of being in train must rise, at least, for the rows that stand out.
    randomised : bool
        Every real row was put into train by a fair coin of its own (`daskpriv split`): bound epsilon from below.
    """

    name: ClassVar[str] = "exposure"
    discovery: float = 0.1
    margin: float = 0.2
    randomised: bool = False

    def needs(self, facts: Facts) -> Sequence[Request]:
        if not facts.has(HOLDOUT):
            return []
        return [*searches(), *(Widest(q, SYNTHETIC) for q in REAL)]

    def begin(self, facts: Facts) -> _State | None:
        if not facts.has(HOLDOUT):
            return None
        n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
        n = n_train + n_holdout
        edges: dict[str, Grid | NDArray[np.float64]] = {s: Grid.of(n) for s in _SCORES}
        edges |= {f"isolation {k}": Grid.of(n, shares, distinct=False) for k, shares in _GROUPS.items()}
        listing = TwoSamples.of(n_train, n_holdout, discovery=self.discovery)
        return _State(facts, drawn_labels(facts), edges, listing)

    def chunk(self, state: _State | None, evidence: Evidence) -> dict[str, Any]:
        if state is None or evidence.role not in REAL:
            return {}
        scores = scores_of(evidence)
        out: dict[str, Any] = {}
        if isinstance(state.listing, TwoSamples):
            nothing = np.empty(0)
            sides = (scores["relative"], nothing)
            out["listing"] = state.listing.chunk(*(sides if evidence.role == TRAIN else sides[::-1]))
        if not state.ready:
            found = {s: e.chunk(scores[s.split()[0]]) for s, e in state.edges.items() if isinstance(e, Grid)}
            return {**out, **{f"edges {s}": digits for s, digits in found.items()}}
        if state.counted is None:
            out.update(_counts(state, evidence, scores))
        return out

    def combine(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        out = {**a, **b}
        for key in a.keys() & b.keys():
            out[key] = _LISTS.combine(a[key], b[key]) if key == "listing" else a[key] + b[key]
        return out

    def advance(self, state: _State | None, partial: dict[str, Any], answers: Answers) -> _State | Result | None:
        if state is None:
            return Result(
                None, reading="Not evaluated: exposure compares training rows with holdout rows, and none were given."
            )
        listing = state.listing
        if isinstance(listing, TwoSamples):
            listing = listing.advance(partial.get("listing"))
        state = replace(state, listing=listing)
        if not state.ready:
            edges = {s: e.advance(partial[f"edges {s}"]) if isinstance(e, Grid) else e for s, e in state.edges.items()}
            return replace(state, edges=edges)
        if state.counted is None:
            state = replace(state, counted={k: v for k, v in partial.items() if k != "listing"})
        return self._result(state) if isinstance(state.listing, Comparison) else state

    def _result(self, state: _State) -> Result:
        assert state.counted is not None and isinstance(state.listing, Comparison)
        tests = _tests(state)
        p = {t.name: t.p_value for t in tests}
        smallest = min(p, key=lambda name: (p[name], name))
        bound = {**_stands_out(state), "margin": self.margin}
        listed, false, threshold = state.listing.listed
        n_holdout = state.facts.rows[HOLDOUT]
        details: dict[str, Any] = {
            "tests": p,
            "list": {
                "false_discovery_rate": self.discovery,
                "rows": listed,
                "holdout_rows_below_its_threshold": false,
                "relative_distance_up_to": threshold if listed else None,
                "shortest_possible": int(np.ceil(state.facts.rows[TRAIN] / (self.discovery * (n_holdout + 1)))),
            },
            "within": _within(state),
            "by_isolation": _by_isolation(state),
            "auc_relative": state.listing.theta,
            "stands_out": bound,
            "epsilon": _epsilon(state) if self.randomised else None,
        }
        # One p-value for the metric: the chance that the smallest of its tests is so small, from the joint draws.
        adjusted = _joint(tests)[smallest]
        return Result(
            float(listed),
            judge_test(adjusted, bound["log_odds"], np.inf, self.margin, state.facts.level),
            p_value=adjusted,
            expected=0.0,
            effect=Effect(
                "rise of the log odds of being in train, for the rows that stand out",
                (bound["log_odds"], np.inf, state.facts.level),
                self.margin,
                unit=ODDS,
            ),
            details={**details, "strongest_test": smallest},
            tests=tuple(tests),
            reading=(
                f"{listed} training rows are on the exposure list ({100 * self.discovery:.0f} % false at most on "
                f"average); the strongest of {len(tests)} tests is {smallest!r}."
            ),
            cannot_show="Rows whose copies changed in more columns than a neighbour would stay unseen.",
        )


_LISTS = TwoSamples(0, 0)


def _edges(state: _State, key: str) -> NDArray[np.float64]:
    found = state.edges[key]
    assert not isinstance(found, Grid)
    return np.union1d(found, _RADII) if key == "distance" else found


def _sorts(state: _State) -> tuple[tuple[str, NDArray[np.float64], NDArray[np.float64]], ...]:
    """Both ways to sort rows into cells: a score, its edges, and the edges of isolation that it is crossed with."""
    return (
        ("relative", _edges(state, "relative"), _edges(state, "isolation class")),
        ("distance", _edges(state, "distance"), _edges(state, "isolation decile")),
        ("widest", _edges(state, "widest"), np.empty(0)),
    )


def _counts(state: _State, evidence: Evidence, scores: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Rows per cell: of each table, and of the first side of every draw."""
    keys, start = [], 0
    for score, edges, groups in _sorts(state):
        width = len(edges) + 1
        group = np.searchsorted(groups, scores["isolation"])
        keys.append(start + group * width + np.searchsorted(edges, scores[score]))
        start += width * (len(groups) + 1)
    cells = np.stack(keys, axis=1).astype(np.int64)
    total = np.bincount(cells.ravel(), minlength=start).astype(np.int64)
    query = evidence.table(Neighbours(evidence.role, SYNTHETIC)).query
    drawn = state.labels.sums(state.labels.rows(query, evidence.role == HOLDOUT), cells, start)
    return {"all": total, "drawn": drawn, **({"train": total} if evidence.role == TRAIN else {})}


@dataclass(frozen=True, eq=False)
class _Counted:
    """Counts of one sort, last axes (groups, cells): all rows, training rows, and those of every draw."""

    edges: NDArray[np.float64]
    both: NDArray[np.int64]
    train: NDArray[np.int64]
    drawn: NDArray[np.int64]

    def of(self, groups: slice) -> _Counted:
        """Only the rows of some groups, added up: axes (cells,)."""
        return _Counted(self.edges, self.both[groups].sum(0), self.train[groups].sum(0), self.drawn[:, groups].sum(1))

    def test(self, name: str, statistic: Any) -> LabelTest:
        """The test of a function of (counts of the first table, of both)."""
        return LabelTest(name, float(statistic(self.train, self.both)), statistic(self.drawn, self.both))


def _counted(state: _State) -> dict[str, _Counted]:
    assert state.counted is not None
    out, start = {}, 0
    for score, edges, groups in _sorts(state):
        shape = (len(groups) + 1, len(edges) + 1)
        stop = start + shape[0] * shape[1]
        both, train = (state.counted[k][start:stop].reshape(shape) for k in ("all", "train"))
        out[score] = _Counted(edges, both, train, state.counted["drawn"][:, start:stop].reshape(-1, *shape))
        start = stop
    return out


def _tests(state: _State) -> list[LabelTest]:
    """All tests, larger is more exposed."""
    share = state.facts.train_share
    found = _counted(state)
    everyone = slice(None)
    distance = found["distance"].of(everyone)
    widest = found["widest"].of(everyone)
    relative, isolated, farthest = (found["relative"].of(slice(first, None)) for first in (0, 2, 3))

    def scan(first: NDArray[np.int64], both: NDArray[np.int64]) -> NDArray[np.float64]:
        return berk_jones(first, both, share)

    def top(some: float) -> Any:
        """Training rows among the closest cells that hold at least this share of all rows."""

        def held(first: NDArray[np.int64], both: NDArray[np.int64]) -> NDArray[np.float64]:
            cells = int(np.searchsorted(np.cumsum(both), some * both.sum())) + 1
            return np.asarray(first[..., :cells].sum(axis=-1), np.float64)

        return held

    return [
        distance.test("scan by distance", scan),
        relative.test("scan by relative distance", scan),
        widest.test("scan by largest difference", scan),
        widest.test("top 1 % by largest difference", top(0.01)),
        *(relative.test(f"top {100 * t:g} % by relative distance", top(t)) for t in _TOPS),
        relative.test("relative distance", auc_of_cells),
        isolated.test("relative distance, isolated tenth", auc_of_cells),
        farthest.test("relative distance, isolated fiftieth", auc_of_cells),
    ]


def _within(state: _State) -> dict[str, dict[str, int]]:
    """Rows of each table with a synthetic row within a radius."""
    found = _counted(state)["distance"].of(slice(None))
    out = {}
    for radius in (0.0, *_RADII):
        cells = int(np.searchsorted(found.edges, radius)) + 1
        train = int(found.train[:cells].sum())
        out[f"{radius:.4f}"] = {"train": train, "holdout": int(found.both[:cells].sum()) - train}
    return out


def _by_isolation(state: _State) -> list[dict[str, Any]]:
    """From the least to the most isolated tenth of the real rows: how training and holdout rows differ."""
    found = _counted(state)["distance"]
    out = []
    for decile in range(len(found.both)):
        some = found.of(slice(decile, decile + 1))
        test = some.test("", auc_of_cells)
        n_train, n = int(some.train.sum()), int(some.both.sum())
        out.append({"n_train": n_train, "n_holdout": n - n_train, "auc": test.observed, "p_value": test.p_value})
    return out


def _guesses(found: _Counted) -> list[tuple[int, int]]:
    """(training rows, all rows) among those that stand out most, for several numbers of rows."""
    correct, guesses = np.cumsum(found.train), np.cumsum(found.both)
    cells = np.unique(np.searchsorted(guesses, [g for g in _GUESSES if g <= guesses[-1]]))
    return [(int(correct[c]), int(guesses[c])) for c in cells if guesses[c]]


def _stands_out(state: _State) -> dict[str, Any]:
    """The least rise of the log odds of being in train, over the rows that stand out among all and isolated rows."""
    found = _counted(state)
    made = [g for first in (0, 2, 3) for g in _guesses(found["relative"].of(slice(first, None)))]
    made += _guesses(found["widest"].of(slice(None)))
    rise, right, rows = best_bound(made, alpha_of(state.facts.level), state.facts.clustering)
    n_train, n_holdout = (state.facts.rows[r] for r in REAL)
    return {"log_odds": rise - float(np.log(n_train / n_holdout)), "train": right, "rows": rows}


def _epsilon(state: _State) -> dict[str, Any]:
    """Guess "in train" for the real rows that stand out most; how many is tried in steps, all paid for."""
    made = _guesses(_counted(state)["relative"].of(slice(None)))
    bound, right, guesses = best_bound(made, alpha_of(state.facts.level))
    return {"lower_bound": max(0.0, bound), "correct": right, "guesses": guesses, "level": state.facts.level}


def _joint(tests: Sequence[LabelTest]) -> dict[str, float]:
    return westfall_young({t.name: (t.observed, t.drawn) for t in tests})
