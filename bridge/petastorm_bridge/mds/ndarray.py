"""The ``ndarray`` encodings of MDS: ``ndarray``, ``ndarray:<dtype>``, ``ndarray:<dtype>:<shape>``.

A value is ``[dtype: 1 byte][axes << 2 | k: 1 byte][size of each axis: 2**k bytes][elements]``, less
what the encoding's name says already (``streaming/base/format/mds/encodings.py``, ``NDArray``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DatasetError
from .ragged import (
    Int64,
    alternating,
    byte_offsets,
    offsets_of,
    take_values,
    unaligned_view,
    value_bytes,
)
from .schema import Field
from .shard import Rows, Shard
from .types import NDARRAY_CODES, fixed_dtype, fixed_encoding

CODE_TO_DTYPE = {code: name for name, code in NDARRAY_CODES.items()}

Shapes = list[tuple[int, ...]]


def numbers(shard: Shard, field: Field, rows: Rows) -> tuple[npt.NDArray[Any], Int64, Shapes]:
    """Return the elements of an ndarray column.

    Returns:
        All elements one after the other, each row's number of elements, and the shapes that occur
        (some of them, if there are many).

    Raises:
        ValueError: The bytes are no such values.
        DatasetError: Values of another type than the field's.
    """
    encoding = shard.encoding(field.name)
    dtype = fixed_encoding(encoding)
    if dtype is not None:
        values = np.ascontiguousarray(shard.fixed(field.name, rows))
        count = dtype.itemsize // dtype.base.itemsize
        return values.reshape(-1), np.full(len(values), count, np.int64), [dtype.shape]
    cells = shard.variable(field.name, rows)
    raw, offsets = value_bytes(cells), byte_offsets(cells)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    wanted = fixed_dtype(field.type.value_type)
    assert wanted is not None
    headers = parse_headers(raw, starts, lengths, encoding)
    if headers.dtypes not in (None, [], [wanted.name]):
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of {', '.join(headers.dtypes or ())}, "
            f"the first ones of the dataset are {wanted.name}. Write it with one type, "
            f"e.g. 'ndarray:{wanted.name}'."
        )
    rest = lengths - headers.widths
    if (headers.counts * wanted.itemsize != rest).any():
        raise ValueError("arrays whose shape does not match their size")
    arrays = alternating(raw, starts + headers.widths, rest)
    elements = value_bytes(take_values(arrays, np.arange(len(starts))))
    return elements.view(wanted), headers.counts, headers.shapes()


@dataclass(frozen=True, eq=False)
class ArrayHeaders:
    """What the headers of some values say.

    Attributes:
        codes: Value type of each in the numbers of MDS, uint8 of shape ``(n,)``; None where the
            encoding's name says the type.
        widths: Bytes that each header takes, shape ``(n,)``.
        axes: Number of axes of each array, shape ``(n,)``.
        begins: Where the sizes of each array's axes begin in ``sizes``, and where the last ones end, shape ``(n + 1,)``.
        sizes: Sizes of the axes of all arrays, one array after the other.
        counts: Number of elements of each array, shape ``(n,)``.
    """

    codes: npt.NDArray[np.uint8] | None
    widths: Int64
    axes: Int64
    begins: Int64
    sizes: Int64
    counts: Int64

    @property
    def dtypes(self) -> list[str] | None:
        """Names of the value types that occur; None where the encoding's name says the type."""
        if self.codes is None:
            return None
        return [CODE_TO_DTYPE[int(code)] for code in np.unique(self.codes)]

    def shape(self, row: int) -> tuple[int, ...]:
        """Return the shape of one array."""
        return tuple(self.sizes[self.begins[row] : self.begins[row + 1]].tolist())

    def shapes(self) -> Shapes:
        """Return the shapes that occur (some of them, if there are many)."""
        shapes: Shapes = []
        for axes in np.unique(self.axes).tolist():
            begins = self.begins[:-1][self.axes == axes]
            sizes = self.sizes[begins[:, np.newaxis] + np.arange(axes)]
            if axes == 0:
                shapes.append(())
            elif axes == 1:
                shapes += [(int(sizes.min()),), (int(sizes.max()),)]
            else:
                shapes += [tuple(row) for row in np.unique(sizes, axis=0)[:2].tolist()]
        return sorted(set(shapes))


def parse_headers(
    raw: npt.NDArray[np.uint8], starts: Int64, lengths: Int64, encoding: str
) -> ArrayHeaders:
    """Return what the headers of some values of an encoding say.

    Args:
        raw: Holds the values, uint8 of shape ``(size,)``.
        starts: Where each begins, shape ``(n,)``.
        lengths: Its bytes.
        encoding: ``ndarray`` or ``ndarray:<dtype>``.

    Raises:
        ValueError: The bytes are no such values.
    """
    before = int(encoding == "ndarray")  # a byte that says the type
    if (lengths <= before).any():
        raise ValueError("a value without header")
    codes = raw[starts] if before else None
    position = starts + before
    heads = raw[position]
    axes = (heads >> 2).astype(np.int64)
    widths = before + 1 + axes * (1 << (heads & 3))
    if (lengths < widths).any():
        raise ValueError("arrays that end within their header")
    begins = offsets_of(axes)
    sizes, counts = np.empty(begins[-1], np.int64), np.ones(len(starts), np.int64)
    # Few kinds of header occur in one column: usually one.
    for head in np.unique(heads).tolist():
        here, width = np.flatnonzero(heads == head), 1 << (head & 3)
        view = unaligned_view(raw, f"<u{width}")
        for axis in range(head >> 2):
            extents = view[position[here] + 1 + axis * width]
            if (extents > len(raw)).any():
                raise ValueError("arrays larger than their shard")
            sizes[begins[here] + axis] = extents
            counts[here] *= extents.astype(np.int64)
            # Before it can overflow: both factors are file sizes at most.
            if (counts[here] > len(raw)).any():
                raise ValueError("arrays larger than their shard")
    return ArrayHeaders(codes, widths, axes, begins, sizes, counts)


def value_shape(shard: Shard, field: Field, shapes: Shapes) -> tuple[int, ...]:
    """Return the one shape of all values; zeros for no values at all. DatasetError if values differ in shape."""
    if len(shapes) > 1:
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of differing shapes, such as "
            f"{shapes[0]} and {shapes[1]}; a batch needs one shape. Resize, pad or flatten them "
            "when writing the dataset."
        )
    return shapes[0] if shapes else (0,) * len(field.shape or (None,))


def first_value(shard: Shard, name: str) -> tuple[str, int]:
    """Return the value type and axes of the first value of a dynamic column; ValueError if it is none."""
    raw = value_bytes(shard.variable(name, slice(0, 1)))
    encoding = shard.encoding(name)
    headers = parse_headers(raw, np.zeros(1, np.int64), np.array([len(raw)]), encoding)
    try:
        dtypes = headers.dtypes or [encoding.partition(":")[2]]
    except KeyError as error:
        raise ValueError(f"an unknown value type {error}") from error
    return dtypes[0], int(headers.axes[0])
