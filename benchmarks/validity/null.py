"""V1: false alarms of every test, of every verdict and of the whole report where nothing leaks."""

from __future__ import annotations

import argparse

from scipy import stats

from benchmarks.validity import suites, trials
from benchmarks.validity.trials import Asked, Outcome, Rate
from benchmarks.validity.worlds import rng_of

HELP = "V1: false alarms of every test and of the whole report"
_LEAST, _MOST, _REPORT = 0.035, 0.065, 0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--suite", default="all", choices=("all", *suites.PLACE))
    parser.add_argument("--metrics", default="default")


def trial(asked: Asked) -> Outcome:
    """One draw of a suite."""
    suite, draw, metrics = asked
    made = {**suites.SUITES, **suites.MISUSED}[suite]
    return trials.judged(made(rng_of(1, suites.PLACE[suite], draw)), draw, metrics)


def run(options: argparse.Namespace) -> None:
    """All suites, then the goal."""
    found: dict[str, list[Outcome]] = {}
    for suite in suites.SUITES if options.suite == "all" else (options.suite,):
        asked = [(suite, i, options.metrics) for i in range(options.draws)]
        found[suite] = trials.run("null", trial, asked, options)
        print(f"{suite:<24}{trials.told(found[suite])}", flush=True)
        print(trials.tests_told(found[suite]), flush=True)
    for line in goal(found):
        print(line)


def goal(found: dict[str, list[Outcome]]) -> list[str]:
    """What was measured of V1, in two lines: single tests and verdicts, the whole report."""
    draws = min(len(o) for o in found.values())
    single = {f"{s}: {t}": r for s, o in found.items() for t, r in trials.rates(o, "tests").items()}
    said = {f"{s}: {m}": r for s, o in found.items() for m, r in _verdicts(o).items()}
    report = {s: Rate.of(map(trials.rejects, o)) for s, o in found.items()}
    leaks = {s: Rate.of(x["report"] for x in o) for s, o in found.items()}
    above, below = (
        [n for n, r in single.items() if far(r.share)] for far in (lambda x: x > _MOST, lambda x: x < _LEAST)
    )
    chance = float(stats.binom.sf(int(_MOST * draws), draws, 0.05)) * len(single)
    return [
        f"V1 single tests at 5 %, {len(found)} suites x {draws} draws: {_range(single)}; {len(above)} of {len(single)} "
        f"above 6.5 % ({chance:.1f} by chance), {len(below)} below 3.5 % (conservative); verdicts LEAK {_range(said)} "
        f"(goal 3.5 to 6.5 %, or less)  {_state({**single, **said}, _MOST)}",
        f"V1 whole report: adjusted p <= .05 {_range(report)}, all suites together {_sum(report)}; overall LEAK "
        f"{_range(leaks)} (goal at most 5 %)  {_state(report, _REPORT)}",
    ]


def _verdicts(outcomes: list[Outcome]) -> dict[str, Rate]:
    judged = {n for o in outcomes for n, v in o["verdicts"].items() if v != "NOT_EVALUATED"}
    return {n: Rate.of(o["verdicts"][n] == "LEAK" for o in outcomes) for n in sorted(judged)}


def _range(found: dict[str, Rate]) -> str:
    low, high = (pick(found, key=lambda n: found[n].share) for pick in (min, max))
    return f"{100 * found[low].share:.1f} to {100 * found[high].share:.1f} % ({high})"


def _sum(found: dict[str, Rate]) -> Rate:
    return Rate(sum(r.hits for r in found.values()), sum(r.trials for r in found.values()))


def _state(found: dict[str, Rate], most: float) -> str:
    """MISSED when one interval lies above the goal, all intervals holding together."""
    states = {r.within(most=most, level=1 - 0.05 / len(found)) for r in found.values()}
    return next(s for s in ("MISSED", "open", "met") if s in states)
