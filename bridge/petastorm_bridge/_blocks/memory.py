"""Memory for columns of which there is one in every block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


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
