"""Parquet files as pieces: footers tell row counts and types, workers read row groups."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.errors import DaskprivError, InputError
from daskpriv.tables.constants import partition_columns, partition_keys, with_constants
from daskpriv.tables.files import File
from daskpriv.tables.ranges import RangeFile, fetch, fetch_all, native, standing_still
from daskpriv.tables.recent import recent
from daskpriv.tables.table import Piece, Table, check_names
from daskpriv.tables.types import family, short_name

_KEPT = 32 << 20
_TAIL = 64 << 10  # what Arrow asks for first
_SIGNATURE = 28  # a nonce of 12 bytes and a tag of 16
_footers: OrderedDict[File, pq.FileMetaData] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class ParquetPiece:
    """Rows [start, stop) of one row group of one file."""

    table: str
    file: File
    group: int
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

    def cut(self, start: int, stop: int) -> ParquetPiece:
        """Only the rows [start, stop) of this piece."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read the row group with exactly these columns; page checksums are verified where the file has them."""
        wanted = tuple(columns)
        table = recent((self.file, self.group, wanted), lambda: self._group(wanted), self.stop)
        return table.slice(self.start, self.rows)

    def _group(self, columns: Sequence[str]) -> pa.Table:
        def read(handle: Any, meta: pq.FileMetaData) -> pa.Table:
            reader = pq.ParquetFile(handle, metadata=meta, page_checksum_verification=True)
            return reader.read_row_group(self.group, columns=list(columns), use_threads=False)

        # A file that was replaced while it was read may be read without an error, or with a misleading one.
        with standing_still(self.file, self.table):
            meta = _metadata(self.file, self.table)
            if self.file.is_local:
                return native(self.file, self.table, lambda handle: read(handle, meta))
            held = fetch_all(self.file, self.table, _chunks(meta, self.group, columns))
            return read(RangeFile(self.file, self.table, held), meta)


def open_parquet(files: Sequence[File], name: str, whole: pa.Schema | None = None) -> Table:
    """Read the footers of all files and check that they describe one table.

    `whole` is the schema of a table that files may lack columns of, and whose `key=value` folders have types.
    """
    with ThreadPoolExecutor(16) as pool:
        footers = list(pool.map(lambda f: _footer(f, name), files))
    schema = footers[0][1]
    check_names(name, schema.names)
    keys = partition_keys(files, name)
    merged = [f for f in whole if f.name not in keys] if whole is not None else list(schema)
    pieces: list[Piece] = []
    for file, (groups, other) in zip(files, footers, strict=True):
        lacking = [f for f in merged if f.name not in other.names] if whole is not None else []
        merged = _join(merged, pa.schema([*other, *lacking]), files[0], file, name)
        extra = [(f.name, None, f.type) for f in lacking]
        stored = set(other.names)
        fixed = [c for c in partition_columns(file, whole, name) if c[0] not in stored]
        rows = [ParquetPiece(name, file, g, 0, n) for g, n in enumerate(groups) if n]
        pieces += [with_constants(piece, [*fixed, *extra]) for piece in rows]
    kinds = {f.name: f.type for f in whole or ()}
    fields = merged + [pa.field(k, kinds.get(k, pa.string())) for k in keys if k not in {f.name for f in merged}]
    return Table(name, pa.schema(fields), tuple(pieces), files=tuple(files))


def _footer(file: File, name: str) -> tuple[list[int], pa.Schema]:
    if file.size == 0:
        raise InputError(f"{name}: file {file.label} is empty (0 bytes); write it again.")
    try:
        meta = _metadata(file, name)
        schema = meta.schema.to_arrow_schema().remove_metadata()
        for field in schema:
            family(field.type)  # a damaged name of a time zone shows only here
        return [meta.row_group(g).num_rows for g in range(meta.num_row_groups)], schema
    except DaskprivError:
        raise
    except Exception as error:
        if "crypt" in str(error).lower():
            raise InputError(f"{name}: file {file.label} is encrypted; write it without encryption.") from None
        why = "is not a complete Parquet file"
        raise InputError(
            f"{name}: file {file.label} {why} ({type(error).__name__}); write it again, or name a CSV "
            "file .csv or .csv.gz."
        ) from None


def _metadata(file: File, name: str) -> pq.FileMetaData:
    """The footer of a file, which every row group needs; the last ones are kept, in 32 MiB at most."""
    with _lock:
        found = _footers.get(file)
        if found is not None:
            _footers.move_to_end(file)
            return found
    found = native(file, name, pq.read_metadata) if file.is_local else _remote_metadata(file, name)
    with _lock:
        _footers[file] = found
        while len(_footers) > 1 and sum(m.serialized_size for m in _footers.values()) > _KEPT:
            _footers.popitem(last=False)
    return found


def _remote_metadata(file: File, name: str) -> pq.FileMetaData:
    """The footer, in one request where it is short; refuses encrypted columns, whose places end the process in Arrow.

    A footer of readable names over encrypted columns is followed by its signature (Parquet modular encryption, 5.4).
    """
    start = max(0, file.size - _TAIL)
    tail = fetch(file, name, start, file.size)
    found = pq.read_metadata(RangeFile(file, name, [(start, tail)]))
    if int.from_bytes(tail[-8:-4], "little") - found.serialized_size == _SIGNATURE:
        raise InputError(f"{name}: file {file.label} is encrypted; write it without encryption.")
    return found


def _chunks(meta: pq.FileMetaData, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Where the bytes of these columns of a row group lie."""
    out, wanted, rows = [], frozenset(columns), meta.row_group(group)
    for i in range(rows.num_columns):
        chunk = rows.column(i)
        if chunk.path_in_schema in wanted:
            pages = [o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o]
            out.append((min(pages), min(pages) + chunk.total_compressed_size))
    return out


def _join(merged: list[pa.Field], other: pa.Schema, first: File, file: File, name: str) -> list[pa.Field]:
    """Widen the common schema by one more file; refuse files of another table."""
    known = {f.name: f for f in merged}
    missing, extra = sorted(set(known) - set(other.names)), sorted(set(other.names) - set(known))
    if missing or extra:
        column = repr((missing or extra)[0])
        side = "lacks" if missing else "has the extra"
        raise InputError(
            f"{name}: file {file.label} {side} column {column}, unlike file {first.label}; write both with one schema."
        )
    if len(set(other.names)) != len(other.names):
        check_names(name, other.names)
    out = []
    for old in merged:
        new = other.field(old.name)
        here, there = family(old.type), family(new.type)
        if old.type != new.type and here != there and "all-null" not in (here, there):
            raise InputError(
                f"{name}: column {old.name!r} is {short_name(old.type)} in file {first.label} and "
                f"{short_name(new.type)} "
                f"in file {file.label}; write both with one type."
            )
        out.append(new if here == "all-null" else _wider(old, new))
    return out


def _wider(old: pa.Field, new: pa.Field) -> pa.Field:
    if old.type == new.type or family(new.type) == "all-null":
        return old
    try:
        unified = pa.unify_schemas([pa.schema([old]), pa.schema([new])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return old
    return unified.field(0)
