"""Subjects: where a person has several rows, tests draw persons, and the order of rows does not matter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import daskpriv
from daskpriv.cli import main
from daskpriv.errors import InputError
from daskpriv.stats.labels import labels
from daskpriv.subjects import Subjects
from daskpriv.tables.keys import numbers_of


def people(rng: np.random.Generator, n: int, prefix: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "who": [f"{prefix}{i}" for i in range(n)],
            "age": rng.integers(18, 90, n),
            "income": np.round(rng.lognormal(3, 1, n), 1),
            "city": rng.choice(["Graz", "Linz", "Wien"], n),
        }
    )


def world(seed: int = 1, copies: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    train, holdout, synthetic = people(rng, 60, "t"), people(rng, 40, "h"), people(rng, 80, "s")
    synthetic = pd.concat([synthetic, train.head(copies)], ignore_index=True).drop(columns="who")
    return {"train": train, "holdout": holdout, "synthetic": synthetic}


ORDERS = ("univariate", "bivariate", "trivariate")


def told(**tables: Any) -> dict[str, Any]:
    return daskpriv.evaluate(metrics="all", subject_key="who", **tables).to_dict()


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return told(**world(copies=5))


def test_a_draw_labels_whole_subjects_and_as_many_as_train_has() -> None:
    rng = np.random.default_rng(0)
    held = Subjects.of(rng.integers(0, 20, 50), rng.integers(20, 60, 90))
    drawn = labels(50, 90, seed=3, draws=200, subjects=held)
    first, second = held.distinct
    each = drawn.sums(np.concatenate([first, second]), np.zeros(len(first) + len(second), np.int64), 1)
    assert (each == len(first)).all()
    rows = [drawn.rows(np.arange(n), second=s) for n, s in ((50, False), (90, True))]
    one_each = np.stack([drawn.sums(np.array([r]), np.zeros(1, np.int64), 1)[:, 0] for r in np.concatenate(rows)])
    whose = np.concatenate([held.first, held.second])
    for subject in np.unique(whose):
        mine = one_each[whose == subject]
        assert (mine == mine[0]).all()
    assert 0.2 < one_each.mean() < 0.6


def test_every_subject_is_drawn_equally_often() -> None:
    held = Subjects.of(np.arange(30), np.arange(100, 120))
    drawn = labels(30, 20, seed=9, draws=4000, subjects=held)
    places = np.concatenate(held.distinct)
    often = drawn.sums(places, np.arange(50), 50).mean(axis=0)
    assert np.abs(often - 0.6).max() < 5 * (0.6 * 0.4 / 4000) ** 0.5


def test_subjects_on_both_sides_are_two() -> None:
    held = Subjects.of(np.array([1, 2, 2]), np.array([2, 3]))
    assert held.shared == 1
    assert held.counts == (2, 2)
    assert not np.intersect1d(held.first, held.second).size
    assert min(held.first.min(), held.second.min()) >= 0


def test_numbers_do_not_depend_on_how_a_key_is_stored() -> None:
    whole = pa.chunked_array([[3, 1, 3]])
    for other in (whole.cast(pa.float64()), whole.cast(pa.int8()), whole.cast(pa.string()), whole.dictionary_encode()):
        assert numbers_of(other, "train", "who").tolist() == numbers_of(whole, "train", "who").tolist()


def test_the_order_of_rows_changes_no_bit(plain: dict[str, Any]) -> None:
    """With stable ids, shuffled files give the same report: estimates, p-values, verdicts."""
    rng = np.random.default_rng(5)
    shuffled = {n: t.iloc[rng.permutation(len(t))].reset_index(drop=True) for n, t in world(copies=5).items()}
    again = told(**shuffled)
    # Synthetic rows have no ids. By position the privacy score cuts train in halves and thins synthetic rows, and
    # accuracy draws those of an honest table for its interval.
    for name in again["metrics"].keys() - {"privacy_score", "accuracy"}:
        assert again["metrics"][name] == plain["metrics"][name], name
    counted = [{k: r["metrics"]["accuracy"]["details"][k] for k in ORDERS} for r in (again, plain)]
    assert counted[0] == counted[1]
    assert again["overall"] == plain["overall"]
    bare = {n: t.drop(columns="who", errors="ignore") for n, t in shuffled.items()}
    without = daskpriv.evaluate(metrics="exposure", **bare).metrics["exposure"]
    assert without.p_value != plain["metrics"]["exposure"]["p_value"]


@pytest.mark.parametrize("block_rows", [1, 7])
def test_no_cutting_changes_a_bit(plain: dict[str, Any], block_rows: int) -> None:
    assert told(**world(copies=5), block_rows=block_rows)["metrics"] == plain["metrics"]


def test_rows_that_repeat_their_subject_add_nothing(plain: dict[str, Any]) -> None:
    """Each real row four times: the law of the share is that of one row each; rows alone would call it more certain."""
    held = world(copies=5)
    four = {n: pd.concat([t] * (1 if n == "synthetic" else 4), ignore_index=True) for n, t in held.items()}
    found, once = told(**four)["metrics"]["dcr_share"], plain["metrics"]["dcr_share"]
    assert found["p_value"] == once["p_value"]
    assert found["details"]["z"] == pytest.approx(once["details"]["z"], abs=1e-12)
    assert found["details"]["standard_error"] == pytest.approx(once["details"]["standard_error"], abs=1e-12)
    assert found["details"]["test"].startswith("permutation of subjects")
    rows = daskpriv.evaluate(metrics="dcr_share", exclude=["who"], **four).metrics["dcr_share"]
    assert rows.details["standard_error"] < 0.7 * once["details"]["standard_error"]


def test_intervals_count_a_subjects_rows_as_alike(plain: dict[str, Any]) -> None:
    held = world(copies=5)
    four = {n: pd.concat([t] * (1 if n == "synthetic" else 4), ignore_index=True) for n, t in held.items()}
    found = told(**four)["metrics"]["membership_inference"]["interval"]
    once = plain["metrics"]["membership_inference"]["interval"]
    assert np.diff(found[:2]) == pytest.approx(np.diff(once[:2]), rel=0.02)


def test_expected_is_the_share_of_subjects() -> None:
    held = world()
    held["train"] = pd.concat([held["train"]] * 3, ignore_index=True)
    assert told(**held)["metrics"]["dcr_share"]["expected"] == 60 / 100


def test_null_draws_reject_at_their_level() -> None:
    """Four near-equal rows per person, whole persons in train or holdout: rows would reject too often, persons not."""
    hits, draws = {"who": 0, None: 0}, 60
    for seed in range(draws):
        rng = np.random.default_rng([7, seed])
        real = pd.concat([people(rng, 80, "p")] * 4, ignore_index=True)
        real["age"] += rng.integers(0, 2, len(real))
        side = real["who"].isin([f"p{i}" for i in rng.permutation(80)[:40]])
        tables = {"train": real[side], "holdout": real[~side], "synthetic": people(rng, 120, "s").drop(columns="who")}
        for key in hits:
            report = daskpriv.evaluate(
                metrics=["dcr_share"], subject_key=key, seed=seed, exclude=[] if key else ["who"], **tables
            )
            p = report.metrics["dcr_share"].p_value
            assert p is not None
            hits[key] += p <= 0.05
    assert hits["who"] <= 8  # 60 draws at 5 %: more than 8 in 0.4 % of all suites
    assert hits[None] > hits["who"]


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, {"subject_key": "nobody"}, "subject_key: train has no column 'nobody'"),
        ({"holdout": ["who"]}, {}, "subject_key: holdout has no column 'who'"),
        ({}, {"subject_key": ["who"]}, "give the name of one column"),
        ({}, {"columns": ["who", "age"]}, "'who' is the subject key"),
        ({}, {"weights": {"who": 2.0}}, "'who' is the subject key"),
    ],
)
def test_a_key_that_cannot_be_used_is_told(change: dict[str, list[str]], options: dict[str, Any], says: str) -> None:
    held = {n: t.drop(columns=change.get(n, [])) for n, t in world().items()}
    with pytest.raises(InputError, match=says):
        daskpriv.evaluate(**{"subject_key": "who", **options}, **held)


@pytest.mark.parametrize("hole", [None, float("nan")])
def test_missing_subjects_are_refused(hole: Any) -> None:
    held = world()
    held["holdout"]["who"] = [*range(39), hole]
    with pytest.raises(InputError, match=r"holdout: column 'who' has .*missing"):
        daskpriv.evaluate(subject_key="who", **held)


def test_without_a_holdout_the_key_is_only_left_out() -> None:
    held = world()
    del held["holdout"]
    report = daskpriv.evaluate(subject_key="who", **held)
    assert [c["name"] for c in report.to_dict()["space"]["columns"]] == ["age", "income", "city"]


def test_a_subject_on_both_sides_is_a_broken_gate() -> None:
    held = world()
    held["holdout"].loc[0, "who"] = "t3"
    report = daskpriv.evaluate(subject_key="who", **held).to_dict()
    gate = next(g for g in report["gates"] if g["name"] == "subjects are on one side")
    assert not gate["passed"]
    assert "1 subject" in gate["message"]
    assert report["metrics"]["dcr_share"]["verdict"] == "NOT_INTERPRETABLE"


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, table in world().items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    files = [x for n in ("train", "holdout", "synthetic") for x in (f"--{n}", str(tmp_path / f"{n}.parquet"))]
    options = ["--subject-key", "who", "--group-by", "city", "--quiet", "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["daskpriv", "evaluate", *files, *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["settings"]["subject_key"] == "who"
    assert len(written["metrics"]["subgroups"]["details"]["by_group"]["city"]) == 3
