"""`daskpriv split` and `split=`: who goes where, what is written and refused, the bound on epsilon it allows."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskpriv
from daskpriv import splitting
from daskpriv.cli import main
from daskpriv.errors import InputError
from daskpriv.splitting import Split, read_split, split

SIDES = ("train", "holdout")


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    """Rows with a number of their own, several to a person."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "n": np.arange(rows),
            "who": [f"p{i}" for i in rng.integers(0, max(1, rows // 3), rows)],
            "pay": rng.lognormal(3, 1, rows),
        }
    )


def side(folder: str | Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """All rows of one side."""
    return pa.concat_tables(pq.read_table(p, columns=columns) for p in sorted(Path(folder, name).glob("*.parquet")))


def numbers(folder: str | Path) -> tuple[list[int], list[int]]:
    """The row numbers of train and of holdout."""
    train, holdout = (side(folder, name, ["n"])["n"].to_pylist() for name in SIDES)
    return train, holdout


def sentence(error: pytest.ExceptionInfo[InputError] | str) -> str:
    """The message, which is one sentence."""
    text = error if isinstance(error, str) else str(error.value)
    assert text.endswith(".") and "\n" not in text.strip() and "Traceback" not in text
    return text


# ------------------------------------------------------------------------------------------- rows and types


def every_type(rows: int) -> pa.Table:
    """A column of every type that has a distance, with gaps."""
    moments = [datetime(2024, 1, 1) + timedelta(seconds=i) for i in range(rows)]
    columns = {
        "n": pa.array(range(rows), pa.int32()),
        "tiny": pa.array([i % 100 - 50 for i in range(rows)], pa.int8()),
        "huge": pa.array([2**64 - 1 - i for i in range(rows)], pa.uint64()),
        "single": pa.array([i / 3 for i in range(rows)], pa.float32()),
        "double": pa.array([math.nan if i % 9 == 0 else i / 7 for i in range(rows)]),
        "flag": pa.array([i % 3 == 0 for i in range(rows)]),
        "text": pa.array([f"ä{i}\u0000 " for i in range(rows)]),
        "long text": pa.array([f"{i:03}" for i in range(rows)], pa.large_string()),
        "level": pa.array([f"l{i % 5}" for i in range(rows)]).dictionary_encode(),
        "bytes": pa.array([bytes([i % 256]) for i in range(rows)], pa.binary()),
        "day": pa.array([date(2024, 1, 1 + i % 28) for i in range(rows)]),
        "moment": pa.array(moments, pa.timestamp("us")),
        "instant": pa.array(moments, pa.timestamp("ns", "Europe/Vienna")),
        "clock": pa.array([time(i % 24, i % 60) for i in range(rows)], pa.time64("us")),
        "span": pa.array([timedelta(minutes=i) for i in range(rows)], pa.duration("us")),
        "money": pa.array([Decimal(i) / 100 for i in range(rows)], pa.decimal128(12, 2)),
        "nothing": pa.nulls(rows),
    }
    gaps = pa.array(np.random.default_rng(1).random(rows) < 0.2)
    for name in set(columns) - {"n", "level", "nothing"}:
        kept = columns[name].filter(pa.compute.invert(gaps)).slice(0, 0)
        columns[name] = pa.compute.if_else(gaps, pa.nulls(rows, kept.type), columns[name])
    return pa.table(columns)


@pytest.mark.parametrize("parts", [500_000, 17])
@pytest.mark.parametrize("stored", [False, True])
def test_every_row_is_kept_once_with_its_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, stored: bool
) -> None:
    monkeypatch.setattr(splitting, "_ROWS", parts)
    table = every_type(120)
    pq.write_table(table, tmp_path / "real.parquet")
    source = tmp_path / "real.parquet" if stored else table
    made = split(source, tmp_path / "out", seed=3)
    sides = [side(tmp_path / "out", name) for name in SIDES]
    assert [made.train, made.holdout] == [t.num_rows for t in sides]
    for found in sides:
        assert found.schema.remove_metadata() == table.schema
        assert found["n"].to_pylist() == sorted(found["n"].to_pylist())
    both = pa.concat_tables(sides).sort_by("n")
    assert both.drop_columns("double").equals(table.drop_columns("double"))
    assert repr(both["double"].to_pylist()) == repr(table["double"].to_pylist())


def test_pandas_types_are_kept(tmp_path: Path) -> None:
    frame = people(60).assign(
        who=lambda f: f["who"].astype("category"),
        age=pd.array([None, *range(59)], dtype="Int16"),
        day=pd.date_range("2024-01-01", periods=60, tz="UTC"),
    )
    split(frame.set_index(np.arange(60)[::-1]), tmp_path, seed=1)
    found = pa.concat_tables([side(tmp_path, name) for name in SIDES]).sort_by("n")
    expected = pa.table({c: pa.Array.from_pandas(frame[c]) for c in frame.columns})
    assert found.to_pylist() == expected.to_pylist()
    types = [[str(f.type).replace("large_", "").replace("int8", "int32") for f in t.schema] for t in (found, expected)]
    assert types[0] == types[1]


# ------------------------------------------------------------------------------------------- one split for all layouts


def stored(frame: pd.DataFrame, folder: Path, files: int, **options: Any) -> str:
    folder.mkdir()
    for i, place in enumerate(np.array_split(np.arange(len(frame)), files)):
        pq.write_table(
            pa.Table.from_pandas(frame.iloc[place], preserve_index=False), folder / f"{i}.parquet", **options
        )
    return str(folder / "*.parquet")


def csv(frame: pd.DataFrame, path: Path) -> str:
    frame.to_csv(path, index=False)
    return str(path)


LAYOUTS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "pandas": lambda f, p: f,
    "pandas, any index": lambda f, p: f.set_index(np.arange(len(f))[::-1]),
    "arrow": lambda f, p: pa.Table.from_pandas(f, preserve_index=False),
    "polars": lambda f, p: pl.from_pandas(f),
    "one file": lambda f, p: stored(f, p / "in", 1),
    "row groups": lambda f, p: stored(f, p / "in", 1, row_group_size=7),
    "files": lambda f, p: stored(f, p / "in", 5),
    "a list of files": lambda f, p: sorted(map(str, Path(stored(f, p / "in", 3)).parent.glob("*.parquet"))),
    "csv": lambda f, p: csv(f, p / "in.csv"),
    "dask": lambda f, p: dd.from_pandas(f, npartitions=4),
}


