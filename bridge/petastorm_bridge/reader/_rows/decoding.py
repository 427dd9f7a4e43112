"""From the stored columns of a row group to the values that Petastorm's row reader yields.

What a codec's ``decode`` gives for one value is the measure (``petastorm/utils.py``, ``decode_row``);
here whole columns are decoded where that gives the same. The array files of a column mostly share one
header, which is parsed once; where nothing is unusual the result is one strided copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge import codecs
from petastorm_bridge._blocks.columns import Column, present
from petastorm_bridge.codecs._array_files import Header, npy_header, unpacked_npy
from petastorm_bridge.errors import DecodeFieldError
from petastorm_bridge.unischema import UnischemaField

Values = npt.NDArray[Any] | list[Any]
"""The values of a field, one per row: an array whose first axis is the rows, or a list."""

_USUAL_LENGTH = 128  # of a header, which NumPy fills up for the numbers behind it


def decode_column(
    field: UnischemaField, column: Column, place: Callable[[int], str] | None = None
) -> Values:
    """Return the values of a field in the rows of a stored column.

    Args:
        field: Name, type and codec.
        column: As a source loads it: a NumPy array, an Arrow array or a ``pandas.Categorical``.
        place: Says for messages where the n-th row of the column is.

    Returns:
        An array where each row's value is an element, or a subarray, of it and none is null; else
        a list.

    Raises:
        DecodeFieldError: A value does not fit the field (the cause says why).
    """
    try:
        return _decoded(field, column)
    except Exception as error:  # noqa: BLE001 – codecs of users raise anything
        row, reason = _first_failure(field, column, error)
        where = f" {place(row)}" if place is not None and row is not None else ""
        text = str(reason) or type(reason).__name__
        raise DecodeFieldError(f'Decoding field "{field.name}" failed{where}: {text}') from reason


def _first_failure(
    field: UnischemaField, column: Column, error: Exception
) -> tuple[int | None, Exception]:
    """Return the first row that cannot be decoded by itself, and its error."""
    for row in range(len(column)):
        try:
            _decoded(field, column[row : row + 1])
        except Exception as reason:  # noqa: BLE001 – as above
            return row, reason
    return None, error


def _decoded(field: UnischemaField, column: Column) -> Values:
    if hasattr(column, "categories"):  # the values of directories, of which there are few
        names = pa.array(column.categories.to_numpy())
        if field.numpy_dtype is np.bool_ and pa.types.is_string(names.type):
            names = names.cast(pa.bool_())  # NumPy would take the text "false" for True
        values = _decoded(field, names)
        return [values[code] for code in column.codes]
    codec = type(field.codec)
    if field.codec is None or codec is codecs.ScalarCodec:
        return _scalars(field, column)
    if not isinstance(column, pa.Array) or not pa.types.is_binary(column.type):
        return _one_by_one(field, column)
    if codec is codecs.NdarrayCodec:
        return _with_nulls(column, arrays_of_npy)
    if codec is codecs.CompressedNdarrayCodec:
        return _with_nulls(column, partial(arrays_of_npz, field=field))
    return _one_by_one(field, column)


def _with_nulls(column: pa.Array, decode: Any) -> Values:
    """Return what ``decode`` makes of a column's values, with None where it has nulls."""
    if not column.null_count:
        return decode(column)  # type: ignore[no-any-return]
    values = iter(decode(column.drop_null()))
    return [next(values) if valid else None for valid in column.is_valid().to_pylist()]


def _one_by_one(field: UnischemaField, column: Column) -> Values:
    decode = field.codec.decode
    return [None if value is None else decode(field, value) for value in as_values(column)]


