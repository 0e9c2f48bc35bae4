"""A plain, slow, obvious float64 reference of what daskpriv computes, written from the definitions alone.

Nothing here comes from daskpriv. A table is a dict of column name to a list of cells; a missing cell is None. Numeric
cells are int or float, decimals are int (in units of their last digit), times are int (see `counted`), ordinal, nominal
and boolean cells anything hashable.

Where the definitions are silent: an ordinal column is a number to every missing mode but clearbox, where it is as in
`level`; a row at distance +inf is nobody's neighbour, but still ties with every other row at +inf in a share.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Cells = list[Any]
Rows = dict[str, Cells]
Matrix = list[list[float]]

NUMBER_KINDS = ("numeric", "datetime")
NUMERIC_KINDS = (*NUMBER_KINDS, "ordinal")
MISSING_MODES = ("level", "gower", "max", "anonymeter", "clearbox")
QUANTILES = (("q01", 0.01), ("q05", 0.05), ("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("q95", 0.95))


@dataclass(frozen=True)
class Col:
    """One column: its name, its kind, its weight and, for an ordinal one, its levels in order."""

    name: str
    kind: str
    weight: float = 1.0
    levels: tuple[Any, ...] = ()


def n_rows(table: Rows) -> int:
    """The number of rows of a table."""
    return len(next(iter(table.values())))


# ---------------------------------------------------------------------------------------------- one column


def counted(tables: Sequence[Cells]) -> list[Cells]:
    """Times in units of their greatest common step, so that the unit in which they are stored changes nothing."""
    present = sorted({c for cells in tables for c in cells if c is not None})
    step = math.gcd(*(b - present[0] for b in present)) or 1 if present else 1
    return [[None if c is None else (c - present[0]) // step for c in cells] for cells in tables]


def gap(x: Any, y: Any) -> float:
    """|x - y|, exact before it is rounded once to float64."""
    if isinstance(x, float) and isinstance(y, float):
        return abs(x - y)
    return float(abs(Fraction(x) - Fraction(y)))


def span(cells: Sequence[Any]) -> float:
    """The largest minus the smallest of the cells that are there, exact before it is rounded; 0 without any."""
    present = [c for c in cells if c is not None]
    return gap(max(present), min(present)) if present else 0.0


def column_range(col: Col, *tables: Rows) -> float:
    """The range of one column over some tables; for an ordinal column the number of steps between its end levels."""
    if col.kind == "ordinal":
        return float(len(col.levels) - 1)
    if col.kind in NUMERIC_KINDS:
        return span([cell for table in tables for cell in table[col.name]])
    return 1.0


def ranges_for(
    mode: str, columns: Sequence[Col], query: Rows, reference: Rows, real: Sequence[Rows], every: Sequence[Rows]
) -> dict[str, float]:
    """The range of each column in one range mode; `real` starts with the training table."""
    tables: dict[str, Sequence[Rows]] = {
        "real": real,
        "train": real[:1],
        "all": every,
        "pair_union": (query, reference),
        "pair_reference": (reference,),
    }
    return {col.name: column_range(col, *tables[mode]) for col in columns}


def present_distance(col: Col, x: Any, y: Any, width: float) -> float:
    """The distance of two cells that are both there, in [0, 1]."""
    if col.kind not in NUMERIC_KINDS:
        return 0.0 if x == y else 1.0
    if col.kind == "ordinal":
        x, y = col.levels.index(x), col.levels.index(y)
    if width == 0.0:
        return 0.0 if x == y else 1.0
    return min(gap(x, y) / width, 1.0)


def cell_distance(col: Col, x: Any, y: Any, width: float, missing: str) -> float | None:
    """The distance of two cells in a missing mode other than clearbox; None drops the column from this pair."""
    n_missing = (x is None) + (y is None)
    if n_missing == 0:
        return present_distance(col, x, y, width)
    if missing == "gower":
        return None
    if missing == "max":
        return 1.0
    if missing == "anonymeter" and col.kind in NUMERIC_KINDS:
        return 1.0 if n_missing == 2 else math.inf
    return 0.0 if n_missing == 2 else 1.0


# ---------------------------------------------------------------------------------------------- one pair of rows


def row_distance(
    columns: Sequence[Col], x: Mapping[str, Any], y: Mapping[str, Any], ranges: Mapping[str, float], missing: str
) -> float:
    """The Gower distance of two rows: summed left to right in schema order, divided once."""
    total = weights = 0.0
    for col in columns:
        d = cell_distance(col, x[col.name], y[col.name], ranges[col.name], missing)
        if d is None:
            continue
        if col.weight != 0.0:
            total += col.weight * d
        weights += col.weight
    return total / weights if weights > 0.0 else 1.0


def clearbox_cell(col: Col, x: Any, y: Any, width: float, known: set[Any], holed: bool) -> float:
    """One column of the clearbox mode; `known` are the categories of the query, `holed` a numeric column with gaps."""
    if col.kind in NUMBER_KINDS:
        return 0.0 if holed else present_distance(col, x, y, width)
    if col.kind == "ordinal":
        return cell_distance(col, x, y, width, "level") or 0.0
    return 0.0 if (x if x in known else None) == (y if y in known else None) else 1.0


def clearbox_matrix(columns: Sequence[Col], query: Rows, reference: Rows, ranges: Mapping[str, float]) -> Matrix:
    """All distances in the clearbox mode, which looks at whole tables."""
    known = {c.name: {v for v in query[c.name] if v is not None} for c in columns}
    holed = {c.name: None in query[c.name] or None in reference[c.name] for c in columns}
    out = []
    for i in range(n_rows(query)):
        line = []
        for j in range(n_rows(reference)):
            total = weights = 0.0
            for c in columns:
                x, y = query[c.name][i], reference[c.name][j]
                total += c.weight * clearbox_cell(c, x, y, ranges[c.name], known[c.name], holed[c.name])
                weights += c.weight
            line.append(total / weights)
        out.append(line)
    return out


def distances(
    columns: Sequence[Col], query: Rows, reference: Rows, ranges: Mapping[str, float], missing: str = "level"
) -> Matrix:
    """The distance of every query row to every reference row."""
    if missing == "clearbox":
        return clearbox_matrix(columns, query, reference, ranges)
    xs = [{c.name: query[c.name][i] for c in columns} for i in range(n_rows(query))]
    ys = [{c.name: reference[c.name][j] for c in columns} for j in range(n_rows(reference))]
    return [[row_distance(columns, x, y, ranges, missing) for y in ys] for x in xs]


# ---------------------------------------------------------------------------------------------- neighbours


@dataclass(frozen=True)
class Neighbours:
    """The k nearest rows of each query row, and how many rows lie at exactly the smallest distance."""

    distance: list[list[float]]
    row: list[list[int]]
    ties: list[int]


def nearest(matrix: Matrix, k: int, exclude_self: bool = False) -> Neighbours:
    """The k nearest in the order (distance, row id); a row at distance +inf is no neighbour."""
    out = Neighbours([], [], [])
    for i, line in enumerate(matrix):
        order = sorted((d, j) for j, d in enumerate(line) if not (exclude_self and i == j) and d < math.inf)
        best = order[:k] + [(math.inf, -1)] * (k - len(order))
        out.distance.append([d for d, _ in best])
        out.row.append([j for _, j in best])
        out.ties.append(sum(d == best[0][0] for d, _ in order) if order else 0)
    return out


# ---------------------------------------------------------------------------------------------- dcr, clones


def quantile(values: np.ndarray, q: float) -> float:
    """Numpy's linear quantile; between a finite and an infinite value it is infinite, on the finite one it is that."""
    if np.isfinite(values).all():
        return float(np.quantile(values, q, method="linear"))
    place = q * (len(values) - 1)
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return float(low) if low == high else math.inf if math.isinf(high) else low + (high - low) * (place % 1)


