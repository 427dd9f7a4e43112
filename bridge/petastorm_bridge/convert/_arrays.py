"""Arrays as Petastorm stores them, ``.npy`` and ``.npz`` files → values of MDS' ``ndarray`` encodings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.codecs._array_files import load_npy, load_npz, npy_header
from petastorm_bridge.mds.declared import dynamic_header
from petastorm_bridge.mds.encodings import MAX_ELEMENTS, NDARRAY_CODES
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ragged import binary_rows, byte_offsets, value_bytes
from petastorm_bridge.unischema import UnischemaField


def array_encoding(dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> str | None:
    """Return the MDS encoding of arrays of a dtype and shape; None if MDS has none for them.

    Args:
        dtype: Of the elements; booleans are stored as bytes.
        shape: None, and 0 as in Petastorm, stand for any length.
    """
    name = "uint8" if dtype == np.bool_ else dtype.name
    if name not in NDARRAY_CODES or math.prod(size or 1 for size in shape) > MAX_ELEMENTS:
        return None
    if not shape or not all(shape):
        return f"ndarray:{name}"
    return f"ndarray:{name}:{','.join(map(str, shape))}"


@dataclass(frozen=True)
class ArrayEncoder:
    """Turns a column of ``.npy`` or ``.npz`` files into the values that MDS stores.

    Where all files of a batch are of one shape, which fixed shapes are, no array is made of any.

    Attributes:
        name: The column, for messages.
        dtype: Of the elements.
        shape: None, and 0, stand for any length.
        is_archive: Whether the files are ``.npz``.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    is_archive: bool

    def __call__(self, array: pa.Array) -> pa.LargeBinaryArray:
        """Return the encoded values; nulls stay null.

        Raises:
            DatasetError: A value is no such array, or of another dtype or shape.
        """
        cells = array.cast(pa.large_binary())
        missing = np.asarray(cells.is_null().to_numpy(zero_copy_only=False))
        present = cells.drop_null() if cells.null_count else cells
        values = None if self.is_archive else self._of_one_shape(present)
        if values is None:
            values = pa.array([self._value(cell.as_py()) for cell in present], pa.large_binary())
        if not cells.null_count:
            return values
        places = np.maximum(np.cumsum(~missing) - 1, 0)
        return values.take(pa.array(places, mask=missing))

    @property
    def _has_fixed_shape(self) -> bool:
        return bool(self.shape) and all(self.shape)

    def _of_one_shape(self, cells: pa.LargeBinaryArray) -> pa.LargeBinaryArray | None:
        """Return the values of files with one and the same header; None if they differ in it."""
        lengths = np.diff(byte_offsets(cells))
        if not len(lengths) or (lengths != lengths[0]).any() or not lengths[0]:
            return None
        files = value_bytes(cells).reshape(len(lengths), -1)
        try:
            header = npy_header(memoryview(files[0]))
        except ValueError:
            return None
        width = header.length
        if (files[:, :width] != files[0, :width]).any():
            return None
        if header.is_fortran or header.dtype != self.dtype:
            return None  # put in order, or refused, one by one
        self._check_shape(header.shape)
        if files.shape[1] - width != header.nbytes:
            return None
        content = files[:, width:]
        if not self._has_fixed_shape:
            start = np.frombuffer(dynamic_header(header.shape), np.uint8)
            content = np.concatenate([np.tile(start, (len(files), 1)), content], axis=1)
        return binary_rows(content)

    def _value(self, file: bytes) -> bytes:
        value = _loaded(file, UnischemaField(self.name, self.dtype, self.shape), self.is_archive)
        if value.dtype != self.dtype:
            raise DatasetError(
                f"Column {self.name!r} holds an array of {value.dtype}; its schema says {self.dtype}."
            )
        self._check_shape(value.shape)
        content = np.ascontiguousarray(value).tobytes()
        return content if self._has_fixed_shape else dynamic_header(value.shape) + content

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.shape
        if len(shape) != len(wanted) or any(
            w and w != s for s, w in zip(shape, wanted, strict=True)
        ):
            raise DatasetError(
                f"Column {self.name!r} holds an array of shape {shape}; its schema says {wanted}."
            )


@dataclass(frozen=True)
class TextsEncoder:
    """Turns a column of files with one-dimensional arrays of texts or bytes into lists, stored as JSON.

    Attributes:
        name: The column, for messages.
        type: Arrow type of the lists.
        is_archive: Whether the files are ``.npz``.
    """

    name: str
    type: pa.DataType
    is_archive: bool

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the lists; nulls stay null.

        Raises:
            DatasetError: A value is no array of one axis.
        """
        lists = [None if file is None else self._list(file) for file in array.to_pylist()]
        return pa.array(lists, self.type)

    def _list(self, file: bytes) -> list[Any]:
        value = _loaded(file, UnischemaField(self.name, np.str_, (None,)), self.is_archive)
        if value.ndim != 1 or value.dtype.kind not in "US":
            raise DatasetError(
                f"Column {self.name!r} holds an array of {value.dtype} of shape {value.shape}; its schema "
                "says texts or bytes along one axis."
            )
        return list(value.tolist())


def _loaded(file: bytes, field: UnischemaField, is_archive: bool) -> npt.NDArray[Any]:
    try:
        return load_npz(file, field) if is_archive else load_npy(file)
    except ValueError as error:
        raise DatasetError(
            f"Column {field.name!r} holds a value that is no array: {error}."
        ) from error
