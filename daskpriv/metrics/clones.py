"""Clones: synthetic rows that equal a real row, next to how often that happens by chance.

Source: docs/definitions.md. The test counts real rows that have a synthetic twin, not
synthetic rows: with exchangeable labels the training rows among them are hypergeometric, whatever the generator
does. Counting synthetic rows instead rejects a true null in 34 % of runs when rows repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics.base import Answers, Effect, LabelTest, Result, added, drawn_labels, judge, shift
from daskpriv.stats.intervals import clopper_pearson, hypergeometric_tail
from daskpriv.stats.labels import Labels

_PAIRS = ((SYNTHETIC, TRAIN), (SYNTHETIC, HOLDOUT), (HOLDOUT, TRAIN), (TRAIN, SYNTHETIC), (HOLDOUT, SYNTHETIC))

# Few rows have twins by chance, so that a small p is rare, and a copy where there is one: worth five other tests.
_WEIGHT = 5.0
_State = tuple[Facts, Labels | None]
_Partial = dict[str, int | NDArray[np.int64]]


@dataclass(frozen=True)
class Clones:
    """Counts and rates of exact matches, with the holdout as the reference for chance.

    Attributes
    ----------
    margin : float
        BOUNDED needs the copied share of training rows, beyond chance, to be below this.
    """

    name: ClassVar[str] = "clones"
    margin: float = 0.001

    def needs(self, facts: Facts) -> Sequence[Neighbours]:
        return [Neighbours(q, r) for q, r in _PAIRS if facts.has(q, r)]

    def begin(self, facts: Facts) -> _State:
        return facts, drawn_labels(facts) if facts.has(HOLDOUT) else None

    def chunk(self, state: _State, evidence: Evidence) -> _Partial:
        facts, drawn = state
        out: _Partial = {}
        for request in self.needs(facts):
            if request.query != evidence.role:
                continue
            table = evidence.table(request)
            twins = table.query[table.nearest == 0.0]
            out[request.direction] = len(twins)
            if drawn is not None and request.reference == SYNTHETIC:
                rows = drawn.rows(twins, second=request.query == HOLDOUT)
                out["drawn"] = drawn.sums(rows, np.zeros(len(rows), np.int64), 1)[:, 0]
        return out

    def combine(self, a: _Partial, b: _Partial) -> _Partial:
        return added(a, b)

    def advance(self, state: _State, partial: _Partial, answers: Answers) -> Result:
        def count(query: str, reference: str) -> int | None:
            found = partial.get(f"{query}->{reference}")
            return None if found is None else int(found)

        facts, _ = state
        rows = facts.rows
        st, sh, ht = count(SYNTHETIC, TRAIN), count(SYNTHETIC, HOLDOUT), count(HOLDOUT, TRAIN)
        assert st is not None
        rate = st / rows[SYNTHETIC]
        details: dict[str, Any] = {
            "n_synthetic_train": st,
            "n_synthetic_holdout": sh,
            "n_holdout_train": ht,
            "rates": {
                "synthetic_train": rate,
                "synthetic_holdout": None if sh is None else sh / rows[SYNTHETIC],
                "holdout_train": None if ht is None else ht / rows[HOLDOUT],
            },
            "excess": None if sh is None else (st - sh) / rows[SYNTHETIC],
            "n_train_with_twin": count(TRAIN, SYNTHETIC),
            "n_holdout_with_twin": count(HOLDOUT, SYNTHETIC),
        }
        common: dict[str, Any] = {
            "cannot_show": "Rows copied with one small change are not clones; see the DCR share.",
        }
        if sh is None:
            return Result(
                rate,
                details=details,
                reading=(
                    f"{st} synthetic rows equal a training row; without a holdout chance cannot be told from copying."
                ),
                **common,
            )
        return self._compare(facts, details, np.asarray(partial["drawn"], np.float64), rate, common)

    def _compare(
        self, facts: Facts, details: dict[str, Any], drawn: NDArray[np.float64], rate: float, common: dict[str, Any]
    ) -> Result:
        """Real rows with a synthetic twin: how many more of them are training rows than labels explain."""
        in_train, in_holdout = details["n_train_with_twin"], details["n_holdout_with_twin"]
        n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
        twins = in_train + in_holdout
        test = LabelTest("twins", float(in_train), drawn, _WEIGHT)
        odds = n_train / n_holdout

        def copied(share: float) -> float:
            return float(twins * (share - (1 - share) * odds) / n_train)

        effect, interval, p, named = 0.0, (0.0, 0.0, facts.level), 1.0, "no real row has a synthetic twin"
        if twins and facts.subjects is None:
            low, high, level = clopper_pearson(in_train, twins, facts.level)
            effect, interval = copied(in_train / twins), (copied(low), copied(high), level)
            p = hypergeometric_tail(in_train, n_train + n_holdout, n_train, twins)
            named = "hypergeometric on real rows with a synthetic twin"
        elif twins:  # twins of one subject come together: the draws of subjects know that
            effect, low, high = shift(test, (1 + odds) / n_train, facts.level)
            interval, p = (low, high, facts.level), test.p_value
            named = f"permutation of subjects, {len(drawn)} draws, on real rows with a synthetic twin"
        details |= {
            "copied_train_rows": effect,
            "copied_train_rows_interval": list(interval),
            "test": named,
        }
        st, sh = details["n_synthetic_train"], details["n_synthetic_holdout"]
        return Result(
            rate,
            verdict=judge(interval[0], interval[1], 0.0, self.margin),
            p_value=p,
            expected=sh / facts.rows[SYNTHETIC],
            effect=Effect(
                "share of the training rows that is copied exactly, beyond chance", interval, self.margin, effect
            ),
            details=details,
            tests=(test,) if twins else (),
            reading=f"{st} synthetic rows equal a training row and {sh} equal a holdout row.",
            **common,
        )
