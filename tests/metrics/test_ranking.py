"""The flip series of the paper, flip10 to flip90, in the right order under every metric that speaks of leaks.

flipNN are training rows drawn with replacement, NN % of their cells replaced by draws from the column. Of a random part
of train most flipped rows have their origin elsewhere, so that 1 500 of 24 421 training rows would show a sixteenth of
the leak. Hence one occupation: its training, holdout and flipped rows, all chosen by the same cell of their own,
without a look at the train/holdout label. From flip60 on no metric tells neighbours apart in tables of this size: what
is left of a row is about as far from its origin as from strangers, and hardly a verbatim copy is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import daskpriv
from daskpriv.metrics import METRICS

pytestmark = pytest.mark.published
FLIPS = tuple(range(10, 100, 10))
ROWS = 1500
SLICES = {"adult": ("occupation", "Machine-op-inspct"), "bank-marketing": ("job", "retired")}
Metrics = Mapping[str, Any]


class Ranked(NamedTuple):
    """A number that grows with the leak.

    Attributes
    ----------
    leak : callable
        From the "metrics" of a report.
    noise : float
        By how much any flip may at most exceed any with fewer replaced cells: what chance does in tables of this size.
        It is about half as much again as the largest such rise over four choices of the rows; of counts, two rows.
    strict : int
        So many flips must lie strictly in order; 5 are flip10 to flip50.
    """

    leak: Callable[[Metrics], float]
    noise: float = 0.0
    strict: int = 5


def details(metric: str, *path: str) -> Callable[[Metrics], Any]:
    def found(metrics: Metrics) -> Any:
        value = metrics[metric]["details"]
        for key in path:
            value = value[key]
        return value

    return found


def beyond(score: str, sign: int = 1) -> Callable[[Metrics], float]:
    """A score of another tool, next to the same with the holdout: what it says of fidelity falls out."""
    read = details("neighbour_scores", score)
    return lambda metrics: sign * (read(metrics)["value"] - read(metrics)["reference"])


def less(read: Callable[[Metrics], float]) -> Callable[[Metrics], float]:
    return lambda metrics: -read(metrics)


def nndr_below_half(metrics: Metrics) -> float:
    ours, theirs = (details("nndr", f"synthetic->{side}", "share_below_half")(metrics) for side in ("train", "holdout"))
    return float(ours - theirs)


def mean_over_tenths(metrics: Metrics) -> float:
    """`value` is the excess of the most surprising group: a maximum of ten, whose noise does not fall with the leak."""
    shares = [line["share"] for line in details("subgroups", "by_isolation")(metrics)]
    return sum(shares) / len(shares)


def mdcr(metrics: Metrics) -> float:
    found = details("neighbour_scores", "mdcr")(metrics)
    return float(-found["value"] / found["reference"])


SCORES = {
    "dcr: median to train": Ranked(lambda m: -m["dcr"]["value"], 0.001),
    "dcr: rows at distance 0": Ranked(details("dcr", "synthetic->train", "n_zero"), 2),
    "clones: excess": Ranked(details("clones", "excess"), 2 / ROWS),
    "clones: copied training rows": Ranked(details("clones", "copied_train_rows"), 2 / ROWS),
    "dcr_share: excess": Ranked(details("dcr_share", "excess"), 0.06),
    "dcr_overlap: overlap": Ranked(less(details("dcr_overlap", "ovl")), 0.05, strict=4),
    "dcr_overlap: largest F_T - F_H": Ranked(details("dcr_overlap", "dominance", "ks_above"), 0.015),
    "dcr_overlap: effect": Ranked(details("dcr_overlap", "effect"), 0.015),
    "dcr_overlap: theta": Ranked(details("dcr_overlap", "dominance", "theta"), 0.015),
    "dcr_overlap: mean difference": Ranked(details("dcr_overlap", "mean_difference"), 0.003),
    "nndr: theta": Ranked(details("nndr", "difference", "theta_a"), 0.035),
    "nndr: effect": Ranked(details("nndr", "effect"), 0.07),
    "nndr: below a half": Ranked(nndr_below_half, 0.025),
    # The 5 % quantile is 0 as soon as a twentieth of the rows are clones, in flip10 to flip30: nothing below to go to.
    "nndr: 5 % quantile": Ranked(less(details("nndr", "synthetic->train", "q05")), 0.06, strict=0),
    "membership_inference: AUC": Ranked(details("membership_inference", "auc"), 0.015),
    "membership_inference: AUC of ratio": Ranked(details("membership_inference", "attacks", "ratio", "auc"), 0.015),
    "membership_inference: AUC of density": Ranked(details("membership_inference", "attacks", "density", "auc"), 0.01),
    "membership_inference: mean risk": Ranked(details("membership_inference", "mean_risk"), 0.08),
    "membership_inference: TPR": Ranked(details("membership_inference", "tpr_at_fpr", "0.01", "tpr"), 0.01),
    "exposure: AUC": Ranked(details("exposure", "auc_relative"), 0.015),
    "exposure: log odds": Ranked(details("exposure", "stands_out", "log_odds"), 0.1),
    # No list is shorter than ten rows with so few holdout rows: flip50 has the shortest one, or none.
    "exposure: list": Ranked(details("exposure", "list", "rows"), strict=4),
    "subgroups: mean share": Ranked(mean_over_tenths, 0.04),
    # Capped at 100, where bad fidelity hides copies: flip40 to flip90 have no leak by this score.
    "privacy_score: score": Ranked(lambda m: -m["privacy_score"]["value"], strict=4),
    "privacy_score: all synthetic rows": Ranked(less(details("privacy_score", "raw", "score")), strict=4),
    "privacy_score: risk": Ranked(details("privacy_score", "risk_unclipped"), 0.005),
    # Cells are replaced by draws from their own column: what suffers is how columns go together.
    "accuracy: two columns": Ranked(details("accuracy", "bivariate", "accuracy"), 0.005),
    "accuracy: three columns": Ranked(details("accuracy", "trivariate", "accuracy"), 0.005),
    "correlation: value": Ranked(lambda m: -m["correlation"]["value"], 0.005),
    "neighbour_scores: nnaa": Ranked(beyond("nnaa", -1), 0.02),
    "neighbour_scores: nnaa_privacy_loss": Ranked(beyond("nnaa_privacy_loss"), 0.02),
    "neighbour_scores: mdcr": Ranked(mdcr, 0.04),
    "neighbour_scores: epsilon_identifiability": Ranked(beyond("epsilon_identifiability"), 0.02, strict=4),
    "neighbour_scores: epsilon_identifiability_loss": Ranked(beyond("epsilon_identifiability_loss"), 0.02, strict=4),
    "neighbour_scores: hitting_rate_gower_inner": Ranked(beyond("hitting_rate_gower_inner"), 0.01),
    "neighbour_scores: hitting_rate_gower_outer": Ranked(beyond("hitting_rate_gower_outer"), 0.035),
    "neighbour_scores: dcr_overfitting_protection": Ranked(beyond("dcr_overfitting_protection", -1), 0.045),
    "neighbour_scores: closer_share_half_ties": Ranked(beyond("closer_share_half_ties"), 0.03),
    "neighbour_scores: identical_match_share": Ranked(beyond("identical_match_share"), 2 / ROWS),
    "neighbour_scores: identical_match_share_exact": Ranked(beyond("identical_match_share_exact"), 2 / ROWS),
}


def disorder(name: str, values: list[float]) -> list[str]:
    """What is wrong with the order of a series that should fall; nothing where it is right."""
    _, noise, strict = SCORES[name]
    pairs = [(i, j) for i in range(len(values)) for j in range(i + 1, len(values))]
    wrong = [(i, j) for i, j in pairs if values[j] - values[i] > noise or (j < strict and values[j] >= values[i])]
    return [f"{name}: flip{FLIPS[i]} {values[i]:.4g}, flip{FLIPS[j]} {values[j]:.4g}" for i, j in wrong]


def rows_of(folder: Path, table: str, cell: tuple[str, str]) -> pd.DataFrame:
    """The rows of one slice; at most `ROWS` of them, the same ones every time."""
    found = pd.read_parquet(folder / f"{table}.parquet", filters=[(cell[0], "==", cell[1])])
    return found.sample(min(ROWS, len(found)), random_state=0)


def test_every_metric_is_ranked() -> None:
    """Whoever adds a metric says here how it ranks leaks."""
    assert {name.split(":")[0] for name in SCORES} == set(METRICS) - {"sequences"}  # tests/test_sequences.py
    peers = set(METRICS["neighbour_scores"]().scores)
    assert {name.split(": ")[1] for name in SCORES if name.startswith("neighbour_scores")} == peers


def test_a_wrong_order_is_noticed() -> None:
    right = [0.7, 0.4, 0.3, 0.2, 0.1, 0.0, 0.01, 0.0, 0.0]
    name = "dcr_share: excess"
    assert disorder(name, right) == []
    assert disorder(name, right[::-1])
    assert disorder(name, [0.7, 0.4, 0.3, 0.3, *right[4:]])  # strictly, as far as flip50
    assert disorder(name, [*right[:8], 0.07])  # beyond, no more than noise


@pytest.mark.parametrize("dataset", SLICES)
def test_more_replaced_cells_leak_less(shared: Path, dataset: str) -> None:
    train, holdout = (rows_of(shared / dataset, t, SLICES[dataset]) for t in ("train", "holdout"))
    found, verdicts = [], []
    for flip in FLIPS:
        synthetic = rows_of(shared / dataset, f"syn_flip{flip}", SLICES[dataset])
        report = daskpriv.evaluate(train=train, holdout=holdout, synthetic=synthetic, metrics="all").to_dict()
        found.append(report["metrics"])
        verdicts.append(report["overall"]["verdict"])
    wrong = [line for name, score in SCORES.items() for line in disorder(name, [score.leak(m) for m in found])]
    assert wrong == []
    assert verdicts[:4] == ["LEAK"] * 4
    assert verdicts[-1] != "LEAK"
