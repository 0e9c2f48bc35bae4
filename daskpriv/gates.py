"""Checks of the input that every verdict rests on, made before anybody believes a number.

They change no number; where a verdict cannot rest on the input, they say NOT_INTERPRETABLE in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN
from daskpriv.metrics._clearbox_mi import ADVERSARY
from daskpriv.policy import Policy
from daskpriv.prepare import Surveyed
from daskpriv.protocol import Result, Verdict

_JUDGED = (Verdict.LEAK, Verdict.BOUNDED, Verdict.INCONCLUSIVE)
# Metrics whose yardstick is how close holdout rows lie to train, which fidelity moves as well as copying.
_FIDELITY = ("privacy_score",)


@dataclass(frozen=True)
class Gate:
    """One check.

    Attributes
    ----------
    stops : tuple of str
        The metrics that cannot be interpreted when it is not passed; "*" are all that compare train with holdout.
    """

    name: str
    passed: bool
    message: str
    stops: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """As the report has it."""
        return {"name": self.name, "passed": self.passed, "message": self.message}


def gates(
    surveyed: Surveyed, results: Mapping[str, Result], split: Result | None, per_pair: bool, policy: Policy
) -> list[Gate]:
    """Every gate with its outcome.

    `split` is what `metrics.split_check` found, None where there is no holdout or a preset checks nothing.
    """
    found = [
        _identical(surveyed),
        _holdout(surveyed),
        _sizes(surveyed, policy),
        *([] if split is None else [_random(split, policy), _apart(split, policy)]),
        _space(per_pair),
        _fidelity(results, policy),
        _power(results),
    ]
    return [g for g in found if g is not None]


def interpretable(results: Mapping[str, Result], found: Sequence[Gate]) -> dict[str, Result]:
    """The results, in which a gate that is not passed replaces the verdicts that rest on it."""
    out = dict(results)
    for gate in found:
        if gate.passed:
            continue
        for name, result in results.items():
            named = name in gate.stops or ("*" in gate.stops and bool(result.tests))
            if named and (result.verdict in _JUDGED or (name in gate.stops and result.value is not None)):
                out[name] = replace(out[name], verdict=Verdict.NOT_INTERPRETABLE)
    return out


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


def _sizes(surveyed: Surveyed, policy: Policy) -> Gate:
    least = int(policy.gates["rows"])
    small = [f"{n} ({t.rows} rows)" for n, t in surveyed.tables.items() if n != ADVERSARY and t.rows < least]
    told = f"too small for firm verdicts: {', '.join(small)}." if small else f"every table has at least {least} rows."
    return Gate("sizes", not small, told)


def _random(split: Result, policy: Policy) -> Gate:
    """G0: exchangeable labels, on which every label test rests."""
    nearest = split.details["nearest"]
    far = nearest["pairs"] and abs(nearest["agreement"] - nearest["expected"]) > policy.gates["split_effect"]
    passed = not (far and nearest["p_value"] <= policy.gates["split_p"])
    if passed:
        return Gate("train and holdout are mixed", True, "nearest real rows tell nothing about the split.", ("*",))
    told = (
        f"{100 * nearest['agreement']:.1f} % of the real rows have their nearest other real row on their own side, "
        f"{100 * nearest['expected']:.1f} % would in a random split (p = {nearest['p_value']:.4f}): a difference "
        "between train and holdout looks like a leak, or hides one; split at random (`daskpriv split`)."
    )
    return Gate("train and holdout are mixed", False, told, ("*",))


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
    return Gate("holdout is apart from train", passed, told, ("*",))


def _space(per_pair: bool) -> Gate:
    """G3: one distance for all searches."""
    told = (
        "ranges are taken anew for every pair of tables: distances to train and to holdout do not compare."
        if per_pair
        else "ranges and categories were fixed once, before any distance."
    )
    return Gate("one distance", not per_pair, told, ("*",))


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
    """G5: what these sizes can detect at all."""
    share = results.get("dcr_share")
    if share is None or share.mde is None:
        return None
    margin = share.details["margin"]
    if share.mde == 0:
        return Gate("enough rows to detect the margin", False, "no share can vary: these tables detect no copy rate.")
    passed = share.mde <= margin
    told = f"these sizes detect a copy rate of {100 * share.mde:.1f} % four times in five"
    told += "." if passed else f", more than the margin of {100 * margin:.1f} %: BOUNDED cannot be said."
    return Gate("enough rows to detect the margin", passed, told)
