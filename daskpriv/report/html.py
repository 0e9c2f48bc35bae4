"""One self-contained page from the report's JSON: no network, no scripts, every text escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from daskpriv.report.charts import Chart, dcr_chart, effect_bar
from daskpriv.report.heat import association_chart
from daskpriv.report.text import amount, between, number
from daskpriv.report.words import JUDGED, LEGEND, QUESTIONS, overall


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("daskpriv.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "amount": amount, "between": between}
    environment.globals |= {"questions": QUESTIONS, "legend": LEGEND}
    return environment.get_template("page.html")


def page(report: dict[str, Any], fragment: bool = False) -> str:
    """Draw `report` (`Report.to_dict()` or a parsed report.json); `fragment` leaves out the document frame."""
    chart, heat = _drawn(report, "dcr", dcr_chart), _drawn(report, "correlation", association_chart)
    judged, described = [], []
    for name, m in report["metrics"].items():
        m = {"effect": None, **m}  # a report.json of an earlier version has none
        if m["verdict"] in JUDGED or m["p_value"] is not None:
            judged.append((name, m, effect_bar(m["effect"])))
        else:
            described.append((name, m))
    text = _template().render(
        r=report, chart=chart, heat=heat, fragment=fragment, why=overall(report), judged=judged, described=described
    )
    # A report.json may hold halves of characters, which no file can.
    return text.encode("utf-8", "replace").decode("utf-8")


def _drawn(report: Mapping[str, Any], metric: str, chart: Callable[[dict[str, Any]], Chart]) -> Markup | None:
    """The chart of a metric, if the report has it."""
    found = report["metrics"].get(metric)
    return Markup(chart(found["details"]).svg) if found and found["details"] else None  # noqa: S704  (our own SVG, texts escaped)
