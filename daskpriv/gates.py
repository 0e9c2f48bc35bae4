"""Checks of the input that every verdict rests on, made before anybody believes a number.

They change no number. Where no verdict can rest on the input, they say NOT_INTERPRETABLE in its place; where only
"the leak is small" cannot, INCONCLUSIVE in place of BOUNDED.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN
from daskpriv.metrics._clearbox_mi import ADVERSARY
from daskpriv.policy import Policy
from daskpriv.prepare import Surveyed
from daskpriv.protocol import Result, Verdict
from daskpriv.subjects import Subjects

_JUDGED = (Verdict.LEAK, Verdict.BOUNDED, Verdict.INCONCLUSIVE)
_ALL = ("*",)
# Metrics whose yardstick is how close holdout rows lie to train, which fidelity moves as well as copying.
_FIDELITY = ("privacy_score",)


@dataclass(frozen=True)
class Gate:
    """One check.

    Attributes
    ----------
    stops : tuple of str
        The metrics that cannot be interpreted when it is not passed; "*" are all with a verdict, for every verdict
        compares train with holdout: with tests or without, since no exact match either means nothing when the
        holdout repeats train.
    caps : tuple of str
        The metrics that cannot say BOUNDED when it is not passed; "*" are all.
    """

    name: str
    passed: bool
    message: str
    stops: tuple[str, ...] = ()
    caps: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As the report has it: `stops` and `caps` are what it takes away when it is not passed."""
        return {
            "name": self.name,
            "passed": self.passed,
            "message": self.message,
            "stops": list(self.stops),
            "caps": list(self.caps),
        }


def gates(
    surveyed: Surveyed,
    results: Mapping[str, Result],
    split: Result | None,
    per_pair: bool,
    policy: Policy,
    subjects: Subjects | None = None,
) -> list[Gate]:
    """Every gate with its outcome.

    `split` is what `metrics.split_check` found, None where there is no holdout or a preset checks nothing.
    """
    found = [
        _identical(surveyed),
        _holdout(surveyed),
        _sizes(surveyed, policy, subjects),
        _one_side(subjects),
        *([] if split is None else [_random(split, policy), _apart(split, policy)]),
        _space(per_pair),
        _fidelity(results, policy),
        _power(results),
    ]
    return [g for g in found if g is not None]


def interpretable(results: Mapping[str, Result], found: Sequence[Gate]) -> dict[str, Result]:
    """The results, in which a gate that is not passed replaces the verdicts that rest on it."""
    return {name: replace(r, verdict=_verdict(name, r, found)) for name, r in results.items()}


def _verdict(name: str, result: Result, found: Sequence[Gate]) -> Verdict:
    """What is left of a verdict. A metric that a gate names is stopped where it only describes, too."""
    failed = [g for g in found if not g.passed]
    judged = result.verdict in _JUDGED
    if any((judged and "*" in g.stops) or (name in g.stops and (judged or result.value is not None)) for g in failed):
        return Verdict.NOT_INTERPRETABLE
    capped = result.verdict is Verdict.BOUNDED and any("*" in g.caps or name in g.caps for g in failed)
    return Verdict.INCONCLUSIVE if capped else result.verdict


def _identical(surveyed: Surveyed) -> Gate:
    prints = {n: (s.fingerprint, s.rows) for n, s in surveyed.summaries.items()}
    pairs = [
        (a, b) for a, b in ((SYNTHETIC, TRAIN), (SYNTHETIC, HOLDOUT), (HOLDOUT, TRAIN)) if a in prints and b in prints
    ]
    equal = [f"{a} and {b}" for a, b in pairs if prints[a] == prints[b]]
    told = (
        f"{' and '.join(equal)} hold the same rows: check that the right files were given."
        if equal
        else "no two tables are the same."
    )
    return Gate("different tables", not equal, told)


def _holdout(surveyed: Surveyed) -> Gate:
    given = HOLDOUT in surveyed.tables
    return Gate(
        "holdout",
        given,
        "a holdout was given."
        if given
        else "no holdout: copying cannot be told from chance; keep real rows aside that the generator never sees "
        "(`daskpriv split`).",
    )


