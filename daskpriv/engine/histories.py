"""What the sequences behind flat rows are like: events are read once more, lane by lane, and only counts come back."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daskpriv.engine.flattening import Asked, Events, Flattening, asked
from daskpriv.engine.published import Published
from daskpriv.engine.stages import add
from daskpriv.evidence import SequenceCounts
from daskpriv.kernels.gower import CODES
from daskpriv.space.bins import Bins, ColumnBins, WideAsFloats, number_places
from daskpriv.space.block import Block
from daskpriv.space.encoding import Encoding
from daskpriv.stats.histories import count_sequences
from daskpriv.tables.frames import FramePiece
from daskpriv.tables.sequences import Lane
from daskpriv.tables.table import Part


@dataclass(frozen=True, eq=False)
class EventCodes:
    """How events become values and buckets.

    Attributes
    ----------
    encoding : Encoding
        Of the columns of events.
    bins : Bins
        Their buckets.
    """

    encoding: Encoding
    bins: Bins

    @classmethod
    def of(cls, encoding: Encoding, bins: Bins, names: Collection[str]) -> EventCodes:
        """Those of `names`, from the encoding and the buckets of flat rows."""
        both = [(c, b) for c, b in zip(encoding.columns, bins.columns, strict=True) if c.name in names]
        places: dict[int, int] = {}
        columns = []
        for column, _ in both:
            columns.append(replace(column, index=places.get(column.group, 0)))
            places[column.group] = places.get(column.group, 0) + 1
        own = Encoding(tuple(columns))
        numbers = number_places(own)
        moved = [replace(b, index=numbers.get(c.name, c.index)) for c, (_, b) in zip(columns, both, strict=True)]
        return cls(own, Bins(tuple(moved)))

    def code(self, events: pa.Table, table: str) -> tuple[list[NDArray[np.int64]], list[NDArray[np.uint8]]]:
        """Values and buckets of the events, for each column."""
        part = Part(table, 0, (FramePiece(events),))
        block = WideAsFloats().apply(self.encoding.encode(part))
        values, codes, numbers = [], [], number_places(self.encoding)
        for column, bins in zip(self.encoding.columns, self.bins.columns, strict=True):
            if not column.reading.categorical or column.name in numbers:
                codes.append(bins.code(block))
                values.append(codes[-1].astype(np.int64))
                continue
            cells = column.reading.plain(events.column(column.name), table).dictionary_encode()
            values.append(np.asarray(pc.fill_null(cells.indices, -1)).astype(np.int64))
            codes.append(_seen(bins, block, values[-1]).code(block) if column.group == CODES else bins.code(block))
        return values, codes


def _seen(bins: ColumnBins, block: Block, values: NDArray[np.int64]) -> ColumnBins:
    """Values that no flat row has were coded as missing: they are none of the known ones."""
    codes = block.codes[:, bins.index]
    codes[(codes < 0) & (values >= 0)] = np.iinfo(np.int32).max
    return bins


class EventEngine(Flattening):
    """Event tables in, flat rows and counts of sequences out."""

    def sequence_counts(
        self, events: Published[Events], codes: Published[EventCodes], name: str, lanes: Sequence[Lane]
    ) -> SequenceCounts:
        """Read an event table again and count its sequences."""
        fn = functools.partial(_counted, events, codes)
        found: SequenceCounts = self._fold(f"histories of {name}", fn, asked(name, lanes), add)
        return found


def _counted(published: Published[Events], shared: Published[EventCodes], item: Asked) -> SequenceCounts:
    held, coder = published.get().histories(item.lane), shared.get()
    values, codes = coder.code(held.events, item.name)
    return count_sequences(
        held.starts,
        held.this,
        [v[held.order] for v in values],
        [c[held.order] for c in codes],
        [c.width for c in coder.bins.columns],
    )
