"""The models, with fixed settings: the same rows in the same order give the same bits with any number of threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.tables.hashes import mix

Matrix = NDArray[Any]
Predict = Callable[[Matrix], NDArray[np.float64]]

TREES, LEAF = 100, 5
ROUNDS = 100
BOOSTING: Mapping[str, Any] = {"tree_method": "hist", "max_depth": 6, "eta": 0.1, "max_bin": 256, "verbosity": 0}
_STEPS = 500


def check_installed(wanted: str) -> None:
    """Refuse before hours of work; `wanted` names the metric in the message."""
    if any(find_spec(package) is None for package in ("sklearn", "xgboost")):
        raise InputError(f"{wanted}: install daskpriv[utility].")


def versions() -> dict[str, str]:
    """Of the packages that the bits depend on."""
    out = {}
    for package in ("scikit-learn", "xgboost", "xgboost-cpu"):
        with suppress(PackageNotFoundError):
            out[package] = version(package)
    return out


def seed_of(seed: int, *what: int) -> int:
    """A seed of 31 bits for one model, from the seed of the run."""
    state = np.array([seed], np.uint64)
    for number in what:
        state = mix(state ^ mix(np.array([number], np.uint64)))
    return int(mix(state)[0] >> np.uint64(33))


@dataclass(frozen=True)
class Learner:
    """How a kind of model is fitted; it then predicts probabilities (n, k) of classes, or numbers (n,).

    `wide` says whether it wants `Scales.wide` in place of `Features.plain`.
    """

    name: str
    wide: bool
    fit: Callable[[Matrix, NDArray[np.float64], int, int, Sequence[str]], Predict]


def learned(
    learner: Learner,
    x: Matrix,
    y: NDArray[np.float64],
    classes: int,
    seed: int,
    kinds: Sequence[str] = (),
) -> Predict:
    """Fit to rows of known target.

    Parameters
    ----------
    x : (n, p) of `Features.plain` or `Scales.wide`
    y : float64 (n,)
        Class numbers or numbers.
    classes : int
        0 for numbers. A class that `y` lacks gets probability 0.
    kinds : sequence of "q" and "c"
        Of the columns, for boosting.
    """
    if not classes:
        # Around its mean and by its spread, so that no model suffers from the scale of the target.
        middle, spread = float(y.mean()), float(y.std())
        if not spread > 0:
            return lambda test: np.full(len(test), middle)
        predict = learner.fit(x, (y - middle) / spread, 0, seed, kinds)
        return lambda test: middle + spread * predict(test)
    present = np.unique(y).astype(np.int64)
    if len(present) == 1:
        return lambda test: _spread_out(np.ones((len(test), 1)), present, classes)
    predict = learner.fit(x, np.searchsorted(present, y).astype(np.float64), len(present), seed, kinds)
    return lambda test: _spread_out(predict(test), present, classes)


def _spread_out(probabilities: NDArray[np.float64], present: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    out = np.zeros((len(probabilities), classes))
    out[:, present] = probabilities
    return out


def _forest(x: Matrix, y: NDArray[np.float64], classes: int, seed: int, kinds: Sequence[str]) -> Predict:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    # One job: threads would add trees up in the order in which they end, and undo each other's warning filters.
    options = {
        "n_estimators": TREES,
        "min_samples_leaf": LEAF,
        "max_features": "sqrt",
        "random_state": seed,
        "n_jobs": 1,
    }
    model = (RandomForestClassifier if classes else RandomForestRegressor)(**options).fit(x, y)
    return model.predict_proba if classes else model.predict  # type: ignore[no-any-return]


def boosting_options(classes: int, seed: int) -> dict[str, Any]:
    """What xgboost is told, here and on a cluster."""
    objective: dict[str, Any] = {"objective": "reg:squarederror"}
    if classes == 2:
        objective = {"objective": "binary:logistic"}
    elif classes:
        objective = {"objective": "multi:softprob", "num_class": classes}
    return {**BOOSTING, **objective, "seed": seed}


def boosted(booster: Any, classes: int, kinds: Sequence[str]) -> Predict:
    """The predictions of an xgboost model."""
    import xgboost

    def predict(test: Matrix) -> NDArray[np.float64]:
        held = xgboost.DMatrix(test, feature_types=list(kinds), enable_categorical=True, nthread=1)
        found = np.asarray(booster.predict(held), np.float64)
        return np.stack([1 - found, found], axis=1) if classes == 2 else found

    return predict


def _boosting(x: Matrix, y: NDArray[np.float64], classes: int, seed: int, kinds: Sequence[str]) -> Predict:
    import xgboost

    # One thread: several add up gradients in another order.
    held = xgboost.QuantileDMatrix(x, label=y, feature_types=list(kinds), enable_categorical=True, nthread=1)
    booster = xgboost.train({**boosting_options(classes, seed), "nthread": 1}, held, ROUNDS)
    return boosted(booster, classes, kinds)


def _linear(x: Matrix, y: NDArray[np.float64], classes: int, seed: int, kinds: Sequence[str]) -> Predict:
    from sklearn.linear_model import LogisticRegression, Ridge
    from threadpoolctl import threadpool_limits

    model = LogisticRegression(max_iter=_STEPS) if classes else Ridge()
    # One thread: several add up products in another order.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped before the last digit is of no account here
        model.fit(x, y)

    def predict(test: Matrix) -> NDArray[np.float64]:
        with threadpool_limits(1):
            return np.asarray(model.predict_proba(test) if classes else model.predict(test), np.float64)

    return predict


FOREST, BOOSTED = Learner("random_forest", True, _forest), Learner("gradient_boosting", False, _boosting)
LINEAR = {True: Learner("logistic_regression", True, _linear), False: Learner("ridge_regression", True, _linear)}


def learners(classes: int) -> tuple[Learner, ...]:
    """The three kinds of models."""
    return FOREST, BOOSTED, LINEAR[classes > 0]
