"""Shares by tenth of isolation and by group, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import daskpriv
from daskpriv.engine import plan
from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, TRAIN


def frame(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Ranges that are powers of two: all distances are exact, and equal ones are equal."""
    return pd.DataFrame(
        {
            "x": np.append([0, 64], rng.integers(0, 65, n - 2)),
            "y": np.append([0, 16], rng.integers(0, 17, n - 2)),
            "sex": rng.choice(["f", "m"], n),
            "town": rng.choice(["a", "b", "c", None, "rare"], n, p=[0.4, 0.2, 0.19, 0.2, 0.01]),
        }
    )


def world(seed: int = 0, copies: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    tables = {"train": frame(rng, 120), "holdout": frame(rng, 90), "synthetic": frame(rng, 150)}
    women = tables["train"][tables["train"]["sex"] == "f"].head(copies)
    tables["synthetic"] = pd.concat([tables["synthetic"], women], ignore_index=True)
    return tables


def distances(a: pd.DataFrame, b: pd.DataFrame, real: pd.DataFrame) -> np.ndarray:
    """Gower by the book, missing towns equal each other."""
    total = np.zeros((len(a), len(b)))
    for c in ("x", "y"):
        span = real[c].max() - real[c].min()
        total += np.minimum(np.abs(a[c].to_numpy()[:, None] - b[c].to_numpy()[None]) / span, 1)
    for c in ("sex", "town"):
        u, v = (t[c].fillna("?").to_numpy(str) for t in (a, b))
        total += u[:, None] != v[None]
    return total / 4


class Plain:
    """The same numbers by loops over rows."""

    def __init__(self, tables: dict[str, pd.DataFrame]) -> None:
        self.real = pd.concat([tables["train"], tables["holdout"]], ignore_index=True)
        self.train = np.arange(len(self.real)) < len(tables["train"])
        to_real = distances(tables["synthetic"], self.real, self.real)
        self.credit = np.zeros(len(self.real))
        for row in to_real:
            nearest = np.flatnonzero(row == row.min())
            self.credit[nearest] += 1 / len(nearest)
        among = distances(self.real, self.real, self.real)
        np.fill_diagonal(among, np.inf)
        self.isolation = np.sort(among, axis=1)[:, 4]
        self.nearest = to_real.min(axis=0)

    def tenth(self) -> np.ndarray:
        n = len(self.real)
        edges = [np.sort(self.isolation)[-(-n * i // 10) - 1] for i in range(1, 10)]
        return np.array([sum(v > e for e in edges) for v in self.isolation])

    def share(self, members: np.ndarray) -> tuple[float, float]:
        return float(self.credit[members].sum()), float(self.credit[members & self.train].sum())


@pytest.fixture(scope="module")
def found() -> Any:
    return daskpriv.evaluate(metrics="subgroups", group_by=["sex", "town"], **world(copies=20)).metrics["subgroups"]


def test_shares_are_those_of_plain_loops(found: Any) -> None:
    plain = Plain(world(copies=20))
    lines = {(by, g["group"]): g for by, held in found.details["by_group"].items() for g in held}
    for column, values in (("sex", ["f", "m"]), ("town", ["a", "b", "c", None])):
        for value in values:
            members = plain.real[column].isna() if value is None else plain.real[column] == value
            line = lines.pop((column, "missing" if value is None else value))
            check(line, plain, members.to_numpy())
    assert not lines  # "rare" has too few rows, and nothing to hide among
    tenths, counts = np.unique(plain.tenth(), return_counts=True)
    large = tenths[counts >= 20]
    *own, together = found.details["by_isolation"]
    assert [g["group"] for g in own] == [f"tenth {t + 1}" for t in large]
    for line, place in zip(own, large, strict=True):
        check(line, plain, plain.tenth() == place)
    assert together["group"] == "groups of fewer than 20 rows"
    check(together, plain, ~np.isin(plain.tenth(), large))
    assert sum(g["synthetic_rows"] for g in found.details["by_isolation"]) == pytest.approx(170)


def check(line: dict[str, Any], plain: Plain, members: np.ndarray) -> None:
    total, in_train = plain.share(members)
    assert line["n_train"] == int((members & plain.train).sum())
    assert line["n_holdout"] == int((members & ~plain.train).sum())
    assert line["synthetic_rows"] == pytest.approx(total, abs=1e-6)
    assert line["share"] == pytest.approx(in_train / total, abs=1e-9)
    pi = 120 / 210
    assert line["excess"] == pytest.approx((in_train / total - pi) / (1 - pi), abs=1e-9)
    mine, theirs = plain.nearest[members & plain.train], plain.nearest[members & ~plain.train]
    auc = np.mean((mine[:, None] < theirs) + 0.5 * (mine[:, None] == theirs))
    assert line["auc"] == pytest.approx(auc, abs=0.05)  # of twenty cells


def test_the_p_value_is_that_of_fresh_permutations(found: Any) -> None:
    plain = Plain(world(copies=20))
    rng = np.random.default_rng(1)
    members = (plain.real["sex"] == "f").to_numpy()
    held = np.array([plain.credit[members & rng.permutation(plain.train)].sum() for _ in range(4000)])
    line = next(g for g in found.details["by_group"]["sex"] if g["group"] == "f")
    expected = np.mean(held >= plain.share(members)[1] - 1e-9)
    assert line["p_value"] == pytest.approx(expected, abs=0.02)
    width = np.diff(line["excess_interval"][:2])[0] / 2
    assert width == pytest.approx(1.96 * held.std() / plain.share(members)[0] / (1 - 120 / 210), rel=0.05)


def test_a_leak_of_one_group_is_found_where_it_is() -> None:
    many = daskpriv.evaluate(metrics="subgroups", group_by=["sex"], **world(seed=3, copies=50)).metrics["subgroups"]
    assert many.details["strongest"] == "share, sex: f"
    assert many.p_value is not None
    assert many.p_value < 0.01
    assert many.verdict == "LEAK"
    women, men = many.details["by_group"]["sex"]
    assert women["p_value"] < 0.01 < men["p_value"]


@pytest.mark.parametrize("block_rows", [1, 13])
def test_no_cutting_changes_a_bit(found: Any, block_rows: int) -> None:
    tables = world(copies=20)
    again = daskpriv.evaluate(metrics="subgroups", group_by=["sex", "town"], block_rows=block_rows, **tables)
    assert again.metrics["subgroups"].details == found.details


def test_references_in_several_parts_change_nothing(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of at most 25 rows, each held alone: lists, credits and largest differences are put together again."""
    tables = world(copies=20)
    names = ["subgroups", "exposure"]
    whole = daskpriv.evaluate(metrics=names, group_by=["sex", "town"], **tables)
    monkeypatch.setattr(plan, "_LARGEST_PART", 25)
    monkeypatch.setattr(plan, "_LARGEST_GROUP", 25)
    parts = daskpriv.evaluate(metrics=names, group_by=["sex", "town"], block_rows=40, **tables)
    assert parts.metrics["subgroups"].details == found.details
    assert parts.metrics["exposure"].details == whole.metrics["exposure"].details
    assert parts.run["tasks"] > 2 * whole.run["tasks"]


def test_groups_bring_their_metric_along() -> None:
    report = daskpriv.evaluate(group_by=["sex"], **world())
    assert "subgroups" in report.metrics
    assert "subgroups" not in daskpriv.evaluate(**world()).metrics


def test_ordinal_columns_are_groups(tmp_path: Any) -> None:
    tables = world()
    path = tmp_path / "schema.yaml"
    kinds = ("x: numeric", "y: numeric", "sex: {kind: ordinal, levels: [m, f]}", "town: nominal")
    path.write_text("\n".join(["daskpriv_schema: 1", "columns:", *(f"  {k}" for k in kinds)]))
    plain = daskpriv.evaluate(metrics="subgroups", group_by=["sex"], schema=str(path), **tables)
    lines = plain.metrics["subgroups"].details["by_group"]["sex"]
    real = pd.concat([tables[TRAIN], tables[HOLDOUT]])
    assert {g["group"]: g["n_train"] + g["n_holdout"] for g in lines} == real["sex"].value_counts().to_dict()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("sex", "give a list"),
        (["no"], "'no' is not among"),
        (["x"], "'x' has no list of categories"),
    ],
)
def test_what_is_no_group_is_told(columns: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        daskpriv.evaluate(group_by=columns, **world())


def test_too_many_groups_are_told() -> None:
    tables = {n: t.assign(code=[f"c{i % 120}" for i in range(len(t))]) for n, t in world().items()}
    with pytest.raises(InputError, match="too many"):
        daskpriv.evaluate(group_by=["code"], columns=["x", "code"], **tables)


def test_without_a_holdout_nothing_is_compared() -> None:
    tables = world()
    del tables["holdout"]
    result = daskpriv.evaluate(group_by=["sex"], **tables).metrics["subgroups"]
    assert result.verdict == "NOT_EVALUATED"
    assert "holdout" in result.reading
