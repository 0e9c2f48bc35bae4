"""The same bytes for every layout: blocks, threads, worker processes, order of files, where pieces are kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from distributed import Client, LocalCluster, nanny

import daskpriv
from daskpriv.bench import adult_like
from daskpriv.cluster.connect import local_cluster
from daskpriv.engine.executor import Serial, Threads
from daskpriv.engine.plan import (
    Layout,
    check_memory,
    groups,
    index_row_bytes,
    layout,
    slice_rows,
    slices,
    task_seconds,
)
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
    """The memory formula of docs/engine.md: bytes of a row times rows, nothing hidden."""
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
    assert slice_rows(10_000, 0.0) == 10_000
    assert slice_rows(10_000, 1e-3) == 2000
    assert slice_rows(10_000, 1.0) == 256
    assert slice_rows(100, 1.0) == 100
    assert slices(10_000, 10_000) == [(0, 10_000)]
    assert slices(10_000, 2000) == [(0, 2000), (2000, 4000), (4000, 6000), (6000, 8000), (8000, 10_000)]
    for rows, step in ((1, 1), (100, 256), (65_536, 300), (65_537, 65_536), (7, 2)):
        cut = slices(rows, step)
        assert [i for a, b in cut for i in range(a, b)] == list(range(rows))
        assert max(b - a for a, b in cut) <= step
    assert task_seconds(10**9, 1e-3, 100) == pytest.approx(20.0)  # 50 000 tasks at most
    assert task_seconds(10**7, 1e-3, 100) == 2.0
    assert task_seconds(2 * 10**8, 1e-3, 1000) == pytest.approx(1000 / 150)
    assert task_seconds(10**4, 1e-4, 2) == 0.25


@pytest.mark.parametrize("memory", [None, 2**31, 12 * 2**30])
@pytest.mark.parametrize(("rows", "slots"), [(100, 2), (50_000, 2), (10**7, 16), (650_000_000, 1000), (10**9, 4000)])
def test_units_stay_few(rows: int, slots: int, memory: int | None) -> None:
    """Search units: one per block, or one per block, group of parts and round."""
    cut = layout({"train": rows, "synthetic": rows}, slots, columns=15, memory_per_slot=memory)
    blocks, held = -(-rows // cut.block_rows), -(-rows // cut.group_rows)
    if memory is None or memory > 2**31:
        assert blocks * (1 if held == 1 else 2 * held) <= 51_000
    check_memory(cut, rows, 8 * 15 + 8, 2, memory)  # what the plan chooses, it does not refuse
    for threads in (1, 2, 64):
        assert cut.parts(rows, threads) <= max(rows // 100_000, held)
    assert cut.with_blocks(7) == Layout(7, cut.group_rows)


def test_an_indexed_row_takes_no_more_than_the_plan_counts() -> None:
    """The other formula of docs/engine.md."""
    frame = adult_like(20_000, 3)
    engine = Engine(Serial(), Layout(20_000, 20_000))
    surveyed = survey(engine, {"t": open_table(frame, "t")}, Columns(), ("t",))
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("t",))
    (index,) = engine.reference(prepared.blocks["t"], prepared.spaces["t", "t"]).held(0)
    assert index.rows == 20_000
    assert index.nbytes <= 20_000 * index_row_bytes(15)


def test_what_does_not_fit_is_refused_before_it_runs(
    tables: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskpriv.engine.executor.available_memory", lambda: 10_000)
    with pytest.raises(PlanError, match=r"use block_rows=\d+ or fewer"):
        daskpriv.evaluate(**tables)


def searched(frame: pd.DataFrame, cut: Layout, k: int = 2) -> tuple[list[NeighbourTable], list[tuple[str, int]]]:
    """Every row of a table against the whole table, and the units of every stage."""
    stages: list[tuple[str, int]] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            stages.append((event.stage, event.tasks))

    engine = Engine(Serial(), cut, listen)
    surveyed = survey(engine, {"t": open_table(frame, "t")}, Columns(), ("t",))
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("t",))
    lists = engine.search([Neighbours("t", "t", k)], prepared.blocks, prepared.spaces)["t", "t"]
    assert engine.tasks == sum(units for _, units in stages)
    return [x.load(engine.store) for x in lists], stages


def test_parts_that_cannot_hold_a_nearer_row_are_left_out() -> None:
    """Two far apart crowds, a block each: the second round has nothing to do, and the answer is that of one index."""
    rng = np.random.default_rng(5)
    crowds = [pd.DataFrame({f"x{i}": rng.normal(at, 0.01, 300) for i in range(4)}) for at in (0.0, 100.0)]
    frame = pd.concat(crowds, ignore_index=True)
    one, once = searched(frame, Layout(300, 10_000))
    many, twice = searched(frame, Layout(300, 300))
    assert [units for stage, units in once if stage == "search-t-x-t"] == [2]
    home, beyond = (units for stage, units in twice if stage == "search-t-x-t")
    assert home >= 2
    assert beyond == 0
    for a, b in zip(one, many, strict=True):
        assert np.array_equal(a.distance, b.distance) and np.array_equal(a.row, b.row)


def test_units_are_linear_in_the_number_of_query_blocks() -> None:
    """However many blocks the reference has: units of a search are never blocks x blocks."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({f"x{i}": rng.random(4096) for i in range(3)})
    totals, held = [], 3
    for blocks in (4, 16, 64):
        _, stages = searched(frame, Layout(4096 // blocks, 10_000))
        assert [n for stage, n in stages if stage.startswith("search")] == [blocks]
        _, stages = searched(frame, Layout(4096 // blocks, 1500))
        home, beyond = (n for stage, n in stages if stage.startswith("search"))
        assert blocks <= home <= held * blocks
        assert beyond <= held * blocks
        units = dict(stages)
        assert units["merge-search-t-x-t"] == units["belonging"] == units["reach"] == blocks
        assert units["cover"] == held
        totals.append(sum(n for _, n in stages))
    assert totals[1] <= 4 * totals[0]
    assert totals[2] <= 4 * totals[1]


def test_large_blocks_are_searched_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows per unit as the pilots ask for; the slices of a block are one answer."""
    frame = adult_like(3000, 7)
    whole, once = searched(frame, Layout(3000, 10_000))
    monkeypatch.setattr("daskpriv.engine.searches.slice_rows", lambda rows, pace, seconds: 256)
    sliced, many = searched(frame, Layout(3000, 10_000))
    assert ("index t", 1) in once
    assert ("index t", 1) in many
    assert dict(many)["search-t-x-t"] == 12
    assert len(whole) == len(sliced) == 1
    for name in ("query", "distance", "row", "ties"):
        assert np.array_equal(getattr(whole[0], name), getattr(sliced[0], name))


def hold(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """From now on a process can hold only so many reference rows."""
    cut = daskpriv.session.layout
    monkeypatch.setattr("daskpriv.session.layout", lambda *given: Layout(cut(*given).block_rows, rows))


@pytest.mark.parametrize(("workers", "group_rows"), [(0, 500), (0, 90), (2, 500)])
def test_references_in_groups(
    tables: dict[str, pd.DataFrame],
    expected: str,
    cluster: Callable[[int], Client],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    group_rows: int,
) -> None:
    """Two rounds of searches, counts per group, credits over all of them."""
    hold(monkeypatch, group_rows)
    stages: list[tuple[str, int]] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            stages.append((event.stage, event.tasks))

    client = cluster(workers) if workers else None
    assert numbers(daskpriv.evaluate(**tables, block_rows=120, client=client, progress=listen)) == expected
    assert [n > 0 for stage, n in stages if stage == "search-synthetic-x-train"] == [True, True]
    assert dict(stages)["merge-search-synthetic-x-train"] == 8


@pytest.mark.parametrize("group_rows", [100_000, 500])
def test_workers_that_do_not_reach_the_store_hand_their_pieces_over(
    tables: dict[str, pd.DataFrame],
    expected: str,
    cluster: Callable[[int], Client],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    group_rows: int,
) -> None:
    """The client writes them, and reduces them itself."""
    hold(monkeypatch, group_rows)
    monkeypatch.setattr("daskpriv.runs.reaches", lambda root, executor: False)
    report = daskpriv.evaluate(**tables, block_rows=200, client=cluster(2), store=tmp_path / "store")
    assert numbers(report) == expected
    assert len(list((tmp_path / "store").rglob("*.parquet"))) > 10


def test_a_resumed_run_makes_only_what_is_missing(
    tables: dict[str, pd.DataFrame], expected: str, cluster: Callable[[int], Client], tmp_path: Path
) -> None:
    """On threads, on a cluster and on threads again, with fewer pieces each time."""
    made = []
    for client in (None, cluster(2), None):
        report = daskpriv.evaluate(**tables, block_rows=100, client=client, store=tmp_path)
        assert numbers(report) == expected
        files = sorted(tmp_path.rglob("*.parquet"))
        made.append(report.run["tasks"])
        for file in files[::3]:
            file.unlink()
    assert made[1] < made[0]
    assert made[2] < made[0]


def test_searches_at_once_do_not_meet(tables: dict[str, pd.DataFrame]) -> None:
    """Searches of other tables of the same size, in threads of one process."""
    reference = tables["train"]
    asked = [reference.sample(120, random_state=seed, ignore_index=True) for seed in range(6)]
    expected = [daskpriv.nearest_neighbours(q, reference, block_rows=9).row for q in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda q: daskpriv.nearest_neighbours(q, reference, block_rows=9).row, asked))
    for a, b in zip(expected, found, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.cluster
@pytest.mark.xdist_group("cluster")
def test_workers_that_join_late_and_leave_change_nothing(tables: dict[str, pd.DataFrame]) -> None:
    """It starts with one worker, two more join before the first index is built, and two leave while the search runs."""
    query, reference = tables["synthetic"], tables["train"]
    expected = daskpriv.nearest_neighbours(query, reference, k=3)
    options: dict[str, Any] = {
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.CRITICAL,
    }
    counts = []
    with LocalCluster(n_workers=1, host="127.0.0.1", **options) as cluster, Client(cluster) as client:

        def steer(event: Event) -> None:
            if isinstance(event, StageStarted) and event.stage == "measure reference":
                cluster.scale(3)
                client.wait_for_workers(3, timeout=300)
            elif isinstance(event, StageStarted) and event.stage == "search-query-x-reference":
                cluster.scale(1)
            counts.append(len(client.scheduler_info(n_workers=-1)["workers"]))

        found = daskpriv.nearest_neighbours(query, reference, k=3, client=client, block_rows=20, progress=steer)
    assert {1, 3} <= set(counts)
    for name in ("distance", "row", "ties"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.cluster
def test_a_worker_that_is_slow_to_die_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask tells its user so when a local cluster is closed; then all is done."""
    kill = nanny.WorkerProcess.kill
    told = []

    async def slow(self: nanny.WorkerProcess, *args: Any, **kwargs: Any) -> None:
        await kill(self, *args, **kwargs)
        told.append("late")
        raise TimeoutError

    monkeypatch.setattr(nanny.WorkerProcess, "kill", slow)
    with local_cluster(1, 1, None) as client:
        found = client.submit(sum, [1, 2]).result()
    assert (found, told) == (3, ["late"])
    with pytest.raises(TimeoutError, match="mine"), local_cluster(1, 1, None):
        raise TimeoutError("mine")
