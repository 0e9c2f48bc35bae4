"""Nearest-neighbour scores of other tools, from the searches that a report makes anyway.

Each score, its formula and its source: daskpriv.metrics._peer_scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics._peer_scores import OF_BOTH, OF_ONE_TABLE, Median, Part, Score, Share
from daskpriv.metrics.base import Answers, Result
from daskpriv.stats.selection import Quantiles, Selection

SCORES = (*OF_ONE_TABLE, *OF_BOTH)
Partial = tuple[dict[Share, int], dict[Median, NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class Reduced:
    """Counts come with the first pass, medians need several.

    Attributes
    ----------
    shares : tuple of Share
    counts : {Share: rows} or None before the first pass
    medians : {Median: (ranks wanted, search for them)}
    """

    facts: Facts
    shares: tuple[Share, ...]
    counts: dict[Share, int] | None
    medians: dict[Median, tuple[Quantiles, Selection]]


@dataclass(frozen=True)
class NeighbourScores:
    """The scores named, each beside its value without a leak as far as the holdout can tell.

    They describe: none has a law of chance, so that none is judged. The headline is the first score named: NNAA of
    synthetic and train, because it needs no holdout, has a scale of its own (0.5: mixed), and NNAA of synthetic and
    holdout is what to expect without a leak.

    Attributes
    ----------
    scores : tuple of str
        Names from `SCORES`; only their searches are asked for.
    """

    name: ClassVar[str] = "neighbour_scores"
    scores: tuple[str, ...] = SCORES

    def __post_init__(self) -> None:
        if not self.scores or not set(self.scores) <= set(SCORES):
            raise ValueError(f"scores must be some of {SCORES}")

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        return list(dict.fromkeys(s for part in self._parts(facts) for s in part.searches))

    def begin(self, facts: Facts) -> Reduced:
        parts = self._parts(facts)
        medians = {}
        for part in parts:
            if isinstance(part, Median):
                wanted = Quantiles((0.5,), facts.rows[part.query])
                medians[part] = (wanted, Selection.at(wanted.ranks()))
        return Reduced(facts, tuple(p for p in parts if isinstance(p, Share)), None, medians)

    def chunk(self, state: Reduced, evidence: Evidence) -> Partial:
        first = state.shares if state.counts is None else ()
        counts = {s: s.count(evidence) for s in first if s.query == evidence.role}
        digits = {
            m: search.count(evidence.table(m.searches[0]).nearest)
            for m, (_, search) in state.medians.items()
            if m.query == evidence.role
        }
        return counts, digits

    def combine(self, a: Partial, b: Partial) -> Partial:
        counts, digits = dict(a[0]), dict(a[1])
        for share, n in b[0].items():
            counts[share] = counts.get(share, 0) + n
        for median, n_by_digit in b[1].items():
            digits[median] = digits[median] + n_by_digit if median in digits else n_by_digit
        return counts, digits

    def advance(self, state: Reduced, partial: Partial | None, answers: Answers) -> Reduced | Result:
        counted, digits = partial or ({}, {})  # None: nothing was asked for, as for a contrast without a holdout
        counts = counted if state.counts is None else state.counts
        medians = {m: (wanted, search.narrow(digits[m])) for m, (wanted, search) in state.medians.items()}
        if not all(search.done for _, search in medians.values()):
            return Reduced(state.facts, state.shares, counts, medians)
        numbers: dict[Part, float] = {s: n / state.facts.rows[s.query] for s, n in counts.items()}
        for median, (wanted, search) in medians.items():
            numbers[median] = wanted.combine(search.values())[0]
        return self._result(state.facts, numbers)

    def _result(self, facts: Facts, numbers: dict[Part, float]) -> Result:
        details = {name: _described(facts, name, numbers) for name in self.scores}
        main = self.scores[0]
        value, reference = details[main]["value"], details[main]["reference"]
        reading = f"{main}: not evaluated" if value is None else f"{main} is {value:.4f}"
        if facts.has(HOLDOUT):
            reading += (
                "." if reference is None else f"; {reference:.4f} without a leak, as far as the holdout can tell."
            )
        else:
            reading += "; without a holdout nothing tells what to expect."
        return Result(
            value,
            expected=reference,
            details=details,
            reading=reading,
            cannot_show=(
                "These are the definitions of other tools; chance is accounted for in none of them. The DCR share and "
                "the clones judge."
            ),
        )

    def _parts(self, facts: Facts) -> list[Part]:
        """All shares and medians wanted, each once."""
        found = (p for name in self.scores for s in _made(facts, name) for p in s.parts.values())
        return list(dict.fromkeys(found))


def _made(facts: Facts, name: str) -> Iterator[Score]:
    """The score `name` and, where it is about one table and there is a holdout, the same about the holdout."""
    if name in OF_ONE_TABLE:
        yield OF_ONE_TABLE[name](facts, TRAIN)
        if facts.has(HOLDOUT):
            yield OF_ONE_TABLE[name](facts, HOLDOUT)
    elif facts.has(HOLDOUT):
        yield OF_BOTH[name](facts)


def _described(facts: Facts, name: str, numbers: dict[Part, float]) -> dict[str, Any]:
    made = [(score, {k: numbers[p] for k, p in score.parts.items()}) for score in _made(facts, name)]
    if not made:
        unknown = OF_BOTH[name](facts)
        note = "Not evaluated: it compares train with a holdout, and none was given."
        return {"value": None, "reference": None, "parts": {}, "source": unknown.source, "note": note}
    (score, parts), *other = made
    reference = other[0][0].value(other[0][1]) if other else score.expected
    out = {"value": score.value(parts), "reference": reference, "parts": parts}
    if other:
        out["reference_parts"] = other[0][1]
    return out | {"source": score.source, "note": score.note}
