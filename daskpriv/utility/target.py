"""What a model is to predict: classes or a number, as train has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Role
from daskpriv.kernels.gower import CODES, HASHES, NUMBERS
from daskpriv.space.block import Block
from daskpriv.space.encoding import ColumnCode
from daskpriv.space.summary import ColumnSummary
from daskpriv.utility.features import Feature, feature_of

MOST_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Target:
    """The column to be predicted.

    Attributes
    ----------
    feature : Feature
        Where a block holds it, as a number.
    values : float64 (k,)
        The stored values (codes, numbers) of the classes of train, ascending; empty when a number is predicted.
    """

    feature: Feature
    values: NDArray[np.float64]

    @property
    def name(self) -> str:
        """The column's name."""
        return self.feature.code.name

    @property
    def classes(self) -> int:
        """How many classes; 0 when a number is predicted."""
        return len(self.values)

    @property
    def task(self) -> str:
        """Classification of categories and of columns with two values, regression of other numbers, times and ranks."""
        return "classification" if self.classes else "regression"

    @property
    def score(self) -> str:
        """What models are compared by."""
        return "auc" if self.classes else "r2"

    def of(self, block: Block) -> NDArray[np.float64]:
        """What to learn from each row, float64 (n,): class or number; NaN where missing or a class train lacks."""
        if not self.classes:
            return self.feature.of(block)
        code = self.feature.code
        if code.group == CODES:
            codes = block.codes[:, code.index]
            stored = np.where(codes < 0, np.nan, codes.astype(np.float64))
        else:
            stored = self.feature.of(block)
        place = np.searchsorted(self.values, stored)
        known = (place < self.classes) & (self.values[np.minimum(place, self.classes - 1)] == stored)
        return np.where(known, place.astype(np.float64), np.nan)


def fit_target(code: ColumnCode, by_table: Mapping[Role, ColumnSummary]) -> Target:
    """The target as train has it.

    Raises
    ------
    InputError
        When nothing can be learnt or tested: one value, no value, too many classes.
    """
    name, train = code.name, by_table[TRAIN]
    if code.group == HASHES or (train.counts is not None and code.group == CODES and len(train.counts) > MOST_CLASSES):
        raise InputError(
            f"utility: the target {name!r} has {train.distinct:,.0f} categories in train, {MOST_CLASSES} at most can "
            "be told apart; name another column."
        )
    for table, summary in by_table.items():
        if summary.nulls == summary.rows:
            raise InputError(f"utility: every cell of the target {name!r} is missing in {table}; name another column.")
    values = _classes(code, train)
    for table in (TRAIN, HOLDOUT):
        if _distinct(by_table[table], train) < 2:
            raise InputError(
                f"utility: the target {name!r} has one value in {table}, so that there is nothing to tell apart; name "
                "another column."
            )
    if not _distinct(by_table[SYNTHETIC], train):
        raise InputError(
            f"utility: no class of the target {name!r} in synthetic occurs in train; check how its values are written."
        )
    return Target(feature_of(code, train), values)


def _distinct(summary: ColumnSummary, train: ColumnSummary) -> float:
    """Distinct values, of categories those that train has."""
    if summary.counts is None or train.counts is None:
        return summary.distinct
    return len([v for v in summary.counts if v in train.counts])


def _classes(code: ColumnCode, train: ColumnSummary) -> NDArray[np.float64]:
    if code.group == CODES and code.categories is not None:
        held: Mapping[Any, int] = train.counts or {}
        return np.array([i for i, v in enumerate(code.categories.to_pylist()) if v in held], np.float64)
    # Of two numbers the smaller one is 0 and the larger one 1: features are scaled so.
    two = train.distinct == 2 and code.group == NUMBERS and code.categories is None
    return np.array([0.0, 1.0] if two else [], np.float64)
