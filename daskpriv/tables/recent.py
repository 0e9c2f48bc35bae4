"""What a thread read last, while pieces of it are still to come.

A row group, a CSV byte range or a Dask partition can only be read whole, and writers make them far larger than
blocks: without this, every block would read its surroundings again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import pyarrow as pa

_HELD = threading.local()


def recent(key: Hashable, load: Callable[[], pa.Table], stop: int) -> pa.Table:
    """The table under `key`, loaded unless this thread has just read it; forgotten after its last row, `stop`."""
    held = getattr(_HELD, "entry", None)
    if held is None or held[0] != key:
        held = (key, load())
    _HELD.entry = None if stop >= held[1].num_rows else held
    table: pa.Table = held[1]
    return table
