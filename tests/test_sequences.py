"""Event tables: flat rows against plain pandas, what must not change them, and the whole run on them."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import daskpriv
from daskpriv.cli import cli
from daskpriv.engine.executor import Serial, Threads
from daskpriv.errors import InputError, PlanError
from daskpriv.events import StageStarted
from daskpriv.flattening import flattened
from daskpriv.prepare import Columns
from daskpriv.report.shareable import shareable
from daskpriv.runs import Place
from daskpriv.sequences import EventTables, Sequencing
from daskpriv.tables.open import open_table

_ALL = 2**64 - 1


def scrambled(x: int) -> int:
    """splitmix64, in plain integers."""
    z = (x + 0x9E3779B97F4A7C15) & _ALL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)


def by_hand(events: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Flat rows of events with whole-number keys and no ties, subject by subject."""
    out = []
    for who, mine in events.groupby("who"):
        mine = mine.sort_values("day")
        drawn = scrambled(scrambled(int(who)) ^ scrambled(seed)) % max(len(mine) - 1, 1)
        this = mine.iloc[drawn]
        following = mine.iloc[drawn + 1] if len(mine) > 1 else this * np.nan
        row = {"who": who, "x": this["x"], "y": this["y"], "next_x": following["x"], "next_y": following["y"]}
        out.append({**row, "sequence_length": len(mine), "hash": scrambled(int(who))})
    return pd.DataFrame(out).sort_values("hash").drop(columns="hash").reset_index(drop=True)


