"""How much a real row stands out: its nearest synthetic row, against how isolated it is among the real rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Neighbours, Widest
from daskpriv.stats.quotient import quotient

REAL = (TRAIN, HOLDOUT)
_K = 5


def searches() -> list[Neighbours]:
    """The neighbours that `scores_of` looks at."""
    return [*(Neighbours(q, r, _K) for q in REAL for r in REAL), *(Neighbours(q, SYNTHETIC) for q in REAL)]


def scores_of(evidence: Evidence) -> dict[str, NDArray[np.float64]]:
    """Label-free scores of the real rows of a block, each float64 (n,); small stands out.

    distance to the nearest synthetic row; that over the isolation (relative); isolation, the distance to the
    fifth-nearest other real row; widest, the largest difference in any column to the nearest synthetic row.
    """
    nearest = evidence.table(Neighbours(evidence.role, SYNTHETIC)).nearest
    sides = [evidence.table(Neighbours(evidence.role, r, _K)).distance for r in REAL]
    widest = Widest(evidence.role, SYNTHETIC)
    isolation = np.sort(np.concatenate(sides, axis=1), axis=1)[:, _K - 1]
    return {
        "distance": nearest,
        "relative": quotient(nearest, isolation),
        "isolation": isolation,
        **({"widest": evidence.widest[widest]} if widest in evidence.widest else {}),
    }
