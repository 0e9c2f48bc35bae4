"""The studies of benchmarks/validity run, count what they say they count, and name tests that are there."""

from __future__ import annotations

import argparse
import ast
import math
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import daskpriv
from benchmarks.validity import (
    __main__ as program,
)
from benchmarks.validity import (
    bias,
    discovery,
    epsilon,
    goals,
    large,
    leaks,
    monotone,
    null,
    peers,
    power,
    suites,
    trials,
    worlds,
)

ROOT = Path(__file__).parent.parent


def world(n: int = 300, base: str = "ideal") -> worlds.World:
    return worlds.BASES[base](n, worlds.rng_of(0))


def rows_of(frame: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(frame.itertuples(index=False, name=None))


# ------------------------------------------------------------------------------------------------------ the worlds


@pytest.mark.parametrize("leak", leaks.FOR_ROWS)
def test_a_leak_has_as_many_rows_as_asked_and_keeps_the_others(leak: str) -> None:
    before = world()
    after = leaks.leaking(before, leak, 30, worlds.rng_of(1))
    assert len(after.synthetic) == 300 and len(set(after.copied)) == 30
    assert list(after.synthetic) == list(before.train)
    assert len(rows_of(after.synthetic) & rows_of(before.synthetic)) >= 269  # a copy may equal a row it replaced
    copies = len(rows_of(after.synthetic) & rows_of(before.train))
    assert (copies >= 29) == (leak in ("verbatim", "rare subgroup"))


def test_whole_people_leak_and_nobody_is_on_both_sides() -> None:
    before = world(200, "subjects")
    after = leaks.leaking(before, "whole people", 20, worlds.rng_of(1))
    assert set(before.train["person"].iloc[after.copied].value_counts()) == {4}
    assert not set(before.train["person"]) & set(before.holdout["person"])
    with pytest.raises(worlds.NoWorldError):
        leaks.leaking(world(), "whole people", 20, worlds.rng_of(1))


def test_a_larger_nested_leak_holds_the_smaller_one() -> None:
    held = [monotone.nested(world(100), "verbatim", p, 0) for p in monotone.GRID]
    fresh = [rows_of(h.synthetic) - rows_of(h.train) for h in held]
    assert all(b <= a for a, b in pairwise(fresh)) and not fresh[-1]
    assert all(set(a.copied) <= set(b.copied) for a, b in pairwise(held))


def test_a_large_world_holds_its_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large.census, "_FILE_ROWS", 100)
    tables = {name: pd.read_parquet(path) for name, path in large.made(tmp_path, 250, 7, 0).items()}
    assert [len(t) for t in tables.values()] == [250] * 3
    assert len(rows_of(tables["synthetic"]) & rows_of(tables["train"])) == 7
    assert not rows_of(tables["holdout"]) & rows_of(tables["train"])


@pytest.mark.parametrize("name", epsilon.MECHANISMS)
def test_without_noise_a_mechanism_releases_train(name: str) -> None:
    source, mechanism = epsilon.MECHANISMS[name]
    real, is_train = source(200, worlds.rng_of(0)), np.arange(200) % 2 == 0
    released = mechanism(real, is_train, 50.0, worlds.rng_of(1))
    assert sorted(released.itertuples(index=False)) == sorted(real[is_train].itertuples(index=False))


# ----------------------------------------------------------------------------------------------------- the studies


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("null --suite subjects --draws 1 --metrics dcr_share", ["V1 single tests", "V1 whole report"]),
        ("power --n 200 --rows 60 --leak verbatim --peers", ["V2 ideal, 0 of 200", "V2 ideal, 60 of 200", "Clearbox"]),
        ("large --rows 400 --trials 1 --copies 20 --metrics clones,dcr_share", ["V3 20 verbatim", "V3 MDE"]),
        ("bias --n 200 --trials 2 --percent 5", ["V4 ideal, 5 %"]),
        ("discovery --n 200 --leak verbatim", ["V5 ideal, 0 %", "V5 ideal, 1 %", "V5 ideal, 5 %"]),
        ("monotone --n 60", ["V6 ideal verbatim"]),
        ("epsilon --n 200 --epsilon 1", ["V8 randomised response", "V8 Laplace histogram"]),
    ],
)
def test_a_study_says_what_it_measured(
    command: str, said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monotone, "GRID", (0, 50, 100))
    name, *more = command.split()
    few = [] if "--trials" in more or name == "null" else ["--trials", "1"]
    assert program.main([name, *more, *few, "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(line in printed for line in said)
    assert "CPU s per trial" in printed


def test_what_cannot_be_made_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["bias", "--n", "30000", "--trials", "1", "--processes", "1"]) == 2
    assert "take a smaller --n" in capsys.readouterr().err


def test_planted_copies_are_found_and_nothing_else() -> None:
    found, clean = (power.trial(("ideal", "verbatim", rows, 300, 0, "default", False)) for rows in (60, 0))
    assert trials.rejects(found) and found["report"]
    assert not trials.rejects(clean) and not clean["report"]


def test_the_bias_is_measured_against_what_was_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("ideal", 10.0, 200, 0, mirrored) for mirrored in (False, True)]

    def bias_of() -> float:
        return float(np.mean([o["excess"] - o["planted"] for o in map(bias.trial, asked)]))

    assert abs(bias_of()) < 1e-12
    monkeypatch.setitem(leaks.LEAKS, "verbatim", leaks.LEAKS["noisy"])
    assert abs(bias_of()) > 1e-3


