"""What an evaluation gives back: numbers with intervals, verdicts, provenance; JSON that a schema describes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import Any

from daskpriv.errors import InputError
from daskpriv.protocol import Result, Verdict
from daskpriv.report.charts import Chart, dcr_chart
from daskpriv.report.html import page
from daskpriv.report.rules import Rule
from daskpriv.report.shareable import shareable
from daskpriv.report.text import summary
from daskpriv.report.words import level_of
from daskpriv.stats.levels import alpha_of
from daskpriv.tables.files import refuse_secrets, shown
from daskpriv.tables.retry import http_status, is_transient
from daskpriv.tables.sinks import join, put, remove
from daskpriv.tables.stores import knock, service, told

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
        p-values of metrics, adjusted for the number of tests in the report.
    warnings : list of str
    tests : dict
        {"metric: test": (p, adjusted p)} of the tests that share one stream of label draws.
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
    tests: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
        """The gravest verdict of all metrics, where a leak must also hold among all tests of the report.

        A metric alone errs in 5 % of reports without a leak (1 - the policy's level); the report as a whole does too.
        """
        held: set[Verdict] = {m.verdict for m in self.metrics.values()} - {Verdict.LEAK}
        if self.leaks:
            held.add(Verdict.LEAK)
        elif any(m.verdict is Verdict.LEAK for m in self.metrics.values()):
            held.add(Verdict.INCONCLUSIVE)
        order = (Verdict.LEAK, Verdict.NOT_INTERPRETABLE, Verdict.INCONCLUSIVE, Verdict.BOUNDED)
        return next((v for v in order if v in held), Verdict.NOT_EVALUATED)

    @property
    def leaks(self) -> list[str]:
        """Metrics that say LEAK, and still do when their p-value is adjusted for the other tests."""
        named = sorted(n for n, m in self.metrics.items() if m.verdict is Verdict.LEAK)
        return [n for n in named if self.adjusted.get(n, 0.0) <= alpha_of(self.level)]

    @property
    def level(self) -> float:
        """The level of the policy: of intervals, and 1 - level the share of harmless tables that may be called LEAK."""
        return level_of(self.settings)

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
                "effect": asdict(m.effect) if m.effect else None,
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
                "level": self.level,
                "leaks": self.leaks,
                "p_adjusted": min(self.adjusted.values(), default=None),
                "tests": [{"test": n, "p_value": p, "p_adjusted": q} for n, (p, q) in sorted(self.tests.items())],
                "passed": self.passed,
                "rules": [{"rule": text, "broken": broken} for text, broken in self.rules],
            },
            "warnings": self.warnings,
            "run": self.run,
        }
        plain: dict[str, Any] = _plain(whole)
        return plain

    def to_json(self, path: str | os.PathLike[str] | None = None, *, internal: bool = False) -> str:
        """The report as JSON text, written to `path` in one step when given.

        It may leave the house: what belongs to single rows is null (`daskpriv.report.shareable`), unless `internal`.
        """
        found = self.to_dict()
        text = json.dumps(found if internal else shareable(found), indent=1, allow_nan=False)
        if path is not None:
            write_atomically(path, text + "\n", private=internal)
        return text

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one self-contained HTML page, written to `path` when given."""
        text = page(shareable(self.to_dict()))
        if path is not None:
            write_atomically(path, text)
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
        return page(shareable(self.to_dict()), fragment=True)

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


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Refuse a directory or URL that cannot take a report, before hours of work."""
    target = os.fspath(folder)
    probe = join(target, f".daskpriv.{os.getpid()}.part")
    _tried(target, lambda: knock(target), begun=False)
    _tried(target, lambda: put(probe, b""), begun=False)
    # Who may write may not always delete: an empty hidden file is the lesser evil.
    with suppress(Exception):
        remove(probe)


def write_atomically(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write a file, or an object of a URL, so that nobody ever sees half of it; `private`: for its owner alone."""
    target = os.fspath(path)
    _tried(target, lambda: put(target, text.encode("utf-8"), private=private))


def _tried(target: str, write: Callable[[], None], begun: bool = True) -> None:
    refuse_secrets(target, "output")
    where = repr(shown(target))
    if service(target) == "http":
        raise InputError(f"output: {where} cannot be written over http; choose a directory or an object store.")
    try:
        write()
    except ImportError:
        raise InputError(
            f"output: no file system for {where} (a package is missing); install what it needs, such as daskpriv[s3], "
            "daskpriv[gcs] or daskpriv[azure]."
        ) from None
    except Exception as error:
        missing = isinstance(error, FileNotFoundError) or http_status(error) == 404
        if service(target) and missing and not is_transient(error):
            kind = "container" if service(target) == "azure" else "bucket"
            raise InputError(f"output: the {kind} of {where} does not exist; make it, or check its name.") from None
        known = told(error, "output", where, target, begun) if service(target) else None
        # The text of an error may quote what a server said; of the operating system's, only the reason is used.
        reason = getattr(error, "strerror", None) if "://" not in target else None
        raise known or InputError(
            f"output: cannot write {where} ({reason or type(error).__name__}); choose another directory."
        ) from None
