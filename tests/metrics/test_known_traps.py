"""Known traps of published definitions: each reproduced, and what daskpriv says where it leads astray.

Elsewhere: hubs, ranges per reference, ties that count as safe, zero divisors, rows left out by value, tables of equal
size (test_peers); a full copy of low risk (test_membership_inference); 0/0 (test_nndr); fidelity that hides copies and
scores that move with sizes (test_privacy_score); splits that are not random, holdouts that repeat train (test_gates);
several tests at once (test_judgement); categories beyond a byte, unseen categories (tests/laws).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import daskpriv
from daskpriv.metrics import Clones, Dcr, DcrOverlap, DcrShare, MembershipInference, NeighbourScores, Nndr

published = pytest.mark.published
Tables = dict[str, pd.DataFrame]


@cache
def golden(shared: Path, name: str) -> Any:
    return json.loads((shared / "golden" / f"{name}.json").read_text())


@cache
def head(shared: Path, dataset: str, table: str, n: int) -> pd.DataFrame:
    return pd.read_parquet(shared / dataset / f"{table}.parquet").head(n)


def heads(shared: Path, dataset: str, generator: str, train: int, holdout: int, synthetic: int) -> Tables:
    sizes = {"train": train, "holdout": holdout, f"syn_{generator}": synthetic}
    found = {t: head(shared, dataset, t, n) for t, n in sizes.items()}
    return {"train": found["train"], "holdout": found["holdout"], "synthetic": found[f"syn_{generator}"]}


def share_of(tables: Tables, **options: Any) -> Any:
    return daskpriv.evaluate(**tables, metrics=[DcrShare()], **options).metrics["dcr_share"]


def smooth(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return pd.DataFrame(rng.lognormal(size=(n, 4)), columns=list("abcd")).assign(e=rng.choice(list("xyz"), n))


def coarse(rng: np.random.Generator, n: int, columns: int = 5, values: int = 4) -> pd.DataFrame:
    """Few values in few columns: rows repeat by chance."""
    return pd.DataFrame({f"c{i}": rng.integers(0, values, n).astype(str) for i in range(columns)})


def three(rng: np.random.Generator, make: Any, train: int, holdout: int, synthetic: int) -> Tables:
    """Rows of one law: no leak."""
    return {"train": make(rng, train), "holdout": make(rng, holdout), "synthetic": make(rng, synthetic)}


def with_copies(tables: Tables, copies: int) -> Tables:
    rows = tables["synthetic"]
    return {**tables, "synthetic": pd.concat([tables["train"].head(copies), rows.iloc[copies:]], ignore_index=True)}


# ---------------------------------------------------------------------------------------------- ranges and buckets


@published
@pytest.mark.parametrize("generator", ["mostly", "synthpop"])
def test_ranges_per_pair_in_published_tables(shared: Path, generator: str) -> None:
    """SURE, its kit, gower and SDMetrics stretch bank-marketing's distances to the holdout: every share loses 5 %."""
    tables = heads(shared, "bank-marketing", generator, 10**6, 10**6, 4000)
    rows = golden(shared, "range_choice_effect")
    case = next(r for r in rows if (r["dataset"], r["gen"]) == ("bank-marketing", generator))
    pair = "per-pair union (SURE, Clearbox kit, gower)"
    fits = {
        "common(T,H,S)": lambda side: list(tables.values()),
        "train-only(clip1)": lambda side: [tables["train"]],
        pair: lambda side: [tables["synthetic"], tables[side]],
        "reference-only clip1 (SDMetrics)": lambda side: [tables[side]],
    }
    for name, fit in fits.items():
        train, holdout = (
            daskpriv.nearest_neighbours(tables["synthetic"], tables[side], fit=fit(side)).distance[:, 0]
            for side in ("train", "holdout")
        )
        assert 100 * np.mean(train < holdout) == pytest.approx(case[name][1], abs=0.001)
    ours = share_of(tables)
    assert 100 * ours.value == pytest.approx(case["common(T,H,S)"][0], abs=0.03)
    assert ours.verdict == ("BOUNDED" if generator == "mostly" else "LEAK")
    report = daskpriv.evaluate(**tables, preset="clearbox", metrics=["dcr_share"])
    peer = report.metrics["dcr_share"]
    assert peer.details["clearbox"]["percentage"] == pytest.approx(case[pair][1])
    assert peer.verdict == "NOT_INTERPRETABLE"
    assert any(w.startswith("preset clearbox: ranges are taken anew for every pair") for w in report.warnings)


