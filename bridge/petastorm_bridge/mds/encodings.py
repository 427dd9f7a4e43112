"""What the names of MDS encodings say (``streaming/base/format/mds/encodings.py``)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["MAX_ELEMENTS", "NDARRAY_CODES", "fixed_encoding"]

# MDS numbers the value types of a dynamic ndarray (class NDArray).
NDARRAY_CODES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}

_SCALAR_ENCODINGS = {
    "int": "int64",
    **{
        name: name
        for kind in ("int", "uint")
        for name in (f"{kind}8", f"{kind}16", f"{kind}32", f"{kind}64")
    },
    **{name: name for name in ("float16", "float32", "float64")},
}

MAX_ELEMENTS = (1 << 31) - 1
"""Of an array whose shape the encoding says."""


@lru_cache(maxsize=512)  # asked for every column of every shard
def fixed_encoding(encoding: str) -> np.dtype[Any] | None:
    """Return the type of one value of a fixed-width MDS encoding, None for variable width.

    That of an array has its ``shape``, and as ``base`` the type of its elements.

    Raises:
        ValueError: An ``ndarray`` encoding with a value type or shape that MDS does not have, or of 2 GiB a value.
    """
    if encoding in _SCALAR_ENCODINGS:
        return np.dtype(_SCALAR_ENCODINGS[encoding])
    family, separator, config = encoding.partition(":")
    if family != "ndarray" or not separator:
        return None
    name, separator, text = config.partition(":")
    if name not in NDARRAY_CODES:
        raise ValueError(f"unknown encoding {encoding!r}")
    if not separator:
        return None
    shape = tuple(int(size) for size in text.split(","))
    if min(shape) < 1 or math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"unknown encoding {encoding!r}")
    return np.dtype((np.dtype(name), shape))