def events(seed: int, subjects: int = 60, longest: int = 6, first: int = 0) -> pd.DataFrame:
    """Events of `subjects` people, no two of one person on one day, in random order."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, subjects)
    frame = pd.DataFrame(
        {
            "who": np.repeat(np.arange(first, first + subjects), lengths),
            "day": np.concatenate([rng.permutation(50)[:n] for n in lengths]),
            "x": rng.integers(0, 5, lengths.sum()).astype(float),
            "y": rng.normal(size=lengths.sum()).round(2),
        }
    )
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def flat(table: Any, seed: int = 0, executor: Any = None, subjects: Any = None, place: Place | None = None) -> pa.Table:
    """The flat rows of one table."""
    asked = Sequencing.of("who", "day", None if subjects is None else {"train": subjects})
    tables = {"train": open_table(table, "train")}
    opened = EventTables.of(asked, tables, Columns())
    with flattened(opened, tables, executor or Serial(), place or Place(), seed) as found:
        made = found.tables["train"]
        return pa.concat_tables(p.read(made.schema.names) for p in made.parts(10**6)).combine_chunks()


# ---------------------------------------------------------------------------------------------- flat rows


def test_flat_rows_are_those_of_plain_pandas() -> None:
    held = events(1)
    for seed in (0, 7, _ALL):
        pd.testing.assert_frame_equal(flat(held, seed).to_pandas(), by_hand(held, seed))


def test_flat_rows_of_the_smallest_table() -> None:
    held = pd.DataFrame({"who": ["a", "b", "b"], "day": [1, 5, 2], "shop": ["x", "y", "z"]})
    found = {row["who"]: row for row in flat(held).to_pylist()}
    assert found["a"] == {"who": "a", "shop": "x", "next_shop": None, "sequence_length": 1}
    assert found["b"] == {"who": "b", "shop": "z", "next_shop": "y", "sequence_length": 2}


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 30))
@settings(max_examples=15)
def test_no_layout_changes_flat_rows(seed: int, lanes: int, rows: int) -> None:
    """Order of rows, sizes of parts, number of lanes; with ties, copies of events and missing cells."""
    rng = np.random.default_rng(seed)
    held = events(seed % 1000, subjects=20)
    held["day"] //= 10
    held["x"] = held["x"].mask(rng.random(len(held)) < 0.2)
    held = pd.concat([held, held.sample(5, random_state=1)])
    expected = flat(held)
    shuffled = held.sample(frac=1, random_state=seed % 99)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskpriv.engine.flattening.lane_count", lambda *_: lanes)
        patch.setattr("daskpriv.sequences.READ_ROWS", rows)
        assert flat(shuffled).equals(expected)


@pytest.mark.parametrize("lanes", [1, 5])
def test_no_way_of_storing_changes_flat_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    """Files, row groups, dictionaries, integer widths; and flat rows in files of their own."""
    monkeypatch.setattr("daskpriv.engine.flattening.lane_count", lambda *_: lanes)
    held = events(3, subjects=50)
    held["shop"] = np.where(held["x"] > 2, "a", "b")
    expected = flat(held)
    held.astype({"who": "int16"}).head(70).to_parquet(tmp_path / "a.parquet", row_group_size=20)
    held.astype({"shop": "category"}).iloc[70:].to_parquet(tmp_path / "b.parquet", index=False, row_group_size=33)
    found = flat(str(tmp_path))
    assert found.drop_columns("who").equals(expected.drop_columns("who"))
    assert found.column("who").to_pylist() == expected.column("who").to_pylist()
    monkeypatch.setattr("daskpriv.flattening.IN_MEMORY", 0)
    assert flat(held).cast(expected.schema).equals(expected)


def test_keys_are_the_same_however_they_are_stored() -> None:
    held = events(4)
    expected = flat(held).drop_columns("who")
    assert flat(held.astype({"who": "float64"})).drop_columns("who").equals(expected)
    named = held.astype({"who": "str"})
    assert flat(named).equals(flat(pa.Table.from_pandas(named.astype({"who": "category"}), preserve_index=False)))


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("us", "UTC"),
        pa.date32(),
        pa.time32("s"),
        pa.duration("ms"),
        pa.uint64(),
        pa.float32(),
        pa.decimal128(30, 2),
    ],
)
def test_order_columns_of_any_sortable_type(kind: pa.DataType) -> None:
    held = pa.Table.from_pandas(events(5), preserve_index=False)
    days = held.column("day").cast("int32" if kind in (pa.date32(), pa.time32("s")) else "int64")
    assert flat(held.set_column(1, "day", days.cast(kind))).equals(flat(held))


def test_the_drawn_event_is_uniform() -> None:
    """20 000 subjects of five events: each of the first four is drawn equally often (fixed seeds)."""
    held = pd.DataFrame({"who": np.repeat(np.arange(20_000), 5), "day": np.tile(np.arange(5), 20_000)})
    held["x"] = held["day"]
    for seed in (0, 1):
        found = flat(held, seed).to_pandas()
        assert (found["next_x"] == found["x"] + 1).all()
        counts = np.bincount(found["x"], minlength=4)
        assert len(counts) == 4
        assert stats.chisquare(counts).pvalue > 0.001
    assert not flat(held, 0).equals(flat(held, 1))


def test_events_at_the_same_time_come_in_any_order_equally_often() -> None:
    """Three events at once, two drawn in succession: all six pairs, whatever their names sort like."""
    held = pd.DataFrame({"who": np.repeat(np.arange(12_000), 3), "day": 1, "x": np.tile(["a", "b", "c"], 12_000)})
    found = flat(held).to_pandas()
    counts = found.groupby(["x", "next_x"]).size()
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.001


def test_infinite_times_and_files_of_two_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events at minus infinity come first, two at once in a drawn order; a file that does not fit is told."""
    held = pd.DataFrame({"who": [1, 1, 1, 2], "day": [-np.inf, 5.0, -np.inf, 1.0], "x": [1, 2, 3, 4]})
    found = flat(held).to_pandas()
    assert found["next_x"][found["who"] == 1].item() in {1, 2, 3}
    pd.DataFrame({"who": [1, 1], "day": [1, 2], "x": [2**60 + 1, 3]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"who": [2, 2], "day": [1, 2], "x": [0.5, 3]}).to_parquet(tmp_path / "b.parquet")
    monkeypatch.setattr("daskpriv.sequences.READ_ROWS", 2)
    with pytest.raises(InputError, match=r"^train: column 'x' holds values that do not fit double"):
        flat(str(tmp_path))


def test_attributes_are_joined_by_key(tmp_path: Path) -> None:
    held = events(6)
    people = pd.DataFrame({"who": np.arange(60.0), "age": np.arange(60) + 20, "city": ["Graz", "Linz"] * 30})
    people.sample(frac=1, random_state=2).to_csv(tmp_path / "people.csv", index=False)
    found = flat(held, subjects=str(tmp_path / "people.csv")).to_pandas()
    assert list(found.columns) == ["who", "age", "city", "x", "y", "next_x", "next_y", "sequence_length"]
    assert (found["age"] == found["who"] + 20).all()
    plain = flat(held).to_pandas()
    pd.testing.assert_frame_equal(found[plain.columns], plain)


# ---------------------------------------------------------------------------------------------- the whole run


