"""Arrays out of columns of ``.npy`` and ``.npz`` files, a whole column at a time.

The values of a column mostly share one header, which is parsed once here; where nothing is unusual the
result is one strided copy.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.codecs._array_files import Header, npy_header, unpacked_npy

_USUAL_LENGTH = 128  # of a header, which NumPy fills up for the numbers behind it


class _Headers:
    """Parses headers, each once."""

    def __init__(self) -> None:
        self._usual: dict[bytes, Header] = {}

    def array(self, data: memoryview, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the array of the file between two places.

        Raises:
            ValueError: There is none.
        """
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
    """Return the arrays ``arr`` of a binary column, without nulls, of ``.npz`` files.

    Args:
        column: The files.
        field: What is declared of the values (:func:`petastorm_bridge.codecs._limits.check_size`).

    Raises:
        ValueError: A file holds no such array, or a too large one.
    """
    offsets, data = _buffers(column)
    headers = _Headers()
    arrays = []
    for start, stop in itertools.pairwise(offsets.tolist()):
        npy = unpacked_npy(data[start:stop], field)
        arrays.append(headers.array(memoryview(npy), 0, len(npy)))
    return arrays
