"""Pairs of tables for the comparison with other programs: real ones where they are at hand, seeded ones otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from daskpriv.bench import adult_like

ROOT = Path(__file__).parent.parent
PACKAGED = ROOT / "daskpriv" / "data" / "adult"
SHARED = ROOT.parent / "shared" / "data"
_LARGEST = 2**62
LARGE = "adult-like-1.6M"

Floats = npt.NDArray[np.float64]


class AbsentError(Exception):
    """The files of a case are not on this machine; the message says which."""


class Case(NamedTuple):
    """Two tables of the same columns without missing cells, and the range of every numeric column of the reference."""

    query: pa.Table
    reference: pa.Table
    ranges: pa.Table


def case(name: str, references: int = _LARGEST, queries: int = _LARGEST) -> Case:
    """At most so many rows of the named case, drawn at random with a fixed seed; fewer where the tables hold fewer."""
    query, reference = CASES[name](references, queries)
    reference = _some(reference, references, 1)
    query = _some(query.cast(reference.schema), queries, 2)
    return Case(query, reference, ranges(reference))


def ranges(reference: pa.Table) -> pa.Table:
    """Columns `column` and `range`: largest minus smallest value of every numeric column, in float64."""
    names = [f.name for f in reference.schema if not (pa.types.is_string(f.type) or pa.types.is_large_string(f.type))]
    values = (reference[name].to_numpy().astype(np.float64) for name in names)
    return pa.table({"column": names, "range": pa.array([float(v.max() - v.min()) for v in values], pa.float64())})


def _some(table: pa.Table, rows: int, seed: int) -> pa.Table:
    order = _random(seed).permutation(table.num_rows)
    return table.take(pa.array(order[:rows]))


def _random(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _read(path: Path) -> pa.Table:
    """A table without its rows that miss a cell, so that no program's idea of missing cells enters."""
    if not path.exists():
        raise AbsentError(f"{path} is not there")
    table = pq.read_table(path)
    whole = pa.array(np.ones(table.num_rows, bool))
    for column in table.columns:
        whole = pc.and_(whole, pc.is_valid(column).combine_chunks())
    return table.filter(whole)


def _files(query: Path, reference: Path, references: int, queries: int) -> tuple[pa.Table, pa.Table]:
    return _read(query), _read(reference)


def _independent(references: int, queries: int) -> tuple[pa.Table, pa.Table]:
    """The columns of adult, each drawn for itself: the same margins, no structure for an index to use."""
    train = _read(PACKAGED / "train.parquet")

    def drawn(rows: int, seed: int) -> pa.Table:
        rng = _random(seed)
        return pa.table({n: train[n].take(pa.array(rng.integers(0, train.num_rows, rows))) for n in train.schema.names})

    return drawn(min(queries, 50_000), 31), _shuffled(train, 32)


def _shuffled(table: pa.Table, seed: int) -> pa.Table:
    rng = _random(seed)
    return pa.table({n: table[n].take(pa.array(rng.permutation(table.num_rows))) for n in table.schema.names})


def _uniform(references: int, queries: int) -> tuple[pa.Table, pa.Table]:
    """50 independent uniform columns: nothing can be pruned."""

    def drawn(rows: int, seed: int) -> pa.Table:
        values = _random(seed).random((50, rows))
        return pa.table({f"u{i:02d}": row for i, row in enumerate(values)})

    return drawn(min(queries, 2_000), 41), drawn(min(references, 20_000), 42)


def _credit_like(references: int, queries: int) -> tuple[pa.Table, pa.Table]:
    return credit_like(min(queries, 50_000), 51), credit_like(min(references, 24_000), 52)


def _adult_like(references: int, queries: int) -> tuple[pa.Table, pa.Table]:
    """A large table with the structure of adult."""
    query, reference = adult_like(min(queries, 50_000), 7), adult_like(min(references, 1_600_000), 1)
    return pa.Table.from_pandas(query), pa.Table.from_pandas(reference)


