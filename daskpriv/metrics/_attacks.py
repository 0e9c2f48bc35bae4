"""Membership attacks as one number per real row, small for a member, and what is counted about these numbers.

Sources: distance, Yeom et al. (2018) as used for synthetic tables; ratio, per-record calibration (Watson et al. 2022);
density, DOMIAS (van Breugel et al. 2023) with nearest neighbours for its densities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.protocol import LabelTest
from daskpriv.stats.grid import SHARES
from daskpriv.stats.labels import Labels
from daskpriv.stats.quotient import quotient
from daskpriv.stats.two_samples import Comparison

DISTANCE, RATIO, DENSITY = ATTACKS = ("distance", "ratio", "density")
REAL = (TRAIN, HOLDOUT)
LEVELS = (0.5, 0.25, 0.2, 0.01)
TOPS = {"0.1%": 0.001, "1%": 0.01}
# In a report they mostly repeat the tests of `exposure`, of which they must not take too much.
_WEIGHT = 0.3
CELLS = tuple(sorted({*SHARES, *LEVELS, *TOPS.values()}))
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def searches(facts: Facts, attacks: Sequence[str], k: int) -> list[Neighbours]:
    """The neighbours that these attacks look at; `k` for the density, where the tables have so many rows."""
    k = neighbours(facts, k) if DENSITY in attacks else 1
    references = (SYNTHETIC,) if set(attacks) == {DISTANCE} else (SYNTHETIC, TRAIN, HOLDOUT)
    return [Neighbours(role, reference, k) for role in REAL for reference in references]


def neighbours(facts: Facts, k: int) -> int:
    """At most `k`, and no more than there are synthetic rows, and other real rows."""
    return min(k, facts.rows[SYNTHETIC], facts.rows[TRAIN] + facts.rows[HOLDOUT] - 1)


def scores(evidence: Evidence, attacks: Sequence[str], wanted: Sequence[Neighbours]) -> dict[str, Floats]:
    """One number per real row and attack, float64 (n,); the smaller, the more the row looks like a member."""
    lists = {r.reference: evidence.table(r).distance for r in wanted if r.query == evidence.role}
    to_synthetic = lists[SYNTHETIC]
    if set(attacks) == {DISTANCE}:
        return {DISTANCE: to_synthetic[:, 0]}
    # The nearest of the pooled real rows are among the nearest of each table; a row is not in its own list.
    to_real = np.sort(np.concatenate([lists[TRAIN], lists[HOLDOUT]], axis=1), axis=1)
    last = to_synthetic.shape[1] - 1
    found = {
        DISTANCE: to_synthetic[:, 0],
        RATIO: quotient(to_synthetic[:, 0], to_real[:, 0]),
        DENSITY: quotient(to_synthetic[:, last], to_real[:, last]),
    }
    return {name: found[name] for name in attacks}


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts over real rows, all attacks side by side in one row of cells.

    drawn : int64 (draws, cells)
        Rows labelled train by each draw.
    rows, train : int64 (cells,)
        Rows, and training rows.
    above : float64 (m,)
        The smallest number beyond each threshold of interest; inf where there is none.
    train_at, holdout_at : int64 (m,)
        Rows that hold exactly this number.
    """

    drawn: Ints
    rows: Ints
    train: Ints
    above: Floats
    train_at: Ints
    holdout_at: Ints

    @classmethod
    def of(
        cls,
        values: Mapping[str, Floats],
        places: Ints,
        is_train: bool,
        labels: Labels,
        edges: Mapping[str, Floats],
        found: Mapping[str, Comparison],
    ) -> Tally:
        """The counts of some rows of one table; `places` are their places among all real rows."""
        starts, n_cells = offsets(edges)
        cells = np.stack([np.searchsorted(edges[name], v) + starts[name] for name, v in values.items()], axis=1)
        rows = np.bincount(cells.ravel(), minlength=n_cells)
        beyond = [_next(v, t) for name, v in values.items() for *_, t in found[name].at_rates.values()]
        above, count = np.array([a for a, _ in beyond], float), np.array([c for _, c in beyond], np.int64)
        none = np.zeros_like(rows), np.zeros_like(count)
        train, train_at, holdout_at = (rows, count, none[1]) if is_train else (none[0], none[1], count)
        return cls(labels.sums(places, cells, n_cells), rows, train, above, train_at, holdout_at)

    def __add__(self, other: Tally) -> Tally:
        above = np.minimum(self.above, other.above)
        mine, theirs = self.above == above, other.above == above
        return Tally(
            self.drawn + other.drawn,
            self.rows + other.rows,
            self.train + other.train,
            above,
            np.where(mine, self.train_at, 0) + np.where(theirs, other.train_at, 0),
            np.where(mine, self.holdout_at, 0) + np.where(theirs, other.holdout_at, 0),
        )


