"""Encoded rows: what the kernels search in. Codes and numbers only, no names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.gower import Rows


@dataclass(frozen=True, eq=False)
class Block:
    """Encoded rows of one table.

    row      int64   (n,)     row ids, ascending
    numbers  float64 (n, a)   NaN = missing
    wide     int64   (n, b)   integers too wide for float64; the smallest int64 = missing
    codes    int32   (n, c)   category codes; -1 = missing
    hashes   int64   (n, 2h)  128-bit hashes of high-cardinality categories; (0, 0) = missing
    """

    row: NDArray[np.int64]
    numbers: NDArray[np.float64]
    wide: NDArray[np.int64]
    codes: NDArray[np.int32]
    hashes: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Block(rows={len(self)})"

    def __len__(self) -> int:
        return len(self.row)

    def __sizeof__(self) -> int:
        # What Dask's memory manager sees.
        return self.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the cached views, which would double the bytes on the wire.
        return Block, (self.row, self.numbers, self.wide, self.codes, self.hashes)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in (self.row, self.numbers, self.wide, self.codes, self.hashes))

    def take(self, places: NDArray[np.int64]) -> Block:
        """The rows at these positions."""

        def some(array: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(array[places])

        return Block(some(self.row), some(self.numbers), some(self.wide), some(self.codes), some(self.hashes))

    def slice(self, start: int, stop: int) -> Block:
        """The rows [start, stop), without a copy."""
        if (start, stop) == (0, len(self)):
            return self
        s = slice(start, stop)
        return Block(self.row[s], self.numbers[s], self.wide[s], self.codes[s], self.hashes[s])

    def with_codes(self, codes: NDArray[np.int32]) -> Block:
        """The same rows with other category codes."""
        return replace(self, codes=np.ascontiguousarray(codes))

    @cached_property
    def arrays(self) -> Rows:
        """The arrays in the kernels' order, read-only so that one compiled kernel serves every source of memory."""
        return tuple(_frozen(a) for a in (self.numbers, self.wide, self.codes, self.hashes, self.row))


def stacked(blocks: Sequence[Block]) -> Block:
    """The rows of one or several blocks below each other."""
    if len(blocks) == 1:
        return blocks[0]
    fields = ("row", "numbers", "wide", "codes", "hashes")
    return Block(*(np.concatenate([getattr(b, f) for b in blocks]) for f in fields))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
