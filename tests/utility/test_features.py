"""What models see: levels and scales of train alone, whatever the other tables hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskpriv.engine.executor import Serial
from daskpriv.prepare import Columns, Surveyed, survey
from daskpriv.session import engine_for, open_any
from daskpriv.space.block import Block
from daskpriv.utility.features import LEAST_ROWS, MOST_LEVELS, Features, Scales, names_of
from daskpriv.utility.target import fit_target


def surveyed(**tables: pd.DataFrame | pa.Table) -> tuple[Surveyed, dict[str, Block]]:
    opened = {name: open_any(t, name) for name, t in tables.items()}
    engine = engine_for(Serial(), opened)
    known = survey(engine, opened, Columns(), [n for n in opened if n != "synthetic"])
    blocks = {n: engine.gather(engine.encode(t, known.encoding), 10**6, 0) for n, t in opened.items()}
    return known, blocks


def both(**tables: pd.DataFrame | pa.Table) -> tuple[Features, Scales, dict[str, Block]]:
    known, blocks = surveyed(**tables)
    features = Features.fit(known.encoding, known.by_column["train"])
    return features, Scales.fit(features, blocks["train"]), blocks


TRAIN = pd.DataFrame(
    {
        "size": [1.0, 2.0, 5.0, None] * 10,
        "kind": ["a"] * 20 + ["b"] * 12 + ["c"] * 7 + [None],
    }
)


def test_levels_are_ordered_by_train_and_rare_ones_pooled() -> None:
    features, scales, blocks = both(train=TRAIN, synthetic=TRAIN)
    plain = features.plain(blocks["train"])
    assert features.kinds == ["q", "c"]
    assert plain[:4, 0] == pytest.approx([0, 0.25, 1, np.nan], nan_ok=True)
    # a, b, then "other" for the 7 rows of c, fewer than LEAST_ROWS
    assert LEAST_ROWS == 10
    assert plain[[0, 20, 32, 39], 1] == pytest.approx([0, 1, 2, np.nan], nan_ok=True)
    wide = scales.wide(blocks["train"])
    # size, its gaps; a, b, other, gaps
    assert wide.shape == (40, 6)
    assert wide[3, 1] == 1 and wide[0, 1] == 0
    assert wide[[0, 20, 32, 39], 2:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert wide[:, 0].mean() == pytest.approx((2.0 - 8 / 3) / np.std([1, 2, 5]) / 4, abs=1e-12)


def test_what_only_other_tables_hold_is_not_seen() -> None:
    other = TRAIN.assign(size=TRAIN["size"] * 1e6 - 7, kind=["aa", "zz"] * 20)
    features, scales, blocks = both(train=TRAIN, synthetic=TRAIN)
    again, rescaled, with_other = both(train=TRAIN, synthetic=other)
    assert features.plain(blocks["train"]).tobytes() == again.plain(with_other["train"]).tobytes()
    assert scales.wide(blocks["train"]).tobytes() == rescaled.wide(with_other["train"]).tobytes()
    assert set(again.plain(with_other["synthetic"])[:, 1]) == {2.0}


def test_only_the_commonest_levels_have_a_column() -> None:
    many = pd.DataFrame({"x": [f"v{i:03}" for i in range(150) for _ in range(10 + i % 3)]})
    features, _, blocks = both(train=many, synthetic=many)
    plain = features.plain(blocks["train"])[:, 0]
    assert plain.max() == MOST_LEVELS
    assert features.width == MOST_LEVELS + 2
    rows = many["x"].map(many["x"].value_counts())
    assert rows[plain < MOST_LEVELS].min() >= rows[plain == MOST_LEVELS].max()


@pytest.mark.parametrize(
    "values",
    [
        [1e300, -1e300, 0.0],
        [2**62, -(2**62), 5],
        [2**60 + 1, 2**60 + 2, 2**60 + 3],
        [7, 7, 7],
    ],
)
def test_extreme_numbers_stay_finite(values: list[float]) -> None:
    table = pa.table({"x": values * 10, "y": ["a", "b", "c"] * 10})
    features, scales, blocks = both(train=table, synthetic=table)
    plain, wide = features.plain(blocks["train"]), scales.wide(blocks["train"])
    assert np.isfinite(plain).all() and np.isfinite(wide).all()
    assert len(np.unique(plain[:, 0])) == len(set(values))


def test_columns_without_a_value_are_nothing() -> None:
    table = pd.DataFrame({"x": pd.Series([None] * 30, dtype="float64"), "y": ["a", "b"] * 15})
    features, scales, blocks = both(train=table, synthetic=table.assign(x=1.5))
    assert np.isnan(features.plain(blocks["train"])[:, 0]).all()
    assert np.isfinite(scales.wide(blocks["synthetic"])).all()


def test_rows_are_named_by_what_they_hold() -> None:
    x = np.array([[1, 2], [1, 2], [np.nan, 0.0], [1, 2], [np.nan, -0.0]])
    names = names_of(x)
    assert len(np.unique(names)) == 5
    assert sorted(names_of(x[::-1])) == sorted(names)
    assert names_of(x[[1, 2]]).tolist() == names[[0, 2]].tolist()
    assert names_of(x[:, ::-1]).tolist() != names.tolist()


def test_classes_are_those_of_train() -> None:
    train = pd.DataFrame({"y": ["b"] * 10 + ["d"] * 10, "x": range(20)})
    synthetic = pd.DataFrame({"y": ["a", "b", "c", "d", None] * 4, "x": range(20)})
    known, blocks = surveyed(train=train, holdout=train, synthetic=synthetic)
    code = known.encoding.columns[0]
    target = fit_target(code, {t: known.by_column[t]["y"] for t in blocks})
    assert (target.task, target.classes) == ("classification", 2)
    assert target.of(blocks["synthetic"])[:5] == pytest.approx([np.nan, 0, np.nan, 1, np.nan], nan_ok=True)
    assert set(target.of(blocks["train"])) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0, 1], "classification"),
        ([3.5, 7.25], "classification"),
        ([True, False], "classification"),
        (["a", "b", "c"], "classification"),
        ([1, 2, 3], "regression"),
        ([pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01"), pd.Timestamp("2022-01-01")], "regression"),
        ([pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")], "classification"),
    ],
)
def test_what_is_predicted_follows_from_the_column(values: list[object], task: str) -> None:
    table = pd.DataFrame({"y": (values * 30)[:30], "x": range(30)})
    known, blocks = surveyed(train=table, holdout=table, synthetic=table)
    target = fit_target(known.encoding.columns[0], {t: known.by_column[t]["y"] for t in blocks})
    assert target.task == task
    found = target.of(blocks["train"])
    assert len(np.unique(found)) == len(values) and found.min() == 0
