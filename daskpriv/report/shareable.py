"""What of a report may leave the house: no value that belongs to one row, no count of a few rows in a histogram.

The smallest and the largest distance belong to a record, and so does a threshold that lets a few rows pass. Whoever
may see the data finds them in internal/report.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SMALLEST = 5
_OF_ONE_ROW = frozenset({"min", "max", "tenth_smallest", "relative_distance_up_to"})
_AT_RATES = "tpr_at_fpr"  # its thresholds let a few rows pass


def shareable(report: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `Report.to_dict()` in which such values are null.

    >>> found = shareable({"metrics": {"dcr": {"details": {"min": 0.1, "histogram": {"counts": [3, 9]}}}}})
    >>> found["metrics"]["dcr"]["details"]
    {'min': None, 'histogram': {'counts': [None, 9]}}
    """
    metrics = {n: {**m, "details": _without(m["details"])} for n, m in report["metrics"].items()}
    return {**report, "metrics": metrics}


def _without(value: Any, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        return {k: _without(v, (*path, k)) for k, v in value.items()}
    key = path[-1] if path else ""
    if isinstance(value, float) and (key in _OF_ONE_ROW or (key == "threshold" and _AT_RATES in path)):
        return None
    if key == "counts" and isinstance(value, list):
        return [None if isinstance(c, int) and 0 < c < SMALLEST else c for c in value]
    return [_without(v, path[:-1]) for v in value] if isinstance(value, list) else value
