"""A matrix of associations as SVG: what train and the synthetic table hold, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from daskpriv.report.charts import Chart

_SIDE, _TOP, _GAP, _NAMES = 300, 40, 40, 120
_LONGEST = 18  # characters of a column name
_MISSING = "#d9d9d9"
_STEPS = 10
_LARGE = 0.2  # a difference that has the darkest colour
Rows = Sequence[Sequence[float | None]]


def association_chart(details: dict[str, Any]) -> Chart:
    """Two squares from the details of `correlation`: strengths, and differences to train."""
    matrix = details["matrix"]
    names, of = matrix["columns"], matrix["cramers_v"]
    train, synthetic, holdout = of["train"], of["synthetic"], of.get("holdout")
    nothing: Rows = [[None] * len(row) for row in train]
    beside = ("holdout - train", _minus(holdout, train)) if holdout else ("", nothing)
    squares = [
        _square("train", train, "synthetic", synthetic, _strength, 0),
        _square("synthetic - train", _minus(synthetic, train), *beside, _difference, _SIDE + _GAP),
    ]
    wide, high = _NAMES + 2 * _SIDE + _GAP + 8, _TOP + _SIDE + 30
    return Chart(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="#222"><title>Associations of columns</title>{_labels(names)}{"".join(squares)}</svg>'
    )


def _minus(a: Rows, b: Rows) -> list[list[float | None]]:
    return [
        [None if x is None or y is None else x - y for x, y in zip(left, right, strict=True)]
        for left, right in zip(a, b, strict=True)
    ]


def _strength(value: float) -> str:
    """White at 0, dark violet at 1."""
    return _mixed(value, (66, 32, 120))


def _difference(value: float) -> str:
    """White at 0, red above, blue below."""
    return _mixed(abs(value) / _LARGE, (179, 38, 30) if value > 0 else (26, 95, 180))


def _mixed(share: float, colour: tuple[int, int, int]) -> str:
    step = round(min(share, 1.0) * _STEPS) / _STEPS
    return "#" + "".join(f"{round(255 + (c - 255) * step):02x}" for c in colour)


def _square(below: str, lower: Rows, above: str, upper: Rows, colour: Callable[[float], str], left: int) -> str:
    """Triangles below and above the diagonal, with their names; one path per colour, a run of cells one rectangle."""
    columns = len(lower)
    paths: dict[str, list[str]] = {}
    for i in range(columns):
        row = [*lower[i], None, *(upper[j][i] for j in range(i + 1, columns))]
        for shown, start, length in _runs([_MISSING if c is None else colour(c) for c in row]):
            paths.setdefault(shown, []).append(f"M{start} {i}h{length}v1h-{length}z")
    drawn = "".join(f'<path fill="{shown}" d="{"".join(parts)}"/>' for shown, parts in sorted(paths.items()))
    return (
        f'<g transform="translate({_NAMES + left} {_TOP})">'
        f'<g transform="scale({_SIDE / columns:.4f})" shape-rendering="crispEdges">{drawn}</g>'
        f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>'
        f'<text x="{_SIDE}" y="-8" text-anchor="end">above: {above or "nothing"}</text>'
        f'<text x="0" y="{_SIDE + 18}">below: {below}</text></g>'
    )


def _runs(colours: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Every run of one colour: where it starts and how long it is."""
    start = 0
    for colour, run in groupby(colours):
        length = len(list(run))
        yield colour, start, length
        start += length


def _labels(names: Sequence[str]) -> str:
    """Column names beside the first square."""
    step = _SIDE / len(names)
    size = min(step * 0.9, 11.0)
    return "".join(
        f'<text x="{_NAMES - 5}" y="{_TOP + (i + 0.5) * step + size / 3:.1f}" text-anchor="end" '
        f'font-size="{size:.1f}">{escape(n if len(n) <= _LONGEST else n[: _LONGEST - 1] + "…")}</text>'
        for i, n in enumerate(names)
    )
