"""Raw shard files, mapped into memory or read a few samples at a time, and a bounded set of them."""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.access import fill, is_mapped, load, read_part
from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.files import open_regular
from petastorm_bridge.mds.header import read_header
from petastorm_bridge.mds.ragged import gather_ragged, unaligned_view
from petastorm_bridge.mds.verified import check_hash

from ._layout import SampleLayout

__all__ = ["MappedShard", "OpenShard", "ReadShard", "ShardPool", "open_file"]

Int64 = npt.NDArray[np.int64]
Samples: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"
"""Samples as packed records, if all columns are of fixed width, and as byte strings otherwise."""

# A pool lets go of a shard that this many windows did not touch: in a shuffled epoch a shard's
# samples come thickly for a while and then no more, so it will not be needed again.
_PATIENCE = 32
# Linux allows 65,530 mappings in a process.
_MOST_SHARDS = 16_384
# Samples of a file that is read are read together if no more bytes than these lie between them.
_GAP = 64 << 10


class _Shard:
    """One shard file without compression.

    Attributes:
        path: The file.
        layout: Its columns.
        samples: How many it holds.
        offsets: Where each sample begins and the last one ends, of shape ``(samples + 1,)``.
        first: Where the samples begin.
    """

    def __init__(self, path: str, size: int, samples: int, layout: SampleLayout) -> None:
        self.path = path
        self.size = size
        self.samples = samples
        self.layout = layout

    def _check(self, part: Callable[[int, int], npt.NDArray[np.uint8]], found: int) -> None:
        """Check the file's size and header, and that samples are as long as they must be."""
        path, layout = self.path, self.layout
        if found != self.size:
            raise ShardCorruptedError.because(path, f"{self.size} bytes", f"{found} bytes")
        header = read_header(
            part,
            path=path,
            size=self.size,
            samples=self.samples,
            names=layout.names,
            encodings=layout.encodings,
        )
        self.offsets, self.first = header.offsets, header.first
        if layout.record is not None:
            width = layout.record.itemsize
            if self.size - self.first != width * self.samples:
                asked = f"{self.samples} samples of {width} bytes"
                raise ShardCorruptedError.because(path, asked, f"{self.size - self.first} bytes")

    @functools.cached_property
    def bounds(self) -> Int64:
        """The offsets of samples of differing width, each at least as long as its columns."""
        bounds = self.offsets.astype(np.int64)
        if (np.diff(bounds) < self.layout.fixed).any():
            raise ShardCorruptedError.because(
                self.path, f"samples of at least {self.layout.fixed} bytes", "a smaller one"
            )
        return bounds


