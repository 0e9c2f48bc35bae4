"""What a run gives away: encrypted where asked, and no cell in any log, error, report, key, store or dump."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster

import daskpriv
from daskpriv.cli import cli
from daskpriv.engine.executor import Executor
from daskpriv.events import Event
from daskpriv.report.shareable import shareable
from daskpriv.runs import place_for
from daskpriv.session import executor_for
from tests.cluster import canary, run_cli, tables
from tests.cluster.canary import Canary
from tests.cluster.certificates import certificates, tls_works
from tests.cluster.harness import REPOSITORY, RealCluster, until
from tests.cluster.tables import CanaryTables

started = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(tls_works() is not None, reason=tls_works() or ""),
]
SOURCE = REPOSITORY / "daskpriv"
LOUD = {"DASK_LOGGING__DISTRIBUTED": "debug", "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "20000"}
SPILLS = {"DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "1e-9", "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "0.9"}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


# ------------------------------------------------------------------------------------------------- what can be observed


@dataclass
class Spy:
    """Everything that somebody on the cluster, or with access to its disks, can see while a run lasts."""

    client: Client
    folder: Path
    scratch: Path
    spilled: dict[str, bytes] = field(default_factory=dict)
    dumps: int = 0

    def listen(self, event: Event) -> None:
        """The whole state of the cluster in the middle of stages; meanwhile the results of other units stay spilled."""
        if type(event).__name__ == "TaskDone":
            kind = next((k for k in self.coming if event.stage.startswith(k)), None)  # type: ignore[attr-defined]
            if kind is not None:
                self.coming.remove(kind)
                self.dump()

    coming: list[str] = field(default_factory=lambda: ["read", "measure", "search"])

    def dump(self) -> None:
        self.dumps += 1
        self.client.dump_cluster_state(str(self.folder / f"dump-{self.dumps}"), format="msgpack")
        (self.folder / f"logs-{self.dumps}.txt").write_text(
            repr([self.client.get_worker_logs(), self.client.get_scheduler_logs(), self.client.get_events()])
        )
        (self.folder / f"tasks-{self.dumps}.txt").write_text(repr(self.client.run_on_scheduler(_tasks)))
        (self.folder / f"calls-{self.dumps}.txt").write_text(repr(self.client.get_task_stream()))

    def watch(self, until: threading.Event) -> None:
        """Files that workers spill, as they come, grow and go."""
        while not until.is_set():
            for path in self.scratch.rglob("*"):
                with contextlib.suppress(OSError):
                    if path.is_file() and path.stat().st_size > len(self.spilled.get(str(path), b"")):
                        self.spilled[str(path)] = path.read_bytes()
            time.sleep(0.002)


def _tasks(dask_scheduler: Any) -> list[Any]:
    return [
        (str(ts.key), str(ts.run_spec), str(ts.group_key), ts.annotations, str(ts.exception), str(ts.exception_text))
        for ts in dask_scheduler.tasks.values()
    ]


@contextlib.contextmanager
def watched(spy: Spy) -> Iterator[None]:
    until = threading.Event()
    thread = threading.Thread(target=spy.watch, args=(until,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        until.set()
        thread.join(10)


@dataclass
class World:
    """One TLS cluster on which runs went well and failed, and all that they left."""

    cluster: RealCluster
    made: CanaryTables
    folder: Path
    seen: Path
    run: run_cli.Run
    report: daskpriv.Report
    spy: Spy
    bad: dict[str, Bad]
    failed: dict[str, Result]
    canaries: list[Canary]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("security")
    seen = folder / "seen"
    seen.mkdir()
    made = tables.canaries(folder / "tables")
    bad = bad_tables(folder / "bad")
    with RealCluster(2, tls=True, env=LOUD, worker_env=SPILLS, folder=folder / "cluster") as cluster:
        tls = cluster.tls
        assert tls is not None
        keys = ["--tls-ca-file", str(tls.ca), "--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
        where = ["--cluster", cluster.address, *keys, "--log-json"]
        kept = ["--output", str(seen / "out"), "--store", str(seen / "store")]
        run = run_cli.command(
            ["evaluate", *made.tables.options(), *kept, "--internal", "--block-rows", "60", *where],
            seen / "out",
            LOUD,
        )
        with cluster.client() as client, cluster.client() as other:
            spy = Spy(other, seen, cluster.scratch)
            frames = {name: pd.read_parquet(source) for name, source in made.tables.given().items()}
            with watched(spy):
                report = daskpriv.evaluate(
                    **frames, client=client, output=seen / "memory", internal=True, block_rows=60, progress=spy.listen
                )
            spy.dump()
        failed = {}
        for name, case in bad.items():
            out = ["--output", str(seen / f"out-{name}"), "--store", str(seen / "bad-store")]
            failed[name] = invoke("evaluate", *case.options, *out, *where)
            (seen / f"{name}.txt").write_text(failed[name].stdout + failed[name].stderr)
        with cluster.client() as other:
            spy.client = other
            spy.dump()
        every = [*short(made.canaries), *(c for case in bad.values() for c in short(case.canaries))]
        (seen / "cluster-logs.txt").write_text(cluster.logs())
        yield World(cluster, made, folder, seen, run, report, spy, bad, failed, every)


def short(canaries: list[Canary]) -> list[Canary]:
    """What all texts begin with, and some of the numbers: quick to look for in many megabytes."""
    texts = {re.sub(r"\d+x\d+$", "", c) for c in canaries if isinstance(c, str)}
    return ["CANARY", *sorted(texts), *[c for c in canaries if not isinstance(c, str)][::8]]


@dataclass(frozen=True)
class Bad:
    """A command whose tables hold something that cannot be read, and what may not be quoted of it."""

    options: list[str]
    canaries: list[Canary]
    said: str


def bad_tables(folder: Path) -> dict[str, Bad]:
    folder.mkdir()
    text = tables.with_bad_cells(folder / "text")
    good = {name: pd.read_parquet(source) for name, source in tables.canaries(folder / "g").tables.given().items()}

    def csv(name: str, change: Callable[[bytes], bytes]) -> list[str]:
        out = folder / name
        out.mkdir()
        for table, frame in good.items():
            data = frame.to_csv(index=False).encode()
            (out / f"{table}.csv").write_bytes(change(data) if table == "train" else data)
        return [word for t in good for word in (f"--{t}", str(out / f"{t}.csv"))]

    def parquet(name: str, change: Callable[[pa.Table], pa.Table]) -> list[str]:
        out = folder / name
        out.mkdir()
        for table, frame in good.items():
            held = pa.Table.from_pandas(frame, preserve_index=False)
            pq.write_table(change(held) if table == "train" else held, out / f"{table}.parquet")
        return [word for t in good for word in (f"--{t}", str(out / f"{t}.parquet"))]

    def replaced(column: str, value: Any, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
        def change(held: pa.Table) -> pa.Table:
            values = held.column(column).to_pylist()
            values[-3] = value
            return held.set_column(held.column_names.index(column), column, pa.array(values, kind))

        return change

    levels = folder / "levels.yaml"
    every = "".join(f"  {n}: numeric\n" for n in ("account", "income", "age"))
    levels.write_text(
        f"daskpriv_schema: 1\ncolumns:\n{every}  note: nominal\n  city: {{kind: ordinal, levels: [low, high]}}\n"
    )
    numeric = folder / "numeric.yaml"
    numeric.write_text(f"daskpriv_schema: 1\ncolumns:\n{every}  note: nominal\n  city: nominal\n")
    huge = 73_100_000_000_000_000_000_000_000_000_000_077
    stamp = "CANARY-31-12-2031-DATE"
    return {
        "text": Bad([*text.tables.options(), "--schema", str(numeric)], text.canaries, "age"),
        "utf8": Bad(csv("utf8", lambda d: d[:-40] + b"CANARYUTF\xff\xfe" + d[-40:]), ["CANARYUTF"], "train"),
        "ragged": Bad(csv("ragged", lambda d: d + b"CANARYRAGGED,1,2,3,4,5,6,7\n"), ["CANARYRAGGED"], "train"),
        "date": Bad(
            csv("date", lambda d: d.replace(b"\nCANARYTNOTE0x00200,", b"\n" + stamp.encode() + b",x,")),
            [stamp],
            "train",
        ),
        "infinite": Bad(parquet("infinite", replaced("income", float("inf"), pa.float64())), [], "column 'income'"),
        "type": Bad(
            parquet("type", lambda t: t.set_column(2, "account", t.column("account").cast(pa.string()))),
            [],
            "column 'account'",
        ),
        "levels": Bad([*csv("levels", lambda d: d), "--schema", str(levels)], [], "city"),
        "decimal": Bad(
            parquet("decimal", replaced("account", huge, pa.decimal128(38, 0))), [huge % 2**63], "column 'account'"
        ),
        "nested": Bad(
            parquet("nested", lambda t: t.append_column("more", pa.array([["CANARYNESTED"]] * len(t)))),
            ["CANARYNESTED"],
            "column 'more'",
        ),
    }


# ---------------------------------------------------------------------------------------------------------------- tests


class TestOnATlsCluster:
    pytestmark = started

    def test_the_same_report_over_tls(self, world: World) -> None:
        assert world.cluster.address.startswith("tls://")
        assert world.run.code == 0, world.run.stderr
        assert "not encrypted" not in world.run.stderr
        assert world.run.report is not None
        here = daskpriv.evaluate(**world.made.tables.given(), block_rows=100).to_dict()
        assert run_cli.numbers(world.run.report) == run_cli.numbers(shareable(here))
        assert world.report.to_dict()["metrics"] == here["metrics"]

    def test_a_run_left_what_this_test_looks_at(self, world: World) -> None:
        """The search below finds canaries where they are, and looks at something."""
        table = Path(world.made.tables.train)
        assert len({type(h.canary) for h in canary.in_files(world.canaries, table)}) == 3
        assert len({h.canary for h in canary.in_files(world.canaries, table)}) >= 10
        assert list((world.seen / "store").glob("*/pieces/*/*.parquet"))
        assert list((world.seen / "store").glob("*/manifest.json"))
        assert (world.seen / "out" / "internal" / "records.parquet").is_file()
        assert world.spy.dumps >= 4
        assert world.spy.spilled
        tasks = "".join(p.read_text() for p in world.seen.glob("tasks-*.txt"))
        assert "carry_out" in tasks
        logs = (world.seen / "cluster-logs.txt").read_text()
        assert "DEBUG" in logs
        assert len(logs) > 50_000
        assert any(p.stat().st_size > 5_000 for p in world.seen.glob("dump-*"))

    def test_no_cell_in_anything_that_a_run_writes_logs_or_says(self, world: World) -> None:
        streams = {"stdout": world.run.stdout, "stderr": world.run.stderr}
        streams |= {"repr": repr(world.report), "summary": world.report.summary(), "html": world.report.to_html()}
        hits = canary.in_texts(world.canaries, streams)
        hits += canary.in_files(world.canaries, world.seen, world.folder / "cluster" / "logs")
        assert hits == []

    def test_what_may_be_spilled(self, world: World) -> None:
        """What readings tell of columns (texts that occur, extremes, a sample) may be spilled; nothing else may."""
        hits = [h for name, data in world.spy.spilled.items() for h in canary.in_bytes(world.canaries, data, name)]
        assert any("/search-" in name for name in world.spy.spilled)
        assert {Path(h.place).name.split("-")[0] for h in hits} <= {"read", "measure"}

    def test_every_failure_is_one_sentence(self, world: World) -> None:
        for name, case in world.bad.items():
            done = world.failed[name]
            told = done.stderr.strip().splitlines()[-1]
            assert done.exit_code == 2, (name, done.stderr)
            assert told.startswith("daskpriv: "), name
            assert case.said in told, (name, told)
            assert "Traceback" not in done.stderr + done.stdout, name
            assert "unexpected" not in told, name

    def test_nothing_is_left_on_workers_or_in_temporary_folders(self, world: World) -> None:
        assert world.run.left_files == ()
        assert world.run.left_behind == ()
        assert until(lambda: not [p for p in world.cluster.scratch.rglob("storage/*") if p.is_file()])
        with world.cluster.client() as client:
            assert until(lambda: client.run_on_scheduler(_held) == (0, 0))
            assert until(lambda: set(client.run(_cached).values()) == {0})

    def test_a_store_named_by_a_relative_path_is_the_same_everywhere(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with world.cluster.client() as client:
            frame = pd.DataFrame({"a": range(60)})
            report = daskpriv.evaluate(
                train=frame, synthetic=frame, client=client, store="st", output="out", metrics="clones"
            )
        assert report.run["executor"] == "dask"
        assert list((tmp_path / "st").glob("*/pieces/*/*.parquet"))
        assert sorted(p.name for p in (world.cluster.folder / "cwd").iterdir()) == []
        with executor_for_test(world) as driver, place_for("st", None, driver) as place:
            assert place.reachable

    def test_without_certificates_there_is_no_way_in(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("daskpriv.cluster.connect._KNOCK", 3)
        monkeypatch.chdir(tmp_path)
        other = certificates(tmp_path / "other", ["127.0.0.1"])
        tls = world.cluster.tls
        assert tls is not None
        plain = world.cluster.address.replace("tls://", "tcp://")
        for address, files in (
            (world.cluster.address, None),
            (plain, None),
            (world.cluster.address, (other.ca, other.cert, other.key)),
            (world.cluster.address, (tls.ca, other.cert, other.key)),
            (plain, (tls.ca, tls.cert, tls.key)),
        ):
            keys = (
                []
                if files is None
                else [w for n, f in zip(("ca-file", "cert", "key"), files, strict=True) for w in (f"--tls-{n}", str(f))]
            )
            begun = time.monotonic()
            done = invoke("doctor", "--cluster", address, *keys)
            assert done.exit_code == 2, (address, files, done.stdout, done.stderr)
            assert done.stderr.startswith(f"daskpriv: cluster '{address}' does not answer")
            assert len(done.stderr.strip().splitlines()) == 1
            assert time.monotonic() - begun < 200
        monkeypatch.undo()
        keys = ["--tls-ca-file", str(tls.ca), "--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
        done = invoke("doctor", "--cluster", world.cluster.address, *keys)
        assert done.exit_code == 0, done.stdout + done.stderr
        assert "ok   connection: encrypted (TLS)." in done.stdout


@contextlib.contextmanager
def executor_for_test(world: World) -> Iterator[Executor]:
    with world.cluster.client() as client, executor_for(client) as driver:
        yield driver


def _held(dask_scheduler: Any) -> tuple[int, int]:
    shelves = [p for n, p in dask_scheduler.plugins.items() if n.startswith("daskpriv")]
    return sum(len(s._held) for s in shelves), len(dask_scheduler.tasks)


def _cached() -> int:
    from daskpriv.engine.cache import BLOCKS, INDEXES

    return BLOCKS.nbytes + INDEXES.nbytes


def own_address() -> str | None:
    """An address of this machine that others may reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        asked.connect(("192.0.2.99", 9))
        found = str(asked.getsockname()[0])
        return None if found.startswith(("127.", "0.")) else found
    return None


