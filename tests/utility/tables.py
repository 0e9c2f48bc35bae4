"""Small tables with something to learn in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import daskpriv


def people(seed: int, n: int = 400) -> pd.DataFrame:
    """Numbers, categories, a time and cells that are missing; `bought`, `pay` and `town` follow from the others."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n)
    job = rng.choice(["clerk", "cook", "judge"], n, p=[0.5, 0.3, 0.2])
    likes = age / 30 + 2.0 * (job == "judge") + rng.normal(0, 0.7, n)
    town = np.select([likes < 1.4, likes < 2.2], ["Graz", "Linz"], "Wien")
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.05, np.nan, age),
            "job": np.where(rng.random(n) < 0.05, None, job),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "town": town,
            "pay": (likes * 1000 + rng.normal(0, 300, n)).round(2),
            "bought": np.where(likes + rng.normal(0, 0.5, n) > 2.2, "yes", "no"),
        }
    )


def spoilt(table: pd.DataFrame, share: float, seed: int = 0) -> pd.DataFrame:
    """A share of the cells of every column drawn anew from the column."""
    rng = np.random.default_rng(seed)
    out = table.copy()
    for name in out.columns:
        hit = rng.random(len(out)) < share
        out.loc[hit, name] = out[name].to_numpy()[rng.integers(0, len(out), int(hit.sum()))]
    return out


def measured(metric: str = "utility", **options: Any) -> daskpriv.protocol.Result:
    """One of the two metrics on three tables of people."""
    tables = {"train": people(0), "holdout": people(1), "synthetic": people(2)}
    report = daskpriv.evaluate(**{**tables, "metrics": metric, **options})
    found: daskpriv.protocol.Result = report.metrics[metric.rsplit(",", maxsplit=1)[-1]]
    return found
