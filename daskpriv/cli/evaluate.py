"""`daskpriv evaluate`: the main job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from daskpriv import evaluate as run
from daskpriv.cli.clusters import client_for, cluster_options, performance_report, warn
from daskpriv.cli.progress import listener_for
from daskpriv.cluster.settings import store_wait
from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN
from daskpriv.metrics import METRICS
from daskpriv.presets import PRESETS
from daskpriv.protocol import MODELLED
from daskpriv.space.gower import Missing, RangeFrom
from daskpriv.tables.files import shown
from daskpriv.tables.schema import load_yaml
from daskpriv.tables.sinks import join
from daskpriv.tables.stores import await_answer

_POSITIVE = click.IntRange(min=1)


def _names(text: str | None) -> list[str]:
    return [n for n in (text or "").split(",") if n]


def _weights(path: str | None) -> dict[str, float] | None:
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError):
        raise InputError(f"weights: cannot read {path!r} as YAML or JSON; write lines such as 'age: 2.0'.") from None
    data = load_yaml(text, f"weights {path!r}", "write lines such as 'age: 2.0'")
    numbers = isinstance(data, dict) and all(
        isinstance(k, str) and isinstance(v, (int, float)) and not isinstance(v, bool) for k, v in data.items()
    )
    if not numbers:
        raise InputError(f"weights: {path!r} must map column names to numbers, such as 'age: 2.0'.")
    return dict(data)


def what_to_compare(command: Any) -> Any:
    """The options that say which tables and columns are compared, and how."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option(
            "--train", required=True, help="Real rows the generator saw: file, directory, glob or URL; Parquet or CSV."
        ),
        click.option("--synthetic", required=True, help="The table to be released."),
        click.option("--holdout", help="Real rows the generator did not see."),
        click.option(
            "--metrics",
            default="default",
            show_default=True,
            help=f"default, all, or names: {', '.join(METRICS)}; with daskpriv[utility] also {', '.join(MODELLED)}.",
        ),
        click.option("--target", help="Column that models are to predict: also measures `utility`."),
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds of one core for the cross-tabulations of each order; beyond, a subset.  [default: 1200]",
        ),
        click.option("--preset", type=click.Choice(list(PRESETS)), help="Reproduce a published tool."),
        click.option("--schema", type=click.Path(), help="YAML written by `daskpriv schema infer`."),
        click.option("--weights", type=click.Path(), help="YAML or JSON file of column weights."),
        click.option("--columns", help="Compare only these columns, comma separated."),
        click.option("--exclude", help="Leave out these columns, comma separated."),
        click.option(
            "--missing",
            type=click.Choice([m.value for m in Missing]),
            help="What a missing cell means.  [default: level]",
        ),
        click.option(
            "--range-from",
            type=click.Choice([r.value for r in RangeFrom]),
            help="Which rows give ranges.  [default: real]",
        ),
        click.option(
            "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Keys every random draw."
        ),
        click.option(
            "--subject-key",
            help="Column that says whose row it is: tests then draw subjects, not rows; see --order-by.",
        ),
        click.option(
            "--order-by", help="Column that orders the events of a subject: a row that is compared is then a subject."
        ),
        *(
            click.option(f"--{role}-subjects", help=f"Attributes of the subjects of {role}, one row each.")
            for role in (TRAIN, HOLDOUT, SYNTHETIC)
        ),
        click.option("--block-rows", type=_POSITIVE, help="Rows per block; never changes the result."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("evaluate")
@what_to_compare
@click.option("--output", required=True, help="Directory or URL for report.json and report.html.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RULE",
    help="Exit 1 if so: leak, inconclusive, gate, warning, dcr_share>0.55 ...",
)
@click.option("--policy", help="Levels, margins, thresholds and rules as YAML (daskpriv/policy.yaml).")
@click.option("--split", help="split.json of `daskpriv split`: how train and holdout were made.")
@click.option("--group-by", help="Columns by whose values shares are told as well, comma separated.")
@click.option("--internal", is_flag=True, help="Also write internal/*.parquet: distances and ids of every row.")
@click.option(
    "--store",
    help="Directory or URL that keeps what is finished, so that a run that died goes on.  [default: in the output]",
)
@cluster_options
@click.option("--performance-report", type=click.Path(), help="Write Dask's performance report (HTML) here.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
@click.option("--log-json", is_flag=True, help="Progress as JSON lines.")
@click.pass_context
def evaluate_command(ctx: click.Context, /, **options: Any) -> None:
    """Measure how much a synthetic table gives away; write report.json and report.html.

    A run that died goes on where it stopped when the same command is given again.

    Exit codes: 0 done, 1 done but a rule is broken, 2 bad usage or bad input, 3 the run failed.
    """
    asked = comparison(options)
    listening = listener_for(options["quiet"], options["log_json"])
    reporting = performance_report(options["performance_report"])
    with client_for(options) as client, listening as listener, reporting:
        _await_stores(options)
        report = run(
            **asked,
            client=client,
            output=options["output"],
            store=options["store"],
            internal=options["internal"],
            fail_on=options["fail_on"],
            policy=options["policy"],
            split=options["split"],
            group_by=_names(options["group_by"]),
            progress=listener,
            command=_typed(ctx),
        )
    if not options["quiet"]:
        click.echo(report.summary())
        click.echo(f"\nreport: {click.format_filename(join(options['output'], 'report.html'))}")
    for text, broken in report.rules:
        if broken:
            click.echo(f"daskpriv: rule {text!r} is broken.", err=True)
    ctx.exit(0 if report.passed else 1)


def comparison(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `daskpriv.evaluate` that `what_to_compare` gives."""
    same = (
        "train",
        "synthetic",
        "holdout",
        "metrics",
        "target",
        "budget",
        "preset",
        "schema",
        "missing",
        "range_from",
        "seed",
        "block_rows",
        "subject_key",
        "order_by",
    )
    return {
        **{name: options[name] for name in same},
        "weights": _weights(options["weights"]),
        "columns": _names(options["columns"]) or None,
        "exclude": _names(options["exclude"]),
        "subjects": {role: options[f"{role}_subjects"] for role in (TRAIN, HOLDOUT, SYNTHETIC)},
    }


def _await_stores(options: Mapping[str, Any]) -> None:
    """Where the job and its stores start together, they may come later; see `store-wait`."""
    end = time.monotonic() + store_wait()  # for all of them together: most lie in one store
    for name in (TRAIN, HOLDOUT, SYNTHETIC, "output", "store"):
        if url := options[name]:
            left = end - time.monotonic()
            text = f"{name}: the store of {shown(url)!r} does not answer yet; waiting up to {left:.0f} seconds for it."
            await_answer(url, left, partial(warn, text))


def _typed(ctx: click.Context) -> list[str]:
    """The command as it was typed, for `daskpriv runs resume`."""
    out = ["evaluate"]
    for parameter in ctx.command.params:
        name = str(parameter.name)
        value = ctx.params.get(name)
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE or value in (None, False):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            out += [parameter.opts[0]] if value is True else [parameter.opts[0], str(each)]
    return out
