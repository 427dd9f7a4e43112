"""Samples gathered from shards of one layout, from which the columns of batches are cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.layout import Cells, ColumnWalk, ShardLayout
from petastorm_bridge.mds.ragged import Int64, byte_offsets
from petastorm_bridge.mds.shard import Shard

Rows: TypeAlias = "range | Int64"
"""Which rows of a shard, by their numbers from 0."""


class Memory:
    """Memory for the records of one window after the other, of which only the last one is in use.

    New memory takes longer than what is copied into it.

    Args:
        size: Bytes to reserve when records come.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._bytes = np.zeros(0, np.uint8)

    def records(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array of any content, in place of what was returned before."""
        size = count * dtype.itemsize
        if len(self._bytes) < size:
            # Pages come when they are written to. NumPy asks for huge ones unless they are to be zero, which may take
            # virtual machines milliseconds each.
            self._bytes = np.zeros(max(size, self._size), np.uint8)
        return self._bytes[:size].view(dtype)


class Part:
    """Samples of one layout.

    Args:
        layout: Their columns.
        samples: Records of fixed width, or byte strings.
        order: Their positions in the order wanted; None for the order they have.
        origins: The files they came from, with the number of samples of each, for messages.

    Raises:
        ShardCorruptedError: The sizes of a sample's columns do not add up to the sample.
    """

    def __init__(
        self,
        layout: ShardLayout,
        samples: Any,
        order: Int64 | None,
        origins: Sequence[tuple[str, int]],
    ) -> None:
        self.layout = layout
        self._order = order
        self._origins = origins
        if layout.record is None:
            raw = np.frombuffer(samples.buffers()[2], np.uint8)
            self._walk = ColumnWalk(layout, raw, byte_offsets(samples), partial(_origin, origins))
        elif order is None:
            self._fields = [samples[name] for name in samples.dtype.names]
        else:
            self._fields = _opaque_fields(samples)

    def __len__(self) -> int:
        return sum(count for _, count in self._origins)

    def origin(self, row: int) -> str:
        """Return the file that a row came from."""
        return _origin(self._origins, row if self._order is None else int(self._order[row]))

    def cells(self, positions: Sequence[int], start: int, stop: int) -> list[Cells]:
        """Return the values of some columns in rows ``start`` to ``stop``, in memory of their own."""
        if self.layout.record is None:
            rows = np.arange(start, stop) if self._order is None else self._order[start:stop]
            return [self._walk.cells(position, rows) for position in positions]
        if self._order is None:
            return [self._fields[position][start:stop].copy() for position in positions]
        rows = self._order[start:stop]
        formats = self.layout.formats
        return [_values(self._fields[position][rows], formats[position]) for position in positions]


def _opaque_fields(records: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the columns of records as bytes, of which NumPy picks faster than of numbers that are not aligned."""
    fields: Any = records.dtype.fields
    return [
        np.ndarray(len(records), f"V{dtype.itemsize}", records, offset, records.strides)
        for dtype, offset in fields.values()
    ]


def _values(cells: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = cells.view(dtype.base)
    return values.reshape(-1, *dtype.shape) if dtype.shape else values


def gathered(sources: Sequence[tuple[Shard, Rows]], order: Int64 | None, memory: Memory) -> Part:
    """Return rows of some shards of one layout; a range of one shard's is not copied.

    Args:
        sources: Shards and row numbers in them.
        order: Positions in all these rows, one after the other, in the order wanted; None for that they have.
        memory: For their records.
    """
    layout = sources[0][0].layout
    origins = [(shard.path, len(rows)) for shard, rows in sources]
    record = layout.record
    if record is None:
        strings = [_strings(shard, rows) for shard, rows in sources]
        samples = strings[0] if len(strings) == 1 else pa.concat_arrays(strings)
        return Part(layout, samples, order, origins)
    shard, rows = sources[0]
    if len(sources) == 1 and isinstance(rows, range):
        assert shard.records is not None
        return Part(layout, shard.records[rows.start : rows.stop : rows.step], order, origins)
    records = memory.records(sum(count for _, count in origins), np.dtype(("V", record.itemsize)))
    start = 0
    for shard, rows in sources:
        stop = start + len(rows)
        assert shard.records is not None
        own = shard.records.view(records.dtype)
        # The rows are within the shard, so that no clipping takes place; it saves a copy.
        own.take(_numbers(rows), out=records[start:stop], mode="clip")
        start = stop
    return Part(layout, records.view(record), order, origins)


def _strings(shard: Shard, rows: Rows) -> pa.LargeBinaryArray:
    if isinstance(rows, range) and rows.step == 1:
        return shard.strings.slice(rows.start, len(rows))
    return shard.strings.take(pa.array(_numbers(rows)))


def _numbers(rows: Rows) -> Int64:
    return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows


def _origin(origins: Sequence[tuple[str, int]], position: int) -> str:
    for path, count in origins:
        if position < count:
            return path
        position -= count
    raise IndexError(position)
