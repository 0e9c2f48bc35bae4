"""Several tests in one report: keep the chance of any false alarm at the level of one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values. Source: Holm (1979).

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    out: dict[str, float] = {}
    running = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda n: (p_values[n], n))):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[name]))
        out[name] = running
    return out


def westfall_young(
    tests: Mapping[str, tuple[float, NDArray[np.float64]]], weights: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Adjusted p-values of {name: (observed, drawn)}, larger is more extreme; every `drawn` follows the same draws.

    Step-down min-p: exact control of the family-wise error for any dependence between the tests, because the draws
    carry it. Source: Westfall & Young (1993), algorithm 2.8; Ge, Dudoit & Speed (2003) for p-values of the draws
    from their own ranks.

    p-values are divided by `weights` (1 unless given) before the smallest counts: a test of twice the weight is allowed
    about twice the share of the false alarms. As weights do not know the data, control stays exact. Source: Genovese,
    Roeder & Wasserman (2006).

    >>> drawn = np.arange(99.0)
    >>> westfall_young({"a": (99.0, drawn), "b": (50.0, drawn[::-1].copy())})
    {'a': 0.02, 'b': 0.5}
    """
    if not tests:
        return {}
    own = {
        name: _p_values(np.append(drawn, observed)) / (weights or {}).get(name, 1.0)
        for name, (observed, drawn) in tests.items()
    }
    order = sorted(own, key=lambda name: (own[name][-1], name))
    out: dict[str, float] = {}
    smallest = np.full(len(own[order[0]]), np.inf)
    for name in reversed(order):
        smallest = np.minimum(smallest, own[name])
        out[name] = float(np.mean(smallest <= own[name][-1]))
    running = 0.0
    for name in order:
        running = max(running, out[name])
        out[name] = running
    return {name: out[name] for name in tests}


def _p_values(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of all that are at least as large, for each; float64 (n,)."""
    statistics = np.where(np.isnan(statistics), -np.inf, statistics)
    ascending = np.sort(statistics)
    return (len(statistics) - np.searchsorted(ascending, statistics, side="left")) / len(statistics)
