"""What counts of ratios say: score, fractions, risk with its interval, for one comparison of the privacy score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import TRAIN, Role
from daskpriv.stats.intervals import normal_quantile
from daskpriv.stats.parts import Bounds

PUBLISHED = "published"
COUNTS = (
    "rows",
    "tt",
    "ts",
    "both",
    "undecided",
    "censored",
    "undefined",
    "ttpr_zero_over_zero",
    "ttpr_infinite",
    "tspr_zero_over_zero",
    "tspr_infinite",
)
Halves = tuple[Role, int, int]


@dataclass(frozen=True)
class Comparison:
    """Which rows are scored, how many, by how many rows of R2, and against how many rows of which table."""

    name: str
    role: Role
    in_r2: int
    rows: int
    scored: int
    of: Role = TRAIN

    @property
    def halves(self) -> Halves:
        """What TTPR and its quantile depend on."""
        return self.of, self.scored, self.in_r2


def tally(tt: Bounds, ts: Bounds, own: Bounds, threshold: float, rule: str) -> NDArray[np.int64]:
    """One split of one block, int64 (len(COUNTS),); what is not known counts against the synthetic table."""
    below: Callable[..., Any] = np.less if rule == PUBLISHED else np.less_equal
    in_tt, in_ts = below(tt[1], threshold), below(ts[0], threshold)
    unlike = (in_tt != below(tt[0], threshold)) | (in_ts != below(ts[1], threshold))
    undefined = (own[1] == 0.0) | np.isinf(own[0])
    flags = (
        np.ones(len(in_tt), bool),
        in_tt,
        in_ts,
        in_tt & in_ts,
        unlike,
        (tt[0] != tt[1]) | (ts[0] != ts[1]),
        undefined,
        *(f for x in (tt, ts) for f in (undefined & (x[0] == 1.0) & (x[1] == 1.0), np.isinf(x[0]))),
    )
    return np.array([np.count_nonzero(f) for f in flags], np.int64)


def described(
    c: Comparison,
    by_split: NDArray[np.int64],
    thresholds: Sequence[float],
    alpha: float,
    rule: str,
    level: float,
) -> dict[str, Any]:
    """The block of one comparison; `by_split` is int64 (splits, len(COUNTS))."""
    n, splits = c.scored, len(by_split)
    count = dict(zip(COUNTS, by_split.T, strict=True))
    tt, ts = (count["tt"] / n).tolist(), (count["ts"] / n).tolist()
    scores = [
        100.0 * min(1.0, (alpha if rule == PUBLISHED else x) / y) if y else 100.0 for x, y in zip(tt, ts, strict=True)
    ]
    score, risk = _mean(scores), _mean(ts) - _mean(tt)
    shares = {name: int(count[name].sum()) / (n * splits) for name in COUNTS[4:]}
    return {
        "score": score,
        "score_std": _mean([(s - score) ** 2 for s in scores]) ** 0.5,
        "scores": scores,
        "ttpr_fraction": _mean(tt),
        "tspr_fraction": _mean(ts),
        "threshold": _mean(thresholds),
        "ttpr_fractions": tt,
        "tspr_fractions": ts,
        "thresholds": list(thresholds),
        "risk": max(0.0, risk),
        "risk_unclipped": risk,
        "risk_interval": _paired_interval(count, n, level),
        "headroom": max(0.0, -risk),
        "rows_scored": n,
        "rows_reference": c.in_r2,
        "rows_compared": c.rows,
        "n_undecided": int(count["undecided"].sum()),
        "n_censored": int(count["censored"].sum()),
        "shares": {k: shares[k] for k in COUNTS[6:]},
        "unreliable": shares["undefined"] + shares["undecided"] > alpha or math.inf in thresholds,
    }


def reading(main: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> str:
    """The score in one sentence, beside what the holdout says."""
    text = (
        f"Score {main['score']:.1f} of 100: {100 * main['tspr_fraction']:.1f} % of the scored training rows lie very "
        f"close to {main['rows_compared']} synthetic rows, {100 * main['ttpr_fraction']:.1f} % as close to "
        f"{main['rows_reference']} other training rows; "
    )
    if "control" not in found:
        return text + "with a holdout, its rows would show what is scored without a leak."
    text += f"the holdout in place of the synthetic table scores {found['control']['score']:.1f}"
    if "holdout_scored" in found:
        text += f", holdout rows in place of the scored training rows {found['holdout_scored']['score']:.1f}"
    return text + "."


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _paired_interval(count: Mapping[str, NDArray[np.int64]], n: int, level: float) -> list[float]:
    """Interval (low, high, level) of F_TS - F_TT, both over the same rows. Source: Agresti & Min (2005).

    Centre and variance are averaged over the splits; the variance stays that of one split, which is wider than the
    mean of splits needs and leaves room for rows that share a neighbour.
    """
    only_ts, only_tt = (count[x] - count["both"] for x in ("ts", "tt"))
    centre = _mean(((only_ts - only_tt) / (n + 2)).tolist())
    variances = (only_ts + only_tt + 1 - (only_ts - only_tt) ** 2 / (n + 2)) / (n + 2) ** 2
    half = normal_quantile(level) * _mean(variances.tolist()) ** 0.5
    return [max(-1.0, centre - half), min(1.0, centre + half), level]
