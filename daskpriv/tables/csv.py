"""CSV files, plain or gzip, as pieces that start at row boundaries.

One pass on opening finds the boundaries and the narrowest type that fits every cell of each column
(integer, float, boolean, ISO date or timestamp, else text); an empty cell is missing.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from daskpriv.errors import DaskprivError, InputError
from daskpriv.tables.constants import partition_columns, partition_keys, with_constants
from daskpriv.tables.files import File
from daskpriv.tables.ranges import RangeFile, check_still, standing_still
from daskpriv.tables.recent import recent
from daskpriv.tables.table import Piece, Table, check_names
from daskpriv.tables.types import Family, family

CHUNK = 8 << 20
_LONGEST = 256 << 20
_NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
_LADDER = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
)


@dataclass(frozen=True)
class CsvPiece:
    """Rows [start, stop) of the byte range [offset, offset + length) of one file."""

    table: str
    file: File
    header: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    offset: int
    length: int
    start: int
    stop: int

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return f"file {self.file.label}"

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start

    @property
    def is_remote(self) -> bool:
        """True when reading is mostly waiting for a server."""
        return not self.file.is_local

    def cut(self, start: int, stop: int) -> CsvPiece:
        """Only the rows [start, stop) of this piece."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Parse the byte range; cells that do not fit the column's type become missing (counted by `misfits`)."""
        text = self._text(columns)
        return pa.table([_cast(text.column(c), self._type(c)) for c in columns], names=list(columns))

    def misfits(self, columns: Sequence[str]) -> dict[str, int]:
        """How many non-empty cells of each column do not fit its type; call it before `read`, which forgets."""
        key = (self.file, self.offset, tuple(columns))
        text = recent(key, lambda: self._range(columns), 0).slice(self.start, self.rows)
        out = {}
        for c in columns:
            blank = _blank(text.column(c), self._type(c))
            out[c] = _cast(text.column(c), self._type(c)).null_count - int(pc.sum(blank).as_py() or 0)
        return out

    def _type(self, column: str) -> pa.DataType:
        return self.types[self.header.index(column)]

    def _text(self, columns: Sequence[str]) -> pa.Table:
        key = (self.file, self.offset, tuple(columns))
        return recent(key, lambda: self._range(columns), self.stop).slice(self.start, self.rows)

    def _range(self, columns: Sequence[str]) -> pa.Table:
        with standing_still(self.file, self.table):
            with _opened(self.file, self.table) as handle:
                handle.seek(self.offset)
                data = handle.read(self.length)
            return _parse(data, self.header, list(columns))


def open_csv(files: Sequence[File], name: str, like: Mapping[str, pa.DataType] | None = None) -> Table:
    """Index CSV files; `like` gives the types of columns that a real table has already settled."""
    indexed = [_index(file, name) for file in files]
    keys = partition_keys(files, name)
    header = indexed[0].header
    check_names(name, header)
    for file, other in zip(files, indexed, strict=True):
        if set(other.header) != set(header):
            raise InputError(
                f"{name}: file {file.label} has other columns than file {files[0].label}; give them one header."
            )
    fits = {c: set.intersection(*(i.fits[c] for i in indexed)) for c in header}
    types = {c: next((t for t in _LADDER if t in fits[c]), pa.string()) for c in header}
    types = {c: pa.null() if all(i.empty[c] for i in indexed) else t for c, t in types.items()}
    for c, wanted in (like or {}).items():
        # Numbers keep the type that holds their digits; only the width of floats must be that of the real table.
        both = c in types and family(types[c]) is Family.NUMBER and family(wanted) is Family.NUMBER
        if c in types and (not both or wanted == pa.float32()):
            types[c] = wanted
    pieces: list[Piece] = []
    for file, found in zip(files, indexed, strict=True):
        kinds = tuple(types[c] for c in found.header)
        fixed = [c for c in partition_columns(file, None, name) if c[0] not in found.header]
        rows = [CsvPiece(name, file, found.header, kinds, o, n, 0, rows) for o, n, rows in found.ranges]
        pieces += [with_constants(piece, fixed) for piece in rows]
    fields = [pa.field(c, types[c]) for c in header]
    schema = pa.schema(fields + [pa.field(k, pa.string()) for k in keys if k not in header])
    return Table(name, schema, tuple(pieces), files=tuple(files))


@dataclass(frozen=True)
class _Index:
    header: tuple[str, ...]
    ranges: list[tuple[int, int, int]]
    fits: dict[str, set[pa.DataType]]
    empty: dict[str, bool]


def _opened(file: File, name: str) -> IO[bytes]:
    """The text of a file; bytes come in requests of a megabyte or more."""
    raw = RangeFile(file, name)
    if not file.is_gzip:
        return cast(IO[bytes], raw)
    return cast(IO[bytes], gzip.GzipFile(fileobj=cast(IO[bytes], io.BufferedReader(raw, CHUNK))))


def _chunks(file: File, name: str) -> Iterator[tuple[int, bytes]]:
    """Byte ranges that end at a row's end: a newline outside quotes."""
    with _opened(file, name) as handle:
        offset, held = 0, b""
        while data := handle.read(CHUNK):
            held += data
            if len(held) > _LONGEST:
                raise InputError(f"{name}: file {file.label} has a quote that is not closed; mend the file.")
            ends = _row_ends(held)
            if len(ends):
                cut = int(ends[-1]) + 1
                yield offset, held[:cut]
                offset, held = offset + cut, held[cut:]
        if held.strip(b"\r\n"):
            yield offset, held