def credit_like(rows: int, seed: int) -> pa.Table:
    """24 skewed, heavy-tailed whole-number columns shaped like the UCI table of defaults of credit card clients."""
    rng = _random(seed)
    spender = rng.normal(0, 1, rows)
    risk = rng.normal(0, 1, rows)
    limit = np.clip(np.round(np.exp(11.7 + 0.55 * spender + 0.75 * rng.normal(0, 1, rows)) / 1e4), 1, 100) * 1e4
    status = _statuses(rng, risk)
    bills, payments = _accounts(rng, limit, risk)
    columns: dict[str, Floats] = {
        "limit": limit,
        "sex": np.where(rng.random(rows) < 0.6, 2.0, 1.0),
        "education": np.clip(np.round(1.9 - 0.3 * spender + 0.7 * rng.normal(0, 1, rows)), 0, 6),
        "marriage": rng.choice([0.0, 1.0, 2.0, 3.0], rows, p=[0.002, 0.455, 0.533, 0.01]),
        "age": np.clip(21 + rng.gamma(2.3, 6.2, rows), 21, 79).round(),
    }
    columns |= {f"status_{i}": s for i, s in enumerate(status)}
    columns |= {f"bill_{i}": b for i, b in enumerate(bills)}
    columns |= {f"payment_{i}": p for i, p in enumerate(payments)}
    columns["default"] = (rng.random(rows) < 1 / (1 + np.exp(1.5 - 0.9 * risk))).astype(np.float64)
    return pa.table({name: values.astype(np.int64) for name, values in columns.items()})


def _statuses(rng: np.random.Generator, risk: Floats) -> list[Floats]:
    """Six months of repayment status: who pays in full is at -2 to 0, the others at 0 or 2, a few later still."""
    rows = len(risk)
    full = risk + rng.normal(0, 1, rows) < -0.45
    late = 1 / (1 + np.exp(2.6 - 1.5 * risk))
    out: list[Floats] = []
    for month in range(6):
        paying = rng.choice([-2.0, -1.0, 0.0], rows, p=[0.38, 0.5, 0.12])
        owing = np.where(rng.random(rows) < late, np.minimum(1.0 + rng.geometric(0.82, rows), 8.0), 0.0)
        fresh = np.where(full, paying, owing)
        fresh = np.where((fresh == 0) & (month == 0) & (rng.random(rows) < 0.18), 1.0, fresh)
        stays = rng.random(rows) < (0.5 if month > 1 else 0.3)
        out.append(np.where(stays, out[-1], fresh) if out else fresh)
    return out


def _accounts(rng: np.random.Generator, limit: Floats, risk: Floats) -> tuple[list[Floats], list[Floats]]:
    """Six bills, strongly autocorrelated with outliers and some below zero, and six payments, a fifth of them zero."""
    rows = len(limit)
    use = np.clip(rng.beta(0.5, 0.9, rows) + 0.08 * risk, 0, 1.2)
    bill, bills, payments = use * limit, [], []
    for _ in range(6):
        paid = np.where(
            rng.random(rows) < 0.2, 0.0, np.exp(6.8 + 0.1 * np.log1p(np.abs(bill)) + rng.normal(0, 1.1, rows))
        )
        paid = np.where(rng.random(rows) < 0.004, paid * rng.pareto(1.1, rows) * 20, paid)
        bills.append(np.clip(bill, -1.7e5, 1e6).round())
        payments.append(np.clip(paid, 0, 9e5).round())
        fresh = limit * rng.beta(0.6, 2.0, rows) * (rng.random(rows) < 0.25)
        jump = np.where(rng.random(rows) < 0.002, rng.pareto(1.5, rows) * limit, 0.0)
        bill = np.where(rng.random(rows) < 0.02, -rng.exponential(800.0, rows), 0.93 * bill + fresh + jump - 0.2 * paid)
        bill = np.where(np.abs(bill) < 50, 0.0, bill)
    return bills, payments


CASES: dict[str, Callable[[int, int], Any]] = {
    "adult": partial(_files, PACKAGED / "synthetic_good.parquet", PACKAGED / "train.parquet"),
    "adult-flip90": partial(_files, SHARED / "adult" / "syn_flip90.parquet", PACKAGED / "train.parquet"),
    "bank": partial(
        _files, SHARED / "bank-marketing" / "syn_mostly.parquet", SHARED / "bank-marketing" / "train.parquet"
    ),
    "credit-like": _credit_like,
    "independent": _independent,
    "uniform50": _uniform,
    LARGE: _adult_like,
}