def dcr_statistics(closest: Sequence[float], bins: int = 100) -> dict[str, Any]:
    """The summary of one direction, quantiles as numpy's default (linear); bins are [i/bins, (i+1)/bins)."""
    values = np.asarray(closest, dtype=np.float64)
    finite = [float(v) for v in values if v < math.inf]
    n = len(values)
    mean = math.fsum(values) / n
    out: dict[str, Any] = {"n": n, "mean": mean, "min": float(values.min()), "max": float(values.max())}
    out["std"] = math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / n) if len(finite) == n else math.nan
    out |= {name: quantile(values, q) for name, q in QUANTILES}
    edges = [i / bins for i in range(bins + 1)]
    out["counts"] = [0] * bins
    for v in finite:
        out["counts"][min(bisect.bisect_right(edges, v), bins) - 1] += 1
    out["n_zero"] = sum(v == 0.0 for v in finite)
    return out


def closest_of(matrix: Matrix, exclude_self: bool = False) -> list[float]:
    """The smallest distance of each query row; +inf without any other row."""
    return [
        min((d for j, d in enumerate(line) if not (exclude_self and i == j)), default=math.inf)
        for i, line in enumerate(matrix)
    ]


def clones(s_train: Matrix, s_holdout: Matrix, h_train: Matrix) -> dict[str, Any]:
    """Exact copies: synthetic in train, synthetic in holdout, holdout in train."""
    counts = [sum(d == 0.0 for d in closest_of(m)) for m in (s_train, s_holdout, h_train)]
    rates = [c / len(m) for c, m in zip(counts, (s_train, s_holdout, h_train), strict=True)]
    return {
        "n_synthetic_train": counts[0],
        "n_synthetic_holdout": counts[1],
        "n_holdout_train": counts[2],
        "rates": {"synthetic_train": rates[0], "synthetic_holdout": rates[1], "holdout_train": rates[2]},
        "excess": float(Fraction(counts[0] - counts[1], len(s_train))),
    }