@pytest.mark.parametrize(("far", "told"), [("holdout", 0.0), ("train", 1.0), ("synthetic", None)])
def test_one_far_value(far: str, told: float | None) -> None:
    """One row of 1e13: with ranges per pair it decides the share alone, wherever it stands, leak or none."""
    for copies in (0, 150):
        rng = np.random.default_rng(1)
        tables = {n: t.drop(columns="e") for n, t in with_copies(three(rng, smooth, 500, 500, 400), copies).items()}
        tables["synthetic"] = tables["synthetic"] + rng.normal(0, 0.002, (400, 4))
        before = share_of(tables)
        tables[far].loc[399] = 1e13
        ours = share_of(tables)
        assert abs(ours.value - before.value) < 0.03
        assert (ours.verdict == "LEAK") == (copies > 0)
        peer = daskpriv.evaluate(**tables, preset="clearbox", metrics=["dcr_share"])
        assert peer.metrics["dcr_share"].verdict == "NOT_INTERPRETABLE"
        assert any("one range for all searches" in w and f"{ours.value:.4f}" in w for w in peer.warnings)
        if told is not None:
            assert peer.metrics["dcr_share"].value == told


def test_single_precision() -> None:
    """Under a range that one synthetic row stretched, float32 takes near and far for equal; float64 does not."""
    rng = np.random.default_rng(3)
    tables = {n: t.assign(x=rng.random(300)) for n, t in three(rng, coarse, 300, 300, 300).items()}
    tables["synthetic"].loc[299, "x"] = 1e10
    real = [tables["train"], tables["holdout"]]
    for fit, tied in (([*real, tables["synthetic"]], 100), (real, 0)):
        to = [daskpriv.nearest_neighbours(tables["synthetic"], t, fit=fit).distance[:299, 0] for t in real]
        single = [d.astype(np.float32) for d in to]
        assert np.sum(to[0] == to[1]) == 0
        assert (np.sum(single[0] == single[1]) > tied) == (tied > 0)
    assert share_of(tables).details["n_equal"] <= 1


def test_buckets() -> None:
    """A copy that is off by a hair, and a row that is off by all the tail of a column, are the same to the paper."""
    rng = np.random.default_rng(2)
    tables = {n: t[["a"]] for n, t in three(rng, smooth, 600, 600, 300).items()}
    tables["train"].loc[0, "a"] = 1e6
    tables["synthetic"].loc[0, "a"] = 10.0 * tables["synthetic"]["a"].max()
    paper = daskpriv.evaluate(**tables, preset="mostly-paper")
    assert any("a near copy and a far row" in w for w in paper.warnings)
    assert paper.metrics["dcr"].details["synthetic->train"]["n_zero"] == 300
    ours = daskpriv.evaluate(**tables, metrics=[Dcr(), DcrShare()])
    assert ours.metrics["dcr"].details["synthetic->train"]["n_zero"] == 0
    assert ours.metrics["dcr_share"].details["n_equal"] == 0


# ---------------------------------------------------------------------------------------------- ties and sizes


@published
def test_ties_that_count_as_further_in_published_tables(shared: Path) -> None:
    """flip40, 60 % of the cells of training rows: 41 % of the rows are strictly closer, "less than half: safe"."""
    row = next(r for r in pd.read_csv(shared / "golden" / "privacy_c100.csv").itertuples() if r.synthesizer == "flip40")
    assert row.n_closer / row.n_syn == pytest.approx(0.413, abs=0.001)
    tables = heads(shared, "adult", "flip40", 10**6, 10**6, 4000)
    strict = daskpriv.evaluate(**tables, preset="mostly-paper", metrics=[DcrShare(ties="strict")])
    share = strict.metrics["dcr_share"]
    assert share.value == pytest.approx(row.n_closer / row.n_syn, abs=0.02)
    assert share.details["share_size"] == pytest.approx(row.share, abs=0.02)
    assert any(w.startswith("dcr_share: ties counted as 'strict'") for w in strict.warnings)
    assert share_of(tables).verdict == "LEAK"


