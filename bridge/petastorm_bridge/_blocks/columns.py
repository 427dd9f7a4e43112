"""Columns of a row group, and how Petastorm shows them as NumPy and pandas values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from petastorm_bridge._tables.types import find_type, presented_type
from petastorm_bridge.mds.errors import missing_extra
from petastorm_bridge.mds.ragged import stored_values
from petastorm_bridge.mds.types import is_list, number_dtype

from .pandas_metadata import noted_names, usable_metadata

# Texts that become Python's at once.
_PIECE = 1024

Column = Any
"""A NumPy array of shape ``(rows, …)`` or a ``pandas.Categorical``, in Petastorm's form, or an Arrow
array still to be shown."""


@dataclass(frozen=True)
class NullFacts:
    """Whether a column of the dataset holds nulls anywhere, in rows and in list elements."""

    rows: bool = False
    elements: bool = False

    def __bool__(self) -> bool:
        return self.rows or self.elements


@dataclass(frozen=True)
class Block:
    """The rows of one row group (or a part of one), column by column.

    Attributes:
        columns: In schema order.
        num_rows: Rows in every column.
        ends_epoch: Whether no more rows of this epoch follow.
    """

    columns: Mapping[str, Column]
    num_rows: int
    ends_epoch: bool = False


def present(array: pa.Array) -> pa.Array:
    """Return a stored Arrow array as the type Petastorm's reader shows (naive ns timestamps …)."""
    target = presented_type(array.type)
    if target == array.type:
        return array
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"A timestamp does not fit into nanoseconds ({error}). pandas and TensorFlow take the "
            "years 1678 to 2261; clip or drop such rows before converting."
        ) from error


def to_numpy(name: str, column: Column) -> Any:
    """Return one column as ``petastorm/arrow_reader_worker.py`` hands it to loaders.

    Strings are ``<U``, lists a matrix of shape ``(rows, length)``, dates objects, everything else
    what pandas makes of it; a pandas extension array where pandas has no NumPy form.

    Raises:
        RuntimeError: Lists of differing length.
        AttributeError: Some but not all lists are null.
    """
    if not isinstance(column, pa.Array):  # shown already, as an array or as categories
        return column
    if pa.types.is_list(column.type):
        return _stack_lists(name, column)
    if pa.types.is_string(column.type):
        return _texts(column)
    return _pandas_values(column)


def _texts(column: pa.Array) -> npt.NDArray[np.str_]:
    """Return texts as one array, with 'None' for a null."""
    if column.null_count:
        # Not by way of pandas, whose release 3 has nan for a null: Petastorm's text is 'None'.
        column = column.fill_null("None")
    is_ascii = _is_ascii(column)
    lengths = pc.binary_length(column) if is_ascii else pc.utf8_length(column)
    width = pc.max(lengths).as_py() or 1
    texts = np.empty(len(column), f"<U{width}")
    # In pieces, so that the strings of Python's, or the padded ones, do not all exist at once.
    for start in range(0, len(column), _PIECE):
        piece = column.slice(start, _PIECE)
        if is_ascii:  # a byte is a character
            padded = pc.ascii_rpad(piece, width, "\0").buffers()[2]
            bytes_ = np.frombuffer(padded, np.uint8, len(piece) * width)
            texts.view("<u4").reshape(-1, width)[start : start + _PIECE] = bytes_.reshape(-1, width)
        else:
            texts[start : start + _PIECE] = piece.to_numpy(zero_copy_only=False)
    return texts


def _is_ascii(column: pa.Array) -> bool:
    """Return whether texts, of which none is null, have characters of ASCII only."""
    # By hand: Arrow's `string_is_ascii` takes as long as padding the texts.
    _, offsets, data = column.buffers()
    if offsets is None or data is None or not len(column):
        return True
    bounds = np.frombuffer(offsets, np.int32)[column.offset :]
    text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[len(column)]]
    return bool(text.max(initial=0) < 0x80)


def _pandas_values(column: pa.Array) -> Any:
    type_ = column.type
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        # The moments in UTC, which is what `values` gave before pandas 4.
        column = column.view(pa.timestamp(type_.unit))
    try:
        return column.to_pandas().values
    except ModuleNotFoundError as error:  # only pandas' rules give Petastorm's values
        raise missing_extra("pandas", "streaming") from error


def is_numbers(array: pa.Array) -> bool:
    """Return whether an Arrow array holds integers or floats, and no null."""
    type_ = array.type
    return not array.null_count and (pa.types.is_integer(type_) or pa.types.is_floating(type_))


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return numbers without nulls as a read-only NumPy array over Arrow's memory."""
    return stored_values(array, number_dtype(array.type))


def equal_lists(column: pa.Array) -> npt.NDArray[Any] | None:
    """Return lists of numbers as a matrix of shape ``(rows, length)`` over Arrow's memory.

    None unless there are rows, all lists are equally long and not empty, and nothing is null.
    """
    if not pa.types.is_list(column.type) or column.null_count or not len(column):
        return None
    elements = column.flatten()
    length, odd = divmod(len(elements), len(column))
    if odd or not length or not is_numbers(elements):
        return None
    if (np.diff(numbers(column.offsets)) != length).any():
        return None
    return numbers(elements).reshape(len(column), length)


