"""Numbers that other tools printed, reproduced where our definitions can express them; their known traps, avoided."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import daskpriv
from daskpriv.metrics import METRICS, Dcr, DcrShare
from daskpriv.metrics.neighbour_scores import NeighbourScores
from daskpriv.presets import preset
from daskpriv.stats.intervals import normal_quantile

pytestmark = pytest.mark.published
ADULT = [("adult", "synthpop"), ("adult", "mostly")]
SYNTHEVAL = [*ADULT, ("bank-marketing", "mostly")]


@cache
def golden(shared: Path, name: str) -> dict[str, Any]:
    return json.loads((shared / "golden" / f"{name}.json").read_text())["cases"]


def array(shared: Path, name: str) -> NDArray[np.floating]:
    return np.load(shared / "golden" / "arrays" / f"{name}.npy")


@cache
def head(shared: Path, dataset: str, table: str, n: int) -> pd.DataFrame:
    return pd.read_parquet(shared / dataset / f"{table}.parquet").head(n)


def matrix(query: Any, reference: Any, **options: Any) -> NDArray[np.float64]:
    """All distances, float64 (n, m), from the lists of neighbours."""
    m = len(reference)
    nn = daskpriv.nearest_neighbours(query, reference, k=m, **options)
    out = np.empty((len(query), m))
    np.put_along_axis(out, np.asarray(nn.row), np.asarray(nn.distance), axis=1)
    return out


# ---------------------------------------------------------------------------------------------- SDMetrics 0.32


@cache
def sdmetrics_heads(shared: Path, dataset: str, generator: str) -> dict[str, pd.DataFrame]:
    return {
        "train": head(shared, dataset, "train", 2000),
        "holdout": head(shared, dataset, "holdout", 2000),
        "synthetic": head(shared, dataset, f"syn_{generator}", 1000),
    }


def sdmetrics_report(tables: dict[str, Any]) -> daskpriv.Report:
    """The preset, with its metrics as objects so that this holds whoever registers them."""
    options = preset("sdmetrics").options
    metrics = [NeighbourScores(**options["neighbour_scores"]), Dcr(**options["dcr"]), DcrShare(**options["dcr_share"])]
    return daskpriv.evaluate(**tables, preset="sdmetrics", metrics=metrics)


@pytest.mark.parametrize(("dataset", "generator"), ADULT)
def test_sdmetrics_distances_row_by_row(shared: Path, dataset: str, generator: str) -> None:
    tables = sdmetrics_heads(shared, dataset, generator)
    for side in ("train", "holdout"):
        found = daskpriv.nearest_neighbours(tables["synthetic"], tables[side], k=1).distance[:, 0]
        expected = array(shared, f"sdmetrics__{dataset}__{generator}__syn_{side}")
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dataset", "generator"), ADULT)
def test_sdmetrics_overfitting_protection(shared: Path, dataset: str, generator: str) -> None:
    calls = golden(shared, "sdmetrics")[f"{dataset}/{generator}"]["calls"]
    report = sdmetrics_report(sdmetrics_heads(shared, dataset, generator))
    dcr, share = report.metrics["dcr"].details, report.metrics["dcr_share"]
    for side in ("train", "holdout"):
        expected = calls[f"calculate_dcr(syn, {side}, metadata)"]
        for ours, theirs in (("mean", "mean"), ("median", "median"), ("q05", "p5")):
            assert dcr[f"synthetic->{side}"][ours] == pytest.approx(expected[theirs], abs=1e-9)
        assert dcr[f"synthetic->{side}"]["n_zero"] == expected["zeros"]
    expected = next(v for k, v in calls.items() if k.startswith("DCROverfittingProtection"))
    score = report.metrics["neighbour_scores"].details["dcr_overfitting_protection"]
    assert score["value"] == report.metrics["neighbour_scores"].value == pytest.approx(expected["score"], abs=1e-12)
    assert score["parts"]["closer_to_training"] == expected["synthetic_data_percentages"]["closer_to_training"]
    assert share.value == expected["synthetic_data_percentages"]["closer_to_training"]


@pytest.mark.parametrize(("dataset", "generator"), ADULT)
def test_trap_of_ranges_per_reference_in_published_tables(shared: Path, dataset: str, generator: str) -> None:
    """The numbers above look like a leak; on one range for both references the same rows do not."""
    share = daskpriv.evaluate(**sdmetrics_heads(shared, dataset, generator), metrics=[DcrShare()]).metrics["dcr_share"]
    assert abs(share.value - 0.5) < 0.04
    assert share.verdict != "LEAK"


def random_rows(train: pd.DataFrame, n: int) -> pd.DataFrame:
    """What SDMetrics draws with `_seed = 42`: integers in the range of each column, categories all alike likely."""
    rng = np.random.default_rng(42)
    columns = {}
    for name, cells in train.items():
        if pd.api.types.is_integer_dtype(cells):
            columns[name] = rng.integers(cells.min(), cells.max() + 1, size=n)
        else:
            columns[name] = rng.choice(cells.astype(object).unique(), size=n)
    return pd.DataFrame(columns)


@pytest.mark.parametrize(("dataset", "generator"), ADULT)
def test_sdmetrics_baseline_protection_from_a_table_of_random_rows(shared: Path, dataset: str, generator: str) -> None:
    calls = golden(shared, "sdmetrics")[f"{dataset}/{generator}"]["calls"]
    expected = next(v for k, v in calls.items() if k.startswith("DCRBaselineProtection"))
    tables = sdmetrics_heads(shared, dataset, generator)
    rows = {"synthetic_data": tables["synthetic"], "random_data_baseline": random_rows(tables["train"], 1000)}
    medians = {}
    for name, query in rows.items():
        medians[name] = float(np.median(daskpriv.nearest_neighbours(query, tables["train"], k=1).distance))
        assert medians[name] == pytest.approx(expected["median_DCR_to_real_data"][name], abs=1e-9)
    score = min(medians["synthetic_data"] / medians["random_data_baseline"], 1.0)
    assert score == pytest.approx(expected["score"], abs=1e-9)


def heavy(rng: np.random.Generator, n: int, **extra: Any) -> pd.DataFrame:
    """Rows of one law: numbers with a tail, and a few categories."""
    numbers = {name: rng.lognormal(0, 1, n) for name in ("a", "b", "c")}
    return pd.DataFrame({**numbers, "group": rng.choice(list("uvw"), n), **extra})


def test_trap_of_ranges_per_reference() -> None:
    rng = np.random.default_rng(1)
    tables = {"train": heavy(rng, 600), "holdout": heavy(rng, 600), "synthetic": heavy(rng, 500)}
    # One holdout row with an outlier in every number: all distances to the holdout shrink in SDMetrics.
    tables["holdout"].loc[0, ["a", "b", "c"]] = 1000.0
    peer = sdmetrics_report(tables)
    assert peer.metrics["dcr_share"].value < 0.2
    assert peer.metrics["neighbour_scores"].value == 1.0
    ours = daskpriv.evaluate(**tables, metrics=[DcrShare()]).metrics["dcr_share"]
    assert abs(ours.value - 0.5) < 0.07
    assert ours.verdict != "LEAK"
    # The other way round the peer sees a leak where none is.
    turned = {"train": tables["holdout"], "holdout": tables["train"], "synthetic": tables["synthetic"]}
    assert sdmetrics_report(turned).metrics["neighbour_scores"].value < 0.4
    assert daskpriv.evaluate(**turned, metrics=[DcrShare()]).metrics["dcr_share"].verdict != "LEAK"


def test_trap_of_unequal_sizes() -> None:
    rng = np.random.default_rng(2)
    tables = {"train": heavy(rng, 1200), "holdout": heavy(rng, 600), "synthetic": heavy(rng, 600)}
    found = daskpriv.evaluate(**tables, metrics=[DcrShare(), NeighbourScores()])
    score = found.metrics["neighbour_scores"].details["dcr_overfitting_protection"]
    assert score["value"] == pytest.approx(2 / 3, abs=0.09)  # of rows that are as good as fresh real ones
    assert score["reference"] == pytest.approx(2 / 3)
    assert found.metrics["neighbour_scores"].details["closer_share_half_ties"]["reference"] == pytest.approx(2 / 3)
    share = found.metrics["dcr_share"]
    assert share.expected == pytest.approx(2 / 3)
    assert share.verdict != "LEAK"
    assert share.details["share_balanced"] == pytest.approx(0.5, abs=0.07)


def test_trap_of_ties_that_count_as_safe() -> None:
    rng = np.random.default_rng(3)

    def rows(n: int) -> pd.DataFrame:
        return pd.DataFrame({f"c{i}": rng.integers(0, 4, n).astype(str) for i in range(5)})

    train, holdout = rows(400), rows(400)
    copied = train.iloc[rng.choice(400, 120, replace=False)]
    synthetic = pd.concat([copied, rows(280)], ignore_index=True)
    found = sdmetrics_report({"train": train, "holdout": holdout, "synthetic": synthetic})
    assert found.metrics["neighbour_scores"].value == 1.0
    share = found.metrics["dcr_share"]
    assert share.value < 0.5 < share.details["share_fractional"]
    assert share.p_value < 0.05
    assert any("without bias (fractional)" in w for w in found.warnings)


def test_trap_of_hubs() -> None:
    """A generator that emits one dense spot: a binomial test sees a leak, the permutation of labels does not."""
    rng = np.random.default_rng(4)
    real = pd.DataFrame({"x": rng.normal(size=800), "y": rng.normal(size=800)})
    order = rng.permutation(800)
    spot = real.iloc[order[0]] + 0.001
    synthetic = pd.DataFrame({"x": [spot["x"]] * 300, "y": [spot["y"]] * 300}) + rng.normal(0, 1e-4, (300, 2))
    rest = pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300)})
    synthetic = pd.concat([synthetic, rest], ignore_index=True)
    tables = {"train": real.iloc[order[:400]], "holdout": real.iloc[order[400:]], "synthetic": synthetic}
    share = daskpriv.evaluate(**tables, metrics=[DcrShare()]).metrics["dcr_share"]
    naive = (share.details["n_closer"] - 300) / (600 / 4) ** 0.5
    assert naive > 5
    assert abs(share.details["z"]) < 2
    assert share.verdict != "LEAK"


def test_trap_of_hubs_in_published_tables(shared: Path) -> None:
    """TVAE on bank-marketing, measured against two random halves of the training rows."""
    rows = head(shared, "bank-marketing", "train", 10**6)
    synthetic = head(shared, "bank-marketing", "syn_tvae", 6000)
    tables = {"train": rows.head(6000), "holdout": rows.tail(6000), "synthetic": synthetic}
    share = daskpriv.evaluate(**tables, metrics=[DcrShare()]).metrics["dcr_share"]
    assert (share.value - 0.5) / (0.25 / 6000) ** 0.5 > 2.5
    assert abs(share.details["z"]) < 1
    assert share.verdict != "LEAK"


def test_constant_columns_and_missing_cells_as_in_sdmetrics() -> None:
    train = pd.DataFrame({"k": [1.0, 1.0, 1.0], "x": [0.0, 10.0, np.nan], "c": ["a", "b", None]})
    synthetic = pd.DataFrame({"k": [2.0, 1.0], "x": [np.nan, 30.0], "c": [None, "a"]})
    found = daskpriv.nearest_neighbours(synthetic, train, k=1).distance[:, 0]
    # k: range 0, so 1 when it differs; x: missing equals missing, clipped at 1; c: missing is a category.
    assert found.tolist() == [1 / 3, 1 / 3]


def test_the_preset_by_its_name(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    monkeypatch.setitem(METRICS, "neighbour_scores", NeighbourScores)
    tables = sdmetrics_heads(shared, "adult", "mostly")
    report = daskpriv.evaluate(**tables, preset="sdmetrics")
    assert list(report.metrics) == ["neighbour_scores", "dcr", "dcr_share"]
    assert report.to_dict()["metrics"] == sdmetrics_report(tables).to_dict()["metrics"]
    assert any(w.startswith("preset sdmetrics: ") for w in report.warnings)


def test_the_preset_says_what_misleads() -> None:
    warnings = " ".join(preset("sdmetrics").warnings)
    for words in ("different scales", "ties"):
        assert words in warnings
    assert preset("sdmetrics").space.range_from == "pair_reference"
    assert preset("sdmetrics").space.missing == "level"


# ---------------------------------------------------------------------------------------------- syntheval 1.7.3


@cache
def syntheval_heads(shared: Path, dataset: str, generator: str) -> dict[str, pd.DataFrame]:
    return {
        "train": head(shared, dataset, "train", 800),
        "holdout": head(shared, dataset, "holdout", 800),
        "synthetic": head(shared, dataset, f"syn_{generator}", 700),
    }


@pytest.mark.parametrize(("dataset", "generator"), SYNTHEVAL)
def test_syntheval_mdcr_and_nnaa(shared: Path, dataset: str, generator: str) -> None:
    expected = golden(shared, "syntheval")[f"{dataset}/{generator}"]["raw"]
    tables = syntheval_heads(shared, dataset, generator)
    found = daskpriv.evaluate(**tables, range_from="all", metrics=[NeighbourScores()]).metrics["neighbour_scores"]
    assert found.details["mdcr"]["value"] == pytest.approx(expected["dcr"]["mDCR"], abs=1e-12)
    assert found.value == found.details["nnaa"]["value"] == pytest.approx(expected["nnaa"]["avg"], abs=1e-12)
    loss = found.details["nnaa_privacy_loss"]["value"]
    assert loss == pytest.approx(expected["nnaa"]["priv_loss"], abs=1e-12)
    assert found.expected == pytest.approx(found.value + loss)


@pytest.mark.parametrize(("dataset", "generator"), SYNTHEVAL)
def test_syntheval_nndr(shared: Path, dataset: str, generator: str) -> None:
    expected = golden(shared, "syntheval")[f"{dataset}/{generator}"]["raw"]["nndr"]
    tables = syntheval_heads(shared, dataset, generator)
    means, errors = {}, {}
    for side in ("train", "holdout"):
        nn = daskpriv.nearest_neighbours(tables[side], tables["synthetic"], k=2, fit=list(tables.values()))
        ratio = nn.distance[:, 0] / (nn.distance[:, 1] + 1e-16)
        means[side], errors[side] = ratio.mean(), ratio.std(ddof=1) / len(ratio) ** 0.5
    assert means["train"] == pytest.approx(expected["avg"], abs=1e-9)
    assert errors["train"] == pytest.approx(expected["err"], abs=1e-9)
    assert means["holdout"] - means["train"] == pytest.approx(expected["priv_loss"], abs=1e-9)
    assert np.hypot(errors["train"], errors["holdout"]) == pytest.approx(expected["priv_loss_err"], abs=1e-9)


def entropy_weights(tables: dict[str, pd.DataFrame], categories: list[str]) -> dict[str, float]:
    """1 / entropy of each column of train, numbers scaled to [0, 1] over all tables and rounded, as syntheval does.

    Its categorical part is a weighted Hamming distance times the number of categorical columns, so that the weights
    of categories count relative to their mean.
    """
    pooled = pd.concat(tables.values())
    weights = {}
    for name, cells in tables["train"].items():
        if name not in categories:
            low, high = pooled[name].min(), pooled[name].max()
            cells = np.round((cells - low) / (high - low))
        weights[name] = float(1 / (stats.entropy(np.unique(cells, return_counts=True)[1]) + 1e-16))
    scale = len(categories) / sum(weights[name] for name in categories)
    return {name: w * scale if name in categories else w for name, w in weights.items()}


@pytest.mark.parametrize(("dataset", "generator"), SYNTHEVAL)
def test_syntheval_epsilon_identifiability(shared: Path, dataset: str, generator: str) -> None:
    case = golden(shared, "syntheval")[f"{dataset}/{generator}"]
    expected, tables = case["raw"]["eps_risk"], syntheval_heads(shared, dataset, generator)
    scores = NeighbourScores(("epsilon_identifiability", "epsilon_identifiability_loss"))
    weights = entropy_weights(tables, case["cat_cols_inferred"])
    found = daskpriv.evaluate(**tables, range_from="all", weights=weights, metrics=[scores])
    details = found.metrics["neighbour_scores"].details
    assert details["epsilon_identifiability"]["value"] == expected["eps_risk"]
    # bank-marketing: the balance rounds to one value, its weight is 1e16, and one comparison hangs on the last bit.
    rows = 1 if dataset == "bank-marketing" else 0
    loss = details["epsilon_identifiability_loss"]["value"]
    assert loss == pytest.approx(expected["priv_loss"], abs=rows / 800 + 1e-12)


@pytest.mark.parametrize(("dataset", "generator"), SYNTHEVAL)
def test_syntheval_hitting_rate_lies_between_the_bounds(shared: Path, dataset: str, generator: str) -> None:
    expected = golden(shared, "syntheval")[f"{dataset}/{generator}"]["raw"]["hit_rate"]["hit rate"]
    tables = syntheval_heads(shared, dataset, generator)
    scores = NeighbourScores(("hitting_rate_gower_inner", "hitting_rate_gower_outer"))
    found = daskpriv.evaluate(**tables, range_from="train", metrics=[scores]).metrics["neighbour_scores"].details
    assert found["hitting_rate_gower_inner"]["value"] <= expected <= found["hitting_rate_gower_outer"]["value"]


def test_trap_of_a_copy_that_looks_perfect() -> None:
    """Syntheval leaves rows out by value: with S = T it compares T with itself, each row without itself."""
    rng = np.random.default_rng(5)
    train, holdout = heavy(rng, 80), heavy(rng, 80)
    found = daskpriv.evaluate(train=train, holdout=holdout, synthetic=train, metrics=[NeighbourScores()])
    details = found.metrics["neighbour_scores"].details
    assert details["mdcr"]["value"] == 0.0
    assert details["nnaa"]["value"] == 0.0
    assert details["epsilon_identifiability"]["value"] == 1.0
    assert details["identical_match_share_exact"]["value"] == 1.0
    assert details["nnaa_privacy_loss"]["value"] > 0.3


def test_trap_of_a_zero_divisor() -> None:
    """Training rows that come in pairs and synthetic rows far away: syntheval prints mDCR = 0, as for copies."""
    train = pd.DataFrame({"x": np.repeat(np.arange(10.0), 2)})
    synthetic = pd.DataFrame({"x": np.arange(10.0) + 0.5})
    details = (
        daskpriv.evaluate(train=train, synthetic=synthetic, metrics=[NeighbourScores()])
        .metrics["neighbour_scores"]
        .details["mdcr"]
    )
    assert details["value"] is None
    assert details["parts"]["between"] > details["parts"]["within"] == 0.0


# ---------------------------------------------------------------------------------------------- gower and gower-metric


@pytest.mark.parametrize("dataset", ["adult", "bank-marketing"])
def test_gower_matrix(shared: Path, dataset: str) -> None:
    query, reference = head(shared, dataset, "syn_mostly", 200), head(shared, dataset, "train", 300)
    case = golden(shared, "gower")[f"{dataset}_mostly_200x300"]
    found = matrix(query, reference, fit="both")
    np.testing.assert_allclose(found, array(shared, f"gower__{dataset}_mostly_200x300"), rtol=0, atol=1e-6)
    assert found.min() == pytest.approx(case["min"], abs=1e-6)
    assert found[0].argmin() == case["row0_argmin"]


def test_gower_matrix_with_weights(shared: Path) -> None:
    query, reference = head(shared, "adult", "syn_mostly", 200), head(shared, "adult", "train", 300)
    weights = {name: float(i) for i, name in enumerate(reference, 1)}
    found = matrix(query, reference, fit="both", weights=weights)
    np.testing.assert_allclose(found, array(shared, "gower__adult_mostly_200x300_weights1to15"), rtol=0, atol=1e-6)


def test_gower_topn(shared: Path) -> None:
    case = golden(shared, "gower")["adult_topn"]
    query, reference = head(shared, "adult", "syn_mostly", 1), head(shared, "adult", "train", 300)
    nn = daskpriv.nearest_neighbours(query, reference, k=5, fit="both")
    assert nn.row[0].tolist() == case["index"]
    np.testing.assert_allclose(nn.distance[0], case["values"], rtol=0, atol=1e-6)


def test_trap_of_tables_of_equal_size(shared: Path) -> None:
    """Gower takes two tables of equal size for one and mirrors half of the matrix; 61 % of its DCR are wrong."""
    case = golden(shared, "gower")["adult_mostly_200x200_EQUAL_SIZE_BUG"]
    query, reference = head(shared, "adult", "syn_mostly", 200), head(shared, "adult", "train", 200)
    found = matrix(query, reference, fit="both")
    buggy = array(shared, "gower__adult_mostly_200x200_EQUAL_SIZE_BUG")
    assert found.min(axis=1).mean() == pytest.approx(case["mean_dcr_correct"], abs=1e-6)
    assert np.abs(found - buggy).max() == pytest.approx(case["max_abs_diff_vs_correct"], abs=1e-6)
    upper = np.triu_indices(200)
    np.testing.assert_allclose(found[upper], buggy[upper], rtol=0, atol=1e-6)
    assert not np.allclose(found, found.T)


def test_gower_with_missing_cells(shared: Path) -> None:
    """Gower makes a pair NaN where a number is missing; everywhere else it is our `max`. Ours are never NaN."""
    query, reference = (head(shared, "auto-imports", t, 500) for t in ("holdout", "train"))
    expected = array(shared, "gower__auto-imports_val41xtrain160_missing")
    found = {m: matrix(query, reference, fit="both", missing=m) for m in ("level", "gower", "max")}
    numbers = reference.select_dtypes("number").columns
    gaps = query[numbers].isna().any(axis=1).to_numpy()[:, None] | reference[numbers].isna().any(axis=1).to_numpy()
    assert np.array_equal(np.isnan(expected), gaps)
    np.testing.assert_allclose(found["max"][~gaps], expected[~gaps], rtol=0, atol=1e-6)
    assert all(np.isfinite(d).all() for d in found.values())


@pytest.mark.parametrize(
    ("dataset", "rows", "name"),
    [
        ("adult", 60, "adult_trn_head60"),
        ("auto-imports", 80, "auto-imports_train_head80_missing"),
    ],
)
@pytest.mark.parametrize(("theirs", "ours"), [("ignore", "gower"), ("max_dist", "max")])
def test_gower_metric(shared: Path, dataset: str, rows: int, name: str, theirs: str, ours: str) -> None:
    table = head(shared, dataset, "train", rows)
    expected = array(shared, f"gower_metric__{name}__{theirs}")
    found = matrix(table, table, missing=ours)
    # The diagonal is 0 there by decree; to us `max` means that a row with gaps is not even like itself.
    np.fill_diagonal(found, 0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_constants_of_upstream_unit_tests(shared: Path) -> None:
    cases = golden(shared, "upstream_unit_constants")
    case = cases["gower README/test 9x6 table, D[0][1]"]
    # The table of gower's README (MIT licence), without its row of missing cells.
    table = pd.DataFrame(
        {
            "age": [21, 21, 19, 30, 21, 21, 19, 30],
            "gender": list("MMNMFFFF"),
            "civil_status": ["MARRIED", "SINGLE", "SINGLE", "SINGLE", "MARRIED", "SINGLE", "WIDOW", "DIVORCED"],
            "salary": [3000.0, 1200.0, 32000.0, 1800.0, 2900.0, 1100.0, 10000.0, 1500.0],
            "has_children": [1, 0, 1, 1, 1, 0, 0, 1],
            "available_credit": [2200, 100, 22000, 1100, 2000, 100, 6000, 2200],
        }
    )
    assert matrix(table, table)[0, 1] == pytest.approx(case["value"], rel=case["rel"])
    probit = cases["anonymeter probit(0.95)"]
    assert round(normal_quantile(0.95), probit["round"]) == probit["value"]


# ---------------------------------------------------------------------------------------------- mostlyai-qa 1.10


def test_mostlyai_formulas_on_given_distances() -> None:
    """Its encodings are another space; on the same distances its formulas are ours."""
    rng = np.random.default_rng(6)
    train = pd.DataFrame({"x": rng.integers(0, 40, 90) / 40})
    holdout = pd.DataFrame({"x": rng.integers(0, 40, 90) / 40})
    synthetic = pd.DataFrame({"x": np.append(rng.integers(0, 80, 70) / 80, train["x"][:5] + 5e-7)})
    details = (
        daskpriv.evaluate(train=train, holdout=holdout, synthetic=synthetic, metrics=[NeighbourScores()])
        .metrics["neighbour_scores"]
        .details
    )
    width = np.ptp(np.append(train["x"], holdout["x"]))
    to = {
        name: np.abs(synthetic["x"].to_numpy()[:, None] - t["x"].to_numpy()).min(axis=1) / width
        for name, t in (("train", train), ("holdout", holdout))
    }
    share = np.mean(to["train"] < to["holdout"]) + np.mean(to["train"] == to["holdout"]) / 2
    assert details["closer_share_half_ties"]["value"] == pytest.approx(share, abs=1e-12)
    assert details["identical_match_share"]["value"] == np.mean(to["train"] <= 1e-6)
    assert details["identical_match_share"]["reference"] == np.mean(to["holdout"] <= 1e-6)
    assert details["identical_match_share_exact"]["value"] == np.mean(to["train"] == 0) < np.mean(to["train"] <= 1e-6)
