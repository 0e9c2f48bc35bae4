"""Several tests in one report: keep the chance of any false alarm at the level of one."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values. Source: Holm (1979).

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    out: dict[str, float] = {}
    running = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda n: (p_values[n], n))):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[name]))
        out[name] = running
    return out