# ---------------------------------------------------------------------------------------------- the DCR share


def balanced_row(to_train: Sequence[float], to_holdout: Sequence[float]) -> Fraction:
    """The chance that a row is closer to train when the larger reference is cut to the size of the smaller one."""
    n_t, n_h = len(to_train), len(to_holdout)
    if n_t >= n_h:
        bound, draws = min(to_holdout), math.comb(n_t, n_h)
        strict = 1 - Fraction(math.comb(n_t - sum(d < bound for d in to_train), n_h), draws)
        loose = 1 - Fraction(math.comb(n_t - sum(d <= bound for d in to_train), n_h), draws)
    else:
        bound, draws = min(to_train), math.comb(n_h, n_t)
        strict = Fraction(math.comb(n_h - sum(d <= bound for d in to_holdout), n_t), draws)
        loose = Fraction(math.comb(n_h - sum(d < bound for d in to_holdout), n_t), draws)
    return (strict + loose) / 2


def credits(s_train: Matrix, s_holdout: Matrix) -> list[Fraction]:
    """What each pooled row (train first) gets: 1/(number of nearest rows) of every synthetic row it is nearest to."""
    out = [Fraction(0)] * (len(s_train[0]) + len(s_holdout[0]))
    for to_train, to_holdout in zip(s_train, s_holdout, strict=True):
        pooled = list(to_train) + list(to_holdout)
        nearest_rows = [j for j, d in enumerate(pooled) if d == min(pooled)]
        for j in nearest_rows:
            out[j] += Fraction(1, len(nearest_rows))
    return out


def permutation_variance(credit: Sequence[Fraction], n_t: int, n_h: int, n_s: int) -> Fraction:
    """The variance of the fractional share over all ways to relabel the pooled real rows."""
    n = n_t + n_h
    mean = sum(credit, Fraction(0)) / n
    squares = sum(((c - mean) ** 2 for c in credit), Fraction(0))
    return Fraction(n_t * n_h, n * (n - 1)) * squares / n_s**2


