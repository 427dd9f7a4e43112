"""Questions about types: what the engine stores of Arrow's, and what the names of MDS encodings say."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa


def fixed_dtype(type_: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type that values of a fixed-width Arrow type are stored as, or None."""
    if pa.types.is_boolean(type_):
        return np.dtype(np.uint8)
    if pa.types.is_date32(type_):
        return np.dtype(np.int32)
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return np.dtype(np.int64)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return number_dtype(type_)
    return None


def number_dtype(type_: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy type of an Arrow type of integers or floats.

    Arrow's own way, in its older versions, imports pandas first.
    """
    kind = "f" if pa.types.is_floating(type_) else "i" if pa.types.is_signed_integer(type_) else "u"
    return np.dtype(f"{kind}{type_.bit_width // 8}")


def is_list(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is a list type of either offset width, whose values differ in length.

    Petastorm knows these only; to it, lists of one fixed length are an unsupported type. What is written is of
    a :func:`plain_type`, which these are not.
    """
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def is_text(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is a string type of either offset width."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is a binary type of any layout."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def is_storable(type_: pa.DataType) -> bool:
    """Return whether a column of this Arrow type can be written (no struct, map, nested list, null)."""
    if is_list(type_):
        return not is_list(type_.value_type) and is_storable(type_.value_type)
    return (
        fixed_dtype(type_) is not None
        or is_text(type_)
        or is_bytes(type_)
        or bool(pa.types.is_decimal(type_))
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that a column of this one is converted to before it is written: the same values."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_date64(type_):
        return pa.date32()
    if is_list(type_) or pa.types.is_fixed_size_list(type_):
        # Lists of one length are arrays in MDS as soon as all rows have that length.
        element = plain_type(type_.value_type)
        return pa.large_list(element) if pa.types.is_large_list(type_) else pa.list_(element)
    return type_


def marks_nulls_itself(type_: pa.DataType) -> bool:
    """Return whether a null of this type is stored as NaN or NaT, so that no null column is needed."""
    return bool(
        pa.types.is_floating(type_) or pa.types.is_timestamp(type_) or pa.types.is_duration(type_)
    )


# Encodings of single numbers. MDS numbers them as the value types of a dynamic ndarray (class NDArray of
# ``streaming/base/format/mds/encodings.py``).
NDARRAY_CODES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}

MAX_ELEMENTS = (1 << 31) - 1
"""Of an array whose shape the encoding says."""


@lru_cache(maxsize=512)  # asked for every column of every shard
def fixed_encoding(encoding: str) -> np.dtype[Any] | None:
    """Return the type of one value of a fixed-width MDS encoding, None for variable width.

    That of an array has its ``shape``, and as ``base`` the type of its elements.

    Raises:
        ValueError: An ``ndarray`` encoding with a value type or shape that MDS does not have, or of 2 GiB a value.
    """
    if encoding in NDARRAY_CODES or encoding == "int":
        return np.dtype("int64" if encoding == "int" else encoding)
    family, separator, config = encoding.partition(":")
    if family != "ndarray" or not separator:
        return None
    name, separator, text = config.partition(":")
    if name not in NDARRAY_CODES:
        raise ValueError(f"unknown encoding {encoding!r}")
    if not separator:
        return None
    shape = tuple(int(size) for size in text.split(","))
    if min(shape) < 1 or math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"unknown encoding {encoding!r}")
    return np.dtype((np.dtype(name), shape))
