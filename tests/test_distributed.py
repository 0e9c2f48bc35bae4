"""The same bytes for every layout: blocks, threads, worker processes, order of files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import daskpriv
from daskpriv.bench import adult_like
from daskpriv.engine.executor import Serial, Threads
from daskpriv.engine.plan import Layout, bunches, check_memory, groups, index_row_bytes, layout, slices, task_seconds
from daskpriv.engine.run import Engine
from daskpriv.errors import PlanError
from daskpriv.events import Event, StageStarted
from daskpriv.evidence import Neighbours, NeighbourTable
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.space.gower import SpaceOptions
from daskpriv.tables.open import open_table

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Three mixed tables of unequal sizes with missing cells, ties and copies."""
    rng = np.random.default_rng(5)

    def table(n: int) -> pd.DataFrame:
        frame = pd.DataFrame(
            {
                "age": rng.integers(18, 40, n),
                "income": rng.normal(3e4, 1e4, n).round(-3),
                "city": rng.choice(["Graz", "Linz", "Wien"], n),
                "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 50, n), unit="D"),
                "member": rng.random(n) < 0.3,
            }
        )
        return frame.mask(rng.random(frame.shape) < 0.05)

    train, holdout, synthetic = table(701), table(400), table(900)
    copied = pd.concat([synthetic, train.head(40)], ignore_index=True)
    return {"train": train, "holdout": holdout, "synthetic": copied}


def numbers(report: daskpriv.Report) -> str:
    """Everything but what depends on the machine, as bytes to compare."""
    whole = report.to_dict()
    del whole["run"], whole["daskpriv"]
    for table in whole["inputs"]["tables"].values():
        del table["source"], table["files"], table["bytes"]
    return json.dumps(whole, sort_keys=True)


@pytest.fixture(scope="module")
def expected(tables: dict[str, pd.DataFrame]) -> str:
    return numbers(daskpriv.evaluate(**tables))


@pytest.mark.parametrize("block_rows", [1, 7, 100, 333, 5000])
def test_block_size(tables: dict[str, pd.DataFrame], expected: str, block_rows: int) -> None:
    small = block_rows == 1
    given = {k: v.head(60) for k, v in tables.items()} if small else tables
    wanted = numbers(daskpriv.evaluate(**given)) if small else expected
    assert numbers(daskpriv.evaluate(**given, block_rows=block_rows)) == wanted


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("block_rows", [150, 1000])
def test_worker_processes(
    tables: dict[str, pd.DataFrame], expected: str, cluster: Callable[[int], Client], workers: int, block_rows: int
) -> None:
    assert numbers(daskpriv.evaluate(**tables, client=cluster(workers), block_rows=block_rows)) == expected


