"""The start of a shard file, checked against what the index says of the shard."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ShardCorruptedError

__all__ = ["Header", "read_header"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Header:
    """Where the samples of a shard are.

    Attributes:
        offsets: Where each sample begins and the last one ends, ``<u4`` of shape ``(samples + 1,)``.
        first: The first of them.
    """

    offsets: npt.NDArray[np.uint32]
    first: int


def read_header(
    part: Callable[[int, int], Bytes],
    *,
    path: str,
    size: int,
    samples: int,
    names: tuple[str, ...],
    encodings: tuple[str, ...],
) -> Header:
    """Return the header of a shard, which must agree with the index.

    Args:
        part: Returns the file's bytes between two positions, which are within it.
        path: The file, for messages.
        size: Its bytes.
        samples: Samples, by the index.
        names: Column names, by the index.
        encodings: Their encodings.

    Raises:
        ShardCorruptedError: It does not agree.
    """

    def damaged(asked: str, found: str) -> ShardCorruptedError:
        return ShardCorruptedError.because(path, asked, found)

    offsets_end = 4 + 4 * (samples + 1)
    if size < offsets_end:
        raise damaged(f"{offsets_end} bytes of header", f"{size} bytes")
    start = part(0, offsets_end)
    found = int(start[:4].view("<u4")[0])
    if found != samples:
        raise damaged(f"{samples} rows", f"{found} rows in its header")
    offsets = start[4:].view("<u4")
    first, last = int(offsets[0]), int(offsets[-1])
    if first < offsets_end or first > last or last != size:
        raise damaged(f"samples from byte {offsets_end} to {size}", f"{first} to {last}")
    try:
        columns = _columns(part(offsets_end, first).tobytes())
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged("a JSON header", f"{error}") from error
    if columns != (names, encodings):
        wanted = list(zip(names, encodings, strict=True))
        raise damaged(f"columns {wanted}", f"{list(zip(*columns, strict=False))}")
    return Header(offsets, first)


@lru_cache(maxsize=64)  # the shards of a dataset have the same
def _columns(text: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    config = json.loads(text)
    return tuple(config["column_names"]), tuple(config["column_encodings"])
