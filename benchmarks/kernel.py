"""The search alone, on one core: real and made-up tables, against the plain float64 loop it must equal bit for bit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.datasets import CASES, LARGE, AbsentError, case
from daskpriv.engine.executor import Serial
from daskpriv.engine.plan import Layout
from daskpriv.engine.run import Engine
from daskpriv.kernels.codes import MOST, spell
from daskpriv.kernels.gower import DROP, Cells, distance, sum_limit
from daskpriv.kernels.lanes import first_lane
from daskpriv.kernels.search import _code_limit, _rows, _scratch
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.space.block import Block
from daskpriv.space.gower import GowerSpace, SpaceOptions
from daskpriv.space.guide import Extent, Guide
from daskpriv.space.index import Index
from daskpriv.space.packed import packed
from daskpriv.space.searching import _Queries, nearest
from daskpriv.tables.open import open_table

Floats = npt.NDArray[np.float64]
REPEATS = 5


@numba.njit(nogil=True, cache=True)
def plain(q: Any, r: Any, coded: Any, scale: Floats) -> Floats:  # pragma: no cover - compiled
    """The definition, written down: every column of every pair in float64; the nearest distance."""
    out = np.empty(len(q.row))
    for i in range(len(q.row)):
        best = np.inf
        for j in range(len(r.row)):
            total = 0.0
            for k in range(len(scale)):
                if coded[k]:
                    total += 1.0 if q.integer[i, k] != r.integer[j, k] else 0.0
                else:
                    total += min(abs(q.number[i, k] - r.number[j, k]) / scale[k], 1.0)
            best = min(best, total / len(scale))
        out[i] = best
    return out


@numba.njit(nogil=True, cache=True)
def unpruned(q: Any, codes: Any, coder: Any, planes: Any, measure: Any) -> Floats:  # pragma: no cover - compiled
    """The same lanes and the same float64 sums over all tiles, without boxes, order and warm start; top-2."""
    words, walk = _scratch(len(coder.group), len(coder.source), 1)
    slack = len(coder.group) + 2
    out = walk.bound[0]
    found = np.full((len(q.row), 2), np.inf)
    for i in range(len(q.row)):
        base, clip = spell(codes, i, coder, planes.held_at, measure.missing, words)
        clip = clip or coder.clipped
        code = np.uint16(MOST)
        limit = np.inf
        for tile in range(len(planes.start) - 1):
            mask = _rows(tile, planes, coder, words, clip, measure.missing == DROP, base, code, out)
            while mask != 0:
                lane = first_lane(mask)
                mask &= mask - np.uint32(1)
                if out[lane] > code:
                    continue
                d = distance(i, planes.start[tile] + lane, q, planes.cells, measure, limit)
                if d < found[i, 1]:
                    found[i, 1] = max(d, found[i, 0])
                    found[i, 0] = min(d, found[i, 0])
                    limit = sum_limit(found[i, 1], measure.total)
                    code = _code_limit(limit, coder.scale, slack)
    return found


@dataclass(frozen=True, eq=False)
class Encoded:
    """Two encoded tables and their space."""

    query: Block
    reference: Block
    space: GowerSpace

    @property
    def pairs(self) -> int:
        """Pairs of rows."""
        return len(self.query) * len(self.reference)


def encoded(query: pa.Table, reference: pa.Table) -> Encoded:
    """Read and encode."""
    rows = max(len(query), len(reference))
    engine = Engine(Serial(), Layout(rows, rows))
    tables = {"reference": open_table(reference, "reference"), "query": open_table(query, "query")}
    surveyed = survey(engine, tables, Columns(), ("reference",))
    ready = spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), ("reference",))
    first = {name: blocks.sources[0].load() for name, blocks in ready.blocks.items()}
    return Encoded(first["query"], first["reference"], ready.spaces["query", "reference"])


def indexed(data: Encoded) -> tuple[Guide, Index]:
    """One index of the reference."""
    guide = Guide.fit(data.space, Extent.of(data.space, data.reference), 1)
    return guide, Index.build(guide, 0, [packed(data.space, data.reference)])


def fastest(work: Any, repeats: int = REPEATS) -> tuple[float, Any]:
    """CPU seconds of the fastest of some runs, and the result."""
    best, result = np.inf, None
    for _ in range(repeats):
        begun = time.thread_time()
        result = work()
        best = min(best, time.thread_time() - begun)
    return best, result


def measured(data: Encoded, plain_rows: int) -> dict[str, Any]:
    """Billions of pairs per second of one core: the search from encoded query rows, and with building the index."""
    indexed(Encoded(data.query, data.reference.slice(0, min(50, len(data.reference))), data.space))
    build, (guide, index) = fastest(lambda: indexed(data))
    nearest(guide, [index], data.query.slice(0, 50), False, 2)
    seconds, (found, _, _) = fastest(lambda: nearest(guide, [index], data.query, False, 2))
    some = data.query.slice(0, min(plain_rows, len(data.query)))
    asked, rows = packed(data.space, some), packed(data.space, data.reference)
    coded = data.space.group == 2
    plain(_head(asked), _head(rows), coded, data.space.scale)
    plain_seconds, expected = fastest(lambda: plain(asked, rows, coded, data.space.scale), 2)
    rate = data.pairs / seconds
    return {
        "queries": len(data.query),
        "references": len(data.reference),
        "gpairs_per_s": rate / 1e9,
        "gpairs_per_s_with_index": data.pairs / (seconds + build) / 1e9,
        "us_per_query": seconds / len(data.query) * 1e6,
        "index_us_per_row": build / len(data.reference) * 1e6,
        "plain_gpairs_per_s": len(some) * len(data.reference) / plain_seconds / 1e9,
        "times_plain": rate / (len(some) * len(data.reference) / plain_seconds),
        "index_bytes": index.nbytes,
        "codes_and_float64_bytes": _least_bytes(guide, index),
        "bit_identical": bool(np.array_equal(found[: len(some), 0], expected)),
    }


def _head(cells: Cells) -> Cells:
    return Cells(cells.number[:5], cells.integer[:5], cells.row[:5])


def _least_bytes(guide: Guide, index: Index) -> int:
    """Bytes of the codes and of the float64 columns of the rows that the index stands for."""
    coder = guide.coder
    return index.rows * (2 * len(coder.group) + len(coder.source) + 8 * len(guide.space.measure.group))


def worst(rows: int, queries: int) -> dict[str, Any]:
    """Uniform noise in 50 columns: nothing can be pruned. The search against the same lanes without boxes."""
    tables = case("uniform50", rows, queries)
    data = encoded(tables.query, tables.reference)
    guide, index = indexed(data)
    prepared = _Queries(guide, [index], data.query)
    arguments = (prepared.cells, prepared.codes, guide.coder, index.planes, guide.space.measure)
    unpruned(*arguments)
    scan, expected = fastest(lambda: unpruned(*arguments), 3)
    nearest(guide, [index], data.query, False, 2)
    search, (found, _, _) = fastest(lambda: nearest(guide, [index], data.query, False, 2), 3)
    return {
        "gpairs_per_s": data.pairs / search / 1e9,
        "unpruned_gpairs_per_s": data.pairs / scan / 1e9,
        "times_unpruned": scan / search,
        "bit_identical": bool(np.array_equal(found[prepared.order], expected)),
    }


def run(tiny: bool) -> dict[str, Any]:
    """Every case whose tables are on this machine."""
    out: dict[str, Any] = {}
    for name in ("adult",) if tiny else [c for c in CASES if c != LARGE]:
        try:
            tables = case(name, *((2_000, 500) if tiny else ()))
        except AbsentError:
            continue
        out[name] = measured(encoded(tables.query, tables.reference), 100 if tiny else 2_000)
    out["worst"] = worst(500, 50) if tiny else worst(20_000, 2_000)
    return out