def test_executors(tables: dict[str, pd.DataFrame], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for made in (Serial, lambda: Threads(1), lambda: Threads(5)):
        monkeypatch.setattr("daskpriv.session.Threads", made)
        assert numbers(daskpriv.evaluate(**tables, block_rows=200)) == expected


def test_files_cut_in_any_way(tables: dict[str, pd.DataFrame], expected: str, tmp_path: Path) -> None:
    paths: dict[str, Any] = {}
    for name, frame in tables.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        (tmp_path / name).mkdir()
        for i, start in enumerate(range(0, table.num_rows, 250)):
            part = table.slice(start, 250)
            order = part.column_names[i % 5 :] + part.column_names[: i % 5]
            pq.write_table(part.select(order) if i else part, tmp_path / name / f"part-{i}.parquet", row_group_size=90)
        paths[name] = str(tmp_path / name)
    assert numbers(daskpriv.evaluate(**paths, block_rows=170)) == expected
    paths["train"] = str(tmp_path / "train" / "*.parquet")
    paths["holdout"] = [str(tmp_path / "holdout" / f"part-{i}.parquet") for i in range(2)]
    assert numbers(daskpriv.evaluate(**paths)) == expected


def test_every_kind_of_frame(tables: dict[str, pd.DataFrame], expected: str) -> None:
    arrow = {k: pa.Table.from_pandas(v, preserve_index=False) for k, v in tables.items()}
    assert numbers(daskpriv.evaluate(**arrow)) == expected
    polars = {k: pl.from_arrow(v) for k, v in arrow.items()}
    assert json.loads(numbers(daskpriv.evaluate(**polars)))["metrics"] == json.loads(expected)["metrics"]


def test_dask_frames(tables: dict[str, pd.DataFrame], expected: str, cluster: Callable[[int], Client]) -> None:
    frames = {k: dd.from_pandas(v, npartitions=3, sort=False) for k, v in tables.items()}
    metrics = json.loads(expected)["metrics"]
    assert json.loads(numbers(daskpriv.evaluate(**frames)))["metrics"] == metrics
    assert json.loads(numbers(daskpriv.evaluate(**frames, client=cluster(2))))["metrics"] == metrics


def test_an_active_client_is_used(
    tables: dict[str, pd.DataFrame], expected: str, cluster: Callable[[int], Client]
) -> None:
    with cluster(2).as_current():
        report = daskpriv.evaluate(**tables)
    assert report.run["executor"] == "dask"
    assert numbers(report) == expected


def test_neighbours_on_a_cluster(
    tables: dict[str, pd.DataFrame], cluster: Callable[[int], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = daskpriv.nearest_neighbours(tables["synthetic"], tables["train"], k=3)
    there = daskpriv.nearest_neighbours(tables["synthetic"], tables["train"], k=3, client=cluster(2), block_rows=128)
    monkeypatch.setattr("daskpriv.neighbours._SMALL", 10)
    lazy = daskpriv.nearest_neighbours(tables["synthetic"], tables["train"], k=3, client=cluster(2), block_rows=128)
    with cluster(2).as_current():
        assert lazy.distance.chunks[0][0] == 128
        computed = lazy.compute()
    for name in ("distance", "row", "ties"):
        assert np.array_equal(getattr(here, name), getattr(there, name))
        assert np.array_equal(getattr(here, name), getattr(computed, name))
        assert np.array_equal(getattr(here, name).compute(), getattr(here, name))


def test_an_error_on_a_worker_is_our_sentence(cluster: Callable[[int], Client], tmp_path: Path) -> None:
    good = pa.table({"a": list(range(500))})
    ds.write_dataset(good, tmp_path / "t", format="parquet")
    file = next((tmp_path / "t").iterdir())
    data = bytearray(file.read_bytes())
    data[60:90] = b"\xff" * 30
    file.write_bytes(bytes(data))
    with pytest.raises(daskpriv.InputError, match=r"^train: rows 0 to 500 cannot be read .* replace the file\.$"):
        daskpriv.evaluate(train=tmp_path / "t", synthetic=good, client=cluster(2))


def test_a_block_holds_what_the_plan_counts(tables: dict[str, pd.DataFrame]) -> None:
    """The memory formula of docs/definitions.md: bytes of a row times rows, nothing hidden."""
    engine = Engine(Serial(), Layout(300, 300))
    table = open_table(tables["train"], "train")
    surveyed = survey(engine, {"train": table}, Columns(), ("train",))
    for part in table.parts(300):
        block = surveyed.encoding.encode(part)
        assert block.nbytes == len(block) * surveyed.encoding.row_bytes


def test_a_large_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "t.parquet", row_group_size=500)
    reads = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **k: reads.append(i) or original(self, i, **k)
    )
    table = open_table(tmp_path / "t.parquet", "train")
    values = [v for part in table.parts(70) for v in part.read(["a"]).column("a").to_pylist()]
    assert values == list(range(1000))
    assert reads == [0, 1]


def test_groups_cover_every_part_with_rows_once() -> None:
    cut = Layout(10, 25)
    assert groups([10, 10, 10, 0, 10, 3], cut) == [[0, 1], [2, 4, 5]]
    assert groups([100], cut) == [[0]]


def test_slices_cover_every_row_once_and_take_seconds() -> None:
    assert slices(10_000, 0.0) == [(0, 10_000)]
    assert slices(10_000, 1e-3) == [(0, 2000), (2000, 4000), (4000, 6000), (6000, 8000), (8000, 10_000)]
    assert slices(100, 1.0) == [(0, 100)]
    assert task_seconds(10**9, 1e-3, 100) == pytest.approx(20.0)  # 50 000 tasks at most
    assert task_seconds(10**7, 1e-3, 100) == 2.0
    assert task_seconds(2 * 10**8, 1e-3, 1000) == pytest.approx(1000 / 150)
    assert task_seconds(10**4, 1e-4, 2) == 0.25


@pytest.mark.parametrize("memory", [None, 2**31, 12 * 2**30])
@pytest.mark.parametrize(("rows", "slots"), [(100, 2), (50_000, 2), (10**7, 16), (650_000_000, 1000), (10**9, 4000)])
def test_the_graph_stays_small(rows: int, slots: int, memory: int | None) -> None:
    """Search tasks: one per block, or one per block, group of parts and round."""
    cut = layout({"train": rows, "synthetic": rows}, slots, columns=15, memory_per_slot=memory)
    blocks, held = -(-rows // cut.block_rows), -(-rows // cut.group_rows)
    if memory is None or memory > 2**31:
        assert blocks * (1 if held == 1 else 2 * held) <= 51_000
    check_memory(cut, rows, 8 * 15 + 8, 2, memory)  # what the plan chooses, it does not refuse
    assert sum(map(len, bunches(blocks, cut.parts(rows, slots)))) == blocks
    assert len(bunches(blocks, cut.parts(rows, slots))) * cut.parts(rows, slots) <= 21_000
    assert cut.parts(rows, slots) <= max(rows // 100_000, held)


def test_an_indexed_row_takes_no_more_than_the_plan_counts() -> None:
    """The other formula of docs/engine.md."""
    frame = adult_like(20_000, 3)
    engine = Engine(Serial(), Layout(20_000, 20_000))
    surveyed = survey(engine, {"t": open_table(frame, "t")}, Columns(), ("t",))
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("t",))
    reference = engine.index(prepared.blocks["t"], prepared.spaces["t", "t"])
    assert reference.parts[0].nbytes <= 20_000 * index_row_bytes(15)


def test_what_does_not_fit_is_refused_before_it_runs(
    tables: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskpriv.engine.executor.available_memory", lambda: 10_000)
    with pytest.raises(PlanError, match=r"use block_rows=\d+ or fewer"):
        daskpriv.evaluate(**tables)


def test_parts_that_cannot_hold_a_nearer_row_are_left_out() -> None:
    """Two far apart crowds, a block each: the second round has nothing to do, and the answer is that of one index."""
    rng = np.random.default_rng(5)
    crowds = [pd.DataFrame({f"x{i}": rng.normal(at, 0.01, 300) for i in range(4)}) for at in (0.0, 100.0)]
    frame = pd.concat(crowds, ignore_index=True)
    stages: list[tuple[str, int]] = []

    def found(cut: Layout) -> tuple[list[NeighbourTable], Engine]:
        def listen(event: Event) -> None:
            if isinstance(event, StageStarted):
                stages.append((event.stage, event.tasks))

        engine = Engine(Serial(), cut, listen)
        surveyed = survey(engine, {"t": open_table(frame, "t")}, Columns(), ("t",))
        prepared = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("t",))
        handles = engine.search([Neighbours("t", "t", 2)], prepared.blocks, prepared.spaces)["t", "t"]
        return handles, engine

    one, _ = found(Layout(300, 10_000))
    stages.clear()
    many, _ = found(Layout(300, 300))
    assert dict(stages)["search-t-x-t at home"] >= 2
    assert dict(stages)["search"] == 0
    for a, b in zip(one, many, strict=True):
        assert np.array_equal(a.distance, b.distance) and np.array_equal(a.row, b.row)


@pytest.mark.cluster
@pytest.mark.xdist_group("cluster")
def test_workers_that_join_late_and_leave_change_nothing(tables: dict[str, pd.DataFrame]) -> None:
    """It starts with one worker, two more join before the index is built, and two leave while the search runs."""
    query, reference = tables["synthetic"], tables["train"]
    expected = daskpriv.nearest_neighbours(query, reference, k=3)
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    counts = []
    with LocalCluster(n_workers=1, host="127.0.0.1", **options) as cluster, Client(cluster) as client:

        def steer(event: Event) -> None:
            if isinstance(event, StageStarted) and event.stage == "encode query":
                cluster.scale(3)
                client.wait_for_workers(3, timeout=60)
            elif isinstance(event, StageStarted) and event.stage == "search":
                cluster.scale(1)
            counts.append(len(client.scheduler_info(n_workers=-1)["workers"]))

        found = daskpriv.nearest_neighbours(query, reference, k=3, client=client, block_rows=20, progress=steer)
    assert {1, 3} <= set(counts)
    for name in ("distance", "row", "ties"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
