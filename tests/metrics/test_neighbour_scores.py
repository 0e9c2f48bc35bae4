"""Nearest-neighbour scores of other tools against a plain reference, their laws, layouts and degenerate tables."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import daskpriv
from daskpriv.evidence import Evidence, Facts, NeighbourTable
from daskpriv.metrics import _peer_scores
from daskpriv.metrics.neighbour_scores import SCORES, NeighbourScores
from daskpriv.protocol import Result

NUMBERS, CATEGORIES = ("a", "b"), ("c", "d", "e")
Tables = dict[str, pd.DataFrame]
Distances = dict[tuple[str, str], NDArray[np.float64]]


def table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """A small mixed table with ties, duplicates and missing cells."""
    columns: dict[str, Any] = {k: rng.integers(0, 9, n).astype(float) for k in NUMBERS}
    columns |= {k: rng.choice(["x", "y", None], n, p=[0.5, 0.4, 0.1]) for k in CATEGORIES}
    frame = pd.DataFrame(columns)
    frame.loc[rng.random(n) < 0.1, "b"] = np.nan
    return frame


def tables(seed: int, n_train: int = 60, n_holdout: int = 45, n_synthetic: int = 50, copies: int = 12) -> Tables:
    """Train, holdout, and synthetic rows some of which are training rows."""
    rng = np.random.default_rng(seed)
    train, holdout = table(rng, n_train), table(rng, n_holdout)
    copied = train.iloc[rng.integers(0, n_train, copies)]
    synthetic = pd.concat([copied, table(rng, n_synthetic - copies)], ignore_index=True)
    return {"train": train, "holdout": holdout, "synthetic": synthetic}


def gower(x: pd.DataFrame, y: pd.DataFrame, width: dict[str, float]) -> NDArray[np.float64]:
    """All distances by the definition: left to right, divided once; missing equals missing."""
    total = np.zeros((len(x), len(y)))
    for name in x.columns:
        u, v = x[name].to_numpy()[:, None], y[name].to_numpy()[None, :]
        gone_u, gone_v = pd.isna(u), pd.isna(v)
        with np.errstate(invalid="ignore"):
            if name in NUMBERS:
                apart = np.abs(u - v)
                d = np.minimum(apart / width[name], 1.0) if width[name] else (apart > 0).astype(float)
            else:
                d = (u != v).astype(float)
        total += np.where(gone_u | gone_v, (gone_u != gone_v).astype(float), d)
    return total / len(x.columns)


def nearest(given_tables: Tables, ranges: tuple[str, ...] = ("train", "holdout")) -> Distances:
    """The smallest distance of each row, by (query, reference); a row is left out of its own table by position."""
    pooled = pd.concat([given_tables[t] for t in ranges if t in given_tables])
    width = {k: float(pooled[k].max() - pooled[k].min()) for k in NUMBERS}
    out = {}
    for q, x in given_tables.items():
        for r, y in given_tables.items():
            d = gower(x, y, width)
            if q == r:
                np.fill_diagonal(d, np.inf)
            out[q, r] = d.min(axis=1)
    return out


def expected(d: Distances, real: str, p: int) -> dict[str, float]:
    """The scores about one real table, from the formulas alone."""
    rs, rr, sr, ss = (d[k] for k in ((real, "synthetic"), (real, real), ("synthetic", real), ("synthetic",) * 2))
    return {
        "nnaa": 0.5 * (np.mean(rs > rr) + np.mean(sr > ss)),
        "mdcr": np.median(sr) / np.median(rr),
        "epsilon_identifiability": np.mean(rs < rr),
        "hitting_rate_gower_inner": np.mean(rs <= 1 / (30 * p)),
        "hitting_rate_gower_outer": np.mean(rs <= 1 / 30),
        "identical_match_share": np.mean(sr <= 1e-6),
        "identical_match_share_exact": np.mean(sr == 0),
    }


def contrasts(d: Distances, n_train: int, n_holdout: int, p: int) -> dict[str, tuple[float, float]]:
    """Value and reference of the scores that compare train with holdout."""
    train, holdout = expected(d, "train", p), expected(d, "holdout", p)
    st, sh = d["synthetic", "train"], d["synthetic", "holdout"]
    pi = n_train / (n_train + n_holdout)
    epsilon = "epsilon_identifiability"
    return {
        "nnaa_privacy_loss": (holdout["nnaa"] - train["nnaa"], 0.0),
        "epsilon_identifiability_loss": (train[epsilon] - holdout[epsilon], 0.0),
        "dcr_overfitting_protection": (min(2 * (1 - np.mean(st < sh)), 1), min(2 * (1 - pi), 1)),
        "closer_share_half_ties": (np.mean(st < sh) + np.mean(st == sh) / 2, pi),
    }


def measured(given_tables: Tables, **options: Any) -> Result:
    metrics = options.pop("metrics", [NeighbourScores()])
    return daskpriv.evaluate(**given_tables, metrics=metrics, **options).metrics["neighbour_scores"]


@pytest.mark.parametrize("seed", range(6))
def test_against_the_formulas(seed: int) -> None:
    given_tables = tables(seed)
    d, found = nearest(given_tables), measured(given_tables)
    assert tuple(found.details) == SCORES
    holdout = expected(d, "holdout", 5)
    for name, value in expected(d, "train", 5).items():
        assert found.details[name]["value"] == pytest.approx(value, abs=1e-15), name
        assert found.details[name]["reference"] == pytest.approx(holdout[name], abs=1e-15), name
    for name, (value, reference) in contrasts(d, 60, 45, 5).items():
        assert found.details[name]["value"] == pytest.approx(value, abs=1e-15), name
        assert found.details[name]["reference"] == pytest.approx(reference, abs=1e-15), name
    assert (found.value, found.expected) == (found.details["nnaa"]["value"], found.details["nnaa"]["reference"])
    assert found.verdict == "NOT_EVALUATED"
    assert found.p_value is None
    tied = np.mean(d["train", "synthetic"] == d["train", "train"])
    assert found.details["nnaa"]["parts"]["real_tied"] == pytest.approx(tied)
    assert found.details["epsilon_identifiability"]["parts"]["tied"] == pytest.approx(tied)
    in_train = np.mean(d["holdout", "train"] == 0)
    assert found.details["identical_match_share_exact"]["parts"]["holdout_to_train"] == pytest.approx(in_train)


@pytest.mark.parametrize(("sign", "slip"), [(">", np.greater_equal), ("<", np.less_equal), ("<=", np.less)])
def test_a_wrong_comparison_is_seen(monkeypatch: pytest.MonkeyPatch, sign: str, slip: Any) -> None:
    monkeypatch.setitem(_peer_scores._SIGNS, sign, slip)
    with pytest.raises(AssertionError):
        test_against_the_formulas(0)


@pytest.mark.parametrize("slip", ["median", "half", "sides"])
def test_a_wrong_formula_is_seen(monkeypatch: pytest.MonkeyPatch, slip: str) -> None:
    if slip == "median":
        monkeypatch.setattr(_peer_scores, "_ratio", lambda a, b: b / a)
    elif slip == "half":
        monkeypatch.setattr(_peer_scores, "_pi", lambda facts: 0.5)
    else:
        monkeypatch.setitem(_peer_scores.OF_ONE_TABLE, "nnaa", lambda facts, real: _peer_scores.nnaa(facts, "train"))
    with pytest.raises(AssertionError):
        test_against_the_formulas(0)


def box_hits(real: pd.DataFrame, synthetic: pd.DataFrame) -> float:
    """The hitting rate of syntheval: categories equal, numbers within 1/30 of the range in train."""
    hits = np.ones((len(real), len(synthetic)), bool)
    for name in real.columns:
        u, v = real[name].to_numpy()[:, None], synthetic[name].to_numpy()[None, :]
        hits &= np.abs(u - v) <= np.ptp(real[name]) / 30 if name in NUMBERS else u == v
    return float(hits.any(axis=1).mean())


@settings(max_examples=12, derandomize=True)
@given(seed=st.integers(0, 10**6), n_train=st.integers(2, 40), n_holdout=st.integers(1, 40))
def test_laws(seed: int, n_train: int, n_holdout: int) -> None:
    rng = np.random.default_rng(seed)
    given_tables = tables(seed, n_train, max(n_holdout, 2), 30, int(rng.integers(0, 20)))
    found = measured(given_tables).details
    swapped = {**given_tables, "train": given_tables["holdout"], "holdout": given_tables["train"]}
    turned = measured(swapped).details
    for name in ("nnaa_privacy_loss", "epsilon_identifiability_loss"):
        assert found[name]["value"] == pytest.approx(-turned[name]["value"])
    half = "closer_share_half_ties"
    assert found[half]["value"] + turned[half]["value"] == pytest.approx(1)
    assert found["nnaa"]["value"] == turned["nnaa"]["reference"]
    assert found["identical_match_share_exact"]["value"] <= found["identical_match_share"]["value"]
    for name, entry in found.items():
        if name not in ("mdcr", "nnaa_privacy_loss", "epsilon_identifiability_loss"):
            assert 0 <= entry["value"] <= 1


@pytest.mark.parametrize("seed", range(4))
def test_the_hitting_rate_lies_between_its_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_tables = {}
    for name, n in (("train", 80), ("holdout", 80), ("synthetic", 80)):
        given_tables[name] = pd.DataFrame(
            {"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["x", "y"], n)}
        )
    some = given_tables["train"].head(30).copy()
    some[["a", "b"]] += rng.normal(0, 0.08, (30, 2))
    given_tables["synthetic"] = pd.concat([some, given_tables["synthetic"]], ignore_index=True)
    found = measured(given_tables, range_from="train").details
    low, high = (found[f"hitting_rate_gower_{side}"]["value"] for side in ("inner", "outer"))
    assert 0 < low <= box_hits(given_tables["train"], given_tables["synthetic"]) <= high < 1


@pytest.mark.parametrize("block_rows", [7, 23])
def test_no_layout_changes_a_bit(block_rows: int) -> None:
    given_tables = tables(3)
    whole, cut = (
        daskpriv.evaluate(**given_tables, metrics=[NeighbourScores()], block_rows=b).to_dict()["metrics"]
        for b in (None, block_rows)
    )
    assert cut == whole


def test_without_a_holdout() -> None:
    given_tables = tables(1)
    del given_tables["holdout"]
    d, found = nearest(given_tables), measured(given_tables)
    for name, value in expected(d, "train", 5).items():
        assert found.details[name]["value"] == pytest.approx(value, abs=1e-15), name
        assert found.details[name]["reference"] is None
    for name in contrasts(nearest(tables(1)), 60, 45, 5):
        assert found.details[name]["value"] is None
        assert "holdout" in found.details[name]["note"]
    assert "without a holdout" in found.reading
    only = measured(given_tables, metrics=[NeighbourScores(("nnaa_privacy_loss",))])
    assert only.value is None
    assert "not evaluated" in only.reading


def test_only_the_searches_of_the_scores_named_are_asked_for() -> None:
    facts = Facts({"train": 10, "holdout": 10, "synthetic": 10}, 3)
    wanted = NeighbourScores(("dcr_overfitting_protection",)).needs(facts)
    assert [w.direction for w in wanted] == ["synthetic->train", "synthetic->holdout"]
    assert len(NeighbourScores().needs(facts)) == 8
    assert NeighbourScores(("closer_share_half_ties",)).needs(Facts({"train": 10, "synthetic": 10}, 3)) == []
    for wrong in ((), ("nope",)):
        with pytest.raises(ValueError, match="scores"):
            NeighbourScores(wrong)


def one(n: int, value: float = 0.0, **more: float) -> pd.DataFrame:
    return pd.DataFrame({"x": [value] * n, **{k: [v] * n for k, v in more.items()}})


@pytest.mark.parametrize(
    ("train", "holdout", "synthetic"),
    [
        (one(2), one(1), one(1)),
        (one(4), one(4), one(4, 1.0)),
        (one(2), one(1), one(100)),
        (pd.DataFrame({"x": [0.0, 1.0]}), one(1), one(100, 0.5)),
        (pd.DataFrame({"x": range(9)}), pd.DataFrame({"x": range(9)}), pd.DataFrame({"x": range(9)})),
    ],
)
@pytest.mark.parametrize("with_holdout", [True, False])
def test_degenerate_tables(train: Any, holdout: Any, synthetic: Any, with_holdout: bool) -> None:
    given_tables = {"train": train, "synthetic": synthetic} | ({"holdout": holdout} if with_holdout else {})
    report = daskpriv.evaluate(**given_tables, metrics=[NeighbourScores()])
    found = report.metrics["neighbour_scores"]
    for name, entry in found.details.items():
        if name not in ("mdcr", "nnaa_privacy_loss", "epsilon_identifiability_loss") and entry["value"] is not None:
            assert 0 <= entry["value"] <= 1, name
    json.loads(report.to_json())


def test_copies_of_everything() -> None:
    train = pd.DataFrame({"x": np.arange(20.0) ** 2})
    found = measured({"train": train, "holdout": train + 0.3, "synthetic": train}).details
    assert found["nnaa"]["value"] == 0
    assert found["mdcr"]["value"] == 0
    assert found["epsilon_identifiability"]["value"] == 1
    assert found["dcr_overfitting_protection"]["value"] == 0
    assert found["closer_share_half_ties"]["value"] == 1
    same = measured({"train": one(5), "holdout": one(5), "synthetic": one(5)}).details
    assert same["mdcr"]["value"] == 1  # 0 / 0
    assert same["closer_share_half_ties"]["value"] == 0.5
    assert same["nnaa"]["parts"]["real_tied"] == 1


def test_rows_without_any_neighbour() -> None:
    """A number that is missing on one side only leaves no neighbour in this mode: infinitely far, not an error."""
    train = pd.DataFrame({"x": [1.0, 2.0, 3.0]})
    synthetic = pd.DataFrame({"x": [1.0, np.nan, np.nan, np.nan]})
    found = measured({"train": train, "synthetic": synthetic}, missing="anonymeter")
    assert found.details["mdcr"]["parts"]["between"] == float("inf")
    assert found.details["identical_match_share"]["value"] == 0.25


def test_partials_do_not_grow_with_the_rows() -> None:
    rng = np.random.default_rng(0)
    sizes = []
    for n in (50, 5000):
        facts = Facts({"train": n, "holdout": n, "synthetic": n}, 5)
        metric = NeighbourScores()
        lists = {}
        for s in metric.needs(facts):
            d = rng.random((n, 1))
            ids = np.arange(n)
            lists[s.query, s.reference] = NeighbourTable(ids, d, ids[:, None], np.ones(n, np.int64))
        partial = metric.chunk(metric.begin(facts), Evidence("synthetic", lists))
        sizes.append(len(pickle.dumps(partial)))
    assert sizes[1] < sizes[0] + 200
