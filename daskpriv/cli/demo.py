"""`daskpriv demo`: the main job on a bundled real example."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import click

from daskpriv import evaluate
from daskpriv.cli.clusters import client_for
from daskpriv.cli.progress import listener_for


@click.command("demo")
@click.option(
    "--output",
    default="daskpriv-report",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Directory for the reports.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
def demo_command(output: str, quiet: bool) -> None:
    """Evaluate two published synthetic versions of the adult census: a good one and a leaky one."""
    paths = []
    with (
        as_file(files("daskpriv").joinpath("data", "adult")) as folder,
        client_for({"cluster": "local"}) as client,
        listener_for(quiet, False) as listener,
    ):
        for name in ("good", "leaky"):
            report = evaluate(
                train=folder / "train.parquet",
                holdout=folder / "holdout.parquet",
                synthetic=folder / f"synthetic_{name}.parquet",
                client=client,
                output=Path(output) / name,
                fail_on=["leak"],
                progress=listener,
            )
            click.echo(f"\n=== the {name} synthetic table\n{report.summary()}")
            paths.append(Path(output) / name / "report.html")
    click.echo("\n" + "\n".join(f"report: {path}" for path in paths))
