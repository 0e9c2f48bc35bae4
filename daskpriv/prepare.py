"""From opened tables to encoded blocks: one pass to know the columns, one pass to encode them."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskpriv.engine.plan import check_memory
from daskpriv.engine.run import Blocks, Engine, Pair
from daskpriv.errors import InputError
from daskpriv.events import Warned
from daskpriv.kernels.gower import NUMBERS
from daskpriv.space.buckets import Buckets, refuses
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import GowerSpace, RangeFrom, SpaceOptions, fit_space
from daskpriv.space.reading import Reading, reading
from daskpriv.space.summary import ColumnSummary, PartSummary
from daskpriv.stats.selection import Quantiles
from daskpriv.tables.reconcile import differences, draft, looks_like_id
from daskpriv.tables.schema import Column, Schema
from daskpriv.tables.table import Table
from daskpriv.tables.types import CATEGORICAL, Kind

_TEXT_SHARE = 0.5
_ID_SHARE = 0.9
_ID_ROWS = 20
PAPER_BUCKETS = 100


@dataclass(frozen=True)
class Columns:
    """How the caller narrows or describes the columns."""

    schema: Schema | None = None
    only: Sequence[str] | None = None
    exclude: Collection[str] = ()
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise InputError("schema: give a daskpriv.Schema or the path of its YAML file.")
        for name, value in (("columns", self.only), ("exclude", self.exclude)):
            if isinstance(value, str) or not all(isinstance(v, str) for v in _listed(name, value)):
                raise InputError(f"{name}: give a list of column names.")
        if self.only is not None and not list(self.only):
            raise InputError("columns: the list is empty; name at least one column, or leave it out.")
        weights = self.weights if self.weights is not None else {}
        if not isinstance(weights, Mapping):
            raise InputError("weights: give a mapping from column names to numbers, such as {'age': 2.0}.")


def _listed(name: str, value: Any) -> list[Any]:
    try:
        return list(value) if value is not None else []
    except TypeError:
        raise InputError(f"{name}: give a list of column names.") from None


@dataclass(frozen=True, eq=False)
class Surveyed:
    """Tables whose columns are known: summaries, settled schema, encoding; nothing is encoded yet."""

    tables: Mapping[str, Table]
    schema: Schema
    summaries: Mapping[str, PartSummary]
    encoding: Encoding
    differences: tuple[dict[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def by_column(self) -> dict[str, dict[str, ColumnSummary]]:
        """{table: {column: summary}}."""
        return {t: s.columns for t, s in self.summaries.items()}


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything the searches need."""

    surveyed: Surveyed
    encoding: Encoding
    blocks: Mapping[str, Blocks]
    spaces: Mapping[Pair, GowerSpace] = field(default_factory=dict)


def survey(
    engine: Engine,
    tables: Mapping[str, Table],
    columns: Columns,
    real: Sequence[str],
    numeric_booleans: bool = False,
    drops_ids: bool = True,
) -> Surveyed:
    """Read every table once and settle schema and encoding.

    Parameters
    ----------
    real : sequence of str
        The tables that decide kinds; the first one leads.
    numeric_booleans : bool
        Store booleans as 0 and 1 (a published bucketing wants it).
    drops_ids : bool
        Leave out columns that look like ids, unless a schema was given.
    """
    schema = draft(tables, columns.schema, columns.only, columns.exclude, columns.weights)
    if numeric_booleans:
        schema = Schema(tuple(replace(c, kind=Kind.NUMERIC) if c.kind is Kind.BOOLEAN else c for c in schema.columns))
    readings = _readings(tables, schema)
    summaries = {name: engine.summarise(table, readings) for name, table in tables.items()}
    by_column = {t: s.columns for t, s in summaries.items()}
    schema, notes = _settle(schema, by_column, real, columns if drops_ids else None)
    for name in schema.names:
        _check_finite(name, by_column)
    readings = [replace(r, column=schema.column(r.column.name)) for r in readings]
    warnings = [
        *notes,
        *(n for t in tables.values() for n in t.notes),
        *_misfits(by_column),
        *_lookalikes(schema, by_column, real),
    ]
    for message in warnings:
        engine.listener(Warned(message))
    differ = differences(tables, schema) + _unseen(schema, by_column, real)
    return Surveyed(tables, schema, summaries, Encoding.fit(readings, by_column), tuple(differ), tuple(warnings))


