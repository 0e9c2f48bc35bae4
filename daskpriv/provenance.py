"""Where a report comes from: tables, options, columns, versions, costs; never a cell."""

from __future__ import annotations

import hashlib
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from daskpriv.engine.executor import Executor, peak_memory
from daskpriv.engine.run import Engine
from daskpriv.evidence import TRAIN
from daskpriv.kernels.gower import NUMBERS
from daskpriv.prepare import Prepared, Surveyed
from daskpriv.presets import Preset

_PACKAGES = ("dask", "distributed", "numba", "numpy", "pandas", "pyarrow", "scipy")


def inputs_of(surveyed: Surveyed) -> dict[str, Any]:
    """The tables: rows, sources, fingerprints."""
    tables = {}
    for name, table in surveyed.tables.items():
        summary = surveyed.summaries[name]
        tables[name] = {
            "rows": table.rows,
            "columns": len(table.schema),
            "source": list(table.source[:20]),
            "files": len(table.files),
            "bytes": sum(f.size for f in table.files),
            "fingerprint": f"{summary.fingerprint:016x}",
        }
    return {"tables": tables, "differences": list(surveyed.differences)}


def space_of(prepared: Prepared, chosen: Preset) -> dict[str, Any]:
    """What was compared, without a value of any cell: ranges enter only as part of a digest."""
    surveyed = prepared.surveyed
    columns = []
    for column in surveyed.schema.columns:
        by_table = {t: s.columns.get(column.name) for t, s in surveyed.summaries.items()}
        counts = next((s.counts for t, s in by_table.items() if t == TRAIN and s is not None), None)
        columns.append(
            {
                "name": column.name,
                "kind": column.kind.value,
                "weight": column.weight,
                "categories": len(counts) if counts is not None else None,
                "missing": {t: s.nulls for t, s in by_table.items() if s is not None},
            }
        )
    digest = hashlib.sha256()
    for pair in sorted(prepared.spaces):
        space = prepared.spaces[pair]
        digest.update(repr((pair, space.scale.tolist(), space.weight.tolist(), space.missing.value)).encode())
    numbers = sum(c.group == NUMBERS for c in prepared.encoding.columns)
    return {
        "distance": "share of columns whose bucket differs" if chosen.bucketed else "Gower",
        "missing": chosen.space.missing.value,
        "range_from": "quantile buckets over all tables" if chosen.bucketed else chosen.space.range_from.value,
        "columns": columns,
        "numeric_columns": numbers,
        "digest": digest.hexdigest()[:32],
    }


@dataclass(frozen=True)
class Started:
    """When a run began, by the calendar and by a clock that never jumps."""

    at: datetime
    clock: float

    @classmethod
    def now(cls) -> Started:
        """Now."""
        return cls(datetime.now(UTC), time.perf_counter())


def costs_of(engine: Engine, executor: Executor, started: Started) -> dict[str, Any]:
    """Time, pairs, units, memory, versions."""
    statistics = getattr(executor, "statistics", None)
    seconds = time.perf_counter() - started.clock
    return {
        "name": engine.run,
        "started": started.at.isoformat(timespec="seconds"),
        "seconds": seconds,
        "pairs": engine.pairs,
        "pairs_per_second": engine.pairs / max(seconds, 1e-9),
        "tasks": engine.tasks,
        "pieces_used_again": engine.reused,
        **(statistics.to_dict() if statistics is not None else {}),
        "block_rows": engine.layout.block_rows,
        "executor": type(executor).__name__.lower(),
        "slots": executor.slots,
        "peak_memory_client": peak_memory(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
    }
