"""``StreamingDataset`` that yields single samples, without its two threads that look at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from streaming.base.format.mds import MDSReader

from petastorm_bridge.mds.ragged import Int64

from ._base import MappedDataset, StreamingArguments
from ._mapped_reader import MappedReader, MappedReaders
from ._prefetch import Pass

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Samples between two looks at which shards are in the cache and whether the prefetching failed.
_AT_ONCE = 1024


class MappedStreamingDataset(MappedDataset):
    """``streaming.StreamingDataset``, many times as fast: for code that takes single samples.

    The same samples of the same types in the same order, for the same arguments, processes and
    workers; also in subclasses with a ``__getitem__`` of their own. Shards are mapped, and fetched
    ahead of the pass a shard at a time instead of a sample at a time, several at once unless there is a
    ``cache_limit``, and by no thread if they are in the cache already.

    Args:
        batch_size: As in ``StreamingDataset``.
        **arguments: Every other argument of ``StreamingDataset``.

    Raises:
        ValueError, TypeError: A wrong argument.
        RuntimeError: A stream without samples.
        ShardCorruptedError: While iterating: a file was cut short, replaced or written since the
            dataset was opened.
    """

    def __init__(
        self, *, batch_size: int | None = None, **arguments: Unpack[StreamingArguments]
    ) -> None:
        super().__init__(batch_size=batch_size, **arguments)
        mapped = MappedReaders()
        # Of streams that the user made.
        self.shards = [
            MappedReader.of(shard, mapped) if type(shard) is MDSReader else shard
            for shard in self.shards
        ]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples of the next epoch, or of the rest of the one that is resumed."""
        with self._next_pass() as state:
            yield from map(self.__getitem__, self._sample_ids(state))

    def _sample_ids(self, state: Pass) -> Iterator[int]:
        start, total = 0, len(state.sample_ids)
        while start < total:
            stop = self._here_until(state, start, min(start + _AT_ONCE, total), 1)
            shards = self._mapped_shards(state.sample_ids[start:stop])
            for shard in shards:
                shard.check()  # that reading does not kill the process
            for sample_id in state.sample_ids[start:stop].tolist():
                if state.is_over():
                    return
                yield sample_id
                state.yielded += 1
            for shard in shards:
                shard.check()  # that what was read was the noted file's
            start = stop
            state.check()

    def _mapped_shards(self, sample_ids: Int64) -> list[MappedReader]:
        shard_ids = np.unique(self._index.shards_of(sample_ids)).tolist()
        shards = (self.shards[shard_id] for shard_id in shard_ids)
        return [shard for shard in shards if isinstance(shard, MappedReader)]
