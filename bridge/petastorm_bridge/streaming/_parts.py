"""Samples gathered from shards of one layout, from which the columns of batches are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.layout import Cells, ColumnWalk, ShardLayout
from petastorm_bridge.mds.ragged import Int64, byte_offsets
from petastorm_bridge.mds.shard import Shard


@dataclass(eq=False)
class _Part:
    """Samples of one layout.

    Args:
        layout: Their columns.
        samples: Records of fixed width, or byte strings.
        order: Their positions in the order wanted; None for the order they have.
        origins: The files they came from, with the number of samples of each, for messages.
    """

    layout: ShardLayout
    samples: Any
    order: Int64 | None
    origins: Sequence[tuple[str, int]]

    def __len__(self) -> int:
        return sum(count for _, count in self.origins)

    def origin(self, row: int) -> str:
        """Return the file that a row came from."""
        return _origin(self.origins, row if self.order is None else int(self.order[row]))


class RecordPart(_Part):
    """Samples that are records of fixed width."""

    _chosen: npt.NDArray[Any] | None = None
    _fields: tuple[Any, Sequence[int], list[npt.NDArray[Any]]] | None = None

    def cells(self, positions: Sequence[int], start: int, stop: int) -> list[Cells]:
        """Return the values of some columns in rows ``start`` to ``stop``."""
        if self.order is None:
            return [f[start:stop].copy() for f in self._fields_of(self.samples, positions)]
        # Whole records first, as opaque bytes: one pass over memory instead of one a column.
        rows = stop - start
        if self._chosen is None or len(self._chosen) < rows:
            self._chosen = np.empty(rows, self.samples.dtype)
        opaque = np.dtype(("V", self.samples.dtype.itemsize))
        self.samples.view(opaque).take(
            self.order[start:stop], out=self._chosen.view(opaque)[:rows], mode="clip"
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


@dataclass(eq=False)
class RaggedPart(_Part):
    """Samples of which some columns are of variable width.

    Raises:
        ShardCorruptedError: The sizes of a sample's columns do not add up to the sample.
    """

    def __post_init__(self) -> None:
        raw = np.frombuffer(self.samples.buffers()[2], np.uint8)
        origin = partial(_origin, self.origins)
        self._walk = ColumnWalk(self.layout, raw, byte_offsets(self.samples), origin)

    def cells(self, positions: Sequence[int], start: int, stop: int) -> list[Cells]:
        """Return the values of some columns in rows ``start`` to ``stop``."""
        rows = np.arange(start, stop) if self.order is None else self.order[start:stop]
        return [self._walk.cells(position, rows) for position in positions]


Part: TypeAlias = "RecordPart | RaggedPart"


def gathered(sources: Sequence[tuple[Shard, Int64]], order: Int64) -> Part:
    """Return chosen rows of some shards of one layout.

    Args:
        sources: Shards and row numbers in them.
        order: Positions in all these rows, one after the other, in the order wanted.
    """
    layout = sources[0][0].layout
    origins = [(shard.path, len(rows)) for shard, rows in sources]
    record = layout.record
    if record is None:
        strings = [shard.strings.take(pa.array(rows)) for shard, rows in sources]
        samples = strings[0] if len(strings) == 1 else pa.concat_arrays(strings)
        return RaggedPart(layout, samples, order, origins)
    records = np.empty(len(order), np.dtype(("V", record.itemsize)))
    start = 0
    for shard, rows in sources:
        stop = start + len(rows)
        assert shard.records is not None
        # The rows are within the shard, so that no clipping takes place; it saves a copy.
        shard.records.view(records.dtype).take(rows, out=records[start:stop], mode="clip")
        start = stop
    return RecordPart(layout, records.view(record), order, origins)


def viewed(shard: Shard, rows: slice) -> Part:
    """Return rows of a shard in their order; adjacent ones are not copied."""
    numbers = np.arange(rows.start, rows.stop, rows.step)
    origins = [(shard.path, len(numbers))]
    if shard.records is not None:
        return RecordPart(shard.layout, shard.records[rows], None, origins)
    if rows.step == 1:
        samples = shard.strings.slice(rows.start, len(numbers))
    else:
        samples = shard.strings.take(pa.array(numbers))
    return RaggedPart(shard.layout, samples, None, origins)


def _origin(origins: Sequence[tuple[str, int]], position: int) -> str:
    for path, count in origins:
        if position < count:
            return path
        position -= count
    raise IndexError(position)
