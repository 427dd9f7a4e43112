"""The first samples of a shard of which only the first bytes are here."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from .entry import ShardEntry

__all__ = ["first_samples"]


def first_samples(
    entry: ShardEntry, head: npt.NDArray[np.uint8]
) -> tuple[ShardEntry, npt.NDArray[np.uint8]] | None:
    """Return the index entry and the bytes of a shard that has only the samples which are here as a whole.

    Reading them checks everything but the hash, which is that of the whole file.

    Args:
        entry: Of the whole shard, which is not compressed.
        head: The first bytes of its file, uint8 of shape ``(bytes,)``.

    Returns:
        None if no sample is here as a whole.
    """
    offsets_end = 4 + 4 * (entry.samples + 1)
    if len(head) < offsets_end:
        return None
    offsets = head[4:offsets_end].view("<u4")
    count = int(np.searchsorted(offsets, len(head), side="right")) - 1
    if count < 1 or offsets[0] < offsets_end:
        return None
    table = np.empty(count + 2, "<u4")
    table[0] = count
    table[1:] = offsets[: count + 1] - np.uint32(4 * (entry.samples - count))
    data = np.concatenate([table.view(np.uint8), head[offsets_end : offsets[count]]])
    raw = {**entry.raw, "bytes": len(data), "hashes": {}}
    return dataclasses.replace(entry, samples=count, raw=raw), data
