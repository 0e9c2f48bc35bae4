"""Commands around a run: what it will take, where it works, what is kept of it, and how it goes on."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import daskpriv
from daskpriv import runs
from daskpriv.cli import cli
from daskpriv.cli.clusters import performance_report
from daskpriv.cluster.connect import carries_cells_in_clear, remote_cluster
from daskpriv.cluster.settings import limits, scheduler_wait, store_wait
from daskpriv.cluster.spec import Spec
from daskpriv.engine.store import Folder
from daskpriv.errors import InputError, RunError
from daskpriv.tables.table import Table
from tests import ports
from tests.cluster import run_cli
from tests.cluster.tables import Tables

ROLES = ("train", "holdout", "synthetic")
INSIDE = "arguments: {n_workers: %d, threads_per_worker: 1, processes: false, dashboard_address: '127.0.0.1:0'}\n"
LOCAL = "class: distributed.LocalCluster\n"


def frames(rows: int = 1_500) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(5)
    return {
        name: pd.DataFrame(
            {
                "age": rng.integers(18, 90, rows),
                "pay": rng.normal(3e4, 9e3, rows).round(2),
                "city": rng.choice(["Graz", "Linz"], rows),
            }
        )
        for name in ROLES
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three small tables in the current directory."""
    for name, frame in frames().items():
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs use threads of this process, for the cases where the cluster is not the point."""
    monkeypatch.setattr("daskpriv.cli.evaluate.client_for", lambda *a: nullcontext())


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def compared(*more: str) -> list[str]:
    return [*(word for name in ROLES for word in (f"--{name}", f"{name}.parquet")), *more]


def evaluate(*more: str) -> Result:
    return invoke("evaluate", *compared("--output", "out", "--block-rows", "500", *more))


def sentence(done: Result, code: int = 2) -> str:
    """The one sentence of a command that failed."""
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    *before, told = done.stderr.strip().splitlines()
    assert told.startswith("daskpriv: ")
    assert not any(line.startswith("daskpriv") for line in before)
    assert "unexpected" not in told
    assert "Traceback" not in done.stderr + done.stdout
    return told


def numbers(output: str = "out") -> str:
    return run_cli.numbers(json.loads(Path(output, "report.json").read_text()))


def costs(output: str = "out") -> dict[str, Any]:
    return dict(json.loads(Path(output, "run.json").read_text()))


def pieces(store: str) -> list[Path]:
    return sorted(Path(store).glob("*/pieces/*/*.parquet"))


# ---------------------------------------------------------------------------------------------------------------- plan


def adult_options(adult: Path) -> list[str]:
    files = {"train": "train", "holdout": "holdout", "synthetic": "synthetic_good"}
    return [word for role, name in files.items() for word in (f"--{role}", str(adult / f"{name}.parquet"))]


def test_a_plan_tells_what_cross_tabulations_take(adult: Path) -> None:
    options = [*adult_options(adult), "--metrics", "accuracy", "--workers", "2"]
    plan = json.loads(invoke("plan", *options, "--json").stdout)
    assert [(c["name"], c["sets"], c["of_how_many"]) for c in plan["counts"]] == [
        ("sets of 1", 15, 15),
        ("sets of 2", 105, 105),
        ("sets of 3", 455, 455),
    ]
    assert plan["counts"][0]["seconds"] < plan["counts"][1]["seconds"] < plan["seconds"][1]
    assert "sets of 3" in invoke("plan", *options).stdout


def test_a_plan_of_the_bundled_tables(adult: Path) -> None:
    done = invoke("plan", *adult_options(adult), "--workers", "2", "--memory-limit", "2GiB", "--json")
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)
    rows = {name: plan["tables"][name][0] for name in ROLES}
    assert rows == {"train": 24_421, "holdout": 24_421, "synthetic": 50_000}
    assert {s["name"]: s["pairs"] for s in plan["searches"]} == {
        f"{q}->{r}": rows[q] * rows[r] for q in rows for r in rows
    }
    assert plan["pairs"] == sum(s["pairs"] for s in plan["searches"])
    assert plan["units"] == sum(s["units"] for s in plan["searches"])
    assert plan["blocks"] == sum(-(-n // plan["block_rows"]) for n in rows.values())
    assert (plan["columns"], plan["slots"]) == (15, 2)
    assert plan["unit_memory"] < plan["worker_memory"] < 2 * 2**30
    assert 0 < plan["seconds"][0] <= plan["seconds"][1]
    table = invoke("plan", *adult_options(adult), "--workers", "2")
    assert table.exit_code == 0
    for text in ("24,421", "synthetic->train", "memory:", "time:", "2 worker(s) of 1 thread(s)"):
        assert text in table.stdout


@pytest.mark.usefixtures("folder", "threads")
def test_a_plan_foretells_the_run() -> None:
    plan = json.loads(invoke("plan", *compared("--block-rows", "500", "--workers", "2", "--json")).stdout)
    done = evaluate("--log-json")
    assert done.exit_code == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    searched = [e for e in events if e["event"] == "StageStarted" and e["stage"].startswith("search")]
    assert sum(e["tasks"] for e in searched) == plan["units"]
    assert sum(e["pairs"] for e in searched) == plan["pairs"]
    assert sum(e["tasks"] for e in events if e["event"] == "StageStarted" and e["stage"].startswith("read")) >= 3
    assert costs()["block_rows"] == plan["block_rows"] == 500


@pytest.mark.usefixtures("threads")
def test_a_plan_reads_footers_alone(folder: Path) -> None:
    for name in ROLES:
        path = folder / f"{name}.parquet"
        data, meta = bytearray(path.read_bytes()), pq.read_metadata(path)
        first = min(meta.row_group(0).column(i).data_page_offset for i in range(meta.num_columns))
        footer = int.from_bytes(data[-8:-4], "little")
        for place in range(first, len(data) - 8 - footer):
            data[place] ^= 0xFF
        path.write_bytes(data)
    assert invoke("plan", *compared()).exit_code == 0
    assert "train" in sentence(evaluate())


@pytest.mark.usefixtures("folder")
def test_a_plan_of_a_hundred_million_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "rows", property(lambda self: 100_000_000))
    begun = time.process_time()
    done = invoke("plan", *compared("--workers", "100", "--memory-limit", "8GiB", "--json"))
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["pairs"] == 9 * 10**16
    assert plan["units"] < 9 * 100_000
    assert plan["worker_memory"] < 10 * 2**30
    assert invoke("plan", *compared("--workers", "100")).exit_code == 0
    assert time.process_time() - begun < 10


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--memory-limit", "100kB", "--workers", "1", "--block-rows", "1500"], "a worker thread has"),
        (["--memory-limit", "banana"], "--memory-limit 'banana' is not a number of bytes"),
        (["--synthetic", "nowhere.parquet"], "'nowhere.parquet' does not exist"),
        (["--metrics", "nope"], "unknown metric 'nope'"),
        (["--exclude", "nope"], "nope"),
        (["--workers", "0"], "--workers"),
    ],
)
def test_a_plan_that_cannot_be(more: list[str], said: str) -> None:
    from daskpriv.cli import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["daskpriv", "plan", *compared(*more)])
        with pytest.raises(SystemExit) as left:
            main()
    assert left.value.code == 2


@pytest.mark.usefixtures("folder")
def test_a_worker_that_is_too_small_is_named() -> None:
    told = sentence(invoke("plan", *compared("--memory-limit", "100kB", "--workers", "1", "--block-rows", "1500")))
    assert "use block_rows=" in told
    assert "give workers more memory" in told


# ---------------------------------------------------------------------------------------------------------------- runs


class Broken:
    """A store that fails after some pieces, as when the machine is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.monkeypatch, self.left, self.put = monkeypatch, after, Folder.put

        def put(store: Folder, key: str, table: Any) -> str:
            return self._put(store, key, table)

        monkeypatch.setattr(Folder, "put", put)

    def _put(self, store: Folder, key: str, table: Any) -> str:
        self.left -= 1
        if self.left < 0:
            raise RunError("the machine is lost.")
        return self.put(store, key, table)

    def mend(self) -> None:
        self.monkeypatch.setattr(Folder, "put", self.put)


