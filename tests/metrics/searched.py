"""Small mixed tables, their distances by plain float64 loops, and metrics run on them without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Evidence, Facts, NeighbourTable
from daskpriv.protocol import Metric, Result
from tests import reference as ref

COLUMNS = (ref.Col("age", "numeric"), ref.Col("city", "nominal"), ref.Col("score", "numeric"))
Matrices = Mapping[tuple[str, str], np.ndarray]


def mixed(rng: np.random.Generator, n: int) -> ref.Rows:
    """Rows with ties, duplicates and missing cells."""
    pools: dict[str, list[Any]] = {
        "age": [*range(20, 45), None],
        "city": ["Graz", "Linz", "Wels", None],
        "score": [0.25 * i for i in range(20)] + [None],
    }
    return {name: [pool[i] for i in rng.integers(0, len(pool), n)] for name, pool in pools.items()}


def with_copies(rng: np.random.Generator, table: ref.Rows, source: ref.Rows, copies: int) -> ref.Rows:
    """The table, its first rows replaced by random rows of another."""
    chosen = rng.integers(0, ref.n_rows(source), copies)
    return {name: [source[name][i] for i in chosen] + cells[copies:] for name, cells in table.items()}


def frame(table: ref.Rows) -> pd.DataFrame:
    """For `daskpriv.evaluate`."""
    kinds = {"age": "Int64", "city": "string", "score": "Float64"}
    return pd.DataFrame({name: pd.array(cells, dtype=kinds[name]) for name, cells in table.items()})


def matrices(tables: Mapping[str, ref.Rows]) -> dict[tuple[str, str], np.ndarray]:
    """Distances of the searches that compare synthetic rows with real ones; ranges from the real tables."""
    real = [tables[r] for r in (TRAIN, HOLDOUT) if r in tables]
    pairs = [(SYNTHETIC, TRAIN), (SYNTHETIC, HOLDOUT), (HOLDOUT, TRAIN)]
    out = {}
    for q, r in pairs:
        if q in tables and r in tables:
            ranges = ref.ranges_for("real", COLUMNS, tables[q], tables[r], real, real)
            out[q, r] = np.array(ref.distances(COLUMNS, tables[q], tables[r], ranges))
    return out


def searched(matrix: np.ndarray, k: int, start: int = 0) -> NeighbourTable:
    """The answer that a search would give for these distances."""
    found = ref.nearest(matrix.tolist(), k)
    query = np.arange(start, start + len(matrix))
    lists = np.array(found.distance, float).reshape(-1, k), np.array(found.row, np.int64).reshape(-1, k)
    return NeighbourTable(query, *lists, np.array(found.ties, np.int64))


def sizes(given: Matrices) -> dict[str, int]:
    """Rows by table."""
    out = {SYNTHETIC: given[SYNTHETIC, TRAIN].shape[0], TRAIN: given[SYNTHETIC, TRAIN].shape[1]}
    if (SYNTHETIC, HOLDOUT) in given:
        out[HOLDOUT] = given[SYNTHETIC, HOLDOUT].shape[1]
    return out


def run(metric: Metric, given: Matrices, block_rows: int = 1000, seed: int = 0) -> Result:
    """A metric on these distances, by blocks of query rows of one table after the other."""
    facts = Facts(sizes(given), len(COLUMNS), seed)
    wanted = metric.needs(facts)
    evidence = [Evidence(TRAIN)]  # another metric may ask for searches of training rows
    for role in (HOLDOUT, SYNTHETIC):
        for start in range(0, facts.rows.get(role, 0), block_rows):
            part = slice(start, start + block_rows)
            tables = {
                (r.query, r.reference): searched(given[r.query, r.reference][part], r.k, start)
                for r in wanted
                if r.query == role
            }
            evidence.append(Evidence(role, tables))
    state: Any = metric.begin(facts)
    while not isinstance(state, Result):
        partials = [metric.chunk(state, e) for e in evidence]
        while len(partials) > 1:
            partials = [metric.combine(partials[-1], partials[0]), *partials[1:-1]]
        state = metric.advance(state, partials[0], {})
    return state
