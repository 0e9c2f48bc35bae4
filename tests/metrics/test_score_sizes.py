"""Sizes and controls of the privacy score: a smaller R1 where S is large, and holdout rows scored in its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, Neighbours
from daskpriv.metrics import privacy_score
from daskpriv.metrics.privacy_score import PrivacyScore
from daskpriv.protocol import Result
from tests.metrics import test_privacy_score as plain

Matrices = dict[tuple[str, str], np.ndarray]

# ------------------------------------------------------------------------------------------- the reference


def expected_scores(
    matrices: Matrices, of: str, scored: int, in_r2: int, rows: int, seed: int, rule: str = "measured", splits: int = 10
) -> dict[str, list[float]]:
    """`scored` rows of one table, each searched in real parts of real tables."""
    n_train, n_s, n = len(matrices[TRAIN, TRAIN]), matrices[TRAIN, SYNTHETIC].shape[1], len(matrices[of, TRAIN])
    out: dict[str, list[float]] = {"thresholds": [], "ttpr_fractions": [], "tspr_fractions": [], "scores": []}
    for b in range(splits):
        r1 = plain.shuffled(of, n, seed, b)[:scored]
        r2 = plain.shuffled(TRAIN, n_train, seed, b)[n_train - in_r2 :]
        kept = plain.shuffled(SYNTHETIC, n_s, seed, b)[:rows]
        near = {
            "own": [plain.nearest_in(matrices[of, of][x], [j for j in r1 if j != x]) for x in r1],
            "tt": [plain.nearest_in(matrices[of, TRAIN][x], r2) for x in r1],
            "ts": [plain.nearest_in(matrices[of, SYNTHETIC][x], kept) for x in r1],
        }
        ttpr, tspr = ([plain.ratio(y, e) for y, e in zip(near[k], near["own"], strict=True)] for k in ("tt", "ts"))
        q = plain.threshold_of(ttpr, rule)
        f_tt, f_ts = (sum(v <= q if rule == "measured" else v < q for v in values) / scored for values in (ttpr, tspr))
        above = f_tt if rule == "measured" else 0.05
        out["scores"].append(100 * min(1, above / f_ts) if f_ts else 100.0)
        out["thresholds"].append(q)
        out["ttpr_fractions"].append(f_tt)
        out["tspr_fractions"].append(f_ts)
    return out


def driven(metric: PrivacyScore, matrices: Matrices, seed: int = 0, block: int = 1 << 20) -> Result:
    """All passes over the rows of train and holdout, without an engine."""
    rows = {TRAIN: len(matrices[TRAIN, TRAIN]), SYNTHETIC: matrices[TRAIN, SYNTHETIC].shape[1]}
    if (TRAIN, HOLDOUT) in matrices:
        rows[HOLDOUT] = matrices[TRAIN, HOLDOUT].shape[1]
    facts = Facts(rows, 3, seed)
    answers = [Evidence(SYNTHETIC)]
    for role in (TRAIN, HOLDOUT):
        asked = [r for r in metric.needs(facts) if r.query == role]
        ids = np.arange(rows.get(role, 0))
        answers += [
            Evidence(role, {(role, r.reference): plain.listed(matrices[role, r.reference], r.k, some) for r in asked})
            for some in (ids[i : i + block] for i in range(0, len(ids), block))
        ]
    state: Any = metric.begin(facts)
    for _ in range(20):
        partial: Any = {}
        for evidence in answers:
            partial = metric.combine(metric.chunk(state, evidence), partial)
        state = metric.advance(state, partial, {})
        if isinstance(state, Result):
            return state
    raise AssertionError("never ends")


def between(tables: dict[str, np.ndarray]) -> Matrices:
    return {
        (q, r): plain.apart(tables[q], tables[r], same=q == r) for q in (TRAIN, HOLDOUT) for r in tables if q in tables
    }


def agree(found: Result, matrices: Matrices, seed: int, rule: str) -> None:
    rows = len(matrices[TRAIN, TRAIN]), matrices[TRAIN, SYNTHETIC].shape[1]
    half, details = rows[0] // 2, found.details
    sizes = {"raw": (half, rows[1]), "matched": (min(half, rows[1]),) * 2}
    wanted: dict[str, tuple[str, int, int, int]] = {}
    if details["k_fold"] is not None:
        k = details["k_fold"]["k"]
        scored = math.ceil(rows[0] / k)
        used = min(rows[0] - scored, rows[1])
        wanted["k_fold"] = (TRAIN, scored, used, used)
    if details["holdout_scored"] is not None:
        held = len(matrices[HOLDOUT, HOLDOUT])
        wanted["holdout_scored"] = (HOLDOUT, min(held, rows[0] - half), *sizes[details["headline"]])
        beyond = details["risk_unclipped"] - details["holdout_scored"]["risk_unclipped"]
        assert details["risk_beyond_holdout"] == beyond
    for name, asked in wanted.items():
        block, right = details[name], expected_scores(matrices, *asked, seed=seed, rule=rule)
        assert (block["rows_scored"], block["rows_reference"], block["rows_compared"]) == asked[1:]
        assert block["n_undecided"] == 0
        for key in ("thresholds", "ttpr_fractions", "tspr_fractions"):
            assert block[key] == right[key], (name, key)
        assert block["scores"] == pytest.approx(right["scores"], abs=1e-12)
        assert block["score"] == pytest.approx(np.mean(right["scores"]))


@st.composite
def worlds(draw: Any) -> Matrices:
    """Distances with ties, zeros and infinities, small enough that every list is complete."""
    n = {TRAIN: draw(st.integers(2, 30)), HOLDOUT: draw(st.integers(1, 20)), SYNTHETIC: draw(st.integers(1, 40))}
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    values = np.array([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, np.inf])[: draw(st.integers(2, 8))]
    out: Matrices = {}
    for q, r in ((TRAIN, TRAIN), (HOLDOUT, HOLDOUT), (TRAIN, HOLDOUT), (TRAIN, SYNTHETIC), (HOLDOUT, SYNTHETIC)):
        out[q, r] = rng.choice(values, (n[q], n[r]))
        if q == r:
            out[q, r] = np.minimum(out[q, r], out[q, r].T)
            np.fill_diagonal(out[q, r], np.inf)
    out[HOLDOUT, TRAIN] = out[TRAIN, HOLDOUT].T
    return out


@settings(max_examples=25, derandomize=True)
@given(worlds(), st.sampled_from(["measured", "published"]), st.integers(0, 2**64 - 1), st.integers(1, 30))
def test_equals_searches_in_real_parts(matrices: Matrices, rule: str, seed: int, block: int) -> None:
    agree(driven(PrivacyScore(rule=rule), matrices, seed, block), matrices, seed, rule)


@pytest.mark.parametrize(("n_s", "n_h"), [(30, 20), (45, 61), (200, 20)])
def test_equals_searches_in_real_parts_of_longer_tables(n_s: int, n_h: int) -> None:
    rng = np.random.default_rng(n_s)
    matrices = between({r: plain.cloud(rng, n, 2) for r, n in ((TRAIN, 61), (SYNTHETIC, n_s), (HOLDOUT, n_h))})
    found = driven(PrivacyScore(), matrices, seed=3)
    assert found.details["holdout_scored"] is not None
    assert (found.details["k_fold"] is None) == (n_s == 30)
    agree(found, matrices, 3, "measured")


WRONG: dict[str, Any] = {
    "_folds": lambda facts: 4,
    "_headline": lambda facts: "raw",
    "_STREAMS": {**privacy_score._STREAMS, HOLDOUT: 1},
}


@pytest.mark.parametrize("broken", WRONG)
def test_a_broken_part_is_noticed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    matrices = between({r: plain.cloud(rng, n, 2) for r, n in ((TRAIN, 60), (SYNTHETIC, 50), (HOLDOUT, 40))})
    right = driven(PrivacyScore(), matrices)
    agree(right, matrices, 0, "measured")
    monkeypatch.setattr(privacy_score, broken, WRONG[broken])
    found = driven(PrivacyScore(), matrices).details
    assert found["raw"] == right.details["raw"]
    pretended = {**found, "headline": "matched", "k_fold": {**found["k_fold"], "k": 5}}
    with pytest.raises(AssertionError):
        agree(Result(None, details=pretended), matrices, 0, "measured")


# ------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("train", "rows", "k"),
    [
        (100, 50, None),
        (100, 55, None),
        (100, 56, 3),
        (100, 66, 3),
        (100, 67, 4),
        (100, 75, 4),
        (100, 76, 5),
        (100, 80, 5),
        (100, 81, 5),
        (100, 10_000, 5),
        (2, 1, None),
        (2, 2, 5),
        (3, 2, 3),
    ],
)
def test_r1_is_as_large_as_it_can_be_while_r2_has_the_size_of_s(train: int, rows: int, k: int | None) -> None:
    facts = Facts({TRAIN: train, SYNTHETIC: rows}, 1)
    assert privacy_score._folds(facts) == k
    found = {c.name: c for c in privacy_score._comparisons(facts)}
    assert ("k_fold" in found) == (k is not None)
    if k is not None:
        c = found["k_fold"]
        assert c.in_r2 == c.rows == min(rows, train - math.ceil(train / k))
        assert c.scored == math.ceil(train / k)
        assert c.scored + c.in_r2 <= train


def test_what_is_searched_for() -> None:
    few = PrivacyScore().needs(Facts({TRAIN: 1000, SYNTHETIC: 500}, 1))
    assert few == [Neighbours(TRAIN, SYNTHETIC, 1), Neighbours(TRAIN, TRAIN, 40)]
    found = PrivacyScore().needs(Facts({TRAIN: 1000, SYNTHETIC: 1000, HOLDOUT: 400}, 1))
    lists = {(r.query, r.reference): r.k for r in found}
    assert lists[TRAIN, TRAIN] == 62  # a fifth of train is missed by one list of 62 in a million
    assert lists[TRAIN, SYNTHETIC] == lists[HOLDOUT, SYNTHETIC] == 20
    assert lists[HOLDOUT, TRAIN] == 20
    assert lists[HOLDOUT, HOLDOUT] == lists[TRAIN, HOLDOUT] == 1
    alone = PrivacyScore().needs(Facts({TRAIN: 1000, SYNTHETIC: 500, HOLDOUT: 1}, 1))
    assert {r.query for r in alone} == {TRAIN}  # one row has no other to be near to


def test_copies_weigh_more_where_r1_is_small() -> None:
    """As many synthetic rows as training rows, a fifth of them copies: matching halves these, five folds do not."""
    rng = np.random.default_rng(0)
    train, fresh = plain.cloud(rng, 300), plain.cloud(rng, 300)
    copied = np.concatenate([fresh[:240], train[:60]])
    harmless = driven(PrivacyScore(), between({TRAIN: train, SYNTHETIC: fresh})).details
    leaky = driven(PrivacyScore(), between({TRAIN: train, SYNTHETIC: copied})).details
    assert harmless["k_fold"]["k"] == leaky["k_fold"]["k"] == 5
    assert harmless["raw"]["score"] < 75 < harmless["k_fold"]["score"]
    assert leaky["k_fold"]["score"] < leaky["matched"]["score"] - 5
    assert leaky["k_fold"]["risk"] > 1.3 * leaky["matched"]["risk"]


# ------------------------------------------------------------------------------------------- the holdout, scored


def test_without_a_leak_the_holdout_scores_alike() -> None:
    rng, beyond, scores = np.random.default_rng(2), [], []
    for i in range(16):
        tables = {TRAIN: plain.cloud(rng, 200), SYNTHETIC: plain.cloud(rng, 100), HOLDOUT: plain.cloud(rng, 100)}
        found = driven(PrivacyScore(splits=4), between(tables), seed=i).details
        beyond.append(found["risk_beyond_holdout"])
        scores.append((found["score"], found["holdout_scored"]["score"]))
    assert abs(np.mean(beyond)) < 3 * np.std(beyond) / 4 < 0.03
    assert abs(np.subtract(*np.mean(scores, axis=0))) < 8


def test_copies_behind_bad_fidelity_show_beyond_the_holdout() -> None:
    """The score is 100 and the risk below 0; the holdout tells that a good table of such fidelity has a lower one."""
    rng = np.random.default_rng(12)
    train, far = plain.cloud(rng, 400), plain.cloud(rng, 192) + 9
    tables = {TRAIN: train, SYNTHETIC: np.concatenate([far, train[:8]]), HOLDOUT: plain.cloud(rng, 200)}
    found = driven(PrivacyScore(), between(tables)).details
    assert found["score"] == 100.0
    assert found["risk_unclipped"] < 0
    assert found["holdout_scored"]["tspr_fraction"] == 0.0
    assert found["risk_beyond_holdout"] > 0.01


def test_with_copies_the_holdout_still_scores_well() -> None:
    rng = np.random.default_rng(3)
    train, fresh = plain.cloud(rng, 300), plain.cloud(rng, 150)
    tables = {TRAIN: train, SYNTHETIC: np.concatenate([fresh[:110], train[:40]]), HOLDOUT: plain.cloud(rng, 150)}
    found = driven(PrivacyScore(), between(tables))
    assert found.details["score"] < 65 < 75 < found.details["holdout_scored"]["score"]
    assert found.details["risk_beyond_holdout"] > 0.05
    assert f"training rows {found.details['holdout_scored']['score']:.1f}." in found.reading


def test_no_holdout_and_one_row_of_it() -> None:
    rng = np.random.default_rng(4)
    tables = {TRAIN: plain.cloud(rng, 40), SYNTHETIC: plain.cloud(rng, 20)}
    for more in ({}, {HOLDOUT: plain.cloud(rng, 1)}):
        details = driven(PrivacyScore(), between({**tables, **more})).details
        assert details["holdout_scored"] is None
        assert details["risk_beyond_holdout"] is None


@pytest.mark.parametrize("block_rows", [None, 7])
def test_the_engine_tells_the_same(block_rows: int | None) -> None:
    rng = np.random.default_rng(5)
    tables = plain.rows_of(rng, 50), plain.rows_of(rng, 70), plain.rows_of(rng, 24)
    found, _ = plain.scored(*tables, seed=7, block_rows=block_rows)
    tt, ts, th = plain.matrices(*tables)
    ranges = {c.name: plain.column_range(c, tables[0], tables[2]) for c in plain.COLUMNS}
    hs, hh = (np.array(plain.distances(plain.COLUMNS, tables[2], t, ranges, "level")) for t in tables[1:])
    np.fill_diagonal(hh, np.inf)
    every = {(TRAIN, TRAIN): tt, (TRAIN, SYNTHETIC): ts, (TRAIN, HOLDOUT): th}
    every |= {(HOLDOUT, TRAIN): th.T, (HOLDOUT, SYNTHETIC): hs, (HOLDOUT, HOLDOUT): hh}
    agree(found, every, 7, "measured")
    assert found.details["holdout_scored"] is not None
    assert found.details["k_fold"]["k"] == 5