def _readings(tables: Mapping[str, Table], schema: Schema) -> list[Reading]:
    return [reading(c, [t.schema.field(c.name).type for t in tables.values()]) for c in schema.used]


def _settle(
    schema: Schema,
    by_column: Mapping[str, Mapping[str, ColumnSummary]],
    real: Sequence[str],
    columns: Columns | None,
) -> tuple[Schema, list[str]]:
    """Tell ids and free text apart from ordinary columns, unless a schema says; what was named on purpose stays."""
    if columns is None or columns.schema is not None:
        return schema, []
    keep = {*(columns.only or ()), *(columns.weights or ())}
    notes, out = [], []
    for column in schema.columns:
        settled = _settled(column, [by_column[t][column.name] for t in real], column.name in keep)
        if settled.kind is Kind.ID:
            notes.append(
                f"column {column.name!r} looks like an id (its name, and nearly every value is distinct) "
                "and is left out; declare another kind in a schema to keep it."
            )
        out.append(settled)
    if not any(c.used for c in out):
        return schema, []
    return Schema(tuple(out)), notes


def _settled(column: Column, real: Sequence[ColumnSummary], keep: bool) -> Column:
    named = column.kind in (Kind.NUMERIC, Kind.NOMINAL) and not keep and looks_like_id(column.name)
    if named and all(_all_distinct(s) for s in real):
        return replace(column, kind=Kind.ID)
    values = real[0].rows - real[0].nulls
    if column.kind is Kind.NOMINAL and values > 100 and real[0].distinct > _TEXT_SHARE * values:
        return replace(column, kind=Kind.TEXT)
    return column


def _all_distinct(summary: ColumnSummary) -> bool:
    return summary.nulls == 0 and summary.rows >= _ID_ROWS and summary.distinct >= _ID_SHARE * summary.rows


def _check_finite(name: str, by_column: Mapping[str, Mapping[str, ColumnSummary]]) -> None:
    for table, columns in by_column.items():
        if name in columns and columns[name].infinite:
            raise InputError(
                f"{table}: column {name!r} holds {columns[name].infinite} infinite value(s); replace them "
                "by null or a bound."
            )


def _misfits(by_column: Mapping[str, Mapping[str, ColumnSummary]]) -> list[str]:
    out = []
    for table, columns in by_column.items():
        for name, s in columns.items():
            if not s.misfits:
                continue
            if s.misfits > (s.rows - s.nulls + s.misfits) / 2:
                raise InputError(
                    f"{table}: column {name!r}: {s.misfits} of {s.rows} cells do not fit the type of the "
                    "real table; mend the file."
                )
            out.append(
                f"{table}: column {name!r}: {s.misfits} of {s.rows} cells do not fit the column's type "
                "and count as missing."
            )
    return out


def _new_categories(
    schema: Schema, by_column: Mapping[str, Mapping[str, ColumnSummary]], real: Sequence[str]
) -> Iterator[tuple[str, Column, set[Any], dict[Any, int]]]:
    """(table, column, categories of the real tables, rows of each category that only this table holds)."""
    for column in schema.used:
        counted = [by_column[t][column.name].counts for t in real]
        if any(c is None for c in counted):
            continue
        known = {v for c in counted for v in c or ()}
        for table, columns in by_column.items():
            new = {v: n for v, n in (columns[column.name].counts or {}).items() if v not in known}
            if new and table not in real:
                yield table, column, known, new


def _unseen(
    schema: Schema, by_column: Mapping[str, Mapping[str, ColumnSummary]], real: Sequence[str]
) -> list[dict[str, str]]:
    out = []
    for table, column, _, new in _new_categories(schema, by_column, real):
        if column.kind in CATEGORICAL:
            what = f"{len(new)} categories in {sum(new.values())} rows that no real table has; they match nothing there"
            out.append({"table": table, "column": column.name, "what": what})
    return out


def _lookalikes(schema: Schema, by_column: Mapping[str, Mapping[str, ColumnSummary]], real: Sequence[str]) -> list[str]:
    """Categories that differ from a real one only by case, blanks or Unicode form: most likely a mistake."""
    out = []
    for table, column, known, new in _new_categories(schema, by_column, real):
        forms = {_form(v) for v in known if isinstance(v, str)}
        near = sum(isinstance(v, str) and _form(v) in forms for v in new)
        if near:
            out.append(
                f"{table}: column {column.name!r}: {near} categories differ from a real one only by case, blanks or "
                "Unicode form and never match; clean them if that is not meant."
            )
    return out


