"""All pairs of 100 columns, cross-tabulated: daskpriv next to other programs and plain loops, per core, in one run.

`python -m benchmarks.accuracy [--tiny] [PEER ...]`. Both tables have a million rows. The others take all rows of ten
columns, six numeric, and their 45 pairs; the figure for all 4 950 pairs is scaled from there, and said to be. Every
repetition runs every program once. Distances are checked against the pandas loop, whose buckets are ours.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peer_programs.pairs import CALL
from benchmarks.peers import PeerError, launched
from benchmarks.processes import watch
from benchmarks.wide import CATEGORICAL, NUMERIC, wide, write_wide

ROWS, REPETITIONS = 1_000_000, 3
KERNEL, LOOP, WHOLE = "daskpriv-kernel", "pandas-crosstab", "daskpriv-all-orders"
OURS = (KERNEL, CALL)
PLAIN = (LOOP, "numpy-bincount")
OTHERS = {
    "mostlyai-qa": "mostlyai-qa",
    "mostlyai-qa-triples": "mostlyai-qa",
    "sdmetrics": "sdmetrics",
    "sdmetrics-sampled": "sdmetrics",
}
SHARED_COLUMNS = ("n00", "n21", "n37", "n55", "n72", "n91", "c08", "c23", "c44", "c69")
TRIPLE_COLUMNS = SHARED_COLUMNS[:3] + SHARED_COLUMNS[-3:]
_WRONG = 1e-9


def run(tiny: bool, names: Collection[str] = ()) -> dict[str, Any]:
    """CPU seconds of one core per program; wall seconds of everything that `accuracy` tells, on all cores."""
    known = [*OURS, *PLAIN, *(() if tiny else OTHERS), WHOLE]
    chosen = [p for p in known if not names or p in names]
    rows, repetitions = (3_000, 1) if tiny else (ROWS, REPETITIONS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_wide(folder / "train.parquet", rows, seed=1)
        write_wide(folder / "synthetic.parquet", rows, seed=2, shaken=0.1)
        out = _measured([p for p in chosen if p != WHOLE], folder, rows, repetitions, tiny)
        if WHOLE in chosen:
            out[WHOLE] = _all_orders(folder, tiny)
    return out


def _measured(chosen: Sequence[str], folder: Path, rows: int, repetitions: int, tiny: bool) -> dict[str, Any]:
    """Every program once per repetition; one that fails is left out, with its reason, but never from a tiny run."""
    answers: dict[str, list[dict[str, Any]]] = {p: [] for p in chosen}
    out: dict[str, Any] = {}
    for _ in range(repetitions):
        for peer in [p for p in chosen if p not in out]:
            try:
                answers[peer].append(_asked(peer, folder, rows))
                _tell(f"{peer}: {_summed(peer, answers[peer][-1:])}")
            except PeerError as error:
                if tiny:
                    raise
                out[peer] = {"reason": str(error)}
                _tell(f"{peer}: {error}")
    out |= {peer: _summed(peer, found) for peer, found in answers.items() if found and peer not in out}
    for peer in (p for p in (*OURS, "numpy-bincount") if answers.get(p) and answers.get(LOOP)):
        out[peer]["max_error"] = _largest_error(peer, answers)
    return out


def _asked(peer: str, folder: Path, rows: int) -> dict[str, Any]:
    columns = list(_columns_of(peer))
    return launched(OTHERS.get(peer, peer), ["benchmarks.peer_programs.pairs", str(folder), peer, str(rows), *columns])


def _columns_of(peer: str) -> Sequence[str]:
    if peer in OURS:
        return list(wide(1, 1).column_names)
    return TRIPLE_COLUMNS if peer.endswith("-triples") else SHARED_COLUMNS


def _summed(peer: str, found: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians over repetitions, in CPU seconds; `spread` is the largest over the smallest."""
    pairs, columns = found[0]["combinations"], NUMERIC + CATEGORICAL
    of_all = math.comb(columns, 3 if peer.endswith("-triples") else 2)
    each = [f["compare_s"] / pairs for f in found]
    prepare = statistics.median(f["prepare_s"] for f in found) * columns / len(_columns_of(peer))
    return {
        "combinations": pairs,
        "each_ms": 1e3 * statistics.median(each),
        "spread": max(each) / min(each),
        "prepare_100_columns_s": prepare,
        "scaled_from_s": statistics.median(f["compare_s"] for f in found),
        "all_combinations_s": statistics.median(each) * of_all,
    }


def _largest_error(peer: str, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """Against the pandas loop, over its pairs."""
    names = list(_columns_of(peer))
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    ours = {frozenset(p): d for p, d in zip(pairs, answers[peer][0]["distances"], strict=True)}
    shared = [frozenset((a, b)) for i, a in enumerate(SHARED_COLUMNS) for b in SHARED_COLUMNS[i + 1 :]]
    error = max(abs(ours[p] - d) for p, d in zip(shared, answers[LOOP][0]["distances"], strict=True))
    if error > _WRONG:
        raise RuntimeError(f"{peer}: distances differ from those of the pandas loop by {error:.2g}")
    return error


def _all_orders(folder: Path, tiny: bool) -> dict[str, float]:
    """The command line on all cores: every column, all pairs, all triples while the budget lasts."""
    out = folder / "report"
    options = ["--train", str(folder / "train.parquet"), "--synthetic", str(folder / "synthetic.parquet")]
    dropped = ["--columns", ",".join(SHARED_COLUMNS)] if tiny else []
    command = [sys.executable, "-m", "daskpriv", "evaluate", *options, *dropped, "--metrics", "accuracy"]
    seen = watch([*command, "--output", str(out), "--quiet"])
    if seen["exit_code"]:
        raise RuntimeError(seen["stderr"])
    details = json.loads((out / "report.json").read_text())["metrics"]["accuracy"]["details"]
    counted = {f"{name}_combinations": details[name]["combinations"] for name in ("bivariate", "trivariate")}
    return {"seconds": seen["seconds"], "peak_gib": seen["peak_gib"], "cores": os.cpu_count() or 1, **counted}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    tiny, names = "--tiny" in arguments, [a for a in arguments if a != "--tiny"]
    known = {*OURS, *PLAIN, *OTHERS, WHOLE}
    if not set(names) <= known:
        sys.exit(f"not a program: {', '.join(sorted(set(names) - known))}; known are {', '.join(sorted(known))}")
    print(json.dumps({"benchmark": "accuracy", "tiny": tiny, **run(tiny, names)}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
