"""V2: how often a planted leak is found, beside the rules of other tools."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.validity import leaks, peers, trials, worlds
from benchmarks.validity.trials import Asked, Outcome, Rate
from benchmarks.validity.worlds import rng_of

HELP = "V2: how often a planted leak is found"
_DEFAULT = (  # leak, rows of 5 000, what the design asks for
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
_BASES = ("ideal", "ctgan", "tvae", "mostly", "mode-collapsed")
_ROWS = (10, 25, 50, 100, 250)
_SIZES = (2000, 5000, 12_000)


class Cell(NamedTuple):
    """One kind of trial."""

    base: str
    leak: str
    rows: int
    n: int
    goal: float | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--base", nargs="+", choices=tuple(worlds.BASES), help="default ideal")
    parser.add_argument("--leak", nargs="+", choices=tuple(leaks.LEAKS), help="with --rows; default: those with goals")
    parser.add_argument("--rows", nargs="+", type=int, help="leaked rows; with a leak")
    parser.add_argument("--n", nargs="+", type=int, help="rows of each table; default 5000")
    parser.add_argument("--full", action="store_true", help="every base, leak, number of rows and size not named")
    parser.add_argument("--peers", action="store_true", help="the rules of other tools, too (metrics: all)")
    parser.add_argument("--metrics", default="default")


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """The kinds of trials asked for; those without a leak come first, for the limits of the peers."""
    product = options.full or options.leak or options.rows
    for base in options.base or (_BASES if options.full else ("ideal",)):
        for n in options.n or (_SIZES if options.full else (5000,)):
            if not product:
                yield from (Cell(base, leak, rows * n // 5000, n, goal) for leak, rows, goal in _DEFAULT)
                continue
            yield Cell(base, "verbatim", 0, n)
            for leak in options.leak or (leaks.FOR_ROWS if options.full else ("verbatim",)):
                yield from (Cell(base, leak, rows, n) for rows in options.rows or _ROWS if rows)


def trial(asked: Asked) -> Outcome:
    """One world with a leak."""
    base, leak, rows, n, number, metrics, with_peers = asked
    world = worlds.BASES[base](n, rng_of(2, number, base))
    return trials.judged(leaks.leaking(world, leak, rows, rng_of(2, number, rows, leak)), number, metrics, with_peers)


def run(options: argparse.Namespace) -> None:
    """Every cell, one after the other."""
    wanted = list(cells(options))
    if len(wanted) > len(_DEFAULT):
        print(f"{len(wanted)} kinds of trials, {options.trials} of each")
    null: list[Outcome] = []
    for cell in wanted:
        asked = [(*cell[:4], i, options.metrics, options.peers) for i in range(options.trials)]
        outcomes = trials.run("power", trial, asked, options)
        null = outcomes if not cell.rows else null
        print(told(cell, outcomes), flush=True)
        print(trials.tests_told(outcomes), flush=True)
        if options.peers:
            print("\n".join(peers.alarms(outcomes, null)), flush=True)


def told(cell: Cell, outcomes: list[Outcome]) -> str:
    """One line per kind of trial, with the goal where there is one."""
    line = f"V2 {cell.base}, {cell.rows} of {cell.n} rows {cell.leak}: {trials.told(outcomes)}"
    if cell.goal is None:
        return line
    found = Rate.of(map(trials.rejects, outcomes))
    return f"{line}  (goal {100 * cell.goal:.0f} %)  {found.within(least=cell.goal)}"
