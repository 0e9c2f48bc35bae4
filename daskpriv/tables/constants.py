"""Columns that are the same in every row of a file: those of its `key=value` folders, those that it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from daskpriv.errors import InputError
from daskpriv.tables.files import File
from daskpriv.tables.table import Piece

Constant = tuple[str, str | None, pa.DataType]


@dataclass(frozen=True)
class WidenedPiece:
    """Rows of a piece with further columns (name, text, type) that its file does not store."""

    inner: Any
    columns: tuple[Constant, ...]

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return str(self.inner.label)

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(self.inner.rows)

    @property
    def is_remote(self) -> bool:
        """True when reading is mostly waiting for a server."""
        return bool(self.inner.is_remote)

    def cut(self, start: int, stop: int) -> WidenedPiece:
        """Only the rows [start, stop) of this piece."""
        return WidenedPiece(self.inner.cut(start, stop), self.columns)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The stored columns and the constant ones, in this order."""
        table = self.inner.read(self._stored(columns))
        for name, text, kind in self.columns:
            if name in columns:
                table = table.append_column(name, pa.repeat(_value(text, kind), self.rows))
        return table.select(list(columns))

    def misfits(self, columns: Sequence[str]) -> dict[str, int]:
        """How many cells of each column do not fit its type."""
        count = getattr(self.inner, "misfits", None)
        found: dict[str, int] = count(self._stored(columns)) if count is not None else {}
        return found

    def _stored(self, columns: Sequence[str]) -> list[str]:
        constant = {name for name, _, _ in self.columns}
        return [c for c in columns if c not in constant]


def with_constants(piece: Piece, columns: Sequence[Constant]) -> Piece:
    """The piece, widened where there is something to add."""
    return WidenedPiece(piece, tuple(columns)) if columns else piece


def partition_keys(files: Sequence[File], name: str) -> list[str]:
    """The columns by which folders partition the files; refuse files that are partitioned differently."""
    keys = [k for k, _ in files[0].partition]
    for file in files:
        if [k for k, _ in file.partition] != keys:
            odd = sorted(set(keys) ^ {k for k, _ in file.partition})
            column = f" (column {odd[0]!r})" if odd else ""
            raise InputError(
                f"{name}: file {file.label} lies under other key=value folders{column} than file {files[0].label}; "
                "partition all files by the same columns."
            )
    return keys


def partition_columns(file: File, whole: pa.Schema | None, name: str) -> list[Constant]:
    """What the folders of a file say: text, unless the schema of the table has a type."""
    out = []
    for key, text in file.partition:
        kind = whole.field(key).type if whole is not None and key in whole.names else pa.string()
        try:
            _value(text, kind)
        except pa.ArrowException:
            raise InputError(
                f"{name}: column {key!r} of file {file.label} does not fit its type {kind}; mend the folder name."
            ) from None
        out.append((key, text, kind))
    return out


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(text, pa.string()).cast(kind)
