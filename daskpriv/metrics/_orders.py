"""Quantiles of several distributed samples, and comparisons of pairs of them, in the same passes over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.selection import Selection
from daskpriv.stats.two_samples import Comparison, TwoSamples
from daskpriv.stats.two_samples import Partial as Counts

Pair = tuple[str, str]
Partial = dict[str | Pair, Counts]
_NOTHING = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Orders:
    """How far the passes have come.

    Attributes
    ----------
    ranked : {sample: search for its order statistics}
    compared : {(a, b): comparison of two samples, or its result}
    """

    ranked: Mapping[str, Selection]
    compared: Mapping[Pair, TwoSamples | Comparison]

    @classmethod
    def of(cls, ranks: Mapping[str, Sequence[int]], sizes: Mapping[str, int], pairs: Iterable[Pair]) -> Orders:
        """Begin; `sizes` are the numbers of values, NaN not counted."""
        return cls(
            {name: Selection.at(wanted) for name, wanted in ranks.items()},
            {(a, b): _begun(sizes[a], sizes[b]) for a, b in pairs},
        )

    @property
    def done(self) -> bool:
        """True when every order statistic and every comparison is known."""
        return all(s.done for s in self.ranked.values()) and all(
            isinstance(c, Comparison) for c in self.compared.values()
        )

    def chunk(self, values: Mapping[str, NDArray[np.float64]]) -> Partial:
        """Partial of one block, which holds values of some of the samples."""
        out: Partial = {name: s.count(values[name]) for name, s in self.ranked.items() if name in values}
        for pair, step in self.compared.items():
            if isinstance(step, TwoSamples) and (pair[0] in values or pair[1] in values):
                out[pair] = step.chunk(*(values.get(name, _NOTHING) for name in pair))
        return out

    def advance(self, partial: Partial) -> Orders:
        """The next state."""
        ranked = {}
        for name, search in self.ranked.items():
            counts = partial[name]
            assert isinstance(counts, np.ndarray)
            ranked[name] = search.narrow(counts)
        compared = {
            pair: step.advance(partial.get(pair)) if isinstance(step, TwoSamples) else step
            for pair, step in self.compared.items()
        }
        return Orders(ranked, compared)

    def comparison(self, a: str, b: str) -> Comparison:
        """The result for a pair, when all is done."""
        found = self.compared[a, b]
        assert isinstance(found, Comparison)
        return found


def combine(a: Partial, b: Partial) -> Partial:
    """Merge partials of two blocks."""
    merge = TwoSamples.of(0, 0).combine
    return {key: merge(a.get(key), b.get(key)) for key in {**a, **b}}


def _begun(n_a: int, n_b: int) -> TwoSamples | Comparison:
    nan = float("nan")
    return TwoSamples.of(n_a, n_b) if n_a and n_b else Comparison(n_a, n_b, nan, nan, nan, nan, nan, nan, {})


def theta(found: Comparison, level: float) -> dict[str, Any]:
    """P(a < b) + P(a = b) / 2 with DeLong's interval of two independent samples, None where either has one value.

    >>> a = Comparison(2, 2, 0.5, 0.01, 0.0, 0.0, 0.0, 0.0, {})
    >>> [round(x, 3) for x in theta(a, 0.95)["theta_interval"]]
    [0.304, 0.696, 0.95]
    """
    half = normal_quantile(level) * found.variance**0.5
    known = bool(np.isfinite(half))
    return {
        "theta": found.theta,
        "theta_interval": [max(0.0, found.theta - half), min(1.0, found.theta + half), level] if known else None,
    }
