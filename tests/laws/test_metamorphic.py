"""The fifteen metamorphic properties, of every number of every metric: how a report answers when tables change.

Numbers in brackets are those of the properties. Whole reports are compared; the tables below say which numbers change
and how, all others must be the same to the last bit. test_properties.py tries the default metrics on more tables.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskpriv
from daskpriv.engine.executor import Serial, Threads
from daskpriv.metrics import METRICS
from daskpriv.report.model import report_schema
from tests.laws.test_properties import SEEDS, cut, drawn, mapped, mixed, shuffled, smooth
from tests.laws.worlds import (
    NS,
    SCORES,
    SWAPPED,
    Leaves,
    becomes,
    broken,
    by_draws,
    copying,
    examples,
    free,
    measured,
    near,
    null_worlds,
    numbers,
    repeated,
    some_tables,
    swapped_key,
)

# ---------------------------------------------------------------------------------------------- 1, 2, 12: copies


@examples(2)
@given(seed=SEEDS)
def test_a_copy_is_the_worst_table_and_a_part_of_it_is_worse_than_less(seed: int) -> None:
    """(1, 2) On eleven points from none to all; the copy ends every scale, and its p-values are small."""
    found = {name: measured(t) for name, t in copying(np.random.default_rng(seed)).items()}
    copy, grid = found["100 %"], [found[f"{10 * i} %"] for i in range(11)]
    for pattern, sign, end, slack in SCORES:
        for key, value in numbers(copy, pattern).items():
            assert end is None or value == end, key
            for name, other in found.items():
                if name == "one row" and end is None:  # of a row far from all others, such scales say more
                    continue
                assert other.get(key) is None or sign * other[key] <= sign * value, (key, name)
            path = [sign * m[key] for m in grid if m.get(key) is not None]
            assert min(b - a for a, b in itertools.pairwise(path)) >= -slack - 1e-12, (key, path)
            assert path[0] < path[-1] or path[0] == value == end, key
    p = numbers(copy, "[a-z_]*/p_value")
    assert {key: v for key, v in p.items() if v is not None and v > 0.05} == {}


@examples(3)
@given(seed=SEEDS)
def test_copied_gaps_are_copied(seed: int) -> None:
    """(12) A copy of a table half of whose cells are missing ends every scale, as if nothing were missing."""
    rng = np.random.default_rng(seed)
    train, holdout = (mixed(rng, n, gaps=0.5).assign(x=rng.normal(size=n)) for n in (60, 50))
    found = measured({"train": train, "holdout": holdout, "synthetic": train.copy()})
    for pattern, _, end, _ in SCORES:
        assert end is None or set(numbers(found, pattern).values()) == {end}, pattern


# ---------------------------------------------------------------------------------------------- 3: order and layout

BY_PLACE = (
    near("accuracy/details/(?:expected_noise|reference_holdout)/.*/(?:low|high|sd)", 0.05),
    near("accuracy/details/reference_holdout/.*/p_value", 0.5),  # of 39 draws
    free("privacy_score/.*", "halves of train are made of row numbers: another order is another set of splits"),
    free(".*/(?:verdict|strongest|strongest_test|best_attack/.*)", "draws decide between the strongest"),
    free("subgroups/(?:value|interval|effect/.*)|membership_inference/effect/.*", "of the strongest, too"),
    near(".*/p_adjusted|(?:membership_inference|exposure|subgroups)/p_value", 0.2),  # steps of the least of many p
    by_draws(".*/(?:auc_)?p_(?:value|theta)|nndr/details/p|.*/p_values/.*|exposure/details/tests/.*"),
    # Centre and spread of the draws, of which 1999 tell within a few per cent.
    near(".*/(?:effect(?:_interval|/.*)?|mde|excess_interval)", 0.1),
)


@examples(8)
@given(seed=SEEDS)
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    """(3) Not a bit of what was found changes; labels are drawn by row number, so that p-values change by chance."""
    tables, rng = some_tables(seed), np.random.default_rng(seed)
    again = mapped(tables, lambda frame: shuffled(rng, frame))
    assert broken(BY_PLACE, measured(tables, group_by=["city"]), measured(again, group_by=["city"])) == []


@pytest.mark.parametrize("seed", range(2))
def test_blocks_files_and_workers_do_not_matter(seed: int, tmp_path: Path) -> None:
    """(3) The same bits, p-values included, from frames and 1, 2 or 5 files, for blocks of 1, 7 and all rows."""
    tables = mapped(drawn(seed, (45, 40, 40)), lambda f: pa.Table.from_pandas(f, preserve_index=False))
    expected = measured(tables, group_by=["city"])
    for files, block_rows, executor in ((1, 7, Threads), (2, 1, Serial), (5, 7, lambda: Threads(3)), (5, None, Serial)):
        for name, table in tables.items():
            (tmp_path / f"{files}" / name).mkdir(parents=True, exist_ok=True)
            edges = np.linspace(0, table.num_rows, files + 1).astype(int)
            for i, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
                pq.write_table(table.slice(start, stop - start), tmp_path / f"{files}" / name / f"{i}.parquet")
        paths = {name: tmp_path / f"{files}" / name for name in tables}
        found = measured(paths, executor, group_by=["city"], block_rows=block_rows)
        assert broken((), expected, found) == []


@examples(5)
@given(seed=SEEDS, order=st.permutations(["age", "pay", "city", "ok", "day"]))
def test_the_order_of_columns_does_not_matter(seed: int, order: list[str]) -> None:
    """(3) Train says in which order columns are added; with sums that are exact that order does not matter either."""
    tables, rng = some_tables(seed), np.random.default_rng(seed)
    others = {name: frame if name == "train" else frame[order] for name, frame in tables.items()}
    assert broken((), measured(tables), measured(others)) == []
    whole = pd.DataFrame({"age": [0, 64], "pay": [0.0, 16.0], "day": pd.to_datetime("2024-01-01")})
    whole["day"] += pd.to_timedelta([0, 32], unit="D")

    def dyadic(frame: pd.DataFrame) -> pd.DataFrame:
        n = len(frame)
        ages, pays, days = (rng.integers(0, top + 1, n) for top in (64, 128, 32))
        day = pd.to_datetime("2024-01-01") + pd.to_timedelta(days, unit="D")
        return pd.concat([whole, frame.assign(age=ages, pay=pays / 8, day=day)], ignore_index=True)

    exact = mapped(tables, dyadic)
    told = free("accuracy/details/.*variate/(?:worst|per_column)/.*", "told in the order of columns")
    pairs = free("correlation/details/(?:worst|matrix)/.*", "the same")
    assert broken((told, pairs), measured(exact), measured(mapped(exact, lambda f: f[order]))) == []


# ---------------------------------------------------------------------------------------------- 4, 5, 6, 12: names


def affine(frame: pd.DataFrame) -> pd.DataFrame:
    """(4) Other units, exactly: whole numbers by any factor, floats by a power of two."""
    return frame.assign(age=frame["age"] * -7 + 1_000_003, pay=frame["pay"] * -(2.0**9))


REVERSED = (
    free("(?:accuracy|correlation)/.*", "buckets hold their upper ends: a column told backwards is cut elsewhere"),
)


def relabelled(frame: pd.DataFrame) -> pd.DataFrame:
    """(5) Other names in another alphabetical order."""
    names = {"Graz": "w", "Linz": "", "Wien": "Graz", "Wels": "a" * 300}
    return frame.assign(city=frame["city"].map(names).astype("string"), ok=~frame["ok"])


def rezoned(frame: pd.DataFrame) -> pd.DataFrame:
    """(6) The same instants, told in nanoseconds and elsewhere; all tables must be."""
    return frame.assign(day=frame["day"].dt.as_unit("ns").dt.tz_convert("Asia/Kathmandu"))


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """(12) A missing category is a category like the others."""
    return frame.assign(city=frame["city"].fillna("nobody knows"))


@examples(10)
@given(seed=SEEDS, change=st.sampled_from([affine, relabelled, rezoned, named]))
def test_units_zones_and_names_do_not_matter(seed: int, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """(4, 5, 6, 12) Not a bit changes, p-values included."""
    tables = mapped(some_tables(seed), lambda f: f.assign(day=f["day"].dt.tz_localize("UTC").dt.as_unit("s")))
    laws = REVERSED if change is affine else ()
    assert broken(laws, measured(tables), measured(mapped(tables, change))) == []


# ---------------------------------------------------------------------------------------------- 7: constant columns

HALVED = (
    free("accuracy/.*", "more sets of columns; what becomes of each is tested in test_accuracy.py"),
    free("correlation/.*", "more pairs, and those with a constant column have no association"),
    becomes("dcr/(?:value|expected)|dcr/details/.*/(?:mean|std|min|max|median|q..)", lambda x: x / 2),
    becomes("dcr_overlap/details/(?:wasserstein|mean_difference)", lambda x: x / 2),
    becomes("membership_inference/details/(?:thresholds|.*distance/.*/threshold|tpr.*/threshold)", lambda x: x / 2),
    becomes(f"{NS}/mdcr/.*parts/.*", lambda x: x / 2),
    free("dcr/details/.*/histogram/counts|dcr_overlap/(?:value|details/ovl)", "bins are bins of distances"),
    free(f"exposure/details/within/0.0(?!000).*|{NS}/hitting_rate.*", "counted within a distance"),
)


@examples(6)
@given(seed=SEEDS)
def test_constant_columns_halve_distances_and_leave_shares_ranks_and_ratios(seed: int) -> None:
    """(7) As many constant columns as there are others."""
    tables = some_tables(seed)
    wider = mapped(tables, lambda f: f.assign(**{f"same {i}": "x" for i in range(len(f.columns))}))
    assert broken(HALVED, measured(tables), measured(wider)) == []


# ---------------------------------------------------------------------------------------------- 8: labels swapped


@examples(8)
@given(seed=SEEDS)
def test_swapping_train_and_holdout_mirrors_the_report(seed: int) -> None:
    """(8) So that no tie goes to the table that is stacked first."""
    tables = some_tables(seed)
    swapped = {**tables, "train": tables["holdout"], "holdout": tables["train"]}

    assert broken(SWAPPED, measured(tables), measured(swapped), swapped_key) == []


# ---------------------------------------------------------------------------------------------- 9, 10, 11: no leak

_SHARES = "neighbour_scores/details/closer_share_half_ties"
# Where a metric lies without a leak: (number, what it should be on average, its scale, what that needs).
CENTRED: dict[str, tuple[str, str | float, float, str]] = {
    "dcr": ("dcr/details/synthetic->train/mean", "dcr/details/synthetic->holdout/mean", 1, "equal sizes"),
    "clones": ("clones/details/copied_train_rows", 0.0, 1, ""),
    "dcr_share": ("dcr_share/details/excess", 0.0, 1, ""),
    "dcr_overlap": ("dcr_overlap/details/dominance/theta", 0.5, 1, "equal sizes"),
    "nndr": ("nndr/details/difference/theta_a", 0.5, 1, "equal sizes"),
    "membership_inference": ("membership_inference/value", 0.5, 1, ""),
    "exposure": ("exposure/details/auc_relative", 0.5, 1, ""),
    "subgroups": ("subgroups/details/by_isolation/0/auc", 0.5, 1, ""),
    "privacy_score": ("privacy_score/details/matched/score", "privacy_score/details/control/score", 100, ""),
    "neighbour_scores": (f"{_SHARES}/value", f"{_SHARES}/reference", 1, "no ties"),
    "accuracy": (
        "accuracy/details/bivariate/tvd",
        "accuracy/details/reference_holdout/bivariate/tvd",
        1,
        "equal sizes",
    ),
    "correlation": ("correlation/value", "correlation/expected", 1, "equal sizes"),
}


def off(found: Leaves, metric: str) -> float:
    """How far a metric lies from what it should be on average."""
    number, expected, scale, _ = CENTRED[metric]
    return float(found[number] - (found[expected] if isinstance(expected, str) else expected)) / scale


def test_without_a_leak_p_is_uniform_and_every_metric_lies_where_it_should() -> None:
    """(9, 10) For tables of one size and of others; least p of many tests, and counts, are more often large."""
    p: dict[str, list[float]] = {}
    for sizes in ((48, 48, 48), (30, 66, 66), (66, 30, 30)):
        worlds = null_worlds(sizes, 20)
        for found, _ in worlds:
            for key, value in numbers(found, "[a-z_]*/p_value|nndr/details/p_theta|dcr_overlap/.*p_values/.*").items():
                p.setdefault(key, []).append(value)
        for metric, (*_, needs) in CENTRED.items():
            if needs == "equal sizes" and sizes[0] != sizes[1]:
                continue
            values = np.array([off(found, metric) for found, tied in worlds if not (tied and needs == "no ties")])
            assert abs(values.mean()) <= 3.5 * values.std() / np.sqrt(len(values)), (metric, sizes)
    for key, values in p.items():
        told = np.array([v for v in values if v is not None])
        if len(told):  # of 60, more than 9 are so small once in 1200 times
            assert np.sum(told <= 0.05) <= 9, key
            assert np.sum(told <= 0.5) <= 42, key
            assert np.sum(told <= 0.5) >= (6 if key.startswith("clones") else 18), key


@examples(4)
@given(seed=SEEDS)
def test_one_outlier_in_the_holdout_changes_nothing_materially(seed: int) -> None:
    """(11) A far value takes a column away: no leak stays no leak, and results move as with other columns."""
    rng = np.random.default_rng(seed)
    tables = {name: smooth(rng, 80) for name in ("train", "holdout", "synthetic")}
    before = measured(tables)
    tables["holdout"].loc[0, "a"] = 1e9
    after = measured(tables)
    for metric in CENTRED:
        # All distances of a column shrink, on both sides alike: dcr is judged by the difference of the sides, too.
        assert abs(off(after, metric) - off(before, metric)) < (0.35 if metric == "subgroups" else 0.2), metric
        assert after[f"{metric}/verdict"] != "LEAK"
        assert after[f"{metric}/p_value"] is None or after[f"{metric}/p_value"] > 0.01


# ---------------------------------------------------------------------------------------------- 13, 14, 15: bad rows

UNMATCHED: tuple[tuple[str, Any], ...] = (
    ("dcr/details/(?:synthetic->(?:train|holdout)|(?:train|holdout)->synthetic)/(?:min|mean|max)", 1.0),
    ("clones/(?:value|expected|details/n_(?:synthetic|train|holdout)_.*wi.*|details/n_synthetic_.*)", 0),
    ("(?:clones|dcr_overlap|nndr)/p_value|dcr_overlap/value|nndr/(?:value|expected)", 1.0),
    ("dcr_overlap/details/(?:ks|wasserstein)|dcr_share/details/(?:n_closer|n_further)", 0),
    ("membership_inference/(?:value|details/attacks/distance/auc)", 0.5),
    ("membership_inference/details/advantage|exposure/value|exposure/details/within/.*", 0),
    ("privacy_score/details/raw/shares/tspr_zero_over_zero", 0.0),
    (f"{NS}/(?:identical_match_share(?:_exact)?|hitting_rate_gower_.*)/value", 0.0),
)


@examples(5)
@given(seed=SEEDS, n_new=st.integers(2, 300))
def test_unseen_categories_never_match(seed: int, n_new: int) -> None:
    """(13) Neither a known category, nor another unseen one, nor a gap: every synthetic row is as far as can be."""
    rng = np.random.default_rng(seed)
    real = pa.table({"a": pa.array(rng.choice(["x", "y", "z", None], 60).tolist(), pa.string())})
    unseen = pa.table({"a": [f"new {i}" for i in range(n_new)]})
    found = measured({"train": real.slice(0, 35), "holdout": real.slice(35), "synthetic": unseen})
    for pattern, value in UNMATCHED:
        assert set(numbers(found, pattern).values()) == {value}, pattern
    assert found["dcr/details/synthetic->synthetic/min"] == 1.0
    assert found["dcr_share/details/excess"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["every row", "one row", "one row everywhere"])
def test_duplicates_in_train_are_defined(kind: str) -> None:
    """(14) 0/0 has a value or is counted, and a number that is missing has no verdict."""
    rng = np.random.default_rng(14)
    train, holdout, synthetic = smooth(rng, 15), smooth(rng, 20), smooth(rng, 25)
    train = pd.concat([train if kind == "every row" else train.head(1)] * 4, ignore_index=True)
    if kind == "one row everywhere":
        holdout, synthetic = train.head(3), train.copy()
    report = daskpriv.evaluate(train=train, holdout=holdout, synthetic=synthetic, metrics="all")
    jsonschema.validate(json.loads(report.to_json()), report_schema())
    for name, m in report.to_dict()["metrics"].items():
        assert m["value"] is not None or m["verdict"] in ("NOT_EVALUATED", "NOT_INTERPRETABLE"), name
        assert m["p_value"] is None or 0 < m["p_value"] <= 1, name
        if kind == "one row everywhere":
            assert m["p_value"] in (None, 1.0), name
            assert m["verdict"] != "LEAK", name


@pytest.mark.parametrize("missing", ["level", "gower", "clearbox"])
def test_input_frames_are_never_changed(missing: str, tmp_path: Path) -> None:
    """(15) Neither values, nor types, index or columns, also where files with every row are written."""
    tables = mapped(some_tables(16), lambda f: f.set_index(np.arange(len(f))[::-1]))
    before = mapped(tables, lambda f: f.copy(deep=True))
    measured(tables, missing=missing, weights={"age": 2.0}, output=tmp_path, internal=True, group_by=["ok"])
    for name, frame in tables.items():
        pd.testing.assert_frame_equal(frame, before[name])


# ---------------------------------------------------------------------------------------------- rows written twice


@examples(5)
@given(seed=SEEDS, times=st.integers(2, 6))
def test_synthetic_rows_written_twice_say_nothing_new(seed: int, times: int) -> None:
    """Tests count real rows: what counts synthetic ones finds anything significant in enough copies of them."""
    tables = some_tables(seed)
    again = {**tables, "synthetic": pd.concat([tables["synthetic"]] * times, ignore_index=True)}
    assert broken(repeated(times), measured(tables), measured(again)) == []


def test_synthetic_rows_written_seven_times_keep_membership_inference_honest() -> None:
    """Its density is another test then. Without a leak, more than 5 of 30 p-values are up to 5 % once in 300 times."""
    p = []
    for seed in range(30):
        tables = cut(smooth(np.random.default_rng(seed), 135), np.random.default_rng(seed), 50, 40, 45)
        tables["synthetic"] = pd.concat([tables["synthetic"]] * 7, ignore_index=True)
        p.append(measured(tables, metrics="membership_inference", seed=seed)["membership_inference/p_value"])
    assert np.sum(np.array(p) <= 0.05) <= 5


# ---------------------------------------------------------------------------------------------- the tables themselves


def test_every_law_speaks_of_something_and_every_metric_has_its_place() -> None:
    """A new metric must say how it tells of a leak and where it lies without one; other laws then hold by default."""
    found = measured(some_tables(1), group_by=["city"])
    laws = [law.pattern for some in (BY_PLACE, HALVED, SWAPPED, repeated(2)) for law in some]
    for pattern in (*laws, *(pattern for pattern, *_ in SCORES)):
        assert numbers(found, pattern), pattern
    assert (
        set(CENTRED)
        == {key.split("/")[0] for pattern, *_ in SCORES for key in numbers(found, pattern)}
        == set(METRICS) - {"sequences"}
    )
