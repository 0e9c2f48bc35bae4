"""Cross-tabulations for the metrics that ask for them: find buckets, count, measure, forget the counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine.crosstabs import Sets
from daskpriv.engine.run import Blocks, Engine
from daskpriv.engine.sources import Coded
from daskpriv.errors import InputError
from daskpriv.evidence import (
    HOLDOUT,
    SYNTHETIC,
    TRAIN,
    Associations,
    Deviations,
    DrawnMargin,
    Facts,
    Margin,
    MarginNoise,
    Margins,
    Request,
    Role,
)
from daskpriv.kernels.gower import CODES, WIDE
from daskpriv.prepare import Surveyed, encode
from daskpriv.protocol import Answers, Metric
from daskpriv.space.bins import (
    LEAST_ROWS,
    MOSTLYAI,
    Bins,
    ColumnBins,
    WideAsFloats,
    hash_places,
    number_places,
    searched_breaks,
)
from daskpriv.space.encoding import ColumnCode
from daskpriv.stats.association import cramers_v, grade_correlation, of_each
from daskpriv.stats.combinations import chosen
from daskpriv.stats.fidelity import deviations, total_variation
from daskpriv.stats.labels import labels
from daskpriv.stats.selection import EvenQuantiles, Quantiles

# Counts of a batch of sets, in all tables, that a unit of work holds and sends.
_COUNT_BYTES = 64 << 20
_COMPARED = (SYNTHETIC, HOLDOUT)
_Arrays = TypeVar("_Arrays", Deviations, Associations)


def answered(engine: Engine, surveyed: Surveyed, metrics: Sequence[Metric], facts: Facts) -> Answers:
    """Every `Margins` and `MarginNoise` that the metrics need, each once."""
    wanted = dict.fromkeys(r for m in metrics for r in m.needs(facts) if isinstance(r, (Margins, MarginNoise)))
    if not wanted:
        return {}
    blocks = {role: held for role, held in encode(engine, surveyed).items() if role in (TRAIN, *_COMPARED)}
    if surveyed.encoding.width(WIDE):
        blocks = {role: held.then(engine.executor.publish(WideAsFloats())) for role, held in blocks.items()}
    coded: dict[tuple[int, str], tuple[Bins, Mapping[Role, tuple[Coded, ...]]]] = {}
    out: dict[Request, Margin | DrawnMargin] = {}
    for request in wanted:
        of = request if isinstance(request, Margins) else request.of
        if (of.buckets, of.bins) not in coded:
            bins = fitted(engine, surveyed, blocks, of.buckets, of.bins)
            coded[of.buckets, of.bins] = bins, engine.coded(blocks, bins)
        bins, tables = coded[of.buckets, of.bins]
        out[request] = (
            _margin(engine, request, bins, tables, facts)
            if isinstance(request, Margins)
            else _drawn(engine, request, bins, tables, facts)
        )
    return out


# ---------------------------------------------------------------------------------------------- buckets


def fitted(engine: Engine, surveyed: Surveyed, blocks: Mapping[Role, Blocks], buckets: int, rule: str) -> Bins:
    """The buckets of every column; see `daskpriv.space.bins` for the rules."""
    pool = [role for role in ((TRAIN, HOLDOUT) if rule == "real" else (TRAIN,)) if role in blocks]
    places = number_places(surveyed.encoding)
    edges = _edges(engine, surveyed, blocks, pool, buckets, rule)
    most = buckets if rule in ("paper", MOSTLYAI) else buckets - 1
    columns = []
    for column in surveyed.encoding.columns:
        if column.name in places:
            place = places[column.name]
            columns.append(ColumnBins.of_numbers(place, edges.get(place, np.zeros(0)), rule == MOSTLYAI))
        else:
            values, counts = _categories(engine, surveyed, blocks, pool, column)
            if rule == MOSTLYAI:
                counts = np.where(counts >= LEAST_ROWS, counts, 0)
            columns.append(ColumnBins.of_categories(column.group, column.index, values, counts, most))
    return Bins(tuple(columns))


def _edges(
    engine: Engine, surveyed: Surveyed, blocks: Mapping[Role, Blocks], pool: Sequence[Role], buckets: int, rule: str
) -> dict[int, NDArray[np.float64]]:
    """Of number columns that have values, {place: edges}."""
    tables, places = [blocks[t] for t in pool], number_places(surveyed.encoding)
    if rule == MOSTLYAI:
        timed = {places[c.name] for c in surveyed.encoding.columns if c.name in places and c.reading.timed}
        found = engine.distinct(tables, "bins 'mostlyai-qa'", "use bins 'real'")
        return {p: searched_breaks(values, counts, buckets, p not in timed) for p, (values, counts) in found.items()}
    # numpy.linspace and i / n round some probabilities differently; the published buckets come from linspace.
    even = tuple(float(p) for p in np.linspace(0, 1, buckets + 1))
    wanted = {}
    for name, place in places.items():
        n = sum(s.rows - s.nulls for s in (surveyed.summaries[t].columns[name] for t in pool))
        wanted[place] = Quantiles(even, n) if rule == "paper" else EvenQuantiles(buckets, n)
    return {place: np.array(values) for place, values in engine.quantiles(tables, wanted).items()}


def _categories(
    engine: Engine, surveyed: Surveyed, blocks: Mapping[Role, Blocks], pool: Sequence[Role], column: ColumnCode
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Codes (or hashes) of a column's categories, ascending, and how many rows of the pool hold them."""
    if column.group != CODES:
        place = hash_places(surveyed.encoding)[column.name]
        return engine.distinct_hashes([blocks[t] for t in pool], place, column.name)
    held = [surveyed.summaries[t].columns[column.name].counts or {} for t in pool]
    values = column.categories.to_pylist() if column.categories is not None else []
    return np.arange(len(values)), np.array([sum(h.get(v, 0) for h in held) for v in values], np.int64)


