"""AUC and R2 on test rows, each with the influence of every row: errors of any smooth function of them follow.

Source: the influence function (Hampel 1974). For the AUC it gives the placement values of DeLong, DeLong &
Clarke-Pearson (1988), and so their covariances between models that are tested on the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskpriv.stats.intervals import Interval, normal_quantile


@dataclass(frozen=True, eq=False)
class Scored:
    """A score, and what each test row contributes to its error.

    Attributes
    ----------
    value : float
    influence : float64 (n,)
        In test row order, with mean 0: the error is about the mean of the influences of randomly drawn rows.
    """

    value: float
    influence: NDArray[np.float64]

    def spread(self, clusters: NDArray[np.int64] | None = None) -> float:
        """Standard error; rows of one cluster (int64 (n,)) may be alike."""
        sums = self.influence
        if clusters is not None:
            sums = np.bincount(np.unique(clusters, return_inverse=True)[1], sums).astype(np.float64)
        groups = len(sums)
        scale = groups / (groups - 1) if groups > 1 else 1.0
        return float(np.sqrt(scale * (sums * sums).sum())) / len(self.influence)

    def interval(
        self, level: float, clusters: NDArray[np.int64] | None = None, bounds: tuple[float, float] | None = None
    ) -> Interval:
        """(low, high, level) of the normal approximation, cut at `bounds`."""
        half = normal_quantile(level) * self.spread(clusters)
        low, high = bounds or (-np.inf, np.inf)
        return max(low, self.value - half), min(high, self.value + half), level


def auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> Scored:
    """P(score of a positive row > score of another) + P(equal) / 2; both kinds must occur.

    >>> auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False])).value
    0.875
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    up = np.bincount(place[positive], minlength=len(counts))
    down = counts - up
    # Rows of the other kind below each distinct score, ties half: integers, halved at the end.
    beaten = 2 * np.cumsum(down) - down
    beating = 2 * (positive.sum() - np.cumsum(up)) + up
    n_up, n_down = int(up.sum()), int(down.sum())
    value = int((up * beaten).sum()) / (2 * n_up * n_down)
    placed = np.where(positive, beaten[place] / (2 * n_down), beating[place] / (2 * n_up))
    share = np.where(positive, n_up, n_down) / len(scores)
    return Scored(value, (placed - value) / share)


def macro_auc(probabilities: NDArray[np.float64], classes: NDArray[np.int64]) -> Scored:
    """Mean AUC of each class against the rest, over the classes that occur among the rows; of two classes, the AUC.

    Parameters
    ----------
    probabilities : float64 (n, k)
    classes : int64 (n,)
        At least two of 0 to k - 1.
    """
    if probabilities.shape[1] == 2:
        return auc(probabilities[:, 1], classes == 1)
    return mean([auc(probabilities[:, c], classes == c) for c in np.unique(classes)])


def r2(predicted: NDArray[np.float64], actual: NDArray[np.float64]) -> Scored:
    """1 - squared error over squared deviation from the mean; the actual values must differ.

    >>> round(r2(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 6.0])).value, 6)
    0.357143
    """
    error = (actual - predicted) ** 2
    apart = (actual - actual.mean()) ** 2
    left, whole = error.mean(), apart.mean()
    return Scored(float(1 - left / whole), (left / whole * (apart - whole) - (error - left)) / whole)


def mean(found: Sequence[Scored]) -> Scored:
    """The mean of several scores of the same rows."""
    return Scored(
        float(np.mean([s.value for s in found])), np.asarray(np.mean([s.influence for s in found], axis=0), np.float64)
    )


def percentage_difference(synthetic: Scored, real: Scored) -> Scored | None:
    """100 (synthetic - real) / real; None where the real score is not above 0, so that no percentage means anything.

    >>> none = np.zeros(2)
    >>> round(percentage_difference(Scored(0.81, none), Scored(0.9, none)).value, 9)
    -10.0
    """
    if not real.value > 0:
        return None
    ratio = synthetic.value / real.value
    return Scored(100 * (ratio - 1), 100 * (synthetic.influence - ratio * real.influence) / real.value)
