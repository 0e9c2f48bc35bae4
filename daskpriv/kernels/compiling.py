"""How kernels are compiled: without the GIL, never with fast-math, cached on disk where a disk can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile on first call; without a writable cache directory every process compiles for itself."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into every kernel that calls this function."""
    return njit(nogil=True, forceinline=True)(function)
