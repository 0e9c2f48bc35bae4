"""Sequences: how long they are, how many values and which they hold, and which event follows which.

Each is compared with train as frequencies of buckets, beside the holdout and what an honest sample scores.
Sources: MOSTLY AI, ANITA D2.2 (2020): pairs of successive events; mostlyai-qa: categories per sequence, sequences per
category (the nine commonest and the others).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import (
    HOLDOUT,
    SYNTHETIC,
    TRAIN,
    Facts,
    SequenceCounts,
    Sequenced,
    SequenceTables,
)
from daskpriv.metrics.base import Answers, FromAnswers, Result
from daskpriv.stats.fidelity import deviations, total_variation
from daskpriv.stats.selection import EvenQuantiles

_QUANTILES = {"q05": 5, "q25": 25, "median": 50, "q75": 75, "q95": 95}
_ASPECTS = ("length", "categories_per_sequence", "sequences_per_category", "coherence")
Tally = Mapping[int, int]


@dataclass(frozen=True)
class Sequences(FromAnswers):
    """Lengths of sequences, values in them, and pairs of successive events.

    It describes utility and is not judged.

    Attributes
    ----------
    buckets : int
        Of each column, before those for other and for missing values, and of lengths.
    """

    name: ClassVar[str] = "sequences"
    buckets: int = 10

    def needs(self, facts: Facts) -> Sequence[Sequenced]:
        return [Sequenced(self.buckets)] if facts.sequenced else []

    def advance(self, state: Facts, partial: None, answers: Answers) -> Result:
        if not state.sequenced:
            return Result(None, reading="Not evaluated: rows are no events; name the columns of subject and order.")
        found: SequenceTables = answers[Sequenced(self.buckets)]
        train = found.counts[TRAIN]
        compared = {
            role: self._compared(found.columns, found.counts[role], train)
            for role in (SYNTHETIC, HOLDOUT)
            if role in found.counts
        }
        return _result({role: _described(counts) for role, counts in found.counts.items()}, compared)

    def _compared(self, names: Sequence[str], counts: SequenceCounts, train: SequenceCounts) -> dict[str, Any]:
        """How far a table lies from train: lengths, then column by column, then averages."""
        columns: list[dict[str, Any]] = [
            {
                "column": name,
                "categories_per_sequence": self._apart(counts.categories[i], train.categories[i]),
                "sequences_per_category": _share_apart(counts.holders[i], train.holders[i]),
                "coherence": _apart(counts.pairs[i], train.pairs[i]),
            }
            for i, name in enumerate(names)
        ]
        length = self._apart(counts.lengths, train.lengths)
        averages = {"length": length} | {a: _mean([c[a] for c in columns]) for a in _ASPECTS[1:]}
        return {"length": length, "columns": columns, "averages": averages}

    def _apart(self, counts: Tally, train: Tally) -> dict[str, float]:
        """Whole numbers in buckets that end at their quantiles in train."""
        edges = np.unique(_quantiles(train, self.buckets))
        return _apart(*(_bucketed(tally, edges) for tally in (counts, train)))


def _apart(counts: NDArray[np.int64], train: NDArray[np.int64]) -> dict[str, float]:
    """Total variation distance of two tables of counts, and that of an honest sample: exact, see `stats.fidelity`."""
    rows = int(counts.sum()), int(train.sum())
    found = deviations(counts, train, np.array([0, len(counts)]), rows)
    tvd, expected = float(found.tvd[0]), float(found.expected[0])
    return {"tvd": tvd, "accuracy": 1 - tvd, "expected": 1 - expected}


def _share_apart(counts: NDArray[np.int64], train: NDArray[np.int64]) -> dict[str, float]:
    """The same for counts that a subject enters several times: there is no exact expectation."""
    tvd = float(total_variation(counts, train, np.array([0, len(counts)]))[0])
    return {"tvd": tvd, "accuracy": 1 - tvd}


def _mean(of: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over columns; none without a column."""
    return {key: math.fsum(c[key] for c in of) / len(of) for key in (of[0] if of else ())}


def _quantiles(tally: Tally, parts: int) -> NDArray[np.float64]:
    """The quantiles 0, 1 / parts, ..., 1."""
    values, below = np.array(list(tally), np.float64), np.cumsum(list(tally.values()))
    wanted = EvenQuantiles(parts, int(below[-1]))
    return np.array(wanted.combine(values[np.searchsorted(below, wanted.ranks(), side="right")]))


def _bucketed(tally: Tally, edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts of what is below e0, of e0, of (e0, e1], ..., and above the last edge; int64 (edges + 2,).

    >>> _bucketed({0: 1, 1: 5, 2: 7, 4: 1, 9: 2}, np.array([1.0, 3.0, 6.0])).tolist()
    [1, 5, 7, 1, 2]
    """
    values = np.array(list(tally))
    out = np.zeros(len(edges) + 2, np.int64)
    np.add.at(out, np.where(values < edges[0], 0, np.searchsorted(edges, values) + 1), list(tally.values()))
    return out


def _described(counts: SequenceCounts) -> dict[str, Any]:
    """Sizes of a table; lengths of few subjects are not told."""
    subjects = sum(counts.lengths.values())
    events = sum(length * n for length, n in counts.lengths.items())
    at = _quantiles(counts.lengths, 100)
    return {
        "subjects": subjects,
        "events": events,
        "single": counts.lengths.get(1, 0),
        "length": {"mean": events / subjects, **{name: float(at[p]) for name, p in _QUANTILES.items()}},
    }


def _result(tables: dict[str, Any], compared: dict[str, Any]) -> Result:
    averages = compared[SYNTHETIC]["averages"]
    coherence, length = averages["coherence"], averages["length"]
    reading = (
        f"Lengths of sequences agree with train to {length['accuracy']:.4f} (an honest sample of this size: "
        f"{length['expected']:.4f})"
    )
    if coherence:
        reading = (
            f"Pairs of successive events agree with train to {coherence['accuracy']:.4f} (mean over columns; an honest "
            f"sample of this size: {coherence['expected']:.4f}). " + reading
        )
    main = coherence or length
    return Result(
        main["accuracy"],
        expected=main["expected"],
        details={"tables": tables, "synthetic": compared[SYNTHETIC], "reference_holdout": compared.get(HOLDOUT)},
        cannot_show="This is utility, not privacy: a copy of train scores best. Of a sequence it sees two events.",
        reading=reading + ".",
    )
