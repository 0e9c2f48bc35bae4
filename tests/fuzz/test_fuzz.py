"""A short run of every fuzz target, laws that Hypothesis drives, and hostile texts in the page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv import Column, Kind, Schema
from daskpriv.report.html import page
from tests.fuzz.checks import attempt, harmless, shareable
from tests.fuzz.commands import reports
from tests.fuzz.driver import in_this_process, targets, told
from tests.fuzz.mutate import ODD_TEXTS
from tests.fuzz.yamls import small

pytestmark = pytest.mark.fuzz

SHORT = {"parquet": 500, "csv": 200, "schema": 500, "yaml": 300, "cli": 400, "report": 300, "frames": 250}
ANY_TEXT = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(ODD_TEXTS)


@pytest.fixture
def home() -> Iterator[None]:
    """Commands are run in a folder of their own."""
    before = os.getcwd()
    yield
    os.chdir(before)


@pytest.mark.parametrize("target", SHORT)
def test_short_run(target: str, tmp_path: Path, home: None) -> None:
    small(), reports()
    out = in_this_process(target, targets()[target][0], 7731, 0, SHORT[target], tmp_path)
    assert out.executions == SHORT[target]
    assert not out.findings, told(out)


def test_every_target_runs_here() -> None:
    assert set(SHORT) == set(targets())


# ---------------------------------------------------------------------------------------------- laws


def columns() -> st.SearchStrategy[Schema]:
    """Schemas with any names, kinds, weights, ranges and levels."""
    weight = st.floats(0, allow_infinity=False, allow_nan=False)
    span = st.none() | st.floats(0, exclude_min=True, allow_infinity=False)
    level = ANY_TEXT | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.dates()

    def made(name: str, kind: Kind, weight: float, span: float | None, levels: list[Any]) -> Column | None:
        try:
            return Column(name, kind, weight, tuple(levels) if kind is Kind.ORDINAL else (), span)
        except daskpriv.InputError:
            return None

    one = st.builds(made, ANY_TEXT, st.sampled_from(Kind), weight, span, st.lists(level, max_size=4))
    return st.lists(one.filter(lambda c: c is not None), max_size=4, unique_by=lambda c: c.name).map(
        lambda found: Schema(tuple(found))
    )


@settings(derandomize=True, max_examples=200)
@given(columns())
def test_a_schema_is_read_as_it_was_written(schema: Schema) -> None:
    assert Schema.from_yaml(schema.to_yaml()) == schema


@settings(derandomize=True, max_examples=200)
@given(st.text(max_size=60))
def test_any_text_is_a_schema_or_one_sentence(text: str) -> None:
    attempt(lambda: Schema.from_yaml(text), False, "schema")
    attempt(lambda: Schema.from_yaml(f"daskpriv_schema: 1\ncolumns:\n  {text}"), False, "schema")


@settings(derandomize=True, max_examples=60)
@given(ANY_TEXT)
def test_any_text_in_a_report_is_text_in_the_page(text: str) -> None:
    def everywhere(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: everywhere(v) for k, v in value.items()}
        return [everywhere(v) for v in value] if isinstance(value, list) else text if isinstance(value, str) else value

    for whole in reports():
        harmless(page(everywhere(json.loads(whole))))


# ---------------------------------------------------------------------------------------------- hostile names

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    "\"'><b onmouseover='alert(1)'>",
    "<!-- ",
    "</svg><text onclick=alert(1)>",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
)


def hostile_tables(name: str) -> dict[str, pd.DataFrame]:
    tables = small()
    train = tables["reference"].rename(columns={"town": name})
    return {"train": train, "synthetic": tables["query"].rename(columns={"town": name}), "holdout": train.head(6)}


@pytest.mark.parametrize("name", HOSTILE)
def test_column_names_are_text_in_the_page(name: str, tmp_path: Path) -> None:
    report = daskpriv.evaluate(**hostile_tables(name), output=tmp_path)
    written = (tmp_path / "report.html").read_text("utf-8")
    harmless(written)
    assert name not in written or "<" not in name
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["space"]["columns"][2]["name"] == name
    shareable(report)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_file_names_are_text_in_the_page(name: str, suffix: str, tmp_path: Path) -> None:
    tables = hostile_tables("town")
    stem = name.replace("/", "\N{FRACTION SLASH}")
    for role, frame in tables.items():
        path = tmp_path / f"{stem}-{role}{suffix}"
        frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(path, index=False)
    paths = {role: str(tmp_path / f"{stem}-{role}{suffix}") for role in tables}
    daskpriv.evaluate(**paths, output=tmp_path / "out")
    written = (tmp_path / "out" / "report.html").read_text("utf-8")
    harmless(written)
    assert stem not in written or "<" not in stem
    sources = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["inputs"]["tables"]
    assert sources["train"]["source"] == [paths["train"]]
