"""How the cells of one column are read, whatever Arrow type each table stores them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at

from daskpriv.errors import InputError
from daskpriv.tables.schema import Column
from daskpriv.tables.table import decoded
from daskpriv.tables.types import CATEGORICAL, Family, Kind, family

_UNITS = ("s", "ms", "us", "ns")
# What an all-null column is read as when a schema says more than that it is nominal.
_EMPTY = {
    Kind.NUMERIC: pa.float64(),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMEDELTA: pa.duration("us"),
    Kind.BOOLEAN: pa.bool_(),
}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Reading:
    """One column, and the Arrow type that holds the values of every table without loss.

    Attributes
    ----------
    column : Column
    carrier : pyarrow.DataType
        int64 stands for any integers, unsigned ones included.
    """

    column: Column
    carrier: pa.DataType

    @property
    def categorical(self) -> bool:
        """True when values are compared by equality (or by their place among levels)."""
        return self.column.kind in CATEGORICAL or self.column.kind is Kind.ORDINAL

    @property
    def integral(self) -> bool:
        """True when values are exact integers in some unit."""
        return not self.categorical and not at.is_floating(self.carrier)

    @property
    def timed(self) -> bool:
        """True for timestamps, durations and times of day."""
        return bool(at.is_temporal(self.carrier))

    @property
    def stored(self) -> pa.DataType:
        """The type of the values that `plain` returns; times compared by equality are counted in their unit."""
        return pa.int64() if self.categorical and at.is_temporal(self.carrier) else self.carrier

    def plain(self, values: pa.ChunkedArray, table: str) -> pa.Array:
        """Cells as one array of the carrier type (integers keep their own); NaN becomes null."""
        try:
            array = _whole(values)
            if at.is_string(array.type) or at.is_large_string(array.type):
                array.validate(full=True)
            if self.carrier == pa.int64() and at.is_integer(array.type) and not self.categorical:
                return array
            if at.is_decimal(self.carrier) and at.is_integer(array.type):
                array = array.cast(pa.decimal128(20, 0))
            if at.is_floating(self.carrier) and at.is_decimal(array.type):
                # Arrow's own cast misses the nearest float64 for one value in seven; its text does not.
                array = array.cast(pa.string())
            array = array.cast(self.carrier)
            if array.type != self.stored:
                array = array.cast(self.stored)
        except pa.ArrowException:
            raise InputError(
                f"{table}: column {self.column.name!r} holds values that do not fit {self.carrier} (text must be valid "
                "UTF-8); store the column with one type in all tables."
            ) from None
        if at.is_floating(array.type):
            # Adding zero turns -0.0 into 0.0, so that they are one category too.
            array = pc.add(pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array), 0.0)
        return array

    def floats(self, array: pa.Array) -> NDArray[np.float64]:
        """Float64 values, NaN where missing; only when `integral` is false."""
        return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)

    def integers(self, array: pa.Array, table: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Exact integers (int64 or uint64) and a mask of the missing ones (their value is arbitrary)."""
        missing = np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), bool)
        if at.is_decimal(array.type):
            return self._unscaled(array, missing, table), missing
        if at.is_temporal(array.type):
            array = array.cast(pa.int32() if at.is_date32(array.type) or at.is_time32(array.type) else pa.int64())
        whole = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
        return (whole if whole.dtype == np.uint64 else whole.astype(np.int64)), missing

    def _unscaled(self, array: pa.Array, missing: NDArray[np.bool_], table: str) -> NDArray[np.int64]:
        # Not every decimal type has a zero that Arrow could fill in for what is missing.
        words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))].reshape(
            -1, 2
        )
        if np.any((words[:, 1] != words[:, 0] >> 63) & ~missing):
            raise InputError(
                f"{table}: column {self.column.name!r} holds decimals beyond 64 bits; cast it to double or drop digits."
            )
        return np.where(missing, 0, words[:, 0])


def _whole(values: pa.ChunkedArray) -> pa.Array:
    """One array without dictionaries or views, which many Arrow functions do not know."""
    if at.is_dictionary(values.type):
        values = decoded(values)
    if at.is_string_view(values.type) or at.is_binary_view(values.type):
        values = values.cast(pa.large_string() if at.is_string_view(values.type) else pa.large_binary())
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def reading(column: Column, types: Sequence[pa.DataType]) -> Reading:
    """Choose the carrier of a column from its physical types in all tables.

    Raises `InputError` when the carrier would lose digits that the tables hold.
    """
    plain = [t.value_type if at.is_dictionary(t) else t for t in types]
    plain = [t for t in plain if not at.is_null(t)] or [_EMPTY.get(column.kind) or _of_levels(column)]
    of = family(plain[0])
    if of is Family.BOOLEAN:
        return Reading(column, pa.int64() if column.kind is Kind.NUMERIC else pa.bool_())
    if of is Family.CATEGORY:
        binary = any(not (at.is_string(t) or at.is_large_string(t) or at.is_string_view(t)) for t in plain)
        return Reading(column, pa.large_binary() if binary else pa.large_string())
    if of is Family.NUMBER:
        carrier = _number(plain)
        if carrier == pa.int64() and any(at.is_uint64(t) for t in plain) and column.kind is not Kind.NUMERIC:
            carrier = pa.decimal128(20, 0)
        if at.is_decimal(carrier) and carrier.scale > carrier.precision:
            raise InputError(
                f"column {column.name!r} has decimals of {carrier.scale} places; cast it to double or drop digits."
            )
        return Reading(column, carrier)
    unit = max((_unit(t) for t in plain), key=_UNITS.index)
    if of is Family.DURATION:
        return Reading(column, pa.duration(unit))
    if of is Family.CLOCK:
        return Reading(column, pa.time64(unit if unit in ("us", "ns") else "us"))
    return Reading(column, pa.timestamp(unit, "UTC" if of is Family.INSTANT else None))


def _of_levels(column: Column) -> pa.DataType:
    """The type of a column without any value: that of its levels, if it has them."""
    try:
        found = pa.array(list(column.levels)).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.string()
    return found if family(found) in (Family.NUMBER, Family.BOOLEAN, Family.CATEGORY) else pa.string()


def _number(types: Sequence[pa.DataType]) -> pa.DataType:
    if any(at.is_floating(t) for t in types):
        return pa.float64()
    if any(at.is_decimal(t) for t in types):
        return pa.decimal128(38, max(0, *(t.scale for t in types if at.is_decimal(t))))
    return pa.int64()


def _unit(kind: pa.DataType) -> str:
    if at.is_date32(kind):
        return "s"
    return "ms" if at.is_date64(kind) else str(kind.unit)
