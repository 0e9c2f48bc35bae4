"""V6: does every score of every metric grow with the leak: 0 to 100 % of nested plants in steps of 10 %."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

import daskpriv
from benchmarks.validity import leaks, peers, trials, worlds
from benchmarks.validity.trials import Asked, Outcome
from benchmarks.validity.worlds import World, rng_of

HELP = "V6: every score on a grid of nested leaks"
GRID = tuple(range(0, 101, 10))
# Details that say how bad it is, by the way they should go with more leak: "+" up, "-" down; "*" stands for all keys.
_SCORES = (
    "+clones/excess +clones/copied_train_rows +clones/n_train_with_twin",
    "+dcr_share/share_* +dcr_share/excess +dcr_share/z",
    "-dcr/synthetic->train/mean -dcr/synthetic->train/q05 -dcr/synthetic->train/median +dcr/synthetic->train/n_zero",
    "-dcr/train->synthetic/mean -dcr/train->synthetic/q05 -dcr/train->synthetic/median +dcr/train->synthetic/n_zero",
    "-dcr_overlap/ovl +dcr_overlap/mean_difference +dcr_overlap/dominance/theta +dcr_overlap/dominance/ks_above",
    "+dcr_overlap/ks +dcr_overlap/wasserstein -dcr_overlap/dominance/quantile_ratios/* +dcr_overlap/effect",
    "-nndr/synthetic->train/q05 -nndr/synthetic->train/mean +nndr/synthetic->train/share_below_half",
    "-nndr/difference/family_a +nndr/difference/theta_a -nndr/difference/family_b +nndr/effect",
    "+membership_inference/attacks/*/auc +membership_inference/attacks/*/advantage",
    "+membership_inference/attacks/*/tpr_at_fpr/*/tpr +membership_inference/mean_risk",
    "+exposure/list/rows +exposure/auc_relative +exposure/stands_out/log_odds +exposure/within/0.0000/train",
    "-privacy_score/raw/score -privacy_score/matched/score +privacy_score/raw/risk_unclipped",
    "+privacy_score/matched/risk_unclipped",
    "-neighbour_scores/nnaa/value -neighbour_scores/mdcr/value -neighbour_scores/dcr_overfitting_protection/value",
    "+neighbour_scores/nnaa_privacy_loss/value +neighbour_scores/epsilon_identifiability*/value",
    "+neighbour_scores/hitting_rate*/value +neighbour_scores/identical_match_share*/value",
    "+neighbour_scores/closer_share_half_ties/value",
)
# The same for the value of each metric.
_VALUES = "-dcr +clones +dcr_share -dcr_overlap -nndr +membership_inference +exposure -privacy_score -neighbour_scores"
_THEIRS = "+membership_inference/clearbox/membership_inference_mean_risk_score"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--base", default="ideal", choices=tuple(worlds.BASES))
    parser.add_argument("--leak", default="verbatim", choices=leaks.FOR_ROWS)
    parser.add_argument("--n", type=int, default=1000)


def trial(asked: Asked) -> Outcome:
    """All scores at one point of the grid."""
    base, leak, n, number, percent = asked
    world = nested(worlds.BASES[base](n, rng_of(6, number, base)), leak, percent, number)
    report = daskpriv.evaluate(
        world.train, world.synthetic, world.holdout, seed=number, metrics=peers.metrics("all"), **world.options
    ).to_dict()
    return {"scores": scores(report), "report": report["overall"]["verdict"] == "LEAK"}


def nested(world: World, leak: str, percent: float, number: int) -> World:
    """A world in which so much of the synthetic table is leaked; those of a larger share hold those of a smaller."""
    rng = rng_of(6, number, leak)
    m = min(len(world.train), len(world.synthetic))
    places = leaks.anywhere(world, m, rng)
    leaked = leaks.LEAKS[leak].made(world, places, rng)
    replaced = rng.permutation(len(world.synthetic))
    rows = round(percent / 100 * m)
    synthetic = leaks.appended(world.synthetic.iloc[np.sort(replaced[rows:])], leaked.iloc[:rows])
    return replace(world, synthetic=synthetic, copied=places[:rows])


def scores(report: Mapping[str, Any]) -> dict[str, float]:
    """Every score of a report, turned so that more is worse."""
    details = {name: m["details"] for name, m in report["metrics"].items()}
    out = {}
    for named in (*" ".join(_SCORES).split(), _THEIRS):
        found = dict(_found(details, named[1:].split("/")))
        if not found:
            raise KeyError(f"no report has {named[1:]!r}")
        out.update({name: _signed(named[0], v) for name, v in found.items()})
    headline = {f"value of {n[1:]}": (n[0], report["metrics"][n[1:]]["value"]) for n in _VALUES.split()}
    return out | {name: _signed(sign, value) for name, (sign, value) in headline.items()}


def _signed(sign: str, value: float | None) -> float:
    return math.nan if value is None else float(f"{sign}1") * float(value)


def _found(held: Any, path: list[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of all entries that a path with stars leads to."""
    if not path:
        yield place, held
        return
    before, star, after = path[0].partition("*")
    keys = (
        [k for k in held if k.startswith(before) and k.endswith(after)] if star else [k for k in path[:1] if k in held]
    )
    for key in keys:
        yield from _found(held[key], path[1:], f"{place}/{key}" if place else key)


def run(options: argparse.Namespace) -> None:
    """All points of the grid in every world."""
    common = (options.base, options.leak, options.n)
    asked = [(*common, i, percent) for i in range(options.trials) for percent in GRID]
    outcomes = trials.run("monotone", trial, asked, options)
    print("\n".join(told(" ".join((options.base, options.leak)), options.n, outcomes)))


def told(name: str, n: int, outcomes: list[Outcome]) -> list[str]:
    """One line for all scores, and one for each that goes back."""
    runs = [outcomes[i : i + len(GRID)] for i in range(0, len(outcomes), len(GRID))]
    back = {score: [_step_back([o["scores"][score] for o in run]) for run in runs] for score in outcomes[0]["scores"]}
    theirs = back.pop(_THEIRS[1:])
    wrong = {score: steps for score, steps in back.items() if max(steps) > 0}
    lines = [_line(score, steps) for score, steps in wrong.items()]
    values = [score for score in back if score.startswith("value of ")]
    kept = sum(score not in wrong for score in values)
    verdicts = sum(_turns(run) for run in runs)
    return [
        *lines,
        _line("[not ours] Clearbox MI risk", theirs),
        f"V6 {name}, {n} rows, {len(runs)} worlds: {len(back) - len(wrong)} of {len(back)} scores never go back on "
        f"{len(GRID)} points (goal all)  {'MISSED' if wrong else 'met'}; of the {len(values)} headline values "
        f"{kept}; the verdict went back from LEAK {verdicts} times  {trials.spent(outcomes)}",
    ]


def _step_back(series: list[float]) -> float:
    """The largest step towards less leak, as a share of the range of the series; nan where a value is missing."""
    values = np.array(series)
    spread = float(values.max() - values.min())
    back = float(np.max(np.maximum.accumulate(values) - values))
    return math.inf if math.isnan(spread) else back / spread if spread else 0.0


def _turns(run: list[Outcome]) -> int:
    said = [o["report"] for o in run]
    return sum(before and not after for before, after in pairwise(said))


def _line(score: str, steps: list[float]) -> str:
    wrong = [s for s in steps if s > 0]
    most = (
        f"{100 * max(wrong):.1f} % of its range" if wrong and max(wrong) < math.inf else "no value" if wrong else "none"
    )
    return f"    {score}: goes back in {len(wrong)} of {len(steps)} worlds, at most {most}"
