"""Fuzzed Parquet and CSV files, given as one table of three or as one of two."""

from __future__ import annotations

import contextlib
import csv
import gzip
import importlib
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

import daskpriv
from tests.fuzz.checks import Failure, attempt, shareable
from tests.fuzz.mutate import Span, damage, flip_in, odd_text, splice, truncate

ROWS = 16
ROLES = ("train", "holdout", "synthetic")
_NOON = datetime(7731, 7, 31, 12)


def _cells(rng: random.Random) -> dict[str, pa.Array]:
    """One array of every kind; whatever a message could quote holds a canary."""
    n = [rng.randrange(40) for _ in range(ROWS)]
    gaps = [None if rng.random() < 0.15 else v for v in n]
    return {
        "whole": pa.array([77317731 + v for v in n]),
        "real": pa.array([77317731 + v / 4 for v in n]),
        "word": pa.array([f"CANARY-{v % 5}" for v in n]),
        "flag": pa.array([v % 2 == 0 for v in n]),
        "gaps": pa.array([None if v is None else 77317731.0 + v for v in gaps]),
        "holes": pa.array([None if v is None else f"CANARY-{v % 3}" for v in gaps]),
        "coded": pa.array([f"CANARY-{v % 4}" for v in n]).dictionary_encode(),
        "narrow": pa.array([v - 20 for v in n], pa.int8()),
        "wide": pa.array([2**64 - 1 - v for v in n], pa.uint64()),
        "single": pa.array([77317728.0 + 8 * v for v in n], pa.float32()),
        "money": pa.array([Decimal(77317731 + v).scaleb(-2) for v in n], pa.decimal128(14, 2)),
        "bytes": pa.array([b"CANARY\xff" + bytes([v]) for v in n]),
        "fixed": pa.array([b"CANARY" + bytes([v % 3] * 2) for v in n], pa.binary(8)),
        "day": pa.array([date(7731, 7, 31) + timedelta(v) for v in n]),
        "stamp": pa.array([_NOON + timedelta(hours=v) for v in n], pa.timestamp("us")),
        "zoned": pa.array([_NOON.replace(tzinfo=UTC) + timedelta(v) for v in n], pa.timestamp("us", "Europe/Vienna")),
        "clock": pa.array([time(7, v, 31) for v in n], pa.time64("us")),
        "empty": pa.nulls(ROWS),
        "pairs": pa.array([{"x": 77317731 + v, "y": "CANARY"} for v in n]),
        "lists": pa.array([["CANARY"] * (v % 3) for v in n]),
    }


_PLAIN = tuple(k for k in _cells(random.Random(0)) if k not in ("pairs", "lists"))


@dataclass(frozen=True, eq=False)
class Variant:
    """Three tables of the same columns, and the first one as the bytes of a Parquet file.

    footer, headers, dictionaries, ends: where these lie; `ends` are the last bytes of page bodies.
    """

    tables: dict[str, pa.Table]
    data: bytes
    checksummed: bool
    footer: Span
    headers: tuple[Span, ...]
    dictionaries: tuple[Span, ...]
    ends: tuple[Span, ...]


