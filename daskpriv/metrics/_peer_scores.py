"""The nearest-neighbour scores that other tools print, each as a formula over shares and medians of distances.

Sources: syntheval 1.7.3, SDMetrics 0.32, mostlyai-qa 1.10, and the papers named at each score. Left out, because no
search of a report answers them: the hitting rate of syntheval itself (a box around each row; bounded here) and
DCRBaselineProtection of SDMetrics (a table of random rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours, Role

IDENTICAL = 1e-6
_SIGNS = {"<": np.less, "<=": np.less_equal, "=": np.equal, ">": np.greater}


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the rows of `query` whose distance to `reference` is `sign` a limit: a distance, or that to a table."""

    query: Role
    reference: Role
    sign: str
    limit: Role | float

    @property
    def searches(self) -> tuple[Neighbours, ...]:
        """The searches this needs."""
        tables = (self.reference, self.limit) if isinstance(self.limit, str) else (self.reference,)
        return tuple(Neighbours(self.query, t) for t in tables)

    def count(self, evidence: Evidence) -> int:
        """Such rows in one block."""
        first, *other = (evidence.table(s).nearest for s in self.searches)
        return int(np.count_nonzero(_SIGNS[self.sign](first, other[0] if other else self.limit)))


@dataclass(frozen=True, slots=True)
class Median:
    """Median distance of the rows of `query` to their nearest row of `reference`."""

    query: Role
    reference: Role

    @property
    def searches(self) -> tuple[Neighbours, ...]:
        """The search this needs."""
        return (Neighbours(self.query, self.reference),)


Part = Share | Median
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Score:
    """One score: what it is made of, and how.

    Attributes
    ----------
    parts : {name: Share or Median}
    value : callable
        The score from the numbers of its parts; None where it is not defined.
    expected : float or None
        Its value without a leak, where that is known whatever the synthetic rows are like.
    """

    source: str
    note: str
    parts: dict[str, Part]
    value: Callable[[Numbers], float | None]
    expected: float | None = None


def nnaa(facts: Facts, real: Role = TRAIN) -> Score:
    """Nearest-neighbour adversarial accuracy: (P(d_RS > d_RR) + P(d_SR > d_SS)) / 2, strict, own rows left out by id.

    d_RS is the distance of a real row to its nearest synthetic row, and so on. Source: Yale et al. (2020).
    """
    parts: dict[str, Part] = {
        "real_apart": Share(real, SYNTHETIC, ">", real),
        "synthetic_apart": Share(SYNTHETIC, real, ">", SYNTHETIC),
        "real_tied": Share(real, SYNTHETIC, "=", real),
        "synthetic_tied": Share(SYNTHETIC, real, "=", SYNTHETIC),
    }
    note = (
        "0.5: real and synthetic rows are mixed; 0: each has a near copy on the other side; 1: they lie apart, which "
        "may hide copies. Ties count as near. All rows are used; syntheval draws samples where sizes differ twofold."
    )
    return Score(
        "Yale et al. (2020); syntheval nnaa", note, parts, lambda p: (p["real_apart"] + p["synthetic_apart"]) / 2
    )


def nnaa_privacy_loss(facts: Facts) -> Score:
    """NNAA of synthetic and holdout minus NNAA of synthetic and train. Source: Yale et al. (2020)."""
    note = "Above 0: synthetic rows lie nearer to train than to holdout. Chance is not accounted for; see dcr_share."
    return _loss(nnaa, facts, 1, "Yale et al. (2020); syntheval nnaa priv_loss", note)


def mdcr(facts: Facts, real: Role = TRAIN) -> Score:
    """Median d_SR / median d_RR, own rows left out by id; 0/0 is 1. Source: syntheval dcr."""
    parts: dict[str, Part] = {"between": Median(SYNTHETIC, real), "within": Median(real, real)}
    note = (
        "Below 1: synthetic rows lie nearer to real rows than these to each other. No number where only the divisor is "
        "0 (syntheval prints 0, as for copies)."
    )
    return Score("syntheval dcr", note, parts, lambda p: _ratio(p["between"], p["within"]))


def epsilon_identifiability(facts: Facts, real: Role = TRAIN) -> Score:
    """P(d_RS < d_RR): real rows with a synthetic row nearer than any other real row.

    Source: Yoon, Drumright & van der Schaar (2020, ADS-GAN). The columns have the weights of the evaluation; the paper
    and syntheval weigh each by 1 / entropy (syntheval: of the column scaled to [0, 1] and rounded).
    """
    parts: dict[str, Part] = {
        "identifiable": Share(real, SYNTHETIC, "<", real),
        "tied": Share(real, SYNTHETIC, "=", real),
    }
    n = facts.rows[SYNTHETIC]
    alike = n / max(n + facts.rows.get(real, 0) - 1, 1)
    note = (
        f"{alike:.4f} where synthetic rows are like fresh real rows; it grows with their number. With the column "
        "weights of this evaluation; the tools weigh each column by 1 / entropy."
    )
    return Score("Yoon et al. (2020); syntheval eps_risk", note, parts, lambda p: p["identifiable"])


def epsilon_identifiability_loss(facts: Facts) -> Score:
    """P(d_TS < d_TT) - P(d_HS < d_HH). Source: syntheval eps_risk, which divides both counts by the rows of train."""
    note = "Above 0: more training rows than holdout rows are identifiable; biased where the two differ in size."
    return _loss(epsilon_identifiability, facts, -1, "syntheval eps_risk priv_loss", note)


