"""What a worker process does with a part: write its shards, and compare them with the source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge.mds.commit import Rewrite
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.schema import DatasetSchema
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.writer import ShardWriter

from ._columns import ColumnPlan
from ._compare import compare, stored_table
from ._options import Options
from ._parts import Part, rows_at_a_time
from ._state import Destination
from ._workers import Report


@dataclass(frozen=True)
class Setup:
    """What is the same for all parts.

    Attributes:
        source: Where the rows are.
        sizes: Bytes of its row groups.
        plan: Their columns.
        destination: Where the shards go.
        options: How they are written.
    """

    source: ParquetSource
    sizes: Sequence[int]
    plan: ColumnPlan
    destination: Destination
    options: Options

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

    Args:
        setup: The conversion.
        report: Gets numbers of rows.
        part: The part.
        was_noted: Whether an earlier run has noted this part.

    Returns:
        What the writer says of them, and whether an earlier run had written them.

    Raises:
        DatasetError: A file of the source cannot be read.
        OSError: A shard cannot be written. Those before it stay, for the next run to write again.
    """
    if was_noted and (noted := setup.destination.finished(part)) is not None:
        report(part.rows)
        return noted, True
    options = setup.options
    writer = ShardWriter(
        setup.plan.schema,
        setup.destination.path,
        prefix=part.prefix,
        size_limit=options.size_limit,
        compression=options.compression,
        hashes=options.hashes,
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
    setup: Setup, report: Report, part: Part, schema: DatasetSchema, entries: list[dict[str, Any]]
) -> None:
    """Compare the shards of a part with the source: their hashes, and if asked for every value.

    Args:
        setup: The conversion.
        report: Gets numbers of rows.
        part: The part.
        schema: Of the dataset.
        entries: Index entries of the part's shards, in order.

    Raises:
        ShardCorruptedError: A shard is not what was written.
        ConversionError: A value is not that of the source.
    """
    directory = setup.destination.path
    shards = [ShardEntry.from_json(entry, directory) for entry in entries]
    tables = (stored_table(Shard(directory, entry), schema, setup.plan) for entry in shards)
    if not setup.options.is_verified:
        for table in tables:
            report(table.num_rows)
        return
    where = ", ".join(
        sorted({os.path.basename(setup.source.path_of(p)) for p in range(part.start, part.stop)})
    )
    compare(setup.batches(part), tables, where, report)
