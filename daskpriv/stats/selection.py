"""Exact order statistics of distributed values, digit by digit (radix selection over the float64 bits).

No worker sends values, only counts: pass by pass the bits of each wanted value are fixed from the top.
The result is the value that sorting everything would give, for any partitioning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_SIGN = np.uint64(1 << 63)
# A partial is at most (wanted values) x 256 counts; wider digits save passes but made partials of megabytes.
_DIGIT = 8


def _to_key(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Map float64 to uint64 in the same order; -0.0 joins 0.0."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_key(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).view(np.float64)


@dataclass(frozen=True, eq=False)
class Selection:
    """A search for the values at 0-based `ranks` of a sorted whole; NaN never counts.

    prefix  uint64 (m,)  the bits of each wanted value fixed so far
    rank    int64  (m,)  its rank among the values that share this prefix
    left    int          bits still open
    """

    prefix: NDArray[np.uint64]
    rank: NDArray[np.int64]
    left: int = 64

    @classmethod
    def at(cls, ranks: Sequence[int]) -> Selection:
        """Begin a search for the values at these ranks."""
        return cls(np.zeros(len(ranks), np.uint64), np.asarray(ranks, np.int64))

    @property
    def done(self) -> bool:
        """True when every bit is known."""
        return self.left == 0 or len(self.rank) == 0

    def count(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Partial of one chunk: how often each next digit follows each open prefix; int64 (prefixes, 256)."""
        if self.done:
            return np.zeros((0, 0), np.int64)
        open_prefixes = np.unique(self.prefix)
        keys = _to_key(values[~np.isnan(values)])
        if self.left < 64:
            head = keys >> np.uint64(self.left)
            place = np.minimum(np.searchsorted(open_prefixes, head), len(open_prefixes) - 1)
            keep = open_prefixes[place] == head
            keys, place = keys[keep], place[keep]
        else:
            place = np.zeros(len(keys), np.int64)
        mask = np.uint64((1 << _DIGIT) - 1)
        cell = (place.astype(np.int64) << _DIGIT) + ((keys >> np.uint64(self.left - _DIGIT)) & mask).astype(np.int64)
        return np.bincount(cell, minlength=len(open_prefixes) << _DIGIT).reshape(len(open_prefixes), -1)

    def narrow(self, counts: NDArray[np.int64]) -> Selection:
        """Fix the next digit of every wanted value from the summed counts."""
        if self.done:
            return self
        below = np.cumsum(counts, axis=1)
        place = np.searchsorted(np.unique(self.prefix), self.prefix)
        found = np.array(
            [np.searchsorted(below[p], r, side="right") for p, r in zip(place, self.rank, strict=True)], np.int64
        )
        before = np.where(found > 0, below[place, np.maximum(found - 1, 0)], 0)
        prefix = (
            (self.prefix << np.uint64(_DIGIT)) | found.astype(np.uint64) if self.left < 64 else found.astype(np.uint64)
        )
        return replace(self, prefix=prefix, rank=self.rank - before, left=self.left - _DIGIT)

    def values(self) -> NDArray[np.float64]:
        """The wanted values, in the order of `at`."""
        return _from_key(self.prefix)


@dataclass(frozen=True)
class Quantiles:
    """Which order statistics a set of quantiles needs, and how they combine (numpy's `linear` rule).

    Source: Hyndman & Fan (1996), type 7.
    """

    probabilities: tuple[float, ...]
    n: int

    def ranks(self) -> list[int]:
        """Two neighbouring ranks for each probability."""
        out: list[int] = []
        for p in self.probabilities:
            low = min(int(np.floor(p * (self.n - 1))), self.n - 1)
            out += [low, min(low + 1, self.n - 1)]
        return out

    def combine(self, values: NDArray[np.float64]) -> list[float]:
        """Interpolate the values found at `ranks`; the same float64 steps as `numpy.quantile`.

        >>> q = Quantiles((0.0, 0.5, 1.0), 4)
        >>> q.combine(np.array([1.0, 2.0, 3.0, 10.0])[q.ranks()])
        [1.0, 2.5, 10.0]
        """
        out = []
        for p, low, high in zip(self.probabilities, values[::2], values[1::2], strict=True):
            place = p * (self.n - 1)
            t = place - np.floor(place)
            if low == high or t == 0:
                out.append(float(low))
            elif np.isinf(high):
                out.append(float(high))
            else:
                step = high - low
                out.append(float(high - step * (1 - t) if t >= 0.5 else low + step * t))
        return out


@dataclass(frozen=True)
class EvenQuantiles:
    """The quantiles 0, 1 / parts, ..., 1 of `n` values by the same rule, without rounding on the way.

    Each is the largest float64 that does not exceed the exact one: a value lies below it, or at it, exactly when it
    does so in whole numbers, whatever the unit.
    """

    parts: int
    n: int

    def ranks(self) -> list[int]:
        """Two neighbouring ranks for each of them."""
        lows = [i * (self.n - 1) // self.parts for i in range(self.parts + 1)]
        return [rank for low in lows for rank in (low, min(low + 1, self.n - 1))]

    def combine(self, values: NDArray[np.float64]) -> list[float]:
        """Interpolate the values found at `ranks`.

        >>> q = EvenQuantiles(2, 4)
        >>> q.combine(np.array([1.0, 2.0, 3.0, 10.0])[q.ranks()])
        [1.0, 2.5, 10.0]
        """
        out = []
        for i, (low, high) in enumerate(zip(values[::2].tolist(), values[1::2].tolist(), strict=True)):
            exact = Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(
                i * (self.n - 1) % self.parts, self.parts
            )
            near = float(exact)
            out.append(near if Fraction(near) <= exact else math.nextafter(near, -math.inf))
        return out