def _sizes(surveyed: Surveyed, policy: Policy, subjects: Subjects | None) -> Gate:
    """G2: intervals of few rows are too rough to bound a leak; LEAK stays, for its tests are exact at any size.

    Where rows belong to subjects, the tables have no more to tell than these are many.
    """
    least = policy.gates["rows"]
    small = [f"{n} ({t.rows} rows)" for n, t in surveyed.tables.items() if n != ADVERSARY and t.rows < least]
    if subjects is not None:
        sides = zip((TRAIN, HOLDOUT), subjects.counts, strict=True)
        small += [f"{n} ({k} subjects)" for n, k in sides if k < least <= surveyed.tables[n].rows]
    told = (
        f"fewer than {least:g}: {', '.join(small)}; BOUNDED cannot be said, LEAK can."
        if small
        else f"every table has at least {least:g} rows."
    )
    return Gate("sizes", not small, told, caps=_ALL)


def _one_side(subjects: Subjects | None) -> Gate | None:
    """G2: a subject with rows on both sides is its own nearest neighbour across the split, which hides leaks."""
    if subjects is None:
        return None
    both = subjects.shared
    told = f"{both} subject(s) have rows in train and in holdout" if both else "no subject has rows on both sides."
    told += ": cut by subject (`daskpriv split --subject-key`)." if both else ""
    return Gate("subjects are on one side", not both, told, _ALL)


def _random(split: Result, policy: Policy) -> Gate:
    """G0: exchangeable labels, on which every label test rests."""
    nearest = split.details["nearest"]
    far = nearest["pairs"] and abs(nearest["agreement"] - nearest["expected"]) > policy.gates["split_effect"]
    passed = not (far and nearest["p_value"] <= policy.gates["split_p"])
    if passed:
        return Gate("train and holdout are mixed", True, "nearest real rows tell nothing about the split.", _ALL)
    told = (
        f"{100 * nearest['agreement']:.1f} % of the real rows have their nearest other real row on their own side, "
        f"{100 * nearest['expected']:.1f} % would in a random split (p = {nearest['p_value']:.4f}): a difference "
        "between train and holdout looks like a leak, or hides one; split at random (`daskpriv split`)."
    )
    return Gate("train and holdout are mixed", False, told, _ALL)


def _apart(split: Result, policy: Policy) -> Gate:
    """G1: a holdout that repeats training rows hides leaks."""
    twins = split.details["twins"]
    passed = twins["p_too_few"] > policy.gates["twins_p"]
    told = (
        "holdout repeats train no more than train repeats itself."
        if passed
        else f"{100 * (1 - twins['agreement']):.1f} % of the equal real rows stand across train and holdout, "
        f"{100 * (1 - twins['expected']):.1f} % would in a random split: the holdout is contaminated and hides leaks."
    )
    return Gate("holdout is apart from train", passed, told, _ALL)


def _space(per_pair: bool) -> Gate:
    """G3: one distance for all searches."""
    told = (
        "ranges are taken anew for every pair of tables: distances to train and to holdout do not compare."
        if per_pair
        else "ranges and categories were fixed once, before any distance."
    )
    return Gate("one distance", not per_pair, told, _ALL)


def _fidelity(results: Mapping[str, Result], policy: Policy) -> Gate | None:
    """G4: synthetic rows off the data are far from everybody, copied or not."""
    details = results["dcr"].details if "dcr" in results else {}
    ours, theirs = (details.get(f"{q}->{TRAIN}") for q in (SYNTHETIC, HOLDOUT))
    if ours is None or theirs is None or not theirs["median"]:
        return None
    ratio = ours["median"] / theirs["median"]
    passed = ratio <= policy.gates["fidelity_ratio"]
    told = f"half of the synthetic rows are {ratio:.2f} times as far from train as half of the holdout rows"
    told += "." if passed else ": distances to train say more about fidelity than about copying."
    return Gate("synthetic rows look like real ones", passed, told, _FIDELITY)


def _power(results: Mapping[str, Result]) -> Gate | None:
    """G5: what these sizes can detect at all; who would not see a leak of the margin cannot say that it is below it."""
    name = "enough rows to detect the margin"
    effects = {n: r.effect for n, r in results.items() if r.effect is not None}
    known = {n: (e.detectable, e.margin) for n, e in effects.items() if e.detectable is not None}
    blind = [n for n, (effect, margin) in known.items() if not effect <= margin]
    if not known:
        return None
    told = ", ".join(
        f"{n} {'finds nothing, for nothing varies' if effect == math.inf else f'{100 * effect:.1f} %'} "
        f"(margin {100 * margin:.1f} %)"
        for n, (effect, margin) in known.items()
    )
    told = f"effects that these sizes find four times in five: {told}"
    told += f"; BOUNDED cannot be said by {', '.join(blind)}." if blind else "."
    return Gate(name, not blind, told, caps=tuple(blind))
