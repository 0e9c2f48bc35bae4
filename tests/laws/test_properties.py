"""Laws that hold whatever the data: how dcr, clones and dcr_share answer when the tables change in a known way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv import session
from daskpriv.engine.executor import Serial, Threads

ADULT = Path(__file__).parents[3] / "shared" / "data" / "adult" / "train.parquet"
SEEDS = st.integers(0, 2**32 - 1)
MISSING = st.sampled_from(["level", "gower", "max", "clearbox"])
Tables = dict[str, Any]


def examples(number: int) -> settings:
    """So many examples, however long one takes."""
    return settings(max_examples=number, suppress_health_check=list(HealthCheck))


# ---------------------------------------------------------------------------------------------- tables and answers


def mixed(rng: np.random.Generator, rows: int, gaps: float = 0.1, scale: int = 12) -> pd.DataFrame:
    """A mixed table with many ties, some duplicates and missing cells."""
    frame = pd.DataFrame(
        {
            "age": pd.array(rng.integers(0, scale, rows), dtype="Int64"),
            "pay": rng.lognormal(3, 1, rows).round(1),
            "city": pd.array(
                rng.choice(["Graz", "Linz", "Wien", "Wels"], rows, p=[0.4, 0.3, 0.2, 0.1]), dtype="string"
            ),
            "ok": pd.array(rng.random(rows) < 0.3, dtype="boolean"),
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 3 * scale, rows), unit="D"),
        }
    )
    return frame.mask(rng.random(frame.shape) < gaps)


def smooth(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """A table of continuous numbers: hardly any ties."""
    x = rng.normal(size=(rows, 3))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + x[:, 1], "c": np.exp(x[:, 2])})


def drawn(seed: int, sizes: tuple[int, int, int] = (25, 20, 22), gaps: float = 0.1) -> Tables:
    """Train, holdout and synthetic table, the latter partly made of real rows."""
    rng = np.random.default_rng(seed)
    n_t, n_h, n_s = (int(rng.integers(2, n + 1)) for n in sizes)
    train, holdout, fresh = (mixed(rng, n, gaps) for n in (n_t, n_h, n_s))
    pool = pd.concat([train, holdout, fresh], ignore_index=True)
    return {
        "train": train,
        "holdout": holdout,
        "synthetic": pool.iloc[rng.integers(0, len(pool), n_s)].reset_index(drop=True),
    }


def measured(tables: Mapping[str, Any], **options: Any) -> dict[str, dict[str, Any]]:
    """The details of every metric, with value, p and verdict beside them."""
    report = daskpriv.evaluate(**tables, **options)
    return {
        name: {**m.details, "value": m.value, "p": m.p_value, "interval": m.interval, "verdict": str(m.verdict)}
        for name, m in report.metrics.items()
    }


def settled(found: Any) -> Any:
    """What was measured, without what random draws said."""
    drawn = {"p", "p_value", "p_adjusted", "tests", "strongest_test", "best_attack", "verdict", "mde"}
    if isinstance(found, Mapping):
        return {k: settled(v) for k, v in found.items() if k not in drawn}
    return [settled(v) for v in found] if isinstance(found, list) else found


def share_of(tables: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The share alone."""
    return measured(tables, metrics="dcr_share", **options)["dcr_share"]


def mapped(tables: Tables, change: Callable[[Any], Any]) -> Tables:
    """The same change made to every table."""
    return {name: change(table) for name, table in tables.items()}


