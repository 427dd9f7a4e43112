"""Arrays out of the bytes of ``.npy`` and ``.npz`` files, a whole column at a time.

``numpy.load`` parses the header of each value as Python source and copies it through a file object.
The values of a column mostly share one header, which is parsed once here; where nothing is unusual the
result is one strided copy. Whatever is unusual goes to ``numpy.load``, whose results and errors count.
"""

from __future__ import annotations

import io
import itertools
import math
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.locks import ForkSafeLock

__all__ = ["arrays_of_npy", "arrays_of_npz"]

# NumPy reads headers with ast.literal_eval, which in Python 3.11 fails now and then in several threads
# at once: SystemError, "AST constructor recursion depth mismatch".
_PARSING = ForkSafeLock()

_MAGIC = b"\x93NUMPY"
_USUAL_LENGTH = 128  # of a header, which NumPy fills up for the numbers behind it
_MAX_HEADER = 10_000  # what numpy.load reads of a header without being asked
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_ZIP64_SIZES = struct.Struct("<HHQQ")
_SIZES_ARE_IN_EXTRA = 0xFFFFFFFF
_ZIP64_KIND = [1, 16]
_DEFLATED = 8


@dataclass(frozen=True)
class _Header:
    """The header of an ``.npy`` file.

    Attributes:
        length: Its bytes.
        shape: Shape of the array.
        is_fortran: Whether the first axis varies fastest.
        dtype: Type of the elements.
    """

    length: int
    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def order(self) -> Any:
        return "F" if self.is_fortran else "C"


