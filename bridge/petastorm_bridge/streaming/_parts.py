"""Samples gathered from shards of one layout, from which the columns of batches are cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.ragged import Int64, byte_offsets
from petastorm_bridge.mds.walk import Cells, ColumnWalk

from ._layout import SampleLayout
from ._mapped import OpenShard


class _Part:
    """Samples of one layout.

    Args:
        layout: Their columns.
        order: Their positions in the order wanted; None for the order they have.
        origins: The files they came from, with the number of samples of each, for messages.
    """

    def __init__(
        self, layout: SampleLayout, order: Int64 | None, origins: Sequence[tuple[str, int]]
    ) -> None:
        self.layout = layout
        self._order = order
        self._origins = origins

    def __len__(self) -> int:
        return sum(count for _, count in self._origins)

    def origin(self, row: int) -> str:
        """Return the file that a row came from."""
        return _origin(self._origins, row if self._order is None else int(self._order[row]))


class RecordPart(_Part):
    """Samples that are records of fixed width."""

    def __init__(
        self,
        layout: SampleLayout,
        records: npt.NDArray[Any],
        order: Int64 | None,
        origins: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__(layout, order, origins)
        self._records = records
        self._chosen = records[:0]
        self._fields: tuple[Any, Sequence[int], list[npt.NDArray[Any]]] | None = None

    def cells(self, positions: Sequence[int], start: int, stop: int) -> list[Cells]:
        """Return the values of some columns in rows ``start`` to ``stop``."""
        if self._order is None:
            return [f[start:stop].copy() for f in self._fields_of(self._records, positions)]
        # Whole records first, as opaque bytes: one pass over memory instead of one a column.
        rows = stop - start
        if len(self._chosen) < rows:
            self._chosen = np.empty(rows, self._records.dtype)
        opaque = np.dtype(("V", self._records.dtype.itemsize))
        self._records.view(opaque).take(
            self._order[start:stop], out=self._chosen.view(opaque)[:rows], mode="clip"
        )
        return [f[:rows].copy() for f in self._fields_of(self._chosen, positions)]

    def _fields_of(
        self, records: npt.NDArray[Any], positions: Sequence[int]
    ) -> list[npt.NDArray[Any]]:
        # Making a view of a field takes about as long as copying a batch of its values.
        known = self._fields
        if known is None or known[0] is not records or known[1] is not positions:
            fields = [records[f"{position}"] for position in positions]
            self._fields = known = records, positions, fields
        return known[2]


class RaggedPart(_Part):
    """Samples of which some columns are of variable width.

    Raises:
        ShardCorruptedError: The sizes of a sample's columns do not add up to the sample.
    """

    def __init__(
        self,
        layout: SampleLayout,
        samples: pa.LargeBinaryArray,
        order: Int64 | None,
        origins: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__(layout, order, origins)
        raw = np.frombuffer(samples.buffers()[2], np.uint8)
        bounds = byte_offsets(samples)
        self._walk = ColumnWalk(
            layout.stored, raw, bounds[:-1], bounds[1:], partial(_origin, origins)
        )

    def cells(self, positions: Sequence[int], start: int, stop: int) -> list[Cells]:
        """Return the values of some columns in rows ``start`` to ``stop``."""
        rows = np.arange(start, stop) if self._order is None else self._order[start:stop]
        return [self._walk.cells(position, rows) for position in positions]


Part: TypeAlias = "RecordPart | RaggedPart"


def gathered(sources: Sequence[tuple[OpenShard, Int64]], order: Int64) -> Part:
    """Return chosen rows of some shards of one layout.

    Args:
        sources: Shards and row numbers in them.
        order: Positions in all these rows, one after the other, in the order wanted.
    """
    layout = sources[0][0].layout
    origins = [(shard.file.path, len(rows)) for shard, rows in sources]
    record = layout.stored.record
    if record is None:
        strings = [shard.file.take(rows) for shard, rows in sources]
        samples = strings[0] if len(strings) == 1 else pa.concat_arrays(strings)
        return RaggedPart(layout, samples, order, origins)
    records = np.empty(len(order), np.dtype(("V", record.itemsize)))
    start = 0
    for shard, rows in sources:
        stop = start + len(rows)
        shard.file.take_records(rows, records[start:stop])
        start = stop
    return RecordPart(layout, records.view(record), order, origins)


def viewed(shard: OpenShard, rows: slice) -> Part:
    """Return rows of a shard in their order; adjacent ones are not copied."""
    samples = shard.file.view(rows)
    kind = RaggedPart if shard.layout.stored.record is None else RecordPart
    return kind(shard.layout, samples, None, [(shard.file.path, len(samples))])


def _origin(origins: Sequence[tuple[str, int]], position: int) -> str:
    for path, count in origins:
        if position < count:
            return path
        position -= count
    raise IndexError(position)
