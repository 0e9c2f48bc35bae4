"""The benchmarks run; what they measure is their own affair."""

from __future__ import annotations

import os

import pytest

from benchmarks.__main__ import BENCHMARKS, flat

LONG = {"accuracy", "memory", "peers"}  # half a minute each, however small


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_tiny(name: str) -> None:
    if name in LONG and not os.environ.get("DASKPRIV_TEST_ALL"):
        pytest.skip("takes half a minute: run `DASKPRIV_TEST_ALL=1 make test`")
    result = BENCHMARKS[name](True)
    assert all(isinstance(v, (int, float)) for _, v in flat(name, result))
    assert result.get("bit_identical", True)
    assert result.get("exit_code", 0) == 0
