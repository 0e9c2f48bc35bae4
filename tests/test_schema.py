"""What a column is taken for, and how a person changes it."""

from __future__ import annotations

from importlib.metadata import version

import pandas as pd
import pytest

import daskpriv
from daskpriv.tables.reconcile import looks_like_id


def table(n: int = 200, offset: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "customer_id": range(offset, offset + n),
            "size": ["small", "medium", "large", "medium"] * (n // 4),
            "note": [f"text {offset + i}" for i in range(n)],
            "code": [i % 7 for i in range(n)],
            "bid": range(n),
        }
    )


def kinds(report: daskpriv.Report) -> dict[str, str]:
    return {c["name"]: c["kind"] for c in report.space["columns"]}


def test_kinds_are_inferred_from_the_real_tables() -> None:
    report = daskpriv.evaluate(train=table(), synthetic=table(offset=500))
    assert kinds(report) == {
        "customer_id": "id",
        "size": "nominal",
        "note": "text",
        "code": "numeric",
        "bid": "numeric",
    }
    assert any("'customer_id' looks like an id" in w for w in report.warnings)


@pytest.mark.parametrize("preset", ["mostly-paper", "clearbox"])
def test_published_tools_compare_every_column(preset: str) -> None:
    report = daskpriv.evaluate(train=table(), synthetic=table(), holdout=table(offset=900), preset=preset)
    assert kinds(report)["customer_id"] == "numeric"


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "customerId", "user.uuid", "row_id", "key"])
def test_names_of_ids(name: str) -> None:
    assert looks_like_id(name)


@pytest.mark.parametrize("name", ["bid", "paid", "monkey", "identity", "grid", "humid", "valid"])
def test_names_that_only_end_like_ids(name: str) -> None:
    assert not looks_like_id(name)


def test_an_ordinal_column_counts_steps_between_levels() -> None:
    columns = [daskpriv.Column("size", daskpriv.Kind.ORDINAL, levels=("small", "medium", "large"))]
    schema = daskpriv.Schema(tuple(columns))
    frame = pd.DataFrame({"size": ["small", "medium", "large"]})
    nn = daskpriv.nearest_neighbours(frame.head(1), frame, k=3, schema=schema)
    assert nn.distance.tolist() == [[0.0, 0.5, 1.0]]
    with pytest.raises(daskpriv.InputError, match=r"query: column 'size' is ordinal, but 1 row\(s\) hold a value"):
        daskpriv.nearest_neighbours(pd.DataFrame({"size": ["huge"]}), frame, schema=schema)


def test_yaml_is_read_back_as_it_was() -> None:
    schema = daskpriv.Schema(
        (
            daskpriv.Column("a: b", daskpriv.Kind.NUMERIC, weight=2.0, range=10.0),
            daskpriv.Column("no", daskpriv.Kind.ORDINAL, levels=("no", "yes", "1")),
            daskpriv.Column("x", daskpriv.Kind.ID),
        )
    )
    assert daskpriv.Schema.from_yaml(schema.to_yaml()) == schema


def test_an_explicit_range_replaces_the_fitted_one() -> None:
    schema = daskpriv.Schema((daskpriv.Column("a", daskpriv.Kind.NUMERIC, range=100.0),))
    frame = pd.DataFrame({"a": [0, 10]})
    assert daskpriv.nearest_neighbours(frame, frame, k=2, schema=schema).distance[0].tolist() == [0.0, 0.1]


def test_numbers_declared_nominal_are_compared_by_equality() -> None:
    schema = daskpriv.Schema((daskpriv.Column("a", daskpriv.Kind.NOMINAL),))
    frame = pd.DataFrame({"a": [1, 2, 30]})
    assert daskpriv.nearest_neighbours(frame, frame, k=3, schema=schema).distance[0].tolist() == [0.0, 1.0, 1.0]


def test_the_version_stands_in_one_place() -> None:
    assert version("daskpriv") == daskpriv.__version__
