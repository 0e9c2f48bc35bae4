"""Published synthetic tables: the more cells were replaced, the less a model learns; fresh real rows are as good."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import daskpriv
from daskpriv.protocol import Result


def of(train: pd.DataFrame, synthetic: pd.DataFrame, holdout: pd.DataFrame) -> dict[str, Result]:
    report = daskpriv.evaluate(train, synthetic, holdout, metrics="utility,discriminator", target="income")
    return dict(report.metrics)


@pytest.mark.published
def test_what_is_known_of_tables(shared: Path) -> None:
    def read(name: str) -> pd.DataFrame:
        return pd.read_parquet(shared / "adult" / f"{name}.parquet")

    # Holdout rows keep the order of their file: they are shuffled before a part of them is taken.
    train, holdout = read("train").head(4000), read("holdout").sample(8000, random_state=0, ignore_index=True)
    tested, fresh = holdout[:4000], holdout[4000:].reset_index(drop=True)
    found = {name: of(train, read(f"syn_{name}").head(4000), tested) for name in ("flip10", "flip50", "flip90")}
    found["fresh"] = of(train, fresh, tested)
    utility = {name: f["utility"].value for name, f in found.items()}
    told = {name: f["discriminator"].value for name, f in found.items()}
    assert None not in (*utility.values(), *told.values())
    assert utility["flip10"] > utility["flip50"] > utility["flip90"]
    assert utility["flip90"] < -20
    assert abs(utility["fresh"]) < 1.5
    assert found["flip90"]["utility"].details["practically"] == "worse"
    assert told["flip10"] < told["flip50"] < told["flip90"]
    interval = found["fresh"]["discriminator"].interval
    assert interval is not None and interval[0] < 0.51 and told["fresh"] < 0.52
