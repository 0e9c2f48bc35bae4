"""The report in a few lines of plain text."""

from __future__ import annotations

from typing import Any


def number(value: float | None, digits: int = 4) -> str:
    """A number for people: 4 significant decimals, a dash for none."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) >= 10**-digits or value == 0 else f"{value:.1e}"


def summary(report: dict[str, Any]) -> str:
    """What a terminal shows; `report` is `Report.to_dict()`."""
    tables = report["inputs"].get("tables", {})
    sizes = ", ".join(f"{name} {t['rows']:,} rows" for name, t in tables.items())
    lines = [f"daskpriv {report['daskpriv']}: {sizes}", f"Overall: {report['overall']['verdict']}", ""]
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
