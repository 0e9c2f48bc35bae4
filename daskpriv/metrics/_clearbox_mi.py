"""The membership inference test of Clearbox SURE, as published, to reproduce its numbers only.

Source: docs/definitions.md; SURE 0.2.16, numbers reproduced from its definition. Distances are float32; the quantiles
and comparisons are those of NumPy 1, with which the published numbers were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours, Role
from daskpriv.stats.selection import Selection

# A table of sampled training rows, followed by as many sampled holdout rows: with ranges and categories of its own.
ADVERSARY: Role = "adversary"
_FRACTION = 0.2
_SEED = 42
_LEVELS = (0.5, 0.25, 0.2)
_PAST_LEAST = 0.01
_FLOOR = 0.5
Partial = float | NDArray[np.int64]


def sample_size(n_train: int, n_holdout: int) -> int:
    """Rows that the published test samples from each table.

    >>> sample_size(999, 49), sample_size(24421, 24421)
    (49, 4884)
    """
    return min(int((n_train + n_holdout) * _FRACTION / 2), n_holdout)


@lru_cache(maxsize=4)
def sampled_rows(n: int, size: int) -> NDArray[np.int64]:
    """Row ids that `pandas.DataFrame.sample(size, random_state=42)` takes of n rows, ascending; int64 (size,)."""
    generator = np.random.RandomState(_SEED)  # the legacy generator, as published
    return np.sort(generator.choice(n, size=size, replace=False)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PublishedTest:
    """The test in three steps: the smallest distance, the quantiles it asks for, the guesses below them.

    Attributes
    ----------
    size : int
        Rows sampled from each table; 0 where the published test fails.
    own_table : bool
        True when the sampled rows are a table of their own, as published.
    """

    facts: Facts
    size: int
    own_table: bool
    least: float | None = None
    selection: Selection | None = None
    thresholds: tuple[float, ...] | None = None
    answer: dict[str, Any] | None = None

    @classmethod
    def of(cls, facts: Facts) -> PublishedTest:
        """Begin."""
        size = sample_size(facts.rows[TRAIN], facts.rows[HOLDOUT])
        if not 0 < size <= facts.rows[TRAIN]:
            return cls(facts, 0, False, answer=_answer((), (), 0, False))
        return cls(facts, size, facts.has(ADVERSARY))

    @property
    def needs(self) -> list[Neighbours]:
        """What it asks for beyond the attack by distance."""
        return [Neighbours(ADVERSARY, SYNTHETIC)] if self.own_table else []

    def chunk(self, evidence: Evidence) -> Partial | None:
        """What some rows say; None for rows that are not sampled."""
        distance, is_train = self._sampled(evidence)
        if not len(distance):
            return None
        if self.least is None:
            return float(distance.min())
        if self.thresholds is None:
            assert self.selection is not None
            return self.selection.count(distance.astype(np.float64))
        guessed = [distance < np.float32(t) for t in self.thresholds]
        return np.array([[np.count_nonzero(g & is_train), np.count_nonzero(g)] for g in guessed], np.int64)

    def _sampled(self, evidence: Evidence) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        none = np.zeros(0, np.float32), np.zeros(0, np.bool_)
        if evidence.role not in ((ADVERSARY,) if self.own_table else (TRAIN, HOLDOUT)):
            return none
        table = evidence.table(Neighbours(evidence.role, SYNTHETIC))
        if self.own_table:
            return table.nearest.astype(np.float32), table.query < self.size
        chosen = np.isin(table.query, sampled_rows(self.facts.rows[evidence.role], self.size))
        return table.nearest[chosen].astype(np.float32), np.full(int(chosen.sum()), evidence.role == TRAIN)

    @staticmethod
    def combine(x: Partial, y: Partial) -> Partial:
        """Merge two partials."""
        if isinstance(x, float) or isinstance(y, float):
            return min(float(x), float(y))
        return x + y

    def advance(self, partial: Partial | None) -> PublishedTest:
        """The next state; `answer` is there at the end."""
        if self.least is None:
            assert isinstance(partial, float)
            if not partial + _PAST_LEAST <= 1:  # used as a quantile level; the published test fails
                return replace(self, answer=_answer((), (), 0, self.own_table))
            ranks = [rank for place in self._places(partial) for rank in (int(place), int(np.ceil(place)))]
            return replace(self, least=partial, selection=Selection.at(ranks))
        assert isinstance(partial, np.ndarray)
        if self.thresholds is None:
            assert self.selection is not None
            found = self.selection.narrow(partial)
            if not found.done:
                return replace(self, selection=found)
            pairs = found.values().reshape(-1, 2).tolist()
            places = self._places(self.least)
            held = tuple(_between(low, high, p - int(p)) for (low, high), p in zip(pairs, places, strict=True))
            return replace(self, thresholds=held)
        precisions = [max(hits / n if n else 0.0, _FLOOR) for hits, n in partial.tolist()]
        return replace(self, answer=_answer(self.thresholds, precisions, 2 * self.size, self.own_table))

    def _places(self, least: float) -> list[float]:
        """Where the quantiles lie among the sorted distances; the last level is a distance, as published."""
        return [(2 * self.size - 1) * level for level in (*_LEVELS, least + _PAST_LEAST)]


def _between(low: float, high: float, share: float) -> float:
    """A quantile between two float32 neighbours as NumPy 1 gives it: their difference is rounded to float32."""
    step = float(np.float32(high) - np.float32(low))
    return low + step * share if share < 0.5 else high - step * (1 - share)


def _answer(thresholds: Sequence[float], precisions: Sequence[float], n: int, own_table: bool) -> dict[str, Any]:
    """The published keys; the score is None where the published test fails."""
    mean = float(np.mean(precisions)) if precisions else None
    return {
        "adversary_distance_thresholds": list(thresholds),
        "adversary_precisions": list(precisions),
        "membership_inference_mean_risk_score": None if mean is None else max((mean - _FLOOR) * 2, 0.0),
        "n_adversary": n,
        "own_table": own_table,
    }
