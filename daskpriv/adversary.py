"""The sampled real rows that Clearbox's membership test searches with: a table with ranges of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daskpriv.evidence import HOLDOUT, TRAIN
from daskpriv.metrics import MembershipInference, Metric
from daskpriv.metrics._clearbox_mi import ADVERSARY, sample_size, sampled_rows
from daskpriv.tables.open import open_table
from daskpriv.tables.table import Table

_AT_ONCE = 1_000_000


def with_adversary(tables: dict[str, Table], metrics: Sequence[Metric]) -> dict[str, Table]:
    """The tables, and {ADVERSARY: sampled rows of train, then as many of holdout} where a metric wants that test.

    The rows, at most a tenth of all real rows, are read into the memory of this process.
    """
    if HOLDOUT not in tables or not any(isinstance(m, MembershipInference) and m.clearbox for m in metrics):
        return tables
    train, holdout = tables[TRAIN], tables[HOLDOUT]
    size = sample_size(train.rows, holdout.rows)
    if not 0 < size <= train.rows:
        return tables
    names = [n for n in train.schema.names if n in holdout.schema.names]
    taken = [_taken(t, sampled_rows(t.rows, size), names) for t in (train, holdout)]
    return tables | {ADVERSARY: open_table(pa.concat_tables(taken, promote_options="permissive"), ADVERSARY)}


def _taken(table: Table, ids: NDArray[np.int64], names: list[str]) -> pa.Table:
    out = []
    for part in table.parts(_AT_ONCE):
        low, high = np.searchsorted(ids, [part.first_row, part.first_row + part.rows])
        out.append(part.read(names).take(ids[low:high] - part.first_row))
    return pa.concat_tables(out)
