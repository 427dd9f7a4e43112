"""The samples of an epoch in which every stream is read a whole number of times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


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
