"""All metrics on tables that are hardly tables: defined numbers, sane verdicts, a report on paper; or one sentence."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import daskpriv
from daskpriv.metrics import METRICS
from daskpriv.protocol import Result, Verdict
from daskpriv.report.model import report_schema
from daskpriv.report.shareable import shareable

LEAK, UNCLEAR = "LEAK", "NOT_INTERPRETABLE"
JUDGES = {"clones", "dcr_share", "dcr_overlap", "nndr", "membership_inference", "exposure", "subgroups"}
DESCRIBE = {"dcr", "privacy_score", "neighbour_scores", "accuracy", "correlation"}
# Without a holdout these have nothing to compare with; the others say what they can of train alone.
NEED_A_HOLDOUT = JUDGES - {"clones", "nndr"}
# In Python an infinite number says that there is nothing at all: in the report it is null.
NOTHING_THERE = (
    r"dcr/(\w+)->\1/.*",  # one row has no other row of its table
    r"neighbour_scores/mdcr/.*within",  # the same
    r"nndr/difference/theta_a",  # one holdout row: no second neighbour
    r"membership_inference/.*tpr_at_fpr/.*/threshold",  # no row may pass
    r"exposure/stands_out/log_odds",  # fewer rows than the shortest list of guesses
    r"dcr_overlap/.*quantile_ratios/.*",  # x/0: the holdout is the synthetic table, or train
)


def rows(seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = {"age": rng.integers(18, 90, n), "income": rng.lognormal(10, 1, n).round(2)}
    return pd.DataFrame({**numbers, "city": rng.choice(list("glws"), n), "job": rng.choice(list("abcdefgh"), n)})


def constant(n: int) -> pd.DataFrame:
    return pd.DataFrame({"a": [3] * n, "b": ["x"] * n, "c": [0.5] * n, "d": [True] * n})


def missing(n: int) -> pd.DataFrame:
    kinds = {"a": "float64", "b": "string", "c": "Int64", "d": "boolean", "e": "datetime64[ns]"}
    return pd.DataFrame({name: pd.Series([None] * n, dtype=kind) for name, kind in kinds.items()})


def beside(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows with constant and missing columns."""
    return pd.concat([table, constant(len(table)), missing(len(table)).add_prefix("no_")], axis=1)


TRAIN, HOLDOUT, FRESH = rows(0, 200), rows(1, 200), rows(2, 200)
FEW = TRAIN.head(40)
NO_CELLS = pd.DataFrame(
    {name: pd.array([None] * 200, dtype=kind) for name, kind in TRAIN.convert_dtypes().dtypes.items()}
)


class Case(NamedTuple):
    """Three tables, and what may be said of them.

    Attributes
    ----------
    overall : str or None
        What the verdict must be; None: anything but LEAK.
    blind : bool
        No labelling of so few rows has a chance below 5 %, or nothing varies: no single metric may say LEAK.
    failed : str
        A gate that must not be passed.
    """

    train: pd.DataFrame
    holdout: pd.DataFrame | None
    synthetic: pd.DataFrame
    overall: str | None = None
    blind: bool = False
    failed: str = ""


