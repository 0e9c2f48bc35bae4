"""Checks of the input that every verdict rests on, made before anybody believes a number.

They warn; they never change a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN
from daskpriv.prepare import Surveyed
from daskpriv.protocol import Result

_SMALL = 100


def gates(surveyed: Surveyed, results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Every gate with its outcome, {name, passed, message}."""
    out = [_identical(surveyed), _holdout(surveyed), _sizes(surveyed)]
    overlap = _overlap(results)
    return out if overlap is None else [*out, overlap]


def _gate(name: str, passed: bool, message: str) -> dict[str, Any]:
    return {"name": name, "passed": passed, "message": message}


def _identical(surveyed: Surveyed) -> dict[str, Any]:
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
    return _gate("different tables", not equal, told)


def _holdout(surveyed: Surveyed) -> dict[str, Any]:
    given = HOLDOUT in surveyed.tables
    return _gate(
        "holdout",
        given,
        "a holdout was given."
        if given
        else "no holdout: copying cannot be told from chance; keep real rows aside that the generator never sees.",
    )


def _sizes(surveyed: Surveyed) -> dict[str, Any]:
    small = [f"{n} ({t.rows} rows)" for n, t in surveyed.tables.items() if t.rows < _SMALL]
    return _gate(
        "sizes",
        not small,
        f"too small for firm verdicts: {', '.join(small)}." if small else "every table has at least 100 rows.",
    )


def _overlap(results: Mapping[str, Result]) -> dict[str, Any] | None:
    """Holdout rows with a twin in train must not be more frequent than train rows with another twin in train."""
    details = results["dcr"].details if "dcr" in results else {}
    across, within = details.get(f"{HOLDOUT}->{TRAIN}"), details.get(f"{TRAIN}->{TRAIN}")
    if across is None or within is None:
        return None
    n = across["n"]
    base = within["share_zero"]
    limit = base + 0.01 + 5 * (max(base, 1 / n) / n) ** 0.5
    passed = across["share_zero"] <= limit
    told = (
        "holdout and train overlap no more than train overlaps itself."
        if passed
        else (
            f"{across['n_zero']} of {n} holdout rows also stand in train, far more than chance: the holdout "
            "is contaminated and hides leaks."
        )
    )
    return _gate("holdout is apart from train", passed, told)