class _Headers:
    """Parses headers, each once."""

    def __init__(self) -> None:
        self._usual: dict[bytes, _Header] = {}

    def of(self, data: memoryview) -> _Header | None:
        """Return the header of a file; None where :func:`numpy.load` has to decide."""
        length = _header_length(data)
        header = None if length is None else _parsed(bytes(data[:length]))
        if header is None or header.length + header.nbytes != len(data):
            return None
        return header

    def array(self, data: memoryview, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the array of the file between two places.

        Raises:
            ValueError, OSError, EOFError: From ``numpy.load``.
        """
        key = bytes(data[start : start + _USUAL_LENGTH])
        header = self._usual.get(key)
        if header is None or _USUAL_LENGTH + header.nbytes != stop - start:
            header = self.of(data[start:stop])
            if header is None:
                loaded: npt.NDArray[Any] = np.load(io.BytesIO(data[start:stop]), allow_pickle=False)
                return loaded
            if header.length == _USUAL_LENGTH:
                self._usual[key] = header
        if not header.nbytes:
            return np.empty(header.shape, header.dtype, header.order)
        flat = np.frombuffer(data, header.dtype, math.prod(header.shape), start + header.length)
        return flat.reshape(header.shape, order=header.order).copy("K")


def _header_length(data: memoryview) -> int | None:
    if len(data) < 12 or data[:6] != _MAGIC:
        return None
    major = data[6]
    if major == 1:
        length = 10 + int.from_bytes(data[8:10], "little")
    elif major == 2:
        length = 12 + int.from_bytes(data[8:12], "little")
    else:
        return None
    return length if length <= min(len(data), _MAX_HEADER) else None


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> _Header | None:
    with _PARSING:
        return _parsed_alone(text)


def _parsed_alone(text: bytes) -> _Header | None:
    file = io.BytesIO(text)
    formats: Any = np.lib.format  # untyped
    try:
        version = formats.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = formats.read_array_header_1_0(file)
        else:
            shape, is_fortran, dtype = formats.read_array_header_2_0(file)
    except ValueError:
        return None
    # Single values would come out of a stacked array as scalars, not as arrays without axes.
    if dtype.hasobject or not shape or any(length < 0 for length in shape):
        return None
    return _Header(len(text), shape, is_fortran, dtype)


def arrays_of_npy(column: pa.Array) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    """Return the arrays of a binary column without nulls.

    Returns:
        One array of shape ``(rows, …)`` where all values have one dtype and shape, else a list. It
        is writable and refers to nothing else.

    Raises:
        ValueError, OSError, EOFError: From ``numpy.load``, for a value that is no array.
    """
    rows = len(column)
    if not rows:
        return []
    offsets, data = _buffers(column)
    headers = _Headers()
    first = headers.of(data[offsets[0] : offsets[1]])
    size = int(offsets[1] - offsets[0])
    if first is not None and int(offsets[-1] - offsets[0]) == rows * size:
        files = np.frombuffer(data[offsets[0] : offsets[-1]], np.uint8).reshape(rows, size)
        is_regular = (np.diff(offsets) == size).all()
        if is_regular and (files[:, : first.length] == files[0, : first.length]).all():
            return _stacked(files[:, first.length :], first)
    return [headers.array(data, *bounds) for bounds in itertools.pairwise(offsets.tolist())]


def _buffers(column: pa.Array) -> tuple[npt.NDArray[np.int32], memoryview]:
    _, offsets, data = column.buffers()
    found = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return found, memoryview(b"" if data is None else data).cast("B")


def _stacked(values: npt.NDArray[np.uint8], header: _Header) -> npt.NDArray[Any]:
    """Return files of one header as one array."""
    rows = len(values)
    shape = header.shape[::-1] if header.is_fortran else header.shape
    stacked: npt.NDArray[Any] = np.empty((rows, *shape), header.dtype)
    if stacked.nbytes:
        stacked.reshape(rows, -1).view(np.uint8)[...] = values
    return stacked.transpose(0, *range(len(shape), 0, -1)) if header.is_fortran else stacked


def arrays_of_npz(column: pa.Array) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    """Return the arrays ``arr`` of a binary column of ``.npz`` files, as :func:`arrays_of_npy`.

    Raises:
        ValueError, OSError, KeyError, zipfile.BadZipFile, zlib.error: From ``numpy.load``.
    """
    offsets, data = _buffers(column)
    bounds = offsets.tolist()
    headers = _Headers()
    arrays = []
    for start, stop in itertools.pairwise(bounds):
        archive = data[start:stop]
        npy = _inflated(archive)
        if npy is None:
            with np.load(io.BytesIO(archive), allow_pickle=False) as loaded:
                arrays.append(loaded["arr"])
        else:
            arrays.append(headers.array(memoryview(npy), 0, len(npy)))
    return arrays


def _inflated(archive: memoryview) -> bytes | None:
    """Return the file ``arr.npy`` of an archive as NumPy writes it; None for any other archive."""
    entry = _only_entry(archive)
    if entry is None:
        return None
    packed, size, crc = entry
    try:
        npy = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1)
    except (zlib.error, OverflowError):
        return None
    return npy if len(npy) == size and zlib.crc32(npy) == crc else None


def _only_entry(archive: memoryview) -> tuple[memoryview, int, int] | None:
    """Return the packed bytes of ``arr.npy``, their unpacked size and their checksum."""
    if len(archive) < _LOCAL_HEADER.size:
        return None
    (magic, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = (
        _LOCAL_HEADER.unpack_from(archive)
    )
    begin = _LOCAL_HEADER.size
    name = bytes(archive[begin : begin + name_length])
    extra = archive[begin + name_length : begin + name_length + extra_length]
    begin += name_length + extra_length
    if (magic, flags, method, name) != (b"PK\x03\x04", 0, _DEFLATED, b"arr.npy"):
        return None
    if packed == size == _SIZES_ARE_IN_EXTRA and len(extra) == _ZIP64_SIZES.size:
        *kind, size, packed = _ZIP64_SIZES.unpack(extra)
        if kind != _ZIP64_KIND:
            return None
    end = begin + packed
    # The next thing has to be the archive's list of files: one that names others is not NumPy's.
    return (
        (archive[begin:end], size, crc) if bytes(archive[end : end + 4]) == b"PK\x01\x02" else None
    )