@pytest.mark.cluster
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize("host", ["127.0.0.1", own_address()])
def test_a_plain_connection_is_warned_of_unless_it_stays_here(host: str | None) -> None:
    if host is None:
        pytest.skip("this machine has no address but loopback")
    started = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host=host, dashboard_address="127.0.0.1:0"
    )
    with started:
        done = invoke("doctor", "--cluster", started.scheduler_address)
    loopback = host == "127.0.0.1"
    assert ("daskpriv: warning: this connection is not encrypted" in done.stderr) is not loopback
    assert done.exit_code == (0 if loopback else 1), done.stdout + done.stderr
    assert ("BAD  connection: carries cells in clear; use tls://." in done.stdout) is not loopback


# ------------------------------------------------------------------------------------------------- what is written down

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "=cmd|' /C calc'!A0",
    "../../etc/x",
    "@a",
    "\x1b[31m",
)


def test_hostile_column_names_stay_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frames = {
        role: pd.DataFrame({name: rng.integers(0, 50, 200) for name in HOSTILE}) for role in ("train", "synthetic")
    }
    report = daskpriv.evaluate(**frames, output=tmp_path / "out", internal=True, fail_on=["leak"])
    html = (tmp_path / "out" / "report.html").read_text()
    for page in (html, report._repr_html_()):
        assert "<img" not in page
        assert "<script" not in page.lower()
        assert "&lt;img src=x" in page
        assert not re.search(r"(src|href)\s*=\s*[\"']?(?!#)\w", page.replace("src=x", ""))
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()) == [
        "out/internal/real_rows.parquet",
        "out/internal/records.parquet",
        "out/internal/report.json",
        "out/report.html",
        "out/report.json",
        "out/run.json",
    ]
    records = pq.read_table(tmp_path / "out" / "internal" / "records.parquet")
    assert records.column_names == ["row", "distance_train", "nearest_train_row", "ties_train"]
    assert all(pa.types.is_integer(c.type) or pa.types.is_floating(c.type) for c in records.schema)
    assert not records.schema.metadata


