"""Arrow columns → the columns of an MDS shard.

Compressed images and arrays of several axes have no Arrow type of their own. They are binary columns of which
the writer is told the MDS encoding; their bytes go into the shards as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._json import lists_to_json
from .ragged import (
    Int64,
    binary_from_offsets,
    binary_rows,
    byte_offsets,
    concat_rows,
    filled_binary,
    list_lengths,
    offsets_of,
    stored_values,
    value_bytes,
)
from .types import fixed_dtype, fixed_encoding, is_bytes, is_list, is_text, marks_nulls_itself

# What stands for a null image: one black pixel, so that stock readers can decode every sample.
_BLACK_PIXEL = {
    "png": bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a494441"
        "54789c636000000002000148afa4710000000049454e44ae426082"
    ),
    "jpeg": bytes.fromhex(
        "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d"
        "0c0b0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d3832"
        "3c2e333432ffc0000b080001000101011100ffc40014000100000000000000000000000000000008ffc4"
        "0014100100000000000000000000000000000000ffda0008010100003f003fbfffd9"
    ),
}


@dataclass(frozen=True)
class StoredColumn:
    """One column as it goes into a shard.

    Attributes:
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
    if declared is not None:
        columns = [StoredColumn(name, declared, _stored_bytes(array, declared))]
    elif encoded is not None or (encoded := costly_values(array)) is not None:
        # A list's elements say for themselves, in JSON, that they are null.
        columns = [StoredColumn(name, encoding_of(type_), encoded)]
    elif is_list(type_):
        lengths, elements = list_lengths(array), array.flatten()
        columns = [_lists(name, lengths, fixed_values(elements))]
        if element_null_column is not None:
            columns.append(_lists(element_null_column, lengths, _null_flags(elements)))
    elif fixed_dtype(type_) is not None:
        columns = [StoredColumn(name, encoding_of(type_), fixed_values(array))]
    else:
        columns = [StoredColumn(name, encoding_of(type_), filled_binary(array))]
    if null_column is not None:
        columns.append(StoredColumn(null_column, "uint8", _null_flags(array)))
    return columns


def encoding_of(type_: pa.DataType) -> str:
    """Return the MDS encoding of columns of a type; that of lists of one length has this behind it."""
    if is_list(type_):
        element = fixed_dtype(type_.value_type)
        return "json" if element is None else f"ndarray:{element.name}"
    dtype = fixed_dtype(type_)
    if dtype is not None:
        return dtype.name
    if is_text(type_):
        return "str"
    return "bytes" if is_bytes(type_) else "str_decimal"


def _stored_bytes(array: pa.Array, encoding: str) -> npt.NDArray[Any] | pa.LargeBinaryArray:
    """Return encoded values as a shard stores them; nulls become zeros, an empty array or a black pixel."""
    cells = filled_binary(array, _filler(encoding) if array.null_count else b"")
    dtype = fixed_encoding(encoding)
    if dtype is None:
        return cells
    if (np.diff(byte_offsets(cells)) != dtype.itemsize).any():
        raise ValueError(f"values that are not of the {dtype.itemsize} bytes of {encoding!r}")
    return np.ascontiguousarray(value_bytes(cells)).view(dtype.base).reshape(-1, *dtype.shape)


@lru_cache(maxsize=64)
def _filler(encoding: str) -> bytes:
    if encoding in _BLACK_PIXEL:
        return _BLACK_PIXEL[encoding]
    dtype = fixed_encoding(encoding)
    return array_headers(np.zeros((1, 1))).tobytes() if dtype is None else bytes(dtype.itemsize)


def array_headers(shapes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return what stands before the elements of values of encoding ``ndarray:<dtype>``, each of the same length.

    Args:
        shapes: Of the values, of shape ``(values, axes)``.
    """
    count, axes = shapes.shape
    longest = int(shapes.max(initial=0))
    code = next(c for c in range(4) if longest < 1 << (8 << c) or c == 3)
    headers = np.empty((count, 1 + (axes << code)), np.uint8)
    headers[:, 0] = axes << 2 | code
    headers[:, 1:] = shapes.astype(f"<u{1 << code}").view(np.uint8).reshape(count, -1)
    return headers


def _null_flags(array: pa.Array) -> npt.NDArray[np.uint8]:
    return np.asarray(array.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False))


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


def _lists(name: str, lengths: Int64, flat: npt.NDArray[Any]) -> StoredColumn:
    """Return a column of lists of some lengths, given their elements one after the other."""
    encoding = f"ndarray:{flat.dtype.name}"
    width = int(lengths[0]) if len(lengths) else 0
    if width and bool((lengths == width).all()):
        # All of one length: the shard's rows stay fixed-width records.
        return StoredColumn(name, f"{encoding}:{width}", flat.reshape(-1, width))
    header = binary_rows(array_headers(lengths[:, np.newaxis]))
    offsets = offsets_of(lengths * flat.itemsize)
    values = binary_from_offsets(offsets, np.ascontiguousarray(flat).view(np.uint8))
    return StoredColumn(name, encoding, concat_rows([header, values]))


def is_encoding_of(type_: pa.DataType, encoding: str, declared: str | None = None) -> bool:
    """Return whether :func:`encode_column` may store a column of this type, which may declare an encoding, so."""
    if declared not in (None, encoding):
        return False
    if declared in _BLACK_PIXEL:
        return is_bytes(type_)
    return encoding.split(":")[:2] == encoding_of(type_).split(":")


def costly_values(array: pa.Array) -> pa.LargeBinaryArray | None:
    """Return the encoded values of a column whose values are written out as text, else None."""
    encoding = encoding_of(array.type)
    if encoding == "json":
        return lists_to_json(array)
    if encoding == "str_decimal":
        # Stock readers call Decimal() on it.
        return filled_binary(array.cast(pa.large_string()), b"NaN")
    return None


def row_sizes(array: pa.Array, encoded: pa.LargeBinaryArray | None) -> npt.NDArray[np.int64]:
    """Return an upper bound of the bytes each row of one column takes in a shard, shape ``(rows,)``."""
    type_ = array.type
    dtype = fixed_dtype(type_)
    if dtype is not None:
        return np.full(len(array), dtype.itemsize, np.int64)
    element = fixed_dtype(type_.value_type) if is_list(type_) else None
    if element is not None:
        # Size word, header of at most 9 bytes.
        return list_lengths(array) * element.itemsize + 13
    return np.diff(byte_offsets(filled_binary(array) if encoded is None else encoded)) + 4
