"""The program on one page: open, know the columns, encode, search, reduce, report."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from daskpriv.adversary import with_adversary
from daskpriv.engine.executor import Executor
from daskpriv.engine.plan import check_memory, longest_list
from daskpriv.engine.run import Engine
from daskpriv.engine.searches import Found
from daskpriv.errors import InputError, PlanError
from daskpriv.events import Listener, RunNamed, silent
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.gates import Gate, gates, interpretable
from daskpriv.judgement import adjusted
from daskpriv.kernels.gower import NUMBERS
from daskpriv.metrics import METRICS, DcrShare, Metric, SplitCheck, metric_class
from daskpriv.policy import Policy, policy_of
from daskpriv.prepare import Columns, Prepared, Surveyed, bucketed, encode, spaces_for, survey
from daskpriv.presets import DEFAULT, Preset
from daskpriv.presets import preset as preset_named
from daskpriv.protocol import Result
from daskpriv.records import write_records
from daskpriv.report.model import Report, check_writable, write_atomically
from daskpriv.report.rules import parse_rules
from daskpriv.runs import Place, Run, name_of, place_for
from daskpriv.session import engine_for, executor_for, open_any, whole
from daskpriv.space.gower import Missing, RangeFrom
from daskpriv.splitting import Split, read_split
from daskpriv.tables.schema import Schema
from daskpriv.tables.sinks import join
from daskpriv.tables.table import Table
from daskpriv.version import __version__

_PACKAGES = ("dask", "distributed", "numba", "numpy", "pandas", "pyarrow", "scipy")


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
    chosen = _options(preset_named(preset), missing, range_from)
    held = policy_of(policy)
    coins = None if split is None else read_split(split)
    wanted = _metrics(metrics, _with_coins(chosen, coins), held)
    described = Schema.load(schema) if isinstance(schema, (str, os.PathLike)) else schema
    narrowed = Columns(described, columns, exclude, weights)
    for option, value in (("quasi_identifiers", quasi_identifiers), ("secrets", secrets)):
        if value is not None:
            raise InputError(f"{option}: no metric of this version uses it; leave it out.")
    rules = [r for given in (fail_on, held.fail_on) for r in parse_rules(given, [m.name for m in wanted])]
    if store is not None and not isinstance(store, (str, os.PathLike)):
        raise InputError("store: give a directory or a URL.")
    store = None if store is None else os.fspath(store)
    if output is not None:
        check_writable(os.fspath(output))
    _check_seed(seed)
    if progress is not None and not callable(progress):
        raise InputError("progress: give a function that takes one event.")
    if internal and output is None:
        raise InputError("internal: give an output directory for the per-record file.")
    tables = with_adversary(open_tables(train, holdout, synthetic), wanted)
    _check_split(coins, tables)
    listener = progress or silent
    folder = None if output is None else os.fspath(output)
    with executor_for(client, listener) as executor, place_for(store, folder, executor) as place:
        asked = [r for m in wanted for r in m.needs(Facts({n: t.rows for n, t in tables.items()}, 1, seed))]
        engine = engine_for(executor, tables, block_rows, listener, longest_list(asked))
        real = tuple(t for t in tables if t in (TRAIN, HOLDOUT))
        surveyed = survey(engine, tables, narrowed, real, chosen.bucketed, chosen.drops_ids)
        engine.same = _same_tables(surveyed, chosen)
        under_way = _begin(engine, place, surveyed, chosen, command)
        prepared = _prepare(engine, surveyed, chosen, real)
        facts = Facts({n: t.rows for n, t in tables.items()}, len(surveyed.encoding.columns), seed, held.level)
        results, passed, found = _measured(engine, surveyed, prepared, chosen, wanted, facts, held)
        beside = _beside(engine, surveyed, chosen, facts, real)
        if internal and folder is not None:
            write_records(join(folder, "internal"), engine.store, found, results)
        run = _costs(engine, executor, started, time.perf_counter() - clock)
        judged = adjusted(results)
        report = Report(
            results,
            _inputs(surveyed),
            _settings(chosen, wanted, seed, held),
            _space(prepared, chosen),
            [g.told() for g in passed],
            judged.metrics,
            [
                *chosen.warnings,
                *beside,
                *_same_table_warning(engine),
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
                report.to_json(join(folder, "report.json"))
                report.to_html(join(folder, "report.html"))
                write_atomically(join(folder, "run.json"), json.dumps(report.run, indent=1) + "\n")
        place.close(under_way)
    return report


def _measured(
    engine: Engine,
    surveyed: Surveyed,
    prepared: Prepared,
    chosen: Preset,
    wanted: Sequence[Metric],
    facts: Facts,
    policy: Policy,
) -> tuple[dict[str, Result], list[Gate], Found]:
    """What the metrics found, as far as the gates let it be interpreted; the gates; the searches."""
    # A published tool checks nothing: its presets show what it would have said.
    checks = [SplitCheck()] if facts.has(HOLDOUT) and chosen.name == DEFAULT.name else []
    results, found = engine.measure([*wanted, *checks], facts, prepared.blocks, prepared.spaces)
    split = results.pop(SplitCheck.name) if checks else None
    passed = gates(surveyed, results, split, chosen.space.per_pair, policy)
    return interpretable(results, passed), passed, found


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


def _options(chosen: Preset, missing: str | None, range_from: str | None) -> Preset:
    space = chosen.space
    try:
        space = replace(
            space,
            missing=Missing(missing) if missing is not None else space.missing,
            range_from=RangeFrom(range_from) if range_from is not None else space.range_from,
        )
    except ValueError:
        raise InputError(
            f"unknown option; missing is one of {', '.join(Missing)}, range_from one of {', '.join(RangeFrom)}."
        ) from None
    warnings = chosen.warnings
    if space.per_pair and not chosen.space.per_pair:
        warnings += (
            "ranges are taken per pair of tables: distances to train and to holdout do not compare; use "
            "range_from='real'.",
        )
    return replace(chosen, space=space, warnings=warnings)


def wanted_metrics(metrics: str | Sequence[str | Metric], preset: str | None = None) -> list[Metric]:
    """The metrics that these names stand for, with the options of a preset."""
    return _metrics(metrics, preset_named(preset), policy_of(None))


def _metrics(metrics: str | Sequence[str | Metric], chosen: Preset, policy: Policy) -> list[Metric]:
    if metrics in ("default", "all"):
        names: Sequence[str | Metric] = chosen.metrics if metrics == "default" else tuple(METRICS)
    else:
        names = [n.strip() for n in metrics.split(",")] if isinstance(metrics, str) else _sequence(metrics)
    out: list[Metric] = [
        metric_class(n)(**_with_margin(n, policy), **chosen.options.get(n, {})) if isinstance(n, str) else n
        for i, n in enumerate(names)
        if not (isinstance(n, str) and n in names[:i])
    ]
    if not out:
        raise InputError("metrics: name at least one metric.")
    called = [m.name for m in out]
    twice = next((n for n in called if called.count(n) > 1), None)
    if twice is not None:
        raise InputError(f"metrics: {twice!r} is given twice; run them one at a time.")
    return out


def _with_coins(chosen: Preset, coins: Split | None) -> Preset:
    if coins is None or not coins.randomised:
        return chosen
    return replace(chosen, options={**chosen.options, "exposure": {"randomised": True}})


def _check_split(coins: Split | None, tables: Mapping[str, Table]) -> None:
    if coins is not None and [tables[n].rows if n in tables else None for n in (TRAIN, HOLDOUT)] != [
        coins.train,
        coins.holdout,
    ]:
        raise InputError(
            f"split: it made {coins.train} rows of train and {coins.holdout} of holdout, other tables were given; give "
            "the split.json that lies beside them."
        )


def _with_margin(name: str, policy: Policy) -> dict[str, float]:
    return {"margin": policy.margins[name]} if name in policy.margins else {}


def _sequence(metrics: Any) -> list[str | Metric]:
    good = isinstance(metrics, Sequence) and all(
        isinstance(m, str) or (hasattr(m, "advance") and not isinstance(m, type)) for m in metrics
    )
    if not good:
        raise InputError("metrics: give 'default', 'all', or a list of metric names or metric objects.")
    return list(metrics)


def _check_seed(seed: int) -> None:
    if whole(seed, "seed", least=0) >= 2**64:
        raise InputError("seed must be a whole number from 0 to 2**64 - 1.")


def open_tables(train: Any, holdout: Any, synthetic: Any) -> dict[str, Table]:
    """Open the tables of an evaluation; only footers are read."""
    tables = {TRAIN: open_any(train, TRAIN)}
    if holdout is not None:
        tables[HOLDOUT] = open_any(holdout, HOLDOUT, tables[TRAIN])
    tables[SYNTHETIC] = open_any(synthetic, SYNTHETIC, tables[TRAIN])
    for name, least in ((TRAIN, 2), (HOLDOUT, 1), (SYNTHETIC, 1)):
        if name in tables and tables[name].rows < least:
            raise InputError(f"{name}: {tables[name].rows} row(s), this evaluation needs at least {least}.")
    return tables


def _same_tables(surveyed: Surveyed, chosen: Preset) -> frozenset[tuple[str, str]]:
    """The paper evaluates its holdout as if it were synthetic, each row without itself."""
    found = {n: (s.fingerprint, s.rows) for n, s in surveyed.summaries.items()}
    if not chosen.bucketed or found.get(HOLDOUT) != found[SYNTHETIC]:
        return frozenset()
    return frozenset({(SYNTHETIC, HOLDOUT), (HOLDOUT, SYNTHETIC)})


def _same_table_warning(engine: Engine) -> list[str]:
    return [
        "synthetic and holdout hold the same rows: each row is left out of its own distance to holdout, "
        "as in the paper."
    ] * bool(engine.same)


def _beside(engine: Engine, surveyed: Surveyed, chosen: Preset, facts: Facts, real: Sequence[str]) -> list[str]:
    """Our own share of the same rows and columns, beside what a published tool says: its space is another one."""
    if chosen.name == DEFAULT.name or not facts.has(HOLDOUT):
        return []
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed), DEFAULT.space, tuple(real))
    run = engine.run
    engine.run = name_of(run, "beside")  # pieces are named by their run: those of another space need another name
    share = engine.measure([DcrShare()], facts, prepared.blocks, prepared.spaces)[0][DcrShare.name]
    engine.run = run
    return [
        f"beside preset {chosen.name}: with one range for all searches and ties shared out, the DCR share is "
        f"{share.value:.4f}; {share.expected:.4f} is expected without a leak (p = {share.p_value:.4f})."
    ]


def _prepare(engine: Engine, surveyed: Surveyed, chosen: Preset, real: Sequence[str]) -> Prepared:
    blocks = encode(engine, surveyed)
    if chosen.bucketed:
        return bucketed(engine, surveyed, blocks)
    fit = {RangeFrom.TRAIN: (TRAIN,), RangeFrom.ALL: tuple(blocks)}.get(chosen.space.range_from, real)
    return spaces_for(engine, surveyed, blocks, chosen.space, tuple(fit))


def _inputs(surveyed: Surveyed) -> dict[str, Any]:
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


def _settings(chosen: Preset, metrics: Sequence[Metric], seed: int, policy: Policy) -> dict[str, Any]:
    return {
        "preset": chosen.name,
        "metrics": [m.name for m in metrics],
        "seed": seed,
        "options": chosen.options,
        "policy": {"level": policy.level, "margins": dict(policy.margins), "gates": dict(policy.gates)},
    }


def _space(prepared: Prepared, chosen: Preset) -> dict[str, Any]:
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


def _costs(engine: Engine, executor: Executor, started: datetime, seconds: float) -> dict[str, Any]:
    statistics = getattr(executor, "statistics", None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "name": engine.run,
        "started": started.isoformat(timespec="seconds"),
        "seconds": seconds,
        "pairs": engine.pairs,
        "pairs_per_second": engine.pairs / max(seconds, 1e-9),
        "tasks": engine.tasks,
        "pieces_used_again": engine.reused,
        **(statistics.to_dict() if statistics is not None else {}),
        "block_rows": engine.layout.block_rows,
        "executor": type(executor).__name__.lower(),
        "slots": executor.slots,
        "peak_memory_client": peak,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
    }