@pytest.mark.usefixtures("folder", "threads")
@pytest.mark.parametrize("named", [False, True])
def test_a_run_that_died_is_listed_resumed_and_cleaned(
    named: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert evaluate("--quiet").exit_code == 0
    whole = numbers()
    shutil.rmtree("out")
    machine = Broken(monkeypatch, after=5)
    assert "the machine is lost" in sentence(evaluate("--store", "st", "--quiet"), 3)
    machine.mend()
    kept = len(pieces("st"))
    assert 5 <= kept < 27
    line = invoke("runs", "list", "--store", "st").stdout.split("  ")
    name = line[0]
    assert [word.strip() for word in line[1:]][:1] == ["open"]
    assert f"{kept} pieces" in " ".join(line)
    assert "train 1,500 rows" in line[-1]
    assert not Path("out", "report.json").exists()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    done = invoke("runs", "resume", "--store", str(tmp_path / "st"), *([name] if named else []))
    assert done.exit_code == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    assert numbers() == whole
    assert (costs()["name"], costs()["pieces_used_again"]) == (name, kept)
    assert "finished" in invoke("runs", "list", "--store", "st").stdout
    assert "no run is open" in sentence(invoke("runs", "resume", "--store", "st"))
    cleaned = invoke("runs", "clean", "--store", "st")
    assert cleaned.stdout.startswith("deleted 1 run(s)")
    assert list(Path("st").iterdir()) == []
    assert invoke("runs", "list", "--store", "st").stdout == "no runs.\n"


@pytest.mark.usefixtures("folder", "threads")
def test_the_same_command_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Broken(monkeypatch, after=4)
    sentence(evaluate("--quiet"), 3)
    machine.mend()
    kept = len(pieces("out/runs"))
    assert kept >= 4
    done = evaluate()
    assert done.exit_code == 0
    assert f"{kept} finished pieces of an earlier start are used." in done.stderr
    assert not Path("out", "runs").exists()
    assert sorted(p.name for p in Path("out").iterdir()) == ["report.html", "report.json", "run.json"]


@pytest.mark.usefixtures("folder", "threads")
def test_a_named_store_is_kept_and_used_again() -> None:
    assert evaluate("--store", "st", "--quiet").exit_code == 0
    first, whole = costs(), numbers()
    assert first["pieces_used_again"] == 0
    again = evaluate("--store", "st", "--log-json")
    assert again.exit_code == 0
    second = costs()
    assert second["pieces_used_again"] == len(pieces("st")) == 42
    assert second["pairs"] == 0 < first["pairs"]
    assert numbers() == whole
    events = [json.loads(line) for line in again.stderr.splitlines()]
    named = next(i for i, e in enumerate(events) if e["event"] == "RunNamed")
    assert events[named]["kept"] == 42
    assert {e["run"] for e in events[named:]} == {first["name"]}
    assert {e["run"] for e in events[:named]} == {""}
    assert "no run is open" in sentence(invoke("runs", "resume", "--store", "st"))


@pytest.mark.usefixtures("folder", "threads")
def test_what_run_json_holds() -> None:
    assert evaluate("--quiet").exit_code == 0
    held = costs()
    assert len(held["name"]) == 20
    assert held["pairs"] == 9 * 1_500**2
    assert held["seconds"] > 0
    assert held["peak_memory_client"] > 10**7
    assert set(held["versions"]) >= {"python", "dask", "distributed", "numba"}
    assert held == json.loads(Path("out/report.json").read_text())["run"]


CHANGES = {
    "synthetic": lambda f: f["synthetic"].assign(age=lambda t: t["age"].where(t.index != 700, 17)),
    "order": lambda f: f["synthetic"].iloc[::-1].reset_index(drop=True),
    "shorter": lambda f: f["synthetic"].iloc[:-1],
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("change", [*CHANGES, "weights", "schema", "missing", "range", "exclude", "preset", "version"])
def test_changed_input_never_meets_old_pieces(change: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ["--metrics", "clones", "--quiet"]
    assert evaluate(*metrics, "--store", "st").exit_code == 0
    more: list[str] = []
    if change in CHANGES:
        CHANGES[change](frames()).to_parquet(folder / "synthetic.parquet", index=False)
    elif change == "weights":
        Path("w.yaml").write_text("age: 2.0")
        more = ["--weights", "w.yaml"]
    elif change == "schema":
        text = invoke("schema", "infer", "train.parquet", "holdout.parquet").stdout
        Path("s.yaml").write_text(text.replace("kind: numeric", "kind: nominal", 1))
        more = ["--schema", "s.yaml"]
    elif change == "version":
        monkeypatch.setattr(runs, "__version__", "99.0")
    else:
        options = {"missing": "--missing gower", "range": "--range-from train", "exclude": "--exclude city"}
        more = options.get(change, "--preset mostly-paper").split()
    before = pieces("st")
    done = evaluate(*metrics, *more, "--store", "st")
    assert done.exit_code == 0, done.stderr
    assert costs()["pieces_used_again"] == 0
    assert len(list(Path("st").iterdir())) == 2
    assert set(before) < set(pieces("st"))


@pytest.mark.usefixtures("threads")
def test_content_counts_and_not_where_it_lies(folder: Path) -> None:
    assert evaluate("--store", "st", "--quiet").exit_code == 0
    name = costs()["name"]
    synthetic = pd.read_parquet("synthetic.parquet")
    Path("synthetic.parquet").unlink()
    Path("parts").mkdir()
    synthetic.iloc[:400].to_parquet("parts/a.parquet", index=False)
    synthetic.iloc[400:].to_parquet("parts/b.parquet", index=False)
    done = evaluate("--synthetic", "parts", "--store", "st", "--quiet", "--seed", "7")
    assert done.exit_code == 0, done.stderr
    assert (costs()["name"], costs()["pieces_used_again"]) == (name, 42)


@pytest.mark.usefixtures("folder", "threads")
def test_odd_stores() -> None:
    Path("file").write_text("x")
    assert "is a file" in sentence(invoke("runs", "list", "--store", "file"))
    assert "is a file" in sentence(invoke("runs", "clean", "--store", "file"))
    assert "file' (File exists); choose another place" in sentence(evaluate("--store", "file"))
    Path("empty").mkdir()
    assert invoke("runs", "list", "--store", "empty").stdout == "no runs.\n"
    assert invoke("runs", "clean", "--store", "empty").stdout.startswith("deleted 0 run(s)")
    assert evaluate("--store", "empty", "--quiet", "--metrics", "clones").exit_code == 0
    foreign = {
        "notes.txt": b"mine",
        "manifest.json": b"{}",
        "other/manifest.json": b"not json",
        "third/manifest.json": b'{"format": 99}',
        "fourth/manifest.json": b"[]",
        "letters/mail.parquet": b"PAR1",
    }
    for name, data in foreign.items():
        Path("empty", name).parent.mkdir(exist_ok=True)
        Path("empty", name).write_bytes(data)
    assert len(invoke("runs", "list", "--store", "empty").stdout.splitlines()) == 1
    unknown = sentence(invoke("runs", "clean", "--store", "empty", costs()["name"], "other"))
    assert "there is no run 'other'" in unknown
    assert len(invoke("runs", "list", "--store", "empty").stdout.splitlines()) == 1
    assert "there is no run 'nope'" in sentence(invoke("runs", "resume", "--store", "empty", "nope"))
    assert invoke("runs", "clean", "--all", "--store", "empty").stdout.startswith("deleted 1 run(s)")
    assert {p.relative_to("empty").as_posix() for p in Path("empty").rglob("*") if p.is_file()} == set(foreign)


@pytest.mark.usefixtures("folder", "threads")
def test_resume_repeats_evaluations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Broken(monkeypatch, after=2)
    sentence(evaluate("--store", "st", "--quiet"), 3)
    machine.mend()
    (path,) = Path("st").glob("*/manifest.json")
    whole = json.loads(path.read_text())
    for change, said in (
        ({"command": ["demo"]}, "is damaged"),
        ({"command": ["runs", "clean", "--all"]}, "is damaged"),
        ({"command": []}, "was not started from the command line"),
        ({"directory": "/no/such/place"}, "was started in '/no/such/place'"),
    ):
        path.write_text(json.dumps({**whole, **change}))
        assert said in sentence(invoke("runs", "resume", "--store", "st"))
    assert len(invoke("runs", "list", "--store", "st").stdout.splitlines()) == 1


@pytest.mark.usefixtures("folder")
def test_runs_of_the_python_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Broken(monkeypatch, after=3)
    tables = {name: f"{name}.parquet" for name in ROLES}
    with pytest.raises(RunError, match="machine is lost"):
        daskpriv.evaluate(**tables, store=Path("st"), block_rows=500)
    machine.mend()
    assert "was not started from the command line" in sentence(invoke("runs", "resume", "--store", "st"))
    report = daskpriv.evaluate(**tables, store="st", block_rows=700)
    assert report.run["pieces_used_again"] >= 3
    assert report.run["block_rows"] == 500


@pytest.mark.usefixtures("folder", "threads")
def test_a_run_is_resumed_as_it_was_asked_for_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other metrics are the same run with more pieces: it is open again, and resumed with the command of now."""
    assert evaluate("--metrics", "clones", "--store", "st", "--quiet").exit_code == 0
    few = len(pieces("st"))
    machine = Broken(monkeypatch, after=3)
    sentence(evaluate("--store", "st", "--output", "second", "--quiet"), 3)
    machine.mend()
    assert "  open  " in invoke("runs", "list", "--store", "st").stdout
    assert invoke("runs", "clean", "--store", "st").stdout.startswith("deleted 0 run(s)")
    done = invoke("runs", "resume", "--store", "st")
    assert done.exit_code == 0, done.stderr
    # Longer lists of synthetic rows are asked for now: the three blocks each of two searches are made anew.
    assert costs("second")["pieces_used_again"] == few - 6 + 3
    assert {"dcr", "clones", "dcr_share"} < set(json.loads(Path("second/report.json").read_text())["metrics"])


@pytest.mark.usefixtures("folder", "threads")
@pytest.mark.parametrize("url", ["s3://AKIAX:verysecret@bucket/runs", "memory://runs?token=verysecret"])
def test_a_store_with_a_credential_is_refused(url: str) -> None:
    for done in (evaluate("--store", url), *(invoke("runs", c, "--store", url) for c in ("list", "resume", "clean"))):
        told = sentence(done)
        assert told.startswith("daskpriv: store: the URL carries a credential")
        assert "verysecret" not in told


# ------------------------------------------------------------------------------------------------------------- clusters


def cluster_file(text: str) -> str:
    Path("cluster.yaml").write_text(text)
    return "cluster.yaml"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class: [1,\n", "this is not valid YAML"),
        ("- a\n", "give 'class'"),
        ("arguments: {}\n", "give 'class'"),
        ("class: 3\n", "give 'class'"),
        ("class: no.such.Cluster\n", "there is no class 'no.such.Cluster'"),
        ("class: distributed.NoCluster\n", "there is no class 'distributed.NoCluster'"),
        ("class: LocalCluster\n", "there is no class 'LocalCluster'"),
        ("class: os.getcwd\n", "makes no Dask cluster"),
        (LOCAL + "colour: red\n", "unknown key 'colour'"),
        (LOCAL + "arguments: [1]\n", "must map names to values"),
        (LOCAL + "adapt: {1: 2}\n", "must map names to values"),
        (LOCAL + "scale: many\n", "'scale' must be a whole number"),
        (LOCAL + "scale: 0\n", "'scale' must be a whole number"),
        (LOCAL + "arguments: {n_workers: banana}\n", "does not start (TypeError)"),
        (LOCAL + "arguments: !!python/object/apply:pathlib.Path.touch [pwned]\n", "this is not valid YAML"),
        ("!!python/object/apply:os.system ['touch pwned']\n", "this is not valid YAML"),
        ("class: !!python/name:distributed.LocalCluster ''\n", "this is not valid YAML"),
    ],
)
def test_bad_cluster_files(text: str, said: str) -> None:
    assert said in sentence(evaluate("--cluster", cluster_file(text)))
    assert not Path("pwned").exists()


class Costly:
    """A cluster that counts whether it is closed."""

    scheduler_address = "tcp://127.0.0.1:1"
    closed = 0

    def scale(self, count: int) -> None:
        raise RuntimeError("no quota")

    def close(self) -> None:
        type(self).closed += 1


def test_a_cluster_that_does_not_come_up_is_closed() -> None:
    with pytest.raises(InputError, match=r"does not start \(RuntimeError\)"):
        Spec(f"{__name__}.Costly", {}, scale=3, source="cluster 'x'").start()
    assert Costly.closed == 1


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--cluster missing.yaml", "cannot be read (No such file or directory)"),
        ("--cluster missing.json", "there is no such scheduler file"),
        ("--cluster train.parquet", "is not understood"),
        ("--cluster local:0", "has no workers"),
        ("--cluster tcp://", "does not answer"),
        ("--cluster wrong.json", "this is not a scheduler file"),
        ("--cluster tcp://h:1 --workers 2", "belong to a local cluster"),
        ("--cluster tls://h:1 --tls-cert a", "together"),
        ("--cluster tls://h:1 --tls-ca-file a --tls-cert b --tls-key c", "there is no file 'a'"),
        ("--cluster local:1 --tls-ca-file a", "belong to a cluster that runs"),
        ("--performance-report p.html", "needs bokeh"),
    ],
)
def test_bad_cluster_options(options: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.cli.clusters.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("daskpriv.cluster.connect._KNOCK", 600)
    Path("wrong.json").write_text("[]")
    begun = time.monotonic()
    assert said in sentence(evaluate(*options.split()))
    assert time.monotonic() - begun < 300


def test_no_performance_report_unless_asked() -> None:
    with performance_report(None):
        pass


@pytest.fixture
def mute() -> Iterator[str]:
    """Something that takes connections and never says a word."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield f"tcp://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("where", ["mute", "nobody"])
def test_a_wrong_address_is_told_in_time(where: str, mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.cluster.connect._KNOCK", 2)
    address = mute if where == "mute" else "tcp://127.0.0.1:9"
    begun = time.monotonic()
    if where == "mute":
        done = evaluate("--cluster", address)
    else:
        with dask.config.set({"scheduler-address": address}):
            done = evaluate()
    assert f"cluster '{address}' does not answer" in sentence(done)
    assert time.monotonic() - begun < 100


def test_the_times_to_wait_fit_together() -> None:
    from daskpriv.cluster import connect

    assert connect._KNOCK + connect._CONNECT < 30


@pytest.mark.cluster
def test_a_scheduler_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.cluster.connect._KNOCK", 1)
    with ports.reserved() as held:
        port = ports.number(held)
        start = f"sleep 3; exec {sys.executable} -m dask scheduler --host 127.0.0.1 --port {port} --no-dashboard"
        late = subprocess.Popen(["sh", "-c", start], stderr=subprocess.DEVNULL)
        try:
            wait, told = dask.config.set({"daskpriv.scheduler-wait": "10 minutes"}), list[str]()
            with wait, remote_cluster(f"tcp://127.0.0.1:{port}", tell=told.append) as client:
                assert client.scheduler_info()["workers"] == {}
        finally:
            late.kill()
            late.wait()
    assert told == [f"cluster 'tcp://127.0.0.1:{port}' does not answer yet; waiting up to 600 seconds for it."]


@pytest.mark.usefixtures("folder")
def test_the_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "environment.json")
    assert "cluster 'environment.json': there is no such scheduler file" in sentence(evaluate())
    assert "cluster 'other.json'" in sentence(evaluate("--cluster", "other.json"))


@pytest.mark.parametrize("value", ["banana", -1, 0, "0s", None, [], {}, float("nan"), float("inf"), "5 lightyears"])
@pytest.mark.parametrize("name", ["patience", "scheduler-wait", "unit-limit", "stall-limit", "pause-limit"])
def test_bad_times_in_the_configuration(name: str, value: Any) -> None:
    with dask.config.set({f"daskpriv.{name}": value}), pytest.raises(InputError, match=f"daskpriv.{name} must be"):
        (limits(), scheduler_wait())


@pytest.mark.parametrize("value", ["banana", -1, None, float("nan")])
def test_a_bad_time_for_stores(value: Any) -> None:
    with (
        dask.config.set({"daskpriv.store-wait": value}),
        pytest.raises(InputError, match=r"store-wait must be .* 0 or"),
    ):
        store_wait()


@pytest.mark.parametrize("value", ["banana", 0, True, 1.5, None])
def test_bad_attempts_in_the_configuration(value: Any) -> None:
    with dask.config.set({"daskpriv.attempts": value}), pytest.raises(InputError, match=r"daskpriv\.attempts"):
        limits()


@pytest.mark.parametrize(
    ("address", "clear"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("tcp://127.8.9.1:8786", False),
        ("tcp://10.0.0.7:8786", True),
        ("tcp://[2001:db8::1]:8786", True),
        ("tcp://127.0.0.1.example.org:8786", True),
        ("ucx://10.0.0.7:8786", True),
        ("ws://scheduler:8786", True),
        ("wss://scheduler:8786", False),
        ("tls://10.0.0.7:8786", False),
        ("inproc://10.0.0.7/1/1", False),
    ],
)
def test_which_connections_carry_cells_in_clear(address: str, clear: bool) -> None:
    class Known:
        class scheduler:
            pass

    Known.scheduler.address = address  # type: ignore[attr-defined]
    assert carries_cells_in_clear(Known) is clear  # type: ignore[arg-type]


@pytest.mark.cluster
@pytest.mark.xdist_group("faults")
@pytest.mark.usefixtures("folder")
class TestClustersThatStart:
    def test_described_in_a_file(self) -> None:
        quick = ("--quiet", "--metrics", "clones")
        assert evaluate("--cluster", cluster_file(LOCAL + INSIDE % 0 + "scale: 2\n"), *quick).exit_code == 0
        first = numbers()
        assert costs()["slots"] >= 1
        with dask.config.set({"daskpriv.patience": "5 minutes"}):
            text = LOCAL + INSIDE % 0 + "adapt: {minimum: 0, maximum: 2, interval: 100ms}\n"
            done = evaluate("--cluster", cluster_file(text), *quick)
        assert done.exit_code == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert numbers() == first

    def test_doctor(self) -> None:
        described = cluster_file(LOCAL + INSIDE % 1)
        done = invoke("doctor", "--cluster", described, "--store", "st", "train.parquet", "synthetic.parquet")
        assert done.exit_code == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert all(line.startswith("ok ") for line in lines)
        for what in ("connection", "workers", "scheduler", "worker inproc", "'train.parquet'", "store", "kernels"):
            assert any(what in line for line in lines), what
        assert list(Path("st").iterdir()) == []
        told = sentence(invoke("doctor", "--cluster", described, "missing.parquet"))
        assert "'missing.parquet' does not exist" in told
        assert "cannot write 'train.parquet'" in sentence(
            invoke("doctor", "--cluster", described, "--store", "train.parquet")
        )

    def test_doctor_of_processes_that_have_another_version(self) -> None:
        described = cluster_file(LOCAL + INSIDE % 1)
        with pytest.MonkeyPatch.context() as patch:
            mine = {**daskpriv.cluster.preflight.probe(), "dask": "0.1"}
            patch.setattr("daskpriv.cluster.examine.probe", _Probe(mine))
            done = invoke("doctor", "--cluster", described)
        assert done.exit_code == 1
        assert any(line.startswith("BAD  scheduler: has dask ") for line in done.stdout.splitlines())

    def test_bad_settings_of_the_environment_and_a_killed_run(self, folder: Path) -> None:
        out, store = folder / "o", folder / "st"
        tables = Tables(*(str(folder / f"{name}.parquet") for name in ROLES))
        inside = str(folder / cluster_file(LOCAL + INSIDE % 1))
        bad = run_cli.evaluate(tables, out, inside, env={"DASK_DASKPRIV__PATIENCE": "banana"})
        assert bad.code == 2, bad.stderr
        assert bad.stderr.strip() == (
            "daskpriv: Dask configuration: daskpriv.patience must be a time above 0, such as '30 seconds'."
        )
        more = ["--store", str(store), "--block-rows", "100"]
        run = run_cli.evaluate(tables, out, inside, more, kill_at=lambda: len(pieces(str(store))) >= 3)
        assert run.killed, run.stderr
        listed = invoke("runs", "list", "--store", str(store)).stdout
        assert "  open  " in listed
        name, kept = listed.split("  ", 1)[0], len(pieces(str(store)))
        done = run_cli.command(["runs", "resume", "--store", str(store)], out)
        assert done.code == 0, done.stderr
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        assert next(e for e in events if e["event"] == "RunNamed") | {"time": 0} == {
            "event": "RunNamed",
            "time": 0,
            "run": name,
            "kept": kept,
        }
        assert done.report is not None
        assert done.report["run"]["pieces_used_again"] == kept


class _Probe:
    """Says one thing here and the truth elsewhere."""

    def __init__(self, mine: dict[str, Any]) -> None:
        self.mine = mine

    def __call__(self) -> dict[str, Any]:
        return self.mine

    def __reduce__(self) -> Any:
        return _truth, ()


def _truth() -> Any:
    from daskpriv.cluster.preflight import probe

    return probe
