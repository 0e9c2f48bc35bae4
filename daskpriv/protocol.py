"""What a metric is: the evidence it needs, a reduction over it, and a result small enough for a report.

Shared by `daskpriv.metrics`, which holds them, and `daskpriv.engine`, which runs them; neither knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from daskpriv.evidence import Evidence, Facts, Request


class Verdict(StrEnum):
    """What a metric says about leakage, as far as it can."""

    LEAK = "LEAK"
    BOUNDED = "BOUNDED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_EVALUATED = "NOT_EVALUATED"
    NOT_INTERPRETABLE = "NOT_INTERPRETABLE"


# Metrics that fit models to whole tables (daskpriv.modelling); all others are reductions over evidence.
MODELLED = ("utility", "discriminator")


@dataclass(frozen=True, eq=False)
class LabelTest:
    """One test of "the labels of the real rows mean nothing", by the label draws that all tests of a report share.

    Attributes
    ----------
    name : str
    observed : float
        The statistic; larger means more leak.
    drawn : float64 (draws,)
        The same statistic under every draw of `daskpriv.stats.labels`, in their order.
    weight : float
        Its share of the false alarms that a report may have, against 1 for an ordinary test. Fixed beforehand.
    """

    name: str
    observed: float
    drawn: NDArray[np.float64]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError("weight must be above 0")

    @property
    def p_value(self) -> float:
        """One-sided, never 0: (1 + draws at least as large) / (1 + draws). Source: Phipson & Smyth (2010)."""
        return (1 + int(np.count_nonzero(~(self.drawn < self.observed)))) / (len(self.drawn) + 1)


SHARE, ODDS = "share", "log odds"


@dataclass(frozen=True)
class Effect:
    """How large the leak is that a metric judges.

    Attributes
    ----------
    meaning : str
        In words; without a leak it is 0.
    interval : (low, high, level)
        What is compared with the margin; an end may be infinite.
    margin : float
        LEAK needs an interval above it (for clones above 0), BOUNDED one below it.
    value : float or None
        None where only its ends are known.
    detectable : float or None
        What these sizes find four times in five; infinite where nothing varies, None where it is not known.
    unit : SHARE or ODDS
    """

    meaning: str
    interval: tuple[float, float, float]
    margin: float
    value: float | None = None
    detectable: float | None = None
    unit: str = SHARE


@dataclass(frozen=True)
class Result:
    """What a metric found. Its size does not grow with the number of rows.

    Attributes
    ----------
    value : float or None
        The headline number; None when it could not be evaluated.
    interval : (low, high, level) or None
    p_value : float or None
        One-sided, of the null "no leak"; `test` in `details` names the test.
    verdict : Verdict
    expected : float or None
        The value to expect without any leak.
    mde : float or None
        Minimum detectable effect (80 % power, 5 % one-sided), on the scale of the effect.
    effect : Effect or None
        What the verdict was made of; None of a metric that only describes.
    details : dict
        Plain numbers, strings and lists.
    cannot_show : str
        What this metric is blind to.
    reading : str
        The result in one plain sentence.
    warnings : tuple of str
    tests : tuple of LabelTest
        What the adjustment for several tests needs; not part of the report.
    internal : {name: {column: values}}
        Small tables with row ids, for `internal/name.parquet` only.
    """

    value: float | None
    verdict: Verdict = Verdict.NOT_EVALUATED
    interval: tuple[float, float, float] | None = None
    p_value: float | None = None
    expected: float | None = None
    mde: float | None = None
    effect: Effect | None = None
    details: dict[str, Any] = field(default_factory=dict)
    cannot_show: str = ""
    reading: str = ""
    warnings: tuple[str, ...] = ()
    tests: tuple[LabelTest, ...] = field(default=(), compare=False)
    internal: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)


Answers = Mapping[Request, Any]
State = Any
Partial = Any


class Metric(Protocol):
    """A reduction in three pure functions, repeated until it ends in a `Result`.

    `chunk` sees all answers about one block of query rows and returns a partial; `combine` is associative and
    commutative; `advance` turns the whole into the next state (another pass) or into the result. Partials do not
    grow with the number of rows. No randomness but what `Facts.seed` keys, no clock, no files.
    """

    name: ClassVar[str]

    def needs(self, facts: Facts) -> Sequence[Request]:
        """The evidence wanted; only tables that `facts` has."""
        ...

    def begin(self, facts: Facts) -> State:
        """The state of the first pass."""
        ...

    def chunk(self, state: State, evidence: Evidence) -> Partial:
        """Partial of one block of query rows."""
        ...

    def combine(self, a: Partial, b: Partial) -> Partial:
        """Merge two partials."""
        ...

    def advance(self, state: State, partial: Partial, answers: Answers) -> State | Result:
        """The next state, or the result."""
        ...
