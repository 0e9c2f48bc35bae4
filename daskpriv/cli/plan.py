"""`daskpriv plan`: what a run would take, without reading data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from dask.utils import format_bytes, parse_bytes

from daskpriv.choices import wanted_metrics
from daskpriv.cli.evaluate import comparison, what_to_compare
from daskpriv.engine.executor import available_cpus, available_memory
from daskpriv.errors import InputError
from daskpriv.evaluate import open_tables
from daskpriv.planning import PlannedSequences, RunPlan, plan_run, sequences_planned, used_columns
from daskpriv.prepare import Columns
from daskpriv.sequences import Sequencing, as_events
from daskpriv.tables.schema import Schema
from daskpriv.whose import without_key


@click.command("plan")
@what_to_compare
@click.option("--workers", type=click.IntRange(1), help="Worker processes.  [default: as many as here]")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of each of them.")
@click.option("--memory-limit", help="Memory of each of them, such as 4GiB.  [default: the share of this machine]")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of the table.")
def plan_command(**options: Any) -> None:
    """Say what `evaluate` with these options would take: rows, searches, pairs, units, memory and time.

    Only Parquet footers are read (CSV has none: CSV files are read once).
    """
    asked = comparison(options)
    tables = open_tables(asked["train"], asked["holdout"], asked["synthetic"])
    schema = Schema.load(asked["schema"]) if asked["schema"] else None
    key, order = asked["subject_key"], asked["order_by"]
    described = Columns(schema, asked["columns"], without_key(asked["exclude"], key), asked["weights"])
    events, described = as_events(Sequencing.of(key, order, asked["subjects"]), tables, described)
    tables = tables if events is None else events.planned()
    columns = used_columns(tables, described.schema, described.only, described.exclude, described.weights)
    workers = options["workers"] or max(available_cpus() // options["threads"], 1)
    memory = _memory(options["memory_limit"], workers)
    plan = plan_run(
        tables,
        wanted_metrics(
            asked["metrics"], {n: t.rows for n, t in tables.items()}, asked["preset"], asked["target"], asked["budget"]
        ),
        columns,
        workers,
        options["threads"],
        memory,
        asked["block_rows"],
    )
    read = [] if events is None else sequences_planned(events, workers, options["threads"], memory)
    if options["as_json"]:
        click.echo(_json(plan, columns, read))
    else:
        click.echo("\n".join([_table(plan, columns, workers, options["threads"]), *map(_sequences, read)]))


def _json(plan: RunPlan, columns: int, read: list[PlannedSequences]) -> str:
    searches = [{**asdict(s), "pairs": s.pairs} for s in plan.searches]
    whole = {**asdict(plan), "searches": searches, "columns": columns, "pairs": plan.pairs, "units": plan.units}
    return json.dumps({**whole, **({"sequences": [asdict(r) for r in read]} if read else {})})


def _sequences(read: PlannedSequences) -> str:
    return (
        f"events: {read.name} {read.events:,}, read {read.lanes:,} time(s) for at most {read.rows:,} rows; "
        f"core time {_short(read.seconds)}"
    )


def _memory(text: str | None, workers: int) -> int | None:
    if text is None:
        here = available_memory()
        return None if here is None else here // workers
    try:
        return int(parse_bytes(text))
    except ValueError:
        raise InputError(f"--memory-limit {text!r} is not a number of bytes; give one such as 4GiB.") from None


def _table(plan: RunPlan, columns: int, workers: int, threads: int) -> str:
    lines = [f"{'table':<24}{'rows':>16}{'columns':>9}{'files':>8}{'size':>12}"]
    for name, (rows, width, files, size) in plan.tables.items():
        lines.append(f"{name:<24}{rows:>16,}{width:>9}{files:>8,}{format_bytes(size):>12}")
    lines += ["", f"{'search':<24}{'pairs':>16}{'units':>9}{'groups':>8}{'core time':>22}"]
    for s in plan.searches:
        lines.append(f"{s.name:<24}{s.pairs:>16.3g}{s.units:>9,}{s.groups:>8,}{_span(s.seconds):>22}")
    if plan.counts:
        lines += ["", f"{'cross-tabulations':<24}{'counted':>16}{'of':>17}{'core time':>22}"]
    lines += [f"{c.name:<24}{c.sets:>16,}{c.of_how_many:>17,}{_short(c.seconds):>22}" for c in plan.counts]
    lines += [
        "",
        f"{columns} columns, {plan.blocks:,} blocks of {plan.block_rows:,} rows, {plan.pairs:.3g} pairs in "
        f"{plan.units:,} units on {workers} worker(s) of {threads} thread(s)",
        f"memory: {format_bytes(plan.unit_memory)} for the largest unit, {format_bytes(plan.worker_memory)} per worker",
        f"time:   {_span(plan.seconds)} (rows like those of a census, rows of pure noise); start-up not included",
    ]
    return "\n".join(lines)


def _span(seconds: tuple[float, float]) -> str:
    return f"{_short(seconds[0])} to {_short(seconds[1])}"


def _short(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s"
