"""Vector operations on values of differing length laid out in one buffer."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .types import is_bytes

Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def unaligned_view(raw: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return an array whose item ``i`` is the ``dtype`` value that starts at byte ``i`` of ``raw``.

    The items overlap and are unaligned; indexing it with byte positions gathers values from
    anywhere in the buffer without copying the buffer.
    """
    item = np.dtype(dtype)
    count = max(len(raw) - item.itemsize + 1, 0)
    return np.ndarray((count,), item, raw, 0, (1,))


def alternating(raw: Bytes, starts: Int64, lengths: Int64 | int) -> pa.LargeBinaryArray:
    """Return a buffer as byte strings value, gap, value, gap, …, value, without copying it.

    Args:
        raw: The buffer, uint8 of shape ``(size,)``.
        starts: Where values start, ascending without overlap, shape ``(n,)``. Nobody checks it after
            this: Arrow reads wherever these say.
        lengths: Their byte lengths.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.large_binary())
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2] = starts
    bounds[1::2] = starts + lengths
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(raw)]
    return pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)


def take_values(strings: pa.LargeBinaryArray, rows: Int64) -> pa.LargeBinaryArray:
    """Return copies of values of :func:`alternating`, which are every second string of it."""
    places = np.ascontiguousarray(2 * rows, np.int64)
    # Arrow's own way from NumPy imports pandas first, which takes longer than a first batch should.
    return strings.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(places)]))


def stored_values(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values of fixed width as a read-only array over Arrow's memory, with anything in place of nulls.

    Arrow's own ways to NumPy import pandas first, which takes longer than a first batch should.
    """
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def binary_rows(values: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """Return the bytes of each row of ``values`` (first axis = rows, C-contiguous) as one string."""
    rows = np.ascontiguousarray(values)
    count = len(rows)
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return binary_from_offsets(offsets, rows.reshape(-1).view(np.uint8) if count else rows)


def binary_from_offsets(offsets: Int64, data: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """Return the byte strings ``data[offsets[i] : offsets[i + 1]]`` without copying."""
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)],
    )


def typed_strings(
    strings: pa.LargeBinaryArray, type_: pa.DataType, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """Return byte strings as an array of bytes or text, or of a type that Arrow casts text to.

    Args:
        strings: The values; null ones are empty.
        type_: What they become.
        nulls: Which of them are null, shape ``(n,)``; None for none.

    Raises:
        ValueError: They are not of the type, such as of its width, or no UTF-8.
    """
    if pa.types.is_fixed_size_binary(type_):
        return _fixed_width_binary(strings, type_, nulls)
    if nulls is not None:
        # The flags begin with the first of these strings, so the offsets have to, too.
        offsets = pa.py_buffer(np.ascontiguousarray(byte_offsets(strings)))
        buffers = [validity(nulls), offsets, strings.buffers()[2]]
        strings = pa.Array.from_buffers(strings.type, len(strings), buffers)
    return strings.cast(type_) if is_bytes(type_) else strings.cast(pa.large_string()).cast(type_)


def _fixed_width_binary(
    values: pa.LargeBinaryArray, type_: pa.DataType, nulls: npt.NDArray[np.bool_] | None
) -> pa.FixedSizeBinaryArray:
    width, count = type_.byte_width, len(values)
    valid = np.ones(count, np.bool_) if nulls is None else ~nulls
    if (np.diff(byte_offsets(values)) != np.where(valid, width, 0)).any():
        raise ValueError(f"values that are not {width} bytes long")
    data = np.zeros((count, width), np.uint8)
    data[valid] = value_bytes(values).reshape(int(valid.sum()), width)
    return pa.Array.from_buffers(type_, count, [validity(nulls), pa.py_buffer(data)])


def validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Return what tells Arrow which values are null; None for none."""
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def filled_binary(array: pa.Array, filler: bytes = b"") -> pa.LargeBinaryArray:
    """Return an array of bytes or strings of any layout, ``filler`` in place of nulls."""
    if pa.types.is_fixed_size_binary(array.type):
        array = pa.concat_arrays([array])  # Arrow 14 crashes when it casts a slice of these
    binary = array.cast(pa.large_binary())
    return pc.fill_null(binary, filler) if binary.null_count else binary


def concat_rows(parts: list[Any]) -> pa.LargeBinaryArray:
    """Return the row-wise concatenation of columns of byte strings, and of bytes that all rows have."""
    values = [pa.scalar(p, pa.large_binary()) if isinstance(p, bytes) else p for p in (*parts, b"")]
    return cast("pa.LargeBinaryArray", pc.binary_join_element_wise(*values))


def byte_offsets(array: pa.LargeBinaryArray) -> Int64:
    """Return the ``n + 1`` byte offsets of a large_binary array into its data buffer."""
    if len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64)
    return offsets[array.offset : array.offset + len(array) + 1]


def offsets_of(lengths: Int64) -> Int64:
    """Return where values of some lengths begin that lie one behind the other, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def list_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of elements of each list, 0 for a null list."""
    filled = pc.fill_null(pc.list_value_length(array), 0)
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int64)


def value_bytes(array: pa.LargeBinaryArray) -> Bytes:
    """Return the concatenated bytes of all values, uint8 of shape ``(total,)``, not copied."""
    offsets = byte_offsets(array)
    data = array.buffers()[2] if len(array) else None
    if data is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
