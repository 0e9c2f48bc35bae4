"""Can a model tell synthetic rows from real ones? Boosted trees, fitted without the rows they are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import Role
from daskpriv.protocol import Result
from daskpriv.space.block import Block
from daskpriv.tables.hashes import mix
from daskpriv.utility.features import Features, in_order, names_of
from daskpriv.utility.models import BOOSTED, learned, seed_of, versions
from daskpriv.utility.scores import Scored, auc
from daskpriv.utility.trained import Run

DISCRIMINATOR = "discriminator"
FOLDS = 5
CANNOT_SHOW = (
    "Whether a stronger model tells them apart. Copies look real; near copies of the very rows that are compared may "
    "push it below 0.5."
)


def folds(seed: int, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The fold of each row by a hash of its name, never by its place; int64 (n,), 0 to FOLDS - 1.

    The twin of a row in the other table has the same name: a model that has seen the one with its label would deny the
    other.
    """
    key = np.array([seed_of(seed, 1)], np.uint64)
    return (mix(numbers ^ mix(key)) % np.uint64(FOLDS)).astype(np.int64)


def discriminator(
    real: Block,
    synthetic: Block,
    given: Mapping[Role, int],
    role: Role,
    features: Features,
    run: Run,
    clusters: NDArray[np.int64] | None = None,
) -> Result:
    """AUC of synthetic against real rows: the mean over folds, each told apart by a model fitted to the others.

    Parameters
    ----------
    real, synthetic : Block
    given : {role: rows}
    role : Role
        Of the real rows, for the report.
    clusters : int64 (rows of the real table,), optional
        The subject of each real row: subjects stay in one fold.
    """
    real, synthetic = in_order(real, features), in_order(synthetic, features)
    x = np.concatenate([features.plain(real), features.plain(synthetic)])
    made = np.arange(len(x)) >= len(real)
    who = None if clusters is None else clusters[real.row]
    names = names_of(features.values(real)) if who is None else who.astype(np.uint64)
    fold = folds(run.seed, np.concatenate([names, names_of(features.values(synthetic))]))
    found = [_one(x, made, fold == f, features, run) for f in range(FOLDS)]
    whole = _joined([f for f in found if f is not None], len(x))
    details: dict[str, Any] = {
        "real": role,
        "folds": sum(f is not None for f in found),
        "rows": {role: len(real), "synthetic": len(synthetic)},
        "columns_left_out": list(features.left_out),
        "versions": versions(),
    }
    warned = tuple(
        f"{DISCRIMINATOR}: {len(b):,} of {given[t]:,} rows of {t} were drawn."
        for t, b in ((role, real), ("synthetic", synthetic))
        if len(b) < given[t]
    )
    if whole is None:
        told = "Too few rows: no part of them holds both real and synthetic ones."
        return Result(None, details=details, cannot_show=CANNOT_SHOW, reading=told, warnings=warned)
    own = None if who is None else np.concatenate([who, -1 - synthetic.row])
    interval = whole.interval(run.level, own, (0.0, 1.0))
    return Result(
        whole.value,
        interval=interval,
        details=details,
        cannot_show=CANNOT_SHOW,
        reading=f"Boosted trees tell synthetic rows from rows of {role} with an AUC of {whole.value:.4f}; 0.5 is "
        "indistinguishable, 1 is always.",
        warnings=warned,
    )


def _one(
    x: NDArray[np.float32], made: NDArray[np.bool_], asked: NDArray[np.bool_], features: Features, run: Run
) -> tuple[NDArray[np.bool_], Scored] | None:
    """The AUC within one fold, by a model fitted to the others; None where either kind of row is lacking."""
    if min(made[asked].sum(), (~made[asked]).sum(), made[~asked].sum(), (~made[~asked]).sum()) == 0:
        return None
    y = made[~asked].astype(np.float64)
    predict = learned(BOOSTED, x[~asked], y, 2, seed_of(run.seed, 2), features.kinds)
    return asked, auc(predict(x[asked])[:, 1], made[asked])


def _joined(found: list[tuple[NDArray[np.bool_], Scored]], rows: int) -> Scored | None:
    """The mean over folds, with the influence of every row on it."""
    if not found:
        return None
    influence = np.zeros(rows)
    for asked, scored in found:
        influence[asked] = scored.influence * (rows / len(scored.influence) / len(found))
    return Scored(float(np.mean([s.value for _, s in found])), influence)