class MappedShard(_Shard):
    """A shard that is mapped until nothing refers to it any more.

    It stays readable when the file is deleted meanwhile (evicted from the cache).

    Attributes:
        raw: The file, uint8 of shape ``(size,)``.
        records: The samples as packed records of shape ``(samples,)``, if all columns are of fixed
            width.

    Args:
        path: The file.
        size: Its bytes, by the index.
        samples: Its samples, by the index.
        layout: Its columns.
        hashes: Hashes to check, one of which is.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: The file is not what the index says.
        DatasetError: It is no regular file.
    """

    def __init__(
        self,
        path: str,
        size: int,
        samples: int,
        layout: SampleLayout,
        hashes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(path, size, samples, layout)
        self.raw, status = load(path, mapped=True)
        self._check(lambda start, stop: self.raw[start:stop], len(self.raw))
        if hashes:
            check_hash(path, hashes, lambda: self.raw, status)
        self.records: npt.NDArray[Any] | None = None
        if layout.record is not None:
            self.records = np.frombuffer(self.raw, layout.record, samples, self.first)

    @functools.cached_property
    def strings(self) -> pa.LargeBinaryArray:
        """The samples as byte strings."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.raw)]
        return pa.Array.from_buffers(pa.large_binary(), self.samples, buffers)

    def view(self, rows: slice) -> Samples:
        """Return adjacent samples, or some at a constant distance, without copying adjacent ones."""
        if self.records is not None:
            return self.records[rows]
        if rows.step == 1:
            return self.strings.slice(rows.start, rows.stop - rows.start)
        return self.take(np.arange(rows.start, rows.stop, rows.step))

    def take(self, rows: Int64) -> pa.LargeBinaryArray:
        """Return samples of differing width."""
        return self.strings.take(pa.array(rows))

    def take_records(self, rows: Int64, out: npt.NDArray[Any]) -> None:
        """Write samples of fixed width into an array of as many opaque values."""
        assert self.records is not None
        # The rows are within the shard, so that no clipping takes place; it saves a copy.
        self.records.view(out.dtype).take(rows, out=out, mode="clip")


class ReadShard(_Shard):
    """A shard whose samples are read when they are asked for; it holds their offsets only.

    The methods are those of :class:`MappedShard`, from which the arguments are, too. They raise
    FileNotFoundError if the file was deleted meanwhile, ShardCorruptedError if it is shorter or longer
    now, and OSError if the file system fails.
    """

    records = None

    def __init__(
        self,
        path: str,
        size: int,
        samples: int,
        layout: SampleLayout,
        hashes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(path, size, samples, layout)
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            self._check(functools.partial(read_part, file), status.st_size)
            if hashes:
                check_hash(path, hashes, lambda: read_part(file, 0, size), status)
        if (np.diff(self.offsets.astype(np.int64)) < 0).any():
            raise ShardCorruptedError.because(path, "samples one after the other", "other offsets")

    def view(self, rows: slice) -> Samples:
        """Return adjacent samples, or some at a constant distance."""
        chosen = np.arange(rows.start, rows.stop, rows.step)
        if self.layout.record is None:
            return self.take(chosen)
        out = np.empty(len(chosen), np.dtype(("V", self.layout.record.itemsize)))
        self.take_records(chosen, out)
        return out.view(self.layout.record)

    def take(self, rows: Int64) -> pa.LargeBinaryArray:
        """Return samples of differing width."""
        raw, starts, lengths, inverse = self._read(rows, self.bounds)
        strings = gather_ragged(raw, starts, lengths)
        return strings.take(pa.array(inverse))

    def take_records(self, rows: Int64, out: npt.NDArray[Any]) -> None:
        """Write samples of fixed width into an array of as many opaque values."""
        width = out.dtype.itemsize
        bounds = self.first + width * np.arange(self.samples + 1)
        raw, starts, _, inverse = self._read(rows, bounds)
        out[:] = unaligned_view(raw, f"V{width}")[starts[inverse]]

    def bytes_of(self, row: int) -> memoryview:
        """Return one sample."""
        with self._opened() as file:
            return read_part(file, self.offsets.item(row), self.offsets.item(row + 1)).data

    def _opened(self) -> BinaryIO:
        file = open_regular(self.path)
        found = os.fstat(file.fileno()).st_size
        if found == self.size:
            return file
        file.close()
        raise ShardCorruptedError.because(self.path, f"{self.size} bytes", f"{found} bytes")

    def _read(
        self, rows: Int64, bounds: Int64
    ) -> tuple[npt.NDArray[np.uint8], Int64, Int64, Int64]:
        """Return bytes, where each distinct sample starts in them, its length, and which is which."""
        unique, inverse = np.unique(rows, return_inverse=True)
        begins, ends = bounds[unique], bounds[unique + 1]
        if not len(unique):
            return np.empty(0, np.uint8), begins, begins, inverse
        is_first = np.concatenate([[True], begins[1:] - ends[:-1] > _GAP])
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:], len(unique)) - 1
        places = np.cumsum([0, *(ends[lasts] - begins[firsts])])
        raw: npt.NDArray[np.uint8] = np.empty(places[-1], np.uint8)
        with self._opened() as file:
            # One read for each run of samples close together.
            for begin, low, high in zip(
                begins[firsts].tolist(), places.tolist(), places[1:].tolist(), strict=False
            ):
                fill(file, begin, raw[low:high])
        shifts = (places[:-1] - begins[firsts])[np.cumsum(is_first) - 1]
        return raw, begins + shifts, ends - begins, inverse


OpenShard: TypeAlias = "MappedShard | ReadShard"


def open_file(
    path: str,
    size: int,
    samples: int,
    layout: SampleLayout,
    hashes: Mapping[str, str] | None = None,
) -> OpenShard:
    """Return a shard that is mapped, or read where mapping may fail (:mod:`..mds._access`)."""
    kind = MappedShard if is_mapped(os.path.dirname(path)) else ReadShard
    return kind(path, size, samples, layout, hashes)


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
        """Which shards are open."""
        return list(self._shards)
