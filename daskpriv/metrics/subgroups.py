"""Subgroups: whether synthetic rows lie closer to train among the isolated rows, or among the rows of one group.

The share of each group of real rows counts the synthetic rows whose nearest real rows belong to it: those that lie in
train, of all of them. A group is a tenth of the real rows by isolation, or the rows with one value of a column that the
caller named. Groups do not know the train/holdout label, so that random labels give the law of every share.

Sources: docs/definitions.md; Stadler et al. (2022) and Ward et al. (2024) on risks that fall on few and on minorities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, CreditLaw, Evidence, Facts, Neighbours, Request, RowCredits
from daskpriv.metrics._isolated import REAL, scores_of, searches
from daskpriv.metrics.base import Answers, Effect, LabelTest, Result, added, drawn_labels, judge_test
from daskpriv.stats.grid import Grid
from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.labels import Labels
from daskpriv.stats.multiple import westfall_young
from daskpriv.stats.ranks import auc_of_cells

_DECILES = tuple(i / 10 for i in range(1, 10))
_DISTANCES = tuple(i / 20 for i in range(1, 21))
_ISOLATION = "isolation"
_WEIGHT = 0.3  # many tests, each about a few rows
_ROUNDING = 1000  # units of credit that the sharing of ties may lose


@dataclass(frozen=True, eq=False)
class _State:
    facts: Facts
    labels: Labels
    edges: Mapping[str, Grid | NDArray[np.float64]] = field(default_factory=dict)

    def known(self, name: str) -> NDArray[np.float64]:
        """Edges that were found."""
        found = self.edges[name]
        assert not isinstance(found, Grid)
        return found

    @property
    def sizes(self) -> dict[str, int]:
        """How many groups each way of grouping has; isolation first."""
        return {_ISOLATION: len(_DECILES) + 1, **{c: len(names) for c, names in self.facts.groups.items()}}


@dataclass(frozen=True)
class Subgroups:
    """Share and AUC by tenth of isolation and by group.

    Attributes
    ----------
    margin : float
        Of the verdict: the excess of the share in the group where it is most surprising.
    least : int
        Groups with fewer real rows are added up under one name and not tested; what is then still small is left out.
    """

    name: ClassVar[str] = "subgroups"
    margin: float = 0.05
    least: int = 20

    def needs(self, facts: Facts) -> Sequence[Request]:
        if not facts.has(HOLDOUT):
            return []
        return [
            *searches(),
            *(Neighbours(SYNTHETIC, r) for r in REAL),
            RowCredits(SYNTHETIC, TRAIN, HOLDOUT),
        ]

    def begin(self, facts: Facts) -> _State | None:
        if not facts.has(HOLDOUT):
            return None
        n = sum(facts.rows[r] for r in REAL)
        edges = {_ISOLATION: Grid.of(n, _DECILES, distinct=False), "distance": Grid.of(n, _DISTANCES)}
        return _State(facts, drawn_labels(facts), edges)

    def chunk(self, state: _State | None, evidence: Evidence) -> dict[str, Any]:
        if state is None or evidence.role not in REAL:
            return {}
        scores = scores_of(evidence)
        if any(isinstance(e, Grid) for e in state.edges.values()):
            return {name: grid.chunk(scores[name]) for name, grid in state.edges.items() if isinstance(grid, Grid)}
        assert evidence.credit is not None
        tenth, cell = (np.searchsorted(state.known(k), scores[k]) for k in (_ISOLATION, "distance"))
        groups = np.stack([tenth, *(evidence.groups[c] for c in state.facts.groups)], axis=1)
        starts = np.cumsum([0, *state.sizes.values()])
        width = len(state.known("distance")) + 1
        places = groups + starts[:-1]
        crossed = places * width + cell[:, None]
        query = evidence.table(Neighbours(evidence.role, SYNTHETIC)).query
        return _tallied(state.labels, query, evidence.role, evidence.credit, (places, int(starts[-1])), crossed, width)

    def combine(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return added(a, b)

    def advance(self, state: _State | None, partial: dict[str, Any], answers: Answers) -> _State | Result:
        if state is None:
            return Result(
                None, reading="Not evaluated: shares compare the training table with a holdout, and none was given."
            )
        waiting = {k: e for k, e in state.edges.items() if isinstance(e, Grid)}
        if waiting:
            return replace(state, edges={**state.edges, **{k: g.advance(partial[k]) for k, g in waiting.items()}})
        return self._result(state, partial)

    def _result(self, state: _State, partial: dict[str, Any]) -> Result:
        facts, lines, start = state.facts, [], 0
        found: dict[str, list[dict[str, Any]]] = {}
        tests: dict[str, LabelTest] = {}
        for by, size in state.sizes.items():
            names = facts.groups.get(by, tuple(f"tenth {i + 1}" for i in range(size)))
            found[by] = []
            for members, name in self._members(partial["rows"].sum(axis=0)[start : start + size], names):
                group = _Group.of(partial, [start + i for i in members])
                line = {"group": name, **group.line(facts)}
                if len(members) == 1 and group.can_vary:
                    tests[f"share, {by}: {name}"] = group.share
                    if by != _ISOLATION:
                        tests[f"AUC, {by}: {name}"] = group.auc
                    lines.append((f"share, {by}: {name}", line))
                found[by].append(line)
            start += size
        return self._judged(facts, found, tests, lines)

    def _members(self, rows: NDArray[np.int64], names: Sequence[str]) -> list[tuple[list[int], str]]:
        """Which groups stand for themselves, and those too small to, together if they are then large enough."""
        few = [i for i, n in enumerate(rows.tolist()) if 0 < n < self.least]
        own = [([i], names[i]) for i, n in enumerate(rows.tolist()) if n >= self.least]
        told = len(few) > 1 and rows[few].sum() >= self.least
        return [*own, *([(few, f"groups of fewer than {self.least} rows")] if told else [])]

    def _judged(
        self,
        facts: Facts,
        found: dict[str, list[dict[str, Any]]],
        tests: dict[str, LabelTest],
        lines: list[tuple[str, dict[str, Any]]],
    ) -> Result:
        details: dict[str, Any] = {
            "by_isolation": found.pop(_ISOLATION),
            "by_group": found,
            "expected": facts.train_share,
            "test": f"permutation of {facts.units}; least p of {len(tests)} tests (Westfall & Young)",
        }
        common: dict[str, Any] = {
            "details": details,
            "cannot_show": "Groups that were not named, and groups made of several columns, stay unseen.",
        }
        if not lines:
            return Result(None, reading="Not evaluated: no group has rows enough, and neighbours that vary.", **common)
        adjusted = westfall_young({n: (t.observed, t.drawn) for n, t in tests.items()})
        name, strongest = min(lines, key=lambda pair: (adjusted[pair[0]], -pair[1]["excess"], pair[0]))
        least = min(adjusted.values())
        low, high, _ = strongest["excess_interval"]
        details |= {"strongest": name, "margin": self.margin}
        return Result(
            strongest["excess"],
            judge_test(least, low, high, self.margin, facts.level),
            interval=(low, high, facts.level),
            p_value=least,
            expected=0.0,
            effect=Effect(
                "excess of the share of train in the group where it is most surprising",
                (low, high, facts.level),
                self.margin,
                strongest["excess"],
            ),
            tests=tuple(replace(t, name=n) for n, t in tests.items()),
            reading=(
                f"The share is most surprising for {name.removeprefix('share, ')!r}: {strongest['share']:.4f}, where "
                f"{facts.train_share:.4f} is expected without a leak."
            ),
            **common,
        )


def _tallied(
    labels: Labels,
    query: NDArray[np.int64],
    role: str,
    credit: NDArray[np.int64],
    groups: tuple[NDArray[np.int64], int],
    crossed: NDArray[np.int64],
    width: int,
) -> dict[str, Any]:
    """Rows, credit and cells of every group: of train, of holdout, and of the first side of every draw."""
    places, size = groups
    rows = labels.rows(query, role == HOLDOUT)
    side = np.arange(2) == (role == HOLDOUT)
    each = [np.zeros(size, np.int64), np.zeros(size * width, np.int64)]
    for column, cell in zip(places.T, crossed.T, strict=True):
        np.add.at(each[0], column, credit)
        each[1] += np.bincount(cell, minlength=size * width)
    cells = each[1].reshape(size, width)
    return {
        "rows": side[:, None] * cells.sum(axis=1),
        "credit": side[:, None] * each[0],
        "cells": side[:, None, None] * cells,
        "drawn credit": labels.sums(rows, places, size, credit),
        "drawn cells": labels.sums(rows, crossed, size * width).reshape(-1, size, width),
    }


@dataclass(frozen=True, eq=False)
class _Group:
    """One group, or several added up: place 0 of an axis of two is train."""

    rows: NDArray[np.int64]
    credit: NDArray[np.int64]
    drawn: NDArray[np.int64]
    auc: LabelTest

    @classmethod
    def of(cls, partial: Mapping[str, Any], members: list[int]) -> _Group:
        cells = partial["cells"][:, members].sum(axis=1)
        auc = auc_of_cells(partial["drawn cells"][:, members].sum(axis=1), cells.sum(axis=0))
        return cls(
            partial["rows"][:, members].sum(axis=1),
            partial["credit"][:, members].sum(axis=1),
            partial["drawn credit"][:, members].sum(axis=1),
            LabelTest("", float(auc_of_cells(cells[0], cells.sum(axis=0))), auc, _WEIGHT),
        )

    @property
    def can_vary(self) -> bool:
        """False where no synthetic row is nearest to the group, or all labels give the same."""
        return bool(self.credit.sum() > 0 and int(self.drawn.max()) - int(self.drawn.min()) > _ROUNDING)

    @property
    def share(self) -> LabelTest:
        return LabelTest("", float(self.credit[0]), self.drawn.astype(np.float64), _WEIGHT)

    def line(self, facts: Facts) -> dict[str, Any]:
        """What the report says of it. The interval is that of random labels around the share found."""
        total = int(self.credit.sum())
        share = int(self.credit[0]) / total if total else None
        expected = facts.train_share
        half = normal_quantile(facts.level) * float(self.drawn.std()) / max(total, 1) / (1 - expected)
        excess = None if share is None else (share - expected) / (1 - expected)
        return {
            "n_train": int(self.rows[0]),
            "n_holdout": int(self.rows[1]),
            "synthetic_rows": total / CreditLaw.UNIT,
            "share": share,
            "excess": excess,
            "excess_interval": None if excess is None else [excess - half, excess + half, facts.level],
            "p_value": self.share.p_value if self.can_vary else 1.0,
            "auc": self.auc.observed,
            "auc_p_value": self.auc.p_value,
        }
