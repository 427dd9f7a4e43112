"""How large the value of a compressed cell may become: a few bytes can unpack to gigabytes."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

HARMLESS = 16 << 20
"""Bytes of a value that is read whatever shape its field declares, as Petastorm reads it."""
_VARIABLE = "PETASTORM_BRIDGE_LARGEST_VALUE"
_UNDECLARED = 256 << 20
_PER_STORED_BYTE = 100


def check_size(field: Any, stored: int, size: int) -> None:
    """Refuse a value that is larger than the schema, or the bytes that are stored of it, explain.

    Args:
        field: Its ``shape`` and ``numpy_dtype`` count; None, and 0 as in Petastorm, stand for any length.
        stored: Bytes of the cell.
        size: Bytes of the value.

    Raises:
        ValueError: It is larger than the limit.
    """
    if size <= HARMLESS:
        return
    shape = tuple(field.shape or ())
    declared = (
        math.prod(shape) * np.dtype(field.numpy_dtype).itemsize if all(shape) and shape else 0
    )
    given = os.environ.get(_VARIABLE, "")
    if given and not given.isdecimal():
        raise ValueError(f"{_VARIABLE} is {given!r}; it has to be a number of bytes.")
    allowed = int(given) if given else HARMLESS if declared else _UNDECLARED
    limit = max(allowed, declared or _PER_STORED_BYTE * stored)
    if size > limit:
        reason = f"its field declares shape {shape}" if declared else "its field declares no size"
        raise ValueError(
            f"{stored:,} stored bytes would become {size:,}; {reason}, so at most {limit:,} are allowed. "
            f"If the value is right, set the environment variable {_VARIABLE}={size}."
        )
