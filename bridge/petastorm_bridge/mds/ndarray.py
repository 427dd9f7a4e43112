"""The ``ndarray`` encodings of MDS: ``ndarray``, ``ndarray:<dtype>``, ``ndarray:<dtype>:<shape>``.

A value is ``[dtype: 1 byte][axes << 2 | k: 1 byte][size of each axis: 2**k bytes][elements]``, less
what the encoding's name says already (``streaming/base/format/mds/encodings.py``, ``NDArray``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .encode import NDARRAY_CODES, fixed_dtype
from .entry import fixed_encoding
from .errors import DatasetError
from .ragged import byte_offsets, gather_ragged, unaligned_view, value_bytes
from .schema import Field
from .shard import Rows, Shard

__all__ = ["first_value", "numbers", "value_shape"]

_CODE_TO_DTYPE = {code: name for name, code in NDARRAY_CODES.items()}

Int64 = npt.NDArray[np.int64]
Shapes = list[tuple[int, ...]]


def numbers(shard: Shard, field: Field, rows: Rows) -> tuple[npt.NDArray[Any], Int64, Shapes]:
    """Return the elements of an ndarray column.

    Args:
        shard: The shard.
        field: The column; its type is a list of what the arrays hold.
        rows: Which rows, in the order wanted.

    Returns:
        All elements one after the other, each row's number of elements, and the shapes that occur
        (some of them, if there are many).

    Raises:
        ValueError: The bytes are no such values.
        DatasetError: Values of another type than the field's.
    """
    encoding = shard.encoding(field.name)
    kind = fixed_encoding(encoding)
    if kind is not None:
        values = np.ascontiguousarray(shard.fixed(field.name, rows))
        width = int(np.prod(kind[1], dtype=int))
        return values.reshape(-1), np.full(len(values), width, np.int64), [kind[1]]
    cells = shard.variable(field.name, rows)
    raw, offsets = value_bytes(cells), byte_offsets(cells)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    wanted = fixed_dtype(field.type.value_type)
    assert wanted is not None
    if encoding == "ndarray":
        _check_dtype(shard, field, _bytes_at(raw, starts, lengths), wanted)
        starts, lengths = starts + 1, lengths - 1
    headers, counts, shapes = _parse_headers(raw, starts, lengths)
    if (counts * wanted.itemsize != lengths - headers).any():
        raise ValueError("arrays whose shape does not match their size")
    elements = value_bytes(gather_ragged(raw, starts + headers, lengths - headers))
    return elements.view(wanted), counts, shapes


def _bytes_at(raw: npt.NDArray[np.uint8], starts: Int64, lengths: Int64) -> npt.NDArray[np.uint8]:
    """Return the first byte of each value."""
    if (lengths < 1).any():
        raise ValueError("an empty value")
    return raw[starts]


def _check_dtype(
    shard: Shard, field: Field, codes: npt.NDArray[np.uint8], wanted: np.dtype[Any]
) -> None:
    found = [_CODE_TO_DTYPE[int(code)] for code in np.unique(codes)]
    if found and found != [wanted.name]:
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of {', '.join(found)}, the first "
            f"ones of the dataset are {wanted.name}. Write it with one type, "
            f"e.g. 'ndarray:{wanted.name}'."
        )


def _parse_headers(
    raw: npt.NDArray[np.uint8], starts: Int64, lengths: Int64
) -> tuple[Int64, Int64, Shapes]:
    """Return each value's header bytes and number of elements, and the shapes that occur."""
    heads = _bytes_at(raw, starts, lengths)
    headers = np.empty(len(starts), np.int64)
    counts = np.empty(len(starts), np.int64)
    shapes: Shapes = []
    # Few kinds of header occur in one column: usually one.
    for head in np.unique(heads).tolist():
        axes, width = head >> 2, 1 << (head & 3)
        here = heads == head
        headers[here] = size = 1 + axes * width
        if (lengths[here] < size).any():
            raise ValueError("arrays that end within their header")
        view = unaligned_view(raw, f"<u{width}")
        first = starts[here] + 1
        sizes = np.stack([view[first + axis * width] for axis in range(axes)] or [first * 0 + 1], 1)
        if (sizes > len(raw)).any():
            raise ValueError("arrays larger than their shard")
        sizes = sizes.astype(np.int64)
        counts[here] = _product(sizes, len(raw))
        if axes == 1:
            shapes += [(int(sizes.min()),), (int(sizes.max()),)]
        else:
            shapes += [tuple(row) for row in np.unique(sizes, axis=0)[:2, :axes].tolist()]
    return headers, counts, sorted(set(shapes))


def _product(sizes: Int64, most: int) -> Int64:
    """Return the product of each row, where none may exceed ``most``."""
    product = np.ones(len(sizes), np.int64)
    for axis in range(sizes.shape[1]):
        product *= sizes[:, axis]
        if (product > most).any():  # before it can overflow: both factors are file sizes at most
            raise ValueError("arrays larger than their shard")
    return product


def value_shape(shard: Shard, field: Field, shapes: Shapes) -> tuple[int, ...]:
    """Return the one shape of all values; zeros for no values at all.

    Raises:
        DatasetError: Values differ in shape.
    """
    if len(shapes) > 1:
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of differing shapes, such as "
            f"{shapes[0]} and {shapes[1]}; a batch needs one shape. Resize, pad or flatten them "
            "when writing the dataset."
        )
    return shapes[0] if shapes else (0,) * len(field.shape or (None,))


def first_value(shard: Shard, name: str) -> tuple[str, int]:
    """Return the value type and the number of axes of the first value of a dynamic column.

    Raises:
        ValueError: It is no such value.
    """
    raw = value_bytes(shard.variable(name, slice(0, 1))).tolist()
    dtype = shard.encoding(name).partition(":")[2]
    if not dtype and raw:
        dtype = _CODE_TO_DTYPE.get(raw.pop(0), "")
    if not dtype or not raw:
        raise ValueError("a value without header")
    return dtype, raw[0] >> 2
