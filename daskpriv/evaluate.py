"""The program on one page: open, know the columns, encode, search, reduce, report."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskpriv.adversary import with_adversary
from daskpriv.asked import Comparison, Running, comparison_of, running_of
from daskpriv.beginning import begin
from daskpriv.by_group import groupings_of
from daskpriv.engine.executor import Executor
from daskpriv.engine.plan import longest_list
from daskpriv.engine.run import Engine, Grouping
from daskpriv.errors import InputError
from daskpriv.events import Listener
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.flattening import flattened
from daskpriv.judgement import adjusted
from daskpriv.measuring import beside_preset, measured, prepared_for, same_table_warning, same_tables
from daskpriv.metrics import Metric
from daskpriv.policy import Policy
from daskpriv.prepare import Surveyed, survey
from daskpriv.provenance import Started, costs_of, inputs_of, space_of
from daskpriv.records import write_records
from daskpriv.report.model import Report, write_atomically
from daskpriv.runs import Place, place_for
from daskpriv.sequences import EventTables, as_events
from daskpriv.session import check_rows, engine_for, executor_for, open_any
from daskpriv.subjects import Subjects
from daskpriv.tables.schema import Schema
from daskpriv.tables.sinks import join
from daskpriv.tables.table import Table
from daskpriv.version import __version__
from daskpriv.whose import subjects_of


def evaluate(
    train: Any,
    synthetic: Any,
    holdout: Any = None,
    *,
    metrics: str | Sequence[str | Metric] = "default",
    preset: str | None = None,
    schema: Schema | str | os.PathLike[str] | None = None,
    weights: Mapping[str, float] | None = None,
    quasi_identifiers: Any = None,
    secrets: Any = None,
    store: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    exclude: Collection[str] = (),
    missing: str | None = None,
    range_from: str | None = None,
    seed: int = 0,
    client: Any = None,
    output: str | os.PathLike[str] | None = None,
    internal: bool = False,
    fail_on: Sequence[str] = (),
    block_rows: int | None = None,
    progress: Listener | None = None,
    command: Sequence[str] = (),
    policy: Policy | str | os.PathLike[str] | None = None,
    split: str | os.PathLike[str] | None = None,
    subject_key: str | None = None,
    group_by: Sequence[str] | None = None,
    target: str | None = None,
    budget: float | None = None,
    order_by: str | None = None,
    subjects: Mapping[str, Any] | None = None,
) -> Report:
    """Measure how much a synthetic table gives away about the table it was made from.

    Parameters
    ----------
    train : path, URL, glob, list of them, or a pandas, pyarrow, polars or Dask frame
        The real rows the generator saw.
    synthetic : same
        The table to be released.
    holdout : same, optional
        Real rows the generator did not see. Without it nothing tells copying from chance.
    metrics : "default", "all" or a sequence of names or metric objects
    preset : str, optional
        "mostly-paper" or "clearbox": the definitions of that publication or tool.
    schema : Schema or path to its YAML, optional
        What each column is; inferred from the real tables otherwise.
    weights : {column: weight}, optional
    quasi_identifiers, secrets : optional
        Reserved for metrics to come; refused when given.
    store : directory or URL, optional
        Where finished pieces are kept, so that a run that died goes on where it stopped. Default: in `output`, until
        the report is written.
    columns, exclude : sequences of column names, optional
        Compare only these, or all but these.
    missing : {"level", "gower", "max", "anonymeter", "clearbox"}, optional
        What a missing cell means; default "level": missing equals missing.
    range_from : {"real", "train", "all", "pair_union", "pair_reference", "quantile", "iqr", "rank"}, optional
        Which rows give numeric columns their range; default "real".
    seed : int
        Keys every random draw; results do not depend on how the work is spread.
    client : distributed.Client, optional
        Default: the active client, else threads of this process.
    output : directory, optional
        Where to write report.json and report.html.
    internal : bool
        Also write internal/records.parquet and internal/real_rows.parquet: distances and ids of every row.
    fail_on : sequence of str
        Rules (see `daskpriv.report.rules`) whose outcome the report carries; `report.passed` sums them up.
    block_rows : int, optional
        Rows per block. No choice changes the result.
    progress : callable, optional
        Receives `daskpriv.events`.
    command : sequence of str, optional
        The command line that started this run; `daskpriv runs resume` repeats it.
    policy : Policy or path to its YAML, optional
        Levels, margins, thresholds of gates and rules (daskpriv/policy.yaml); what it leaves out stays as it is.

    split : path of split.json, optional
        How `daskpriv split` made train and holdout; with fair coins, `exposure` bounds epsilon from below.
    subject_key : str, optional
        The column of train and holdout that says whose row it is. It is compared with nothing; all tests draw
        subjects in place of rows, all intervals count a subject's rows as alike. Missing values are refused.
    group_by : sequence of column names, optional
        Also tell the share and the AUC within the groups of these columns (metric "subgroups"). Their values are
        named in the report.
    target : str, optional
        Also measure `utility`: how well models predict this column of holdout rows when they learnt it from the
        synthetic table, and when they learnt it from train (`daskpriv[utility]`).
    budget : float, optional
        Seconds of one core that cross-tabulations of each order may take (`accuracy`, `correlation`); beyond, a subset
        of the sets of columns is chosen by the seed. Default: 1200.
    order_by : str, optional
        The tables hold events: `subject_key` says whose, this column when. One row for each subject is compared: an
        event drawn at random, the next one, and how many there are (docs/sequences.md).
    subjects : {"train": table, "holdout": table, "synthetic": table}, optional
        Tables of the attributes of subjects, one row each, joined on `subject_key`; with `order_by` only.

    Returns
    -------
    Report

    Raises
    ------
    InputError
        In one sentence that names the table, the column and the remedy.
    RunError
        When the run itself failed.

    Examples
    --------
    >>> import pandas as pd, daskpriv
    >>> train = pd.DataFrame({"age": range(20, 60), "city": ["Graz", "Linz"] * 20})
    >>> report = daskpriv.evaluate(train=train, synthetic=train.head(10))
    >>> report.metrics["clones"].details["n_synthetic_train"]
    10
    """
    started = Started.now()
    for option, value in (("quasi_identifiers", quasi_identifiers), ("secrets", secrets)):
        if value is not None:
            raise InputError(f"{option}: no metric of this version uses it; leave it out.")
    compared = comparison_of(
        metrics=metrics,
        target=target,
        budget=budget,
        preset=preset,
        missing=missing,
        range_from=range_from,
        policy=policy,
        split=split,
        schema=schema,
        columns=columns,
        exclude=exclude,
        weights=weights,
        subject_key=subject_key,
        order_by=order_by,
        subjects=subjects,
        group_by=group_by,
        seed=seed,
    )
    running = running_of(
        compared,
        output=output,
        internal=internal,
        fail_on=fail_on,
        store=store,
        block_rows=block_rows,
        progress=progress,
        command=command,
    )
    tables = open_tables(train, holdout, synthetic)
    compared.check(tables)
    events, told = as_events(compared.sequencing, tables, compared.columns)
    compared = replace(compared, columns=told)
    with (
        executor_for(client, running.listener) as executor,
        place_for(running.store, running.folder, executor) as place,
    ):
        return _report(compared, running, tables, events, executor, place, started)


def _report(
    compared: Comparison,
    running: Running,
    tables: dict[str, Table],
    events: EventTables | None,
    executor: Executor,
    place: Place,
    started: Started,
) -> Report:
    """The report, written where it is wanted."""
    with flattened(events, tables, executor, place, compared.seed, running.listener, running.command) as flat:
        tables = with_adversary(flat.tables, compared.metrics)
        engine = _engine(compared, running, tables, executor)
        real = tuple(t for t in tables if t in (TRAIN, HOLDOUT))
        chosen = compared.preset
        surveyed = survey(engine, tables, compared.columns, real, chosen.bucketed, chosen.drops_ids)
        engine.same = same_tables(surveyed, chosen)
        under_way = begin(engine, place, surveyed, chosen, running.command)
        prepared = prepared_for(engine, surveyed, chosen, real)
        groups = groupings_of(surveyed, compared.group_by)
        facts = _facts(compared, surveyed, subjects_of(engine, tables, compared.subject_key), groups, flat.sequenced)
        known = flat.answers(engine, surveyed, compared.metrics, facts)
        results, passed, found = measured(engine, surveyed, prepared, compared, facts, [*groups], known)
        beside = beside_preset(engine, surveyed, chosen, facts, real)
        if running.internal and running.folder is not None:
            write_records(join(running.folder, "internal"), engine.store, found, results)
        judged = adjusted(results)
        report = Report(
            results,
            inputs_of(surveyed),
            compared.settings(),
            space_of(prepared, chosen),
            [g.told() for g in passed],
            judged.metrics,
            [
                *chosen.warnings,
                *beside,
                *same_table_warning(engine),
                *surveyed.warnings,
                *(w for r in results.values() for w in r.warnings),
            ],
            costs_of(engine, executor, started),
            __version__,
            tests=judged.tests,
        )
        report = _written(report, running)
        place.close(under_way)
        return report


def _engine(compared: Comparison, running: Running, tables: Mapping[str, Table], executor: Executor) -> Engine:
    """An engine whose blocks are cut for what the metrics search."""
    nothing = Facts({n: t.rows for n, t in tables.items()}, 1, compared.seed)
    longest = longest_list([r for m in compared.metrics for r in m.needs(nothing)])
    return engine_for(executor, tables, running.block_rows, running.listener, longest)


def _facts(
    compared: Comparison,
    surveyed: Surveyed,
    subjects: Subjects | None,
    groups: Mapping[Grouping, tuple[str, ...]],
    sequenced: bool,
) -> Facts:
    """What is known before any distance is computed."""
    names = tuple(c.name for c in surveyed.encoding.columns)
    called = {g.column: values for g, values in groups.items()}
    rows = {name: table.rows for name, table in surveyed.tables.items()}
    return Facts(rows, len(names), compared.seed, compared.policy.level, subjects, called, names, sequenced)


def _written(report: Report, running: Running) -> Report:
    """The report with the outcome of the rules; what may leave the house, and under internal/ what may not."""
    try:
        report = report.judged_by(running.rules)
    finally:
        # A rule that names nothing must not cost the report of a long run.
        if running.folder is not None:
            report.to_json(join(running.folder, "report.json"))
            report.to_html(join(running.folder, "report.html"))
            if running.internal:
                report.to_json(join(running.folder, "internal", "report.json"), internal=True)
            write_atomically(join(running.folder, "run.json"), json.dumps(report.run, indent=1) + "\n")
    return report


def open_tables(train: Any, holdout: Any, synthetic: Any) -> dict[str, Table]:
    """Open the tables of an evaluation; only footers are read."""
    tables = {TRAIN: open_any(train, TRAIN)}
    if holdout is not None:
        tables[HOLDOUT] = open_any(holdout, HOLDOUT, tables[TRAIN])
    tables[SYNTHETIC] = open_any(synthetic, SYNTHETIC, tables[TRAIN])
    check_rows(tables)
    return tables
