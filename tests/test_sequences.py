"""Event tables: flat rows against plain pandas, and what must not change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskpriv.engine.executor import Serial
from daskpriv.prepare import Columns
from daskpriv.runs import Place
from daskpriv.sequences import EventTables, Sequencing, flattened
from daskpriv.tables.open import open_table

_ALL = 2**64 - 1


def scrambled(x: int) -> int:
    """splitmix64, in plain integers."""
    z = (x + 0x9E3779B97F4A7C15) & _ALL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)


def by_hand(events: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Flat rows of events with whole-number keys and no ties, subject by subject."""
    out = []
    for who, mine in events.groupby("who"):
        mine = mine.sort_values("day")
        drawn = scrambled(scrambled(int(who)) ^ scrambled(seed)) % max(len(mine) - 1, 1)
        this = mine.iloc[drawn]
        following = mine.iloc[drawn + 1] if len(mine) > 1 else this * np.nan
        row = {"who": who, "x": this["x"], "y": this["y"], "next_x": following["x"], "next_y": following["y"]}
        out.append({**row, "sequence_length": len(mine), "hash": scrambled(int(who))})
    return pd.DataFrame(out).sort_values("hash").drop(columns="hash").reset_index(drop=True)


def events(seed: int, subjects: int = 60, longest: int = 6, first: int = 0) -> pd.DataFrame:
    """Events of `subjects` people, no two of one person on one day, in random order."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, subjects)
    frame = pd.DataFrame(
        {
            "who": np.repeat(np.arange(first, first + subjects), lengths),
            "day": np.concatenate([rng.permutation(50)[:n] for n in lengths]),
            "x": rng.integers(0, 5, lengths.sum()).astype(float),
            "y": rng.normal(size=lengths.sum()).round(2),
        }
    )
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def flat(table: Any, seed: int = 0, executor: Any = None, columns: Columns | None = None, **options: Any) -> pa.Table:
    """The flat rows of one table."""
    asked = Sequencing.of("who", "day", options.get("subjects"))
    tables = {"train": open_table(table, "train")}
    opened = EventTables.of(asked, tables, columns or Columns())
    executor = executor or Serial()
    with flattened(opened, tables, executor, options.get("place", Place()), seed) as found:
        made = found.tables["train"]
        return pa.concat_tables(p.read(made.schema.names) for p in made.parts(10**6))


def test_flat_rows_are_those_of_plain_pandas() -> None:
    held = events(1)
    for seed in (0, 7, 2**64 - 1):
        pd.testing.assert_frame_equal(flat(held, seed).to_pandas(), by_hand(held, seed))


def test_flat_rows_of_the_smallest_table() -> None:
    held = pd.DataFrame({"who": ["a", "b", "b"], "day": [1, 5, 2], "shop": ["x", "y", "z"]})
    found = {row["who"]: row for row in flat(held).to_pylist()}
    assert found["a"] == {"who": "a", "shop": "x", "next_shop": None, "sequence_length": 1}
    assert found["b"] == {"who": "b", "shop": "z", "next_shop": "y", "sequence_length": 2}


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_no_layout_changes_flat_rows(seed: int, lanes: int, cuts: int) -> None:
    """Order of rows, files, lanes: ties, copies of events and missing cells included."""
    rng = np.random.default_rng(seed)
    held = events(seed % 1000, subjects=20)
    held["day"] //= 10
    held["x"] = held["x"].mask(rng.random(len(held)) < 0.2)
    held = pd.concat([held, held.sample(5, random_state=1)])
    expected = flat(held)
    shuffled = held.sample(frac=1, random_state=seed % 99)
    pieces = [p for p in np.array_split(np.arange(len(held)), cuts) if len(p)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskpriv.engine.flattening.lane_count", lambda *_: lanes)
        patch.setattr("daskpriv.sequences.READ_ROWS", max(len(pieces[0]) - 1, 1))
        assert flat(shuffled).equals(expected)
