"""The check of the split: partners by plain loops, what it refuses, and how often it errs."""

from __future__ import annotations

import json
import math
import signal
from typing import Any, ClassVar

import jsonschema
import numpy as np
import pandas as pd
import pytest

import daskpriv
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, NeighbourTable
from daskpriv.metrics import SplitCheck
from daskpriv.protocol import Result
from daskpriv.report.model import report_schema
from tests import reference as ref
from tests.metrics import by_hand, searched

CHOICE = 0x7F4A7C159E3779B9
LISTED = 5
MIXED, APART = "train and holdout are mixed", "holdout is apart from train"


class Seen(SplitCheck):
    """The same check, under a name that the report keeps."""

    name: ClassVar[str] = "seen"


def checked(train: pd.DataFrame, holdout: pd.DataFrame, **options: Any) -> tuple[dict[str, Any], dict[str, bool]]:
    """What the check found, and which of the two gates that rest on it are passed; any synthetic table will do."""
    report = daskpriv.evaluate(train=train, holdout=holdout, synthetic=train.head(3), metrics=[Seen()], **options)
    jsonschema.validate(json.loads(report.to_json()), report_schema())
    return report.metrics["seen"].details, {g["name"]: g["passed"] for g in report.gates}


def cut(table: pd.DataFrame, rng: np.random.Generator, n_train: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A random split."""
    shuffled = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    return shuffled.head(n_train), shuffled.iloc[n_train:].reset_index(drop=True)


def smooth(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    x = rng.normal(size=(rows, 3))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + x[:, 1], "c": np.exp(x[:, 2])})


# ------------------------------------------------------------------------------------------- the reference


def partners(own: np.ndarray, n_train: int) -> tuple[list[int], list[float]]:
    """Of each row the nearest other one; among equals a table by its number of them, then one of its first five."""
    dice = by_hand.hashes(CHOICE, range(len(own)))
    found, distance = [], []
    for place, line in enumerate(own):
        nearest = float(line.min())
        equals = [j for j in range(len(own)) if j != place and line[j] == nearest and nearest < math.inf]
        sides = [[j for j in equals if j < n_train], [j for j in equals if j >= n_train]]
        distance.append(nearest)
        if not equals:
            found.append(-1)
            continue
        high, low = divmod(int(dice[place]), 2**32)
        side = sides[high % len(equals) >= len(sides[0])]
        found.append(side[low % min(len(side), LISTED)])
    return found, distance


def compared(rows: list[int], partner: list[int], n_train: int, labels: np.ndarray) -> dict[str, Any]:
    if not rows:
        return {"pairs": 0, "agreement": None, "expected": None, "p_value": 1.0, "p_too_few": 1.0}
    same = sum((i < n_train) == (partner[i] < n_train) for i in rows)
    drawn = np.array([sum(label[i] == label[partner[i]] for i in rows) for label in labels])
    away = np.abs(drawn - drawn.mean()) >= abs(same - drawn.mean()) - 1e-9
    return {
        "pairs": len(rows),
        "agreement": same / len(rows),
        "expected": drawn.mean() / len(rows),
        "p_value": (1 + away.sum()) / 2000,
        "p_too_few": (1 + (drawn <= same).sum()) / 2000,
    }


@pytest.mark.parametrize(
    ("n_train", "n_holdout", "repeats", "missing"),
    [(40, 30, 1, "level"), (12, 33, 3, "level"), (40, 25, 13, "level"), (20, 9, 1, "anonymeter"), (2, 1, 1, "level")],
)
def test_every_number_is_that_of_plain_loops(n_train: int, n_holdout: int, repeats: int, missing: str) -> None:
    rng = np.random.default_rng(n_train)
    n = n_train + n_holdout
    rows = {k: (v * repeats)[:n] for k, v in searched.mixed(rng, -(-n // repeats)).items()}
    rows = {k: [v[i] for i in np.random.default_rng(1).permutation(n)] for k, v in rows.items()}
    tables = {k: v[:n_train] for k, v in rows.items()}, {k: v[n_train:] for k, v in rows.items()}
    ranges = ref.ranges_for("real", searched.COLUMNS, rows, rows, tables, tables)
    own = np.array(ref.distances(searched.COLUMNS, rows, rows, ranges, missing))
    np.fill_diagonal(own, np.inf)
    partner, distance = partners(own, n_train)
    some = [i for i in range(n) if partner[i] >= 0]
    twins = [i for i in some if distance[i] == 0]
    labels = by_hand.drawn_labels(n_train, n_holdout, 5)
    details, _ = checked(*(searched.frame(t) for t in tables), seed=5, missing=missing)
    assert details["nearest"] == pytest.approx(compared(some, partner, n_train, labels), abs=1e-12)
    assert details["twins"] == pytest.approx(compared(twins, partner, n_train, labels), abs=1e-12)
    assert repeats < 3 or len(twins) > n // 2
    assert missing == "level" or len(some) < n


# ------------------------------------------------------------------------------------------- what it says


def test_a_sorted_split_is_refused() -> None:
    """Train holds the smaller half of one column: no copying, yet everything would look like a leak."""
    table = smooth(np.random.default_rng(0), 300).sort_values("a", ignore_index=True)
    details, passed = checked(table.head(150), table.tail(150).reset_index(drop=True))
    assert not passed[MIXED]
    assert details["nearest"]["p_value"] == 1 / 2000
    assert details["nearest"]["agreement"] > 0.75


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_contaminated_holdout_is_refused(share: float) -> None:
    """Holdout rows that repeat training rows hide their copies."""
    rng = np.random.default_rng(1)
    train, holdout = cut(smooth(rng, 400), rng, 200)
    holdout.iloc[: int(200 * share)] = train.iloc[rng.permutation(200)[: int(200 * share)]]
    details, passed = checked(train, holdout)
    assert not passed[APART]
    assert details["twins"]["p_too_few"] == 1 / 2000
    assert details["twins"]["agreement"] == 0.0


def test_a_verdict_rests_on_the_gates() -> None:
    table = smooth(np.random.default_rng(2), 240).sort_values("a", ignore_index=True)
    report = daskpriv.evaluate(
        train=table.head(120), holdout=table.tail(120), synthetic=smooth(np.random.default_rng(3), 100), metrics="all"
    )
    judged = {n for n, m in report.metrics.items() if m.tests}
    assert judged >= {"dcr_share", "membership_inference", "exposure", "nndr", "dcr_overlap"}
    assert {report.metrics[n].verdict.value for n in judged} == {"NOT_INTERPRETABLE"}
    assert report.verdict == "NOT_INTERPRETABLE"


# ------------------------------------------------------------------------------------------- how often it errs


def kinds(kind: str, rng: np.random.Generator) -> tuple[pd.DataFrame, int]:
    """A table and how many of its rows are train."""
    if kind == "smooth":
        return smooth(rng, 120), 60
    if kind == "uneven":
        return smooth(rng, 120), 96
    distinct = smooth(rng, 6 if kind == "six rows" else 50)
    return distinct.iloc[rng.integers(0, len(distinct), 120)].reset_index(drop=True), 84


@pytest.mark.parametrize("kind", ["smooth", "uneven", "six rows", "fifty rows"])
def test_random_splits_pass(kind: str) -> None:
    """40 random splits, duplicates or not: of each p-value at most 6 up to 5 % (by chance once in 290 times)."""
    small, refused = {"p_value": 0, "p_too_few": 0, "twins": 0}, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        table, n_train = kinds(kind, rng)
        details, passed = checked(*cut(table, rng, n_train), seed=seed)
        for key in ("p_value", "p_too_few"):
            small[key] += details["nearest"][key] <= 0.05
        small["twins"] += details["twins"]["p_too_few"] <= 0.05
        refused += not (passed[MIXED] and passed[APART])
    assert max(small.values()) <= 6
    assert refused <= 3


# ------------------------------------------------------------------------------------------- layout, degenerate tables


def test_no_cut_into_blocks_changes_a_bit() -> None:
    rng = np.random.default_rng(4)
    train, holdout = (searched.frame(searched.mixed(rng, n)) for n in (50, 33))
    assert checked(train, holdout, block_rows=7) == checked(train, holdout)


def test_without_a_holdout_there_is_nothing_to_check() -> None:
    train = smooth(np.random.default_rng(5), 20)
    report = daskpriv.evaluate(train=train, synthetic=train, metrics=[Seen()])
    found = report.metrics["seen"]
    assert (found.value, found.p_value, found.verdict, found.details) == (None, None, "NOT_EVALUATED", {})
    assert {MIXED, APART}.isdisjoint(g["name"] for g in report.gates)


def test_equal_rows_agree_as_random_labels_do() -> None:
    frame = pd.DataFrame({"a": [3] * 40})
    details, passed = checked(frame.head(30), frame.tail(10))
    assert details["nearest"] == details["twins"]
    assert details["nearest"]["pairs"] == 40
    assert min(details["nearest"]["p_value"], details["twins"]["p_too_few"]) > 0.01
    assert passed[MIXED] and passed[APART]


def test_one_real_row_on_each_side() -> None:
    """Each is the other's partner, in every draw."""
    lists = np.full((1, LISTED), math.inf), np.full((1, LISTED), -1, np.int64)
    alone = NeighbourTable(np.array([0]), *lists, np.array([0]))
    near = NeighbourTable(np.array([0]), *(x.copy() for x in lists), np.array([1]))
    near.distance[0, 0], near.row[0, 0] = 0.5, 0
    metric, facts = SplitCheck(), Facts({TRAIN: 1, HOLDOUT: 1, SYNTHETIC: 1}, 1)
    state: Any = metric.begin(facts)
    partial = metric.chunk(state, Evidence(SYNTHETIC))
    for one, other in ((TRAIN, HOLDOUT), (HOLDOUT, TRAIN)):
        partial = metric.combine(metric.chunk(state, Evidence(one, {(one, one): alone, (one, other): near})), partial)
    found = metric.advance(state, partial, {})
    assert isinstance(found, Result)
    assert found.details["nearest"] == {"pairs": 2, "agreement": 0.0, "expected": 0.0, "p_value": 1.0, "p_too_few": 1.0}
    assert found.details["twins"]["pairs"] == 0


def stopped(*_: Any) -> None:
    raise TimeoutError("no end in sight")


def test_a_check_that_was_asked_for_is_in_the_report() -> None:
    """The gates make the same check; the one asked for must neither be taken away with it nor keep the run busy."""
    rng = np.random.default_rng(6)
    train, holdout = cut(smooth(rng, 60), rng, 30)
    before = signal.signal(signal.SIGALRM, stopped)
    signal.alarm(20)
    try:
        report = daskpriv.evaluate(train=train, holdout=holdout, synthetic=train, metrics=[SplitCheck()])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert list(report.metrics) == ["split_check"]
