"""What guesses at a threshold are worth: rates, precision, risk, each with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from daskpriv.evidence import HOLDOUT, TRAIN, Facts
from daskpriv.stats.intervals import clopper_pearson, normal_quantile
from daskpriv.stats.two_samples import Comparison

Interval = tuple[float, float, float]


def auc_interval(found: Comparison, facts: Facts) -> Interval | None:
    """Of the area under the ROC curve by DeLong's variance, cut at 0 and 1; None where that is 0 or undefined."""
    level = facts.level
    if not found.variance > 0:
        return None
    half = normal_quantile(level) * (found.variance * facts.clustering) ** 0.5
    return max(0.0, found.theta - half), min(1.0, found.theta + half), level


def roc(found: Comparison, following: Sequence[Sequence[int]], facts: Facts) -> dict[str, Any]:
    """The statistics of one attack; `following` as in `tpr_at_fpr`."""
    interval = auc_interval(found, facts)
    return {
        "auc": found.theta,
        "auc_interval": None if interval is None else list(interval),
        "advantage": found.ks_above,
        "tpr_at_fpr": tpr_at_fpr(found, following, facts),
    }


def tpr_at_fpr(found: Comparison, following: Sequence[Sequence[int]], facts: Facts) -> dict[str, Any]:
    """The true positive rate at each false positive rate of interest.

    Parameters
    ----------
    following : sequence of (true positives, false positives)
        What the next larger threshold adds, for `interpolated`: the straight line between the two points.

    Notes
    -----
    The threshold is the largest whose false positive rate is at most the rate, so that `fpr` may be smaller. It is a
    matter of the holdout alone, so that the Clopper-Pearson interval of `tpr` holds; the upper end of `fpr_interval`
    holds for the largest holdout value still refused.
    """
    out = {}
    for (rate, (hits, alarms, threshold)), (more, wrong) in zip(found.at_rates.items(), following, strict=True):
        step = (Fraction(rate) * found.n_b - alarms) / wrong if wrong else Fraction(0)
        out[f"{rate:g}"] = {
            "tpr": hits / found.n_a,
            "fpr": alarms / found.n_b,
            "interval": list(clopper_pearson(hits, found.n_a, facts.level, facts.clustering)),
            "fpr_interval": list(clopper_pearson(alarms, found.n_b, facts.level, facts.clustering)),
            "interpolated": float((hits + step * more) / found.n_a),
            "true_positives": hits,
            "false_positives": alarms,
            "threshold": threshold,
        }
    return out


def precision(tpr: float, fpr: float, prevalence: float = 0.5) -> float:
    """Share of members among the guessed when that share of the candidates are members; `prevalence` for 0/0.

    >>> precision(0.2, 0.1), precision(0.0, 0.0), round(precision(0.2, 0.1, 0.01), 3)
    (0.6666666666666666, 0.5, 0.02)
    """
    right, wrong = prevalence * tpr, (1 - prevalence) * fpr
    return right / (right + wrong) if right + wrong > 0 else prevalence


def risks(
    thresholds: Sequence[float], hits: Sequence[int], alarms: Sequence[int], facts: Facts, prevalence: float
) -> dict[str, Any]:
    """Guessing "member" up to each threshold: precision, and risk = 2 precision - 1, which may be negative.

    Parameters
    ----------
    hits, alarms : sequences of int
        Training and holdout rows up to each threshold.
    prevalence : float
        For `precisions_at_prevalence`; `precisions` and risks weigh train and holdout as equally likely.
    """
    n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
    rates = [(h / n_train, a / n_holdout) for h, a in zip(hits, alarms, strict=True)]
    precisions = [precision(*r) for r in rates]
    found = [2 * p - 1 for p in precisions]
    mean = float(np.mean(found))
    return {
        "thresholds": list(thresholds),
        "true_positives": list(hits),
        "false_positives": list(alarms),
        "precisions": precisions,
        "precisions_at_prevalence": [precision(*r, prevalence) for r in rates],
        "prevalence": prevalence,
        "risks": found,
        "risks_clipped": [max(r, 0.0) for r in found],
        "mean_risk": mean,
        "mean_risk_interval": list(mean_risk_interval(hits, alarms, facts)),
        "mean_risk_clipped": max(mean, 0.0),
    }


def mean_risk_interval(hits: Sequence[int], alarms: Sequence[int], facts: Facts) -> Interval:
    """Interval of the mean risk: the mean of the lower and that of the upper ends at each threshold. Conservative.

    A threshold is an order statistic of all real rows, so that the number of rows up to it is given. The share of
    training rows among them has a Clopper-Pearson interval, whose ends are risks. That the guesses are nested is not
    made use of: they are treated as if they erred together.
    """
    lows, highs = [], []
    n_train, n_holdout = facts.rows[TRAIN], facts.rows[HOLDOUT]
    for h, a in zip(hits, alarms, strict=True):
        low, high, _ = clopper_pearson(h, h + a, facts.level, facts.clustering)
        lows.append(2 * precision(low / n_train, (1 - low) / n_holdout) - 1)
        highs.append(2 * precision(high / n_train, (1 - high) / n_holdout) - 1)
    return float(np.mean(lows)), float(np.mean(highs)), facts.level
