"""The columns of a shard → Arrow arrays or NumPy views, given their logical type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._json import json_to_lists
from .errors import DatasetError, ShardCorruptedError
from .ndarray import numbers
from .ragged import binary_rows, offsets_of, typed_strings, validity
from .schema import Field
from .shard import Rows, Shard
from .types import fixed_dtype, fixed_encoding, is_bytes, is_list, marks_nulls_itself


def column_view(shard: Shard, field: Field, rows: Rows) -> npt.NDArray[Any] | None:
    """Return a column as NumPy values if that needs no conversion, else None.

    Numbers, booleans, dates (int32 days), timestamps and durations (datetime64, timedelta64) of
    shape ``(rows,)``, arrays of numbers of one shape ``(rows, *shape)``; columns with null flags
    are not simple. Views of the file where the shard is made of fixed-width records.

    Raises:
        DatasetError: Arrays of several axes that differ in shape among ``rows``.
        ShardCorruptedError: The column's bytes are not what its encoding says.
    """
    has_flags = field.null_column is not None or field.element_null_column is not None
    if has_flags or field.name not in shard:
        return None
    type_ = field.type.value_type if is_list(field.type) else field.type
    if fixed_dtype(type_) is None:
        return None
    if fixed_encoding(shard.encoding(field.name)) is not None:
        return _as_logical(shard.cells(field.name, rows), type_)
    if field.shape is None or not is_list(field.type):
        return None
    try:
        flat, counts, shapes = numbers(shard, field, rows)
    except (ValueError, IndexError, KeyError) as error:
        raise _unreadable(shard, field, error) from error
    if len(shapes) > 1 and max(map(len, shapes)) == 1:
        return None  # lists of differing length, which Arrow has
    if len(shapes) > 1:
        raise DatasetError(
            f"Column {field.name!r} of {shard.path} holds arrays of differing shapes, such as "
            f"{shapes[0]} and {shapes[1]}; a batch needs one shape. Resize, pad or flatten them "
            "when writing the dataset."
        )
    return flat.reshape(len(counts), *(shapes[0] if shapes else (0,) * len(field.shape)))


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

    Arrays of several axes become lists of their elements in row-major order. As binary type, a column of any
    encoding gives its stored bytes.

    Raises:
        DatasetError: The shard has no such column, or numbers too large for the field's type.
        ShardCorruptedError: The column's bytes are not what its encoding says.
    """
    if field.name not in shard:
        raise DatasetError(f"Shard {shard.path} has no column {field.name!r}.")
    try:
        nulls = _nulls(shard, field.null_column, rows)
        if is_list(field.type):
            return _list_array(shard, field, rows, nulls)
        cells = shard.cells(field.name, rows)
        if isinstance(cells, np.ndarray) and not is_bytes(field.type):
            return _fixed_array(cells, field.type, nulls)
        strings = binary_rows(cells) if isinstance(cells, np.ndarray) else cells
        return typed_strings(strings, field.type, nulls)
    except (ValueError, IndexError, KeyError) as error:  # pyarrow's errors are ValueErrors
        raise _unreadable(shard, field, error) from error


def _nulls(shard: Shard, null_column: str | None, rows: Rows) -> npt.NDArray[np.bool_] | None:
    """Return which rows are null; None if none is, as in shards without flags."""
    if null_column is None or null_column not in shard:
        return None
    flags = shard.cells(null_column, rows).astype(np.bool_)
    return flags if flags.any() else None


def _unreadable(shard: Shard, field: Field, error: Exception) -> DatasetError:
    if field.encoding in ("str_int", "str_float"):
        return DatasetError(
            f"Column {field.name!r} of {shard.path} has values that do not fit into {field.type} "
            f"({error}). Store it as {field.type} or as str."
        )
    asked = f"a column {field.name!r} of type {field.type}"
    return ShardCorruptedError.because(shard.path, asked, f"{error}")


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


def _list_array(
    shard: Shard, field: Field, rows: Rows, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    type_ = field.type
    if shard.encoding(field.name) == "json":
        values, counts = json_to_lists(shard.cells(field.name, rows), type_.value_type)
    else:
        flat, counts, _ = numbers(shard, field, rows)
        flags = None
        if field.element_null_column is not None and field.element_null_column in shard:
            companion = Field(field.element_null_column, pa.list_(pa.uint8()))
            flag_values, flag_counts, _ = numbers(shard, companion, rows)
            if (flag_counts != counts).any():
                raise ValueError(f"null flags in {companion.name!r} for other elements")
            flags = flag_values.astype(np.bool_)
        values = _fixed_array(flat, type_.value_type, flags)
    # What stands for a null array of a declared shape has elements.
    if nulls is not None and field.shape is None and counts[nulls].any():
        raise ValueError("elements in null lists")
    offsets = offsets_of(counts)
    if not pa.types.is_large_list(type_):
        offsets = offsets.astype(np.int32)
    buffers = [validity(nulls), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(type_, len(counts), buffers, children=[values])
