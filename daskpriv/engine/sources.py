"""Encoded blocks by where they come from: any process can read them from storage again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from daskpriv.engine.cache import BLOCKS
from daskpriv.engine.executor import Executor
from daskpriv.engine.published import Published, value_of
from daskpriv.evidence import Role
from daskpriv.space.bins import Bins
from daskpriv.space.block import Block
from daskpriv.space.encoding import Encoding
from daskpriv.space.gower import rank_of
from daskpriv.tables.table import Part, Table


class Step(Protocol):
    """Something done to a block after it was encoded."""

    def apply(self, block: Block) -> Block:
        """The block, changed."""
        ...


@dataclass(frozen=True)
class Ranks:
    """Numbers become their mid-ranks; {place: (distinct values, their counts)}."""

    supports: Mapping[int, tuple[NDArray[np.float64], NDArray[np.int64]]]

    def apply(self, block: Block) -> Block:
        """The same rows, ranked."""
        numbers = block.numbers.copy()
        for place, (support, counts) in self.supports.items():
            numbers[:, place] = rank_of(block.numbers[:, place], support, counts)
        return replace(block, numbers=numbers)


@dataclass(frozen=True)
class BlockSource:
    """One block: which rows, how they are encoded, and what is done to them then."""

    name: str
    role: Role
    first_row: int
    rows: int
    part: Part | Published[Part]
    encoding: Published[Encoding]
    steps: tuple[Published[Any], ...] = ()

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return label_of(self.part)

    def then(self, step: Published[Any]) -> BlockSource:
        """The same rows with one more step."""
        return replace(self, name=_named(self.name, step.digest), steps=(*self.steps, step))

    def load(self) -> Block:
        """Read and encode it, unless this process still has it."""
        return BLOCKS.get(("block", self.name), self._read)

    def passing(self) -> Block:
        """The same, not kept unless it already is: for what is read once and stored in a smaller form."""
        return BLOCKS.held(("block", self.name)) or self._read()

    def _read(self) -> Block:
        block = self.encoding.get().encode(value_of(self.part))
        for step in self.steps:
            block = step.get().apply(block)
        return block


@dataclass(frozen=True)
class Coded:
    """The rows of a block as codes of buckets: one byte per cell."""

    source: BlockSource
    bins: Published[Bins]

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return self.source.label

    def load(self) -> NDArray[np.uint8]:
        """The codes, uint8 (p, n), one line per column."""
        return BLOCKS.get(("coded", self.source.name, self.bins.digest), self._code)

    def _code(self) -> NDArray[np.uint8]:
        codes = self.bins.get().code(self.source.passing())
        codes.flags.writeable = False  # as it is where it came over a wire: one compiled kernel for both
        return codes


def source_of(part: Part | Published[Part], encoding: Published[Encoding]) -> BlockSource:
    """The block of a part."""
    seen: Part = value_of(part)
    own = part.digest if isinstance(part, Published) else repr((seen, seen.pieces))
    return BlockSource(_named(own, encoding.digest), seen.name, seen.first_row, seen.rows, part, encoding)


def parts_of(table: Table, rows: int, executor: Executor) -> list[Part | Published[Part]]:
    """Where the rows are; rows that are in memory here are published, so that workers can ask for them."""
    parts = list(table.parts(rows))
    return list(parts) if table.files else [executor.publish(p) for p in parts]


def label_of(part: Part | Published[Part]) -> str:
    """Rows and files of a part, for messages."""
    seen: Part = value_of(part)
    files = dict.fromkeys(str(p.label) for p in seen.pieces if hasattr(p, "label"))
    where = f" ({', '.join(list(files)[:3])})" if files else ""
    return f"{seen.name}, rows {seen.first_row} to {seen.first_row + seen.rows}{where}"


def _named(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class Blocks:
    """The encoded blocks of one table."""

    role: Role
    sources: tuple[BlockSource, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(s.rows for s in self.sources)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    def then(self, step: Published[Any]) -> Blocks:
        """The same rows with one more step."""
        return Blocks(self.role, tuple(s.then(step) for s in self.sources))
