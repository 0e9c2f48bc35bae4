"""Train on synthetic, test on holdout: scores, words, bits that nothing moves, targets that nothing can learn."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

import daskpriv
from daskpriv import modelling
from daskpriv.engine.run import Engine
from daskpriv.errors import InputError, PlanError
from daskpriv.modelling import parted, rows_here
from daskpriv.protocol import Verdict
from daskpriv.report.model import report_schema
from daskpriv.tables.schema import Column, Schema
from daskpriv.tables.types import Kind
from daskpriv.utility.models import BOOSTED, FOREST, LINEAR, learned
from tests.utility.tables import measured, people, spoilt

MODELS = ["random_forest", "gradient_boosting", "logistic_regression"]


def test_scores_are_those_of_the_libraries() -> None:
    """The same comparison by hand, with one-hot columns of pandas, on tables without gaps or rare levels."""
    tables = [people(seed, 600).drop(columns=["since", "town", "pay"]).dropna() for seed in (0, 1, 2)]
    train, holdout, synthetic = tables
    found = daskpriv.evaluate(train, synthetic, holdout, metrics="utility", target="bought").metrics["utility"]
    levels = train["job"].value_counts().index

    def columns(table: pd.DataFrame) -> np.ndarray:
        age = (table["age"] - train["age"].mean()) / train["age"].std(ddof=0)
        return np.column_stack([age, *(table["job"] == v for v in levels), np.zeros(len(table))])

    for name, learnt in (("train", train), ("synthetic", synthetic)):
        linear = LogisticRegression(max_iter=500).fit(columns(learnt), learnt["bought"] == "yes")
        expected = roc_auc_score(holdout["bought"] == "yes", linear.predict_proba(columns(holdout))[:, 1])
        assert found.details["models"]["logistic_regression"][name] == pytest.approx(expected, abs=1e-4)
        forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=1)
        chances = forest.fit(columns(learnt), learnt["bought"] == "yes").predict_proba(columns(holdout))[:, 1]
        expected = roc_auc_score(holdout["bought"] == "yes", chances)
        assert found.details["models"]["random_forest"][name] == pytest.approx(expected, abs=0.02)


def test_boosting_is_xgboosts_own() -> None:
    import xgboost

    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=500) > 0).astype(float)
    ours = learned(BOOSTED, x, y, 2, 0, ["q"] * 3)(x)
    peer = xgboost.XGBClassifier(n_estimators=100, max_depth=6, learning_rate=0.1, tree_method="hist").fit(x, y)
    assert ours == pytest.approx(peer.predict_proba(x), abs=1e-6)


def test_the_worse_the_table_the_worse_the_models() -> None:
    found = [measured(target="bought", synthetic=spoilt(people(0), share)).value for share in (0.0, 0.4, 0.9)]
    assert found[0] == 0.0  # learnt from the very same rows
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize(
    ("target", "score", "classes"), [("bought", "auc", 2), ("town", "auc", 3), ("pay", "r2", 0), ("since", "r2", 0)]
)
def test_any_kind_of_target(target: str, score: str, classes: int) -> None:
    found = measured(target=target)
    details = found.details
    linear = "logistic_regression" if classes else "ridge_regression"
    assert list(details["models"]) == [*MODELS[:2], linear]
    assert (details["score"], details["classes"]) == (score, classes)
    assert found.verdict is Verdict.NOT_EVALUATED and found.p_value is None
    for line in details["models"].values():
        low, high, level = line["train_interval"]
        assert low <= line["train"] <= high <= 1 and level == 0.95
        if target == "since":  # nothing predicts it
            assert line["train"] < 0.05
            continue
        assert line["train"] > (0.65 if classes else 0.5)
        assert line["difference"] == pytest.approx(100 * (line["synthetic"] / line["train"] - 1))
    if target != "since":
        assert found.value == pytest.approx(np.mean([m["difference"] for m in details["models"].values()]))
        assert found.interval is not None and found.interval[0] < found.value < found.interval[1]


def test_no_layout_changes_a_bit(tmp_path: Path) -> None:
    tables = {"train": people(0), "holdout": people(1), "synthetic": people(2)}
    files: dict[str, list[str]] = {}
    for name, table in tables.items():
        cuts = [0, 90, 91, 250, len(table)]
        files[name] = []
        for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
            files[name].append(str(tmp_path / f"{name}-{i}.parquet"))
            table[start:stop].to_parquet(files[name][-1], index=False)
    asked = {"metrics": "utility,discriminator", "target": "bought", "seed": 5}
    expected = daskpriv.evaluate(**tables, **asked).metrics
    with threadpool_limits(3):
        found = daskpriv.evaluate(**files, block_rows=37, **asked).metrics
    for name in ("utility", "discriminator"):
        assert found[name].details == expected[name].details
        assert (found[name].value, found[name].interval) == (expected[name].value, expected[name].interval)
    shuffled = {n: t.sample(frac=1, random_state=1) for n, t in tables.items()}
    found = daskpriv.evaluate(**shuffled, **asked).metrics
    for name in ("utility", "discriminator"):
        assert found[name].details == expected[name].details
        assert (found[name].value, found[name].interval) == (expected[name].value, expected[name].interval)
    other = measured(target="bought", seed=6).details["models"]
    told = expected["utility"].details["models"]
    assert other["random_forest"] != told["random_forest"]
    assert other["logistic_regression"] == told["logistic_regression"]  # nothing in it is drawn


def test_what_is_left_out_is_counted() -> None:
    synthetic = people(2)
    synthetic.loc[:9, "bought"] = None
    synthetic.loc[10:14, "bought"] = "perhaps"
    found = measured(target="bought", synthetic=synthetic)
    rows = {"given": 400, "drawn": 400, "missing_target": 10, "unknown_class": 5, "used": 385}
    assert found.details["rows"]["synthetic"] == rows
    assert found.warnings == (
        "utility: 10 rows of synthetic have no target and are left out.",
        "utility: 5 rows of synthetic are of a class that train lacks and are left out.",
    )
    kept = measured(target="bought", synthetic=synthetic[15:].reset_index(drop=True))
    assert kept.details["models"] == found.details["models"]


def test_a_synthetic_table_of_one_class_teaches_nothing() -> None:
    found = measured(target="town", synthetic=people(2).assign(town="Linz"))
    for line in found.details["models"].values():
        assert line["synthetic"] == 0.5
        assert line["practically"] == "worse"


def test_a_class_that_only_the_holdout_has_is_left_out() -> None:
    holdout = people(1)
    holdout.loc[:19, "town"] = "Bregenz"
    found = measured(target="town", holdout=holdout)
    assert found.details["classes"] == 3
    assert found.details["rows"]["holdout"]["unknown_class"] == 20


def test_where_nothing_can_be_learnt_there_is_no_percentage() -> None:
    rng = np.random.default_rng(0)
    noise = {n: pd.DataFrame(rng.normal(size=(100, 2)), columns=["x", "y"]) for n in ("train", "holdout", "synthetic")}
    found = daskpriv.evaluate(**noise, metrics="utility", target="y").metrics["utility"]
    assert found.value is None
    assert all(m["difference"] is None for m in found.details["models"].values())
    assert found.reading.startswith("No model learnt anything")


def test_large_tables_are_drawn_from_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelling, "MOST_ROWS", 256)
    found = measured(target="bought")
    rows = found.details["rows"]
    assert all(150 < r["drawn"] < 400 and r["given"] == 400 for r in rows.values())
    assert (
        f"utility: {rows['train']['drawn']} of 400 rows of train were drawn for models fitted here." in found.warnings
    )
    assert measured(target="bought", block_rows=50).details == found.details


@pytest.mark.cluster
def test_on_a_cluster_boosting_sees_all_rows(cluster: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tables do not fit, workers train on every row; where they do, the bits are those of one process."""
    here, there = measured(target="bought"), measured(target="bought", client=cluster(2))
    assert there.details == here.details
    monkeypatch.setattr(modelling, "MOST_ROWS", 2**20)
    monkeypatch.setattr(modelling, "rows_here", lambda width, free: 399)
    large = {"train": people(0, 1000), "synthetic": people(2, 1000)}
    apart = measured(target="bought", client=cluster(2), block_rows=300, **large).details
    assert apart["boosted_on_cluster"] == ["synthetic", "train"]
    assert apart["rows"]["train"]["drawn"] < 1000
    monkeypatch.setattr(modelling, "rows_here", lambda width, free: 2**20)
    whole = measured(target="bought", **large).details
    for role in ("train", "synthetic"):
        alone, drawn = (d["models"]["gradient_boosting"][role] for d in (whole, apart))
        assert drawn == pytest.approx(alone, abs=0.03)