def shuffled(rng: np.random.Generator, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in another order."""
    return frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)


def cut(frame: pd.DataFrame, rng: np.random.Generator, *sizes: int) -> Tables:
    """Train, holdout and synthetic rows cut at random from one table: no leak by construction."""
    places = np.split(rng.permutation(len(frame))[: sum(sizes)], np.cumsum(sizes)[:-1])
    names = ("train", "holdout", "synthetic")
    return {name: frame.iloc[p].reset_index(drop=True) for name, p in zip(names, places, strict=True)}


# ---------------------------------------------------------------------------------------------- 1, 2: leaks


@pytest.mark.parametrize("seed", range(5))
def test_an_exact_copy_is_the_worst_value(seed: int) -> None:
    """No synthetic table scores worse than train itself."""
    rng = np.random.default_rng(seed)
    train, holdout = smooth(rng, 150), smooth(rng, 150)
    copy = measured({"train": train, "holdout": holdout, "synthetic": train})
    other = measured({"train": train, "holdout": holdout, "synthetic": smooth(rng, 150)})
    assert copy["dcr_share"]["value"] == copy["dcr_share"]["excess"] == 1.0 > other["dcr_share"]["value"]
    assert copy["dcr_share"]["verdict"] == copy["clones"]["verdict"] == "LEAK"
    assert copy["dcr_share"]["p"] == min(copy["dcr_share"]["p"], other["dcr_share"]["p"])
    assert copy["clones"]["value"] == copy["clones"]["excess"] == 1.0 > other["clones"]["value"]
    assert copy["dcr"]["synthetic->train"]["max"] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_more_leaked_rows_are_never_better(seed: int) -> None:
    """Replacing synthetic rows by training rows moves every number one way."""
    rng = np.random.default_rng(seed)
    train, holdout, fresh = smooth(rng, 80), smooth(rng, 60), smooth(rng, 50)
    found = []
    for leaked in (0, 5, 10, 20, 35, 50):
        synthetic = pd.concat([train.head(leaked), fresh.iloc[leaked:]], ignore_index=True)
        found.append(measured({"train": train, "holdout": holdout, "synthetic": synthetic}))
    for fewer, more in itertools.pairwise(found):
        for key in ("share_fractional", "share_strict", "share_half", "share_size", "share_balanced", "excess"):
            assert more["dcr_share"][key] >= fewer["dcr_share"][key]
        assert more["clones"]["n_synthetic_train"] > fewer["clones"]["n_synthetic_train"]
        for key in ("mean", "median", "q05", "max"):
            assert more["dcr"]["synthetic->train"][key] <= fewer["dcr"]["synthetic->train"][key]


# ---------------------------------------------------------------------------------------------- 3: order and cut


@examples(40)
@given(seed=SEEDS, missing=MISSING)
def test_row_order_does_not_matter(seed: int, missing: str) -> None:
    """Not a bit changes; only what label draws say, which are keyed by row ids, may differ by chance."""
    tables, rng = drawn(seed), np.random.default_rng(seed + 1)
    again = mapped(tables, lambda frame: shuffled(rng, frame))
    assert settled(measured(again, missing=missing)) == settled(measured(tables, missing=missing))


@examples(40)
@given(seed=SEEDS, missing=MISSING, block_rows=st.integers(1, 30))
def test_block_rows_do_not_matter(seed: int, missing: str, block_rows: int) -> None:
    """Not a bit changes with the cut into blocks."""
    tables = drawn(seed)
    assert measured(tables, missing=missing, block_rows=block_rows) == measured(tables, missing=missing)


@contextmanager
def running_on(executor: Callable[[], Any]) -> Iterator[None]:
    """Run what follows on this executor."""
    with patch.object(session, "Threads", executor):
        yield


@examples(15)
@given(seed=SEEDS, block_rows=st.integers(1, 12), threads=st.integers(1, 5))
def test_the_executor_does_not_matter(seed: int, block_rows: int, threads: int) -> None:
    """One function after the other, or several threads at once: the same bits."""
    tables = drawn(seed)
    with running_on(Serial):
        one_by_one = measured(tables, block_rows=block_rows)
    with running_on(lambda: Threads(threads)):
        at_once = measured(tables, block_rows=block_rows)
    assert one_by_one == at_once


def test_the_way_in_does_not_matter(tmp_path: Path) -> None:
    """pandas, pyarrow, polars, one Parquet file or several: the same bits."""
    tables = {k: pa.Table.from_pandas(v, preserve_index=False) for k, v in drawn(7, (60, 50, 40)).items()}
    expected = measured(tables)
    for name, table in tables.items():
        parts = [table.slice(0, 3), table.slice(3)]
        pl.from_arrow(table).write_parquet(tmp_path / f"{name}.parquet")
        for i, part in enumerate(parts):
            pl.from_arrow(part).write_parquet(tmp_path / f"{name}-part-{i}.parquet")
    assert measured(mapped(tables, pl.from_arrow)) == expected
    assert measured(mapped(tables, lambda t: t.to_pandas(types_mapper=pd.ArrowDtype))) == expected
    assert measured({n: tmp_path / f"{n}.parquet" for n in tables}) == expected
    assert measured({n: str(tmp_path / f"{n}-part-*.parquet") for n in tables}) == expected


# ---------------------------------------------------------------------------------------------- 4, 5, 6, 7: columns


@examples(30)
@given(
    seed=SEEDS,
    factor=st.integers(-1000, 1000).filter(bool),
    shift=st.integers(-(10**6), 10**6),
    power=st.integers(-20, 20),
)
def test_affine_change_of_a_number_does_not_matter(seed: int, factor: int, shift: int, power: int) -> None:
    """Other units change nothing; where the change is exact, not a bit."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(age=frame["age"] * factor + shift, pay=frame["pay"] * -(2.0**power))

    tables = drawn(seed)
    assert measured(mapped(tables, change)) == measured(tables)


@examples(30)
@given(seed=SEEDS)
def test_category_relabelling_does_not_matter(seed: int) -> None:
    """Other names, even ones whose codes share their low byte, change nothing."""
    rng = np.random.default_rng(seed)
    tables = drawn(seed)
    names = {c: f"name {i}" for c, i in zip(["Graz", "Linz", "Wien", "Wels"], rng.permutation(4), strict=True)}
    again = mapped(tables, lambda f: f.assign(city=f["city"].map(names).astype("string"), ok=~f["ok"]))
    assert measured(again) == measured(tables)


def test_category_codes_beyond_a_byte_stay_apart() -> None:
    """Category 0 is not category 256: 1000 different categories match only themselves."""
    train = pa.table({"a": [f"c{i:04}" for i in range(1000)]})
    found = daskpriv.nearest_neighbours(train, train, k=2)
    assert np.asarray(found.distance).tolist() == [[0.0, 1.0]] * 1000
    assert np.asarray(found.ties).tolist() == [1] * 1000
    assert np.asarray(found.row)[:, 0].tolist() == list(range(1000))


@examples(25)
@given(seed=SEEDS, unit=st.sampled_from(["s", "ms", "us", "ns"]), zone=st.sampled_from(["UTC", "Asia/Tokyo"]))
def test_time_unit_and_zone_do_not_matter(seed: int, unit: str, zone: str) -> None:
    """The same instants in another unit and zone are the same rows."""
    tables = mapped(drawn(seed), lambda f: f.assign(day=f["day"].dt.tz_localize("UTC").dt.as_unit("s")))
    for again in (
        mapped(tables, lambda f: f.assign(day=f["day"].dt.as_unit(unit).dt.tz_convert(zone))),
        {**tables, "synthetic": tables["synthetic"].assign(day=tables["synthetic"]["day"].dt.as_unit(unit))},
    ):
        assert measured(again) == measured(tables)


def rescaled(details: dict[str, Any], factor: float) -> dict[str, Any]:
    """What distances multiplied by `factor` give, histogram left out."""
    kept = {k: v for k, v in details.items() if k not in ("histogram", "n", "n_zero", "share_zero")}
    return {k: v * factor for k, v in kept.items()}


@examples(25)
@given(seed=SEEDS, extra=st.sampled_from([1, 5]), missing=st.sampled_from(["level", "max"]))
def test_constant_columns_rescale_distances_and_change_no_share(seed: int, extra: int, missing: str) -> None:
    """With c constant columns beside p others every distance becomes p / (p + c) of what it was."""
    tables = drawn(seed)
    wider = mapped(tables, lambda f: f.assign(**{f"same {i}": "x" for i in range(extra)}))
    before, after = measured(tables, missing=missing), measured(wider, missing=missing)
    for direction, details in before["dcr"].items():
        if isinstance(details, dict) and "mean" in details and math.isfinite(details["mean"]):
            expected = rescaled(details, 5 / (5 + extra))
            assert {k: after["dcr"][direction][k] for k in expected} == pytest.approx(expected, abs=1e-8)
    # Halving is exact; any other factor may round two different distances to one.
    tolerance = 0.0 if extra == 5 else 1e-9
    for key in ("share_fractional", "share_half", "share_balanced", "n_closer", "n_equal", "z"):
        assert after["dcr_share"][key] == pytest.approx(before["dcr_share"][key], abs=tolerance)
    assert after["clones"] == before["clones"]


# ---------------------------------------------------------------------------------------------- 8: labels


@examples(60)
@given(seed=SEEDS, missing=st.sampled_from(["level", "gower", "max", "clearbox", "anonymeter"]))
def test_swapping_train_and_holdout_maps_share_to_its_complement(seed: int, missing: str) -> None:
    """No table is favoured, whatever the ties."""
    tables = drawn(seed)
    swapped = {"train": tables["holdout"], "holdout": tables["train"], "synthetic": tables["synthetic"]}
    one, two = (share_of(t, missing=missing, range_from="real") for t in (tables, swapped))
    assert (one["n_closer"], one["n_equal"], one["n_further"]) == (two["n_further"], two["n_equal"], two["n_closer"])
    for key in ("share_fractional", "share_half", "share_size", "share_balanced", "expected"):
        assert one[key] == pytest.approx(1 - two[key], abs=1e-12), key
    assert one["standard_error"] == pytest.approx(two["standard_error"], abs=1e-12)
    if one["standard_error"] > 1e-6:
        assert one["z"] == pytest.approx(-two["z"], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_train", [2, 3, 4])
@pytest.mark.parametrize("missing", ["level", "gower"])
def test_the_share_over_all_labellings_has_the_stated_mean_and_variance(seed: int, n_train: int, missing: str) -> None:
    """Every way to call n of 6 real rows train: on average exactly the expected share, spread as stated."""
    rng = np.random.default_rng(seed)
    pool, synthetic = mixed(rng, 6, 0.2, scale=3), mixed(rng, 9, 0.2, scale=3)
    shares, errors = [], []
    for chosen in itertools.combinations(range(6), n_train):
        rest = [i for i in range(6) if i not in chosen]
        tables = {"train": pool.iloc[list(chosen)], "holdout": pool.iloc[rest], "synthetic": synthetic}
        found = share_of(tables, missing=missing)
        shares.append(found["share_fractional"])
        errors.append(found["standard_error"])
    assert np.mean(shares) == pytest.approx(n_train / 6, abs=1e-12)
    assert np.ptp(errors) < 1e-9
    assert np.var(shares) == pytest.approx(errors[0] ** 2, abs=1e-9)


# ---------------------------------------------------------------------------------------------- 9, 10: the null


def null_draws(number: int, *sizes: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Results for tables that are independent draws from one law."""
    for seed in range(number):
        rng = np.random.default_rng(10_000 + seed)
        tables = {name: smooth(rng, n) for name, n in zip(("train", "holdout", "synthetic"), sizes, strict=True)}
        yield measured(tables, metrics=["clones", "dcr_share"], seed=seed)


def test_null_calibration_of_the_share() -> None:
    """Without a leak p is uniform: each quarter of [0, 1] holds its quarter of 200 draws."""
    found = [r["dcr_share"] for r in null_draws(200, 40, 40, 60)]
    p = np.array([r["p"] for r in found])
    quarters = np.bincount(np.minimum((p * 4).astype(int), 3), minlength=4)
    assert quarters.min() >= 30
    assert quarters.max() <= 72
    assert abs(p.mean() - 0.5) < 0.06
    assert np.mean(p <= 0.05) <= 0.10
    assert np.mean([abs(r["z"]) > 1.96 for r in found]) <= 0.09
    assert sum(r["verdict"] == "LEAK" for r in found) <= 10


def test_null_calibration_of_the_clones() -> None:
    """Without a leak the clone test rejects no more often than it says, also where rows repeat."""
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        pool = mixed(rng, 90, gaps=0.0, scale=2)[["age", "city", "ok"]]
        rejected += measured(cut(pool, rng, 30, 30, 30), metrics="clones")["clones"]["p"] <= 0.05
    assert rejected <= 10


@pytest.mark.parametrize("sizes", [(60, 60, 40), (30, 90, 40), (90, 30, 40)])
def test_unequal_sizes_keep_the_expected_share(sizes: tuple[int, int, int]) -> None:
    """The fractional share centres on n_train / (n_train + n_holdout), the balanced one on a half."""
    found = [r["dcr_share"] for r in null_draws(60, *sizes)]
    pi = sizes[0] / (sizes[0] + sizes[1])
    assert all(r["expected"] == pi for r in found)
    for key, center in (("share_fractional", pi), ("share_balanced", 0.5), ("excess", 0.0)):
        values = np.array([r[key] for r in found])
        assert abs(values.mean() - center) < 3.5 * values.std() / len(values) ** 0.5, key


def real_rows() -> pd.DataFrame:
    """The adult table where it is at hand, else a mixed table."""
    return pd.read_parquet(ADULT) if ADULT.is_file() else mixed(np.random.default_rng(2), 5000, 0.02, scale=60)


@pytest.mark.parametrize("sizes", [(150, 150, 150), (240, 80, 150), (80, 240, 150)])
def test_cuts_of_one_real_table_lie_within_two_standard_errors(sizes: tuple[int, int, int]) -> None:
    """At least 36 of 40 random cuts, for equal and unequal tables."""
    rows, within = real_rows(), 0
    for seed in range(40):
        found = share_of(cut(rows, np.random.default_rng(seed), *sizes))
        within += abs(found["share_fractional"] - found["expected"]) <= 2 * found["standard_error"]
    assert within >= 36


# ---------------------------------------------------------------------------------------------- 11 to 15: bad rows


@pytest.mark.parametrize("table", ["holdout", "train", "synthetic"])
@pytest.mark.parametrize("seed", range(3))
def test_one_outlier_does_not_change_the_share_materially(seed: int, table: str) -> None:
    """A single far value in any table: no leak stays no leak."""
    rng = np.random.default_rng(seed)
    tables = {name: smooth(rng, 150) for name in ("train", "holdout", "synthetic")}
    before = share_of(tables)
    tables[table].loc[0, "a"] = 1e9
    after = share_of(tables)
    assert abs(after["value"] - after["expected"]) < 3 * after["standard_error"]
    assert abs(after["value"] - before["value"]) < 0.15


@examples(25)
@given(seed=SEEDS)
def test_copied_gaps_are_copied_rows(seed: int) -> None:
    """A row of train with missing cells is a clone like any other."""
    tables = drawn(seed, gaps=0.5)
    found = measured({**tables, "synthetic": tables["train"]})
    assert found["clones"]["n_synthetic_train"] == len(tables["train"])
    assert found["dcr"]["synthetic->train"]["max"] == 0.0
    assert found["dcr_share"]["n_further"] == 0


def test_a_gap_is_not_a_value() -> None:
    """Whatever fills a gap, the row is no clone any more."""
    train = pa.table({"a": pa.array([None, 0], pa.int64()), "b": pa.array(["", None], pa.string())})
    synthetic = pa.table({"a": pa.array([0, None], pa.int64()), "b": ["", ""]})
    assert measured({"train": train, "synthetic": synthetic})["clones"]["n_synthetic_train"] == 1


@examples(25)
@given(seed=SEEDS, n_new=st.integers(1, 400))
def test_unseen_categories_never_match(seed: int, n_new: int) -> None:
    """Neither a known category, nor another unseen one, nor a gap."""
    rng = np.random.default_rng(seed)
    known = pa.table({"a": pa.array(rng.choice(["x", "y", None], 30).tolist(), pa.string())})
    unseen = pa.table({"a": [f"new {i}" for i in range(n_new)]})
    found = measured({"train": known.slice(0, 20), "holdout": known.slice(20), "synthetic": unseen})
    for direction in ("synthetic->train", "synthetic->holdout", "train->synthetic", "holdout->synthetic"):
        assert found["dcr"][direction]["min"] == 1.0
    assert n_new == 1 or found["dcr"]["synthetic->synthetic"]["min"] == 1.0
    assert found["clones"]["n_synthetic_train"] == found["clones"]["n_synthetic_holdout"] == 0
    assert found["dcr_share"]["share_fractional"] == pytest.approx(found["dcr_share"]["expected"], abs=1e-12)


@pytest.mark.parametrize("missing", ["level", "gower", "max", "anonymeter", "clearbox"])
@pytest.mark.parametrize("value", ["x", 3, 2.5, True, None])
def test_tables_of_one_repeated_row_do_not_crash(value: Any, missing: str) -> None:
    """Every distance ties: the share is the expected one and nothing can be tested."""
    tables = {name: pa.table({"a": [value] * n}) for name, n in (("train", 5), ("holdout", 3), ("synthetic", 4))}
    found = share_of(tables, missing=missing)
    assert found["share_fractional"] == pytest.approx(5 / 8, abs=1e-12)
    assert found["share_balanced"] == found["share_half"] == 0.5
    assert (found["z"], found["p"], found["verdict"]) == (0.0, 1.0, "NOT_INTERPRETABLE")


def test_duplicates_in_train_share_their_credit() -> None:
    """Writing every real row twice changes neither the share nor the expected share."""
    tables = drawn(3)
    twice = {k: v if k == "synthetic" else pd.concat([v, v], ignore_index=True) for k, v in tables.items()}
    one, two = share_of(tables), share_of(twice)
    for key in ("share_fractional", "share_half", "share_strict", "expected", "n_equal"):
        assert one[key] == pytest.approx(two[key], abs=1e-12)


def test_input_frames_are_never_changed() -> None:
    """Pandas frames keep values, types, index and columns; polars and Arrow tables are immutable but compared too."""
    tables = mapped(drawn(5), lambda f: f.set_index(np.arange(len(f))[::-1]).assign(age=f["age"].to_numpy()))
    before = mapped(tables, lambda f: f.copy(deep=True))
    for missing in ("level", "gower", "clearbox"):
        measured(tables, missing=missing, weights={"age": 2.0})
    for name, frame in tables.items():
        pd.testing.assert_frame_equal(frame, before[name])
    others = mapped(mapped(tables, lambda f: pa.Table.from_pandas(f, preserve_index=False)), pl.from_arrow)
    copies = mapped(others, lambda f: f.clone())
    measured(others)
    assert all(others[name].equals(copies[name]) for name in others)
