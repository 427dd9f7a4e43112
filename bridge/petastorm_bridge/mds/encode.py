"""Arrow columns → the columns of an MDS shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._json import lists_to_json
from .declared import IMAGES, stored_bytes
from .ragged import (
    binary_from_offsets,
    binary_rows,
    byte_offsets,
    concat_rows,
    filled_binary,
    list_lengths,
    offsets_of,
    stored_values,
)
from .types import (
    fixed_dtype,
    is_bytes,
    is_list,
    is_text,
    marks_nulls_itself,
)


@dataclass(frozen=True)
class StoredColumn:
    """One column as it goes into a shard.

    Attributes:
        name: Column name in the shard.
        encoding: MDS encoding, e.g. ``"int32"``, ``"ndarray:float32:3"``, ``"str"``.
        values: Fixed width: an array of shape ``(rows,)`` or ``(rows, k)``. Variable width: the
            encoded bytes of each row.
    """

    name: str
    encoding: str
    values: npt.NDArray[Any] | pa.LargeBinaryArray


def encode_column(
    name: str,
    array: pa.Array,
    null_column: str | None = None,
    element_null_column: str | None = None,
    encoded: pa.LargeBinaryArray | None = None,
    *,
    declared: str | None = None,
) -> list[StoredColumn]:
    """Return what a shard stores for one column.

    Args:
        name: The column's name.
        array: All of the shard's values, of a type that :func:`is_storable`.
        null_column: Store a uint8 null column under this name.
        element_null_column: For lists: store one null flag per element under this name.
        encoded: What :func:`costly_values` has returned for it.
        declared: The encoding that its values, which are bytes, have already.

    Returns:
        The column itself and its null columns, if asked for.
    """
    type_ = array.type
    columns = []
    if declared is not None:
        columns.append(StoredColumn(name, declared, stored_bytes(array, declared)))
    elif encoded is not None:
        # A list's elements say for themselves, in JSON, that they are null.
        encoding = "json" if is_list(type_) else _variable_encoding(type_)
        columns.append(StoredColumn(name, encoding, encoded))
    elif is_list(type_):
        columns.append(_encode_list(name, array))
        if element_null_column is not None:
            offsets = offsets_of(list_lengths(array)).astype(np.int32)
            values = pa.array(_null_flags(array.flatten()))
            flags = pa.ListArray.from_arrays(pa.array(offsets), values)
            columns.append(_encode_list(element_null_column, flags))
    elif (dtype := fixed_dtype(type_)) is not None:
        columns.append(StoredColumn(name, dtype.name, fixed_values(array)))
    else:
        columns.append(StoredColumn(name, _variable_encoding(type_), _variable_values(array)))
    if null_column is not None:
        columns.append(StoredColumn(null_column, "uint8", _null_flags(array)))
    return columns


def _null_flags(array: pa.Array) -> npt.NDArray[np.uint8]:
    return np.asarray(array.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False))


def _variable_encoding(type_: pa.DataType) -> str:
    if is_text(type_):
        return "str"
    return "bytes" if is_bytes(type_) else "str_decimal"


def fixed_values(array: pa.Array) -> npt.NDArray[Any]:
    """Return a fixed-width column as stored: shape ``(rows,)``, nulls as NaN, NaT or 0."""
    type_ = array.type
    dtype = fixed_dtype(type_)
    assert dtype is not None
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
    values = stored_values(array, dtype)
    if not array.null_count:
        return values
    values = values.copy()
    if dtype.kind == "f":
        filler: Any = np.nan
    else:
        filler = np.iinfo(np.int64).min if marks_nulls_itself(type_) else 0
    values[array.is_null().to_numpy(zero_copy_only=False)] = filler
    return values


def _variable_values(array: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_decimal(array.type):
        # Stock readers call Decimal() on it.
        return filled_binary(array.cast(pa.large_string()), b"NaN")
    return filled_binary(array)


def _encode_list(name: str, array: pa.Array) -> StoredColumn:
    element = fixed_dtype(array.type.value_type)
    if element is None:
        return StoredColumn(name, "json", lists_to_json(array))
    lengths = list_lengths(array)
    flat = fixed_values(array.flatten())
    width = int(lengths[0]) if len(lengths) else 0
    if width and bool((lengths == width).all()):
        # All of one length: the shard's rows stay fixed-width records.
        return StoredColumn(name, f"ndarray:{element.name}:{width}", flat.reshape(-1, width))
    header = _ndarray_headers(lengths)
    offsets = offsets_of(lengths * element.itemsize)
    values = binary_from_offsets(offsets, np.ascontiguousarray(flat).view(np.uint8))
    return StoredColumn(name, f"ndarray:{element.name}", concat_rows([header, values]))


def _ndarray_headers(lengths: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Return the [ndim and shape type: 1 byte][shape] header of each 1-D array."""
    longest = int(lengths.max(initial=0))
    code = next(c for c in range(4) if longest < 1 << (8 << c) or c == 3)
    shape_bytes = 1 << code
    header = np.empty((len(lengths), 1 + shape_bytes), np.uint8)
    header[:, 0] = (1 << 2) | code  # one axis, sizes of 2**code bytes
    header[:, 1:] = lengths.astype(f"<u{shape_bytes}").view(np.uint8).reshape(-1, shape_bytes)
    return binary_rows(header)


def is_encoding_of(type_: pa.DataType, encoding: str, declared: str | None = None) -> bool:
    """Return whether :func:`encode_column` may store a column of this type so.

    Args:
        type_: What the values are.
        encoding: How they are stored.
        declared: The encoding that the column declares, if any.
    """
    if declared not in (None, encoding):
        return False
    if declared in IMAGES:
        return is_bytes(type_)
    if is_list(type_):
        element = fixed_dtype(type_.value_type)
        if element is None:
            return encoding == "json"
        return encoding.split(":")[:2] == ["ndarray", element.name]
    dtype = fixed_dtype(type_)
    return encoding == (_variable_encoding(type_) if dtype is None else dtype.name)


def costly_values(array: pa.Array) -> pa.LargeBinaryArray | None:
    """Return the encoded values of a column whose values are written out as text, else None."""
    if is_list(array.type) and fixed_dtype(array.type.value_type) is None:
        return lists_to_json(array)
    return _variable_values(array) if pa.types.is_decimal(array.type) else None


def row_sizes(array: pa.Array, encoded: pa.LargeBinaryArray | None) -> npt.NDArray[np.int64]:
    """Return an upper bound of the bytes each row of one column takes in a shard, shape ``(rows,)``.

    Args:
        array: The column.
        encoded: What :func:`costly_values` has returned for it.
    """
    type_ = array.type
    dtype = fixed_dtype(type_)
    if dtype is not None:
        return np.full(len(array), dtype.itemsize, np.int64)
    element = fixed_dtype(type_.value_type) if is_list(type_) else None
    if element is not None:
        # Size word, header of at most 9 bytes.
        return list_lengths(array) * element.itemsize + 13
    return np.diff(byte_offsets(filled_binary(array) if encoded is None else encoded)) + 4
