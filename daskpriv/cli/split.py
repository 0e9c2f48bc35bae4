"""`daskpriv split`: the random train/holdout split that every test of a report rests on."""

from __future__ import annotations

import click

from daskpriv.splitting import split


@click.command("split")
@click.argument("table")
@click.option("--output", required=True, help="Directory or URL for train/, holdout/ and split.json.")
@click.option(
    "--holdout-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Probability of the holdout; 0.5 also allows a bound on epsilon (`evaluate --split`).",
)
@click.option("--subject-key", help="All rows with the same value in this column stay on one side.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Makes the split again.  [default: drawn afresh, never written down]",
)
def split_command(table: str, output: str, holdout_share: float, subject_key: str | None, seed: int | None) -> None:
    """Cut the real rows of TABLE into train and holdout at random, before a generator sees them."""
    made = split(table, output, holdout_share=holdout_share, subject_key=subject_key, seed=seed)
    told = f"{made.train:,} rows in train, {made.holdout:,} in holdout"
    click.echo(told if made.subjects is None else f"{told}, {made.subjects:,} subjects")
