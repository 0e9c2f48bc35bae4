"""Pass or fail: rules over a finished report, for CI jobs and auditors.

A rule names what must not be: `leak`, `inconclusive`, `gate`, `warning`, or `METRIC[.KEY...] OP NUMBER`
such as `dcr_share>0.55`, `clones.n_synthetic_train>0` or `dcr_share.p_value<0.01`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from daskpriv.errors import InputError

_WORDS = ("leak", "inconclusive", "gate", "warning")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARISON = re.compile(r"^\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$")
_OWN = ("value", "p_value", "p_adjusted", "expected", "mde")


@dataclass(frozen=True, slots=True)
class Rule:
    """One parsed rule; `broken` when what it names is the case, or cannot be told."""

    text: str
    path: tuple[str, ...] = ()
    compare: str = ""
    limit: float = 0.0

    def broken(self, report: dict[str, Any]) -> bool:
        """True when the report (`Report.to_dict()`) breaks this rule. A value that was not evaluated breaks it."""
        verdicts = {m["verdict"] for m in report["metrics"].values()}
        if self.text == "leak":
            # Nothing judged, or nothing that may be interpreted, is no pass.
            return report["overall"]["verdict"] in ("LEAK", "NOT_INTERPRETABLE", "NOT_EVALUATED")
        if self.text == "inconclusive":
            return bool(verdicts & {"LEAK", "INCONCLUSIVE", "NOT_INTERPRETABLE"})
        if self.text == "gate":
            return any(not g["passed"] for g in report["gates"])
        if self.text == "warning":
            return bool(report["warnings"])
        value = self._value(report)
        return value is None or _OPERATORS[self.compare](value, self.limit)

    def _value(self, report: dict[str, Any]) -> float | None:
        metric = report["metrics"][self.path[0]]
        keys = self.path[1:] or ("value",)
        found: Any = metric if keys[0] in _OWN and len(keys) == 1 else metric["details"]
        for key in keys:
            if not isinstance(found, dict) or key not in found:
                known = ", ".join((*_OWN, *metric["details"]))
                raise InputError(
                    f"rule {self.text!r}: metric {self.path[0]!r} has no {'.'.join(keys)!r}; known are {known}."
                )
            found = found[key]
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise InputError(f"rule {self.text!r}: {'.'.join(keys)!r} is not a single number.")
        return float(found)


def parse_rules(texts: Sequence[str], metrics: Sequence[str]) -> list[Rule]:
    """Parse rules before the run, so that a typing mistake does not cost hours.

    >>> parse_rules(["dcr_share > 0.55"], ["dcr_share"])[0].limit
    0.55
    """
    out = []
    if isinstance(texts, str) or not isinstance(texts, Collection) or not all(isinstance(t, str) for t in texts):
        raise InputError("fail_on: give a list of rules, such as ['leak', 'dcr_share>0.55'].")
    for text in texts:
        if text.strip() in _WORDS:
            out.append(Rule(text.strip()))
            continue
        # A direction such as "synthetic->train" holds a ">", so the comparison is the last one in the text.
        hidden = text.replace("->", "\0")
        match = _COMPARISON.match(hidden)
        if match is None:
            raise InputError(
                f"rule {text!r} is not understood; write {', '.join(_WORDS)} or METRIC.KEY<NUMBER, such "
                "as dcr_share>0.55."
            )
        path = tuple(match[1].replace("\0", "->").split("."))
        if path[0] not in metrics:
            raise InputError(f"rule {text!r}: {path[0]!r} is not among the metrics of this run ({', '.join(metrics)}).")
        out.append(Rule(text, path, match[2], float(match[3])))
    return out
