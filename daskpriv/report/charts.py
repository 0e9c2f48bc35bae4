"""Charts as SVG text, drawn from the numbers in the report alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

_COLOURS = {"synthetic->train": "#b3261e", "synthetic->holdout": "#1a5fb4", "holdout->train": "#5e5c64"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 300, 56, 44, 28


@dataclass(frozen=True)
class Chart:
    """An SVG image; notebooks show it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


def effect_bar(effect: Mapping[str, Any] | None, wide: float = 160.0) -> dict[str, float | None] | None:
    """Where the parts of a bar lie, from 0 to `wide`: the interval, the value, the margin and 0, on one scale.

    An end that is None lies beyond the bar.
    """
    if not effect or not effect["interval"]:
        return None
    low, high, _ = effect["interval"]
    known = [x for x in (0.0, low, high, effect["value"], 2 * (effect["margin"] or 0.0)) if x is not None]
    first, last = min(known), max(known)
    room = (last - first) * 0.05 or 1.0

    def place(x: float | None) -> float | None:
        return None if x is None else round((x - first + room) / (last - first + 2 * room) * wide, 1)

    start, stop = place(low) or 0.0, wide if high is None else place(high) or 0.0
    value = place(effect["value"])
    return {
        "low": start,
        "width": round(max(stop - start, 1.5), 1),
        "value": None if value is None else round(value - 1.5, 1),
        "margin": place(effect["margin"]),
        "zero": place(0.0),
    }


def dcr_chart(details: dict[str, Any]) -> Chart:
    """Histograms of the distance to the closest record, laid over each other on one grid."""
    shown = [d for d in _COLOURS if d in details]
    edges = details[shown[0]]["histogram"]["edges"]
    shares = {d: _shares(details[d]) for d in shown}
    last = max((i for s in shares.values() for i, v in enumerate(s) if v > 0.0005), default=0) + 2
    last = min(last, len(edges) - 1)
    top = max(max(s[:last]) for s in shares.values()) or 1.0
    parts = [_axes(edges, last, top)]
    parts += [_steps(shares[d][:last], edges[: last + 1], top, _COLOURS[d]) for d in shown]
    for place, d in enumerate(shown):
        y = _TOP + 16 * place
        parts.append(
            f'<rect x="{_WIDTH - 190}" y="{y - 9}" width="12" height="10" fill="{_COLOURS[d]}" opacity="0.6"/>'
        )
        parts.append(f'<text x="{_WIDTH - 172}" y="{y}">{escape(d.replace("->", " to "))}</text>')
    return Chart(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="#222"><title>Distance to the closest record</title>{"".join(parts)}</svg>'
    )


def _shares(direction: dict[str, Any]) -> list[float]:
    histogram = direction["histogram"]
    counts = [c or 0 for c in histogram["counts"]]  # counts of a few rows are not shown
    counts[0] += histogram.get("zero", 0)
    return [c / direction["n"] for c in counts]


def _x(value: float, most: float) -> float:
    return _LEFT + value / most * (_WIDTH - _LEFT - 12)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)


def _steps(shares: list[float], edges: list[float], top: float, colour: str) -> str:
    most = edges[-1]
    points = [f"{_x(edges[0], most):.1f},{_y(0, top):.1f}"]
    for i, share in enumerate(shares):
        points += [
            f"{_x(edges[i], most):.1f},{_y(share, top):.1f}",
            f"{_x(edges[i + 1], most):.1f},{_y(share, top):.1f}",
        ]
    points.append(f"{_x(most, most):.1f},{_y(0, top):.1f}")
    style = f'fill="{colour}" fill-opacity="0.18" stroke="{colour}" stroke-width="1.4"'
    return f'<polygon points="{" ".join(points)}" {style}/>'


def _axes(edges: list[float], last: int, top: float) -> str:
    most = edges[last]
    out = [f'<line x1="{_LEFT}" y1="{_y(0, top):.1f}" x2="{_WIDTH - 12}" y2="{_y(0, top):.1f}" stroke="#888"/>']
    for i in range(6):
        value, share = most * i / 5, top * i / 5
        out.append(
            f'<text x="{_x(value, most):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:.3g}</text>'
        )
        out.append(f'<text x="{_LEFT - 6}" y="{_y(share, top) + 4:.1f}" text-anchor="end">{100 * share:.3g} %</text>')
    middle, bottom = (_LEFT + _WIDTH) / 2, _HEIGHT - 8
    out.append(f'<text x="{middle:.0f}" y="{bottom}" text-anchor="middle">distance to the closest record</text>')
    out.append(f'<text x="{_LEFT}" y="14">share of rows</text>')
    return "".join(out)
