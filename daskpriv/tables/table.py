"""A table is a list of pieces with known row counts: nothing is read until a worker reads its part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from daskpriv.errors import DaskprivError, InputError
from daskpriv.tables.files import File


class Piece(Protocol):
    """Consecutive rows of a table that can be read on their own, on any machine."""

    @property
    def rows(self) -> int:
        """How many rows."""
        ...

    def cut(self, start: int, stop: int) -> Piece:
        """Only the rows [start, stop)."""
        ...

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The rows, with exactly these columns in this order."""
        ...


@dataclass(frozen=True, eq=False)
class Part:
    """Rows [first_row, first_row + rows) of table `name`; small and picklable unless it holds a frame."""

    name: str
    first_row: int
    pieces: tuple[Piece, ...]

    def __repr__(self) -> str:
        return f"Part({self.name}, rows {self.first_row}..{self.first_row + self.rows})"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read the rows; anything that goes wrong is told without quoting cells."""
        try:
            whole = _unify(self._tables(columns))
        except DaskprivError:
            raise
        except MemoryError:
            raise InputError(
                f"{self.name}: out of memory while reading rows from {self.first_row}; use fewer rows per block."
            ) from None
        except Exception as error:
            if "crypt" in str(error).lower():
                raise InputError(f"{self.name}: {self._where()} is encrypted; write it without encryption.") from None
            raise InputError(
                f"{self.name}: rows {self.first_row} to {self.first_row + self.rows} cannot be read "
                f"({type(error).__name__}): {self._where()} is damaged, has changed or is not accessible; "
                "replace the file."
            ) from None
        if whole.num_rows != self.rows:
            raise InputError(
                f"{self.name}: {self._where()} changed while it was read; run again on files that stay still."
            )
        return whole

    def misfits(self, columns: Sequence[str]) -> dict[str, int]:
        """How many cells of these columns do not fit the column's type; call it before `read`, which forgets."""
        found = dict.fromkeys(columns, 0)
        for piece in self.pieces:
            count = getattr(piece, "misfits", None)
            for name, n in (count(columns) if count else {}).items():
                found[name] += n
        return found

    def _tables(self, columns: Sequence[str]) -> list[pa.Table]:
        """The rows of each piece; small files on a server are read side by side, because each one is a wait."""
        inner = self.pieces[1:-1]
        if not any(getattr(piece, "is_remote", False) for piece in inner):
            return [piece.read(columns) for piece in self.pieces]
        # The first and the last piece may be cut: what this thread keeps of them serves the parts before and after.
        first = self.pieces[0].read(columns)
        with ThreadPoolExecutor(min(8, len(inner))) as pool:
            between = list(pool.map(lambda piece: piece.read(columns), inner))
        return [first, *between, self.pieces[-1].read(columns)]

    def _where(self) -> str:
        return ", ".join(dict.fromkeys(str(getattr(p, "label", "the frame")) for p in self.pieces[:3]))


def decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary column as plain values."""
    kind = values.type.value_type
    plain = pa.large_string() if pa.types.is_string_view(kind) else kind
    chunks = [c.dictionary.cast(plain).take(c.indices) for c in values.chunks]
    return pa.chunked_array(chunks, plain)


def _unify(tables: list[pa.Table]) -> pa.Table:
    """Put pieces below each other, whatever variant of a type each file uses."""
    if len(tables) == 1 or len({t.schema for t in tables}) == 1:
        return pa.concat_tables(tables)
    plain = [pa.table([_neutral(c) for c in t.columns], names=t.column_names) for t in tables]
    return pa.concat_tables(plain, promote_options="permissive")


def _neutral(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The one form in which variants of a type can be joined: no dictionaries, long text, UTC."""
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    return column


@dataclass(frozen=True, eq=False)
class Table:
    """Where the rows of one table are, and what its columns look like.

    Attributes
    ----------
    name : str
        The role it plays: "train", "holdout", "synthetic", ...
    schema : pyarrow.Schema
        Physical schema common to all pieces.
    pieces : tuple of Piece
        In row order; row ids count through them.
    source : tuple of str
        What the user called it, without credentials; or "pandas.DataFrame".
    files : tuple of File
        The files behind it, if any.
    notes : tuple of str
        What was noticed while opening it.
    """

    name: str
    schema: pa.Schema
    pieces: tuple[Piece, ...]
    source: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"Table({self.name}, rows={self.rows}, columns={len(self.schema)})"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)

    def renamed(self, name: str) -> Table:
        """The same rows in another role."""
        return replace(self, name=name)

    def parts(self, rows_per_part: int) -> Iterator[Part]:
        """Cut and join pieces into parts of exactly `rows_per_part` rows (the last one may be shorter)."""
        held: list[Piece] = []
        first = room = 0
        room = rows_per_part
        for piece in self.pieces:
            start = 0
            while start < piece.rows:
                take = min(room, piece.rows - start)
                held.append(piece if take == piece.rows else piece.cut(start, start + take))
                start += take
                room -= take
                if room == 0:
                    yield Part(self.name, first, tuple(held))
                    first, room, held = first + rows_per_part, rows_per_part, []
        if held:
            yield Part(self.name, first, tuple(held))


def check_names(name: str, columns: Sequence[Any]) -> None:
    """Refuse tables whose columns cannot be told apart by name."""
    if len(columns) == 0:
        raise InputError(f"{name}: table has no columns.")
    odd = sum(not isinstance(c, str) for c in columns)
    if odd:
        raise InputError(f"{name}: column names must be strings; {odd} of {len(columns)} are not; rename them.")
    unsafe = next((c for c in columns if "\x00" in c or any("\ud800" <= x <= "\udfff" for x in c)), None)
    if unsafe is not None:
        raise InputError(f"{name}: column name {unsafe!r} holds a NUL or half a character; rename it.")
    twice = sorted({c for c in columns if list(columns).count(c) > 1}) if len(set(columns)) < len(columns) else []
    if twice:
        raise InputError(f"{name}: duplicate column name(s) {', '.join(map(repr, twice[:5]))}; rename them.")
