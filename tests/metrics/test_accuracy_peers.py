"""The accuracies that mostlyai-qa 1.10.11 found in published tables: its buckets, told again here, in our counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import daskpriv
from daskpriv.evidence import SYNTHETIC, Deviations, Margins
from tests.metrics.test_accuracy_published import Counted

SHARED = Path(__file__).parents[3] / "shared" / "data"
CASES = ("data/adult/mostly", "data/adult/synthpop", "data/bank-marketing/synthpop")
MOST, LEAST_ROWS, MOST_BREAKS = 10, 5, 1000
NAMES = {"univariate": 1, "bivariate": 2, "trivariate": 3}
pytestmark = [
    pytest.mark.published,
    pytest.mark.skipif(not SHARED.exists(), reason="the collection of published tables is not there"),
]


def floored(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    return np.true_divide(np.floor(values * 10**digits), 10**digits)


def breaks_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where intervals [a, b) begin: each of few values, or order statistics, more of them until eleven differ."""
    ordered = np.sort(values[~np.isnan(values)])
    breaks = np.unique(ordered)
    if len(breaks) <= MOST:
        breaks = np.append(breaks, breaks[-1] + 1)
    else:
        for count in range(MOST, MOST_BREAKS):
            breaks = np.unique(ordered[np.linspace(0, len(ordered) - 1, count).astype(int)])
            if len(breaks) > MOST:
                break
    digits = next(d for d in range(20) if len(np.unique(floored(breaks, d))) == len(breaks))
    return np.append(floored(breaks[:-1], digits), breaks[-1])


def by_value(real: pd.Series, made: pd.Series) -> tuple[list[str], ...]:
    """Values outside the breaks belong to the first or the last interval."""
    breaks = breaks_of(real.to_numpy(float))

    def names(column: pd.Series) -> list[str]:
        values = column.to_numpy(float)
        inside = np.clip(values, breaks[0], breaks[-1])
        places = np.searchsorted([*breaks[:-1], breaks[-1] + 1], inside, side="right") - 1
        return ["missing" if np.isnan(v) else f"{p:03d}" for v, p in zip(values, places, strict=True)]

    return names(real), names(made)


def by_name(real: pd.Series, made: pd.Series) -> tuple[list[str], ...]:
    """The ten commonest that five rows have; missing is one of the names."""
    filled = [c.astype("string").fillna("missing") for c in (real, made)]
    counts = filled[0].value_counts().head(MOST)
    kept = [*counts[counts >= LEAST_ROWS].index, "missing"]
    return tuple(c.where(c.isin(kept), "other").tolist() for c in filled)


def bucketed(real: pd.DataFrame, made: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    cut = {n: (by_value if pd.api.types.is_numeric_dtype(real[n]) else by_name)(real[n], made[n]) for n in real}
    return pd.DataFrame({n: c[0] for n, c in cut.items()}), pd.DataFrame({n: c[1] for n, c in cut.items()})


def deviations(real: pd.DataFrame, made: pd.DataFrame) -> dict[str, Deviations]:
    """Of all sets of one, two and three columns of the bucketed tables; every bucket is kept."""
    wanted = {name: Margins(order, 250) for name, order in NAMES.items()}
    train, synthetic = bucketed(real, made)
    report = daskpriv.evaluate(train, synthetic, metrics=[Counted(tuple(wanted.values()))])
    held = report.metrics["counted"].internal["margins"]
    return {name: held[request].compared[SYNTHETIC] for name, request in wanted.items()}


def golden(case: str, which: str) -> dict[str, Any]:
    calls = json.loads((SHARED / "golden" / "mostlyai_qa.json").read_text())["cases"][case]["calls"]
    return next(found for call, found in calls.items() if call.startswith(f"bin_data(ori={which}"))


@pytest.mark.parametrize("which", ["trn only", "trn+hol"])
@pytest.mark.parametrize("case", CASES)
def test_its_buckets_give_its_accuracies(case: str, which: str) -> None:
    """It rounds every accuracy to five digits before it takes means."""
    _, data, generator = case.split("/")
    parts = ["train", "holdout"] if which == "trn+hol" else ["train"]
    real = pd.concat([pd.read_parquet(SHARED / data / f"{p}.parquet") for p in parts], ignore_index=True)
    made = pd.read_parquet(SHARED / data / f"syn_{generator}.parquet")[list(real)]
    expected, found = golden(case, which), deviations(real, made)
    assert expected.keys() >= {"univariate", "bivariate"} | ({"trivariate"} if which == "trn+hol" else set())
    for name in [n for n in NAMES if n in expected]:
        assert np.mean((1 - found[name].tvd).round(5)) == pytest.approx(expected[name], abs=1e-12), name
        # What it expects of chance is the law of normal differences, and too little for sparse cells.
        ours, its = 1 - np.mean(found[name].expected), expected[f"{name}_max"]
        assert its - 1e-3 < ours < its + 1e-5, name
    each = zip(real, (1 - found["univariate"].tvd).round(5), strict=True)
    assert {n: float(a) for n, a in each} == {n: a for n, (a, _) in expected["per_column"].items()}
