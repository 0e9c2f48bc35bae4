"""The program on one page: open, know the columns, encode, search, reduce, report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from daskpriv.adversary import with_adversary
from daskpriv.by_group import columns_of, groupings_of, with_subgroups
from daskpriv.choices import check_seed, check_split, chosen_metrics, options_of, with_coins
from daskpriv.engine.plan import check_memory, longest_list
from daskpriv.engine.run import Engine, Grouping
from daskpriv.errors import InputError, PlanError
from daskpriv.events import Listener, RunNamed, silent
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.flattening import flattened
from daskpriv.judgement import adjusted
from daskpriv.measuring import beside_preset, measured, prepared_for, same_table_warning, same_tables
from daskpriv.metrics import Metric
from daskpriv.policy import Policy, policy_of
from daskpriv.prepare import Columns, Surveyed, survey
from daskpriv.presets import Preset
from daskpriv.presets import preset as preset_named
from daskpriv.provenance import costs_of, inputs_of, settings_of, space_of
from daskpriv.records import write_records
from daskpriv.report.model import Report, check_writable, write_atomically
from daskpriv.report.rules import parse_rules
from daskpriv.runs import Place, Run, name_of, place_for
from daskpriv.sequences import Sequencing, as_events, with_sequences
from daskpriv.session import check_rows, engine_for, executor_for, open_any
from daskpriv.splitting import read_split
from daskpriv.subjects import Subjects
from daskpriv.tables.schema import Schema
from daskpriv.tables.sinks import join
from daskpriv.tables.table import Table
from daskpriv.version import __version__
from daskpriv.whose import check_key, subjects_of, without_key


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
    started, clock = datetime.now(UTC), time.perf_counter()
    chosen = options_of(preset_named(preset), missing, range_from)
    held = policy_of(policy)
    coins = None if split is None else read_split(split)
    by, sequencing = columns_of(group_by), Sequencing.of(subject_key, order_by, subjects)
    wanted = with_subgroups(chosen_metrics(metrics, with_coins(chosen, coins), held), by)
    wanted = with_sequences(wanted, sequencing, metrics)
    described = Schema.load(schema) if isinstance(schema, (str, os.PathLike)) else schema
    narrowed = Columns(described, columns, without_key(exclude, subject_key), weights)
    for option, value in (("quasi_identifiers", quasi_identifiers), ("secrets", secrets)):
        if value is not None:
            raise InputError(f"{option}: no metric of this version uses it; leave it out.")
    rules = [r for given in (fail_on, held.fail_on) for r in parse_rules(given, [m.name for m in wanted])]
    if store is not None and not isinstance(store, (str, os.PathLike)):
        raise InputError("store: give a directory or a URL.")
    store = None if store is None else os.fspath(store)
    _check(output, seed, progress, internal)
    opened = open_tables(train, holdout, synthetic)
    check_split(coins, opened)
    check_key(subject_key, opened, columns, weights)
    events, narrowed = as_events(sequencing, opened, narrowed)
    listener = progress or silent
    folder = None if output is None else os.fspath(output)
    with (
        executor_for(client, listener) as executor,
        place_for(store, folder, executor) as place,
        flattened(events, opened, executor, place, seed, listener, command) as flat,
    ):
        tables = with_adversary(flat.tables, wanted)
        rows = {n: t.rows for n, t in tables.items()}
        asked = [r for m in wanted for r in m.needs(Facts(rows, 1, seed))]
        engine = engine_for(executor, tables, block_rows, listener, longest_list(asked))
        real = tuple(t for t in tables if t in (TRAIN, HOLDOUT))
        surveyed = survey(engine, tables, narrowed, real, chosen.bucketed, chosen.drops_ids)
        engine.same = same_tables(surveyed, chosen)
        under_way = _begin(engine, place, surveyed, chosen, command)
        prepared = prepared_for(engine, surveyed, chosen, real)
        groups = groupings_of(surveyed, by)
        facts = _facts(surveyed, seed, held.level, subjects_of(engine, tables, subject_key), groups, bool(flat.events))
        known = flat.answers(engine, surveyed, wanted, facts)
        results, passed, found = measured(engine, surveyed, prepared, chosen, wanted, facts, held, tuple(groups), known)
        beside = beside_preset(engine, surveyed, chosen, facts, real)
        if internal and folder is not None:
            write_records(join(folder, "internal"), engine.store, found, results)
        run = costs_of(engine, executor, started, time.perf_counter() - clock)
        judged = adjusted(results)
        report = Report(
            results,
            inputs_of(surveyed),
            settings_of(chosen, wanted, seed, held, subject_key, by, order_by),
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
            run,
            __version__,
            tests=judged.tests,
        )
        try:
            report = report.judged_by(rules)
        finally:
            # A rule that names nothing must not cost the report of a long run.
            if folder is not None:
                _write(report, folder, internal)
        place.close(under_way)
    return report


def _check(output: Any, seed: int, progress: Any, internal: bool) -> None:
    """What can be refused before any table is opened."""
    if output is not None:
        check_writable(os.fspath(output))
    check_seed(seed)
    if progress is not None and not callable(progress):
        raise InputError("progress: give a function that takes one event.")
    if internal and output is None:
        raise InputError("internal: give an output directory for the per-record file.")


def _facts(
    surveyed: Surveyed,
    seed: int,
    level: float,
    subjects: Subjects | None,
    groups: Mapping[Grouping, tuple[str, ...]],
    sequenced: bool,
) -> Facts:
    """What is known before any distance is computed."""
    names = tuple(c.name for c in surveyed.encoding.columns)
    called = {g.column: values for g, values in groups.items()}
    rows = {name: table.rows for name, table in surveyed.tables.items()}
    return Facts(rows, len(names), seed, level, subjects, called, names, sequenced)


def _write(report: Report, folder: str, internal: bool) -> None:
    """What may leave the house, and under internal/ what may not."""
    report.to_json(join(folder, "report.json"))
    report.to_html(join(folder, "report.html"))
    if internal:
        report.to_json(join(folder, "internal", "report.json"), internal=True)
    write_atomically(join(folder, "run.json"), json.dumps(report.run, indent=1) + "\n")


def _begin(engine: Engine, place: Place, surveyed: Surveyed, chosen: Preset, command: Sequence[str]) -> Run:
    """Give the run its name and take over what an earlier one with this name has finished."""
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


def open_tables(train: Any, holdout: Any, synthetic: Any) -> dict[str, Table]:
    """Open the tables of an evaluation; only footers are read."""
    tables = {TRAIN: open_any(train, TRAIN)}
    if holdout is not None:
        tables[HOLDOUT] = open_any(holdout, HOLDOUT, tables[TRAIN])
    tables[SYNTHETIC] = open_any(synthetic, SYNTHETIC, tables[TRAIN])
    check_rows(tables)
    return tables
