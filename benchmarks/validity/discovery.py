"""V5: the exposure list: how much of it is false, and how many of the copied rows it holds."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import daskpriv
from benchmarks.validity import leaks, trials, worlds
from benchmarks.validity.trials import Asked, Outcome
from benchmarks.validity.worlds import rng_of

HELP = "V5: false discoveries and recall of the exposure list"
_NOMINAL, _SLACK = 0.1, 0.015
_CASES = (  # leak, per cent of the training rows
    ("verbatim", 0.0),
    ("verbatim", 1.0),
    ("verbatim", 5.0),
    ("jittered", 1.0),
    ("jittered", 5.0),
    ("noisy outliers", 5.0),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--base", nargs="+", default=["ideal"], choices=tuple(worlds.BASES))
    parser.add_argument("--leak", nargs="+", default=None, choices=tuple(leaks.LEAKS), help="only these")
    parser.add_argument("--n", type=int, default=5000)


def trial(asked: Asked) -> Outcome:
    """Which training rows are listed, and which of them were copied."""
    base, leak, percent, n, number = asked
    world = worlds.BASES[base](n, rng_of(5, number, base))
    world = leaks.leaking(world, leak, round(percent / 100 * len(world.train)), rng_of(5, number, leak))
    with tempfile.TemporaryDirectory(prefix="daskpriv-") as folder:
        daskpriv.evaluate(
            world.train,
            world.synthetic,
            world.holdout,
            seed=number,
            metrics=["exposure"],
            output=folder,
            internal=True,
            **world.options,
        )
        rows = pq.read_table(Path(folder) / "internal" / "real_rows.parquet").to_pandas()
    listed = rows.loc[rows["listed"] & (rows["table"] == "train"), "row"].to_numpy()
    true = int(np.isin(listed, world.copied).sum())
    return {"listed": len(listed), "true": true, "copied": len(world.copied)}


def run(options: argparse.Namespace) -> None:
    """Every base and leak."""
    for base in options.base:
        for leak, percent in (c for c in _CASES if not options.leak or c[0] in options.leak):
            asked = [(base, leak, percent, options.n, i) for i in range(options.trials)]
            print(told(base, leak, percent, options.n, trials.run("discovery", trial, asked, options)), flush=True)


def told(base: str, leak: str, percent: float, n: int, outcomes: list[Outcome]) -> str:
    """One line: the mean share of the list that is false, an empty list counting as 0, and the recall."""
    false = np.array([(o["listed"] - o["true"]) / max(o["listed"], 1) for o in outcomes])
    error = float(false.std(ddof=1) / len(false) ** 0.5) if len(false) > 1 else float("nan")
    most = _NOMINAL + _SLACK
    state = "met" if false.mean() <= most else "open" if false.mean() - 2 * error <= most else "MISSED"
    line = (
        f"V5 {base}, {percent:g} % of {n} rows {leak}, {len(outcomes)} trials: "
        f"{np.mean([o['listed'] for o in outcomes]):.1f} rows listed, false {100 * false.mean():.1f} % (standard error "
        f"{100 * error:.1f}), goal 11.5 %  {state}"
    )
    copied = sum(o["copied"] for o in outcomes)
    if copied:
        recall = sum(o["true"] for o in outcomes) / copied
        line += f"; {100 * recall:.1f} % of the copied rows listed"
        if leak == "verbatim":
            line += f", goal 100 %  {'met' if recall == 1 else 'MISSED'}"
    return f"{line}  {trials.spent(outcomes)}"