def world(**changes: Any) -> dict[str, Any]:
    """Three event tables; the first subjects of the synthetic one are copies of training subjects."""
    train, holdout, synthetic = events(1, 80), events(2, 70, first=1000), events(3, 90, first=2000)
    copied = train[train["who"] < 12].assign(who=lambda t: t["who"] + 5000)
    tables = {"train": train, "holdout": holdout, "synthetic": pd.concat([synthetic, copied], ignore_index=True)}
    for table in tables.values():
        table["shop"] = np.where(table["x"] > 2, "a", "b")
    return {**tables, **changes}


def told(report: daskpriv.Report) -> dict[str, Any]:
    """What must not depend on how the work is cut."""
    whole = report.to_dict()
    for table in whole["inputs"]["tables"].values():
        del table["source"], table["files"], table["bytes"]
    return dict(json.loads(json.dumps({k: v for k, v in whole.items() if k not in ("run", "daskpriv")})))


OPTIONS: dict[str, Any] = {"subject_key": "who", "order_by": "day"}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return told(daskpriv.evaluate(**world(), **OPTIONS))


def test_metrics_see_one_row_per_subject(plain: dict[str, Any]) -> None:
    assert {n: t["rows"] for n, t in plain["inputs"]["tables"].items()} == {
        "train": 80,
        "holdout": 70,
        "synthetic": 102,
    }
    compared = [c["name"] for c in plain["space"]["columns"]]
    assert compared == ["x", "y", "shop", "next_x", "next_y", "next_shop", "sequence_length"]
    assert plain["metrics"]["dcr_share"]["expected"] == 80 / 150
    assert plain["metrics"]["dcr_share"]["details"]["test"].startswith("permutation of subjects")


def test_the_share_is_that_of_flat_rows_made_by_hand(plain: dict[str, Any]) -> None:
    tables = {n: by_hand(t.drop(columns="shop"), 0) for n, t in world().items()}
    for table in tables.values():
        table.insert(3, "shop", np.where(table["x"] > 2, "a", "b"))
        following = pd.Series(np.where(table["next_x"] > 2, "a", "b"), dtype=object)
        table.insert(6, "next_shop", following.where(table["next_x"].notna(), None))
    report = told(daskpriv.evaluate(**tables, subject_key="who"))
    assert report["metrics"] == {n: m for n, m in plain["metrics"].items() if n != "sequences"}


@pytest.mark.parametrize("in_memory", [0, 2**40])
def test_no_way_of_working_changes_a_report(
    plain: dict[str, Any], cluster: Callable[[int], Client], tmp_path: Path, monkeypatch: Any, in_memory: int
) -> None:
    """Lanes, files of flat rows, blocks, order of events, worker processes."""
    monkeypatch.setattr("daskpriv.flattening.IN_MEMORY", in_memory)
    monkeypatch.setattr("daskpriv.engine.flattening.lane_count", lambda *_: 3)
    for name, table in world().items():
        (tmp_path / name).mkdir()
        for i, piece in enumerate(np.array_split(np.random.default_rng(0).permutation(len(table)), 3)):
            table.iloc[piece].to_parquet(tmp_path / name / f"{i}.parquet", index=False, row_group_size=17)
    paths = {name: str(tmp_path / name) for name in world()}
    assert told(daskpriv.evaluate(**paths, **OPTIONS, block_rows=13)) == plain
    stored = {"client": cluster(2), "output": tmp_path / "out"}
    assert told(daskpriv.evaluate(**paths, **OPTIONS, **stored)) == plain
    assert not (tmp_path / "out" / "runs").exists()