def test_ties_that_go_by_size_or_by_index() -> None:
    """Coarse rows and four times as many training rows: no leak, and both rules see one; ours is right on average."""
    found = []
    for seed in range(12):
        tables = three(np.random.default_rng(seed), coarse, 400, 100, 200)
        paper = daskpriv.evaluate(**tables, preset="mostly-paper", metrics=["dcr_share"])
        details = paper.metrics["dcr_share"].details
        assert details["n_equal"] > 40
        assert any("biased when train and holdout differ" in w for w in paper.warnings)
        # "The first of equal rows", training rows stacked above holdout rows: every tie is train's.
        first = (details["n_closer"] + details["n_equal"]) / 200
        found.append([paper.metrics["dcr_share"].value, first, details["share_fractional"], details["share_balanced"]])
    bias = np.mean(found, axis=0) - [0.8, 0.8, 0.8, 0.5]
    error = np.std(found, axis=0) / len(found) ** 0.5
    assert (bias[:2] > 4 * error[:2]).all()
    assert bias[1] > 0.08
    assert (np.abs(bias[2:]) < 3 * error[2:]).all()


@published
def test_two_training_rows_to_one_holdout_row_in_published_tables(shared: Path) -> None:
    """The kit says 72.3 % of all rows and 55.9 % of thinned ones: two thirds are to be expected, or a half."""
    tables = heads(shared, "adult", "synthpop", 6000, 3000, 3000)
    calls = golden(shared, "clearbox_kit")["cases"]["adult/synthpop"]["calls"]
    whole, thinned = (next(v for k, v in calls.items() if f"test_sampling={x}" in k) for x in (False, True))
    found = daskpriv.evaluate(**tables, preset="clearbox", metrics=["dcr_share"])
    share = found.metrics["dcr_share"]
    assert share.details["clearbox"]["percentage"] == whole["synth_holdout_test"]
    assert share.expected == 2 / 3
    assert any("0.6667 is expected without a leak" in w for w in found.warnings)
    # One thinning of many, against the mean of all of them.
    assert share.details["share_balanced"] == pytest.approx(thinned["synth_holdout_test"] / 100, abs=0.02)
    ours = share_of(tables)
    assert 0 < ours.details["excess"] < 0.15
    assert ours.verdict == "INCONCLUSIVE"


def test_thinned_tables() -> None:
    """Samples of all tables keep one copy in a hundred; samples of the synthetic rows alone keep one in ten."""
    rng = np.random.default_rng(4)
    tables = with_copies(three(rng, smooth, 3000, 3000, 3000), 60)
    tables = {n: t.sample(frac=1, random_state=i, ignore_index=True) for i, (n, t) in enumerate(tables.items())}
    few = {n: t.head(300) for n, t in tables.items()}
    thin, some, whole = (
        daskpriv.evaluate(**t, metrics=[Clones()]).metrics["clones"]
        for t in (few, {**tables, "synthetic": few["synthetic"]}, tables)
    )
    assert thin.details["n_synthetic_train"] <= 2
    assert thin.verdict != "LEAK"
    assert some.details["n_synthetic_train"] >= 3
    assert (whole.details["n_synthetic_train"], whole.verdict) == (60, "LEAK")


def test_counting_synthetic_rows() -> None:
    """Each synthetic row twenty times: no more is known, a binomial test is ever surer, ours are not."""
    rng = np.random.default_rng(5)
    tables = three(rng, smooth, 200, 200, 100)
    often = {**tables, "synthetic": pd.concat([tables["synthetic"]] * 20, ignore_index=True)}
    once, many = (daskpriv.evaluate(**t, metrics="all") for t in (tables, often))
    for name in ("clones", "dcr_share", "dcr_overlap", "nndr", "exposure"):
        assert many.metrics[name].p_value == once.metrics[name].p_value, name
        assert many.metrics[name].verdict != "LEAK"
    z = [(m.metrics["dcr_share"].value - 0.5) / (0.25 / n) ** 0.5 for m, n in ((once, 100), (many, 2000))]
    assert z[1] == pytest.approx(20**0.5 * z[0])
    assert many.metrics["dcr_share"].details["z"] == pytest.approx(once.metrics["dcr_share"].details["z"])


