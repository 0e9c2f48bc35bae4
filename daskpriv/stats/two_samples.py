"""Two samples of distributed numbers compared exactly: every rank statistic from one walk through the ordered values.

Values are walked window by window, so that nobody holds more than a window of distinct values; the windows end at
exact order statistics of both samples together. All counts are integers: no layout changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from daskpriv.stats.counts import Counted, counted, dot, merged
from daskpriv.stats.selection import Selection

__all__ = ["WINDOW", "Comparison", "TwoSamples", "counted"]

WINDOW = 1 << 21
Partial = NDArray[np.int64] | Counted | None
_NONE = (0, 0, -np.inf)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the order of two samples a and b says; +inf is a value like others, NaN was never counted.

    Attributes
    ----------
    n_a, n_b : int
    theta : float
        P(a < b) + P(a = b) / 2: the area under the ROC curve of "small values tell a from b" (Mann & Whitney 1947).
    variance : float
        Of theta, by placement values (DeLong, DeLong & Clarke-Pearson 1988); NaN where a sample has fewer than two.
    ks, ks_above, ks_below : float
        Largest |F_a - F_b|, largest F_a - F_b (a is smaller; also the advantage TPR - FPR), largest F_b - F_a.
    wasserstein : float
        Area between the distribution functions; inf where an infinite value is on one side only.
    at_rates : {false positive rate: (true positives, false positives, threshold)}
        Guessing "a" at values up to the threshold: the largest threshold whose share of b is at most the rate.
        The threshold is -inf where even the smallest value is too much.
    listed : (members, others, threshold)
        The values of a whose conformal p-values against b Benjamini and Hochberg's rule rejects at the false
        discovery rate asked for (Bates et al. 2023), the values of b that lie no higher than the largest of them, and
        that largest one; (0, 0, -inf) where none is rejected.
    """

    n_a: int
    n_b: int
    theta: float
    variance: float
    ks: float
    ks_above: float
    ks_below: float
    wasserstein: float
    at_rates: dict[float, tuple[int, int, float]]
    listed: tuple[int, int, float] = _NONE


