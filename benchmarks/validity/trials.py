"""Many trials of a study: in several processes, and from where an earlier call stopped."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import daskpriv
from benchmarks.validity import peers
from benchmarks.validity.worlds import World
from daskpriv.stats.intervals import clopper_pearson

Asked = tuple[Any, ...]
Outcome = dict[str, Any]
Trial = Callable[[Asked], Outcome]
LEVEL = 0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every study takes."""
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--output", help="append every outcome to this file, JSON lines; trials in it are not run again"
    )


def run(study: str, trial: Trial, asked: Sequence[Asked], options: argparse.Namespace) -> list[Outcome]:
    """The outcome of every trial asked for, in order; each is kept as soon as it is there."""
    kept = Path(options.output) if options.output else None
    done = _earlier(kept, study)
    missing = [a for a in asked if _key(a) not in done]
    with _workers(min(options.processes, len(missing))) as mapped:
        for ask, outcome in zip(missing, mapped(partial(_timed, trial), missing), strict=True):
            done[_key(ask)] = outcome
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps({"study": study, "asked": ask, "outcome": outcome}) + "\n")
    return [done[_key(a)] for a in asked]


def _key(asked: Sequence[Any]) -> str:
    return json.dumps(asked)


def _earlier(kept: Path | None, study: str) -> dict[str, Outcome]:
    if kept is None or not kept.exists():
        return {}
    lines = (json.loads(line) for line in kept.read_text().splitlines())
    return {_key(held["asked"]): held["outcome"] for held in lines if held.get("study") == study}


@contextmanager
def _workers(processes: int) -> Iterator[Callable[..., Iterable[Outcome]]]:
    """A map; one process is this one."""
    if processes <= 1:
        yield map
        return
    with ProcessPoolExecutor(processes) as pool:
        yield pool.map


def _timed(trial: Trial, asked: Asked) -> Outcome:
    began, spent = time.monotonic(), time.process_time()
    outcome = trial(asked)
    return {**outcome, "seconds": time.monotonic() - began, "cpu": time.process_time() - spent}


def judged(world: World, seed: int, metrics: str, with_peers: bool = False) -> Outcome:
    """What a report says about a world, and what the rules of other tools say."""
    wanted = peers.metrics(metrics) if with_peers else metrics
    report = daskpriv.evaluate(
        train=world.train,
        holdout=world.holdout,
        synthetic=world.synthetic,
        seed=seed,
        metrics=wanted,
        **world.options,
    ).to_dict()
    return {
        "overall": report["overall"]["p_adjusted"],
        "report": report["overall"]["verdict"] == "LEAK",
        "verdicts": {n: m["verdict"] for n, m in report["metrics"].items()},
        "metrics": {n: m["p_value"] for n, m in report["metrics"].items() if m["p_value"] is not None},
        "tests": {t["test"]: t["p_value"] for t in report["overall"]["tests"]},
        "gates": [g["name"] for g in report["gates"] if not g["passed"]],
        "peers": peers.scores(report, world) if with_peers else {},
    }


def rejects(outcome: Outcome) -> bool:
    """Whether a test of the report holds among all of them."""
    return bool((1.0 if outcome["overall"] is None else outcome["overall"]) <= LEVEL)


@dataclass(frozen=True)
class Rate:
    """How many of so many trials."""

    hits: int
    trials: int

    @classmethod
    def of(cls, flags: Iterable[bool]) -> Rate:
        """Count."""
        held = [bool(f) for f in flags]
        return cls(sum(held), len(held))

    @property
    def share(self) -> float:
        """Hits per trial."""
        return self.hits / self.trials

    def within(self, least: float = 0.0, most: float = 1.0, level: float = 0.95) -> str:
        """Say "met" where the share lies there, "open" where only its interval reaches there, else "MISSED"."""
        low, high, _ = clopper_pearson(self.hits, self.trials, level)
        if least <= self.share <= most:
            return "met"
        return "open" if high >= least and low <= most else "MISSED"

    def __str__(self) -> str:
        low, high, _ = clopper_pearson(self.hits, self.trials)
        return f"{100 * self.share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def rates(outcomes: Sequence[Outcome], group: str) -> dict[str, Rate]:
    """How often each test or metric of a group has p <= 5 %; where it has none, it does not reject."""
    names = sorted({n for o in outcomes for n in o[group]})
    return {n: Rate.of(o[group].get(n, 1.0) <= LEVEL for o in outcomes) for n in names}


def spent(outcomes: Sequence[Outcome]) -> str:
    """CPU seconds per trial."""
    return f"({sum(o['cpu'] for o in outcomes) / len(outcomes):.2f} CPU s per trial)"


def told(outcomes: Sequence[Outcome]) -> str:
    """How often the report speaks up, by metric."""
    metrics = " ".join(f"{k} {100 * r.share:.1f}" for k, r in rates(outcomes, "metrics").items())
    joint, said = Rate.of(map(rejects, outcomes)), Rate.of(o["report"] for o in outcomes)
    gates = Counter(g for o in outcomes for g in o["gates"])
    closed = "; ".join(f"{g}: {100 * n / len(outcomes):.1f} %" for g, n in sorted(gates.items()))
    return (
        f"{len(outcomes):>5} trials  adjusted p <= .05 in {joint}, LEAK in {100 * said.share:.1f} %; "
        f"by metric: {metrics}; gates failed: {closed or 'none'}  {spent(outcomes)}"
    )


def tests_told(outcomes: Sequence[Outcome]) -> str:
    """How often each test rejects alone."""
    return "    " + " | ".join(f"{k} {100 * r.share:.1f}" for k, r in rates(outcomes, "tests").items())
