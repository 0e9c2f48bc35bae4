"""How small the epsilon of a generator can be, given guesses of who was in its training table.

If every record was included by a fair coin and the generator is epsilon-differentially private, each guess is right
with probability at most e^eps / (1 + e^eps), whatever the guesses before it. Source: Steinke, Nasr & Jagielski (2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special


def epsilon_lower_bound(correct: int, guesses: int, error: float = 0.05) -> float:
    """A bound that exceeds the true epsilon with probability `error` at most; 0 when nothing was learnt.

    The logit of the one-sided Clopper-Pearson bound on the share of correct guesses.

    >>> round(epsilon_lower_bound(25, 25), 2), round(epsilon_lower_bound(100, 100), 2)
    (2.06, 3.49)
    """
    return max(0.0, log_odds_bound(correct, guesses, error))


def log_odds_bound(correct: int, guesses: int, error: float = 0.05, clustering: float = 1.0) -> float:
    """A lower bound on the log odds of a guess to be right; -inf when nothing was learnt.

    `clustering` as in `daskpriv.stats.intervals.clopper_pearson`.
    """
    k, n = correct / clustering, guesses / clustering
    low = float(special.betaincinv(k, n - k + 1, error)) if guesses and correct else 0.0
    return math.log(low / (1 - low)) if 0.0 < low < 1.0 else (-math.inf if low == 0.0 else math.inf)


def best_bound(
    guesses: Sequence[tuple[int, int]], error: float = 0.05, clustering: float = 1.0
) -> tuple[float, int, int]:
    """The largest log odds bound over several (correct, guesses), each at its share of `error`, with its counts."""
    made = [(log_odds_bound(c, n, error / len(guesses), clustering), c, n) for c, n in guesses]
    return max(made, default=(-math.inf, 0, 0))
