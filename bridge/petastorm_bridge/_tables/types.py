"""The type table: one row per logical type, read by the code, the tests and the guide.

A row says which Arrow types belong to it, what Petastorm calls it (the NumPy scalar type of
``petastorm/unischema.py``), what TensorFlow gets, and in words what a user sees in torch and where
there are nulls. How a type lies on disk is the engine's business (``mds/encode.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge.mds.types import is_bytes, is_list, is_text

_STRING_ERROR = "`TypeError`: torch has no strings or objects"


@dataclass(frozen=True)
class TypeRow:
    """One logical type.

    Attributes:
        name: Its name in the guide.
        spark: Spark SQL types that become it.
        matches: Whether an Arrow type belongs to the row.
        example: An Arrow type of the row; the guide derives its MDS encoding.
        numpy: Scalar type in schemas, as Petastorm names it.
        tf: Name of the TensorFlow dtype.
        torch: What a torch batch holds.
        torch_nulls: The same when the dataset has nulls in the column.
        tf_nulls: What TensorFlow gets for a null, or its error.
        nulls_as: dtype of the whole column when the dataset has nulls in it; None keeps it.
    """

    name: str
    spark: str
    matches: Callable[[pa.DataType], bool]
    example: pa.DataType
    numpy: Any
    tf: str
    torch: str
    torch_nulls: str
    tf_nulls: str
    nulls_as: str | None = None


def _is(type_: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda other: bool(other == type_)


def _integer(spark: str, name: str, tf: str, torch: str | None = None) -> TypeRow:
    type_ = pa.from_numpy_dtype(np.dtype(name))
    sentinel = "`0`" if np.dtype(tf).itemsize < 4 else f"the smallest `{tf}`"
    return TypeRow(
        name, spark, _is(type_), type_, np.dtype(name).type, tf, f"`{torch or name}`",
        "`float64` with NaN", f"{sentinel}, with a warning", "float64",
    )  # fmt: skip


TYPES: tuple[TypeRow, ...] = (
    TypeRow(
        "boolean", "boolean", pa.types.is_boolean, pa.bool_(), np.bool_, "bool", "`uint8`",
        _STRING_ERROR, "`False`, with a warning", "object",
    ),
    _integer("byte", "int8", "int8"),
    _integer("short", "int16", "int16"),
    _integer("int", "int32", "int32"),
    _integer("long, day-time interval (µs)", "int64", "int64"),
    _integer("– (MDS written elsewhere)", "uint8", "uint8"),
    _integer("– (MDS written elsewhere)", "uint16", "int32", "int32"),
    _integer("– (MDS written elsewhere)", "uint32", "int64", "int64"),
    TypeRow(
        "float32", "float, and double with dtype='float32'", pa.types.is_float32, pa.float32(),
        np.float32, "float32", "`float32`", "`float32` with NaN", "NaN",
    ),
    TypeRow(
        "float64", "double with dtype=None, and float with dtype='float64'",
        pa.types.is_float64, pa.float64(), np.float64, "float64", "`float64`",
        "`float64` with NaN", "NaN",
    ),
    TypeRow(
        "decimal", "decimal", pa.types.is_decimal, pa.decimal128(10, 2), Decimal, "string",
        _STRING_ERROR, _STRING_ERROR, "`InternalError`: TensorFlow has no decimals",
    ),
    TypeRow(
        "string", "string, char, varchar",
        is_text, pa.string(), np.str_, "string", _STRING_ERROR, _STRING_ERROR, "`b'None'`, with a warning",
    ),
    TypeRow(
        "binary", "binary", is_bytes, pa.binary(), np.bytes_, "string", _STRING_ERROR, _STRING_ERROR,
        "`InternalError`: TensorFlow has no null strings",
    ),
    TypeRow(
        "date", "date", pa.types.is_date, pa.date32(), np.datetime64, "int64", _STRING_ERROR,
        _STRING_ERROR, "an error",
    ),
    TypeRow(
        "timestamp", "timestamp, timestamp_ntz", pa.types.is_timestamp, pa.timestamp("us"),
        np.datetime64, "int64", "`TypeError`: torch has no timestamps",
        "`TypeError`: torch has no timestamps", "the smallest `int64`, with a warning",
    ),
)  # fmt: skip


def find_type(type_: pa.DataType) -> TypeRow | None:
    """Return the row of a scalar Arrow type, or of a list's elements; None if unsupported."""
    if is_list(type_):
        type_ = type_.value_type
        if pa.types.is_nested(type_):
            return None
    for row in TYPES:
        if row.matches(type_):
            return row
    return None


def presented_type(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type whose ``to_pandas`` gives what Petastorm shows for a stored type.

    Spark writes timestamps to Parquet as INT96, which Petastorm reads as nanoseconds without a time
    zone; timestamps without a zone stay microseconds.
    """
    if is_list(type_):
        return pa.list_(presented_type(type_.value_type))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("ns")
    if is_text(type_):
        return pa.string()
    if is_bytes(type_):
        return pa.binary()
    return type_
