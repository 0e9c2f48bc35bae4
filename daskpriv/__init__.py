"""Tell how much a synthetic table gives away about the people in the table it was made from.

The house, top to bottom; a module imports only from rows below its own:

    cli                                    the front door
    evaluate  neighbours                   two stories
    gates  judgement  policy  records      from numbers to verdicts
    modelling                              models fitted to whole tables
    prepare  session  splitting            their chapters
    report                                 JSON first, HTML from the JSON alone
    metrics   engine   utility             siblings: one asks, one answers, one fits models
    stats          space                   intervals and exact sums | what a distance means
    kernels        tables                  compiled loops | where rows come from
    protocol  evidence                     the shared vocabulary
    errors  events
"""

from __future__ import annotations

from daskpriv.errors import DaskprivError, InputError, PlanError, RunError
from daskpriv.evaluate import evaluate
from daskpriv.neighbours import NearestNeighbours, nearest_neighbours
from daskpriv.report.model import Report
from daskpriv.splitting import Split, split
from daskpriv.tables.schema import Column, Schema
from daskpriv.tables.types import Kind
from daskpriv.version import __version__

__all__ = [
    "Column",
    "DaskprivError",
    "InputError",
    "Kind",
    "NearestNeighbours",
    "PlanError",
    "Report",
    "RunError",
    "Schema",
    "Split",
    "__version__",
    "evaluate",
    "nearest_neighbours",
    "split",
]
