"""The command line as a stranger uses it: real processes, exit codes, one sentence on stderr."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import daskpriv
from daskpriv.cli import cli
from daskpriv.report.model import report_schema
from tests.cluster import run_cli

CANARY = "Zaphod-7731"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small real tables; the leaky one holds half of train."""
    rng = np.random.default_rng(3)

    def table(n: int) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "age": rng.integers(18, 90, n),
                "pay": rng.normal(3e4, 9e3, n).round(2),
                "city": rng.choice([CANARY, "Linz"], n),
            }
        )

    train, holdout, good = table(300), table(300), table(300)
    leaky = pd.concat([train.head(150), good.head(150)])
    for name, frame in (("train", train), ("holdout", holdout), ("good", good), ("leaky", leaky)):
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    return tmp_path


def args(folder: Path, synthetic: str = "good", *more: str, holdout: bool = True) -> list[str]:
    out = ["evaluate", "--train", str(folder / "train.parquet"), "--synthetic", str(folder / f"{synthetic}.parquet")]
    out += ["--holdout", str(folder / "holdout.parquet")] if holdout else []
    return [*out, "--output", str(folder / "out"), "--cluster", "local:1", *more]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daskpriv", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=run_cli.LONG, env=env)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in this process without a cluster, for the cases where the cluster is not the point."""
    from contextlib import nullcontext

    monkeypatch.setattr("daskpriv.cli.evaluate.client_for", lambda *a: nullcontext())


def invoke(arguments: list[str]) -> Result:
    return CliRunner().invoke(cli, arguments)


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "report.json").read_text())


