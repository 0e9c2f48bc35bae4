"""How the work grows with the table: n x n rows for n up to 1.6 million, one core, and the picture of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.kernel import encoded, fastest, indexed
from daskpriv.bench import adult_like
from daskpriv.space.searching import nearest

SIZES = (10_000, 25_000, 100_000, 400_000, 1_600_000)
QUERIES = 100_000
REDRAWN = {"adult_like": 0.3, "independent_columns": 1.0}
PLOT = Path(__file__).parent / "growth.svg"


def one(rows: int, redraw: float, queries: int) -> dict[str, float]:
    """Build and search with at most `queries` query rows; the cost of n x n rows follows."""
    queries = min(rows, queries)
    tables = (pa.Table.from_pandas(adult_like(n, seed, redraw)) for n, seed in ((queries, 7), (rows, 1)))
    data = encoded(*tables)
    build, (guide, index) = fastest(lambda: indexed(data), 2)
    seconds, _ = fastest(lambda: nearest(guide, [index], data.query, False, 2), 2)
    per_query = seconds / queries
    return {
        "gpairs_per_s": rows / per_query / 1e9,
        "us_per_query": per_query * 1e6,
        "index_us_per_row": build / rows * 1e6,
        "n_by_n_s": build + rows * per_query,
    }


def run(tiny: bool) -> dict[str, Any]:
    """Growth curves; the exponent is that of the total cost of n x n rows between the second and the last size."""
    sizes = (1_000, 2_000, 4_000) if tiny else SIZES
    out: dict[str, Any] = {}
    for name, redraw in REDRAWN.items():
        curve = {rows: one(rows, redraw, QUERIES) for rows in sizes}
        first, last = curve[sizes[1]]["n_by_n_s"], curve[sizes[-1]]["n_by_n_s"]
        out[name] = {
            **{f"rows_{rows}": figures for rows, figures in curve.items()},
            "exponent": math.log(last / first) / math.log(sizes[-1] / sizes[1]),
        }
    if not tiny:
        PLOT.write_text(plot(out))
    return out


# ---- the picture

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 70, 150, 30, 50
_COLOURS = ("#1a5fb4", "#b3261e", "#5e5c64")


def plot(curves: dict[str, Any]) -> str:
    """Seconds of one core for n x n rows, on logarithmic axes, with a line of slope 2 through the first point."""
    lines = {n.replace("_", " "): _points(c) for n, c in curves.items()}
    start = next(iter(lines.values()))[0]
    end = next(iter(lines.values()))[-1][0]
    lines["brute force grows like this"] = [start, (end, start[1] * (end / start[0]) ** 2)]
    xs = [math.log10(x) for p in lines.values() for x, _ in p]
    ys = [math.log10(y) for p in lines.values() for _, y in p]
    box = (min(xs), max(xs), math.floor(min(ys)), math.ceil(max(ys)))
    parts = [_grid(box)]
    for (name, points), colour in zip(lines.items(), _COLOURS, strict=False):
        places = [_place(math.log10(x), math.log10(y), box) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        below = 14 if name == next(iter(lines)) else 0  # the curves end close together
        at, height = places[-1][0] + 6, places[-1][1] + 2 + below
        parts.append(f'<text x="{at:.1f}" y="{height:.1f}" fill="{colour}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{_LEFT}" y="18">seconds of one core for n x n rows, index included</text>{"".join(parts)}</svg>\n'
    )


def _points(curve: dict[str, Any]) -> list[tuple[float, float]]:
    return [(float(k[5:]), v["n_by_n_s"]) for k, v in curve.items() if k.startswith("rows_")]


def _place(x: float, y: float, box: tuple[float, float, float, float]) -> tuple[float, float]:
    across = (x - box[0]) / (box[1] - box[0]) * (_WIDTH - _LEFT - _RIGHT)
    up = (y - box[2]) / (box[3] - box[2]) * (_HEIGHT - _TOP - _BOTTOM)
    return _LEFT + across, _HEIGHT - _BOTTOM - up


def _grid(box: tuple[float, float, float, float]) -> str:
    out = []
    for y in range(int(box[2]), int(box[3]) + 1):
        (x1, at), (x2, _) = _place(box[0], y, box), _place(box[1], y, box)
        out.append(f'<line x1="{x1:.1f}" y1="{at:.1f}" x2="{x2:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x1 - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{10.0**y:g} s</text>')
    for rows in (10_000, 100_000, 1_000_000):
        if box[0] <= math.log10(rows) <= box[1]:
            at, bottom = _place(math.log10(rows), box[2], box)
            out.append(f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">n = {rows:,}</text>')
    return "".join(out)
