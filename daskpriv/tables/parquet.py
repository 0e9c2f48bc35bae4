"""Parquet files as pieces: footers tell row counts and types, workers read row groups."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.errors import InputError
from daskpriv.tables.files import File, opened
from daskpriv.tables.recent import recent
from daskpriv.tables.table import Table, check_names
from daskpriv.tables.types import family, short_name


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

    def cut(self, start: int, stop: int) -> ParquetPiece:
        """Only the rows [start, stop) of this piece."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read the row group with exactly these columns; page checksums are verified where the file has them."""
        constants = dict(self.file.partition)
        stored = tuple(c for c in columns if c not in constants)
        table = recent((self.file, self.group, stored), lambda: self._group(stored), self.stop)
        table = table.slice(self.start, self.rows)
        for key, value in constants.items():
            if key in columns:
                table = table.append_column(key, pa.array([value] * table.num_rows, pa.string()))
        return table.select(list(columns))

    def _group(self, columns: Sequence[str]) -> pa.Table:
        with opened(self.file, self.table) as handle:
            reader = pq.ParquetFile(handle, page_checksum_verification=True)
            return reader.read_row_group(self.group, columns=list(columns), use_threads=False)


def open_parquet(files: Sequence[File], name: str) -> Table:
    """Read the footers of all files and check that they describe one table."""
    with ThreadPoolExecutor(16) as pool:
        footers = list(pool.map(lambda f: _footer(f, name), files))
    first_file, (_, schema) = files[0], footers[0]
    check_names(name, schema.names)
    pieces: list[ParquetPiece] = []
    merged = list(schema)
    keys = [k for k, _ in first_file.partition]
    for file in files:
        if [k for k, _ in file.partition] != keys:
            odd = sorted(set(keys) ^ {k for k, _ in file.partition})
            column = f" (column {odd[0]!r})" if odd else ""
            raise InputError(
                f"{name}: file {file.label} lies under other key=value folders{column} than file {first_file.label}; "
                "partition all files by the same columns."
            )
    for file, (groups, other) in zip(files, footers, strict=True):
        merged = _join(merged, other, first_file, file, name)
        pieces += [ParquetPiece(name, file, g, 0, n) for g, n in enumerate(groups) if n]
    fields = merged + [pa.field(k, pa.string()) for k in keys if k not in schema.names]
    return Table(name, pa.schema(fields), tuple(pieces), files=tuple(files))


def _footer(file: File, name: str) -> tuple[list[int], pa.Schema]:
    if file.size == 0:
        raise InputError(f"{name}: file {file.label} is empty (0 bytes); write it again.")
    try:
        with opened(file, name) as handle:
            reader = pq.ParquetFile(handle)
            meta = reader.metadata
            return [
                meta.row_group(g).num_rows for g in range(meta.num_row_groups)
            ], reader.schema_arrow.remove_metadata()
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{name}: no permission to read file {file.label}; check its access rights.") from None
    except FileNotFoundError:
        raise InputError(f"{name}: file {file.label} does not exist; check the path.") from None
    except Exception as error:
        if "crypt" in str(error).lower():
            raise InputError(f"{name}: file {file.label} is encrypted; write it without encryption.") from None
        why = "is not a complete Parquet file"
        raise InputError(
            f"{name}: file {file.label} {why} ({type(error).__name__}); write it again, or name a CSV "
            "file .csv or .csv.gz."
        ) from None


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