def test_hostile_reports_are_drawn_as_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(100), "b": ["x", "y"] * 50})
    data = daskpriv.evaluate(train=frame, synthetic=frame.head(50)).to_dict()
    evil = "<svg/onload=alert(3)>"

    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: spoiled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [spoiled(v) for v in value]
        return f"{value}{evil}" if isinstance(value, str) else value

    (tmp_path / "report.json").write_text(json.dumps({**spoiled(data), "format": data["format"]}))
    done = invoke("report", "--from", str(tmp_path / "report.json"))
    if done.exit_code == 0:
        assert evil not in (tmp_path / "report.html").read_text()
        assert "&lt;svg/onload" in (tmp_path / "report.html").read_text()
    else:
        assert done.exit_code == 2


def test_pickles_are_not_tables(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    import pickle

    for name in ("table.pkl", "table.pickle", "table.npy", "table.parquet", "table.csv"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Evil()))
        with pytest.raises(daskpriv.InputError):
            daskpriv.evaluate(train=str(path), synthetic=str(path))
    assert not ran.exists()


ALLOWED = {
    # What a worker is sent by its own client, over the connection of the cluster.
    ("cluster/unit.py", "pickle.loads(payload.data)"),
    ("engine/published.py", "pickle.loads(_FETCH[self.home](self.digest))"),
    # A loader made from SafeLoader.
    ("tables/schema.py", "yaml.load(text, _Loader)"),
    # What the client has just brought there itself.
    ("cluster/ship.py", 'import_module("daskpriv.cluster.shelf")'),
    # The class that the user's own cluster file names.
    ("cluster/spec.py", "import_module(module)"),
    # Our own SVG, see report/charts.py.
    ("report/html.py", 'Markup(chart(found["details"]).svg)'),
}
RISKY = re.compile(
    r"(?:\bpickle\.loads?\(|\bUnpickler\(|read_pickle\(|\bmarshal\.|\bshelve\.|yaml\.(?:unsafe_|full_)?load(?:_all)?\(|"
    r"np\.load\(|allow_pickle|(?<![\w.])eval\(|(?<![\w.])exec\(|(?<![\w.])compile\(|os\.system\(|os\.popen\(|"
    r"subprocess\.|shell=True|import_module\(|__import__\(|\bMarkup\(|\|\s*safe\b|"
    r"tempfile\.mktemp\(|autoescape=False|verify=False|ssl=False)"
)


