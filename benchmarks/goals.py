"""The goals of the engine next to what was measured in this run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

BRUTE = (
    "faiss",
    "scikit-learn",
    "numba-plain",
    "numba-abandoning",
    "gower",
    "sdmetrics",
    "anonymeter",
    "clearbox-sure",
)


class Goal(NamedTuple):
    """A figure that should be at least (or at most) so much."""

    what: str
    least: float | None
    most: float | None
    figure: Callable[[dict[str, Any]], float]


def _rate(case: str) -> Callable[[dict[str, Any]], float]:
    return lambda r: float(r["kernel"][case]["gpairs_per_s"])


def _over(case: str, *peers: str) -> Callable[[dict[str, Any]], float]:
    """Our speed over that of the best of some peers that ran."""

    def ratio(r: dict[str, Any]) -> float:
        speeds = r["peers"][case]
        best = max(speeds[p]["mpairs_per_s"] for p in peers if "mpairs_per_s" in speeds.get(p, {}))
        return float(speeds["daskpriv"]["mpairs_per_s"] / best)

    return ratio


def _slowest(r: dict[str, Any]) -> float:
    return float(max(c["exponent"] for c in r["growth"].values()))


def _memory(r: dict[str, Any]) -> float:
    cases = [c for c in r["kernel"].values() if "index_bytes" in c]
    return float(max(c["index_bytes"] / c["codes_and_float64_bytes"] for c in cases))


def _privacy_block(r: dict[str, Any]) -> float:
    return float(r["peers"]["privacy_block"]["daskpriv"]["cpu_s"])


def _pairs(r: dict[str, Any], ours: str, *keys: str) -> float:
    """All pairs on all rows: CPU seconds of the fastest other program over ours."""
    found = r["accuracy"]
    others = [found[p] for p in ("mostlyai-qa", "sdmetrics", "pandas-crosstab") if "each_ms" in found.get(p, {})]
    return float(min(sum(o[k] for k in keys) for o in others) / found[ours]["all_combinations_s"])


def _worst(r: dict[str, Any]) -> float:
    return float(r["kernel"]["worst"]["times_unpruned"])


GOALS = (
    Goal("adult, Gpairs/s of one core", 20, None, _rate("adult")),
    Goal("adult, times the plain float64 loop", 150, None, lambda r: float(r["kernel"]["adult"]["times_plain"])),
    Goal("adult, times pynear", 12, None, _over("adult", "pynear")),
    Goal("bank-marketing, Gpairs/s", 15, None, _rate("bank")),
    Goal("24 skewed numbers, Gpairs/s", 6, None, _rate("credit-like")),
    Goal("24 skewed numbers, times pynear", 2.5, None, _over("credit-like", "pynear")),
    Goal("adult flip90, times pynear", 20, None, _over("adult-flip90", "pynear")),
    Goal("adult flip90, times the best brute force", 5, None, _over("adult-flip90", *BRUTE)),
    Goal("independent columns, times pynear", 20, None, _over("independent", "pynear")),
    Goal("independent columns, times the best brute force", 5, None, _over("independent", *BRUTE)),
    Goal("Clearbox's privacy block, CPU s", None, 0.7, _privacy_block),
    Goal(
        "1.6 M adult-like references, Gpairs/s", 100, None,
        lambda r: float(r["growth"]["adult_like"]["rows_1600000"]["gpairs_per_s"]),
    ),
    Goal("1.6 M adult-like references, times pynear", 10, None, _over("adult-like-1.6M", "pynear")),
    Goal("growth exponent of n x n, 25 k to 1.6 M", None, 1.5, _slowest),
    Goal("uniform noise, times the unpruned scan", 0.8, None, _worst),
    Goal("two workers against one, call", 1.85, None, lambda r: float(r["cluster"]["two_workers"]["speed_up"])),
    Goal(
        "two workers, share of the search outside search tasks", None, 0.05,
        lambda r: float(r["cluster"]["two_workers"]["share_outside_search_within_span"]),
    ),
    Goal("index bytes / (codes + float64 columns)", None, 1.5, _memory),
    Goal(
        "all pairs from buckets, times the fastest other program", 50, None,
        lambda r: _pairs(r, "daskpriv-kernel", "all_combinations_s"),
    ),
    Goal(
        "all pairs from files, times the fastest other program", 50, None,
        lambda r: _pairs(r, "daskpriv-call", "prepare_100_columns_s", "all_combinations_s"),
    ),
    Goal(
        "all 161 700 triples of 100 columns x 1 M rows, s", None, 600,
        lambda r: float(r["accuracy"]["daskpriv-all-orders"]["seconds"]),
    ),
    Goal("import and first 10 k x 10 k, s", None, 5, lambda r: float(r["cold"]["import_and_first_s"])),
)  # fmt: skip


def lines(results: dict[str, Any]) -> list[str]:
    """One line per goal; those whose benchmark did not run are left out."""
    out = ["", f"{'goal':<58}{'':>3}{'asked':>8}{'measured':>10}"]
    for goal in GOALS:
        try:
            value = goal.figure(results)
        except (KeyError, ValueError):
            continue
        asked = goal.least if goal.least is not None else goal.most
        met = value >= goal.least if goal.least is not None else value <= (goal.most or 0.0)
        out.append(
            f"{goal.what:<58}{'>=' if goal.least is not None else '<=':>3}{asked:>8g}{value:>10.3g}"
            f"  {'met' if met else 'MISSED'}"
        )
    return out
