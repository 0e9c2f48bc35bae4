"""Cut real rows into train and holdout at random, before anybody trains a generator: what every label test needs.

A row goes to the holdout when a hash of (seed, subject) lies below the share asked for: independent of all other
rows, of the order of files and of how the work is cut. All rows of a subject go to the same side.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, TRAIN
from daskpriv.report.model import check_writable, write_atomically
from daskpriv.session import open_any, whole
from daskpriv.stats.labels import below
from daskpriv.tables.keys import digests_of
from daskpriv.tables.sinks import get, join, listing, put, remove
from daskpriv.tables.table import Part, decoded

_FORMAT = 1
_PART = re.compile(r"(train|holdout)/part-\d{5}\.parquet")
_ROWS = 500_000


@dataclass(frozen=True)
class Split:
    """How real rows were cut; what split.json holds. The seed is a secret: who knows it knows who is in train.

    Attributes
    ----------
    holdout_share : float
    subject_key : str or None
        The column that says whose row it is; None cuts row by row.
    train, holdout : int
        Rows.
    subjects : int or None
        Distinct subjects, None without a key.
    """

    holdout_share: float
    subject_key: str | None
    train: int
    holdout: int
    subjects: int | None = None

    @property
    def randomised(self) -> bool:
        """True when each row was included by a fair coin of its own: what a bound on epsilon needs."""
        return self.holdout_share == 0.5 and self.subject_key is None


def split(
    table: Any,
    output: str | os.PathLike[str],
    *,
    holdout_share: float = 0.5,
    subject_key: str | None = None,
    seed: int | None = None,
) -> Split:
    """Write train/, holdout/ and split.json below `output`.

    Parameters
    ----------
    table : path, URL, glob, list of them, or a frame
        The real rows.
    output : directory or URL
    holdout_share : float
        Between 0 and 1; each subject goes to the holdout with this probability.
    subject_key : str, optional
        All rows with the same value in this column stay together; missing values are refused.
    seed : int, optional
        The default is drawn from the operating system and never written down.

    Raises
    ------
    InputError
        When the key is no column or has missing values, when one side would be empty, when two files disagree on a
        column's type beyond repair, or when `output` already holds a split.

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> made = split(pd.DataFrame({"age": range(100)}), tempfile.mkdtemp(), seed=1)
    >>> made.train + made.holdout
    100
    """
    if isinstance(holdout_share, bool) or not isinstance(holdout_share, (int, float)) or not 0 < holdout_share < 1:
        raise InputError("holdout share must be a number between 0 and 1.")
    secret = int.from_bytes(os.urandom(8), "little") if seed is None else whole(seed, "seed", least=0)
    if secret >= 2**64:
        raise InputError("seed must be a whole number from 0 to 2**64 - 1.")
    opened = open_any(table, "table")
    if subject_key is not None and subject_key not in opened.schema.names:
        raise InputError(f"table: has no column {subject_key!r}; name the column that says whose row it is.")
    folder = os.fspath(output)
    check_writable(folder)
    _refuse_another(folder)
    rows = {TRAIN: 0, HOLDOUT: 0}
    subjects: set[bytes] = set()
    schema = _plain(opened.schema)
    try:
        for place, part in enumerate(opened.parts(_ROWS)):
            read = part.read(opened.schema.names)
            read = pa.table([_as(c, f) for c, f in zip(read.columns, schema, strict=True)], schema=schema)
            for side, some in _sides(read, part, subject_key, secret, float(holdout_share), subjects):
                rows[side] += some.num_rows
                if some.num_rows:
                    put(join(folder, side, f"part-{place:05d}.parquet"), _parquet(some), private=True)
        for side, count in rows.items():
            if not count:
                raise InputError(
                    f"table: {opened.rows} rows are too few for a holdout share of {holdout_share}: no {side}."
                )
    except BaseException:
        _clear(folder)  # half a split is none
        raise
    made = Split(
        float(holdout_share),
        subject_key,
        rows[TRAIN],
        rows[HOLDOUT],
        len(subjects) if subject_key is not None else None,
    )
    write_atomically(
        join(folder, "split.json"), json.dumps({"daskpriv_split": _FORMAT, **asdict(made)}, indent=1) + "\n"
    )
    return made


def read_split(path: str | os.PathLike[str]) -> Split:
    """What split.json says."""
    try:
        held = json.loads(get(os.fspath(path)).decode("utf-8"))
        if held.pop("daskpriv_split") != _FORMAT:
            raise ValueError
        made = Split(**held)
        whole_numbers = all(type(n) is int and n > 0 for n in (made.train, made.holdout))
        named = made.subject_key is None or isinstance(made.subject_key, str)
        if not (whole_numbers and named and type(made.holdout_share) is float and 0 < made.holdout_share < 1):
            raise ValueError
    except Exception:
        raise InputError(
            "split: not a split.json of `daskpriv split`; give the file beside train/ and holdout/."
        ) from None
    return made


def _sides(
    rows: pa.Table, part: Part, key: str | None, seed: int, share: float, subjects: set[bytes]
) -> Iterator[tuple[str, pa.Table]]:
    if key is None:
        numbers = np.arange(part.first_row, part.first_row + part.rows, dtype=np.int64)
    else:
        numbers = _subjects(rows.column(key), key, subjects)
    held_out = below(seed, numbers, share)
    for side, chosen in ((TRAIN, ~held_out), (HOLDOUT, held_out)):
        yield side, rows.filter(pa.array(chosen))


def _subjects(column: pa.ChunkedArray, key: str, seen: set[bytes]) -> NDArray[np.int64]:
    """64 bits that name each row's subject, whatever type or file the value comes from; int64 (n,)."""
    digests, places = digests_of(column, "table", key)
    seen.update(digests)
    out: NDArray[np.int64] = np.frombuffer(b"".join(digests), np.int64)[places]
    return out


def _plain(schema: pa.Schema) -> pa.Schema:
    """One type per column, of those that every reader of Parquet knows."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            value = plain(kind.value_type)
            return pa.dictionary(pa.int32(), value)  # another file may have more categories than this one can count
        if pa.types.is_string_view(kind):
            return pa.large_string()
        return pa.large_binary() if pa.types.is_binary_view(kind) else kind

    return pa.schema([f.with_type(plain(f.type)) for f in schema])


def _as(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    column = decoded(column) if pa.types.is_dictionary(column.type) else column
    try:
        return (
            column.dictionary_encode().cast(field.type)
            if pa.types.is_dictionary(field.type)
            else column.cast(field.type)
        )
    except pa.ArrowInvalid:
        raise InputError(
            f"table: column {field.name!r} is {column.type} in one file and {field.type} in another, which cannot hold "
            "all of its values; write all files with one type."
        ) from None


def _refuse_another(folder: str) -> None:
    """A split that was never written down cannot be made again: none is overwritten."""
    with suppress(FileNotFoundError):
        if any(_PART.fullmatch(name) or name == "split.json" for name in listing(folder)):
            raise InputError("output: this folder already holds a split; name a new one, or remove that split first.")


def _clear(folder: str) -> None:
    """Remove the rows of a split that failed."""
    with suppress(FileNotFoundError):
        for name in listing(folder):
            if _PART.fullmatch(name):
                remove(join(folder, name))


def _parquet(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, compression="zstd")
    return out.getvalue()