def _form(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def encode(engine: Engine, surveyed: Surveyed, only: Sequence[str] | None = None, k: int = 2) -> dict[str, Blocks]:
    """Read tables again (all, or `only` some) and leave their encoded blocks on the workers."""
    chosen = {n: t for n, t in surveyed.tables.items() if only is None or n in only}
    rows = max(t.rows for t in chosen.values())
    executor = engine.executor
    check_memory(engine.layout, rows, surveyed.encoding.row_bytes, k, executor.memory_per_slot, executor.threads)
    return {name: engine.encode(table, surveyed.encoding) for name, table in chosen.items()}


def spaces_for(
    engine: Engine, surveyed: Surveyed, blocks: Mapping[str, Blocks], options: SpaceOptions, fit: Sequence[str]
) -> Prepared:
    """The Gower space of every direction; ranges that need quantiles or ranks are found from the blocks."""
    spreads = _spreads(engine, surveyed, blocks, options, fit)
    if options.range_from is RangeFrom.RANK and surveyed.encoding.width(NUMBERS):
        supports = engine.distinct([blocks[t] for t in fit], "range 'rank'", "use range 'quantile'")
        ordinal = {c.index for c in surveyed.encoding.columns if c.reading.column.kind is Kind.ORDINAL}
        supports = {p: s for p, s in supports.items() if p not in ordinal and len(s[0])}
        blocks = {name: engine.rank(b, supports) for name, b in blocks.items()}
    summaries = surveyed.by_column
    spaces = {
        (q, r): fit_space(surveyed.encoding, options, summaries, q, r, fit, spreads) for q in blocks for r in blocks
    }
    return Prepared(surveyed, surveyed.encoding, blocks, spaces)


def _spreads(
    engine: Engine, surveyed: Surveyed, blocks: Mapping[str, Blocks], options: SpaceOptions, fit: Sequence[str]
) -> dict[str, float] | None:
    if options.spread is None:
        return None
    found = _quantiles(engine, surveyed, blocks, fit, options.spread)
    names = {c.index: c.name for c in surveyed.encoding.columns if c.group == NUMBERS}
    return {names[place]: high - low for place, (low, high) in found.items()}


def _quantiles(
    engine: Engine,
    surveyed: Surveyed,
    blocks: Mapping[str, Blocks],
    pool: Sequence[str],
    probabilities: Sequence[float],
) -> dict[int, list[float]]:
    wanted = {}
    for c in surveyed.encoding.columns:
        if c.group == NUMBERS:
            held = [surveyed.summaries[t].columns[c.name] for t in pool]
            wanted[c.index] = Quantiles(tuple(probabilities), sum(s.rows - s.nulls for s in held))
    return engine.quantiles([blocks[t] for t in pool], wanted)


def bucketed(engine: Engine, surveyed: Surveyed, blocks: Mapping[str, Blocks]) -> Prepared:
    """Blocks whose every column is a category: quantile buckets over all tables together."""
    wide = refuses(surveyed.encoding)
    if wide is not None:
        raise InputError(f"column {wide!r}: integers beyond 2**53 cannot be bucketed; rescale it or exclude it.")
    # numpy.linspace and i / n round some probabilities differently; the published buckets come from linspace.
    probabilities = [float(p) for p in np.linspace(0, 1, PAPER_BUCKETS + 1)]
    quantiles = _quantiles(engine, surveyed, blocks, list(blocks), probabilities)
    empty = {c.index for c in surveyed.encoding.columns if c.group == NUMBERS} - set(quantiles)
    buckets = Buckets.fit({**quantiles, **{place: [0.0] for place in empty}})
    encoding = buckets.encoding(surveyed.encoding)
    coded = {name: engine.bucket(b, buckets) for name, b in blocks.items()}
    names = list(blocks)
    space = fit_space(encoding, SpaceOptions(), surveyed.by_column, names[0], names[0], names)
    return Prepared(surveyed, encoding, coded, {(q, r): space for q in names for r in names})
