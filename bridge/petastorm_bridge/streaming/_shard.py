"""Raw shard files mapped into memory, and a bounded set of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.errors import ShardCorruptedError

from ._layout import SampleLayout

__all__ = ["MappedShard", "ShardPool"]

# A pool lets go of a shard that this many windows did not touch: in a shuffled epoch a shard's
# samples come thickly for a while and then no more, so it will not be needed again.
_PATIENCE = 32
# Linux allows 65,530 mappings in a process.
_MOST_SHARDS = 16_384


class MappedShard:
    """One shard file without compression, mapped until nothing refers to it any more.

    It stays readable when the file is deleted meanwhile (evicted from the cache).

    Attributes:
        layout: Its columns.
        raw: The file, uint8 of shape ``(size,)``.
        first: Where the samples begin.
        offsets: Where each sample begins and the last one ends, of shape ``(samples + 1,)``.
        records: The samples as packed records of shape ``(samples,)``, if all columns are of fixed
            width.

    Args:
        path: The file.
        size: Its bytes, by the index.
        samples: Its samples, by the index.
        layout: Its columns.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: The file is not what the index says.
    """

    def __init__(self, path: str, size: int, samples: int, layout: SampleLayout) -> None:
        self.path = path
        self.layout = layout
        # Unlike the mmap module's, this mapping keeps no descriptor: there may be thousands.
        with pa.memory_map(path) as file:
            self.buffer = file.read_buffer()
        self.raw = np.frombuffer(self.buffer, np.uint8)
        if len(self.raw) != size:
            raise ShardCorruptedError.because(path, f"{size} bytes", f"{len(self.raw)} bytes")
        stop = 4 * (samples + 2)
        found = int(self.raw[:4].view("<u4")[0]) if size >= stop else -1
        if found != samples:
            raise ShardCorruptedError.because(path, f"{samples} samples", f"{found}")
        self.offsets = self.raw[4:stop].view("<u4")
        self.first, last = int(self.offsets[0]), int(self.offsets[-1])
        if self.first < stop or self.first > last or last != size:
            raise ShardCorruptedError.because(
                path, f"samples from byte {stop} to {size}", f"{self.first} to {last}"
            )
        self.records: npt.NDArray[Any] | None = None
        self._strings: pa.LargeBinaryArray | None = None
        if layout.record is not None:
            width = layout.record.itemsize
            if last - self.first != width * samples:
                raise ShardCorruptedError.because(
                    path, f"{samples} samples of {width} bytes", f"{last - self.first} bytes"
                )
            self.records = np.frombuffer(self.raw, layout.record, samples, self.first)

    @property
    def strings(self) -> pa.LargeBinaryArray:
        """The samples as byte strings."""
        if self._strings is None:
            offsets = self.offsets.astype(np.int64)
            if (np.diff(offsets) < self.layout.fixed).any():
                raise ShardCorruptedError.because(
                    self.path, f"samples of at least {self.layout.fixed} bytes", "a smaller one"
                )
            self._strings = pa.Array.from_buffers(
                pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self.buffer]
            )
        return self._strings


class ShardPool:
    """The mapped shards of one process, of which those out of use are let go."""

    def __init__(self) -> None:
        self._shards: OrderedDict[int, tuple[MappedShard, int]] = OrderedDict()
        self._now = 0

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self._shards

    def get(
        self, shard_ids: list[int], open_shard: Callable[[int], MappedShard]
    ) -> list[MappedShard]:
        """Return the shards of one window, which need not be held any longer than it is.

        Args:
            shard_ids: Which shards.
            open_shard: Maps one of them.
        """
        self._now += 1
        found = []
        for shard_id in shard_ids:
            known = self._shards.pop(shard_id, None)
            shard = open_shard(shard_id) if known is None else known[0]
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
        """Which shards are mapped."""
        return list(self._shards)
