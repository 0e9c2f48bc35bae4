"""`python -m benchmarks.validity null --draws 1000` and `python -m benchmarks.validity power --trials 200`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import daskpriv
from benchmarks.validity import worlds
from daskpriv.stats.intervals import clopper_pearson

_POWER = (  # leak, rows of 5 000, what the design asks for
    ("verbatim", 0, None),
    ("verbatim", 5, None),
    ("verbatim", 10, 0.80),
    ("verbatim", 25, 0.99),
    ("jittered", 25, None),
    ("jittered", 50, 0.95),
    ("noisy outliers", 50, 0.65),
    ("noisy outliers", 100, 0.95),
    ("noisy", 250, None),
)
Outcome = dict[str, Any]


def _judged(world: worlds.World, seed: int, metrics: str) -> Outcome:
    report = daskpriv.evaluate(
        train=world.train, holdout=world.holdout, synthetic=world.synthetic, seed=seed, metrics=metrics
    ).to_dict()
    return {
        "overall": report["overall"]["p_adjusted"],
        "report": report["overall"]["verdict"] == "LEAK",
        "verdicts": {n: m["verdict"] for n, m in report["metrics"].items()},
        "metrics": {n: m["p_value"] for n, m in report["metrics"].items() if m["p_value"] is not None},
        "tests": {t["test"]: t["p_value"] for t in report["overall"]["tests"]},
    }


def _null(asked: tuple[str, int, str]) -> Outcome:
    suite, trial, metrics = asked
    place = list(worlds.SUITES).index(suite)
    return _judged(worlds.SUITES[suite](worlds.rng_of(1, place, trial)), trial, metrics)


def _leaked(asked: tuple[str, str, int, int, int, str]) -> Outcome:
    base, leak, rows, n, trial, metrics = asked
    rng = worlds.rng_of(2, trial, rows, sorted(worlds.LEAKS).index(leak))
    return _judged(worlds.leaking(worlds.base(base, n, rng), leak, rows, rng), trial, metrics)


def _rate(outcomes: list[Outcome], group: str) -> dict[str, float]:
    """Share of trials in which each test rejects at 5 %."""
    hits: Counter[str] = Counter()
    for o in outcomes:
        hits.update({k: int(p <= 0.05) for k, p in o[group].items()})
    return {k: v / len(outcomes) for k, v in sorted(hits.items())}


def _line(name: str, outcomes: list[Outcome], began: float) -> str:
    hits, n = sum(o["report"] for o in outcomes), len(outcomes)
    joint = sum((o["overall"] or 1.0) <= 0.05 for o in outcomes)
    low, high, _ = clopper_pearson(joint, n)
    metrics = " ".join(f"{k} {100 * v:.1f}" for k, v in _rate(outcomes, "metrics").items())
    return (
        f"{name:<32} {n:>5} trials  adjusted p <= .05 in {100 * joint / n:5.1f} % [{100 * low:.1f}, {100 * high:.1f}]  "
        f"report LEAK {100 * hits / n:5.1f} %  {metrics}  ({time.monotonic() - began:.0f} s)"
    )


def _run(name: str, function: Any, asked: list[Any], options: argparse.Namespace) -> list[Outcome]:
    began = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        outcomes = list(pool.map(function, asked, chunksize=4))
    print(_line(name, outcomes, began), flush=True)
    print("    " + " | ".join(f"{k} {100 * v:.1f}" for k, v in _rate(outcomes, "tests").items()), flush=True)
    if options.output:
        with Path(options.output).open("a") as file:
            file.write(json.dumps({"name": name, "outcomes": outcomes}) + "\n")
    return outcomes


def main() -> int:
    """Run one study."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validity")
    commands = parser.add_subparsers(dest="command", required=True)
    null = commands.add_parser("null", help="false alarms of every test and of the whole report")
    null.add_argument("--draws", type=int, default=1000)
    null.add_argument("--suite", default="all", choices=("all", *worlds.SUITES))
    power = commands.add_parser("power", help="how often a planted leak is found")
    power.add_argument("--trials", type=int, default=100)
    power.add_argument("--base", default="ideal")
    power.add_argument("--n", type=int, default=5000)
    for command in (null, power):
        command.add_argument("--metrics", default="default")
        command.add_argument("--processes", type=int, default=2)
        command.add_argument("--output", help="append every outcome to this file, JSON lines")
    options = parser.parse_args()
    if options.command == "null":
        for suite in worlds.SUITES if options.suite == "all" else (options.suite,):
            _run(suite, _null, [(suite, i, options.metrics) for i in range(options.draws)], options)
        return 0
    for leak, per_5000, wanted in _POWER:
        rows = per_5000 * options.n // 5000
        asked = [(options.base, leak, rows, options.n, i, options.metrics) for i in range(options.trials)]
        goal = "" if wanted is None else f" (goal {100 * wanted:.0f} %)"
        _run(f"{options.base}: {rows} {leak}{goal}", _leaked, asked, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
