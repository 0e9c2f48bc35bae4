"""The README and the documentation are run, not believed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daskpriv.metrics import METRICS
from daskpriv.presets import PRESETS
from daskpriv.protocol import MODELLED

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def tables(adult: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files the README names."""
    for name, source in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_leaky")):
        shutil.copy(adult / f"{source}.parquet", tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a README command as this interpreter's own `daskpriv`."""
    program, *arguments = shlex.split(command)
    assert program == "daskpriv"
    return subprocess.run(
        [sys.executable, "-m", "daskpriv", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_python_example(tables: Path) -> None:
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})
    assert (tables / "report.html").stat().st_size > 1000


def test_console_examples(tables: Path) -> None:
    for command in blocks("console"):
        done = run(command.strip(), tables)
        assert done.returncode == 0, done.stderr
    assert (tables / "out" / "report.html").exists()
    assert (tables / "out" / "report.json").exists()


def test_schema_commands_of_the_table(tables: Path) -> None:
    inferred = run("daskpriv schema infer train.parquet holdout.parquet", tables)
    (tables / "schema.yaml").write_text(inferred.stdout)
    checked = run("daskpriv schema check --schema schema.yaml train.parquet synthetic.parquet", tables)
    assert (inferred.returncode, checked.returncode) == (0, 0), checked.stderr
    assert checked.stdout.endswith("15 of 15 columns used.\n")


def test_every_option_of_the_table_exists() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "daskpriv", "evaluate", "--help"], capture_output=True, text=True, check=True
    ).stdout
    table = README.split("| you want |")[1].split("Exit codes")[0]
    of_other_commands = {"--from", "--config"}
    for option in set(re.findall(r"--[a-z][a-z-]+", table)) - of_other_commands:
        assert option in help_text, option


def test_every_metric_and_preset_is_documented() -> None:
    definitions = (ROOT / "docs" / "definitions.md").read_text()
    for name in (*METRICS, *MODELLED):
        assert f"## {name}" in definitions
        assert f"`{name}`" in README
    for name in set(PRESETS) - {"default"}:
        assert f"`{name}`" in definitions


def test_links_lead_somewhere() -> None:
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "docs" / "definitions.md").read_text()):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page):
            assert (ROOT / target).exists(), target