def hitting_rate_gower_inner(facts: Facts, real: Role = TRAIN) -> Score:
    """P(d_RS <= 1 / (30 p)) with p columns: the box of syntheval hit_rate around a real row holds such a synthetic row.

    That box is: categories equal, each number within 1/30 of its range in train. A distance is the mean over columns,
    so that this share never exceeds the hitting rate where columns weigh the same and range_from is "train".
    """
    return _hits(real, 1 / (30 * facts.columns), "At most the hitting rate of syntheval")


def hitting_rate_gower_outer(facts: Facts, real: Role = TRAIN) -> Score:
    """P(d_RS <= 1/30): every synthetic row in the box of syntheval hit_rate is so near; never less than that rate."""
    return _hits(real, 1 / 30, "At least the hitting rate of syntheval")


def dcr_overfitting_protection(facts: Facts) -> Score:
    """min(2 (1 - P(d_ST < d_SH)), 1). Source: SDMetrics DCROverfittingProtection, on the ranges of each reference."""
    parts: dict[str, Part] = {"closer_to_training": Share(SYNTHETIC, TRAIN, "<", HOLDOUT)}
    note = "1 is the best. Ties count as further from train: equal distances look safe, copies among them too."
    return Score(
        "SDMetrics DCROverfittingProtection",
        note,
        parts,
        lambda p: min(2 * (1 - p["closer_to_training"]), 1.0),
        min(2 * (1 - _pi(facts)), 1.0),
    )


def closer_share_half_ties(facts: Facts) -> Score:
    """P(d_ST < d_SH) + P(d_ST = d_SH) / 2. Source: mostlyai-qa dcr_share, there on L2 distances of encodings."""
    parts: dict[str, Part] = {
        "closer": Share(SYNTHETIC, TRAIN, "<", HOLDOUT),
        "tied": Share(SYNTHETIC, TRAIN, "=", HOLDOUT),
    }
    note = "With ties it is unbiased only where train and holdout are equally large; dcr_share is for any sizes."
    return Score("mostlyai-qa dcr_share", note, parts, lambda p: p["closer"] + p["tied"] / 2, _pi(facts))


def identical_match_share(facts: Facts, real: Role = TRAIN) -> Score:
    """P(d_SR <= 1e-6). Source: mostlyai-qa ims, there on L2 distances of encodings."""
    return _identical(facts, real, IDENTICAL, "Rows within 1e-6 count, equal or not.")


def identical_match_share_exact(facts: Facts, real: Role = TRAIN) -> Score:
    """P(d_SR = 0). Source: mostlyai-qa ims, with its tolerance taken away."""
    return _identical(facts, real, 0.0, "Equal in every column compared.")


# What a table of this kind says about one real table has the holdout in the place of train as its reference.
OF_ONE_TABLE: dict[str, Callable[[Facts, Role], Score]] = {
    "nnaa": nnaa,
    "mdcr": mdcr,
    "epsilon_identifiability": epsilon_identifiability,
    "hitting_rate_gower_inner": hitting_rate_gower_inner,
    "hitting_rate_gower_outer": hitting_rate_gower_outer,
    "identical_match_share": identical_match_share,
    "identical_match_share_exact": identical_match_share_exact,
}
OF_BOTH: dict[str, Callable[[Facts], Score]] = {
    "nnaa_privacy_loss": nnaa_privacy_loss,
    "epsilon_identifiability_loss": epsilon_identifiability_loss,
    "dcr_overfitting_protection": dcr_overfitting_protection,
    "closer_share_half_ties": closer_share_half_ties,
}


def _hits(real: Role, radius: float, what: str) -> Score:
    note = f"{what} where columns weigh the same and range_from is 'train'; share of real rows with a row so near."
    parts: dict[str, Part] = {"hit": Share(real, SYNTHETIC, "<=", radius)}
    return Score(f"after syntheval hit_rate; d <= {radius:.6g}", note, parts, lambda p: p["hit"])


def _identical(facts: Facts, real: Role, limit: float, note: str) -> Score:
    parts: dict[str, Part] = {"synthetic": Share(SYNTHETIC, real, "<=", limit)}
    if facts.has(HOLDOUT):
        parts["holdout_to_train"] = Share(HOLDOUT, TRAIN, "<=", limit)
    if _unequal(facts):
        note += " Chance matches grow with the real table: train and holdout differ in size."
    return Score("mostlyai-qa ims", note, parts, lambda p: p["synthetic"])


def _loss(of: Callable[[Facts, Role], Score], facts: Facts, sign: int, source: str, note: str) -> Score:
    """The score of the holdout minus that of train, or the other way round for a sign of -1."""
    train, holdout = of(facts, TRAIN), of(facts, HOLDOUT)
    parts = {f"train {k}": p for k, p in train.parts.items()} | {f"holdout {k}": p for k, p in holdout.parts.items()}

    def value(p: Numbers) -> float | None:
        a = train.value({k: p[f"train {k}"] for k in train.parts})
        b = holdout.value({k: p[f"holdout {k}"] for k in holdout.parts})
        return None if a is None or b is None else sign * (b - a)

    return Score(source, note, parts, value, 0.0)


def _ratio(a: float, b: float) -> float | None:
    """Of a to b, with 0/0 = 1; None for any other ratio with 0 or an infinite number below."""
    if a == b == 0:
        return 1.0
    return None if b in (0, float("inf")) else a / b


def _pi(facts: Facts) -> float:
    """The training rows' share of all real rows."""
    return facts.rows[TRAIN] / (facts.rows[TRAIN] + facts.rows.get(HOLDOUT, 0))


def _unequal(facts: Facts) -> bool:
    return facts.has(HOLDOUT) and facts.rows[TRAIN] != facts.rows[HOLDOUT]
