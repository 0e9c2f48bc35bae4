"""`python -m benchmarks [--tiny] [NAME ...]`: JSON lines, then a table."""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

from benchmarks import adult, kernel, stream

BENCHMARKS = {"kernel": kernel.run, "adult": adult.run, "stream": stream.run}


def flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    """Nested results as (dotted name, number) pairs."""
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in flat(f"{prefix}.{k}", v)]
    return [(prefix, value)]


def main(arguments: list[str]) -> None:
    tiny = "--tiny" in arguments
    names = [a for a in arguments if a != "--tiny"] or list(BENCHMARKS)
    results = {}
    for name in names:
        results[name] = BENCHMARKS[name](tiny)
        print(
            json.dumps(
                {
                    "benchmark": name,
                    "tiny": tiny,
                    "machine": platform.processor() or platform.machine(),
                    **results[name],
                }
            )
        )
    for name, value in flat("", results):
        print(
            f"{name.strip('.'):<44}{value:>14.4g}"
            if isinstance(value, float)
            else f"{name.strip('.'):<44}{value!s:>14}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