def test_intervals_count_subjects_not_rows() -> None:
    def table(seed: int) -> pd.DataFrame:
        return people(seed).assign(who=np.arange(400) // 4 + 1000 * seed)

    tables = {"train": table(0), "holdout": table(1), "synthetic": people(2).assign(who=0)}
    plain, clustered = (
        daskpriv.evaluate(**tables, metrics="utility", target="bought", **more).metrics["utility"]
        for more in ({"exclude": ["who"]}, {"subject_key": "who"})
    )
    assert plain.value == clustered.value
    assert plain.interval != clustered.interval


def test_it_stands_in_the_report_without_a_cell(tmp_path: Path) -> None:
    canary = "Zaphod-7731"
    tables = {
        n: people(i).assign(bought=lambda t: t["bought"].replace("yes", canary))
        for i, n in enumerate(("train", "holdout", "synthetic"))
    }
    report = daskpriv.evaluate(
        **tables, metrics=["dcr", "utility"], target="bought", output=tmp_path, fail_on=["utility>-100"]
    )
    assert not report.passed
    text = (tmp_path / "report.json").read_text()
    jsonschema.validate(json.loads(text), report_schema())
    page = (tmp_path / "report.html").read_text()
    assert canary not in text + page + report.summary()
    assert "Models that learn bought" in page and "gradient_boosting" in page
    assert report.settings["metrics"] == ["dcr", "utility"] and report.settings["target"] == "bought"
    assert set(report.metrics) == {"dcr", "utility"}


@pytest.mark.parametrize(
    ("metrics", "target", "expected"),
    [
        (["dcr"], "bought", (["dcr"], ("utility",))),
        ("default,discriminator", None, ("default", ("discriminator",))),
        ("utility, discriminator", "bought", ([], ("utility", "discriminator"))),
        ("default", None, ("default", ())),
    ],
)
def test_what_is_asked_for(metrics: Any, target: str | None, expected: tuple[Any, tuple[str, ...]]) -> None:
    others, models = parted(metrics, target)
    assert (others, models.names) == expected


MANY = [f"v{i}" for i in range(60)]
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no target": ({}, "utility: name the column"),
    "no text": ({"target": 3}, "target: give the name of one column"),
    "unknown": ({"target": "boughd"}, "target: train has no column 'boughd'"),
    "no holdout": ({"target": "bought", "holdout": None}, "give a holdout"),
    "excluded": ({"target": "bought", "exclude": ["bought"]}, "'bought' is excluded"),
    "not compared": ({"target": "bought", "columns": ["age", "job"]}, "is not among the columns that are compared"),
    "key": ({"target": "job", "subject_key": "job"}, "is the subject key"),
    "alone": ({"target": "bought", "columns": ["bought"]}, "no column is left to predict"),
    "all missing": ({"target": "bought", "holdout": people(1).assign(bought=None)}, "is missing in holdout"),
    "constant in train": ({"target": "bought", "train": people(0).assign(bought="no")}, "has one value in train"),
    "constant in holdout": ({"target": "bought", "holdout": people(1).assign(bought="no")}, "has one value in holdout"),
    "other classes": ({"target": "bought", "synthetic": people(2).assign(bought="No")}, "no class of the target"),
    "other number": (
        {
            "target": "flag",
            **{n: people(i).assign(flag=np.arange(400) % 2) for i, n in enumerate(("train", "holdout"))},
            "synthetic": people(2).assign(flag=7),
        },
        "is one that train has",
    ),
    "too many classes": (
        {"target": "town", **{n: people(0).assign(town=(MANY * 7)[:400]) for n in ("train", "holdout", "synthetic")}},
        "60 categories",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str) -> None:
    options, expected = BAD[case]
    with pytest.raises(InputError, match=expected) as told:
        measured(**options)
    assert str(told.value).count(".") == 1 and str(told.value).endswith((".", ")."))


def test_an_id_cannot_be_predicted() -> None:
    tables = {
        n: people(i).assign(customer_id=np.arange(400) + 1000 * i)
        for i, n in enumerate(("train", "holdout", "synthetic"))
    }
    with pytest.raises(InputError, match="'customer_id' is an id"):
        measured(target="customer_id", **tables)


def test_a_declared_kind_decides() -> None:
    schema = Schema(
        tuple(
            Column(n, k)
            for n, k in {
                "age": Kind.NUMERIC,
                "job": Kind.NOMINAL,
                "since": Kind.DATETIME,
                "town": Kind.NOMINAL,
                "pay": Kind.NOMINAL,
                "bought": Kind.NOMINAL,
            }.items()
        )
    )
    with pytest.raises(InputError, match="categories"):
        measured(target="pay", schema=schema)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.utility.models.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^utility: install daskpriv\[utility\]\.$"):
        measured(target="bought")


def test_heavy_packages_are_loaded_by_need_only() -> None:
    code = (
        "import sys, daskpriv, daskpriv.cli; print([m for m in ('sklearn', 'xgboost', 'joblib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_too_little_memory_is_one_sentence() -> None:
    assert rows_here(10, 2**31) == rows_here(10, 2**31 + 2**29)
    assert rows_here(1000, 2**30) < rows_here(10, 2**30)
    with pytest.raises(PlanError, match="fewer than 1,024 rows"):
        rows_here(1000, 2**20)


def test_too_little_memory_is_told_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelling, "available_memory", lambda: 2**17)
    monkeypatch.setattr(Engine, "measure", None)
    with pytest.raises(PlanError, match="models: fewer than 1,024 rows of"):
        measured("discriminator")


@pytest.mark.parametrize("learner", [FOREST, BOOSTED, LINEAR[True], LINEAR[False]], ids=lambda m: m.name)
def test_threads_and_the_scale_of_a_number_change_nothing(learner: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)) if learner.wide else rng.normal(size=(400, 4)).astype(np.float32)
    if learner is not LINEAR[True]:
        y = x[:, 0] + rng.normal(size=400)
        one = learned(learner, x, y, 0, 7, ["q"] * 4)(x)
        with threadpool_limits(4):
            assert learned(learner, x, y, 0, 7, ["q"] * 4)(x).tobytes() == one.tobytes()
        far = learned(learner, x, 1e6 * y - 3e9, 0, 7, ["q"] * 4)(x)
        assert r2_score(y, one) == pytest.approx(r2_score(1e6 * y - 3e9, far), abs=0.01)
    if learner is not LINEAR[False]:
        chosen = rng.integers(0, 3, 400).astype(float)
        one = learned(learner, x, chosen, 5, 7, ["q"] * 4)(x)
        with threadpool_limits(4):
            assert learned(learner, x, chosen, 5, 7, ["q"] * 4)(x).tobytes() == one.tobytes()
        assert one.shape == (400, 5) and (one[:, 3:] == 0).all()
        assert one.sum(axis=1) == pytest.approx(1, abs=1e-5)
