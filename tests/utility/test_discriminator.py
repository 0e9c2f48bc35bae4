"""Real against synthetic rows: 0.5 where they are alike, folds by row id, and nothing learnt about the rows asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from daskpriv.protocol import Verdict
from daskpriv.utility.discriminating import FOLDS, folds
from tests.utility.tables import measured, people, spoilt


def test_rows_of_one_law_cannot_be_told_apart() -> None:
    found = measured("discriminator")
    assert found.verdict is Verdict.NOT_EVALUATED
    assert found.interval is not None and found.interval[0] < 0.5 < found.interval[1]
    assert found.details["real"] == "holdout" and found.details["folds"] == FOLDS
    # Without cross-fitting, trees know the rows that they have seen: the AUC would be far above 0.5.
    assert found.value is not None and found.value < 0.6


def test_the_further_off_the_easier() -> None:
    found = [measured("discriminator", synthetic=spoilt(people(2), share)).value for share in (0.0, 0.5, 1.0)]
    assert found == sorted(found)
    shifted = measured("discriminator", synthetic=people(2).assign(pay=lambda t: t["pay"] + 0.001))
    assert shifted.value is not None and shifted.value < 0.65  # numbers a little off are no give-away
    new = measured("discriminator", synthetic=people(2).assign(job="pilot"))
    assert new.value is not None and new.value > 0.9


def test_without_a_holdout_train_is_compared() -> None:
    assert measured("discriminator", holdout=None).details["real"] == "train"


def test_a_copy_cannot_be_told_apart() -> None:
    """Not even below 0.5: twins share a fold, so that no model has seen one of them with the other label."""
    copied = people(1).sample(frac=1, random_state=0).reset_index(drop=True)
    found = measured("discriminator", synthetic=copied)
    assert found.value == pytest.approx(0.5, abs=1e-12)


def test_folds_follow_from_names_alone() -> None:
    ids = np.arange(20_000, dtype=np.uint64)
    found = folds(3, ids)
    counts = np.bincount(found, minlength=FOLDS)
    assert len(counts) == FOLDS
    # chi-square with 4 degrees of freedom: 23.5 is exceeded once in 10 000
    assert ((counts - 4000) ** 2 / 4000).sum() < 23.5
    some = np.array([17, 4, 19_999], np.uint64)
    assert folds(3, some).tolist() == found[some].tolist()
    assert folds(4, ids).tolist() != found.tolist()


def test_rows_of_a_subject_stay_in_one_fold() -> None:
    """Twenty copies of each real row would be recognised across folds."""
    real = (
        people(1, 40).loc[np.repeat(np.arange(40), 20)].reset_index(drop=True).assign(who=np.repeat(np.arange(40), 20))
    )
    tables = {"train": people(0).assign(who=np.arange(400) + 1000), "holdout": real}
    synthetic = people(2, 800)
    apart = measured("discriminator", **tables, synthetic=synthetic.assign(who=0), exclude=["who"]).value
    together = measured("discriminator", **tables, synthetic=synthetic.assign(who=0), subject_key="who")
    assert apart is not None and together.value is not None and together.interval is not None
    assert apart > 0.95 > together.value


@pytest.mark.parametrize("rows", [1, 3])
def test_a_handful_of_rows_is_no_trouble(rows: int) -> None:
    tables = {
        n: people(i, size) for i, (n, size) in enumerate({"train": 5, "holdout": rows, "synthetic": rows}.items())
    }
    found = measured("discriminator", **tables)
    assert found.value is None or 0 <= found.value <= 1
    assert found.reading.endswith(".")


def test_one_constant_column() -> None:
    found = measured("discriminator", **{n: pd.DataFrame({"x": [1.0] * 50}) for n in ("train", "holdout", "synthetic")})
    assert found.value == 0.5
