"""Where the work runs: the client given, the active one, or threads of this process."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from daskpriv.cluster.connect import active_client, outside_the_slot
from daskpriv.cluster.driver import Dask
from daskpriv.cluster.frames import from_dask, is_dask_frame
from daskpriv.engine.executor import Executor, Threads
from daskpriv.engine.plan import check_memory, layout
from daskpriv.engine.reference import use_threads
from daskpriv.engine.run import Engine
from daskpriv.errors import InputError
from daskpriv.events import Listener, silent
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN
from daskpriv.tables.open import open_table
from daskpriv.tables.table import Table


@contextmanager
def executor_for(client: Any = None, listener: Listener = silent) -> Iterator[Executor]:
    """An executor over `client`, else over the active client, else over threads; closed at the end."""
    client = client if client is not None else active_client()
    if client is not None and not hasattr(client, "submit"):
        raise InputError(f"client: expected a distributed.Client, got {type(client).__name__}.")
    with outside_the_slot():
        executor: Executor = Threads() if client is None else Dask(client, listener)
        if client is None:
            use_threads(executor.threads)
        try:
            yield executor
        finally:
            executor.close()


def engine_for(
    executor: Executor,
    tables: Mapping[str, Table],
    block_rows: Any = None,
    listener: Listener = silent,
    neighbours: int = 2,
) -> Engine:
    """An engine whose layout fits these tables and so many neighbours; `block_rows` is the caller's wish, if any."""
    asked = None if block_rows is None else whole(block_rows, "block_rows")
    columns = max(len(table.schema.names) for table in tables.values())
    rows = {name: table.rows for name, table in tables.items()}
    cut = layout(rows, executor.slots, asked, columns, executor.memory_per_slot, executor.threads, neighbours)
    check_memory(cut, max(rows.values()), 8 * columns + 8, neighbours, executor.memory_per_slot, executor.threads)
    return Engine(executor, cut, listener)


def whole(value: Any, name: str, least: int = 1) -> int:
    """An option as a whole number; NumPy integers are welcome, truth values are not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InputError(f"{name} must be a whole number of at least {least}.")
    return number


def open_any(source: Any, name: str, like: Table | None = None) -> Table:
    """Open files, frames in memory or a Dask DataFrame."""
    return from_dask(source, name) if is_dask_frame(source) else open_table(source, name, like)


def check_rows(tables: Mapping[str, Table]) -> None:
    """Refuse tables of too few rows."""
    for name, least in ((TRAIN, 2), (HOLDOUT, 1), (SYNTHETIC, 1)):
        if name in tables and tables[name].rows < least:
            raise InputError(
                f"{name}: {tables[name].rows} row(s), this evaluation needs at least {least}; give more rows."
            )
