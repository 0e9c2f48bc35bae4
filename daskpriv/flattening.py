"""Flat rows of event tables for one run: made, kept in memory or in private files, removed; and what they leave out."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from daskpriv.counting import fitted
from daskpriv.engine.executor import Executor
from daskpriv.engine.flattening import READ_ROWS, Events, FlatLane, writable
from daskpriv.engine.histories import EventCodes, EventEngine
from daskpriv.engine.plan import Layout
from daskpriv.engine.published import Published
from daskpriv.engine.run import Engine
from daskpriv.errors import PlanError
from daskpriv.events import Listener, silent
from daskpriv.evidence import TRAIN, Facts, Role, Sequenced, SequenceTables
from daskpriv.metrics import Metric
from daskpriv.prepare import Surveyed, encode
from daskpriv.protocol import Answers
from daskpriv.runs import Place, name_of, wipe
from daskpriv.sequences import EventTables
from daskpriv.session import check_rows
from daskpriv.space.bins import WideAsFloats
from daskpriv.tables.files import shown
from daskpriv.tables.open import open_table
from daskpriv.tables.sequences import Lane
from daskpriv.tables.sinks import join
from daskpriv.tables.table import Table

IN_MEMORY = 512 << 20  # bytes of flat rows that the client may hold, were every event a subject


@dataclass(frozen=True, eq=False)
class Flattened:
    """Tables to compare, and for each of them the events behind it, by lane."""

    tables: dict[Role, Table]
    events: Mapping[Role, tuple[Published[Events], list[Lane]]] = field(default_factory=dict)
    reader: EventEngine | None = None

    @property
    def sequenced(self) -> bool:
        """Whether a row stands for a sequence of events."""
        return bool(self.events)

    def answers(self, engine: Engine, surveyed: Surveyed, metrics: Sequence[Metric], facts: Facts) -> Answers:
        """Every `Sequenced` that the metrics need: the events are read once more for each."""
        wanted = dict.fromkeys(r for m in metrics for r in m.needs(facts) if isinstance(r, Sequenced))
        return {r: self._counted(engine, surveyed, r, self.reader) for r in wanted if self.reader is not None}

    def _counted(self, engine: Engine, surveyed: Surveyed, request: Sequenced, reader: EventEngine) -> SequenceTables:
        floats = engine.executor.publish(WideAsFloats())
        blocks = {role: held.then(floats) for role, held in encode(engine, surveyed).items() if role in self.events}
        bins = fitted(engine, surveyed, blocks, request.buckets, "train")
        codes = EventCodes.of(surveyed.encoding, bins, self.events[TRAIN][0].get().columns)
        shared = engine.executor.publish(codes)
        counts = {role: reader.sequence_counts(e, shared, role, lanes) for role, (e, lanes) in self.events.items()}
        return SequenceTables(tuple(c.name for c in codes.encoding.columns), counts)


@contextmanager
def flattened(
    opened: EventTables | None,
    tables: dict[Role, Table],
    executor: Executor,
    place: Place,
    seed: int,
    listener: Listener = silent,
    command: Sequence[str] = (),
) -> Iterator[Flattened]:
    """The tables as they are, or flat rows of event tables; what is written for them is removed at the end."""
    if opened is None:
        yield Flattened(tables)
        return
    reader = EventEngine(executor, Layout(READ_ROWS, READ_ROWS), listener)
    events = {}
    for role in opened.tables:
        lanes = opened.lanes(role, executor.memory_per_slot, executor.slots)
        events[role] = (executor.publish(opened.events(role, executor, seed)), lanes)
    small = all(opened.most_bytes(role) <= IN_MEMORY for role in events)
    with nullcontext("") if small else _folder(opened, place, command) as folder:
        found = {}
        for role, (published, lanes) in events.items():
            target = join(folder, role) if folder else ""
            with writable(target) if target else nullcontext():
                found[role] = _table(opened, role, reader.flatten(published, role, lanes, target))
        check_rows(found)
        yield Flattened(found, events, reader)


def _table(opened: EventTables, role: Role, lanes: Sequence[FlatLane]) -> Table:
    """Flat rows as a table; its source is that of the events."""
    behind = opened.tables[role]
    files = [lane.file for lane in lanes if lane.file]
    held = [lane.rows for lane in lanes if lane.rows is not None]
    table = open_table(files if files else pa.concat_tables(held), role)
    idle = sum(lane.idle for lane in lanes)
    notes = [
        f"{role}: column {name!r}: {n} of {behind.rows} cells do not fit the column's type and count as missing."
        for lane in lanes
        for name, n in lane.misfits.items()
    ]
    if idle:
        notes.append(f"{role}-subjects: {idle} subject(s) without an event are left out.")
    return replace(table, source=behind.source, notes=(*behind.notes, *notes))


@contextmanager
def _folder(opened: EventTables, place: Place, command: Sequence[str]) -> Iterator[str]:
    """A folder for flat rows within the place of this run; removed at the end, whatever happens."""
    with _rooted(place) as root:
        if not root.reachable:
            raise PlanError(
                f"the flat rows may not fit this machine's memory, and workers do not reach the store "
                f"{shown(root.root)!r}; name a place that all machines see with --store."
            )
        # The same command finds what a run that was killed has left, and removes it.
        known = [(t.name, t.files, t.rows) if t.files else uuid.uuid4().hex for t in opened.tables.values()]
        name = name_of("flat rows", opened.asked.key, opened.asked.order, known)
        folder = join(root.root, name)
        wipe(folder)
        about = {r: {"rows": t.rows, "source": list(t.source[:20])} for r, t in opened.tables.items()}
        root.open(name, READ_ROWS, about, tuple(command))
        try:
            yield join(folder, "pieces")
        finally:
            wipe(folder)
            if not root.lasting and "://" not in root.root:
                with suppress(OSError):
                    Path(root.root).rmdir()


@contextmanager
def _rooted(place: Place) -> Iterator[Place]:
    """The place, or one in a temporary directory where this run keeps all else in memory."""
    if place.root:
        yield place
        return
    folder = tempfile.mkdtemp(prefix="daskpriv-")
    try:
        yield Place(folder, True, False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
