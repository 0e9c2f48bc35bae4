"""Tables to try a law on, and whole reports compared number by number: the same, changed in a known way, or free."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, Phase, settings

import daskpriv
from daskpriv.engine.executor import Serial
from daskpriv.metrics import METRICS
from tests.laws.test_properties import Tables, cut, mixed, running_on, smooth

Leaves = dict[str, Any]
Change = Callable[[float], float]

_OPTIONS: dict[str, dict[str, Any]] = {"subgroups": {"least": 5}}  # else it has nothing to say of tables so small
_WORDS = re.compile(r".*/(reading|cannot_show|source|\w*note)")  # sentences, some with numbers of rows in them


def examples(number: int) -> settings:
    """So many examples, the same in every run; a seed has no simpler form to look for."""
    phases = [Phase.explicit, Phase.generate]
    return settings(max_examples=number, derandomize=True, phases=phases, suppress_health_check=list(HealthCheck))


def some_tables(seed: int, least: int = 30, most: int = 60) -> Tables:
    """Mixed tables with duplicates and gaps, half of them with many ties; synthetic rows are partly real rows."""
    rng = np.random.default_rng(seed)
    scale, step = ((12, 0.1), (2, 64.0))[int(rng.integers(2))]
    train, holdout, fresh = (
        mixed(rng, int(n), scale=scale).assign(pay=lambda f: f["pay"] // step * step)
        for n in rng.integers(least, most + 1, 3)
    )
    pool = pd.concat([train, holdout, fresh], ignore_index=True)
    synthetic = pool.iloc[rng.integers(0, len(pool), len(fresh))].reset_index(drop=True)
    return {"train": train, "holdout": holdout, "synthetic": synthetic}


def measured(tables: Mapping[str, Any], executor: Callable[[], Any] = Serial, **options: Any) -> Leaves:
    """Everything that a report says about every metric, as {"metric/details/...": number}, but for its sentences."""
    # Sequences are about events: tests/test_sequences.py.
    every = [METRICS[name](**_OPTIONS.get(name, {})) for name in METRICS if name != "sequences"]
    with running_on(executor):  # tables are so small that threads would mostly wait for each other
        report = daskpriv.evaluate(**tables, **{"metrics": every, **options})
    return {k: v for k, v in _leaves(report.to_dict()["metrics"], "") if not _WORDS.fullmatch(k)}


def _leaves(found: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(found, list) and found and isinstance(found[0], dict):
        found = dict(enumerate(found))
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _leaves(value, f"{at}/{key}" if at else key)
    else:
        yield at, found


def copying(rng: np.random.Generator) -> dict[str, Tables]:
    """One pair of real tables with ten tables that hold ever more of train, and others."""
    train, holdout, fresh = smooth(rng, 60), smooth(rng, 50), smooth(rng, 60)
    noise = pd.DataFrame(rng.normal(0, 0.02, (60, 3)), columns=train.columns) * (train.max() - train.min())
    some: dict[str, pd.DataFrame] = {
        f"{10 * i} %": pd.concat([train.head(6 * i), fresh.iloc[6 * i :]], ignore_index=True) for i in range(11)
    }
    some |= {"noise": train + noise, "holdout": holdout, "both": pd.concat([train, holdout], ignore_index=True)}
    some["one row"] = pd.concat([train.head(1)] * 60, ignore_index=True)
    return {name: {"train": train, "holdout": holdout, "synthetic": table} for name, table in some.items()}


def null_worlds(sizes: tuple[int, int, int], number: int) -> list[tuple[Leaves, bool]]:
    """Reports of tables cut at random from one, all with gaps, and whether they have ties: every other one has many."""
    out = []
    for seed in range(number):
        rng = np.random.default_rng(5000 + seed)
        pool, tied = mixed(rng, sum(sizes), scale=6), bool(seed % 2)
        pool = pool.drop(columns="pay") if tied else pool.assign(x=rng.normal(size=len(pool)))
        out.append((measured(cut(pool, rng, *sizes), seed=seed), tied))
    return out


# ---------------------------------------------------------------------------------------------- laws


class Law(NamedTuple):
    """What holds between a number of one report and the same number of another; nothing where `why` says so."""

    pattern: str
    holds: Callable[[Any, Any], bool] | None
    why: str = ""


def free(pattern: str, why: str) -> Law:
    """Nothing is known of them."""
    return Law(pattern, None, why)


def becomes(pattern: str, change: Change, within: float = 1e-12) -> Law:
    """A known function of the number, or of every number of a list; of what is no number, the same."""

    def holds(a: Any, b: Any) -> bool:
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(holds, a, b))
        if any(x is None or isinstance(x, (str, bool, list)) for x in (a, b)):
            return bool(a == b)
        return abs(change(a) - b) <= within

    return Law(pattern, holds)


def near(pattern: str, within: float = 1e-12) -> Law:
    """The same but for so much."""
    return becomes(pattern, lambda x: x, within)


def mirrored(pattern: str, center: float) -> Law:
    """A number, or an interval with its level, mirrored in a point."""
    number = becomes(pattern, lambda x: 2 * center - x)
    assert number.holds is not None

    def holds(a: Any, b: Any) -> bool:
        return bool(number.holds([a[1], a[0], 2 * center - a[2]] if isinstance(a, list) else a, b))

    return Law(pattern, holds)


def by_draws(pattern: str) -> Law:
    """P-values by other label draws: they differ as two samples of 1999 draws do."""

    def holds(a: Any, b: Any) -> bool:
        return bool(a == b or abs(a - b) <= 5 * math.sqrt(max(a * (1 - a), 1e-3) / 1000))

    return Law(pattern, holds)


def broken(laws: Sequence[Law], before: Leaves, after: Leaves, renamed: Callable[[str], str] = str) -> list[str]:
    """Every number whose law does not hold. Where there is no law, the number must be the same to the last bit."""
    out = []
    for key in [*before, *(k for k in after if renamed(k) not in before)]:
        law = next((one for one in laws if re.fullmatch(one.pattern, key)), None)
        a, b = before.get(key, "nothing"), after.get(renamed(key), "nothing")
        if not (a == b if law is None else law.holds is None or law.holds(a, b)):
            out.append(f"{key}: {a} -> {b}")
    return out


def numbers(found: Leaves, pattern: str) -> dict[str, float]:
    """All numbers whose key matches."""
    return {k: v for k, v in found.items() if re.fullmatch(pattern, k)}


# ---------------------------------------------------------------------------------------------- tables of laws

NS = "neighbour_scores/details"
_S_TO_T = "dcr/details/synthetic->train"
_MI_SCORES = "(?:auc|advantage|mean_risk|tpr_at_fpr/.*/tpr)"
_MI = f"membership_inference/(?:value|details/(?:attacks/(?:distance|ratio)/)?{_MI_SCORES})"
# What rows that make way for copies gave: one or two of 60 were near real rows too; groups have few rows.
_ROW, _GROUP = 1 / 30, math.inf
# Numbers that tell of a leak: which way they grow with it, where they end for a copy of train (None: the scale has no
# end of its own), and how far a step on the way to it may lead back.
SCORES: tuple[tuple[str, int, float | None, float], ...] = (
    (f"dcr/value|{_S_TO_T}/(?:mean|min|max|median|q..)", -1, 0.0, 0.0),
    (f"(?:{_S_TO_T}|dcr/details/train->synthetic)/share_zero", 1, 1.0, 0.0),
    ("clones/(?:value|details/excess|details/copied_train_rows|details/rates/synthetic_train)", 1, 1.0, 0.0),
    ("dcr_share/(?:value|details/(?:excess|share_(?:fractional|half|size|strict)))", 1, 1.0, 0.0),
    ("dcr_share/details/(?:z|share_balanced)", 1, None, 0.0),
    ("dcr_overlap/details/(?:dominance|family_b)/theta", 1, 1.0, 0.0),
    ("dcr_overlap/details/mean_difference", 1, None, 0.0),
    ("dcr_overlap/details/(?:ks|dominance/ks_above|family_b/ks_above)", 1, 1.0, _ROW),
    ("nndr/(?:value|details/synthetic->train/(?:mean|median|q..))", -1, 0.0, 0.0),
    ("nndr/details/(?:synthetic->train/share_below_half|difference/theta_.)", 1, 1.0, 0.0),
    (_MI, 1, 1.0, _ROW),
    ("exposure/value", 1, 60.0, 0.0),
    ("exposure/details/(?:auc_relative|stands_out/log_odds)", 1, None, _ROW),
    ("exposure/details/by_isolation/./auc", 1, 1.0, _GROUP),
    ("exposure/details/within/0.0000/train", 1, 60.0, 0.0),
    ("subgroups/details/by_isolation/./(?:share|auc)", 1, 1.0, _GROUP),
    ("privacy_score/(?:value|details/(?:raw/|matched/)?score)", -1, None, 0.0),
    ("privacy_score/details/raw/tspr_fraction", 1, 1.0, 0.0),
    (f"{NS}/(?:nnaa|mdcr|dcr_overfitting_protection)/value", -1, 0.0, 0.0),
    (f"{NS}/(?:identical_match_share(?:_exact)?|closer_share_half_ties|hitting_rate_gower_inner)/value", 1, 1.0, 0.0),
    (f"{NS}/(?:epsilon_identifiability|hitting_rate_gower_outer)/value", 1, 1.0, _ROW),
    ("accuracy/(?:value|details/(?:uni|bi|tri)variate/accuracy)", 1, 1.0, _ROW),
    ("correlation/value", -1, 0.0, 0.05),
)

_OTHER = {"train": "holdout", "n_closer": "n_further", "true_positives": "false_positives"}
_HELD = {"value": "expected"}  # the value towards holdout is what is expected
_BESIDE = {"value": "reference", "parts": "reference_parts"}
_OF_ONE_TABLE = f"{NS}/(?:nnaa|mdcr|epsilon_identifiability|hitting_rate_.*|identical_match_.*)/.*"


def swapped_key(key: str) -> str:
    """Where the other report holds the number, when train and holdout are swapped."""
    names = _OTHER
    if re.fullmatch("(?:clones|nndr|neighbour_scores)/[a-z]*", key):
        names = names | _HELD
    if re.fullmatch(_OF_ONE_TABLE, key):
        names = names | _BESIDE
    names = names | {b: a for a, b in names.items()}
    words = re.compile(r"(?<![a-z_])(?:" + "|".join(names) + r")(?![a-z_])|train|holdout")
    return words.sub(lambda found: names[found[0]], key)


SWAPPED = (
    free("(?:accuracy|correlation)/.*", "train says where buckets begin, and is what others are compared with"),
    free("privacy_score/.*", "train is compared with itself; the holdout has a part of its own, `control`"),
    free(".*/(?:auc_)?p_(?:value|adjusted|theta)|nndr/details/p|.*/p_values/.*|exposure/details/tests/.*", "one-sided"),
    free(".*/(?:verdict|effect(?:_interval|/.*)?|mde|strongest.*)|.*/best_attack/.*", "of tests that are one-sided"),
    free(".*holdout->train.*|.*holdout_train|.*holdout_to_train|.*/family_b.*|.*/theta_b.*", "no train->holdout"),
    free("dcr/(?:value|expected)", "synthetic->train beside holdout->train"),
    free("clones/details/copied_train_rows.*|dcr_share/details/excess_interval", "in parts of train"),
    free("dcr_share/details/(?:excess|share_strict)|subgroups/(?:value|interval|.*/excess.*)", "of what could leak"),
    free("dcr_overlap/details/dominance/(?:ks_above|quantile_ratios/.*)", "one-sided"),
    free(
        ".*tpr_at_fpr/.*|.*/advantage|.*/tops/.*/(?:train|expected)|.*risks?_clipped", "false alarms are held, not hits"
    ),
    free(f"exposure/(?:value|details/(?:list|stands_out)/.*)|{NS}/dcr_overfitting_protection/.*", "of train alone"),
    free(f"{NS}/(?:nnaa_privacy_loss|closer_share_half_ties|epsilon_identifiability_loss)/parts.*", "other keys"),
    mirrored("(?:dcr_share|membership_inference)/(?:value|expected|interval)", 0.5),
    mirrored("dcr_share/details/(?:share_.*|expected|fractional_interval)", 0.5),
    mirrored(".*/(?:auc|auc_interval|auc_relative|theta|theta_a|theta_interval|theta_a_interval)", 0.5),
    mirrored(f"subgroups/details/(?:.*/share|expected)|{NS}/closer_share_half_ties/.*", 0.5),
    becomes("membership_inference/details/precisions.*", lambda x: 1 - x),
    becomes("clones/details/excess|dcr_share/details/z|dcr_overlap/details/mean_difference", lambda x: -x),
    becomes(f"nndr/details/difference/family_a|{NS}/.*_loss/value", lambda x: -x),
    becomes("membership_inference/details/(?:risks|mean_risk)", lambda x: -x),
    mirrored("membership_inference/details/mean_risk_interval", 0.0),
    near("dcr_share/details/standard_error|dcr_overlap/details/wasserstein"),
)


def repeated(times: int) -> tuple[Any, ...]:
    """What becomes of numbers when every synthetic row is written so many times."""

    def many(x: float) -> float:
        return x * times

    of_s = "dcr/details/synthetic->(?:train|holdout)"
    return (
        free("accuracy/(?:expected|details/(?!reference_holdout).*/expected.*|details/expected_noise/.*)", "more rows"),
        free("correlation/(?:value|expected|details/(?!spearman).*)", "more rows: chance is taken to give less"),
        free("dcr/details/synthetic->synthetic/.*", "there are duplicates now"),
        free(f"{of_s}/(?:median|q..)|dcr/value|nndr/(?:value|expected)", "between two order statistics"),
        free("nndr/details/.*(?:q..|median|tenth_smallest|family_.)|.*/quantile_ratios/.*", "between two of them, too"),
        free(".*/(?:theta|theta_a|theta_b)_interval|nndr/details/.*/standard_error", "of rows, and not tested"),
        free("membership_inference/details/attacks/density/.*", "the fifth synthetic row is another one"),
        free(
            "membership_inference/(?:p_value|verdict|effect/.*|details/(?:best_attack/.*|effect_interval))",
            "density included",
        ),
        free(".*/p_adjusted", "density included"),
        free("privacy_score/details/(?!raw/|control/)[a-z_]*/.*", "rows are left out by their number"),
        free("privacy_score/(?:value|details/[a-z_]*)", "of `matched`, where the sizes differ"),
        free(f"{NS}/nnaa.*|neighbour_scores/(?:value|expected)", "there are duplicates now"),
        becomes(f"{of_s}/(?:n|n_zero|histogram/counts)|clones/details/n_synthetic_.*", many),
        becomes("dcr_share/details/n_(?:synthetic|closer|equal|further)", many),
        becomes("nndr/details/synthetic->.*/(?:n|n_nan)|subgroups/.*/synthetic_rows", many),
        becomes("privacy_score/details/raw/rows_compared", many),
        near(".*/(?:mean|std|mean_difference|wasserstein|ovl|ks|ks_above|share_.*|effect(?:_interval|/.*)?|value)"),
        near("dcr_share/.*|subgroups/.*"),
    )