def as_values(column: Column) -> list[Any]:
    """Return a stored column as the Python values that pandas' records would hold."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    if pa.types.is_timestamp(column.type) or pa.types.is_list(column.type):
        return list(present(column).to_pandas())
    return column.to_pylist()  # type: ignore[no-any-return]


def _scalars(field: UnischemaField, column: Column) -> Values:
    dtype = field.numpy_dtype
    is_castable = isinstance(dtype, type) and issubclass(dtype, (np.generic, Decimal))
    if field.codec is None and not is_castable:
        return as_values(column)
    if isinstance(column, pa.Array) and pa.types.is_list(column.type):
        # Of a plain store; NumPy's types, called, would make scalars of lists of one element.
        lists = as_values(column)
        return [None if values is None else values.astype(dtype) for values in lists]
    # Moments have a null of their own.
    if isinstance(column, pa.Array) and not pa.types.is_timestamp(column.type):
        return _with_nulls(column, partial(_cast, dtype=dtype))
    return _cast(column, dtype)


def _cast(column: Column, dtype: Any) -> Values:
    """Return what calling a type gives for each value of a column; nulls are moments only."""
    array = _as_array(column) if isinstance(column, pa.Array) else column
    if array is not None and array.ndim == 1 and _fits(array, dtype):
        return array.astype(dtype)
    return [dtype(value) for value in as_values(column)]


def _as_array(column: pa.Array) -> npt.NDArray[Any] | None:
    """Return numbers, moments and days as an array without nulls."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        # Petastorm makes these of pandas' moments, which NumPy takes for microseconds.
        moments: npt.NDArray[Any] = present(column).to_numpy(zero_copy_only=False)
        return moments.astype("datetime64[us]")
    if pa.types.is_date(type_):
        return column.cast(pa.date32()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    return None


def _fits(array: npt.NDArray[Any], dtype: Any) -> bool:
    """Return whether casting an array gives what calling the type gives for each of its values."""
    if not isinstance(dtype, type) or not issubclass(dtype, np.generic):
        return False
    to, kind = np.dtype(dtype), array.dtype.kind
    if kind == "M" or to.kind not in "biuf":
        return kind == "M" and dtype is np.datetime64
    if kind == "f" or to.kind == "b":
        return to.kind == kind
    if to.kind == "f":  # a narrow one is rounded once here, and twice from a Python integer
        return to.itemsize == 8 or not len(array) or int(np.abs(array).max()) <= 2**53
    if kind == "b" or not len(array):
        return True
    info = np.iinfo(to.name)
    return bool(info.min <= array.min() and array.max() <= info.max)


class _Headers:
    """Parses headers, each once."""

    def __init__(self) -> None:
        self._usual: dict[bytes, Header] = {}

    def array(self, data: memoryview, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the array of the file between two places; ValueError if there is none."""
        key = bytes(data[start : start + _USUAL_LENGTH])
        header = self._usual.get(key)
        if header is None or _USUAL_LENGTH + header.nbytes != stop - start:
            header = npy_header(data[start:stop])
            if header.length == _USUAL_LENGTH:
                self._usual[key] = header
        return header.array(data, start)


def arrays_of_npy(column: pa.Array) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    """Return the arrays of a binary column without nulls.

    Returns:
        One array of shape ``(rows, …)`` where all values have one dtype and shape, else a list. It
        is writable and refers to nothing else.

    Raises:
        ValueError: A value is no array.
    """
    rows = len(column)
    if not rows:
        return []
    offsets, data = _buffers(column)
    first = npy_header(data[offsets[0] : offsets[1]])
    size = first.length + first.nbytes
    # Single values would come out of a stacked array as scalars, not as arrays without axes.
    if first.shape and first.nbytes and (np.diff(offsets) == size).all():
        files = np.frombuffer(data[offsets[0] : offsets[-1]], np.uint8).reshape(rows, size)
        if (files[:, : first.length] == files[0, : first.length]).all():
            return _stacked(files[:, first.length :], first)
    headers = _Headers()
    return [headers.array(data, *bounds) for bounds in itertools.pairwise(offsets.tolist())]


def _buffers(column: pa.Array) -> tuple[npt.NDArray[np.int32], memoryview]:
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return bounds, memoryview(b"" if data is None else data).cast("B")


def _stacked(values: npt.NDArray[np.uint8], header: Header) -> npt.NDArray[Any]:
    """Return files of one header as one array."""
    rows = len(values)
    shape = header.shape[::-1] if header.is_fortran else header.shape
    stacked: npt.NDArray[Any] = np.empty((rows, *shape), header.dtype)
    stacked.reshape(rows, -1).view(np.uint8)[...] = values
    return stacked.transpose(0, *range(len(shape), 0, -1)) if header.is_fortran else stacked


def arrays_of_npz(column: pa.Array, field: Any) -> list[npt.NDArray[Any]]:
    """Return the arrays ``arr`` of a binary column, without nulls, of ``.npz`` files, or raise ValueError."""
    offsets, data = _buffers(column)
    headers = _Headers()
    arrays = []
    for start, stop in itertools.pairwise(offsets.tolist()):
        npy = unpacked_npy(data[start:stop], field)
        arrays.append(headers.array(memoryview(npy), 0, len(npy)))
    return arrays
