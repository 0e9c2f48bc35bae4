"""A run gets its name, and takes over what an earlier one of this name has finished."""

from __future__ import annotations

from collections.abc import Sequence

from daskpriv.engine.plan import check_memory
from daskpriv.engine.run import Engine
from daskpriv.errors import PlanError
from daskpriv.events import RunNamed
from daskpriv.prepare import Surveyed
from daskpriv.presets import Preset
from daskpriv.runs import Place, Run, name_of


def begin(engine: Engine, place: Place, surveyed: Surveyed, chosen: Preset, command: Sequence[str]) -> Run:
    """Open the run of these tables in this space."""
    tables = {
        name: {
            "rows": table.rows,
            "fingerprint": f"{surveyed.summaries[name].fingerprint:016x}",
            "source": list(table.source[:20]),
        }
        for name, table in surveyed.tables.items()
    }
    content = [(name, t["rows"], t["fingerprint"]) for name, t in tables.items()]
    name = name_of(content, surveyed.schema, chosen.space, chosen.bucketed, sorted(engine.same))
    run = place.open(name, engine.layout.block_rows, tables, tuple(command))
    engine.store, engine.run = run.store, name
    engine.steps, engine.remember = dict(run.manifest.steps), run.remember
    if _fits(engine, surveyed, run.manifest.block_rows):
        engine.cut_again(run.manifest.block_rows)
    engine.listener(RunNamed(name, len(engine.finished())))
    return run


def _fits(engine: Engine, surveyed: Surveyed, block_rows: int) -> bool:
    """Whether blocks of an earlier start fit these workers; if not, its pieces are not used again."""
    executor, rows = engine.executor, max(t.rows for t in surveyed.tables.values())
    cut = engine.layout.with_blocks(block_rows)
    try:
        check_memory(cut, rows, surveyed.encoding.row_bytes, cut.neighbours, executor.memory_per_slot, executor.threads)
    except PlanError:
        return False
    return True
