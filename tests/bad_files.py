"""Makers of good and damaged files for `test_bad_input.py`: each writes into a folder and returns what to pass on."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

Given = dict[str, Any]
Frames = dict[str, pd.DataFrame]
Maker = Callable[[Path, Frames], Given]


# ---------------------------------------------------------------------------------------------- good files


def parquet(frame: pd.DataFrame | pa.Table, path: Path, **options: Any) -> str:
    """Write a Parquet file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, path, **options)
    return str(path)


def csv(frame: pd.DataFrame, path: Path, **options: Any) -> str:
    """Write a CSV file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, **options)
    return str(path)


def saved(folder: Path, frames: Frames, **options: Any) -> Given:
    """Every table as one Parquet file."""
    return {name: parquet(frame, folder / f"{name}.parquet", **options) for name, frame in frames.items()}


def saved_csv(folder: Path, frames: Frames, suffix: str = ".csv", **options: Any) -> Given:
    """Every table as one CSV file."""
    return {name: csv(frame, folder / f"{name}{suffix}", **options) for name, frame in frames.items()}


def halves(folder: Path, frames: Frames, change: Callable[[pa.Table], pa.Table]) -> Given:
    """Train as a directory of two files whose second one is changed; the others as frames."""
    table = pa.Table.from_pandas(frames["train"], preserve_index=False)
    parquet(table.slice(0, 30), folder / "train" / "part-0.parquet")
    parquet(change(table.slice(30)), folder / "train" / "part-1.parquet")
    return {**frames, "train": str(folder / "train")}


def cast(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """A change that casts one column."""

    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(column), column, table.column(column).cast(kind))

    return change


# ---------------------------------------------------------------------------------------------- damage to bytes


def damaged(spoil: Callable[[bytes], bytes], **options: Any) -> Maker:
    """A maker whose train.parquet went through `spoil`."""

    def make(folder: Path, frames: Frames) -> Given:
        given = saved(folder, frames, **options)
        path = Path(given["train"])
        path.write_bytes(spoil(path.read_bytes()))
        return given

    return make


def page_offsets(path: str) -> list[tuple[str, int]]:
    """(column, offset of the last byte of its chunk): always inside the cells of a data page."""
    meta = pq.ParquetFile(path).metadata
    out = []
    for i in range(meta.num_columns):
        chunk = meta.row_group(0).column(i)
        pages = [o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o is not None]
        out.append((chunk.path_in_schema, min(pages) + chunk.total_compressed_size - 1))
    return out


def flip(path: str, offset: int) -> None:
    """Invert the lowest bit of one byte."""
    data = bytearray(Path(path).read_bytes())
    data[offset] ^= 1
    Path(path).write_bytes(bytes(data))


def flipped(column: str, checksum: bool) -> Maker:
    """A maker with one flipped bit in a data page of one column of train; cells are stored plain."""

    def make(folder: Path, frames: Frames) -> Given:
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": checksum}
        given = saved(folder, frames, **options)
        # In the last double of the page the last byte is sign and exponent; 7 bytes earlier only digits change.
        offset = dict(page_offsets(given["train"]))[column]
        flip(given["train"], offset - (7 if column == "a" else 0))
        return given

    return make


def swapped(name: str, content: bytes) -> Maker:
    """A maker whose train is a file of this name with this content."""

    def make(folder: Path, frames: Frames) -> Given:
        (folder / name).write_bytes(content)
        return {**frames, "train": str(folder / name)}

    return make


def text_file(name: str, change: Callable[[str], str], encoding: str = "utf-8") -> Maker:
    """A maker whose train is a CSV whose text was changed."""

    def make(folder: Path, frames: Frames) -> Given:
        (folder / name).write_bytes(change(frames["train"].to_csv(index=False)).encode(encoding))
        return {**frames, "train": str(folder / name)}

    return make


def zipped(spoil: Callable[[bytes], bytes]) -> Maker:
    """A maker whose train is a damaged .csv.gz."""

    def make(folder: Path, frames: Frames) -> Given:
        data = gzip.compress(frames["train"].to_csv(index=False).encode())
        (folder / "train.csv.gz").write_bytes(spoil(data))
        return {**frames, "train": str(folder / "train.csv.gz")}

    return make


def headless(folder: Path, frames: Frames) -> str:
    """The synthetic table as a CSV without its first line."""
    path = folder / "synthetic.csv"
    path.write_text(frames["synthetic"].to_csv(index=False, header=False), "utf-8")
    return str(path)


# ---------------------------------------------------------------------------------------------- odd directories


def broken_link(folder: Path) -> str:
    """A link to a file that does not exist."""
    (folder / "link.parquet").symlink_to(folder / "nowhere.parquet")
    return str(folder / "link.parquet")


def nothing_but(names: Sequence[str]) -> Maker:
    """A maker whose train is a directory that holds only these (empty) files."""

    def make(folder: Path, frames: Frames) -> Given:
        (folder / "train").mkdir()
        for name in names:
            (folder / "train" / name).write_bytes(b"")
        return {**frames, "train": str(folder / "train")}

    return make


def littered(folder: Path, frames: Frames) -> Given:
    """Train as a directory with markers, hidden and foreign files beside its two parts."""
    given = halves(folder, frames, lambda table: table)
    root = Path(given["train"])
    for name in ("_SUCCESS", "_metadata", ".part-0.parquet.crc", ".hidden.parquet", "_temporary.parquet", "README.txt"):
        (root / name).write_bytes(b"CANARY-7731 is no table")
    parquet(frames["holdout"], root / "_temporary" / "0" / "part-9.parquet")
    parquet(frames["holdout"], root / ".ipynb_checkpoints" / "part-9.parquet")
    return given


def mixed_formats(folder: Path, frames: Frames) -> Given:
    """Train as a directory of a Parquet and a CSV file."""
    parquet(frames["train"], folder / "train" / "part-0.parquet")
    csv(frames["train"], folder / "train" / "part-1.csv")
    return {**frames, "train": str(folder / "train")}


def hive(folder: Path, frames: Frames) -> Given:
    """Every table as a directory that pyarrow partitioned by column 'c'."""
    for name, frame in frames.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_to_dataset(table, str(folder / name), partition_cols=["c"])
    return {name: str(folder / name) for name in frames}


def uneven_hive(folder: Path, frames: Frames) -> Given:
    """Train as a directory where only one of two files lies in a key=value directory."""
    parquet(frames["train"].drop(columns="c"), folder / "train" / "c=u" / "part-0.parquet")
    parquet(frames["train"].drop(columns="c"), folder / "train" / "part-1.parquet")
    return {**frames, "train": str(folder / "train")}


def one_row_files(folder: Path, frames: Frames) -> Given:
    """Train as a directory of one-row files, with one file that has no rows."""
    table = pa.Table.from_pandas(frames["train"], preserve_index=False)
    parquet(table.slice(0, 0), folder / "train" / "part-000.parquet")
    for i in range(table.num_rows):
        parquet(table.slice(i, 1), folder / "train" / f"part-{i + 1:03}.parquet")
    return {**frames, "train": str(folder / "train")}


# ---------------------------------------------------------------------------------------------- odd columns


def nested(cells: list[Any]) -> Maker:
    """A maker whose train file holds these nested cells in column 'c'."""

    def make(folder: Path, frames: Frames) -> Given:
        table = pa.Table.from_pandas(frames["train"].drop(columns="c"), preserve_index=False)
        table = table.append_column("c", pa.array(cells * (table.num_rows // len(cells))))
        return {**frames, "train": parquet(table, folder / "train.parquet")}

    return make


def mapped(folder: Path, frames: Frames) -> Given:
    """Train with a map column 'c'."""
    table = pa.Table.from_pandas(frames["train"].drop(columns="c"), preserve_index=False)
    cells = pa.array([[("CANARY-7731", 1)]] * table.num_rows, pa.map_(pa.string(), pa.int64()))
    return {**frames, "train": parquet(table.append_column("c", cells), folder / "train.parquet")}


def not_utf8(folder: Path, frames: Frames) -> Given:
    """Train with a text column 'c' whose bytes are not UTF-8, as some writers leave them."""
    table = pa.Table.from_pandas(frames["train"].drop(columns="c"), preserve_index=False)
    ends = np.arange(0, 5 * table.num_rows + 1, 5, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"\xff7731" * table.num_rows)]
    cells = pa.Array.from_buffers(pa.string(), table.num_rows, buffers)
    return {**frames, "train": parquet(table.append_column("c", cells), folder / "train.parquet")}


def other_dictionaries(folder: Path, frames: Frames) -> Given:
    """Train as two files whose dictionaries hold other categories in another order."""
    table = pa.Table.from_pandas(frames["train"], preserve_index=False)
    for place, part in enumerate((table.slice(0, 30), table.slice(30))):
        coded = part.column("c").combine_chunks().dictionary_encode()
        order = pa.array(list(range(len(coded.dictionary)))[:: 1 if place else -1])
        unused = pa.array([f"CANARY-7731-unused-{place}"])
        words = pa.concat_arrays([unused, coded.dictionary.take(order).cast(pa.string())])
        places = pa.array([words.to_pylist().index(w) for w in part.column("c").to_pylist()], pa.int8())
        part = part.set_column(2, "c", pa.DictionaryArray.from_arrays(places, words))
        parquet(part, folder / "train" / f"part-{place}.parquet")
    return {**frames, "train": str(folder / "train")}


# ---------------------------------------------------------------------------------------------- servers that refuse


class NoCredentialsError(Exception):
    """What botocore raises; it derives from nothing that Python knows."""


class _Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A server whose hosts refuse in different ways, with a secret in every message."""

    protocol = "refusing"
    cachable = False

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Refuse, or tell of a file that cannot be opened."""
        _refuse(self._strip_protocol(path).split("/")[0], early=True)
        return {"name": path, "size": 4000, "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """One file."""
        return [self.info(path)] if detail else [path]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        _refuse(self._strip_protocol(path).split("/")[0], early=False)


def _refuse(host: str, early: bool) -> None:
    said = "CANARY-7731 is not welcome"
    if host == "locked" or (host in ("unreadable", "expired") and not early):
        raise PermissionError(13, said)
    if host == "keyless":
        raise NoCredentialsError(said)
    if host == "forbidden":
        raise PermissionError(said)
    if host == "down":
        raise BrokenPipeError(32, said)


fsspec.register_implementation("refusing", _Refusing, clobber=True)


# ---------------------------------------------------------------------------------------------- encryption


class _Kms(pe.KmsClient):  # type: ignore[misc]
    """A key service that keeps no secret."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Encode only."""
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """Decode only."""
        return base64.b64decode(wrapped_key)


def encrypted(plaintext_footer: bool) -> Maker:
    """A maker whose train file is encrypted, with or without a readable footer."""

    def make(folder: Path, frames: Frames) -> Given:
        config = pe.EncryptionConfiguration(
            footer_key="footer",
            column_keys={"columns": ["a", "c"]},
            plaintext_footer=plaintext_footer,
            cache_lifetime=timedelta(minutes=1),
        )
        factory = pe.CryptoFactory(_Kms)
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        return {**frames, "train": parquet(frames["train"], folder / "train.parquet", encryption_properties=properties)}

    return make
