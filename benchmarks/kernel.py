"""The search kernel alone, on one core, against the plain float64 loop it must equal bit for bit."""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np

from benchmarks.tables import adult_like
from daskpriv.engine.executor import Serial
from daskpriv.engine.plan import Layout
from daskpriv.engine.run import Engine
from daskpriv.engine.tasks import search
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.space.block import Block
from daskpriv.space.gower import GowerSpace, SpaceOptions
from daskpriv.tables.open import open_table


@numba.njit(nogil=True)
def _plain(
    qn: np.ndarray,
    qc: np.ndarray,
    rn: np.ndarray,
    rc: np.ndarray,
    group: np.ndarray,
    index: np.ndarray,
    scale: np.ndarray,
) -> np.ndarray:  # pragma: no cover - compiled
    out = np.empty(len(qn))
    for i in range(len(qn)):
        best = np.inf
        for j in range(len(rn)):
            s = 0.0
            for k in range(len(group)):
                c = index[k]
                s += (
                    min(abs(qn[i, c] - rn[j, c]) / scale[k], 1.0)
                    if group[k] == 0
                    else (1.0 if qc[i, c] != rc[j, c] else 0.0)
                )
            best = min(best, s / len(group))
        out[i] = best
    return out


def prepared(queries: int, references: int) -> tuple[Block, Block, GowerSpace]:
    """Two encoded tables and their space."""
    rows = max(queries, references)
    engine = Engine(Serial(), Layout(rows, rows))
    tables = {
        "reference": open_table(adult_like(references, 1), "reference"),
        "query": open_table(adult_like(queries, 2), "query"),
    }
    surveyed = survey(engine, tables, Columns(), ("reference",))
    ready = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("reference", "query"))
    return ready.blocks["query"].handles[0], ready.blocks["reference"].handles[0], ready.spaces["query", "reference"]


def run(tiny: bool) -> dict[str, Any]:
    """Billions of pairs per second of one core, and the ratio to the plain loop in the same run."""
    references, queries = (2_000, 500) if tiny else (24_421, 10_000)
    query, reference, space = prepared(queries, references)
    plain_rows = queries // 5
    plain_args = (query.numbers[:plain_rows], query.codes[:plain_rows], reference.numbers, reference.codes)
    rest = (space.group, space.index, space.scale)
    _plain(*(a[:10] for a in plain_args), *rest)
    search(query.take(np.arange(10)), 2, [reference], space, False)
    begun = time.perf_counter()
    expected = _plain(*plain_args, *rest)
    plain = plain_rows * references / (time.perf_counter() - begun)
    begun = time.perf_counter()
    found = search(query, 2, [reference], space, False)
    ours = queries * references / (time.perf_counter() - begun)
    return {
        "queries": queries,
        "references": references,
        "gpairs_per_s": ours / 1e9,
        "plain_gpairs_per_s": plain / 1e9,
        "times_plain": ours / plain,
        "bit_identical": bool(np.array_equal(found.nearest[:plain_rows], expected)),
    }