@pytest.mark.parametrize("key", [None, "who"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_and_partitions_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, key: str | None
) -> None:
    frame = people(200)
    expected = split(frame, tmp_path / "expected", subject_key=key, seed=5)
    for rows in (500_000, 23):
        monkeypatch.setattr(splitting, "_ROWS", rows)
        out, place = tmp_path / f"out {rows}", tmp_path / str(rows)
        place.mkdir()
        assert split(LAYOUTS[layout](frame, place), out, subject_key=key, seed=5) == expected
        assert numbers(out) == numbers(tmp_path / "expected")


def test_the_split_of_a_person_does_not_depend_on_the_other_rows(tmp_path: Path) -> None:
    frame = people(300)
    some = frame.sample(frac=0.6, random_state=1)
    split(frame, tmp_path / "all", subject_key="who", seed=2)
    split(some, tmp_path / "some", subject_key="who", seed=2)
    held = {name: set(side(tmp_path / "all", name)["who"].to_pylist()) for name in SIDES}
    for name in SIDES:
        assert set(side(tmp_path / "some", name)["who"].to_pylist()) <= held[name]


def test_a_seed_makes_the_split_again_and_no_seed_makes_another(tmp_path: Path) -> None:
    frame = people(200)
    for name, seed in (("a", 7), ("b", 7), ("c", 8), ("d", None), ("e", None)):
        split(frame, tmp_path / name, seed=seed)
    trains = {name: tuple(numbers(tmp_path / name)[0]) for name in "abcde"}
    assert trains["a"] == trains["b"]
    assert len({trains[name] for name in "acde"}) == 4


# ------------------------------------------------------------------------------------------- subjects


@pytest.mark.parametrize("parts", [500_000, 20])
def test_rows_of_a_person_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(splitting, "_ROWS", parts)
    frame = people(300)
    made = split(frame, tmp_path, subject_key="who", seed=1)
    who = [set(side(tmp_path, name)["who"].to_pylist()) for name in SIDES]
    assert not who[0] & who[1]
    assert made.subjects == len(who[0] | who[1]) == frame["who"].nunique()
    assert sorted(chain(*numbers(tmp_path))) == list(range(300))


INSTANTS = [datetime(2024, 1, 1, i) for i in range(12)]
TYPES = {
    "whole numbers of two widths": (pa.array(range(12), pa.int64()), pa.array(range(12), pa.int8())),
    "whole numbers and floats": (pa.array(range(12), pa.int64()), pa.array(range(12), pa.float64())),
    "whole numbers and decimals": (
        pa.array(range(12), pa.int32()),
        pa.array(map(Decimal, range(12)), pa.decimal128(21, 2)),
    ),
    "floats of two widths": (pa.array([i / 4 for i in range(12)]), pa.array([i / 4 for i in range(12)], pa.float32())),
    "text and categories": (pa.array(list("abcdefghijkl")), pa.array(list("abcdefghijkl")).dictionary_encode()),
    "text of two widths": (pa.array(list("abcdefghijkl")), pa.array(list("abcdefghijkl"), pa.large_string())),
    "times of two units": (pa.array(INSTANTS, pa.timestamp("s")), pa.array(INSTANTS, pa.timestamp("ns"))),
    "instants of two zones": (
        pa.array(INSTANTS, pa.timestamp("us", "UTC")),
        pa.array(INSTANTS, pa.timestamp("us", "Asia/Tokyo")),
    ),
}


def of_two_types(folder: Path, types: str) -> str:
    """Twelve subjects in two files, in each in another type that the library compares by value."""
    for i, key in enumerate(TYPES[types]):
        pq.write_table(pa.table({"key": key, "n": pa.array(range(12 * i, 12 * i + 12))}), folder / f"{i}.parquet")
    return str(folder / "*.parquet")


@pytest.mark.parametrize("parts", [500_000, 12, 5])
@pytest.mark.parametrize("types", TYPES)
def test_a_person_stays_together_across_files_of_other_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: str, parts: int
) -> None:
    """However the files are cut into parts; so the cut does not decide who goes where either."""
    monkeypatch.setattr(splitting, "_ROWS", parts)
    made = split(of_two_types(tmp_path, types), tmp_path / "out", subject_key="key", seed=1)
    train, holdout = ({n % 12 for n in side} for side in numbers(tmp_path / "out"))
    assert not train & holdout
    assert made.subjects == 12


