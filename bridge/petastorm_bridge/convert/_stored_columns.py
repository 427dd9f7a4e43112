"""What becomes of the columns of a dataset in Petastorm's own format, and how array files become MDS' arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._tables.types import find_type
from petastorm_bridge.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec
from petastorm_bridge.codecs._array_files import load_npy, load_npz, npy_header
from petastorm_bridge.mds.encode import array_headers
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ragged import binary_rows, byte_offsets, value_bytes
from petastorm_bridge.mds.schema import Field
from petastorm_bridge.mds.types import (
    MAX_ELEMENTS,
    NDARRAY_CODES,
    is_bytes,
    is_list,
    is_storable,
    plain_type,
)
from petastorm_bridge.unischema import Unischema, UnischemaField

from ._columns import ColumnPlan, Encoder, UnsupportedColumnsError, choose

_Load = Callable[[bytes], npt.NDArray[Any]]
_AS_BYTES = methodcaller("cast", pa.large_binary())
_IMAGES = {"png": "png", "jpeg": "jpeg", "jpg": "jpeg"}


@dataclass(frozen=True)
class _Column:
    """How one column is written: as which type, what its values are if they are encoded, and the way there."""

    type: pa.DataType
    described: Field | None = None
    encoder: Encoder | None = None


def plan_stored_columns(
    source: ParquetSource, schema: Unischema, wanted: Sequence[str] | None
) -> ColumnPlan:
    """Return the plan for a dataset of Petastorm's own.

    Compressed images are stored as they are, arrays without the headers of their files, other values as
    the types that the schema says.

    Raises:
        UnsupportedColumnsError: MDS cannot hold some of them.
        ValueError: There is no column of a name.
        DatasetError: The files disagree about one, or lack it.
    """
    names = choose(list(schema.fields), wanted)
    types = source.types_of(names)
    columns = {name: _column(schema.fields[name], types[name]) for name in names}
    refused = [name for name, column in columns.items() if column is None]
    if refused:
        named = ", ".join(
            f"{name!r} ({schema.fields[name].codec}, {types[name]})" for name in refused
        )
        rest = ",".join(name for name in names if name not in refused)
        way = f"Leave them out: --columns {rest}" if rest else "There are no others."
        raise UnsupportedColumnsError(f"MDS has no place for these columns: {named}. {way}")
    storable = {name: column for name, column in columns.items() if column is not None}
    return ColumnPlan(
        types,
        pa.schema([(name, column.type) for name, column in storable.items()]),
        {
            name: column.described
            for name, column in storable.items()
            if column.described is not None
        },
        {name: column.encoder for name, column in storable.items() if column.encoder is not None},
        "Petastorm",
    )


def _column(field: UnischemaField, stored: pa.DataType) -> _Column | None:
    """Return how a field is written; None if MDS has no place for it."""
    codec = field.codec
    if isinstance(codec, CompressedImageCodec):
        return _image(field)
    if isinstance(codec, NdarrayCodec):
        return _array(field, load_npy)
    if isinstance(codec, CompressedNdarrayCodec):
        return _array(field, functools.partial(load_npz, field=field))
    type_ = _value_type(field, stored)
    if type_ is None or not is_storable(type_) or find_type(type_) is None:
        return None
    return _Column(type_, encoder=None if type_ == stored else methodcaller("cast", type_))


def _value_type(field: UnischemaField, stored: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type of what Petastorm's reader would show of plain values."""
    has_axis = bool(field.shape)
    if has_axis and len(field.shape) > 1:
        return None
    plain = plain_type(stored)
    inner = plain.value_type if has_axis and is_list(plain) else stored
    element = _element_type(field.numpy_dtype, inner)
    return pa.list_(element) if has_axis and element is not None else element


def _element_type(dtype: Any, stored: pa.DataType) -> pa.DataType | None:
    if dtype in (str, np.str_):
        return pa.string()
    if dtype in (bytes, np.bytes_):
        return stored if is_bytes(stored) else pa.binary()
    if dtype is None or dtype is Decimal:
        return stored
    kind = np.dtype(dtype).kind
    if kind in "iufb":
        return pa.from_numpy_dtype(np.dtype(dtype))
    return stored if kind == "M" or pa.types.is_temporal(stored) else None


def _image(field: UnischemaField) -> _Column:
    encoding = _IMAGES.get(field.codec.image_codec)
    if encoding == "png" and np.dtype(field.numpy_dtype).itemsize > 1 and len(field.shape) > 2:
        # Pillow, and with it streaming, cuts these to eight bits.
        column = _array(field, functools.partial(field.codec.decode, field))
        assert column is not None
        return column
    if encoding is None:  # a format that streaming has no name for: the file as it is
        return _Column(pa.large_binary(), encoder=_AS_BYTES)
    return _Column(pa.large_binary(), Field(field.name, pa.binary(), encoding), _AS_BYTES)