def offsets(edges: Mapping[str, Floats]) -> tuple[dict[str, int], int]:
    """Where the cells of each attack begin, and how many there are."""
    starts, n = {}, 0
    for name, held in edges.items():
        starts[name] = n
        n += len(held) + 1
    return starts, n


def _next(values: Floats, threshold: float) -> tuple[float, int]:
    beyond = values[values > threshold]
    least = float(beyond.min(initial=np.inf))
    return least, int(np.count_nonzero(beyond == least))


def prefix(rows: Ints, share: float) -> int:
    """How many of the first cells hold the smallest `share` of all rows, and whatever is level with the last of them.

    >>> prefix(np.array([2, 5, 3]), 0.3)
    2
    """
    n = int(rows.sum())
    rank = min(max(int(np.ceil(share * n)) - 1, 0), n - 1)
    return int(np.searchsorted(np.cumsum(rows), rank, side="right")) + 1


def binned_auc(train: Ints, rows: Ints) -> Floats:
    """Area under the ROC curve that the cells allow, float64 (...): rows of one cell count as level with each other.

    train : int64 (..., cells), rows : int64 (cells,).

    >>> binned_auc(np.array([[2, 0], [1, 1]]), np.array([2, 2]))
    array([1. , 0.5])
    """
    holdout = rows - train
    above = holdout.sum(axis=-1, keepdims=True) - np.cumsum(holdout, axis=-1)
    wins = (train * (2 * above + holdout)).sum(axis=-1)
    return np.asarray(wins / (2.0 * train.sum(axis=-1) * holdout.sum(axis=-1)), np.float64)


def label_tests(attack: str, tally: Tally, edges: Mapping[str, Floats]) -> list[LabelTest]:
    """Whether training rows have smaller numbers than labels explain: on the whole, and among the very smallest."""
    drawn, rows, train = _of(attack, tally, edges)
    auc = binned_auc(np.vstack([train, drawn]), rows)
    out = [LabelTest(f"auc {attack}", float(auc[0]), auc[1:], _WEIGHT)]
    for name, share in TOPS.items():
        cells = prefix(rows, share)
        held = drawn[:, :cells].sum(axis=1).astype(np.float64)
        out.append(LabelTest(f"top {name} {attack}", float(train[:cells].sum()), held, _WEIGHT))
    return out


def strongest(
    tests: Mapping[str, Sequence[LabelTest]], attacks: Mapping[str, Mapping[str, Any]], adjusted: Mapping[str, float]
) -> dict[str, Any]:
    """The attack with the least adjusted p-value, which counts that it was picked afterwards; then the largest AUC."""
    name, test = min(
        ((name, t) for name, held in tests.items() for t in held),
        key=lambda pair: (adjusted[pair[1].name], -attacks[pair[0]]["auc"]),
    )
    held = attacks[name]
    return {
        "name": name,
        "auc": held["auc"],
        "advantage": held["advantage"],
        "test": test.name,
        "p_value": test.p_value,
        "p_adjusted": adjusted[test.name],
    }


def tops(tally: Tally, edges: Mapping[str, Floats], attack: str) -> dict[str, dict[str, Any]]:
    """Real rows, and training rows, among those with the smallest numbers; ties at the end make them more."""
    _, rows, train = _of(attack, tally, edges)
    out = {}
    for name, share in TOPS.items():
        cells = prefix(rows, share)
        n, hits = int(rows[:cells].sum()), int(train[:cells].sum())
        out[name] = {"rows": n, "train": hits, "expected": n * int(train.sum()) / int(rows.sum())}
    return out


def guessed(tally: Tally, edges: Mapping[str, Floats]) -> tuple[list[float], list[int], list[int]]:
    """Thresholds at the LEVELS of the pooled distances, and training and holdout rows up to each.

    A threshold is the smallest distance that at least this share of all real rows do not exceed (Hyndman & Fan 1996,
    type 1): a distance that some row has. With train copied and no larger holdout, all of them are then 0.
    """
    _, rows, train = _of(DISTANCE, tally, edges)
    ends = [prefix(rows, level) for level in LEVELS]
    hits = [int(train[:e].sum()) for e in ends]
    alarms = [int(rows[:e].sum()) - h for e, h in zip(ends, hits, strict=True)]
    return [float(edges[DISTANCE][e - 1]) for e in ends], hits, alarms


def _of(attack: str, tally: Tally, edges: Mapping[str, Floats]) -> tuple[Ints, Ints, Ints]:
    """Counts in the cells of one attack: drawn, rows, train."""
    start = offsets(edges)[0][attack]
    cells = slice(start, start + len(edges[attack]) + 1)
    return tally.drawn[:, cells], tally.rows[cells], tally.train[cells]
