"""Hashes of cells: 64 bits, the same on every machine, in every file and for every order of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FIRST_KEY, _SECOND_KEY = "daskpriv-hash-01", "daskpriv-hash-02"


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit integers one to one (splitmix64 finaliser, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = x + _MIX
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def hash_values(values: pa.Array, second: bool = False) -> NDArray[np.uint64]:
    """Non-zero 64-bit hash of each value; the same on every machine. `second` is an independent one."""
    objects = np.asarray(values.to_pylist() or [], dtype=object)
    if len(objects) == 0:
        return np.zeros(0, np.uint64)
    if not isinstance(objects[0], (str, bytes)):
        objects = np.asarray([repr(v) for v in objects], dtype=object)
    hashes = pd.util.hash_array(objects, hash_key=_SECOND_KEY if second else _FIRST_KEY, categorize=False)
    return np.maximum(hashes, np.uint64(1))


def hash_cells(cells: pa.Array) -> NDArray[np.uint64]:
    """Hash of each cell of an array without dictionaries, 0 where it is null; 0.0 and -0.0 are one value.

    >>> found = hash_cells(pa.array([1, None, 1, 2]))
    >>> bool(found[0] == found[2] != found[3]), int(found[1])
    (True, 0)
    """
    missing = np.asarray(pc.is_null(cells, nan_is_null=True))
    if at.is_integer(cells.type) or at.is_temporal(cells.type) or at.is_floating(cells.type):
        hashes = mix(numbers_in(cells).view(np.uint64))
    else:
        coded = cells.dictionary_encode()
        places = np.asarray(pc.fill_null(coded.indices, -1), np.int64)
        hashes = np.append(hash_values(coded.dictionary), np.uint64(0))[places]
    return np.where(missing, np.uint64(0), np.maximum(hashes, np.uint64(1)))


def numbers_in(cells: pa.Array) -> NDArray[np.int64] | NDArray[np.float64]:
    """Integers and times as int64 in their unit (wrapped where unsigned), floats as float64; nulls are arbitrary."""
    if at.is_floating(cells.type):
        return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) + 0.0
    if at.is_temporal(cells.type):
        cells = cells.cast(pa.int32() if at.is_date32(cells.type) or at.is_time32(cells.type) else pa.int64())
    return np.asarray(pc.fill_null(cells, 0)).astype(np.int64)
