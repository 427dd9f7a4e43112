"""Columns whose values are stored as the bytes they are, under an encoding that the writer declares.

Compressed images and arrays of several axes have no Arrow type of their own. They reach the writer as
binary columns whose field says the MDS encoding in its metadata; the bytes go into the shards as they
come.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .encodings import NDARRAY_CODES, fixed_encoding
from .ragged import byte_offsets, filled_binary, value_bytes

_KEY = b"mds_encoding"
IMAGES = ("jpeg", "png")
"""Encodings of compressed images."""

# What stands for a null image: one black pixel, so that stock readers can decode every sample.
_BLACK_PIXEL = {
    "png": bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a494441"
        "54789c636000000002000148afa4710000000049454e44ae426082"
    ),
    "jpeg": bytes.fromhex(
        "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d"
        "0c0b0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d3832"
        "3c2e333432ffc0000b080001000101011100ffc4001f0000010501010101010100000000000000000102"
        "030405060708090a0bffc400b5100002010303020403050504040000017d010203000411051221314106"
        "13516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a34353637"
        "38393a434445464748494a535455565758595a636465666768696a737475767778797a83848586878889"
        "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6"
        "d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda0008010100003f00f9febfffd9"
    ),
}


def declared(name: str, encoding: str) -> pa.Field:
    """Return the field of a binary column whose values have an MDS encoding already.

    Args:
        name: The column.
        encoding: ``jpeg``, ``png``, ``ndarray:<dtype>`` or ``ndarray:<dtype>:<shape>``.

    Raises:
        ValueError: Another encoding.
    """
    family, _, rest = encoding.partition(":")
    is_array = family == "ndarray" and rest.partition(":")[0] in NDARRAY_CODES
    if not is_array and encoding not in IMAGES:
        raise ValueError(f"values cannot be stored as they are under the encoding {encoding!r}")
    fixed_encoding(encoding)  # raises for a shape that MDS does not have
    return pa.field(name, pa.large_binary(), metadata={_KEY: encoding})


def declared_encodings(schema: pa.Schema) -> dict[str, str]:
    """Return the encodings that fields declare; other columns are stored by their type."""
    return {f.name: f.metadata[_KEY].decode() for f in schema if _KEY in (f.metadata or {})}


def stored_bytes(array: pa.Array, encoding: str) -> npt.NDArray[Any] | pa.LargeBinaryArray:
    """Return a column of declared encoding as a shard stores it.

    Args:
        array: Binary, one encoded value a row; nulls become zeros, an empty array or a black pixel.
        encoding: What the column's field declares.

    Returns:
        Fixed width: the values, of shape ``(rows, *value shape)``. Variable width: the bytes.

    Raises:
        ValueError: A value has another size than the encoding's.
    """
    cells = filled_binary(array, _filler(encoding) if array.null_count else b"")
    dtype = fixed_encoding(encoding)
    if dtype is None:
        return cells
    if (np.diff(byte_offsets(cells)) != dtype.itemsize).any():
        raise ValueError(f"values that are not of the {dtype.itemsize} bytes of {encoding!r}")
    return np.ascontiguousarray(value_bytes(cells)).view(dtype.base).reshape(-1, *dtype.shape)


@lru_cache(maxsize=64)
def _filler(encoding: str) -> bytes:
    if encoding in _BLACK_PIXEL:
        return _BLACK_PIXEL[encoding]
    dtype = fixed_encoding(encoding)
    return dynamic_header((0,)) if dtype is None else bytes(dtype.itemsize)


def dynamic_header(shape: tuple[int, ...]) -> bytes:
    """Return what stands before the elements of a value of encoding ``ndarray:<dtype>``."""
    longest = max(shape, default=0)
    code = next(c for c in range(4) if longest < 1 << (8 << c) or c == 3)
    sizes = np.array(shape, f"<u{1 << code}").tobytes()
    return bytes([len(shape) << 2 | code]) + sizes
