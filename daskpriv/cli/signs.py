"""`daskpriv sign-test`: from the utility of several data sets to one answer per model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from daskpriv.errors import InputError
from daskpriv.report.model import FORMAT
from daskpriv.utility import ROPE, SignTest, bayes_sign_test


@click.command("sign-test")
@click.argument("reports", nargs=-1, required=True)
@click.option(
    "--rope",
    type=click.FloatRange(min=0),
    default=ROPE,
    show_default=True,
    help="Differences of so many per cent do not matter.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of the table.")
def sign_test_command(reports: Sequence[str], rope: float, as_json: bool) -> None:
    """Tell from REPORTS (report.json of one data set each) whether synthetic tables are worse to learn from, or not.

    For each model: the probability that over such data sets the synthetic table is mostly worse than train, mostly
    equivalent, mostly better (Bayesian sign test of the percentage differences of metric `utility`).
    """
    twice = next((r for i, r in enumerate(reports) if r in reports[:i]), None)
    if twice is not None:
        raise InputError(f"sign-test: {twice!r} is given twice; give each data set once.")
    found, without = _differences(reports)
    tests = {model: bayes_sign_test(values, rope) for model, values in found.items()}
    if as_json:
        click.echo(json.dumps({"rope": rope, "models": {m: asdict(t) for m, t in tests.items()}, "left_out": without}))
        return
    click.echo(_table(tests, rope))
    for model, n in without.items():
        click.echo(f"{model}: {n} data set(s) are left out, because the model learnt nothing from train there.")


def _differences(reports: Sequence[str]) -> tuple[dict[str, list[float]], dict[str, int]]:
    """The percentage differences of each model, and how many reports have none because nothing could be learnt."""
    found: dict[str, list[float]] = {}
    without: dict[str, int] = {}
    for path in reports:
        for model, line in _models(path).items():
            value = line.get("difference") if isinstance(line, Mapping) else None
            if isinstance(value, (int, float)):
                found.setdefault(model, []).append(float(value))
            else:
                without[model] = without.get(model, 0) + 1
    if not found:
        raise InputError(
            "sign-test: in none of these reports did a model learn anything; give reports of other tables."
        )
    return found, without


def _models(path: str) -> Mapping[str, Any]:
    try:
        report = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InputError(f"sign-test: cannot read {path!r} as JSON; give a report.json written by daskpriv.") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise InputError(f"sign-test: {path!r} is not a report.json of format {FORMAT}; give one written by daskpriv.")
    try:
        models = report["metrics"]["utility"]["details"]["models"]
    except (KeyError, TypeError):
        models = None
    if not isinstance(models, Mapping):
        raise InputError(
            f"sign-test: {path!r} holds no metric utility; run `daskpriv evaluate` with --target COLUMN for it."
        )
    return models


def _table(tests: Mapping[str, SignTest], rope: float) -> str:
    lines = [f"{'model':<24}{'data sets':>11}{'worse':>10}{'equivalent':>13}{'better':>10}"]
    for model, t in tests.items():
        lines.append(f"{model:<24}{sum(t.counts):>11}{t.worse:>10.4f}{t.equivalent:>13.4f}{t.better:>10.4f}")
    lines.append(
        f"probability that over data sets like these the synthetic table is mostly so; equivalent: within {rope:g} %"
    )
    return "\n".join(lines)