CASES = {
    "one synthetic row": Case(TRAIN, HOLDOUT, FRESH.head(1), blind=True, failed="sizes"),
    "one synthetic row, a copy": Case(TRAIN, HOLDOUT, TRAIN.head(1), blind=True, failed="sizes"),
    "one holdout row": Case(TRAIN, HOLDOUT.head(1), FRESH, failed="sizes"),
    "one holdout row, a copy of train": Case(TRAIN, HOLDOUT.head(1), TRAIN, LEAK, failed="sizes"),
    "two training rows": Case(TRAIN.head(2), HOLDOUT, FRESH, failed="sizes"),
    "two training rows, copied": Case(TRAIN.head(2), HOLDOUT, TRAIN.head(2), LEAK, failed="sizes"),
    "two rows each, copied": Case(TRAIN.head(2), HOLDOUT.head(2), TRAIN.head(2), blind=True, failed="sizes"),
    "as few rows as can be": Case(TRAIN.head(2), HOLDOUT.head(1), TRAIN.head(1), blind=True, failed="sizes"),
    "constant columns": Case(constant(200), constant(150), constant(120), UNCLEAR, True),
    "missing columns": Case(missing(200), missing(150), missing(120), UNCLEAR, True),
    "constant and missing columns beside others": Case(beside(TRAIN), beside(HOLDOUT), beside(FRESH)),
    "copies with constant and missing columns": Case(beside(TRAIN), beside(HOLDOUT), beside(TRAIN), LEAK),
    "constant synthetic rows": Case(TRAIN, HOLDOUT, pd.concat([FRESH.head(1)] * 200, ignore_index=True)),
    "missing synthetic cells": Case(TRAIN, HOLDOUT, NO_CELLS),
    "synthetic is train": Case(TRAIN, HOLDOUT, TRAIN, LEAK, failed="different tables"),
    "synthetic is holdout": Case(TRAIN, HOLDOUT, HOLDOUT, failed="different tables"),
    "holdout inside train": Case(TRAIN, TRAIN.head(100), TRAIN, UNCLEAR, True, "holdout is apart from train"),
    "holdout inside train, no copies": Case(
        TRAIN, TRAIN.head(100), FRESH, UNCLEAR, True, "holdout is apart from train"
    ),
    "train inside holdout": Case(TRAIN.head(100), TRAIN, FRESH, UNCLEAR, True, "holdout is apart from train"),
    "holdout is train": Case(TRAIN, TRAIN, FRESH, UNCLEAR, True, "different tables"),
    "one table three times": Case(TRAIN, TRAIN, TRAIN, UNCLEAR, True, "holdout is apart from train"),
    "fifty times as many synthetic rows": Case(FEW, rows(3, 40), rows(4, 2000), failed="sizes"),
    "every training row fifty times": Case(FEW, rows(3, 40), pd.concat([FEW] * 50, ignore_index=True), LEAK),
    "one column of numbers": Case(TRAIN[["income"]], HOLDOUT[["income"]], FRESH[["income"]]),
    "one column of numbers, copied": Case(TRAIN[["income"]], HOLDOUT[["income"]], TRAIN[["income"]], LEAK),
    "one column of words": Case(TRAIN[["city"]], HOLDOUT[["city"]], FRESH[["city"]]),
    "one column of words, copied": Case(TRAIN[["city"]], HOLDOUT[["city"]], TRAIN[["city"]]),
    "no holdout": Case(TRAIN, None, FRESH, "NOT_EVALUATED", True, "holdout"),
    "no holdout, a copy of train": Case(TRAIN, None, TRAIN, "NOT_EVALUATED", True, "holdout"),
    "no holdout, as few rows as can be": Case(TRAIN.head(2), None, FRESH.head(1), UNCLEAR, True, "holdout"),
}


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number in there, and where."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from numbers(inner, path)
    elif isinstance(value, (float, np.floating)):
        yield path.removeprefix("/"), float(value)


def check_result(name: str, found: Result) -> None:
    """Numbers or None; what is infinite or undefined is known to be."""
    headline = {"value": found.value, "p": found.p_value, "expected": found.expected, "mde": found.mde}
    assert all(math.isfinite(v) for _, v in numbers({**headline, "interval": found.interval})), name
    undefined = [p for p, v in numbers({name: found.details}) if not math.isfinite(v)]
    assert [p for p in undefined if not any(re.fullmatch(k, p) for k in NOTHING_THERE)] == []
    for path, v in numbers({name: found.details}):
        if re.search(r"(^|[/_])p($|_)|p_values/|share(_|$)|auc", path) and "rise" not in path and math.isfinite(v):
            assert -1e-12 <= v <= 1 + 1e-12, path
    assert found.p_value is None or 0 < found.p_value <= 1, name
    assert found.interval is None or found.interval[0] <= found.interval[1], name
    assert all(0 < t.p_value <= 1 for t in found.tests), name
    assert found.reading.endswith("."), name
    assert (found.verdict is Verdict.NOT_EVALUATED) or found.value is not None, name
    assert found.verdict is not Verdict.LEAK or (found.p_value is not None and found.p_value <= 0.05), name


