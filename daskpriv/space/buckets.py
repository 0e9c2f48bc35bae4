"""Quantile buckets: every column becomes a category, distance becomes the share of columns that differ.

Source: Platzer & Reutterer, Holdout-Based Empirical Assessment of Mixed-Type Synthetic Data (2021), privacy
notebook: cuts at the pooled quantiles, duplicate edges dropped, intervals (a, b] with the lowest value included,
missing a bucket of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daskpriv.kernels.gower import CODES, NUMBERS, WIDE
from daskpriv.space.block import Block
from daskpriv.space.encoding import Encoding


@dataclass(frozen=True, eq=False)
class Buckets:
    """Edges of the number columns, {place among `Block.numbers`: ascending distinct edges}."""

    edges: Mapping[int, NDArray[np.float64]]

    @classmethod
    def fit(cls, quantiles: Mapping[int, Sequence[float]]) -> Buckets:
        """From the quantiles of each number column."""
        return cls({place: np.unique(np.asarray(q)) for place, q in quantiles.items()})

    def encoding(self, encoding: Encoding) -> Encoding:
        """The encoding of a bucketed block: its number columns follow the code columns."""
        width = encoding.width(CODES)
        columns = [
            replace(c, group=CODES, index=width + c.index) if c.group == NUMBERS else c for c in encoding.columns
        ]
        return Encoding(tuple(columns))

    def apply(self, block: Block) -> Block:
        """Replace the numbers of a block by bucket codes."""
        codes = np.empty((len(block), len(self.edges)), np.int32)
        for place, edges in self.edges.items():
            codes[:, place] = cut(block.numbers[:, place], edges)
        empty = np.empty((len(block), 0))
        return replace(block, numbers=empty, codes=np.ascontiguousarray(np.concatenate([block.codes, codes], axis=1)))


def cut(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int32]:
    """Bucket of each value: 0 for [e0, e1], i for (e_i, e_i+1]; -1 where missing.

    >>> cut(np.array([1.0, 2.0, 2.5, 9.0, np.nan]), np.array([1.0, 2.0, 9.0]))
    array([ 0,  0,  1,  1, -1], dtype=int32)
    """
    codes = np.maximum(np.searchsorted(edges, values, side="left") - 1, 0)
    return np.where(np.isnan(values), -1, codes).astype(np.int32)


def refuses(encoding: Encoding) -> str | None:
    """The name of a column that cannot be bucketed because its integers are too wide, if there is one."""
    return next((c.name for c in encoding.columns if c.group == WIDE), None)
