"""Where finished pieces of a run are kept: ids, distances and counts, never a cell.

A piece is a Parquet file named by the digest of what it answers and the checksum of its bytes, written in one step.
Whatever was cut short, damaged, renamed or made by another run or version is not found or not believed, and is made
again.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from daskpriv.errors import RunError
from daskpriv.tables.files import shown
from daskpriv.tables.retry import is_transient
from daskpriv.tables.sinks import get, join, listing, put, remove

_NAME = re.compile(r"^[0-9a-f]{2}/([0-9a-f]{32})-([0-9a-f]{32})\.parquet$")
_KEY = b"daskpriv.piece"


class LostPieceError(Exception):
    """A piece is not there, or is not what its name says."""


class Store(Protocol):
    """Keeps tables by key."""

    @property
    def reachable(self) -> bool:
        """True when every worker can read and write it."""
        ...

    def finished(self) -> dict[str, str]:
        """{key: name} of the pieces that are there."""
        ...

    def put(self, key: str, table: pa.Table) -> str:
        """Keep a table; its name."""
        ...

    def get(self, key: str, name: str) -> pa.Table:
        """The table, or `LostPieceError`."""
        ...


@dataclass(eq=False)
class Memory:
    """Keeps tables in this process."""

    reachable = True
    _held: dict[str, pa.Table] = field(default_factory=dict)

    def finished(self) -> dict[str, str]:
        """Every run starts empty."""
        return {}

    def put(self, key: str, table: pa.Table) -> str:
        """Keep it."""
        self._held[key] = table
        return key

    def get(self, key: str, name: str) -> pa.Table:
        """Give it back."""
        if key not in self._held:
            raise LostPieceError(key)
        return self._held[key]


@dataclass(frozen=True)
class Folder:
    """Keeps tables as files below a directory or URL.

    Attributes
    ----------
    url : str
        The folder of one run.
    reachable : bool
        True when every worker can read and write it; otherwise workers hand their pieces to the client.
    """

    url: str
    reachable: bool = True

    def finished(self) -> dict[str, str]:
        """One listing of the folder; contents are verified when they are read."""
        found = (_NAME.match(name) for name in self._tried(lambda: listing(join(self.url, "pieces"))))
        return {m[1]: m[0] for m in found if m}

    def put(self, key: str, table: pa.Table) -> str:
        """Write a table under its key and checksum."""
        data = packed(key, table)
        name = f"{key[:2]}/{key}-{_checksum(data)}.parquet"
        self._tried(lambda: put(join(self.url, "pieces", name), data, private=True))
        return name

    def get(self, key: str, name: str) -> pa.Table:
        """Read and verify a piece."""
        if not name:
            raise LostPieceError(key)
        try:
            data = self._tried(lambda: get(join(self.url, "pieces", name)))
        except FileNotFoundError:
            raise LostPieceError(key) from None
        found = _NAME.match(name)
        if found is None or found[1] != key or found[2] != _checksum(data):
            self._tried(lambda: remove(join(self.url, "pieces", name)))
            raise LostPieceError(key)
        return unpacked(key, data)

    def _tried(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except FileNotFoundError:
            raise
        except Exception as error:
            raise unusable(self.url, error) from None


def unusable(url: str, error: Exception) -> RunError:
    """What is wrong with a place that cannot be read or written."""
    where = f"the run store {shown(url)!r}"
    full = isinstance(error, OSError) and error.errno in (28, 122)
    if full:
        return RunError(f"{where} is full; free space and run the same command again: what is finished is kept.")
    if is_transient(error):
        return RunError(f"{where} cannot be reached just now; run the same command again: what is finished is kept.")
    kind = getattr(error, "strerror", None) or type(error).__name__
    return RunError(f"{where} cannot be used ({kind}); check its access rights, or name another one with --store.")


def packed(key: str, table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file that says which piece it is."""
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({_KEY: key.encode()}), sink, compression="zstd")
    return sink.getvalue()


def unpacked(key: str, data: bytes) -> pa.Table:
    """The table in such bytes; `LostPieceError` when it is another piece."""
    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
    except (pa.ArrowException, OSError):
        raise LostPieceError(key) from None
    if (table.schema.metadata or {}).get(_KEY) != key.encode():
        raise LostPieceError(key)
    return table


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def key_of(run: str, *what: Any) -> str:
    """The key of the piece that answers `what` in this run."""
    return hashlib.blake2b(repr((run, what)).encode(), digest_size=16).hexdigest()
