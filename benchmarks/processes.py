"""Wall time of a command, and the peak memory of it and all its children together."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import psutil


def watch(command: list[str]) -> dict[str, Any]:
    """Run a command; memory is sampled 20 times a second (unique set size, so that shared libraries count once)."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    root, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        peak = max(peak, _memory(root))
        time.sleep(0.05)
    out, err = process.communicate()
    return {
        "seconds": time.perf_counter() - begun,
        "peak_gib": peak / 2**30,
        "exit_code": process.returncode,
        "stdout": out,
        "stderr": err,
    }


def _memory(root: psutil.Process) -> int:
    total = 0
    try:
        for process in [root, *root.children(recursive=True)]:
            total += process.memory_full_info().uss
    except psutil.Error:
        pass
    return total