@dataclass(frozen=True)
class _Walk:
    """Sums over the values seen so far, in ascending order."""

    a: int = 0
    b: int = 0
    wins: int = 0  # twice the pairs with a < b, plus ties
    squares_a: int = 0
    squares_b: int = 0
    above: int = 0
    below: int = 0
    area: float = 0.0
    last: float = 0.0
    at_rates: tuple[tuple[int, int, float], ...] = ()
    listed: tuple[int, int, float] = _NONE


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """The state of a comparison: `chunk` partials are merged by `combine`, `advance` gives the next state or the end.

    Attributes
    ----------
    n_a, n_b : int
        How many values the samples will have, NaN not counted.
    rates : tuple of float
        False positive rates of interest.
    discovery : float
        False discovery rate of the list of exposed values of a; 0 makes none.
    """

    n_a: int
    n_b: int
    rates: tuple[float, ...] = ()
    window: int = WINDOW
    cuts: Selection | None = None
    ends: tuple[float, ...] | None = None
    place: int = 0
    walk: _Walk = field(default_factory=_Walk)
    discovery: float = 0.0

    @classmethod
    def of(
        cls, n_a: int, n_b: int, rates: Sequence[float] = (), window: int = WINDOW, discovery: float = 0.0
    ) -> TwoSamples:
        """Begin."""
        n = n_a + n_b
        start = _Walk(at_rates=(_NONE,) * len(rates))
        begun = cls(n_a, n_b, tuple(rates), window, walk=start, discovery=discovery)
        if n <= window:
            return replace(begun, ends=(np.inf,))
        return replace(begun, cuts=Selection.at(list(range(window - 1, n - 1, window))))

    def chunk(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> Partial:
        """What some values of each sample say; either may be empty."""
        if self.ends is None:
            assert self.cuts is not None
            return self.cuts.count(np.concatenate([a, b]))
        low = self.ends[self.place - 1] if self.place else -np.inf
        high = self.ends[self.place]
        sides = [x[(x > low) & (x <= high)] if self.place else x[x <= high] for x in (a, b)]
        return counted(*sides)

    def combine(self, x: Partial, y: Partial) -> Partial:
        """Merge two partials."""
        if x is None or y is None:
            return y if x is None else x
        if isinstance(x, tuple) and isinstance(y, tuple):
            return merged(x, y)
        assert not isinstance(x, tuple) and not isinstance(y, tuple)
        return x + y

    def advance(self, partial: Partial) -> TwoSamples | Comparison:
        """The next state, or the result."""
        if self.ends is None:
            assert self.cuts is not None and not isinstance(partial, tuple) and partial is not None
            cuts = self.cuts.narrow(partial)
            if not cuts.done:
                return replace(self, cuts=cuts)
            ends = tuple(np.unique(np.append(cuts.values(), np.inf)).tolist())
            return replace(self, cuts=None, ends=ends)
        walk = self.walk if partial is None else self._walked(partial)  # type: ignore[arg-type]
        if self.place + 1 < len(self.ends):
            return replace(self, walk=walk, place=self.place + 1)
        return self._finished(walk)

    def _walked(self, window: Counted) -> _Walk:
        values, count_a, count_b = window
        if not len(values) or not self.n_a * self.n_b:
            return self.walk
        w = self.walk
        a, b = w.a + np.cumsum(count_a), w.b + np.cumsum(count_b)
        # Twice the rows of the other side that lie above, plus those level with it.
        over_a = 2 * (self.n_b - b) + count_b
        under_b = 2 * (a - count_a) + count_a
        gaps = [int(x) for x in (a.astype(object) * self.n_b - b.astype(object) * self.n_a)]
        return _Walk(
            int(a[-1]),
            int(b[-1]),
            w.wins + dot(count_a, over_a),
            w.squares_a + dot(count_a, over_a, over_a),
            w.squares_b + dot(count_b, under_b, under_b),
            max(w.above, *gaps),
            max(w.below, *(-g for g in gaps)),
            w.area + self._area(values, gaps),
            float(values[-1]),
            tuple(self._rate(r, old, values, a, b) for r, old in zip(self.rates, w.at_rates, strict=True)),
            self._listed(values, count_a, a, b),
        )

    def _area(self, values: NDArray[np.float64], gaps: Sequence[int]) -> float:
        w = self.walk
        whole = self.n_a * self.n_b
        before = w.a * self.n_b - w.b * self.n_a
        heights = np.abs(np.array([before, *gaps[:-1]], float)) / whole
        with np.errstate(invalid="ignore"):
            steps = np.diff(np.append(w.last if w.a + w.b else values[0], values))
            return float(np.sum(np.where(heights > 0, heights * steps, 0.0)))

    def _rate(
        self,
        rate: float,
        old: tuple[int, int, float],
        values: NDArray[np.float64],
        a: NDArray[np.int64],
        b: NDArray[np.int64],
    ) -> tuple[int, int, float]:
        allowed = int(np.searchsorted(b, int(Fraction(str(rate)) * self.n_b), side="right"))
        return (int(a[allowed - 1]), int(b[allowed - 1]), float(values[allowed - 1])) if allowed else old

    def _listed(
        self, values: NDArray[np.float64], count_a: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]
    ) -> tuple[int, int, float]:
        """Benjamini and Hochberg: the last value of a whose conformal p-value is at most discovery x rank / n_a.

        Values that only b holds end no list: what is listed are values of a, and rows of b count up to the last one.
        """
        rate = Fraction(str(self.discovery))

        def passes(i: int) -> bool:
            return (1 + int(b[i])) * self.n_a <= rate * int(a[i]) * (self.n_b + 1)

        bound = self.discovery * a * float(self.n_b + 1)
        # Rounding decides nothing: whatever passes nearly is looked at again in integers.
        nearly = np.flatnonzero((count_a > 0) & ((1 + b) * float(self.n_a) <= bound * (1 + 1e-9)))
        last = next((int(i) for i in nearly[::-1] if passes(int(i))), None)
        return self.walk.listed if last is None else (int(a[last]), int(b[last]), float(values[last]))

    def _finished(self, w: _Walk) -> Comparison:
        n_a, n_b = self.n_a, self.n_b
        pairs = n_a * n_b
        if not pairs:
            nan = float("nan")
            return Comparison(n_a, n_b, nan, nan, nan, nan, nan, nan, {})
        if (w.a, w.b) != (n_a, n_b):
            raise ValueError(f"expected {n_a} and {n_b} values, got {w.a} and {w.b}")
        theta = Fraction(w.wins, 2 * pairs)
        variance = float("nan")
        if n_a > 1 and n_b > 1:
            spread_a = (Fraction(w.squares_a, 4 * n_b * n_b) - n_a * theta * theta) / (n_a - 1)
            spread_b = (Fraction(w.squares_b, 4 * n_a * n_a) - n_b * theta * theta) / (n_b - 1)
            variance = float(spread_a / n_a + spread_b / n_b)
        above, below = w.above / pairs, w.below / pairs
        rates = dict(zip(self.rates, w.at_rates, strict=True))
        return Comparison(n_a, n_b, float(theta), variance, max(above, below), above, below, w.area, rates, w.listed)
