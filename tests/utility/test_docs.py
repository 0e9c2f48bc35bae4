"""docs/utility.md is run, not believed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from daskpriv.cli import cli

PAGE = (Path(__file__).parents[2] / "docs" / "utility.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(command: str, *more: str) -> Result:
    program, *arguments = shlex.split(command)
    assert program == "daskpriv"
    return CliRunner().invoke(cli, [*arguments, *more])


def test_every_command_works(adult: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, source in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_good")):
        pd.read_parquet(adult / f"{source}.parquet").head(400).to_parquet(f"{name}.parquet")
    first, *others = "".join(blocks("console")).splitlines()
    rules = re.findall(r"--fail-on '(.*?)'", PAGE)
    assert len(rules) == 3
    done = run(first, *(a for rule in rules for a in ("--fail-on", rule)))
    assert done.exit_code in (0, 1), done.output
    assert all(f"rule {rule}: " in done.output for rule in rules)
    for command in others:
        done = run(command)
        assert done.exit_code == 0, done.output
    assert "probability that over data sets" in done.output


def test_the_python_example_works() -> None:
    for code in blocks("python"):
        exec(compile(code, "utility.md", "exec"), {})
