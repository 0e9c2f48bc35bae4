"""`daskpriv sign-test`: several reports, one answer per model, and files that are no reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daskpriv.cli import cli
from daskpriv.utility import bayes_sign_test


def report(folder: Path, name: str, **differences: float | None) -> str:
    """What of a report.json the command reads."""
    models = {model: {"difference": d} for model, d in differences.items()}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"format": 1, "metrics": {"utility": {"details": {"models": models}}}}))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sign-test", *arguments])


def test_each_model_has_its_own_test(tmp_path: Path) -> None:
    values = {"forest": [-4.0, -0.3, -7.0], "linear": [0.1, 0.2, None]}
    paths = [report(tmp_path, str(i), **{m: v[i] for m, v in values.items()}) for i in range(3)]
    done = run(*paths, "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.output)
    expected = bayes_sign_test([-4.0, -0.3, -7.0])
    assert told["models"]["forest"]["worse"] == expected.worse
    assert told["models"]["linear"]["counts"] == [0, 2, 0]
    assert told["left_out"] == {"linear": 1}
    table = run(*paths).output.splitlines()
    assert table[1].split() == ["forest", "3", f"{expected.worse:.4f}", f"{expected.equivalent:.4f}", "0.0000"]
    assert table[-1].startswith("linear: 1 data set(s) are left out")
    assert json.loads(run(*paths, "--json", "--rope", "0.15").output)["models"]["linear"]["counts"] == [0, 1, 1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "cannot read"),
        ("[]", "is not a report.json"),
        ('{"format": 2}', "is not a report.json"),
        ('{"format": 1, "metrics": {}}', "holds no metric utility"),
        ('{"format": 1, "metrics": {"utility": null}}', "holds no metric utility"),
        ('{"format": 1, "metrics": {"utility": {"details": {"models": {}}}}}', "in none of these reports"),
    ],
)
def test_what_is_no_report_is_one_sentence(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    done = run(str(path))
    assert done.exit_code == 2
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_a_data_set_counts_once(tmp_path: Path) -> None:
    path = report(tmp_path, "a", forest=1.0)
    assert "is given twice" in run(path, path).stderr
    assert "cannot read" in run(str(tmp_path / "missing.json")).stderr