def test_a_whole_run_in_a_process_of_its_own(folder: Path) -> None:
    done = process(*args(folder, "leaky", "--internal", "--fail-on", "leak", "--fail-on", "dcr_share<0"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "daskpriv: rule 'leak' is broken."
    assert "Overall: LEAK" in done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    data = report_of(folder)
    jsonschema.validate(data, report_schema())
    assert data["metrics"]["clones"]["details"]["n_synthetic_train"] >= 150
    assert data["overall"]["rules"] == [{"rule": "leak", "broken": True}, {"rule": "dcr_share<0", "broken": False}]
    assert data["run"]["executor"] == "dask"
    rows = pq.read_table(folder / "out" / "internal" / "records.parquet")
    assert rows.column("row").to_pylist() == list(range(300))
    assert int((rows.column("distance_train").to_numpy() == 0).sum()) >= 150


def test_no_cell_value_leaves_the_run(folder: Path) -> None:
    done = process(*args(folder, "leaky", "--internal", "--log-json"))
    assert done.returncode == 0
    written = b"".join(p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file())
    assert CANARY.encode() not in written + done.stdout.encode() + done.stderr.encode()


def test_progress_is_json_lines_when_asked(folder: Path) -> None:
    done = process(*args(folder, "good", "--log-json"))
    events = [json.loads(line) for line in done.stderr.splitlines()]
    name = "search-synthetic-x-train"
    search = next(e for e in events if e["event"] == "StageStarted" and e["stage"] == name)
    assert search["pairs"] == sum(e["pairs"] for e in events if e["event"] == "TaskDone" and e["stage"] == name) > 0


# In every process of the run, as on a machine that is too busy to make a folder within a second.
BUSY = """
from distributed import core
real = core.warn_on_duration
core.warn_on_duration = lambda duration, message: real("0s", message)
"""


def test_quiet_is_quiet(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(BUSY)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = process(*args(folder, "good", "--quiet"), PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_plain_lines_without_a_terminal(folder: Path) -> None:
    done = process(*args(folder, "good"))
    assert "search-synthetic-x-train: " in done.stderr
    assert "pairs" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics", "nope"], "unknown metric 'nope'; known are dcr, clones, dcr_share,"),
        (["--fail-on", "speed"], "rule 'speed' is not understood"),
        (["--fail-on", "nndr<1"], "rule 'nndr<1': 'nndr' is not among the metrics of this run"),
        (["--schema", "missing.yaml"], "schema: cannot read 'missing.yaml'"),
        (["--weights", "missing.yaml"], "weights: cannot read 'missing.yaml'"),
        (["--columns", "age,nope"], "columns: train has no column 'nope'"),
        (["--exclude", "nope"], "exclude: train has no column 'nope'"),
        (["--exclude", "age,pay,city"], "train: no columns are left"),
    ],
)
def test_bad_usage_is_one_sentence(threads: None, folder: Path, arguments: list[str], sentence: str) -> None:
    result = invoke(args(folder, "good", *arguments))
    assert result.exit_code == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"daskpriv: {sentence}"), last
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate"],
        ["evaluate", "--train", "a"],
        ["evaluate", "--nope"],
        ["nope"],
        ["evaluate", "--train", "a", "--synthetic", "b", "--output", "o", "--seed", "-1"],
        ["evaluate", "--train", "a", "--synthetic", "b", "--output", "o", "--preset", "nope"],
    ],
)
def test_usage_errors_exit_2_with_one_line(arguments: list[str]) -> None:
    done = process(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("daskpriv: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_cluster_that_is_not_there() -> None:
    done = process("evaluate", "--train", "a", "--synthetic", "b", "--output", "o", "--cluster", "mars")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("daskpriv: cluster 'mars' is not understood")


def test_a_bug_is_told_in_one_sentence_too(threads: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr("daskpriv.cli.evaluate.run", broken)
    result = invoke(args(folder))
    assert result.exit_code == 3
    assert result.stderr.startswith("daskpriv: unexpected ZeroDivisionError")
    assert CANARY not in result.output


def test_a_run_that_fails_exits_3(threads: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise daskpriv.RunError("a task failed on the cluster (KilledWorker).")

    monkeypatch.setattr("daskpriv.cli.evaluate.run", broken)
    assert invoke(args(folder)).exit_code == 3


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("leak", 1),
        ("inconclusive", 1),
        ("dcr_share>0.55", 1),
        ("dcr_share >= 2", 0),
        ("dcr_share.p_value<0.01", 1),
        ("clones.rates.synthetic_train<0.1", 0),
        ("dcr.synthetic->train.n_zero>10", 1),
        ("dcr.synthetic->holdout.n_zero>=1e6", 0),
    ],
)
def test_fail_on(threads: None, folder: Path, rule: str, code: int) -> None:
    assert invoke(args(folder, "leaky", "--fail-on", rule)).exit_code == code


def test_a_rule_on_what_was_not_evaluated_is_broken(threads: None, folder: Path) -> None:
    assert invoke(args(folder, "good", "--fail-on", "dcr_share>0.99", holdout=False)).exit_code == 1


def test_a_rule_that_names_an_unknown_key(threads: None, folder: Path) -> None:
    result = invoke(args(folder, "good", "--fail-on", "clones.nope>0"))
    assert result.exit_code == 2
    assert "metric 'clones' has no 'nope'; known are" in result.stderr


def test_csv_and_gzip_give_the_same_numbers(threads: None, folder: Path) -> None:
    assert invoke(args(folder, "leaky")).exit_code == 0
    wanted = report_of(folder)["metrics"]
    for name in ("train", "holdout", "leaky"):
        frame = pd.read_parquet(folder / f"{name}.parquet")
        frame.to_csv(folder / f"{name}.csv", index=False)
        with gzip.open(folder / f"{name}.csv.gz", "wt") as handle:
            frame.to_csv(handle, index=False)
    for ending in ("csv", "csv.gz"):
        given = [a.replace(".parquet", f".{ending}") for a in args(folder, "leaky")]
        assert invoke(given).exit_code == 0
        assert report_of(folder)["metrics"] == wanted


def test_weights_and_columns_change_the_distance(threads: None, folder: Path) -> None:
    (folder / "weights.yaml").write_text("age: 3\ncity: 0\n")
    assert invoke(args(folder, "leaky", "--weights", str(folder / "weights.yaml"))).exit_code == 0
    weighted = report_of(folder)["metrics"]["dcr"]["details"]["synthetic->train"]["mean"]
    assert [c["weight"] for c in report_of(folder)["space"]["columns"]] == [3.0, 1.0, 0.0]
    assert invoke(args(folder, "leaky", "--columns", "age,city")).exit_code == 0
    assert [c["name"] for c in report_of(folder)["space"]["columns"]] == ["age", "city"]
    assert report_of(folder)["metrics"]["dcr"]["details"]["synthetic->train"]["mean"] != weighted


def test_schema_infer_is_read_back(threads: None, folder: Path) -> None:
    inferred = invoke(["schema", "infer", str(folder / "train.parquet")])
    assert inferred.exit_code == 0
    edited = inferred.stdout.replace("    kind: nominal", "    kind: id")
    (folder / "schema.yaml").write_text(edited)
    assert invoke(args(folder, "good", "--schema", str(folder / "schema.yaml"))).exit_code == 0
    kinds = {c["name"]: c["kind"] for c in report_of(folder)["space"]["columns"]}
    assert kinds == {"age": "numeric", "pay": "numeric", "city": "id"}


def test_schema_check_finds_what_differs(folder: Path) -> None:
    frame = pd.read_parquet(folder / "good.parquet")
    frame.astype({"age": "float64"})[["pay", "age", "city"]].replace("Linz", "Wien").to_parquet(
        folder / "other.parquet"
    )
    result = invoke(["schema", "check", str(folder / "train.parquet"), str(folder / "other.parquet")])
    assert result.exit_code == 0
    assert "another order" in result.stdout
    assert "type double, but int64" in result.stdout
    frame.rename(columns={"age": "Age"}).to_parquet(folder / "renamed.parquet")
    result = invoke(["schema", "check", str(folder / "train.parquet"), str(folder / "renamed.parquet")])
    assert result.exit_code == 2
    assert "different columns" in result.stderr


def test_the_page_is_drawn_again_from_the_json_alone(threads: None, folder: Path) -> None:
    invoke(args(folder, "leaky"))
    page = (folder / "out" / "report.html").read_text()
    (folder / "out" / "report.html").unlink()
    assert invoke(["report", "--from", str(folder / "out" / "report.json")]).exit_code == 0
    assert (folder / "out" / "report.html").read_text() == page
    (folder / "broken.json").write_text('{"format": 1}')
    result = invoke(["report", "--from", str(folder / "broken.json")])
    assert (result.exit_code, "is incomplete" in result.stderr) == (2, True)


def test_output_that_cannot_be_written(threads: None, folder: Path) -> None:
    (folder / "file").write_text("a file")
    arguments = [a.replace(str(folder / "out"), str(folder / "file" / "out")) for a in args(folder)]
    result = invoke(arguments)
    assert result.exit_code == 2
    assert "output: cannot write" in result.stderr


def test_version() -> None:
    assert process("--version").stdout == f"daskpriv, version {daskpriv.__version__}\n"


def test_dask_priv_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dask", "priv", "--help"], capture_output=True, text=True, check=True)
    assert "evaluate" in done.stdout


@pytest.mark.xdist_group("cluster")
def test_demo(tmp_path: Path) -> None:
    done = process("demo", "--output", str(tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    good, leaky = done.stdout.split("=== the leaky")
    assert "Overall: INCONCLUSIVE" in good
    assert "dcr_share             BOUNDED" in good
    assert "Overall: LEAK" in leaky
    for name in ("good", "leaky"):
        jsonschema.validate(json.loads((tmp_path / "r" / name / "report.json").read_text()), report_schema())
