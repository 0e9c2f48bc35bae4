"""Look for cell values where none may be: logs, spill files, stores, reports, task keys.

A canary is text or a number that occurs in a table and nowhere else. Files are searched as raw bytes; compressed
files, archives, Parquet and Arrow files also by what they hold.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Canary = str | int | float
_DEPTH = 3


@dataclass(frozen=True)
class Hit:
    """A canary, where it was found and in what form."""

    place: str
    canary: Canary
    form: str


def forms(canary: Canary) -> dict[str, bytes]:
    """How a value may be written down."""
    if isinstance(canary, int):
        return {"text": str(canary).encode(), "int64": struct.pack("<q", canary)}
    if isinstance(canary, float):
        return {"text": repr(canary).encode(), "float64": struct.pack("<d", canary)}
    written = {f: canary.encode(f) for f in ("utf-8", "utf-16-le", "utf-32-le")}
    return {**written, **_base64(canary.encode())}


def _base64(raw: bytes) -> dict[str, bytes]:
    """The middle of its base64 text for each place it may begin at."""
    out = {}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        out[f"base64+{shift}"] = text[2 if shift == 1 else 3 if shift else 0 : -2]
    return {name: text for name, text in out.items() if len(text) >= 8}


def in_bytes(canaries: Iterable[Canary], data: bytes, place: str) -> list[Hit]:
    """Hits in bytes as they are."""
    return [Hit(place, c, form) for c in canaries for form, text in forms(c).items() if text in data]


def in_texts(canaries: Iterable[Canary], texts: Mapping[str, str]) -> list[Hit]:
    """Hits in texts by name, such as logs, errors and reports."""
    canaries = list(canaries)
    return [hit for name, text in texts.items() for hit in in_bytes(canaries, text.encode(errors="replace"), name)]


def in_files(canaries: Iterable[Canary], *folders: Path) -> list[Hit]:
    """Hits in all files below these folders (or in these files), and in the names of the files."""
    canaries = list(canaries)
    hits = []
    for path in _files(folders):
        hits += in_bytes(canaries, str(path).encode(errors="replace"), f"name of {path}")
        with suppress(FileNotFoundError):
            for place, data in _contents(str(path), path.read_bytes(), _DEPTH):
                hits += in_bytes(canaries, data, place)
    return hits


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from (p for p in sorted(place.rglob("*")) if p.is_file() and not p.is_symlink())
        elif place.is_file():
            yield place


def _contents(place: str, data: bytes, depth: int) -> Iterator[tuple[str, bytes]]:
    """The bytes, and what they hold."""
    yield place, data
    for magic, kind, opened in _READERS:
        if depth and data.startswith(magic):
            with suppress(OSError, EOFError, pa.ArrowException, lzma.LZMAError, zlib.error, zipfile.BadZipFile):
                for name, inner in opened(data):
                    yield from _contents(f"{place} > {kind}{name}", inner, depth - 1)


def _arrow_bytes(table: pa.Table) -> Iterator[tuple[str, bytes]]:
    """The cells of each column without compression, encoding or dictionary; numbers also as text."""
    yield ":schema", repr(table.schema.metadata).encode()
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield f":{name}", "\n".join(map(repr, column.to_pylist())).encode()


def _parquet(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield from _arrow_bytes(pq.read_table(BytesIO(data)))


def _ipc(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield from _arrow_bytes(pa.ipc.open_file(data).read_all())


def _archive(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for name in archive.namelist():
            yield f":{name}", archive.read(name)


def _packed(unpack: Callable[[bytes], bytes]) -> Callable[[bytes], Iterator[tuple[str, bytes]]]:
    def opened(data: bytes) -> Iterator[tuple[str, bytes]]:
        yield "", unpack(data)

    return opened


def _stream(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.CompressedInputStream(pa.BufferReader(data), codec).read()


_READERS: list[tuple[bytes, str, Callable[[bytes], Iterator[tuple[str, bytes]]]]] = [
    (b"PAR1", "parquet", _parquet),
    (b"ARROW1", "arrow", _ipc),
    (b"PK\x03\x04", "zip", _archive),
    (b"\x1f\x8b", "gz", _packed(gzip.decompress)),
    (b"BZh", "bz2", _packed(bz2.decompress)),
    (b"\xfd7zXZ", "xz", _packed(lzma.decompress)),
    (b"\x28\xb5\x2f\xfd", "zstd", _packed(_stream("zstd"))),
    (b"\x04\x22\x4d\x18", "lz4", _packed(_stream("lz4"))),
    (b"x\x01", "zlib", _packed(zlib.decompress)),
    (b"x\x9c", "zlib", _packed(zlib.decompress)),
    (b"x\xda", "zlib", _packed(zlib.decompress)),
]
