"""Shard files that a process has open, and a bounded set of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from petastorm_bridge.mds.shard_file import AnyShardFile, open_shard_file

from ._layout import SampleLayout

__all__ = ["OpenShard", "ShardPool", "open_file"]

# A pool lets go of a shard that this many windows did not touch: in a shuffled epoch a shard's
# samples come thickly for a while and then no more, so it will not be needed again.
_PATIENCE = 32
# Linux allows 65,530 mappings in a process.
_MOST_SHARDS = 16_384


@dataclass(frozen=True, eq=False)
class OpenShard:
    """An open shard.

    Attributes:
        file: Its bytes, mapped or read a few samples at a time.
        layout: Its columns as users see them.
    """

    file: AnyShardFile
    layout: SampleLayout


def open_file(
    path: str,
    size: int,
    samples: int,
    layout: SampleLayout,
    hashes: Mapping[str, str] | None = None,
) -> OpenShard:
    """Open a shard; arguments and errors as of :func:`..mds.shard_file.open_shard_file`."""
    return OpenShard(open_shard_file(path, size, samples, layout.stored, hashes), layout)


class ShardPool:
    """The open shards of one process, of which those out of use are let go."""

    def __init__(self) -> None:
        self._shards: OrderedDict[int, tuple[OpenShard, int]] = OrderedDict()
        self._now = 0

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self._shards

    def get(self, shard_ids: list[int], open_shard: Callable[[int], OpenShard]) -> list[OpenShard]:
        """Return the shards of one window, which need not be held any longer than it is.

        Args:
            shard_ids: Which shards.
            open_shard: Opens one of them.

        Raises:
            ShardCorruptedError: A file was cut short or replaced since it was opened.
        """
        self._now += 1
        found = []
        for shard_id in shard_ids:
            known = self._shards.pop(shard_id, None)
            if known is None:
                shard = open_shard(shard_id)
            else:
                shard = known[0]
                shard.file.check_size()
            self._shards[shard_id] = shard, self._now
            found.append(shard)
        while self._shards:
            oldest, (_, used) = next(iter(self._shards.items()))
            if used > self._now - _PATIENCE and len(self._shards) <= _MOST_SHARDS:
                break
            del self._shards[oldest]
        return found

    def release(self, shard_ids: list[int]) -> None:
        """Let go of shards whose files are no longer in the cache."""
        for shard_id in shard_ids:
            self._shards.pop(shard_id, None)

    @property
    def shard_ids(self) -> list[int]:
        """Which shards are open."""
        return list(self._shards)