def dcr_share(s_train: Matrix, s_holdout: Matrix) -> dict[str, Any]:
    """The share of synthetic rows that are closer to train than to holdout, in every way to treat ties."""
    n_s, n_t, n_h = len(s_train), len(s_train[0]), len(s_holdout[0])
    d_t, d_h = closest_of(s_train), closest_of(s_holdout)
    closer = sum(a < b for a, b in zip(d_t, d_h, strict=True))
    equal = sum(a == b for a, b in zip(d_t, d_h, strict=True))
    pi = Fraction(n_t, n_t + n_h)
    credit = credits(s_train, s_holdout)
    share = sum(credit[:n_t], Fraction(0)) / n_s
    variance = permutation_variance(credit, n_t, n_h, n_s)
    balanced = sum((balanced_row(t, h) for t, h in zip(s_train, s_holdout, strict=True)), Fraction(0)) / n_s
    return {
        "n_closer": closer,
        "n_equal": equal,
        "n_further": n_s - closer - equal,
        "n_train": n_t,
        "n_holdout": n_h,
        "n_synthetic": n_s,
        "share_strict": closer / n_s,
        "share_half": float((Fraction(closer) + Fraction(equal, 2)) / n_s),
        "share_size": float((closer + pi * equal) / n_s),
        "share_fractional": float(share),
        "share_balanced": float(balanced),
        "expected": float(pi),
        "excess": float((share - pi) / (1 - pi)),
        "variance": float(variance),
        "z": float(share - pi) / math.sqrt(variance) if variance else None,
    }


# ---------------------------------------------------------------------------------------------- accuracy


def quantile_edges(values: Sequence[float], buckets: int) -> list[Fraction]:
    """The distinct quantiles i / buckets, in whole numbers (Hyndman & Fan's type 7)."""
    ordered, out = sorted(map(Fraction, values)), []
    for i in range(buckets + 1) if values else ():
        place = Fraction(i, buckets) * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        out.append(ordered[low] + (ordered[high] - ordered[low]) * (place - low))
    return sorted(set(out))


def bucket(col: Col, train: Cells, cell: Any, buckets: int) -> Any:
    """The name of the bucket that a cell falls into: the upper end of an interval, or a category."""
    known = [c for c in train if c is not None]
    if cell is None:
        return "missing"
    if col.kind == "nominal":
        common = sorted(set(known), key=lambda c: (-known.count(c), c))[: buckets - 1]
        return ("is", cell) if cell in common else "other"
    edges = quantile_edges(known, buckets)
    if not edges or not edges[0] <= cell <= edges[-1]:
        return "other"
    return ("up to", next((e for e in edges[1:] if cell <= e), edges[0]))


def margins(
    columns: Sequence[Col], train: Rows, table: Rows, buckets: int, fit: Rows | None = None
) -> dict[str, float]:
    """How far one set of columns of a table lies from train: every formula by its definition, cell by cell.

    Buckets are those of `fit`, else of train.
    """
    known = train if fit is None else fit
    joint = []
    for rows in (train, table):
        coded = [[bucket(c, known[c.name], cell, buckets) for cell in rows[c.name]] for c in columns]
        joint.append(Counter(zip(*coded, strict=True)))
    n, m = (sum(j.values()) for j in joint)
    cells = [(joint[0][x] / n, joint[1][x] / m) for x in {**joint[0], **joint[1]}]
    apart = [abs(p - q) for p, q in cells]
    middle = [(p, q, (p + q) / 2) for p, q in cells]
    return {
        "tvd": sum(apart) / 2,
        "hellinger": math.sqrt(max(1 - sum(math.sqrt(p * q) for p, q in cells), 0.0)),
        "jensen_shannon": sum(
            (p * math.log(p / r) if p else 0.0) / 2 + (q * math.log(q / r) if q else 0.0) / 2 for p, q, r in middle
        ),
        "max_deviation": max(apart),
        "mean_deviation": sum(apart) / len(apart),
        "expected": sum(mean_gap(joint[0][x] + joint[1][x], n, m) for x in {**joint[0], **joint[1]}) / 2,
    }


def mean_gap(k: int, n: int, m: int) -> float:
    """E|X / n - (k - X) / m| when k of n + m rows fall to tables of n and m rows at random, by its law."""
    gaps = (
        math.comb(n, x) * math.comb(m, k - x) * abs(Fraction(x, n) - Fraction(k - x, m))
        for x in range(max(0, k - m), min(n, k) + 1)
    )
    return float(sum(gaps, Fraction(0)) / math.comb(n + m, k))