def _row_ends(data: bytes) -> NDArray[np.int64]:
    """Positions of the newlines that end rows. A quote opens a cell only at the cell's first character."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    quotes = np.flatnonzero(raw == ord('"')).tolist()
    if not quotes:
        return ends
    edges, inside, skip = [], False, -1
    for at in quotes:
        if at == skip:
            continue
        if not inside:
            inside = at == 0 or data[at - 1] in b",\n\r\xbf"
            if inside:
                edges.append(at)
        elif data[at + 1 : at + 2] == b'"':
            skip = at + 1
        else:
            inside = False
            edges.append(at)
    # An odd number of edges below a newline means that it stands inside a quoted cell.
    outside: NDArray[np.bool_] = np.searchsorted(np.asarray(edges, np.int64), ends) % 2 == 0
    return np.asarray(ends[outside], np.int64)


def _index(file: File, name: str) -> _Index:
    if file.size == 0:
        raise InputError(f"{name}: file {file.label} is empty (0 bytes); write it again.")
    header: tuple[str, ...] = ()
    ranges: list[tuple[int, int, int]] = []
    fits: dict[str, set[pa.DataType]] = {}
    empty: dict[str, bool] = {}
    try:
        for offset, data in _chunks(file, name):
            if not header:
                header, skip = _header(data, file, name)
                fits, empty = {c: set(_LADDER) for c in header}, dict.fromkeys(header, True)
                offset, data = offset + skip, data[skip:]
            if not data.strip(b"\r\n"):
                continue
            text = _parse(data, header, list(header))
            ranges.append((offset, len(data), text.num_rows))
            for c in header:
                fits[c], here = _fitting(text.column(c), fits[c])
                empty[c] = empty[c] and here
    except DaskprivError:
        raise
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{name}: file {file.label} is not a complete gzip file; write it again.") from None
    except Exception as error:
        raise InputError(
            f"{name}: file {file.label} is not well-formed CSV ({type(error).__name__}): every row needs as many cells "
            "as the header, in UTF-8; mend or convert the file."
        ) from None
    check_still(file, name)
    if not header:
        raise InputError(f"{name}: file {file.label} has no header line; write it again.")
    return _Index(header, ranges, fits, empty)


def _header(data: bytes, file: File, name: str) -> tuple[tuple[str, ...], int]:
    data_start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    ends = _row_ends(data)
    stop = int(ends[0]) + 1 if len(ends) else len(data)
    line = data[data_start:stop]
    if not line.strip():
        raise InputError(f"{name}: file {file.label} has no header line; write it again.")
    table = pacsv.read_csv(io.BytesIO(line), read_options=pacsv.ReadOptions(autogenerate_column_names=True))
    names = tuple(
        str(v)
        for v in pacsv.read_csv(
            io.BytesIO(line),
            read_options=pacsv.ReadOptions(autogenerate_column_names=True),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(table.column_names, pa.string())),
        )
        .to_pylist()[0]
        .values()
    )
    names = tuple(n if n.strip() else f"Unnamed: {i}" for i, n in enumerate(names))
    check_names(name, names)
    if 2 * sum(_is_value(cell) for cell in names) >= len(names):
        raise InputError(f"{name}: file {file.label} has no header line; put the column names in its first line.")
    odd = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if odd is not None:
        raise InputError(f"{name}: file {file.label} separates cells by {odd!r}; write it with commas.")
    return names, stop


def _is_value(cell: str) -> bool:
    """True for a cell that is hardly a column name: a long or broken number, a truth value, a date."""
    text = cell.strip()
    if text.lstrip("-").isdigit():
        return len(text) > 4
    if text in _NULLS:
        return False
    fits, _ = _fitting(pa.chunked_array([pa.array([text])]), set(_LADDER))
    return bool(fits)


def _parse(data: bytes, header: Sequence[str], columns: list[str]) -> pa.Table:
    """All cells as text; an empty cell is null, a quoted empty one is an empty string."""
    names = [f"f{i}" for i in range(len(header))]
    wanted = [names[list(header).index(c)] for c in columns]
    table = pacsv.read_csv(
        io.BytesIO(data),
        read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(data) + 1, 1)),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.rename_columns(columns)


def _blank(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(kind):
        return pc.is_null(text)
    return pc.fill_null(pc.is_in(pc.utf8_trim_whitespace(text), value_set=pa.array(_NULLS)), True)


def _cast(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cells as `kind`; cells that do not fit become null."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(text))])
    trimmed = pc.utf8_trim_whitespace(text)
    clean = pc.if_else(_blank(text, kind), pa.scalar(None, pa.string()), trimmed)
    try:
        return clean.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _cast_each(clean, kind)


def _cast_each(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast distinct values one by one: only a file with misfits pays for this."""
    coded = text.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    values = []
    for value in coded.dictionary:
        try:
            values.append(value.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values.append(pa.scalar(None, kind))
    dictionary = pa.array([v.as_py() for v in values], kind)
    return pa.chunked_array([dictionary.take(coded.indices)])


def _fitting(text: pa.ChunkedArray, candidates: set[pa.DataType]) -> tuple[set[pa.DataType], bool]:
    """Which of the candidate types fit every cell, and whether every cell is empty."""
    blank = _blank(text, pa.int64())
    if bool(pc.all(blank).as_py()):
        return candidates, True
    clean = pc.utf8_trim_whitespace(text.filter(pc.invert(blank)))
    out = set()
    for kind in candidates:
        try:
            clean.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        out.add(kind)
    return out, False