@pytest.mark.parametrize("types", TYPES)
def test_all_parts_of_a_split_have_one_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: str) -> None:
    """Else no other program can read the folder."""
    monkeypatch.setattr(splitting, "_ROWS", 12)
    split(of_two_types(tmp_path, types), tmp_path / "out", seed=1)
    assert len({pq.read_schema(p) for p in (tmp_path / "out").rglob("*.parquet")}) == 1


def test_subjects_are_those_that_have_rows(tmp_path: Path) -> None:
    """A category without rows is nobody."""
    frame = people(90)
    frame["who"] = pd.Categorical(frame["who"], categories=[f"p{i}" for i in range(500)])
    assert split(frame, tmp_path, subject_key="who", seed=1).subjects == frame["who"].nunique()


# ------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("key", [None, "who"])
def test_the_share_is_that_of_independent_coins(tmp_path: Path, share: float, key: str | None) -> None:
    """Within four standard deviations, also of the pairs of neighbours that fall on the same side."""
    rows = 20_000
    frame = pd.DataFrame({"n": np.arange(rows), "who": np.arange(rows).astype(str)})
    made = split(frame, tmp_path, holdout_share=share, subject_key=key, seed=9)
    assert abs(made.holdout - share * rows) < 4 * math.sqrt(rows * share * (1 - share))
    held = np.isin(np.arange(rows), numbers(tmp_path)[1])
    for lag in (1, 2, 64):
        both = int((held[lag:] & held[:-lag]).sum())
        assert abs(both - share**2 * rows) < 4 * math.sqrt(3 * rows * share**2)
    assert (made.holdout_share, made.subject_key) == (share, key)
    assert made.randomised == (share == 0.5 and key is None)


