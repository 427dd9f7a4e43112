"""The start of a shard file, checked against what the index says of the shard."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ShardCorruptedError
from .layout import ShardLayout

__all__ = ["read_offsets"]

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.uint32]


def read_offsets(raw: Bytes, *, path: str, samples: int, layout: ShardLayout) -> Offsets:
    """Return where each sample begins and the last one ends, ``<u4`` of shape ``(samples + 1,)``.

    They ascend, end with the file, and leave every sample as many bytes as its columns take at least,
    or exactly, if all are of fixed width.

    Args:
        raw: The file's bytes.
        path: The file, for messages.
        samples: Samples, by the index.
        layout: Columns, by the index.

    Raises:
        ShardCorruptedError: The file's header does not agree with these.
    """

    def damaged(asked: str, found: str) -> ShardCorruptedError:
        return ShardCorruptedError.because(path, asked, found)

    size, offsets_end = len(raw), 4 + 4 * (samples + 1)
    if size < offsets_end:
        raise damaged(f"{offsets_end} bytes of header", f"{size} bytes")
    words = raw[:offsets_end].view("<u4")
    found = int(words[0])
    if found != samples:
        raise damaged(f"{samples} rows", f"{found} rows in its header")
    offsets = words[1:]
    first, last = int(offsets[0]), int(offsets[-1])
    if first < offsets_end or first > last or last != size:
        raise damaged(f"samples from byte {offsets_end} to {size}", f"{first} to {last}")
    try:
        columns = _columns(raw[offsets_end:first].tobytes())
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged("a JSON header", f"{error}") from error
    if columns != (layout.names, layout.encodings):
        wanted = list(zip(layout.names, layout.encodings, strict=True))
        raise damaged(f"columns {wanted}", f"{list(zip(*columns, strict=False))}")
    _check_lengths(path, offsets, layout)
    return offsets


@lru_cache(maxsize=64)  # the shards of a dataset have the same
def _columns(text: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    config = json.loads(text)
    return tuple(config["column_names"]), tuple(config["column_encodings"])


def _check_lengths(path: str, offsets: Offsets, layout: ShardLayout) -> None:
    """Check that samples are as long as their columns take."""
    least = layout.least_bytes
    if layout.record is not None:
        wanted = f"samples of {least} bytes"
        is_right = bool((offsets[1:] - offsets[:-1] == least).all())
    else:
        wanted = f"samples of at least {least} bytes"
        # Where the offsets descend, the difference of unsigned numbers is 4 GiB too large.
        lengths = offsets[1:] - offsets[:-1]
        whole = int(offsets[-1]) - int(offsets[0])
        is_right = (
            int(lengths.min(initial=2**32 - 1)) >= least and lengths.sum(dtype=np.int64) == whole
        )
    if not is_right:
        lengths_found = np.diff(offsets.astype(np.int64))
        shown = f"{int(lengths_found.min(initial=0))} to {int(lengths_found.max(initial=0))} bytes"
        raise ShardCorruptedError.because(path, wanted, shown)
