"""The benchmarks run; what they measure is their own affair."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import BENCHMARKS, flat


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_tiny(name: str) -> None:
    result = BENCHMARKS[name](True)
    assert all(isinstance(v, (int, float)) for _, v in flat(name, result))
    assert result.get("bit_identical", True)
    assert result.get("exit_code", 0) == 0