def test_flat_rows_in_files_are_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.flattening.IN_MEMORY", 0)
    seen: dict[Path, int] = {}

    def look(event: Any) -> None:
        if isinstance(event, StageStarted) and event.stage == "read train":
            seen.update({p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out" / "runs").rglob("*")})

    def fail(*_: Any, **__: Any) -> None:
        raise InputError("broken on purpose")

    daskpriv.evaluate(**world(), **OPTIONS, output=tmp_path / "out", progress=look)
    assert sum(p.suffix == ".parquet" for p in seen) == 3
    assert {mode for p, mode in seen.items() if p.suffix} == {0o600}
    assert {mode for p, mode in seen.items() if p.suffix == "" and p.name != "open"} == {0o700}
    assert not (tmp_path / "out" / "runs").exists()
    monkeypatch.setattr(sys.modules["daskpriv.evaluate"], "measured", fail)
    with pytest.raises(InputError, match="on purpose"):
        daskpriv.evaluate(**world(), **OPTIONS, output=tmp_path / "out", store=tmp_path / "store")
    assert not list((tmp_path / "store").rglob("*-*.parquet"))


def test_what_a_killed_run_left_is_removed_by_runs_clean(tmp_path: Path) -> None:
    """The same command again would remove it, too: it finds the same folder."""
    for name, table in world().items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    program = """
import os, sys, daskpriv, daskpriv.flattening
daskpriv.flattening.IN_MEMORY = 0
def look(event):
    if getattr(event, "stage", "") == "read train":
        os._exit(9)
tables = {n: f"{sys.argv[1]}/{n}.parquet" for n in ("train", "holdout", "synthetic")}
daskpriv.evaluate(**tables, subject_key="who", order_by="day", store=sys.argv[1] + "/store", progress=look)
"""
    store = tmp_path / "store"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False)
        assert done.returncode == 9, done.stderr.decode()
        assert len(list(store.rglob("*-*.parquet"))) == 3
    assert CliRunner().invoke(cli, ["runs", "clean", "--store", str(store), "--all"]).exit_code == 0
    assert not list(store.rglob("*"))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"exclude": ["y"]}, ["x", "shop", "next_x", "next_shop", "sequence_length"]),
        ({"exclude": ["next_y", "sequence_length", "day"]}, ["x", "y", "shop", "next_x", "next_shop"]),
        ({"columns": ["x", "shop"]}, ["x", "next_x", "shop", "next_shop"]),
        ({"columns": ["x", "next_shop"]}, ["x", "next_x", "next_shop"]),
    ],
)
def test_a_column_of_events_stands_for_both_events(options: dict[str, Any], names: list[str]) -> None:
    report = daskpriv.evaluate(**world(), **OPTIONS, metrics=["dcr"], **options).to_dict()
    assert [c["name"] for c in report["space"]["columns"]] == names


def test_schemas_and_weights_are_told_of_event_columns() -> None:
    schema = daskpriv.Schema.from_yaml(
        "daskpriv_schema: 1\ncolumns: {who: id, day: numeric, x: nominal, y: numeric, shop: nominal}\n"
    )
    report = daskpriv.evaluate(**world(), **OPTIONS, metrics=["dcr"], schema=schema, weights={"y": 3.0, "next_y": 0.5})
    daskpriv.evaluate(**world(), **OPTIONS, metrics=["dcr"], weights={"y": 3.0}, exclude=["y"])
    told = {c["name"]: (c["kind"], c["weight"]) for c in report.to_dict()["space"]["columns"]}
    assert told["x"] == told["next_x"] == ("nominal", 1.0)
    assert (told["y"], told["next_y"]) == (("numeric", 3.0), ("numeric", 0.5))
    assert told["sequence_length"] == ("numeric", 1.0)


def test_groups_and_internal_files_are_of_subjects(tmp_path: Path) -> None:
    report = daskpriv.evaluate(**world(), **OPTIONS, group_by=["shop"], internal=True, output=tmp_path).to_dict()
    assert {g["group"] for g in report["metrics"]["subgroups"]["details"]["by_group"]["shop"]} >= {"a", "b"}
    rows = pq.read_table(tmp_path / "internal" / "real_rows.parquet").to_pandas()
    assert rows.groupby("table", observed=True)["row"].max().to_dict() == {"holdout": 69, "train": 79}


def test_a_subject_on_both_sides_is_a_broken_gate() -> None:
    held = world()
    held["holdout"].loc[held["holdout"]["who"] == 1000, "who"] = 3
    gates = daskpriv.evaluate(**held, **OPTIONS, metrics=["dcr_share"]).to_dict()["gates"]
    assert not next(g for g in gates if g["name"] == "subjects are on one side")["passed"]


def test_subjects_without_events_and_cells_that_do_not_fit_are_told(tmp_path: Path) -> None:
    held = world()
    people = {n: pd.DataFrame({"who": t["who"].unique(), "age": 30}) for n, t in held.items()}
    people["train"] = pd.concat([people["train"], pd.DataFrame({"who": [7777], "age": [5]})])
    text = held["synthetic"].astype({"x": "str"})
    text.loc[[1, 2], "x"] = "what?"
    text.to_csv(tmp_path / "synthetic.csv", index=False)
    held["synthetic"] = tmp_path / "synthetic.csv"
    report = daskpriv.evaluate(**held, **OPTIONS, subjects=people, metrics=["dcr"]).to_dict()
    assert any(w.startswith("train-subjects: 1 subject(s) without an event") for w in report["warnings"])
    assert any(w.startswith("synthetic: column 'x': 2 of ") for w in report["warnings"])
    assert "age" in [c["name"] for c in report["space"]["columns"]]


