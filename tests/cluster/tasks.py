"""Tasks for the harness's own tests: workers import this module, so it imports next to nothing."""

from __future__ import annotations

import time


def slowly(seconds: float, value: int) -> int:
    """A number, later."""
    time.sleep(seconds)
    return value
