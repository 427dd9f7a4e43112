"""What a worker process does with a part: write its shards, and compare them with the source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge.mds.commit import Rewrite
from petastorm_bridge.mds.decode import column_array
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ragged import list_lengths
from petastorm_bridge.mds.schema import DatasetSchema
from petastorm_bridge.mds.shard import Shard, open_shard
from petastorm_bridge.mds.types import is_list
from petastorm_bridge.mds.writer import ShardWriter

from ._columns import ColumnPlan
from ._parts import Part, rows_at_a_time
from ._state import Destination
from ._workers import Report


class ConversionError(DatasetError):
    """A converted dataset does not hold what its source holds."""


@dataclass(frozen=True)
class Setup:
    """What is the same for all parts.

    Attributes:
        source: Where the rows are.
        sizes: Bytes of its row groups.
        plan: Their columns.
        destination: Where the shards go.
        size_limit: Bytes of a shard at most, before compression.
        compression: MDS compression name, or None.
        hashes: MDS hash names.
        is_verified: Whether every value is read back and compared with its source.
    """

    source: ParquetSource
    sizes: Sequence[int]
    plan: ColumnPlan
    destination: Destination
    size_limit: int
    compression: str | None
    hashes: tuple[str, ...]
    is_verified: bool

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part as the writer gets them.

        Raises:
            DatasetError: A file cannot be read, or has not as many rows as it says.
        """
        for position in range(part.start, part.stop):
            rows = rows_at_a_time(self.source.row_counts[position], self.sizes[position])
            for batch in self.source.batches(position, self.plan.types, rows):
                yield self.plan.encoded(batch)


def write_part(
    setup: Setup, report: Report, part: Part, was_noted: bool
) -> tuple[list[dict[str, Any]], bool]:
    """Write the shards of a part.

    Returns:
        What the writer says of them, and whether an earlier run had written them.

    Raises:
        DatasetError: A file of the source cannot be read.
        OSError: A shard cannot be written. Those before it stay, for the next run to write again.
    """
    if was_noted and (noted := setup.destination.finished(part)) is not None:
        report(part.rows)
        return noted, True
    writer = ShardWriter(
        setup.plan.schema,
        setup.destination.path,
        prefix=part.prefix,
        size_limit=setup.size_limit,
        compression=setup.compression,
        hashes=setup.hashes,
        declared=setup.plan.declared,
    )
    with contextlib.closing(writer):
        for batch in setup.batches(part):
            writer.write(batch)
            report(batch.num_rows)
        # The hashes in a note tell whether the shards are whole, so it need not wait for them.
        setup.destination.note(part, writer.cut())
        return writer.finish(), False


def rewrite_shard(
    setup: Setup, _: Report, rewrite: Rewrite, info: dict[str, Any]
) -> dict[str, Any]:
    """Do what committing the dataset wants done to a shard."""
    return rewrite(setup.destination.path, info)


def check_part(
    setup: Setup, report: Report, part: Part, schema: DatasetSchema, entries: Sequence[ShardEntry]
) -> None:
    """Compare the shards of a part with the source: their hashes, and if asked for every value.

    Raises:
        ShardCorruptedError: A shard is not what was written.
        ConversionError: A value is not that of the source.
    """
    directory = setup.destination.path
    tables = (_stored_table(open_shard(directory, entry), schema, setup.plan) for entry in entries)
    if not setup.is_verified:
        for table in tables:
            report(table.num_rows)
        return
    where = ", ".join(
        sorted({os.path.basename(setup.source.path_of(p)) for p in range(part.start, part.stop)})
    )
    compare(setup.batches(part), tables, where, report)


def _stored_table(shard: Shard, schema: DatasetSchema, plan: ColumnPlan) -> pa.Table:
    """Return what a shard holds, in the types that the writer got."""
    everything = slice(0, shard.num_rows)
    fields = [
        replace(field, type=plan.schema.field(field.name).type)
        if field.name in plan.declared
        else field
        for field in schema.fields
    ]
    arrays = [column_array(shard, field, everything) for field in fields]
    return pa.Table.from_arrays(arrays, names=plan.schema.names)


def compare(
    batches: Iterable[pa.RecordBatch],
    tables: Iterator[pa.Table],
    where: str,
    report: Report,
) -> None:
    """Compare rows with what was stored of them, value by value.

    Raises:
        ConversionError: They differ.
    """
    rows = 0
    stored = pa.table({})
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            if not stored.num_rows:
                table = next(tables, None)
                if table is None:
                    raise ConversionError(f"Rows from {rows} on of {where} are in no shard.")
                stored = table
            count = min(batch.num_rows - start, stored.num_rows)
            _compare(batch.slice(start, count), stored.slice(0, count), rows, where)
            stored = stored.slice(count)
            start += count
            rows += count
        report(batch.num_rows)
    if stored.num_rows or next(tables, None) is not None:
        raise ConversionError(
            f"There are more rows in the shards of {where} than the {rows} there."
        )


def _compare(wanted: pa.RecordBatch, stored: pa.Table, first: int, where: str) -> None:
    for name in wanted.schema.names:
        one, other = wanted.column(name), stored.column(name).combine_chunks()
        if isinstance(other, pa.ChunkedArray):  # older releases of Arrow
            other = other.chunk(0)
        if not _is_same(one, other):
            rows = range(len(one))
            row = next((i for i in rows if not _is_same(one.slice(i, 1), other.slice(i, 1))), 0)
            raise ConversionError(
                f"Row {first + row} of {where} was not stored as it is in column {name!r}: "
                f"{_shortened(one[row])} there, {_shortened(other[row])} in the shard."
            )


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    if one.type != other.type:
        return False
    if is_list(one.type):
        same_lists = one.is_null().equals(other.is_null()) and np.array_equal(
            list_lengths(one), list_lengths(other)
        )
        return same_lists and _is_same(one.flatten(), other.flatten())
    if pa.types.is_floating(one.type):
        # MDS has no nulls among floats: they are NaN.
        return np.array_equal(_numbers(one), _numbers(other), equal_nan=True)
    return bool(one.equals(other))


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False), array.type.to_pandas_dtype())


def _shortened(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 80 else f"{text[:80]}…"
