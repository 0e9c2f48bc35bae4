"""What a reader writes in an afternoon: compiled float64 loops over all pairs, top-2; numbers come divided by range."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def plain(qn: Any, qc: Any, rn: Any, rc: Any) -> Any:  # pragma: no cover - compiled
    """Every column of every pair."""
    out = np.full((len(qn), 2), np.inf)
    for i in range(len(qn)):
        for j in range(len(rn)):
            total = 0.0
            for k in range(qn.shape[1]):
                total += min(abs(qn[i, k] - rn[j, k]), 1.0)
            different = 0
            for k in range(qc.shape[1]):
                different += qc[i, k] != rc[j, k]
            total += different
            if total < out[i, 1]:
                out[i, 1] = max(total, out[i, 0])
                out[i, 0] = min(total, out[i, 0])
    return out / (qn.shape[1] + qc.shape[1])


@numba.njit(cache=True)
def abandoning(qn: Any, qc: Any, rn: Any, rc: Any) -> Any:  # pragma: no cover - compiled
    """Nominal columns first, and a pair is left as soon as it cannot be among the two nearest."""
    out = np.full((len(qn), 2), np.inf)
    for i in range(len(qn)):
        for j in range(len(rn)):
            different = 0
            for k in range(qc.shape[1]):
                different += qc[i, k] != rc[j, k]
            total, k = float(different), 0
            while k < qn.shape[1] and total < out[i, 1]:
                total += min(abs(qn[i, k] - rn[j, k]), 1.0)
                k += 1
            if total < out[i, 1]:
                out[i, 1] = max(total, out[i, 0])
                out[i, 0] = min(total, out[i, 0])
    return out / (qn.shape[1] + qc.shape[1])