def test_the_source_executes_nothing_it_reads() -> None:
    found = set()
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")]:
        inside = path.relative_to(SOURCE).as_posix()
        for line in path.read_text().splitlines():
            if (hit := RISKY.search(line)) is not None:
                found.add((inside, line[hit.start() :].strip()))
    unknown = {
        (f, t) for f, t in found if not any(f == g and (t.startswith(a) or a in t or t in a) for g, a in ALLOWED)
    }
    assert unknown == set()
    seen = {(g, a) for g, a in ALLOWED if any(f == g for f, _ in found)}
    assert seen == ALLOWED, "an exception that is no longer needed"
    assert RISKY.search("pd.read_pickle(x)")
    assert RISKY.search("eval(x)")
    assert not RISKY.search("re.compile(x)")


def test_safe_loader_of_schemas(tmp_path: Path) -> None:
    for number, text in enumerate(("!!python/object/apply:os.system ['x']", "!!python/name:os.system ''")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        frame = pd.DataFrame({"a": range(5)})
        with pytest.raises(daskpriv.InputError):
            daskpriv.evaluate(train=frame, synthetic=frame, schema=path)


def test_internal_files_and_the_store_are_for_their_owner_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(100), "b": ["x", "y"] * 50})
    daskpriv.evaluate(train=frame, synthetic=frame, output=tmp_path / "o", store=tmp_path / "s", internal=True)
    private = [tmp_path / "o" / "internal", *(tmp_path / "o" / "internal").rglob("*"), *(tmp_path / "s").rglob("*")]
    assert len(private) > 4
    open_to_others = [p for p in private if stat.S_IMODE(p.stat().st_mode) & 0o077]
    assert open_to_others == []
    # The report itself is made to be shown: the umask decides.
    assert stat.S_IMODE((tmp_path / "o" / "report.json").stat().st_mode) & 0o400
