"""Train on synthetic, test on holdout, against train on real, test on holdout.

Source: Esteban, Hyland & Ratsch (2017) for the comparison; the protocol of the epsilon-PrivateSMOTE paper for
percentage differences and their region of practical equivalence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Role
from daskpriv.protocol import Result
from daskpriv.space.block import Block
from daskpriv.utility.features import Features, Scales, in_order
from daskpriv.utility.models import BOOSTED, Learner, Predict, learned, learners, seed_of, versions
from daskpriv.utility.practical import ROPE, in_words
from daskpriv.utility.scores import Scored, macro_auc, mean, percentage_difference, r2
from daskpriv.utility.target import Target

UTILITY = "utility"
CANNOT_SHOW = (
    "What other models or another target would make of the table; the interval is that of the holdout rows, for these "
    "fitted models."
)


@dataclass(frozen=True)
class Run:
    """What a run of models is keyed by.

    Attributes
    ----------
    seed : int
    level : float
        Of intervals.
    """

    seed: int
    level: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one table that have a target, of `given` rows in all.

    x    {wide: (n, p) matrix}
    y    float64 (n,)
    ids  int64 (n,)
    told {name: count} for the report
    """

    x: Mapping[bool, NDArray[Any]]
    y: NDArray[np.float64]
    ids: NDArray[np.int64]
    told: Mapping[str, int]


def rows_of(table: Role, block: Block, given: int, scales: Scales, target: Target) -> Rows:
    """The rows that models learn from or are tested on; what is left out is counted."""
    y = target.of(block)
    missing = int(np.isnan(target.feature.of(block)).sum())
    known = np.flatnonzero(~np.isnan(y))
    if not len(known):
        raise InputError(
            f"{UTILITY}: no value of the target {target.name!r} in {table} is one that train has; check how its values "
            "are written."
        )
    held = block if len(known) == len(block) else block.take(known)
    told = {
        "given": given,
        "drawn": len(block),
        "missing_target": missing,
        "unknown_class": len(block) - len(known) - missing,
        "used": len(known),
    }
    return Rows({True: scales.wide(held), False: scales.features.plain(held)}, y[known], held.row, told)


def utility(
    blocks: Mapping[Role, Block],
    given: Mapping[Role, int],
    features: Features,
    target: Target,
    run: Run,
    elsewhere: Mapping[Role, Predict] | None = None,
    clusters: NDArray[np.int64] | None = None,
) -> Result:
    """Fit every model to train and to synthetic, and compare their scores on holdout.

    Parameters
    ----------
    blocks : {role: Block}
        Rows of train, synthetic and holdout, in row order.
    given : {role: rows}
        How many rows each table has; more than its block where the block is a sample.
    elsewhere : {role: predict}, optional
        Boosted models that were fitted to all rows on a cluster.
    clusters : int64 (rows of holdout,), optional
        The subject of each holdout row.
    """
    blocks = {role: in_order(block, features, target.feature) for role, block in blocks.items()}
    scales = Scales.fit(features, blocks[TRAIN])
    test = rows_of(HOLDOUT, blocks[HOLDOUT], given[HOLDOUT], scales, target)
    if len(np.unique(test.y)) < 2:
        raise InputError(f"{UTILITY}: the target {target.name!r} has one value in holdout; name another column.")
    told, scored = {HOLDOUT: test.told}, {}
    for role in (TRAIN, SYNTHETIC):
        taught = rows_of(role, blocks[role], given[role], scales, target)
        told[role] = taught.told
        for learner in learners(target.classes):
            predict = (elsewhere or {}).get(role) if learner is BOOSTED else None
            if predict is None:
                predict = _fitted(learner, taught, features, target, run)
            scored[learner.name, role] = _score(predict(test.x[learner.wide]), test.y, target)
    own = None if clusters is None else clusters[test.ids]
    names = [learner.name for learner in learners(target.classes)]
    models = {n: _compared(scored[n, SYNTHETIC], scored[n, TRAIN], target, run.level, own) for n in names}
    apart = [percentage_difference(scored[n, SYNTHETIC], scored[n, TRAIN]) for n in names]
    whole = [x for x in apart if x is not None]
    details = {
        "target": target.name,
        "task": target.task,
        "score": target.score,
        "classes": target.classes,
        "models": models,
        "rope": [-ROPE, ROPE],
        "rows": told,
        "boosted_on_cluster": sorted(elsewhere or {}),
        "columns_left_out": list(features.left_out),
        "versions": versions(),
    }
    if not whole:
        return Result(
            None,
            details=details,
            cannot_show=CANNOT_SHOW,
            warnings=_warned(told),
            reading=f"No model learnt anything about {target.name} from train: there is no score to fall short of.",
        )
    found = mean(whole)
    interval = found.interval(run.level, own)
    details["practically"] = in_words(*interval[:2])
    return Result(
        found.value,
        interval=interval,
        details=details,
        cannot_show=CANNOT_SHOW,
        reading=_reading(found.value, details, models),
        warnings=_warned(told),
    )


def _fitted(learner: Learner, taught: Rows, features: Features, target: Target, run: Run) -> Predict:
    x, seed = taught.x[learner.wide], seed_of(run.seed, 0)
    return learned(learner, x, taught.y, target.classes, seed, features.kinds)


def _score(predicted: NDArray[np.float64], actual: NDArray[np.float64], target: Target) -> Scored:
    return macro_auc(predicted, actual.astype(np.int64)) if target.classes else r2(predicted, actual)


def _compared(
    synthetic: Scored, real: Scored, target: Target, level: float, clusters: NDArray[np.int64] | None
) -> dict[str, Any]:
    """One line of the table of models."""
    bounds = (0.0, 1.0) if target.classes else (-np.inf, 1.0)
    out: dict[str, Any] = {
        "train": real.value,
        "train_interval": list(real.interval(level, clusters, bounds)),
        "synthetic": synthetic.value,
        "synthetic_interval": list(synthetic.interval(level, clusters, bounds)),
    }
    apart = percentage_difference(synthetic, real)
    if apart is None:
        return {**out, "difference": None, "difference_interval": None, "practically": "undecided"}
    interval = apart.interval(level, clusters)
    return {
        **out,
        "difference": apart.value,
        "difference_interval": list(interval),
        "practically": in_words(*interval[:2]),
    }


def _reading(difference: float, details: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> str:
    scores = [float(np.mean([m[role] for m in models.values()])) for role in (SYNTHETIC, TRAIN)]
    name = {"auc": "AUC", "r2": "R2"}[details["score"]]
    return (
        f"Models that learnt {details['target']} from the synthetic table score {scores[0]:.4f} on holdout rows, those "
        f"that learnt it from train {scores[1]:.4f} (mean {name} of {len(models)} models), {difference:+.2f} % on "
        f"average: practically {details['practically']}, where {ROPE:g} % either way does not matter."
    )


def _warned(told: Mapping[Role, Mapping[str, int]]) -> tuple[str, ...]:
    """What was not used, said aloud."""
    out = []
    for role, rows in told.items():
        if rows["drawn"] < rows["given"]:
            out.append(
                f"{UTILITY}: {rows['drawn']:,} of {rows['given']:,} rows of {role} were drawn for models fitted here."
            )
        for key, what in (("missing_target", "have no target"), ("unknown_class", "are of a class that train lacks")):
            if rows[key]:
                out.append(f"{UTILITY}: {rows[key]:,} rows of {role} {what} and are left out.")
    return tuple(out)
