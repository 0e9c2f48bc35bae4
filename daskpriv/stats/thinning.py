"""What would happen if the larger reference table were thinned to the size of the smaller one, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NOTHING = 1e-20


def none_drawn(larger: int, smaller: int, r: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability that `smaller` rows drawn without replacement from `larger` miss `r` marked ones; float64 (n,).

    C(larger - r, smaller) / C(larger, smaller), as a running product that stops where it no longer counts.

    >>> none_drawn(4, 2, np.array([0, 1, 2, 3]))
    array([1.        , 0.5       , 0.16666667, 0.        ])
    """
    most = min(int(r.max(initial=0)), larger - smaller + 1)
    table = [1.0]
    for i in range(most):
        table.append(table[-1] * (larger - smaller - i) / (larger - i))
        if table[-1] < _NOTHING:
            table[-1] = 0.0
            break
    return np.asarray(table)[np.minimum(r, len(table) - 1)]
