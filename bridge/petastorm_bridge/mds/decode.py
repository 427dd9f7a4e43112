"""The columns of a shard → Arrow arrays or NumPy views, given their logical type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._json import json_to_lists
from .encode import NDARRAY_CODES, fixed_dtype, is_list, marks_nulls_itself
from .errors import DatasetError
from .ragged import byte_offsets, gather_ragged, unaligned_view, value_bytes
from .schema import Field
from .shard import Rows, Shard, fixed_encoding

__all__ = ["column_array", "column_view", "has_nulls", "logical_type"]

_CODE_TO_DTYPE = {code: name for name, code in NDARRAY_CODES.items()}

# What a column is when nothing but its encoding is known.
_VARIABLE_TYPES = {
    "str": pa.string(),
    "str_int": pa.int64(),
    "str_float": pa.float64(),
    "str_decimal": pa.string(),
}


def logical_type(encoding: str) -> pa.DataType:
    """Return the Arrow type of a column known only by its MDS encoding.

    Encodings without a column type of their own (images, JSON, pickles …) are their raw bytes;
    nothing is ever unpickled.
    """
    family, _, config = encoding.partition(":")
    if family == "ndarray":
        dtype = config.partition(":")[0]
        return pa.list_(pa.from_numpy_dtype(np.dtype(dtype))) if dtype else pa.list_(pa.float64())
    fixed = fixed_encoding(encoding)
    if fixed is not None:
        return pa.from_numpy_dtype(fixed[0])
    return _VARIABLE_TYPES.get(family, pa.binary())


def has_nulls(shard: Shard, field: Field) -> bool:
    """Return whether this shard stores null flags for the column or its elements."""
    return field.null_column is not None or field.element_null_column is not None


def column_view(shard: Shard, field: Field, rows: Rows) -> npt.NDArray[Any] | None:
    """Return a column as NumPy values if that needs no conversion, else None.

    Numbers, booleans, dates (int32 days), timestamps and durations (datetime64, timedelta64) of
    shape ``(rows,)``, lists of numbers of one length ``(rows, length)``; columns with null flags
    are not simple. Views of the file where the shard is made of fixed-width records.
    """
    if has_nulls(shard, field) or field.name not in shard:
        return None
    kind = fixed_encoding(shard.encoding(field.name))
    if kind is None:
        return None
    type_ = field.type.value_type if is_list(field.type) else field.type
    if fixed_dtype(type_) is None or is_list(field.type) != bool(kind[1]):
        return None
    return _as_logical(shard.fixed(field.name, rows), type_)


def _as_logical(values: npt.NDArray[Any], type_: pa.DataType) -> npt.NDArray[Any]:
    if pa.types.is_boolean(type_):
        return values.view(np.bool_)
    if pa.types.is_timestamp(type_):
        return values.view(f"datetime64[{type_.unit}]")
    if pa.types.is_duration(type_):
        return values.view(f"timedelta64[{type_.unit}]")
    return values


def column_array(shard: Shard, field: Field, rows: Rows) -> pa.Array:
    """Return a column as an Arrow array of the field's type, nulls included.

    Args:
        shard: The shard.
        field: The column.
        rows: Which rows, in the order wanted.
    """
    if field.name not in shard:
        raise DatasetError(f"Shard {shard.path} has no column {field.name!r}.")
    nulls = None
    if field.null_column is not None and field.null_column in shard:
        nulls = shard.fixed(field.null_column, rows).astype(np.bool_)
    if is_list(field.type):
        return _list_array(shard, field, rows, nulls)
    dtype = fixed_dtype(field.type)
    encoding = shard.encoding(field.name)
    if dtype is not None and fixed_encoding(encoding) is not None:
        return _fixed_array(shard.fixed(field.name, rows), field.type, nulls)
    cells = shard.variable(field.name, rows)
    return _text_array(cells, field.type, nulls)


def _fixed_array(
    values: npt.NDArray[Any], type_: pa.DataType, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    values = np.ascontiguousarray(values)
    if pa.types.is_floating(type_):
        return pa.array(values, type=type_, from_pandas=False)
    if marks_nulls_itself(type_):
        nulls = values == np.iinfo(np.int64).min
    mask = nulls if nulls is not None and nulls.any() else None
    if pa.types.is_boolean(type_):
        return pa.array(values.view(np.bool_), type=type_, mask=mask)
    plain = pa.array(values, mask=mask)
    return plain if plain.type == type_ else plain.cast(type_)


def _text_array(
    cells: pa.LargeBinaryArray, type_: pa.DataType, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        _, offsets, data = cells.buffers()
        cells = pa.Array.from_buffers(
            cells.type, len(cells), [validity, offsets, data], offset=cells.offset
        )
    if pa.types.is_large_binary(type_):
        return cells
    if pa.types.is_binary(type_):
        return cells.cast(type_)
    text = cells.cast(pa.large_string())
    return text if pa.types.is_large_string(type_) else text.cast(type_)


def _list_array(
    shard: Shard, field: Field, rows: Rows, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    encoding = shard.encoding(field.name)
    if encoding == "json":
        lists = json_to_lists(shard.variable(field.name, rows), field.type)
        values, lengths = lists.flatten(), np.diff(lists.offsets.to_numpy())
    else:
        flat, lengths = _numbers(shard, field.name, encoding, rows)
        flags = None
        if field.element_null_column is not None and field.element_null_column in shard:
            name = field.element_null_column
            flags = _numbers(shard, name, shard.encoding(name), rows)[0].astype(np.bool_)
        values = _fixed_array(flat, field.type.value_type, flags)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if pa.types.is_large_list(field.type):
        bounds = pa.array(offsets)
        kind = pa.LargeListArray
    else:
        bounds = pa.array(offsets.astype(np.int32))
        kind = pa.ListArray
    array = kind.from_arrays(bounds, values)
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        array = pa.Array.from_buffers(
            array.type, len(array), [validity, bounds.buffers()[1]], children=[values]
        )
    return array if array.type == field.type else array.cast(field.type)


def _numbers(
    shard: Shard, name: str, encoding: str, rows: Rows
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the concatenated elements of an ndarray column and each row's element count."""
    if fixed_encoding(encoding) is not None:
        values = shard.fixed(name, rows)
        width = int(np.prod(values.shape[1:], dtype=int))
        return np.ascontiguousarray(values).reshape(-1), np.full(len(values), width, np.int64)
    cells = shard.variable(name, rows)
    raw, offsets = value_bytes(cells), byte_offsets(cells)
    starts = (offsets - offsets[0])[:-1].copy()
    lengths = np.diff(offsets)
    dtype = encoding.partition(":")[2]
    if not dtype:
        codes = np.unique(raw[starts])
        if len(codes) > 1:
            raise DatasetError(
                f"Column {name!r} of {shard.path} mixes value types {codes.tolist()}; "
                "write it with a fixed one, e.g. 'ndarray:float32'."
            )
        dtype = _CODE_TO_DTYPE[int(codes[0])] if len(codes) else "float64"
        starts, lengths = starts + 1, lengths - 1
    heads = raw[starts]
    header = 1 + (heads >> 2).astype(np.int64) * (np.int64(1) << (heads & 3).astype(np.int64))
    values = value_bytes(gather_ragged(raw, starts + header, lengths - header))
    item = np.dtype(dtype)
    counts = (lengths - header) // item.itemsize
    return np.frombuffer(values.tobytes() if len(values) % item.itemsize else values, item), counts


def shapes_of(shard: Shard, name: str, rows: Rows) -> npt.NDArray[np.int64] | None:
    """Return the shape of each value of a dynamic ndarray column, ``(rows, axes)``.

    None when the values differ in their number of axes.
    """
    cells = shard.variable(name, rows)
    raw, offsets = value_bytes(cells), byte_offsets(cells)
    if len(cells) == 0:
        return np.empty((0, 1), np.int64)
    starts = (offsets - offsets[0])[:-1]
    if not shard.encoding(name).partition(":")[2]:
        starts = starts + 1
    heads = np.unique(raw[starts])
    if len(heads) != 1:
        return None
    axes, width = int(heads[0]) >> 2, 1 << (int(heads[0]) & 3)
    view = unaligned_view(raw, f"<u{width}")
    return np.stack([view[starts + 1 + axis * width] for axis in range(axes)], axis=1).astype(
        np.int64
    )
