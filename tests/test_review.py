"""Faults that were found by reading, each kept from coming back."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import daskpriv
from daskpriv.engine.executor import Serial
from daskpriv.engine.plan import Layout, check_memory
from daskpriv.engine.run import Engine
from daskpriv.metrics import Dcr, DcrShare
from daskpriv.prepare import Columns, encode, survey
from daskpriv.tables.open import open_table


def clones(train: Any, synthetic: Any) -> int:
    report = daskpriv.evaluate(train=train, synthetic=synthetic, metrics=["clones"])
    return int(report.metrics["clones"].details["n_synthetic_train"])


def test_partition_folders_are_decoded(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(40), "city": ["New York", "Sao P\u00e3o", None, "Wien"] * 10})
    pq.write_to_dataset(pa.Table.from_pandas(frame), tmp_path / "t", partition_cols=["city"])
    assert clones(frame, tmp_path / "t") == 40


def test_single_precision_survives_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.random.default_rng(0).random(200).astype("float32")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert clones(frame, tmp_path / "t.csv") == 200


def test_unsigned_integers_survive_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n9223372036854775809\n9223372036854775811\n")
    nn = daskpriv.nearest_neighbours(tmp_path / "t.csv", tmp_path / "t.csv", k=2)
    assert nn.distance.tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_a_quote_inside_a_csv_cell_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('note,n\n5" pipe,1\n"multi\nline ""x""",2\nz,3\n')
    table = open_table(tmp_path / "t.csv", "train")
    rows = [r for part in table.parts(2) for r in part.read(["note", "n"]).to_pylist()]
    assert rows == [{"note": '5" pipe', "n": 1}, {"note": 'multi\nline "x"', "n": 2}, {"note": "z", "n": 3}]


def test_an_unnamed_csv_column_is_the_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [20, 30, 40] * 10, "2019": range(30)})
    frame.to_csv(tmp_path / "t.csv")
    report = daskpriv.evaluate(train=tmp_path / "t.csv", synthetic=tmp_path / "t.csv")
    assert [c["kind"] for c in report.space["columns"]] == ["id", "numeric", "numeric"]


@pytest.mark.parametrize("mode", ["iqr", "quantile", "rank"])
def test_wide_integers_have_no_quantile_range(mode: str) -> None:
    frame = pd.DataFrame({"a": [2**60, 2**61, 2**62 + 1]})
    with pytest.raises(daskpriv.InputError, match="column 'a': integers beyond"):
        daskpriv.evaluate(train=frame, synthetic=frame, range_from=mode)


@pytest.mark.parametrize("start", [1, 80_001, 83_001])
def test_ids_are_told_by_all_real_tables(start: int) -> None:
    def table(first: int, n: int = 5000) -> pd.DataFrame:
        return pd.DataFrame({"customer_id": range(first, first + n), "x": np.arange(n) % 10})

    report = daskpriv.evaluate(train=table(start), holdout=table(start + 9000), synthetic=table(1), metrics=["clones"])
    assert report.space["columns"][0]["kind"] == "id"
    mostly = table(start)
    mostly["customer_id"] = np.r_[np.arange(4000), np.arange(1000)]
    report = daskpriv.evaluate(train=mostly, holdout=table(start), synthetic=table(1), metrics=["clones"])
    assert report.space["columns"][0]["kind"] == "numeric"


def test_columns_named_on_purpose_are_kept() -> None:
    ids = pd.DataFrame({"customer_id": range(100), "x": [0] * 100})
    assert daskpriv.nearest_neighbours(ids, ids, k=1, columns=["customer_id", "x"]).ties.tolist() == [1] * 100
    left_out = daskpriv.nearest_neighbours(ids, ids, k=1)
    assert left_out.ties.tolist() == [100] * 100
    assert "looks like an id" in left_out.warnings[0]


def test_the_paper_knows_its_holdout_however_it_is_given(adult: Path) -> None:
    holdout = pq.read_table(adult / "holdout.parquet").slice(0, 300)
    train = pq.read_table(adult / "train.parquet").slice(0, 300)
    frames = [holdout, holdout.to_pandas()]
    found = [daskpriv.evaluate(train=train, holdout=holdout, synthetic=f, preset="mostly-paper") for f in frames]
    counts = [r.metrics["dcr_share"].details["n_closer"] for r in found]
    assert counts[0] == counts[1] > 0
    assert any("hold the same rows" in w for w in found[0].warnings)


def test_unseen_is_not_said_of_columns_with_too_many_categories() -> None:
    train = pd.DataFrame({"t": [f"t{i}" for i in range(50_100)], "x": 1})
    report = daskpriv.evaluate(train=train, synthetic=train.head(50), metrics=["clones"])
    assert report.inputs["differences"] == []
    assert report.metrics["clones"].details["n_synthetic_train"] == 50