# ---------------------------------------------------------------------------------------------- counts


def _margin(
    engine: Engine, request: Margins, bins: Bins, tables: Mapping[Role, tuple[Coded, ...]], facts: Facts
) -> Margin:
    columns = len(bins.columns)
    sets = Sets(bins.widths, _chosen(request, columns, request.most))
    compared: dict[Role, list[Deviations]] = {role: [] for role in _COMPARED if role in tables}
    association: dict[Role, list[Associations]] = {role: [] for role in tables if request.order == 2}
    for batch in _batches(sets, 8 * len(tables), facts):
        counts = engine.crosstabs(tables, batch)
        for role, held in compared.items():
            held.append(deviations(counts[role], counts[TRAIN], batch.starts, (facts.rows[role], facts.rows[TRAIN])))
        for role, found in association.items():
            found.append(_associated(counts[role], batch, bins.ordered))
    return Margin(
        sets.combinations,
        request.of_how_many(columns),
        {role: _joined(Deviations, held) for role, held in compared.items()},
        {role: _joined(Associations, found) for role, found in association.items()},
    )


def _chosen(request: Margins, columns: int, most: int) -> NDArray[np.int64]:
    if request.of_how_many(columns) >= 2**63:
        raise InputError(
            f"{columns} columns have more than 2**63 sets of {request.order}; choose a smaller order or fewer columns."
        )
    return chosen(columns, request.order, most, request.seed)


def _joined(kind: type[_Arrays], held: Sequence[_Arrays]) -> _Arrays:
    def one(name: str) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *(getattr(h, name) for h in held)])

    return kind(*(one(f.name) for f in fields(kind)))


def _associated(counts: NDArray[np.int64], sets: Sets, ordered: NDArray[np.bool_]) -> Associations:
    shapes, both = sets.widths[sets.combinations], ordered[sets.combinations].all(axis=1)
    strength, direction = (of_each(m, counts, sets.starts, shapes) for m in (cramers_v, _in_order))
    return Associations(strength, np.where(both, direction, np.nan))


def _in_order(tables: NDArray[np.int64]) -> NDArray[np.float64]:
    """Without the last two codes, which are other and missing."""
    return grade_correlation(tables[:, :-2, :-2])


def _batches(sets: Sets, bytes_per_cell: int, facts: Facts) -> Iterator[Sets]:
    """Consecutive sets whose counts stay below the bound; none is empty."""
    shapes = sets.widths[sets.combinations].astype(np.float64)
    cells = np.prod(shapes, axis=1)
    most = _COUNT_BYTES // bytes_per_cell
    if len(cells) and cells.max() > most:
        names = ", ".join(repr(facts.names[i]) for i in sets.combinations[int(cells.argmax())])
        raise InputError(
            f"columns {names} together have {cells.max():.3g} cells, {most:,} at most can be counted; use fewer "
            "buckets, a smaller order, or exclude a column."
        )
    start = 0
    while start < len(cells):
        stop = start + max(int(np.searchsorted(np.cumsum(cells[start:]), most, side="right")), 1)
        yield sets.slice(start, stop)
        start = stop


def _drawn(
    engine: Engine, request: MarginNoise, bins: Bins, tables: Mapping[Role, tuple[Coded, ...]], facts: Facts
) -> DrawnMargin:
    """Distances of some sets when the rows of train and of the other table are labelled at random."""
    sets = Sets(bins.widths, _chosen(request.of, len(bins.columns), min(request.of.most, request.most)))
    observed: dict[Role, NDArray[np.float64]] = {}
    drawn: dict[Role, NDArray[np.float64]] = {}
    for role in _COMPARED:
        if role not in tables:
            continue
        subjects = facts.subjects if role == HOLDOUT else None
        draws = labels(facts.rows[TRAIN], facts.rows[role], request.seed, request.draws, subjects)
        seen, parts = [], []
        for batch in _batches(sets, 8 * (request.draws + 1), facts):
            counts = engine.crosstabs({r: tables[r] for r in (TRAIN, role)}, batch)
            whole = counts[TRAIN] + counts[role]
            seen.append(total_variation(counts[TRAIN], counts[role], batch.starts))
            taken = engine.drawn_crosstabs(tables[TRAIN], tables[role], batch, draws)
            parts.append(np.stack([total_variation(t, whole - t, batch.starts) for t in taken]))
        observed[role], drawn[role] = np.concatenate(seen), np.concatenate(parts, axis=1)
    return DrawnMargin(observed, drawn)
