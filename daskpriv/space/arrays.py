"""Arrays as kernels want them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CACHE_LINE = 64


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The same values on a cache-line boundary, read-only: vectors that straddle two lines load at half speed."""
    raw = np.empty(array.nbytes + _CACHE_LINE, np.uint8)
    begin = -raw.ctypes.data % _CACHE_LINE
    out = raw[begin : begin + array.nbytes].view(array.dtype)
    out[:] = array
    out.flags.writeable = False
    return out
