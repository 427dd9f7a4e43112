"""The ``ndarray`` encodings of MDS: ``ndarray``, ``ndarray:<dtype>``, ``ndarray:<dtype>:<shape>``.

A value is ``[dtype: 1 byte][axes << 2 | k: 1 byte][size of each axis: 2**k bytes][elements]``, less
what the encoding's name says already (``streaming/base/format/mds/encodings.py``, ``NDArray``).
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import DatasetError, ShardCorruptedError
from .ragged import (
    Bytes,
    Int64,
    alternating,
    byte_offsets,
    stored_values,
    take_values,
    value_bytes,
)
from .schema import Field
from .shard import Rows, Shard
from .types import NDARRAY_CODES, fixed_dtype

_NAMES = {code: name for name, code in NDARRAY_CODES.items()}

Shapes = list[tuple[int, ...]]


def numbers(shard: Shard, field: Field, rows: Rows) -> tuple[npt.NDArray[Any], Int64, Shapes]:
    """Return the elements of an ndarray column.

    Returns:
        All elements one after the other, each row's number of elements, and the shapes that occur.

    Raises:
        ValueError: The bytes are no such values.
        DatasetError: Values of another type than the field's.
    """
    cells = shard.cells(field.name, rows)
    if isinstance(cells, np.ndarray):
        shape = cells.shape[1:]
        return cells.reshape(-1), np.full(len(cells), math.prod(shape), np.int64), [shape]
    raw, offsets = value_bytes(cells), byte_offsets(cells)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    wanted = fixed_dtype(field.type.value_type)
    assert wanted is not None
    headers, which = parse_headers(raw, starts, lengths, shard.encoding(field.name))
    names = dict.fromkeys(header.dtype.name for header in headers)
    if names.keys() - {wanted.name}:
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of {', '.join(names)}, "
            f"the first ones of the dataset are {wanted.name}. Write it with one type, "
            f"e.g. 'ndarray:{wanted.name}'."
        )
    counts = np.array([math.prod(header.shape) for header in headers], np.int64)[which]
    rest = lengths - np.array([header.width for header in headers], np.int64)[which]
    if (counts * wanted.itemsize != rest).any():
        raise ValueError("arrays whose shape does not match their size")
    arrays = alternating(raw, starts + lengths - rest, rest)
    elements = value_bytes(take_values(arrays, np.arange(len(starts))))
    return elements.view(wanted), counts, sorted({header.shape for header in headers})


class Header(NamedTuple):
    """What stands before the elements of an array: their type, its shape, and how many bytes that takes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    width: int


def parse_headers(
    raw: Bytes, starts: Int64, lengths: Int64, encoding: str
) -> tuple[list[Header], npt.NDArray[np.int32]]:
    """Return the headers that occur among some values, and for each value which of them it has.

    Args:
        raw: Holds the values, uint8 of shape ``(size,)``.
        starts: Where each begins, ascending, shape ``(n,)``.
        lengths: Its bytes.
        encoding: ``ndarray`` or ``ndarray:<dtype>``.

    Raises:
        ValueError: The bytes are no such values.
    """
    before = int(encoding == "ndarray")  # a byte that says the type
    if (lengths <= before).any():
        raise ValueError("a value without header")
    heads = raw[starts + before]
    widths = before + 1 + ((heads >> 2).astype(np.int64) << (heads & 3))
    if (lengths < widths).any():
        raise ValueError("arrays that end within their header")
    texts = take_values(alternating(raw, starts, widths), np.arange(len(starts)))
    # Hardly more than one occurs in a column, or the lengths of its lists.
    found = texts.dictionary_encode()
    headers = [_header(text, encoding) for text in found.dictionary.to_pylist()]
    if any(max(*header.shape, 0, math.prod(header.shape)) > len(raw) for header in headers):
        raise ValueError("arrays larger than their shard")
    return headers, stored_values(found.indices, np.dtype(np.int32))


def _header(text: bytes, encoding: str) -> Header:
    name, rest = encoding.partition(":")[2], text
    if not name:
        name, rest = _NAMES.get(text[0], ""), text[1:]
        if not name:
            raise ValueError(f"an unknown value type {text[0]}")
    shape = struct.unpack_from(f"<{rest[0] >> 2}{'BHIQ'[rest[0] & 3]}", rest, 1)
    return Header(np.dtype(name), shape, len(text))


def first_header(shard: Shard, name: str) -> Header:
    """Return the header of the first value of a dynamic column; ShardCorruptedError if it has none."""
    raw = value_bytes(shard.cells(name, slice(0, 1)))
    start, length = np.zeros(1, np.int64), np.array([len(raw)])
    try:
        return parse_headers(raw, start, length, shard.encoding(name))[0][0]
    except ValueError as error:
        asked = f"arrays in column {name!r}"
        raise ShardCorruptedError.because(shard.path, asked, f"{error}") from error