def _array(field: UnischemaField, load: _Load) -> _Column | None:
    """Return how arrays are written; None if MDS has no encoding for them.

    Args:
        field: None in its shape, and 0 as in Petastorm, stand for any length.
        load: Returns the array of a stored value.
    """
    dtype = np.dtype(field.numpy_dtype)
    if dtype.kind in "US" and len(field.shape) == 1:
        texts = pa.list_(pa.string() if dtype.kind == "U" else pa.binary())
        return _Column(texts, encoder=_TextsEncoder(field.name, load, texts))
    shape = tuple(size or None for size in field.shape)
    name = "uint8" if dtype == np.bool_ else dtype.name  # booleans are stored as bytes
    if name not in NDARRAY_CODES or math.prod(size or 1 for size in shape) > MAX_ELEMENTS:
        return None
    is_fixed = bool(shape) and all(shape)
    encoding = f"ndarray:{name}:{','.join(map(str, shape))}" if is_fixed else f"ndarray:{name}"
    described = Field(field.name, pa.list_(pa.from_numpy_dtype(dtype)), encoding, shape=shape)
    return _Column(
        pa.large_binary(), described, _ArrayEncoder(field.name, load, dtype, shape, is_fixed)
    )


@dataclass(frozen=True)
class _Encoder:
    """Turns a column of arrays, as Petastorm's codecs store them, into what the writer takes.

    Attributes:
        name: The column, for messages.
        load: Returns the array of a stored value.
    """

    name: str
    load: _Load

    def loaded(self, stored: bytes) -> npt.NDArray[Any]:
        try:
            return self.load(stored)
        except ValueError as error:
            raise DatasetError(
                f"Column {self.name!r} holds a value that is no array: {error}."
            ) from error


@dataclass(frozen=True)
class _ArrayEncoder(_Encoder):
    """Gives the values that MDS stores.

    Where all files of a batch are of one shape, which fixed shapes are, no array is made of any.

    Attributes:
        dtype: Of the elements.
        shape: None stands for any length.
        is_fixed: Whether no length is any.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    is_fixed: bool

    def __call__(self, array: pa.Array) -> pa.LargeBinaryArray:
        """Return the encoded values; nulls stay null.

        Raises:
            DatasetError: A value is no such array, or of another dtype or shape.
        """
        cells = array.cast(pa.large_binary())
        missing = np.asarray(cells.is_null().to_numpy(zero_copy_only=False))
        present = cells.drop_null() if cells.null_count else cells
        values = self._of_one_shape(present) if self.load is load_npy else None
        if values is None:
            values = pa.array([self._value(cell.as_py()) for cell in present], pa.large_binary())
        if not cells.null_count:
            return values
        places = np.maximum(np.cumsum(~missing) - 1, 0)
        return values.take(pa.array(places, mask=missing))

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
        if not self.is_fixed:
            start = np.tile(array_headers(np.array([header.shape])), (len(files), 1))
            content = np.concatenate([start, content], axis=1)
        return binary_rows(content)

    def _value(self, stored: bytes) -> bytes:
        value = self.loaded(stored)
        if value.dtype != self.dtype:
            raise DatasetError(
                f"Column {self.name!r} holds an array of {value.dtype}; its schema says {self.dtype}."
            )
        self._check_shape(value.shape)
        start = b"" if self.is_fixed else array_headers(np.array([value.shape])).tobytes()
        return start + np.ascontiguousarray(value).tobytes()

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.shape
        if len(shape) != len(wanted) or any(
            w and w != s for s, w in zip(shape, wanted, strict=True)
        ):
            raise DatasetError(
                f"Column {self.name!r} holds an array of shape {shape}; its schema says {wanted}."
            )


@dataclass(frozen=True)
class _TextsEncoder(_Encoder):
    """Gives one-dimensional arrays of texts or bytes as lists, which are stored as JSON."""

    type: pa.DataType

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the lists; nulls stay null.

        Raises:
            DatasetError: A value is no array of one axis.
        """
        lists = [None if file is None else self._list(file) for file in array.to_pylist()]
        return pa.array(lists, self.type)

    def _list(self, stored: bytes) -> list[Any]:
        value = self.loaded(stored)
        if value.ndim != 1 or value.dtype.kind not in "US":
            raise DatasetError(
                f"Column {self.name!r} holds an array of {value.dtype} of shape {value.shape}; its schema "
                "says texts or bytes along one axis."
            )
        return list(value.tolist())
