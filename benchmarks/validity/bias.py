"""V4: bias of the leak-equivalent copy rate, and how often its interval holds the planted rate.

Trials come in mirrored pairs: the same tables with train and holdout exchanged. What the synthetic rows do by chance
then cancels in the mean of a pair, which leaves the bias; intervals are counted once per pair.
"""

from __future__ import annotations

import argparse

import numpy as np

import daskpriv
from benchmarks.validity import leaks, trials, worlds
from benchmarks.validity.trials import Asked, Outcome, Rate
from benchmarks.validity.worlds import rng_of

HELP = "V4: bias and coverage of the leak-equivalent copy rate"
_BIAS, _COVERAGE = 0.001, (0.93, 0.97)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--trials", type=int, default=400, help="rounded up to pairs")
    parser.add_argument("--percent", nargs="+", type=float, default=[0, 1, 5, 20], help="planted verbatim copies")
    parser.add_argument("--base", nargs="+", default=["ideal"], choices=tuple(worlds.BASES))
    parser.add_argument("--n", type=int, default=5000)


def trial(asked: Asked) -> Outcome:
    """The estimate and its interval in one world of a pair."""
    base, percent, n, number, mirrored = asked
    world = worlds.BASES[base](n, rng_of(4, number, base))
    world = world.mirrored if mirrored else world
    world = leaks.leaking(world, "verbatim", round(percent / 100 * len(world.synthetic)), rng_of(4, number, "leak"))
    found = daskpriv.evaluate(
        world.train, world.synthetic, world.holdout, seed=number, metrics=["dcr_share"], **world.options
    )
    details = found.metrics["dcr_share"].details
    return {
        "excess": details["excess"],
        "interval": details["excess_interval"][:2],
        "planted": len(world.copied) / len(world.synthetic),
    }


def run(options: argparse.Namespace) -> None:
    """Every base and planted rate."""
    for base in options.base:
        for percent in options.percent:
            pairs = range((options.trials + 1) // 2)
            asked = [(base, percent, options.n, i, mirrored) for i in pairs for mirrored in (False, True)]
            print(told(base, percent, options.n, trials.run("bias", trial, asked, options)), flush=True)


def told(base: str, percent: float, n: int, outcomes: list[Outcome]) -> str:
    """One line: bias with its standard error, coverage with its interval."""
    errors = np.array([o["excess"] - o["planted"] for o in outcomes])
    means = errors.reshape(-1, 2).mean(axis=1)
    bias, pairs = float(means.mean()), len(means)
    error = float(means.std(ddof=1) / pairs**0.5) if pairs > 1 else float("nan")
    held = np.array([o["interval"][0] <= o["planted"] <= o["interval"][1] for o in outcomes])
    coverage = Rate(round(pairs * float(held.mean())), pairs)
    return (
        f"V4 {base}, {percent:g} % of {n} rows verbatim, {pairs} pairs: bias {100 * bias:+.3f} (standard error "
        f"{100 * error:.3f}) points, goal 0.1  {'met' if abs(bias) <= _BIAS else 'MISSED'}; SD of an estimate "
        f"{100 * errors.std():.2f} points; 95 % interval holds it in {coverage}, goal 93 to 97 %  "
        f"{coverage.within(*_COVERAGE)}  {trials.spent(outcomes)}"
    )
