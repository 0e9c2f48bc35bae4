"""`python -m benchmarks [--tiny] [NAME ...]`: JSON lines, then a table, then the goals."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks import (
    accuracy,
    adult,
    cluster,
    cold,
    goals,
    growth,
    kernel,
    margins,
    memory,
    million,
    peers,
    scheduler,
    sequences,
    stream,
)

BENCHMARKS = {
    "accuracy": accuracy.run,
    "kernel": kernel.run,
    "growth": growth.run,
    "million": million.run,
    "cold": cold.run,
    "cluster": cluster.run,
    "adult": adult.run,
    "stream": stream.run,
    "sequences": sequences.run,
    "memory": memory.run,
    "scheduler": scheduler.run,
    "margins": margins.run,
    "peers": peers.run,
}


def flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    """Nested results as (dotted name, number) pairs."""
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in flat(f"{prefix}.{k}", v)]
    return [(prefix, value)]


def machine() -> str:
    """The processor, as Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else platform.machine()}, {os.cpu_count()} cores"


def main(arguments: list[str]) -> None:
    tiny = "--tiny" in arguments
    names = [a for a in arguments if a != "--tiny"] or list(BENCHMARKS)
    results: dict[str, Any] = {}
    for name in names:
        results[name] = BENCHMARKS[name](tiny)
        print(json.dumps({"benchmark": name, "tiny": tiny, "machine": machine(), **results[name]}), flush=True)
    for name, value in flat("", results):
        text = f"{value:>14.4g}" if isinstance(value, float) else f"{value!s:>14}"
        print(f"{name.strip('.'):<60}{text}")
    if not tiny:
        print("\n".join(goals.lines(results)))


if __name__ == "__main__":
    main(sys.argv[1:])
