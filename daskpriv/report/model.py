"""What an evaluation gives back: numbers with intervals, verdicts, provenance; JSON that a schema describes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from daskpriv.errors import InputError
from daskpriv.protocol import Result, Verdict
from daskpriv.report.charts import Chart, dcr_chart
from daskpriv.report.html import page
from daskpriv.report.rules import Rule
from daskpriv.report.text import summary

FORMAT = 1


@dataclass(frozen=True)
class Report:
    """The result of `daskpriv.evaluate`.

    Attributes
    ----------
    metrics : dict of str to Result
        Each with `value`, `interval`, `p_value`, `verdict`, `details`.
    inputs, settings, space, run : dict
        Provenance: tables with row counts and fingerprints, options, columns, versions and costs.
    gates : list of dict
        Checks of the input that every verdict rests on.
    adjusted : dict
        p-values adjusted for the number of tests (Holm).
    warnings : list of str
    """

    metrics: Mapping[str, Result]
    inputs: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)
    adjusted: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    rules: tuple[tuple[str, bool], ...] = ()

    @property
    def passed(self) -> bool:
        """True when no rule is broken."""
        return not any(broken for _, broken in self.rules)

    def judged_by(self, rules: Sequence[Rule]) -> Report:
        """The same report with the outcome of these rules."""
        found = self.to_dict()
        return replace(self, rules=tuple((r.text, r.broken(found)) for r in rules))

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict of all metrics."""
        held = {m.verdict for m in self.metrics.values()}
        order = (Verdict.LEAK, Verdict.NOT_INTERPRETABLE, Verdict.INCONCLUSIVE, Verdict.BOUNDED)
        return next((v for v in order if v in held), Verdict.NOT_EVALUATED)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings: what report.json holds. NaN and infinities become None."""
        metrics = {}
        for name, m in self.metrics.items():
            metrics[name] = {
                "value": m.value,
                "interval": list(m.interval) if m.interval else None,
                "p_value": m.p_value,
                "p_adjusted": self.adjusted.get(name),
                "verdict": m.verdict.value,
                "expected": m.expected,
                "mde": m.mde,
                "details": m.details,
                "reading": m.reading,
                "cannot_show": m.cannot_show,
            }
        whole = {
            "format": FORMAT,
            "daskpriv": self.version,
            "inputs": self.inputs,
            "settings": self.settings,
            "space": self.space,
            "gates": self.gates,
            "metrics": metrics,
            "overall": {
                "verdict": self.verdict.value,
                "leaks": sorted(n for n, m in self.metrics.items() if m.verdict is Verdict.LEAK),
                "passed": self.passed,
                "rules": [{"rule": text, "broken": broken} for text, broken in self.rules],
            },
            "warnings": self.warnings,
            "run": self.run,
        }
        plain: dict[str, Any] = _plain(whole)
        return plain

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as JSON text, written to `path` in one step when given."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        if path is not None:
            write_atomically(Path(path), text + "\n")
        return text

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one self-contained HTML page, written to `path` when given."""
        text = page(self.to_dict())
        if path is not None:
            write_atomically(Path(path), text)
        return text

    def summary(self) -> str:
        """A few lines for a terminal."""
        return summary(self.to_dict())

    def plot(self, metric: str) -> Chart:
        """The chart of a metric; shows itself in a notebook, `.svg` is its text."""
        if metric != "dcr" or "dcr" not in self.metrics:
            raise InputError(
                f"no chart for metric {metric!r}; this report can plot: "
                f"{'dcr' if 'dcr' in self.metrics else 'nothing'}."
            )
        return dcr_chart(self.to_dict()["metrics"]["dcr"]["details"])

    def _repr_html_(self) -> str:
        return page(self.to_dict(), fragment=True)

    def __repr__(self) -> str:
        return f"Report(verdict={self.verdict.value}, metrics={list(self.metrics)})"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of report.json."""
    schema: dict[str, Any] = json.loads(files("daskpriv.report").joinpath("report.schema.json").read_text("utf-8"))
    return schema


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def check_writable(folder: Path) -> None:
    """Refuse a directory that cannot take a report, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".daskpriv.{os.getpid()}.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"output: cannot write {str(folder)!r} ({error.strerror}); choose another directory."
        ) from None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(text, "utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"output: cannot write {str(path)!r} ({error.strerror}); choose another directory.") from None