def _stack_lists(name: str, column: pa.Array) -> npt.NDArray[Any]:
    values = equal_lists(column)
    if values is not None:
        return values
    rows = len(column)
    if column.null_count:
        if column.null_count == rows:
            return np.full((rows, 1), None, object)
        lengths = pc.list_value_length(column).drop_null()
        if len(pc.unique(lengths)) == 1 and lengths[0].as_py() == 1:
            # NumPy stacks None beside lists of one element, and so does Petastorm.
            values = np.full((rows, 1), None, object)
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            values[valid, 0] = np.asarray(_pandas_values(column.flatten()), object)
            return values
        raise AttributeError(
            f"Column {name!r} holds {column.null_count} null lists among {rows} rows; a batch "
            "needs a list in every row. Fill them before converting or in a TransformSpec."
        )
    lengths = np.diff(column.offsets.to_numpy())
    if rows and (lengths != lengths[0]).any():
        shown = ", ".join(str(length) for length in lengths[:100])
        raise RuntimeError(
            f"Length of all values in column '{name}' are expected to be the same length. "
            f"Got the following set of lengths: '{shown}'"
        )
    flat = column.flatten()
    return np.asarray(_pandas_values(flat)).reshape(rows, int(lengths[0]) if rows else 0)


def harmonise(values: Any, type_: pa.DataType, nulls: NullFacts) -> Any:
    """Return ``values`` with the dtype its column has all over a dataset that holds nulls.

    Petastorm decides per row group; here a null anywhere decides for all (integers become float64,
    booleans objects), so that no dtype flips from batch to batch.
    """
    if not nulls or not isinstance(values, np.ndarray):
        return values
    row = find_type(type_)
    wanted = None if row is None else row.nulls_as
    if wanted is None or values.dtype == np.dtype(wanted) or values.dtype.kind == "O":
        return values
    if is_list(type_) and not nulls.elements:
        return values
    return values.astype(wanted)


def harmonise_null_lists(values: Any, type_: pa.DataType, nulls: NullFacts) -> Any:
    """Return lists as objects if a list of their column is null anywhere, as :func:`harmonise` does.

    A row group of nothing but null lists can only be an array of None; the others follow it.
    """
    if not nulls.rows or not isinstance(values, np.ndarray) or not is_list(type_):
        return values
    return values.astype(object, copy=False)


def to_frame(
    columns: Mapping[str, Column],
    types: Mapping[str, pa.DataType],
    nulls: Mapping[str, NullFacts],
    metadata: bytes | None = None,
) -> Any:
    """Return columns as the DataFrame that Petastorm passes to a transform or predicate.

    The pandas dtypes are those of ``pyarrow.Table.to_pandas``; strings are objects under every
    pandas release.

    Args:
        columns: The columns, in the frame's order.
        types: Their Arrow types.
        nulls: What is known of nulls in them.
        metadata: The dtypes that pandas noted when it wrote them, as JSON.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "streaming") from error

    categories = {n: c for n, c in columns.items() if isinstance(c, pd.Categorical)}
    table = pa.table({n: _as_arrow(c) for n, c in columns.items() if n not in categories})
    usable = metadata and usable_metadata(metadata)
    if usable:
        table = table.replace_schema_metadata({b"pandas": usable})
    frame = table.to_pandas()
    noted = noted_names(usable)
    for name, column in columns.items():
        if name in categories:
            frame[name] = column
        if name in noted or name in categories:
            continue
        type_ = types[name]
        series = frame[name]
        if isinstance(column, np.ndarray) and column.ndim > 2:
            cells = list(np.ascontiguousarray(column))  # Arrow knows one axis only
            frame[name] = pd.Series(cells, index=frame.index, dtype=object)
        elif pa.types.is_string(table.schema.field(name).type) and series.dtype != object:
            text = series.astype(object)
            frame[name] = text.where(text.notna(), None)
        elif nulls[name].rows and not pa.types.is_nested(type_):
            array = series.to_numpy()
            values = harmonise(array, type_, nulls[name])
            if values is not array:  # else the series may know more than its array: a time zone
                frame[name] = pd.Series(values, index=frame.index)
    return frame


def _as_arrow(column: Column) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return column
    if column.ndim == 1:
        return pa.array(np.ascontiguousarray(column))
    rows, width = column.shape[0], int(np.prod(column.shape[1:], dtype=int))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(column).reshape(-1)))


def pooled(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array without values, like ``numpy.empty``, in memory of Arrow's pool where that is possible.

    The pool keeps what is given back. What NumPy allocates in a thread goes back to the system with every block,
    and the next block costs a page fault for each 4 KiB of it.
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:  # Python's references need zeroed memory of Python's own
        return np.empty(shape, dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    # Arrow aligns what it allocates to 64 bytes, which suits every dtype.
    return np.ndarray(shape, dtype, pa.allocate_buffer(size))