def check_written(report: daskpriv.Report, case: Case, folder: Path) -> None:
    """report.json, report.html, the summary and the per-record files."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (folder / "report.json").read_text()
    found = json.loads(text, parse_constant=refuse)
    assert found == json.loads(json.dumps(shareable(report.to_dict()), allow_nan=False))
    jsonschema.validate(found, report_schema())
    page, summary = (folder / "report.html").read_text(), report.summary()
    assert page.lower().startswith("<!doctype html>")
    assert f"Overall: {report.verdict.value}" in summary
    for name in report.metrics:
        assert name in page
        assert re.search(rf"^{name} +{report.metrics[name].verdict.value} ", summary, re.MULTILINE)
    assert not re.search(r"\b(nan|inf)\b", summary)
    sizes = {"records": [case.synthetic], "real_rows": [case.train, case.holdout]}
    for file, tables in sizes.items():
        assert pq.read_metadata(folder / "internal" / f"{file}.parquet").num_rows == sum(
            len(t) for t in tables if t is not None
        )


@pytest.mark.parametrize("name", CASES)
def test_every_metric(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    report = daskpriv.evaluate(case.train, case.synthetic, case.holdout, metrics="all", output=tmp_path, internal=True)
    assert tuple(capfd.readouterr()) == ("", "")
    assert caplog.records == []
    assert set(report.metrics) == set(METRICS) - {"sequences"} == JUDGES | DESCRIBE
    for metric, result in report.metrics.items():
        check_result(metric, result)
    check_written(report, case, tmp_path)
    assert (report.verdict == LEAK) == (case.overall == LEAK)
    assert case.overall in (None, report.verdict)
    says_leak = {metric for metric, result in report.metrics.items() if result.verdict == LEAK}
    assert not says_leak & DESCRIBE
    assert not (case.blind and says_leak)
    gates = {g["name"]: g["passed"] for g in report.gates}
    assert not case.failed or not gates[case.failed]


def test_a_copy_of_train_is_a_leak_to_every_judge() -> None:
    report = daskpriv.evaluate(TRAIN, TRAIN, HOLDOUT, metrics="all")
    assert {n for n, m in report.metrics.items() if m.verdict == LEAK} == set(report.leaks) == JUDGES


@pytest.mark.parametrize("synthetic", [FRESH, TRAIN], ids=["fresh", "copied"])
def test_without_a_holdout_every_metric_says_what_it_can(synthetic: pd.DataFrame) -> None:
    report = daskpriv.evaluate(TRAIN, synthetic, metrics="all")
    for name, found in report.metrics.items():
        assert (found.verdict, found.p_value, found.tests) == ("NOT_EVALUATED", None, ()), name
        assert "holdout" in found.reading, name
        assert found.expected is None or name == "accuracy", name  # what an honest table scores, train alone tells
        assert (found.value is None) == (name in NEED_A_HOLDOUT) == found.reading.startswith("Not evaluated"), name
    assert "no holdout" in report.summary()
    assert "`daskpriv split`" in report.summary()
    assert report.leaks == []


@pytest.mark.parametrize("role", ["train", "holdout", "synthetic"])
@pytest.mark.parametrize("how", ["no rows", "no rows and no types", "one row"])
def test_tables_that_are_none_are_refused_in_one_sentence(role: str, how: str) -> None:
    tables = {"train": TRAIN, "holdout": HOLDOUT, "synthetic": FRESH}
    few = {"no rows": TRAIN.head(0), "no rows and no types": TRAIN.head(0).astype(object), "one row": TRAIN.head(1)}
    given = {**tables, role: few[how]}
    if how == "one row" and role != "train":
        assert daskpriv.evaluate(**given, metrics=["dcr"]).metrics["dcr"].value is not None
        return
    with pytest.raises(daskpriv.InputError) as told:
        daskpriv.evaluate(**given, metrics="all")
    says = rf"{role}: [01] row\(s\), this evaluation needs at least [12]; give more rows\."
    assert re.fullmatch(says, str(told.value))
