"""A reference table as searches need it: each process builds its indexes itself, from storage, and keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from daskpriv.engine.cache import INDEXES
from daskpriv.engine.published import Published
from daskpriv.engine.sources import BlockSource
from daskpriv.evidence import Role
from daskpriv.kernels.gower import Cells
from daskpriv.space.guide import Guide
from daskpriv.space.index import Index
from daskpriv.space.packed import packed

S = TypeVar("S")
T = TypeVar("T")
_THREADS = 1


def use_threads(threads: int) -> None:
    """How many threads of this process wait for an index while it is built, and so may help."""
    global _THREADS  # noqa: PLW0603
    _THREADS = threads


@dataclass(frozen=True)
class Reference:
    """A reference table in one space, cut into parts.

    Attributes
    ----------
    name : str
        The same wherever it is built.
    role : Role
    guide : Published[Guide]
    sources : Published[tuple of BlockSource]
        All its rows.
    groups : tuple of tuple of int
        Positions of the parts that one unit holds together.
    sizes : tuple of int
        Rows of each part.
    cut : str
        Says which rows each group holds; empty where one group holds them all.
    """

    name: str
    role: Role
    guide: Published[Guide]
    sources: Published[tuple[BlockSource, ...]]
    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    cut: str

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(self.sizes)

    def held(self, group: int) -> list[Index]:
        """The indexes of a group, built now unless this process has them."""
        return INDEXES.get((self.name, self.groups[group]), lambda: self._build(self.groups[group]))

    def _build(self, group: Sequence[int]) -> list[Index]:
        guide, sources = self.guide.get(), self.sources.get()
        if guide.parts == 1:
            return [Index.build(guide, 0, _together(lambda s: packed(guide.space, s.load()), sources))]
        scattered = _together(lambda s: _picked(guide, s, group), sources)
        # Pieces are handed over one part at a time, so that they are gone when the part is built.
        bunches = [(part, [pieces[i] for pieces in scattered]) for i, part in enumerate(group)]
        del scattered
        return _together(lambda b: Index.build(guide, b[0], b[1]), bunches)


def _picked(guide: Guide, source: BlockSource, group: Sequence[int]) -> list[Cells]:
    pieces = guide.scatter(source.load())
    return [pieces[part] for part in group]


def _together(fn: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """On all threads of this process: those that wait for the result have nothing else to do."""
    if _THREADS == 1:
        return [fn(item) for item in items]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="daskpriv-index") as pool:
        return list(pool.map(fn, items))