# ---------------------------------------------------------------------------------------------- the metric


def cut(values: pd.Series, train: pd.Series) -> pd.Series:
    """Bucket of each number: intervals (a, b] between deciles of train, the first one closed; other; missing."""
    edges = np.unique(np.quantile(train.dropna(), np.linspace(0, 1, 11), method="linear"))
    found = pd.cut(values, edges, include_lowest=True, labels=[f"bucket {i}" for i in range(len(edges) - 1)])
    return found.astype(object).where(found.notna(), np.where(values.isna(), "missing", "other"))


def top(values: pd.Series, train: pd.Series) -> pd.Series:
    """The nine commonest categories of train (the smaller first among equals), the others, missing."""
    counts = train.value_counts().reset_index()
    counts.columns = ["value", "n"]
    kept = counts.sort_values(["n", "value"], ascending=[False, True])["value"].head(9)
    return values.where(values.isin(kept), "other").where(values.notna(), "missing")


def apart(a: pd.Series, b: pd.Series) -> float:
    """Total variation distance of two columns of values."""
    p, q = a.astype(str).value_counts(normalize=True), b.astype(str).value_counts(normalize=True)
    return float(p.subtract(q, fill_value=0).abs().sum() / 2)


def levels(values: pd.Series, train: pd.Series) -> pd.Series:
    """Whole numbers in buckets that end at deciles of train; less than all of them is another one."""
    edges = np.unique(np.quantile(train, np.linspace(0, 1, 11)))
    return pd.Series(np.searchsorted(edges, values)).where(values.to_numpy() >= edges[0], -1)


def by_pandas(held: dict[str, pd.DataFrame], role: str, name: str, bucket: Any, plain: Any = None) -> dict[str, float]:
    """What the metric says of a column of one table against train, from events and flat rows; `plain` as numbers."""
    plain = plain or (lambda values: values)
    rows = {n: flat(held[n]).to_pandas() for n in (role, "train")}
    train = plain(rows["train"][name])
    coded = {n: held[n].assign(code=bucket(plain(held[n][name]), train)) for n in (role, "train")}
    distinct = {n: t.groupby("who")["code"].nunique() for n, t in coded.items()}
    once = {n: t.drop_duplicates(["who", "code"])["code"] for n, t in coded.items()}
    pairs = {}
    for n, t in rows.items():
        this, following = (bucket(plain(t[c]), train) for c in (name, f"next_{name}"))
        pairs[n] = this.astype(str) + "," + following.where(t["sequence_length"] > 1, "none").astype(str)
    return {
        "categories_per_sequence": apart(*(levels(distinct[n], distinct["train"]) for n in (role, "train"))),
        "sequences_per_category": apart(once[role], once["train"]),
        "coherence": apart(pairs[role], pairs["train"]),
    }


def test_the_metric_is_that_of_plain_pandas(plain: dict[str, Any]) -> None:
    held = world()
    for role, key in (("synthetic", "synthetic"), ("holdout", "reference_holdout")):
        found = plain["metrics"]["sequences"]["details"][key]
        lengths = {n: t.groupby("who").size() for n, t in held.items()}
        tvd = apart(*(levels(lengths[n], lengths["train"]) for n in (role, "train")))
        assert found["length"]["tvd"] == pytest.approx(tvd, abs=1e-12)
        for column in found["columns"]:
            name = column["column"]
            for aspect, tvd in by_pandas(held, role, name, top if name == "shop" else cut).items():
                assert column[aspect]["tvd"] == pytest.approx(tvd, abs=1e-12)
        for aspect in ("categories_per_sequence", "sequences_per_category", "coherence"):
            mean = np.mean([c[aspect]["accuracy"] for c in found["columns"]])
            assert found["averages"][aspect]["accuracy"] == pytest.approx(mean, abs=1e-12)