# ---------------------------------------------------------------------------------------------- matches and distances


def test_chance_matches() -> None:
    """Coarse rows equal training rows by chance; without a holdout beside it the share of matches looks like a leak."""
    found = daskpriv.evaluate(
        **three(np.random.default_rng(6), coarse, 400, 400, 400), metrics=[Clones(), NeighbourScores()]
    )
    matches = found.metrics["neighbour_scores"].details["identical_match_share"]
    assert matches["value"] > 0.25
    assert matches["reference"] == pytest.approx(matches["value"], abs=0.08)
    clones = found.metrics["clones"]
    assert clones.p_value > 0.05
    assert clones.verdict != "LEAK"


def test_missing_cells_that_are_far_from_missing_cells() -> None:
    """Anonymeter puts two missing numbers at distance 1: verbatim copies of rows with gaps are no copies."""
    rng = np.random.default_rng(7)
    tables = three(rng, smooth, 300, 300, 300)
    for table in tables.values():
        table.loc[rng.random(300) < 0.9, "a"] = np.nan
    tables = with_copies(tables, 100)
    gaps = int(tables["train"]["a"].head(100).isna().sum())
    peer, ours = (
        daskpriv.evaluate(**tables, metrics=[Clones()], missing=m).metrics["clones"] for m in ("anonymeter", None)
    )
    assert peer.details["n_synthetic_train"] == 100 - gaps
    assert (ours.details["n_synthetic_train"], ours.verdict) == (100, "LEAK")


