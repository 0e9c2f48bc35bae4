"""Quotients of distances on the extended line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quotient(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quotient of numbers in [0, inf], float64 (n,): 1 where they are equal (0 / 0, inf / inf), inf for y / 0.

    >>> quotient(np.array([0.0, 0.0, 0.2, 0.1]), np.array([0.0, 0.5, 0.0, 0.2]))
    array([1. , 0. , inf, 0.5])
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(a == b, 1.0, a / b)
