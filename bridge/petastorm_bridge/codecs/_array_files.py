"""Arrays out of the bytes of ``.npy`` and ``.npz`` files.

As ``numpy.load`` gives them, with two differences: what a header announces is compared with the bytes that
are there before memory is taken, and an archive is unpacked only as far as its field explains.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from petastorm_bridge._workers.locks import ForkSafeLock

from ._limits import HARMLESS, check_size

# NumPy reads headers with ast.literal_eval, which in Python 3.11 fails now and then in several threads
# at once: SystemError, "AST constructor recursion depth mismatch".
_PARSING = ForkSafeLock()

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # what numpy.load reads of a header without being asked
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_ZIP64_SIZES = struct.Struct("<HHQQ")
_SIZES_ARE_IN_EXTRA = 0xFFFFFFFF
_ZIP64_KIND = [1, 16]


@dataclass(frozen=True)
class Header:
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
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.count * self.dtype.itemsize

    def array(self, data: memoryview, start: int = 0) -> npt.NDArray[Any]:
        """Return the array, which refers to nothing else, of the file that begins at a place."""
        order: Any = "F" if self.is_fortran else "C"
        if not self.nbytes:
            return np.ndarray(self.shape, self.dtype, order=order)
        flat = np.frombuffer(data, self.dtype, self.count, start + self.length)
        return flat.reshape(self.shape, order=order).copy("K")


def npy_header(data: memoryview) -> Header:
    """Return the header of an ``.npy`` file whose elements are there.

    Raises:
        ValueError: It is no such file, is cut off, or holds Python objects.
    """
    if data[:6] != _MAGIC or len(data) < 12 or data[6] not in {1, 2, 3}:
        raise ValueError(f"{len(data)} bytes are no .npy file")
    begin = 10 if data[6] == 1 else 12
    length = begin + int.from_bytes(data[8:begin], "little")
    if length > min(len(data), _MAX_HEADER):
        raise ValueError(
            f"an .npy file of {len(data)} bytes announces a header of {length}, of which at most "
            f"{_MAX_HEADER} are read"
        )
    header = _parsed(bytes(data[:length]))
    available = len(data) - length
    if header.nbytes > available or (header.count > len(data) and not header.dtype.itemsize):
        raise ValueError(
            f"an .npy file announces {header.count} elements of {header.dtype.itemsize} bytes and has "
            f"{available} bytes"
        )
    return header


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> Header:
    formats: Any = np.lib.format  # untyped
    # Version 3 differs from 2 in the encoding of the names of fields.
    file = io.BytesIO(
        text if text[6] < 3 else _MAGIC + b"\2\0" + text[8:].decode().encode("latin-1", "replace")
    )
    try:
        with _PARSING:
            formats.read_magic(file)
            read = formats.read_array_header_1_0 if text[6] == 1 else formats.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
    except Exception as error:  # of the parser, by its depth, a MemoryError as well
        reason = str(error)[:200] or type(error).__name__
        raise ValueError(f"the header of an .npy file cannot be read: {reason}") from error
    if dtype.hasobject:
        raise ValueError("an .npy file holds Python objects, a pickle, which are not read")
    if any(length < 0 for length in shape):
        raise ValueError(f"an .npy file has shape {shape}")
    return Header(len(text), shape, is_fortran, dtype)


def load_npy(data: bytes | memoryview) -> npt.NDArray[Any]:
    """Return the array of an ``.npy`` file.

    Raises:
        ValueError: There is none in it.
    """
    view = memoryview(data)
    return npy_header(view).array(view)


def load_npz(data: bytes | memoryview, field: Any) -> npt.NDArray[Any]:
    """Return the array ``arr`` of an ``.npz`` file.

    Args:
        data: The file.
        field: What is declared of the value (:func:`._limits.check_size`).

    Raises:
        ValueError: There is none in it, or it is too large.
    """
    return load_npy(unpacked_npy(memoryview(data), field))


def unpacked_npy(archive: memoryview, field: Any) -> bytes:
    """Return the file ``arr.npy`` of an ``.npz`` file.

    Raises:
        ValueError: There is none in it, or it is too large.
    """
    entry = _only_entry(archive)
    if entry is not None:
        packed, size, crc = entry
        try:
            _check_beginning(packed, size, field, len(archive))
            npy = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1)
        except (zlib.error, OverflowError, ValueError):
            pass  # the archive's list of files may say something else
        else:
            if len(npy) == size and zlib.crc32(npy) == crc:
                return npy
    try:
        return _unpacked_by_name(archive, field)
    except ValueError:
        raise
    except Exception as error:  # zipfile raises many kinds for damaged archives
        reason = str(error)[:200] or type(error).__name__
        raise ValueError(
            f"{len(archive)} bytes are no .npz file with an array 'arr': {reason}"
        ) from error


def _check_beginning(packed: memoryview, size: int, field: Any, stored: int) -> None:
    """Refuse what is too large, or is large and no ``.npy`` file, before all of it is unpacked."""
    if size > HARMLESS:
        check_size(field, stored, size - _MAX_HEADER)
        if zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, len(_MAGIC)) != _MAGIC:
            raise ValueError("an .npz file has an 'arr.npy' that is no .npy file")


def _unpacked_by_name(archive: memoryview, field: Any) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as names:
        entry = names.getinfo("arr.npy")
        if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("an .npz file is compressed in a way that NumPy does not use")
        with names.open(entry) as file:
            beginning = file.read(len(_MAGIC))
            check_size(field, len(archive), entry.file_size - _MAX_HEADER)
            if beginning != _MAGIC:
                raise ValueError("an .npz file has an 'arr.npy' that is no .npy file")
            # Asked for all that is there, it would unpack more than the archive announces.
            return beginning + file.read(entry.file_size)


def _only_entry(archive: memoryview) -> tuple[memoryview, int, int] | None:
    """Return the packed bytes of ``arr.npy``, their unpacked size and their checksum.

    None for an archive that is not as NumPy writes it.
    """
    if len(archive) < _LOCAL_HEADER.size:
        return None
    (magic, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = (
        _LOCAL_HEADER.unpack_from(archive)
    )
    begin = _LOCAL_HEADER.size
    name = bytes(archive[begin : begin + name_length])
    extra = archive[begin + name_length : begin + name_length + extra_length]
    begin += name_length + extra_length
    if (magic, flags, method, name) != (b"PK\x03\x04", 0, zipfile.ZIP_DEFLATED, b"arr.npy"):
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