def test_distances_to_train_against_those_of_the_holdout() -> None:
    """Rows from where the data are dense are closer to train than the holdout is, and rows off the data hide copies."""
    rng = np.random.default_rng(8)
    train, holdout, fresh = (pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc")) for _ in range(3))
    dense = fresh * 0.3
    far = pd.concat([train.head(40), fresh.iloc[40:] + 1.5], ignore_index=True)
    quantiles, found = [], []
    for synthetic in (dense, far):
        report = daskpriv.evaluate(
            train=train, holdout=holdout, synthetic=synthetic, metrics=[Dcr(), DcrOverlap(), Clones()]
        )
        dcr = report.metrics["dcr"].details
        quantiles.append([dcr[f"{q}->train"]["median"] for q in ("synthetic", "holdout")])
        found.append(report)
    assert quantiles[0][0] < 0.8 * quantiles[0][1]  # "closer than the holdout: a leak"
    assert quantiles[1][0] > 1.2 * quantiles[1][1]  # "further than the holdout: safe"
    family_b = found[0].metrics["dcr_overlap"].details["family_b"]
    assert family_b["theta"] > 0.6
    assert "not judged" in family_b["note"]
    assert found[0].metrics["dcr_overlap"].verdict != "LEAK"
    assert found[0].verdict != "LEAK"
    assert found[1].verdict == "LEAK"


def test_the_tenth_smallest_ratio() -> None:
    """mostlyai-qa's statistic of the NNDR shrinks as tables grow; a quantile does not, and the report says so."""
    rng = np.random.default_rng(9)
    tenth, twentieth = [], []
    for n in (200, 3200):
        found = daskpriv.evaluate(**three(rng, smooth, n, n, n), metrics=[Nndr()]).metrics["nndr"].details
        tenth.append(found["synthetic->train"]["tenth_smallest"])
        twentieth.append(found["synthetic->train"]["q05"])
    assert tenth[1] < 0.5 * tenth[0]
    assert twentieth[1] > 0.8 * twentieth[0]
    assert "not comparable" in found["synthetic->train"]["tenth_smallest_note"]


def test_the_largest_of_many_column_groups() -> None:
    """mostlyai-qa keeps the share of the worst of seven groups of columns: above a half without any leak."""
    share, shares = DcrShare(inference=False), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        tables = three(rng, smooth, 100, 100, 100)
        groups = [list("abcde"), *(rng.choice(list("abcd"), 2, replace=False).tolist() for _ in range(6))]
        found = [daskpriv.evaluate(**tables, columns=g, metrics=[share]).metrics["dcr_share"].value for g in groups]
        shares.append((found[0], max(found)))
    ours, largest = np.mean(shares, axis=0) - 0.5
    error = np.std(shares, axis=0) / len(shares) ** 0.5
    assert largest > 4 * error[1]
    assert abs(ours) < 3 * error[0]


# ---------------------------------------------------------------------------------------------- membership inference


def attacked(tables: Tables, **options: Any) -> Any:
    return daskpriv.evaluate(**tables, metrics=[MembershipInference(clearbox=True)], **options)


def published_risk(report: daskpriv.Report) -> float:
    found = report.metrics["membership_inference"].details["clearbox"]["membership_inference_mean_risk_score"]
    assert f"the published risk (clearbox) is {found:.4f}; it saturates" in " ".join(report.warnings)
    return float(found)


@published
def test_a_risk_that_calls_copies_harmless_in_published_tables(shared: Path) -> None:
    """A sixth of these synthetic rows are verbatim training rows; the kit's risk is 0.04, "very low" is below 0.2."""
    tables = heads(shared, "sure-census", "clearbox", 6000, 3000, 3000)
    calls = golden(shared, "clearbox_kit")["cases"]["sure-census/clearbox"]["calls"]
    expected = next(v for k, v in calls.items() if k.startswith("adversary"))["membership_inference_mean_risk_score"]
    peer = daskpriv.evaluate(**tables, preset="clearbox", metrics=["membership_inference"])
    assert published_risk(peer) == pytest.approx(expected) == pytest.approx(0.043, abs=0.001)
    ours = daskpriv.evaluate(**tables)
    assert ours.metrics["clones"].details["n_synthetic_train"] == 480
    assert (ours.verdict, ours.metrics["clones"].verdict) == ("LEAK", "LEAK")


def test_a_risk_that_falls_as_the_leak_grows() -> None:
    rng = np.random.default_rng(10)
    tables = three(rng, smooth, 400, 400, 400)
    reports = [attacked(with_copies(tables, n)) for n in (60, 140, 240, 400)]
    risks = [published_risk(r) for r in reports]
    assert risks[2] < risks[1]
    for key in ("auc", "mean_risk"):
        values = [r.metrics["membership_inference"].details[key] for r in reports]
        assert values == sorted(values), key
    assert [r.verdict for r in reports[1:]] == ["LEAK"] * 3


def test_a_risk_without_a_leak() -> None:
    """Precisions are floored at a half, so that chance alone makes a risk."""
    found = []
    for seed in range(30):
        report = attacked(three(np.random.default_rng(seed), smooth, 100, 100, 100))
        found.append((published_risk(report), report.metrics["membership_inference"].details["mean_risk"]))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / len(found) ** 0.5
    assert mean[0] > 3 * error[0]
    assert abs(mean[1]) < 3 * error[1]


def test_a_reference_of_strangers_alone() -> None:
    """A density of the holdout that counts each holdout row as its own neighbour: a perfect attack on nothing."""
    rng = np.random.default_rng(11)
    tables = three(rng, smooth, 200, 200, 200)
    d = {
        (q, r): daskpriv.nearest_neighbours(tables[q], tables[r], fit=[tables["train"], tables["holdout"]]).distance[
            :, 0
        ]
        for q in ("train", "holdout")
        for r in ("synthetic", "holdout")
    }
    assert (d["holdout", "holdout"] == 0).all()
    ratios = [np.divide(d[q, "synthetic"], d[q, "holdout"] + 1e-12) for q in ("train", "holdout")]
    assert ratios[0].max() < np.median(ratios[1])
    ours = daskpriv.evaluate(**tables, metrics=["membership_inference", "exposure"])
    for attack in ours.metrics["membership_inference"].details["attacks"].values():
        assert abs(attack["auc"] - 0.5) < 0.1
    assert abs(ours.metrics["exposure"].details["auc_relative"] - 0.5) < 0.1
    assert ours.verdict != "LEAK"