def test_every_verbatim_copy_is_listed() -> None:
    found = discovery.trial(("ideal", "verbatim", 10.0, 300, 0))
    assert found["true"] == found["copied"] == 30 and found["listed"] < 40


def test_repeated_synthetic_rows_change_no_p_value() -> None:
    """The density attack counts synthetic rows, repeated ones too: it is exact for both, but not the same."""
    leaked = leaks.leaking(world(), "jittered", 30, worlds.rng_of(3))

    def p_values(times: int) -> dict[str, float]:
        synthetic = pd.concat([leaked.synthetic] * times, ignore_index=True)
        found = daskpriv.evaluate(leaked.train, synthetic, leaked.holdout, metrics="all").tests
        return {name: p for name, (p, _) in found.items() if "density" not in name}

    once = p_values(1)
    assert len(once) > 15 and min(once.values()) < 0.05
    assert once == p_values(3)


# -------------------------------------------------------------------------------------------------- the reckoning


def test_no_trial_is_made_twice(tmp_path: Path) -> None:
    made: list[Any] = []

    def trial(asked: trials.Asked) -> trials.Outcome:
        made.append(asked)
        return {"square": asked[0] ** 2}

    options = argparse.Namespace(processes=1, output=str(tmp_path / "kept.jsonl"))
    assert [o["square"] for o in trials.run("a", trial, [(1,), (2,)], options)] == [1, 4]
    assert [o["square"] for o in trials.run("a", trial, [(2,), (3,), (1,)], options)] == [4, 9, 1]
    assert [o["square"] for o in trials.run("b", trial, [(1,)], options)] == [1]
    assert made == [(1,), (2,), (3,), (1,)]


@pytest.mark.parametrize(
    ("hits", "of", "least", "most", "state"),
    [
        (5, 100, 0.035, 0.065, "met"),
        (8, 100, 0.0, 0.05, "open"),
        (20, 100, 0.0, 0.05, "MISSED"),
        (90, 100, 0.95, 1.0, "open"),
        (50, 100, 0.95, 1.0, "MISSED"),
    ],
)
def test_a_goal_is_missed_when_the_interval_says_so(hits: int, of: int, least: float, most: float, state: str) -> None:
    assert trials.Rate(hits, of).within(least, most) == state


def test_the_null_goals_count_tests_verdicts_and_reports() -> None:
    outcome = {"overall": 0.5, "report": False, "verdicts": {"m": "BOUNDED"}, "tests": {"t": 0.5}}
    wrong = {"overall": 0.01, "report": True, "verdicts": {"m": "LEAK"}, "tests": {"t": 0.01}}
    fair = null.goal({"a": [outcome] * 95 + [wrong] * 5})
    assert all(line.endswith("  met") for line in fair)
    bad = null.goal({"a": [outcome] * 95 + [wrong] * 5, "b": [outcome] * 70 + [wrong] * 30})
    assert all(line.endswith("  MISSED") for line in bad)
    assert "5.0 to 30.0 % (b: t); 1 of 2 above 6.5 %" in bad[0]


def test_steps_back_are_seen() -> None:
    assert monotone._step_back([0.0, 1.0, 1.0, 2.0]) == 0.0
    assert monotone._step_back([0.0, 2.0, 1.0, 4.0]) == 0.25
    assert math.isinf(monotone._step_back([0.0, math.nan, 1.0]))
    theirs = {monotone._THEIRS[1:]: 0.0}
    run = [{"scores": {"s": float(i != 4), **theirs}, "report": i != 4, "cpu": 0.0} for i in range(11)]
    *lines, last = monotone.told("made up", 1, run)
    assert lines[0].startswith("    s: goes back in 1 of 1 worlds, at most 100.0 %")
    assert "0 of 1 scores" in last and "back from LEAK 1 times" in last


def test_peers_alarm_above_their_limits() -> None:
    names = [p.name for p in peers.PEERS]
    null_scores = [{"peers": dict.fromkeys(names, i / 100)} for i in range(100)]
    leaked = [{"peers": dict.fromkeys(names, s)} for s in (None, 0.1, 0.6, 0.97)]
    first = peers.alarms(leaked, null_scores)[0]
    assert first.startswith(f"    {names[0]}") and peers.PEERS[0].limit == 0.5
    assert first.split()[-8:] == ["66.7", "%", "with", "an", "ideal", "limit", "33.3", "%"]


def test_what_the_goals_name_is_there() -> None:
    assert [g.name for g in goals.GOALS] == [f"V{i}" for i in range(1, 10)]
    for goal in goals.GOALS:
        assert goal.commands or goal.tests
        for test in goal.tests:
            path, _, function = test.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            assert not function or function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        for command in goal.commands:
            name = shlex.split(command)[3]
            assert name in program.STUDIES


def test_every_suite_has_its_own_draws() -> None:
    assert len(suites.SUITES) == 10
    assert sorted(suites.PLACE.values()) == list(range(11))
    assert worlds.rng_of(1, 2).random() != worlds.rng_of(1, 3).random()
    assert worlds.rng_of(1, "ideal").random() == worlds.rng_of(1, "ideal").random()
