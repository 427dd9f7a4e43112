"""Which shard a sample is in, and the samples of an epoch, for whole arrays of samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from petastorm_bridge.mds.ragged import Int64, offsets_of


class ShardIndex:
    """Maps sample numbers to shards.

    It stands where ``StreamingDataset`` has its ``Spanner``, whose memory grows with the samples (8
    bytes for each while it is built, then one array object for every 1,024); here it is a table of
    the shards.
    """

    def __init__(self, shard_sizes: Int64) -> None:
        self.shard_sizes = shard_sizes
        self.shard_bounds = offsets_of(shard_sizes)
        self.num_samples = int(self.shard_bounds[-1])
        self._bounds = self.shard_bounds.tolist()

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return the shard of one sample and its number there; IndexError if there is no such sample."""
        if not 0 <= index < self.num_samples:
            raise IndexError(f"Invalid sample index `{index}`: 0 <= {index} < {self.num_samples}")
        shard = bisect_right(self._bounds, index) - 1
        return shard, int(index) - self._bounds[shard]

    def shards_of(self, sample_ids: Int64) -> Int64:
        """Return the shard of each sample."""
        return np.searchsorted(self.shard_bounds, sample_ids, "right") - 1


def group_by_shard(shard_ids: Int64, num_shards: int) -> tuple[Int64, list[int], list[int]]:
    """Return how to bring samples of one shard together.

    Returns:
        The order that does it (stable), the shards that occur, ascending, and where the samples of
        each begin in that order, with the end of the last.
    """
    # NumPy sorts 16-bit integers by radix, many times faster than wider ones.
    keys = shard_ids.astype(np.uint16) if num_shards <= 1 << 16 else shard_ids
    order = np.argsort(keys, kind="stable")
    ordered = shard_ids[order]
    begins = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = [0, *begins.tolist(), len(ordered)]
    return order, ordered[bounds[:-1]].tolist(), bounds


def whole_repeats(dataset: Any, stream_ids: Iterable[int]) -> tuple[Int64, Int64] | None:
    """Return what ``StreamingDataset.resample_streams`` does, without a step for each shard.

    Returns:
        The sizes of the runs of samples from one shard, and the samples; None where chance comes in,
        because a part of a stream is chosen.
    """
    sizes, starts = [], []
    for stream_id in stream_ids:
        choose = int(dataset.streams[stream_id].choose)
        repeats, rest = divmod(choose, int(dataset.samples_per_stream[stream_id]))
        first = int(dataset.shard_offset_per_stream[stream_id])
        shards = slice(first, first + int(dataset.shards_per_stream[stream_id]))
        if rest or not repeats or not dataset.samples_per_shard[shards].all():
            return None
        sizes.append(np.repeat(dataset.samples_per_shard[shards], repeats))
        starts.append(np.repeat(dataset.sample_offset_per_shard[shards], repeats))
    units, begins = np.concatenate(sizes), np.concatenate(starts)
    ends = units.cumsum()
    if (begins == ends - units).all():  # every shard once
        return units, np.arange(ends[-1])
    return units, np.arange(ends[-1]) + np.repeat(begins - (ends - units), units)