@cache
def variant(number: int) -> Variant:
    """Variant `number`: columns and writer settings are drawn from it."""
    rng = random.Random(f"variant {number}")
    names = rng.sample(_PLAIN, rng.randrange(2, 6))
    if rng.random() < 0.15:
        names.append(rng.choice(("pairs", "lists")))
    tables = {}
    for role in ROLES:
        cells = _cells(rng)
        tables[role] = pa.table({name: cells[name] for name in names})
    options: dict[str, Any] = {
        "compression": rng.choice(("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        "use_dictionary": rng.random() < 0.5,
        "data_page_version": rng.choice(("1.0", "2.0")),
        "version": rng.choice(("1.0", "2.4", "2.6")),
        "write_statistics": rng.random() < 0.7,
        "write_page_index": rng.random() < 0.3,
        "write_page_checksum": rng.random() < 0.5,
        "row_group_size": rng.choice((3, 5, ROWS, ROWS)),
        "data_page_size": rng.choice((16, 64, 1 << 20)),
        "store_schema": rng.random() < 0.7,
        "store_decimal_as_integer": rng.random() < 0.3,
    }
    if not options["use_dictionary"] and rng.random() < 0.5:
        encodings = {"whole": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT", "word": "DELTA_BYTE_ARRAY"}
        encodings |= {"holes": "DELTA_LENGTH_BYTE_ARRAY", "flag": "RLE", "gaps": "BYTE_STREAM_SPLIT"}
        options["column_encoding"] = {k: v for k, v in encodings.items() if k in names} or None
    sink = io.BytesIO()
    pq.write_table(tables["train"], sink, **options)
    data = sink.getvalue()
    headers, dictionaries, ends = [], [], []
    meta = pq.ParquetFile(io.BytesIO(data)).metadata
    for group in range(meta.num_row_groups):
        for column in range(meta.num_columns):
            chunk = meta.row_group(group).column(column)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            stop = first + chunk.total_compressed_size
            headers.append((chunk.data_page_offset, chunk.data_page_offset + 30))
            if chunk.dictionary_page_offset:
                dictionaries.append((chunk.dictionary_page_offset, chunk.data_page_offset))
            ends.append((stop - 2, stop))
    size = int.from_bytes(data[-8:-4], "little")
    footer = (len(data) - 8 - size, len(data))
    return Variant(
        tables, data, options["write_page_checksum"], footer, tuple(headers), tuple(dictionaries), tuple(ends)
    )


VARIANTS = 160


def parquet(rng: random.Random, folder: Path) -> None:
    """A damaged Parquet file as one of the tables."""
    made = variant(rng.randrange(VARIANTS))
    roll, sound = rng.random(), False
    if made.checksummed and roll < 0.1:
        data, sound = flip_in(made.data, rng, made.ends, rng.randrange(1, 4)), True
    elif roll < 0.12:
        data, sound = made.data, True
    elif roll < 0.25:
        data = damage(made.data, rng, (made.footer,))
    elif roll < 0.5:
        data = _other_footer(made, damage(made.data[made.footer[0] : -8], rng))
    elif roll < 0.65:
        data = damage(made.data, rng, made.headers)
    elif roll < 0.75:
        data = damage(made.data, rng, made.dictionaries)
    elif roll < 0.85:
        data = damage(made.data, rng)
    elif roll < 0.9:
        data = truncate(made.data, rng)
    elif roll < 0.95:
        data = splice(made.data, variant(rng.randrange(VARIANTS)).data, rng)
    else:
        data = _split_footer(made.data, variant(rng.randrange(VARIANTS)).data)
    with _placed(rng, folder, "fuzzed.parquet", data) as path:
        _compare(rng, made, path, sound)


@contextlib.contextmanager
def _placed(rng: random.Random, folder: Path, name: str, data: bytes) -> Iterator[str]:
    """Where the file is: on the disk, or behind a URL, which is read by other code."""
    if rng.random() < 0.75:
        (folder / name).write_bytes(data)
        yield str(folder / name)
        return
    store = fsspec.filesystem("memory")
    store.pipe(f"/fuzz/{name}", data)
    try:
        yield f"memory://fuzz/{name}"
    finally:
        store.rm("/fuzz", recursive=True)


def _other_footer(made: Variant, footer: bytes) -> bytes:
    """The pages under a damaged footer whose length is right."""
    return made.data[: made.footer[0]] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _split_footer(data: bytes, other: bytes) -> bytes:
    """The pages of one file under the footer of another."""
    size, more = (int.from_bytes(d[-8:-4], "little") + 8 for d in (data, other))
    return data[:-size] + other[-more:]


def _compare(rng: random.Random, made: Variant, path: str, sound: bool) -> None:
    """Search or evaluate with the file in one of the roles."""
    if sound or rng.random() < 0.25:
        role = rng.choice(ROLES)
        given = {**made.tables, role: path}
        report = attempt(
            lambda: daskpriv.evaluate(**given, metrics=rng.choice(("default", "clones"))),
            True,
            role,
            "column",
            "schema",
        )
        if report is not None:
            shareable(report)
            if sound:
                _unchanged(made, role, path)
        return
    query, reference = (path, made.tables["holdout"]) if rng.random() < 0.5 else (made.tables["holdout"], path)
    attempt(
        lambda: daskpriv.nearest_neighbours(query, reference, k=rng.choice((1, 2, 20))),
        True,
        "query",
        "reference",
        "column",
    )


def _unchanged(made: Variant, role: str, path: str) -> None:
    """Fail when a file whose page checksums do not hold was read as if nothing were wrong."""
    want = daskpriv.evaluate(train=made.tables["train"], synthetic=made.tables["train"], metrics="clones")
    found = daskpriv.evaluate(train=path, synthetic=made.tables["train"], metrics="clones")
    if found.inputs["tables"]["train"]["fingerprint"] != want.inputs["tables"]["train"]["fingerprint"]:
        raise Failure(f"a flipped bit under a page checksum was read in silence ({role})")
    if found.metrics["clones"].details["n_synthetic_train"] != ROWS:
        raise Failure("a table is not a copy of itself")


# ---------------------------------------------------------------------------------------------- CSV


def _csv_tables(rng: random.Random) -> dict[str, list[list[str]]]:
    """Header and rows of three tables as text cells."""
    header = ["whole", "real", "word", "day", "flag"]
    out = {}
    for role in ROLES:
        rows = [header]
        for _ in range(rng.randrange(2, ROWS)):
            v = rng.randrange(40)
            rows.append(
                [
                    str(77317731 + v),
                    str(77317731 + v / 4),
                    f"CANARY-{v % 5}",
                    f"7731-07-{v % 28 + 1:02}",
                    str(v % 2 == 0),
                ]
            )
        out[role] = rows
    return out


def _write(rows: list[list[str]], rng: random.Random, usual: bool) -> str:
    sink = io.StringIO()
    style = {"lineterminator": "\n"}
    if not usual:
        style = {
            "lineterminator": rng.choice(("\n", "\r\n", "\r")),
            "delimiter": rng.choice((",", ",", ",", ";", "\t", "|")),
            "quoting": rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)),
        }
    csv.writer(sink, **style).writerows(rows)  # type: ignore[arg-type]
    return sink.getvalue()


_ODD_CELLS = (
    *("", '""', '"', "'", "NA", "nan", "inf", "-inf", "1e999", "1e-999", "0x10", "1_000", "1,5", "-0", "+1", "00012"),
    *("9" * 30, "9223372036854775808", "18446744073709551616", "true", "TRUE", "T", "2020-13-45", "0000-00-00"),
    *("2020-01-01T00:00:00Z", "2020-01-01 00:00:00+14:00", "9999-12-31", "10000-01-01", "CANARY\x00", "\ufeff", "a\nb"),
    *("a\rb", 'a"b', "CANARY,CANARY", " CANARY ", "\u2028", "=cmd|'/C calc'!A0", "CANARY" * 400, "\x1a", "\\", "\\N"),
)


def csv_file(rng: random.Random, folder: Path) -> None:
    """A damaged or unusual CSV file, plain or gzip, as one of the tables."""
    tables = _csv_tables(rng)
    role = rng.choice(ROLES)
    rows = [list(r) for r in tables[role]]
    header_kept = True
    for _ in range(rng.randrange(0, 4)):
        place, column = rng.randrange(len(rows)), rng.randrange(5)
        cell = rng.choice(_ODD_CELLS) if rng.random() < 0.7 else odd_text(rng, surrogates=False)
        if place == 0 and "CANARY" in cell:
            continue
        rows[place] = [*rows[place][:column], cell, *rows[place][column + 1 :]]
    if rng.random() < 0.2:
        place = rng.randrange(len(rows))
        rows[place] = rng.choice((rows[place][:-1], [*rows[place], "CANARY"], [], [""], [" "]))
        header_kept = place > 0
    if rng.random() < 0.1:
        rng.shuffle(rows)
        header_kept = False
    usual = rng.random() < 0.7
    text = _write(rows, rng, usual)
    if rng.random() < 0.15:
        text = text.rstrip("\r\n")
    if rng.random() < 0.15:
        text = "\ufeff" * rng.randrange(1, 3) + text
    data = text.encode(rng.choice(("utf-8",) * 20 + ("utf-16", "latin-1", "utf-32", "utf-8-sig", "utf-7")), "replace")
    if rng.random() < 0.5:
        data, usual, header_kept = damage(data, rng), False, False
    if rng.random() < 0.05 and data:
        data, usual, header_kept = truncate(data, rng), False, False
    name = "fuzzed.csv"
    if rng.random() < 0.15:
        name, data = "fuzzed.csv.gz", gzip.compress(data, 1, mtime=0)
        if rng.random() < 0.5:
            data = damage(data, rng)
    given: dict[str, Any] = {}
    for other in ROLES:
        (folder / f"{other}.csv").write_text(_write(tables[other], rng, True), "utf-8")
        given[other] = str(folder / f"{other}.csv")
    # The first line is read as names: only where it is known to hold no cell must no cell be told.
    secret = header_kept and usual
    options = {"block_rows": rng.choice((None, None, 1, 3))}
    with small_chunks(rng.choice((0, 0, 0, 13, 60))), _placed(rng, folder, name, data) as given[role]:
        _compare_csv(rng, given, role, options, secret, data if usual and name.endswith(".csv") else None)


@contextlib.contextmanager
def small_chunks(size: int) -> Iterator[None]:
    """Read CSV files in chunks of `size` bytes, so that every kind of boundary is met; 0 leaves them as they are."""
    module = importlib.import_module("daskpriv.tables.csv")
    with mock.patch.object(module, "CHUNK", size) if size and hasattr(module, "CHUNK") else contextlib.nullcontext():
        yield


def _compare_csv(
    rng: random.Random, given: dict[str, str], role: str, options: dict[str, Any], secret: bool, plain: bytes | None
) -> None:
    """Search or evaluate with the file as `role`; `plain` are its bytes where Python's reader can count its rows."""
    if rng.random() < 0.3:
        report = attempt(lambda: daskpriv.evaluate(**given, **options), secret, *ROLES, "column")
        if report is not None:
            shareable(report, secret)
            if plain is not None:
                _all_rows(plain, report.inputs["tables"][role]["rows"])
        return
    other = given["holdout" if role != "holdout" else "train"]
    pair = (given[role], other) if rng.random() < 0.5 else (other, given[role])
    found = attempt(lambda: daskpriv.nearest_neighbours(*pair, k=1, **options), secret, "query", "reference", "column")
    if found is not None and plain is not None and pair[0] == given[role]:
        _all_rows(plain, len(found.row))


def _all_rows(data: bytes, rows: int) -> None:
    """Fail when another number of rows was read than Python's own reader finds."""
    text = data.decode("utf-8-sig", "replace")
    if '"' in text or "\r" in text or "\x00" in text:
        try:
            found = [r for r in csv.reader(io.StringIO(text, newline=""), strict=True) if r]
        except csv.Error:
            return
    else:
        found = [[line] for line in text.split("\n") if line]
    if len(found) - 1 != rows:
        raise Failure(f"{rows} rows were read where {len(found) - 1} stand in the file")
