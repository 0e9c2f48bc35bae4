"""docs/utility.md is run, not believed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from daskpriv.cli import cli

PAGE = (Path(__file__).parents[2] / "docs" / "utility.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_command_works(adult: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, source in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_good")):
        pd.read_parquet(adult / f"{source}.parquet").head(800).to_parquet(f"{name}.parquet")
    for command in "".join(blocks("console")).splitlines():
        program, *arguments = shlex.split(command)
        assert program == "daskpriv"
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
    assert "probability that over data sets" in done.output
    rules = [a for rule in re.findall(r"--fail-on '(.*?)'", PAGE) for a in ("--fail-on", rule)]
    first = shlex.split(blocks("console")[0])[1:]
    assert len(rules) == 6
    assert CliRunner().invoke(cli, [*first, *rules]).exit_code in (0, 1)


def test_the_python_example_works() -> None:
    for code in blocks("python"):
        exec(compile(code, "utility.md", "exec"), {})
