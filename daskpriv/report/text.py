"""The report in a few lines of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskpriv.report.words import overall


def number(value: float | None, digits: int = 4) -> str:
    """A number for people: 4 significant decimals, a dash for none, no decimals for 0 and large whole numbers."""
    if value is None:
        return "-"
    if value == int(value) and (abs(value) >= 100 or value == 0):
        return f"{int(value):,}"
    return f"{value:.{digits}f}" if abs(value) >= 10**-digits or value == 0 else f"{value:.1e}"


def amount(value: float | None, unit: str) -> str:
    """An effect for people: shares in percent.

    >>> amount(0.0213, "share"), amount(0.00032, "share"), amount(0.851, "log odds"), amount(None, "share")
    ('2.1 %', '0.032 %', '0.85', '-')
    """
    if value is None:
        return "-"
    if unit != "share":
        return f"{value:.2f}"
    return f"{100 * value:.1f} %" if abs(value) >= 0.01 or value == 0 else f"{100 * value:.2g} %"


def between(interval: Sequence[float | None], unit: str, alone: bool = False) -> str:
    """Both ends of an interval; `alone` where only the lower one is known.

    >>> between([0.01, 0.02, 0.95], "share"), between([0.5, None, 0.95], "log odds", alone=True)
    ('(1.0 % to 2.0 %)', '0.50')
    """
    low, high = amount(interval[0], unit), amount(interval[1], unit)
    return low if alone and interval[1] is None else f"({low} to {high})"


def summary(report: dict[str, Any]) -> str:
    """What a terminal shows; `report` is `Report.to_dict()`."""
    tables = report["inputs"].get("tables", {})
    sizes = ", ".join(f"{name} {t['rows']:,} rows" for name, t in tables.items())
    lines = [f"daskpriv {report['daskpriv']}: {sizes}", f"Overall: {report['overall']['verdict']}"]
    lines += [*overall(report), ""]
    wide = max([len(name) for name in report["metrics"]] + [10]) + 2
    lines.append(
        f"{'metric':<{wide}}{'verdict':<18}{'value':>9}  {'interval':<18}{'expected':>9}  {'p':>8}  {'adjusted':>8}"
    )
    for name, m in report["metrics"].items():
        interval = f"[{number(m['interval'][0])}, {number(m['interval'][1])}]" if m["interval"] else "-"
        lines.append(
            f"{name:<{wide}}{m['verdict']:<18}{number(m['value']):>9}  "
            f"{interval:<18}{number(m['expected']):>9}  {number(m['p_value']):>8}  {number(m['p_adjusted']):>8}"
        )
    lines.append("")
    lines += [f"{name}: {m['reading']}" for name, m in report["metrics"].items()]
    lines += [f"rule {r['rule']}: {'BROKEN' if r['broken'] else 'kept'}" for r in report["overall"].get("rules", [])]
    lines += [f"gate {g['name']}: {g['message']}" for g in report["gates"] if not g["passed"]]
    lines += [f"warning: {w}" for w in report["warnings"]]
    return "\n".join(lines)