def test_the_metric_knows_every_kind_of_column() -> None:
    """Times, truth values, levels, wide integers; with missing cells."""
    levels_of = ["low", "mid", "high"]
    rng, held = np.random.default_rng(4), world()
    for name, table in held.items():
        n = len(table)
        table["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 40, n), unit="D")
        table["flag"] = pd.array(rng.random(n) < 0.3, "boolean")
        table["level"] = rng.choice(levels_of, n)
        table["wide"] = pd.array(2**60 + 2**40 * rng.integers(0, 30, n), "Int64")
        gaps = rng.random(n) < 0.1
        held[name] = table.drop(columns=["x", "y", "shop"]).mask(
            pd.DataFrame({c: gaps & (c not in ("who", "day")) for c in table.columns if c not in ("x", "y", "shop")})
        )
    schema = daskpriv.Schema.from_yaml(
        "daskpriv_schema: 1\ncolumns: {who: id, day: numeric, when: datetime, flag: boolean, "
        "level: {kind: ordinal, levels: [low, mid, high]}, wide: numeric}\n"
    )
    metric = daskpriv.evaluate(**held, **OPTIONS, metrics="sequences", schema=schema).metrics["sequences"]
    plainly: dict[str, Any] = {
        "when": lambda v: (v - pd.Timestamp("2026-01-01")) / pd.Timedelta(days=1),
        "level": lambda v: v.map({name: float(i) for i, name in enumerate(levels_of)}),
        "wide": lambda v: v.astype("Float64").astype(float),
        "flag": lambda v: v.map({True: "yes", False: "no"}),
    }
    found = metric.details["synthetic"]["columns"]
    assert {c["column"] for c in found} == set(plainly)
    for column in found:
        name = column["column"]
        for aspect, tvd in by_pandas(held, "synthetic", name, top if name == "flag" else cut, plainly[name]).items():
            assert column[aspect]["tvd"] == pytest.approx(tvd, abs=1e-12), (name, aspect)


def test_the_metric_describes_each_table(plain: dict[str, Any]) -> None:
    metric, held = plain["metrics"]["sequences"], world()["train"]
    lengths = held.groupby("who").size()
    assert metric["verdict"] == "NOT_EVALUATED"
    assert metric["value"] == metric["details"]["synthetic"]["averages"]["coherence"]["accuracy"]
    told = metric["details"]["tables"]["train"]
    assert (told["subjects"], told["events"], told["single"]) == (80, len(held), int((lengths == 1).sum()))
    assert told["length"]["mean"] == pytest.approx(lengths.mean())
    assert told["length"]["q75"] == pytest.approx(lengths.quantile(0.75))


def test_values_that_no_flat_row_has_are_not_missing() -> None:
    """A category that was never drawn counts as a value of its own, and among the others; it is not a missing cell."""
    held = pd.DataFrame({"who": np.repeat(np.arange(40), 2), "day": np.tile([0, 1], 40), "x": "a"})
    rare = pd.concat([held, pd.DataFrame({"who": np.arange(40), "day": 2, "x": [f"rare{i}" for i in range(40)]})])
    drawn = flat(rare).to_pandas()
    never = set(rare["x"]) - set(drawn["x"])
    assert len(never) > 10
    metric = daskpriv.evaluate(rare, held, held, **OPTIONS, metrics="sequences").metrics["sequences"]
    column = metric.details["synthetic"]["columns"][0]
    assert column["categories_per_sequence"]["tvd"] == 1.0  # all sequences of train hold two values, of synthetic one
    assert column["sequences_per_category"]["tvd"] == pytest.approx(0.5)


def test_an_honest_table_scores_about_what_is_expected() -> None:
    train, other = events(11, 3000), events(12, 2000, first=9000)
    metric = daskpriv.evaluate(train, other, **OPTIONS, metrics="sequences").metrics["sequences"]
    for aspect in ("length", "categories_per_sequence", "coherence"):
        found = metric.details["synthetic"]["averages"][aspect]
        assert abs(found["accuracy"] - found["expected"]) < 0.02
    shuffled = other.assign(y=0.0)
    worse = daskpriv.evaluate(train, shuffled, **OPTIONS, metrics="sequences").metrics["sequences"]
    assert worse.value < worse.expected - 0.2
    copied = daskpriv.evaluate(train, train, **OPTIONS, metrics="sequences").metrics["sequences"]
    assert copied.value == 1.0


def test_rows_that_are_no_events_have_no_sequences() -> None:
    held = {n: t.drop(columns=["who", "day"]) for n, t in world().items()}
    assert "sequences" not in daskpriv.evaluate(**held, metrics="all").metrics
    with pytest.raises(InputError, match="metrics: 'sequences' is about events"):
        daskpriv.evaluate(**held, metrics=["sequences"])


# ---------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("allocator", ["mimalloc", "system"])
def test_memory_is_bounded_by_the_slot_not_by_the_table(tmp_path: Path, allocator: str) -> None:
    """90 MB of events in eight files pass through units of 64 MB: after the first file memory grows by no more."""
    rng = np.random.default_rng(0)
    size = 0
    for i in range(8):
        n = 200_000
        table = pa.table({"who": rng.integers(0, 160_000, n), "day": rng.integers(0, 10**9, n)})
        for name in ("a", "b", "c", "d", "e"):
            table = table.append_column(name, pa.array(rng.normal(size=n)))
        size += table.nbytes
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=50_000, compression="none")
    program = """
import sys
import pyarrow
from daskpriv.engine.executor import Serial, peak_memory
from daskpriv.prepare import Columns
from daskpriv.report.shareable import shareable
from daskpriv.runs import Place
from daskpriv import flattening
from daskpriv.sequences import EventTables, Sequencing
from daskpriv.tables.open import open_table
class Limited(Serial):
    memory_per_slot = 64 << 20
flattening.IN_MEMORY = 0
for source in (sys.argv[1] + "/0.parquet", sys.argv[1]):
    before = peak_memory()
    tables = {"train": open_table(source, "train")}
    opened = EventTables.of(Sequencing("who", "day"), tables, Columns())
    with flattening.flattened(opened, tables, Limited(), Place(), 0) as found:
        told = peak_memory() - before, found.tables["train"].rows, len(found.events["train"][1])
pool = pyarrow.default_memory_pool()
print(*told, pool.max_memory(), pool.backend_name)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": allocator}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    *numbers, used = done.stdout.split()
    assert used == allocator
    grown, rows, lanes, held = map(int, numbers)
    assert lanes > 5
    assert rows > 150_000
    assert size > 89e6
    assert held < 64 << 20, held  # what Arrow counts: the same on every machine
    assert grown < 64 << 20, grown  # what allocators make of it: 20 to 36 MB here


# ---------------------------------------------------------------------------------------------- bad input


def changed(**columns: Any) -> dict[str, Any]:
    """The world, with other columns in its training table; None drops one."""
    held = world()
    for name, values in columns.items():
        held["train"] = held["train"].drop(columns=name) if values is None else held["train"].assign(**{name: values})
    return held


def people(**changes: Any) -> dict[str, Any]:
    return {n: changes.get(n, pd.DataFrame({"who": t["who"].unique(), "age": 30})) for n, t in world().items()}


@pytest.mark.parametrize(
    ("tables", "options", "says"),
    [
        ({}, {"subject_key": None}, "order_by: name the column that says whose event it is"),
        ({}, {"order_by": None, "subjects": {"train": "x.csv"}}, "subjects: they belong to event tables"),
        ({}, {"order_by": "who"}, "order_by: 'who' is the subject key"),
        ({}, {"order_by": ["day"]}, "order_by: give the name of one column"),
        ({}, {"subjects": ["x.csv"]}, "subjects: give a mapping"),
        ({}, {"subjects": {"test": "x.csv"}}, "subjects: give a mapping"),
        ({}, {"subjects": {"train": pd.DataFrame({"who": [1]})}}, "subjects: give a table of subjects for each of"),
        (changed(day=None), {}, "order_by: train has no column 'day'"),
        (changed(who=None), {}, "subject_key: train has no column 'who'"),
        ({"synthetic": events(1).drop(columns="who")}, {}, "subject_key: synthetic has no column 'who'"),
        (changed(day="monday"), {}, "column 'day' of train holds category values, which have no order"),
        (changed(day=True), {}, "column 'day' of train holds boolean values"),
        (changed(day=[None, *range(len(world()["train"]) - 1)]), {}, "train: column 'day' has missing values"),
        (changed(day=float("nan")), {}, "train: column 'day' has missing values"),
        (changed(who=[None, *range(len(world()["train"]) - 1)]), {}, "train: column 'who' has missing values"),
        (changed(who=1.5), {}, "train: column 'who' holds numbers that are not whole"),
        (
            changed(who=pd.Timestamp("2020-01-01")),
            {},
            "column 'who' of train holds localtime values, which name nobody",
        ),
        (changed(who="a"), {}, "'who' is category in train but number in holdout"),
        (changed(next_x=1), {}, "train: a flat row would hold column 'next_x' twice"),
        (changed(sequence_length=1), {}, "train: a flat row would hold column 'sequence_length' twice"),
        (changed(who=5), {}, r"train: 1 row\(s\), this evaluation needs at least 2"),
        ({}, {"columns": ["day", "x"]}, "columns: 'day' is the order column"),
        ({}, {"weights": {"day": 2.0}}, "weights: 'day' is the order column"),
        ({}, {"exclude": ["nothing"]}, "exclude: train has no column 'nothing'"),
        ({}, {"group_by": ["day"]}, "group_by: column 'day' is not among the columns"),
        ({}, {"subjects": people(train=pd.DataFrame({"age": [1]}))}, "train-subjects has no column 'who'"),
        (
            {},
            {"subjects": people(train=pd.DataFrame({"who": pd.Series([], dtype="int64"), "age": []}))},
            "train-subjects: the table has no rows",
        ),
        (
            {},
            {"subjects": people(train=pd.DataFrame({"who": [1, 1], "age": [1, 2]}))},
            "train-subjects: column 'who' names a subject twice",
        ),
        (
            {},
            {"subjects": people(holdout=pd.DataFrame({"who": [1000], "age": [1]}))},
            "holdout-subjects: column 'who' lacks a subject of holdout",
        ),
        (
            {},
            {"subjects": people(train=pd.DataFrame({"who": ["a"], "age": [1]}))},
            "column 'who' is number in train but category in train-subjects",
        ),
        (
            {},
            {"subjects": people(train=pd.DataFrame({"who": [1], "x": [1]}))},
            "train: a flat row would hold column 'x' twice",
        ),
    ],
)
def test_bad_input_is_one_sentence(tables: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        daskpriv.evaluate(**{**world(), **tables}, **{**OPTIONS, **options})
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_bad_input_found_by_a_worker_is_the_same_sentence(cluster: Callable[[int], Client]) -> None:
    with pytest.raises(InputError, match=r"^train: column 'day' has missing values; fill them or drop those rows\.$"):
        daskpriv.evaluate(**changed(day=float("nan")), **OPTIONS, client=cluster(2))


def test_sequences_of_one_event_only_are_compared_without_a_next_one() -> None:
    held = {n: t.drop_duplicates("who") for n, t in world().items()}
    report = daskpriv.evaluate(**held, **OPTIONS, metrics=["dcr", "clones"]).to_dict()
    missing = {c["name"]: c["missing"]["train"] for c in report["space"]["columns"]}
    assert missing["next_x"] == missing["next_shop"] == 80
    assert missing["x"] == 0


# ---------------------------------------------------------------------------------------------- command line


def test_from_the_command_line(tmp_path: Path, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("daskpriv.cli.evaluate.client_for", lambda _: nullcontext())  # threads start faster
    for name, table in world().items():
        table.to_parquet(f"{name}.parquet")
    tables = [x for n in ("train", "holdout", "synthetic") for x in (f"--{n}", f"{n}.parquet")]
    options = [*tables, "--subject-key", "who", "--order-by", "day"]
    planned = CliRunner().invoke(cli, ["plan", *options, "--json"])
    read = json.loads(planned.stdout)["sequences"]
    assert [(r["name"], r["lanes"]) for r in read] == [("train", 1), ("holdout", 1), ("synthetic", 1)]
    assert read[0]["events"] == read[0]["rows"] == len(world()["train"])
    assert "read 1 time(s)" in CliRunner().invoke(cli, ["plan", *options]).stdout
    kept = ["--store", "store", "--quiet", "--output"]
    assert CliRunner().invoke(cli, ["evaluate", *options, *kept, "out"]).exit_code == 0
    written = json.loads(Path("out/report.json").read_text())
    assert written["metrics"] == shareable(plain)["metrics"]
    assert written["settings"]["order_by"] == "day"
    resumed = CliRunner().invoke(cli, ["evaluate", *options, *kept, "again"])
    assert resumed.exit_code == 0
    again = json.loads(Path("again/report.json").read_text())
    assert again["metrics"] == written["metrics"]
    assert again["run"]["pieces_used_again"] > 0


def test_the_documentation_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables can be made, its commands work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("daskpriv.cli.evaluate.client_for", lambda _: nullcontext())  # threads start faster
    page = (Path(__file__).parent.parent / "docs" / "sequences.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "sequences.md", "exec"), {})
    commands = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        done = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    columns = [c["name"] for c in json.loads(Path("people/report.json").read_text())["space"]["columns"]]
    assert columns == ["age", "ward", "cost", "next_ward", "next_cost", "sequence_length"]


def test_flat_rows_that_no_worker_could_write_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.flattening.IN_MEMORY", 0)
    with pytest.raises(PlanError, match=r"workers do not reach the store .*; name a place that all machines see"):
        flat(events(1), place=Place(str(tmp_path), reachable=False))
    assert not list(tmp_path.iterdir())


def test_threads_give_the_same_rows() -> None:
    held = events(8, 300)
    executor = Threads(3)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("daskpriv.engine.flattening.lane_count", lambda *_: 7)
            assert flat(held, executor=executor).equals(flat(held))
    finally:
        executor.close()
