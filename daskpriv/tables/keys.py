"""Key columns: a number for whatever names a subject, the same in every file, type of storage and order of rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daskpriv.errors import InputError
from daskpriv.tables.table import decoded


def digests_of(column: pa.ChunkedArray, table: str, key: str) -> tuple[Sequence[bytes], NDArray[np.int64]]:
    """Eight bytes for each distinct value, and which of them each row has, int64 (n,).

    Raises
    ------
    InputError
        When a value is missing.
    """
    if column.null_count:
        raise InputError(
            f"{table}: column {key!r} has {column.null_count} missing values; fill them or drop those rows."
        )
    column = decoded(column) if pa.types.is_dictionary(column.type) else column
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if any(isinstance(v, float) and math.isnan(v) for v in values):
        raise InputError(f"{table}: column {key!r} has missing values (NaN); fill them or drop those rows.")
    digests = [hashlib.blake2b(_text(v).encode(), digest_size=8).digest() for v in values]
    return digests, np.asarray(encoded.indices).astype(np.int64)


def _text(value: Any) -> str:
    """7 and 7.0 are one subject: a table with gaps elsewhere stores whole numbers as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbers_of(column: pa.ChunkedArray, table: str, key: str) -> NDArray[np.int64]:
    """A number, not negative, for the value of each row; int64 (n,).

    >>> found = numbers_of(pa.chunked_array([["a", "b", "a"]]), "train", "who")
    >>> bool(found[0] == found[2] and found[0] != found[1] and found.min() >= 0)
    True
    """
    digests, places = digests_of(column, table, key)
    numbers = (np.frombuffer(b"".join(digests), np.uint64) >> np.uint64(1)).astype(np.int64)
    out: NDArray[np.int64] = numbers[places]
    return out
