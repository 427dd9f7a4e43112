"""Columns of Parquet files as Petastorm shows them, and what is wrong with a file that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._blocks.columns import (
    Column,
    equal_lists,
    is_numbers,
    numbers,
    pooled,
    present,
)
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.mds.types import is_list

_Result = TypeVar("_Result")


class DamagedFileError(DatasetError, pa.ArrowInvalid):  # type: ignore[misc] # pyarrow is untyped
    """A file is no Parquet file, or a damaged one; Petastorm raises ``ArrowInvalid``."""


def shown(array: pa.Array) -> Column:
    """Return a stored column in Petastorm's form; plain numbers without nulls as NumPy arrays."""
    type_ = array.type
    if is_numbers(array):
        return numbers(array)
    if pa.types.is_floating(type_) or (not array.null_count and pa.types.is_boolean(type_)):
        return array.to_numpy(zero_copy_only=False)
    # Timestamps keep the unit and zone of the file; pandas shows them as Petastorm does.
    element = type_.value_type if is_list(type_) else type_
    if pa.types.is_timestamp(element) and not pa.types.is_large_list(type_):
        return array
    return present(array)


def rows_of(column: Column, rows: Rows) -> Column:
    """Return some rows of a column that :func:`shown` gave."""
    if isinstance(rows, slice):
        return column[rows]
    if isinstance(column, np.ndarray):
        return _gathered(column, rows)
    values = equal_lists(column)
    if values is None:
        return column.take(pa.array(rows))
    # Arrow takes lists element by element; rows of a matrix are copied as they are.
    matrix = _gathered(values, rows)
    offsets = np.arange(len(matrix) + 1, dtype=np.int32) * np.int32(matrix.shape[1])
    elements = pa.array(matrix.reshape(-1), column.type.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, column.type)


def _gathered(column: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the rows at some positions of an array of plain values, in fresh memory."""
    out = pooled((len(rows), *column.shape[1:]), column.dtype)
    # The rows are within the group; without a check of each the copy is faster.
    return column.take(rows, axis=0, mode="clip", out=out)


def naming(path: str, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` does; errors name the file."""
    try:
        return read()
    except DatasetError:
        raise
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"{masked(path)} is missing: it was deleted after the reader was opened."
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's, which name the file
        message = masked(str(error), path)
        if "Unrecognized type" in message:
            raise DamagedFileError(
                f"{masked(path)} holds a type that pyarrow {pa.__version__} does not know ({message}): a "
                "newer Arrow wrote it. Install a newer pyarrow."
            ) from error
        raise DamagedFileError(
            f"{masked(path)} cannot be read as Parquet. It is damaged, still being written, or another kind "
            f"of file: {message}"
        ) from error