def test_the_share_alone_without_a_holdout_is_not_evaluated() -> None:
    frame = pd.DataFrame({"a": range(5)})
    report = daskpriv.evaluate(train=frame, synthetic=frame, metrics="dcr_share", fail_on=["leak"])
    assert report.metrics["dcr_share"].verdict == "NOT_EVALUATED"
    assert not report.passed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"metrics": [DcrShare(), DcrShare(ties="half")]}, "'dcr_share' is given twice"),
        ({"metrics": [Dcr]}, "metrics: give"),
        ({"metrics": 5}, "metrics: give"),
        ({"preset": ["x"]}, "unknown preset"),
        ({"fail_on": [1]}, "fail_on: give a list"),
        ({"seed": 1.5}, "seed must be"),
        ({"block_rows": "8"}, "block_rows must be"),
        ({"columns": "a"}, "columns: give a list"),
        ({"exclude": "a"}, "exclude: give a list"),
        ({"columns": []}, "columns: the list is empty"),
        ({"weights": ["a"]}, "weights: give a mapping"),
        ({"schema": 5}, "schema: give"),
        ({"progress": 5}, "progress: give"),
        ({"client": 5}, "client: expected"),
        ({"store": 5}, "store: give a directory or a URL"),
        ({"secrets": ["a"]}, "secrets: no metric"),
        ({"quasi_identifiers": ["a"]}, "quasi_identifiers: no metric"),
        ({"internal": True}, "internal: give an output"),
    ],
)
def test_odd_arguments(options: dict[str, Any], sentence: str) -> None:
    frame = pd.DataFrame({"a": range(5)})
    with pytest.raises(daskpriv.InputError, match=sentence):
        daskpriv.evaluate(train=frame, synthetic=frame, **options)


def test_numpy_integers_are_numbers() -> None:
    frame = pd.DataFrame({"a": range(5)})
    assert daskpriv.nearest_neighbours(frame, frame, k=np.int64(2)).row.shape == (5, 2)
    assert daskpriv.evaluate(train=frame, synthetic=frame, seed=np.uint8(3)).settings["seed"] == 3


def test_a_rule_that_names_nothing_does_not_cost_the_report(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(5)})
    with pytest.raises(daskpriv.InputError, match="has no 'excesss'"):
        daskpriv.evaluate(train=frame, synthetic=frame, output=tmp_path, fail_on=["dcr_share.excesss>0.1"])
    assert (tmp_path / "report.json").exists()


def test_an_output_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    events: list[Any] = []
    frame = pd.DataFrame({"a": range(5)})
    with pytest.raises(daskpriv.InputError, match="output: cannot write"):
        daskpriv.evaluate(train=frame, synthetic=frame, output=tmp_path / "file" / "out", progress=events.append)
    assert events == []


def test_the_advice_of_the_memory_check_works() -> None:
    with pytest.raises(daskpriv.PlanError) as refused:
        check_memory(Layout(16_384, 65_536), 5_000_000, 800, 2, 150_000_000)
    fits = int(str(refused.value).split("block_rows=")[1].split()[0].replace(",", ""))
    check_memory(Layout(fits, 65_536), 5_000_000, 800, 2, 150_000_000)


def test_a_block_tells_its_size_and_travels_alone() -> None:
    engine = Engine(Serial(), Layout(5000, 5000))
    frame = pd.DataFrame({"a": np.arange(5000.0), "c": ["x", "y"] * 2500})
    surveyed = survey(engine, {"t": open_table(frame, "t")}, Columns(), ("t",))
    (source,) = encode(engine, surveyed)["t"].sources
    block = source.load()
    before = len(pickle.dumps(block))
    assert block.arrays
    assert sys.getsizeof(block) >= block.nbytes
    assert len(pickle.dumps(block)) == before


@pytest.mark.xdist_group("cluster")
def test_inside_a_task_of_a_one_thread_worker(cluster: Callable[[int], Client]) -> None:
    def task() -> int:
        frame = pd.DataFrame({"a": range(50)})
        return clones(frame, frame)

    assert cluster(1).submit(task, pure=False).result(timeout=600) == 50


@pytest.mark.xdist_group("cluster")
def test_a_closed_client_is_refused() -> None:
    client = Client(processes=False, dashboard_address="127.0.0.1:0", set_as_default=False)
    client.close()
    frame = pd.DataFrame({"a": range(5)})
    with pytest.raises(daskpriv.InputError, match="client: it is closed"):
        daskpriv.evaluate(train=frame, synthetic=frame, client=client)
