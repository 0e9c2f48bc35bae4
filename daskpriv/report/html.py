"""One self-contained page from the report's JSON: no network, no scripts, every text escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from daskpriv.report.charts import dcr_chart, effect_bar
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
    dcr = report["metrics"].get("dcr")
    chart = Markup(dcr_chart(dcr["details"]).svg) if dcr and dcr["details"] else None  # noqa: S704  (our own SVG, texts escaped)
    pairs = report["metrics"].get("correlation")
    heat = Markup(association_chart(pairs["details"]).svg) if pairs and pairs["details"] else None  # noqa: S704  (the same)
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