@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0, -0.1, 1.5, math.nan, math.inf, True, "0.5", None])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: Any) -> None:
    with pytest.raises(InputError) as error:
        split(people(10), tmp_path, holdout_share=share)
    assert "between 0 and 1" in sentence(error)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------- refusals


NAN_KEYS = pa.table({"who": [math.nan if i % 5 == 0 else float(i % 7) for i in range(40)], "n": range(40)})
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such key": (people(30), {"subject_key": "nobody"}, "nobody"),
    "a key that is no name": (people(30), {"subject_key": 3}, "no column"),
    "missing keys": (people(30).assign(who=[None, *["x"] * 29]), {"subject_key": "who"}, "missing"),
    "keys that are no number": (NAN_KEYS, {"subject_key": "who", "seed": 1}, "missing"),
    "two rows on one side": (people(2), {"seed": 1}, "too few"),
    "one row": (people(1), {"seed": 1}, "too few"),
    "no rows": (people(5).head(0), {"seed": 1}, "too few"),
    "one subject": (people(30).assign(who="x"), {"subject_key": "who", "seed": 1}, "holdout share"),
    "a negative seed": (people(30), {"seed": -1}, "seed"),
    "a seed that is no number": (people(30), {"seed": "x"}, "seed"),
    "a seed of more than 64 bits": (people(30), {"seed": 2**64}, "seed"),
    "no table": (3, {}, "table"),
    "no file": ("/nowhere/x.parquet", {}, "table"),
    "lists": (pa.table({"a": [[1], [2]]}), {}, "list"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_split_is_told_in_one_sentence(tmp_path: Path, bad: str) -> None:
    table, options, told = BAD[bad]
    with pytest.raises(InputError) as error:
        split(table, tmp_path / "out", **options)
    assert told in sentence(error)
    assert not (tmp_path / "out" / "split.json").exists()


def test_a_split_that_fails_leaves_no_rows_behind(tmp_path: Path) -> None:
    """Both rows fall on one side: what was written of it must not be taken for a split."""
    with pytest.raises(InputError):
        split(people(2), tmp_path / "out", seed=1)
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_no_rows_of_an_earlier_split_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old parts beside new ones would put rows on both sides: they are refused or replaced."""
    monkeypatch.setattr(splitting, "_ROWS", 10)
    split(people(50), tmp_path, seed=1)
    try:
        made = split(people(10), tmp_path, seed=2)
    except InputError as error:
        sentence(str(error))
        assert sorted(chain(*numbers(tmp_path))) == list(range(50))
    else:
        assert [len(n) for n in numbers(tmp_path)] == [made.train, made.holdout]


def test_an_earlier_split_outlives_one_that_fails(tmp_path: Path) -> None:
    """Its seed was never written down: it could not be made again."""
    split(people(60), tmp_path)
    before = numbers(tmp_path)
    with pytest.raises(InputError):
        split(people(60).assign(who=[*["x"] * 59, None]), tmp_path, subject_key="who", seed=2)
    assert numbers(tmp_path) == before


def test_what_is_read_is_never_removed(tmp_path: Path) -> None:
    """Train is cut again into the folder that it lies in."""
    split(people(60), tmp_path, seed=1)
    before = sorted(chain(*numbers(tmp_path)))
    with pytest.raises(InputError):
        split(tmp_path / "train", tmp_path, seed=2)
    assert sorted(chain(*numbers(tmp_path))) == before


WIDE = {
    "whole numbers that no float holds": (pa.array([2**53 + 1] * 6), pa.array([0.5] * 6)),
    "whole numbers that no signed one holds": (pa.array([2**64 - 1] * 6, pa.uint64()), pa.array([-1] * 6)),
    "more categories than the first file counts": (
        pa.array(["x"] * 6).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        pa.array([f"a{i}" for i in range(300)]),
    ),
    "times that no nanosecond reaches": (
        pa.array([datetime(2024, 1, 1)] * 6, pa.timestamp("ns")),
        pa.array([datetime(2500, 1, 1)] * 6, pa.timestamp("us")),
    ),
}


@pytest.mark.parametrize("parts", [500_000, 6])
@pytest.mark.parametrize("types", WIDE)
def test_files_without_a_common_type_are_split_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: str, parts: int
) -> None:
    monkeypatch.setattr(splitting, "_ROWS", parts)
    for i, key in enumerate(WIDE[types]):
        pq.write_table(pa.table({"key": key, "n": range(len(key))}), tmp_path / f"{i}.parquet")
    try:
        split(str(tmp_path / "*.parquet"), tmp_path / "out", seed=1)
    except InputError as error:
        sentence(str(error))
    else:
        assert sum(map(len, numbers(tmp_path / "out"))) == sum(len(key) for key in WIDE[types])


@pytest.mark.parametrize("output", ["file", "http://example.org/x", ""])
def test_an_output_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path, output: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError) as error:
        split(people(30), str(tmp_path / output) if output == "file" else output or "/proc/nowhere", seed=1)
    assert "output" in sentence(error)


# ------------------------------------------------------------------------------------------- what is written


def test_an_object_store_takes_and_gives_the_split() -> None:
    """All ways in and out by URL, as for S3."""
    memory = fsspec.filesystem("memory")
    people(120).to_parquet("memory://split-in/real.parquet", index=False)
    try:
        made = split("memory://split-in/real.parquet", "memory://split-out/a", seed=4)
        assert sorted(p.rpartition("/")[2] for p in memory.find("/split-out/a")) == [
            "part-00000.parquet",
            "part-00000.parquet",
            "split.json",
        ]
        assert read_split("memory://split-out/a/split.json") == made
        report = daskpriv.evaluate(
            train="memory://split-out/a/train",
            holdout="memory://split-out/a/holdout/*.parquet",
            synthetic=people(50, seed=1),
            split="memory://split-out/a/split.json",
            metrics="exposure",
        )
        assert report.metrics["exposure"].details["epsilon"] is not None
    finally:
        memory.rm("/split-in", recursive=True)
        memory.rm("/split-out", recursive=True)


@pytest.mark.parametrize("given", [False, True])
def test_the_seed_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    """Who knows the seed knows who is in train."""
    secret = 0x1122334455667788
    if not given:
        monkeypatch.setattr(splitting.os, "urandom", lambda n: secret.to_bytes(8, "little")[:n])
    made = split(people(200), tmp_path, subject_key="who", seed=secret if given else None)
    text = (tmp_path / "split.json").read_text()
    assert set(json.loads(text)) == {"daskpriv_split", "holdout_share", "subject_key", "train", "holdout", "subjects"}
    forms = [str(secret).encode(), f"{secret:x}".encode(), secret.to_bytes(8, "little"), secret.to_bytes(8, "big")]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or not any(form in path.read_bytes() for form in forms)
    assert not any(str(secret) in str(x) for x in (made, repr(made)))
    assert read_split(tmp_path / "split.json") == made


def test_rows_on_disk_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        split(people(50), tmp_path / "out", seed=1)
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o077 for p in (tmp_path / "out").rglob("*.parquet")} == {0}


# ------------------------------------------------------------------------------------------- the command


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["daskpriv", "split", *given])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_the_command_makes_the_same_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people(150).to_parquet(tmp_path / "real.parquet", index=False)
    for key in (None, "who"):
        made = split(tmp_path / "real.parquet", tmp_path / f"a {key}", holdout_share=0.3, subject_key=key, seed=6)
        more = ("--subject-key", key) if key else ()
        code, out, err = command(
            *(monkeypatch, capsys, str(tmp_path / "real.parquet"), "--output", str(tmp_path / f"b {key}")),
            *("--holdout-share", "0.3", "--seed", "6", *more),
        )
        assert (code, err) == (0, "")
        told = f"{made.train} rows in train, {made.holdout} in holdout"
        assert out == (f"{told}, {made.subjects} subjects\n" if key else f"{told}\n")
        for name in ("split.json", "train/part-00000.parquet", "holdout/part-00000.parquet"):
            assert (tmp_path / f"a {key}" / name).read_bytes() == (tmp_path / f"b {key}" / name).read_bytes()


@pytest.mark.parametrize(
    "given",
    [
        ("--holdout-share", "0"),
        ("--holdout-share", "1"),
        ("--holdout-share", "nan"),
        ("--holdout-share", "half"),
        ("--seed", "-1"),
        ("--seed", str(2**64)),
        ("--subject-key", "nobody"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: tuple[str, str]
) -> None:
    people(30).to_parquet(tmp_path / "real.parquet", index=False)
    code, out, err = command(
        monkeypatch, capsys, str(tmp_path / "real.parquet"), "--output", str(tmp_path / "out"), *given
    )
    assert (code, out) == (2, "")
    assert sentence(err.rstrip("\n")).startswith("daskpriv: ")
    assert not (tmp_path / "out" / "split.json").exists()


def test_the_command_needs_a_table_and_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ((), (str(tmp_path / "missing.parquet"), "--output", str(tmp_path / "out")), ("x.parquet",)):
        code, _, err = command(monkeypatch, capsys, *given)
        assert code == 2
        assert err.count("\n") == 1


# ------------------------------------------------------------------------------------------- evaluate(split=)


def halves(folder: Path, frame: pd.DataFrame, **options: Any) -> dict[str, Any]:
    """What `evaluate` takes of a split made of this frame."""
    split(frame, folder, **options)
    return {"train": str(folder / "train"), "holdout": str(folder / "holdout"), "split": folder / "split.json"}


def test_only_fair_coins_of_single_rows_allow_a_bound(tmp_path: Path) -> None:
    frame, synthetic = people(150), people(60, seed=1)
    found = {}
    for name, options in (("fair", {}), ("uneven", {"holdout_share": 0.4}), ("people", {"subject_key": "who"})):
        given = halves(tmp_path / name, frame, seed=3, **options)
        for metrics in ("default", "exposure"):
            report = daskpriv.evaluate(**given, synthetic=synthetic, metrics=metrics)
            found[name, metrics] = report.metrics["exposure"].details["epsilon"] is not None
    assert found == {
        (name, m): name == "fair" for name in ("fair", "uneven", "people") for m in ("default", "exposure")
    }


def test_a_split_of_other_tables_is_refused(tmp_path: Path) -> None:
    given = halves(tmp_path / "a", people(150), seed=3)
    other = halves(tmp_path / "b", people(140), seed=3)
    synthetic = people(60, seed=1)
    for wrong in (
        {**given, "split": other["split"]},
        {**given, "train": given["holdout"], "holdout": given["train"]},
        {**given, "holdout": None},
        {**given, "train": people(150)},
    ):
        with pytest.raises(InputError) as error:
            daskpriv.evaluate(**wrong, synthetic=synthetic, metrics="exposure")
        assert sentence(error).startswith("split:")


GOOD = {"daskpriv_split": 1, "holdout_share": 0.5, "subject_key": None, "train": 75, "holdout": 75, "subjects": None}
DAMAGED = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "not UTF-8": b"\xff\xfe",
    "another format": {**GOOD, "daskpriv_split": 2},
    "no format": {k: v for k, v in GOOD.items() if k != "daskpriv_split"},
    "a key too few": {k: v for k, v in GOOD.items() if k != "train"},
    "a key too many": {**GOOD, "seed": 3},
    "rows as text": {**GOOD, "train": "75"},
    "rows as null": {**GOOD, "holdout": None},
    "half a row": {**GOOD, "train": 75.5},
    "a share of 0": {**GOOD, "holdout_share": 0},
    "a share of 2": {**GOOD, "holdout_share": 2},
    "no share": {**GOOD, "holdout_share": None},
    "a share as text": {**GOOD, "holdout_share": "0.5"},
    "a share that is no number": json.dumps(GOOD).replace("0.5", "NaN"),
    "a key that is no name": {**GOOD, "subject_key": ["who"]},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_split_is_refused(tmp_path: Path, damage: str) -> None:
    held = DAMAGED[damage]
    data = held if isinstance(held, bytes) else (held if isinstance(held, str) else json.dumps(held)).encode()
    (tmp_path / "split.json").write_bytes(data)
    with pytest.raises(InputError) as error:
        read_split(tmp_path / "split.json")
    assert sentence(error).startswith("split:")


def test_a_split_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "split.json", tmp_path, "http://127.0.0.1:9/split.json"):
        with pytest.raises(InputError) as error:
            daskpriv.evaluate(train=people(10), holdout=people(9), synthetic=people(8), split=path)
        assert sentence(error).startswith("split:")


def test_a_good_split_is_read(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps(GOOD))
    assert read_split(tmp_path / "split.json") == Split(0.5, None, 75, 75, None)


# ------------------------------------------------------------------------------------------- the bound on epsilon


def smooth(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    x = rng.normal(size=(rows, 3))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + x[:, 1], "c": np.exp(x[:, 2])})


def bound(folder: Path, seed: int, released: Callable[[pd.DataFrame, pd.DataFrame, np.random.Generator], Any]) -> float:
    """The bound for one fair split of 400 rows and what a mechanism releases of it."""
    rng = np.random.default_rng(seed)
    given = halves(folder, smooth(rng, 400), seed=seed)
    train, holdout = (side(folder, name).to_pandas() for name in SIDES)
    synthetic = pd.concat(released(train, holdout, rng), ignore_index=True)
    report = daskpriv.evaluate(**given, synthetic=synthetic, metrics="exposure", seed=seed)
    found = report.metrics["exposure"].details["epsilon"]
    assert found["level"] == 0.95
    return float(found["lower_bound"])


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3.0])
def test_the_bound_seldom_exceeds_the_epsilon_of_randomised_response(tmp_path: Path, epsilon: float) -> None:
    """Every row is released or not by a coin that depends on its side: 15 times, at most 3 bounds are too large.

    More would come by chance once in 180 times. A bound that is always 0 would not do: most are above half of epsilon.
    """
    odds = math.exp(epsilon)

    def released(train: pd.DataFrame, holdout: pd.DataFrame, rng: np.random.Generator) -> list[pd.DataFrame]:
        shares = odds / (1 + odds), 1 / (1 + odds)
        return [t[rng.random(len(t)) < p] for t, p in zip((train, holdout), shares, strict=True)]

    found = np.array([bound(tmp_path / str(s), s, released) for s in range(15)])
    assert np.sum(found > epsilon) <= 3
    assert np.median(found) > (0.5 if epsilon > 1 else 0.2) * epsilon


def test_the_bound_is_mostly_0_without_a_leak(tmp_path: Path) -> None:
    found = [bound(tmp_path / str(s), s, lambda t, h, rng: [smooth(rng, 200)]) for s in range(15)]
    assert sum(b > 0 for b in found) <= 3
