"""A small dataset with every kind of column, for tests that damage it."""

import os
from decimal import Decimal

import numpy as np
import pyarrow as pa

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

ROWS = 12


def fixed_table():
    """Columns that make a shard of plain records."""
    rows = np.arange(ROWS)
    return pa.table(
        {
            "i": pa.array(rows, pa.int32()),
            "f": pa.array(rows * 0.5, pa.float32()),
            "b": pa.array(rows % 2 == 0),
            "t": pa.array(rows * 1000, pa.int64()).cast(pa.timestamp("us")),
            "v": pa.array([[float(row), 1.0] for row in rows], pa.list_(pa.float64())),
        }
    )


def mixed_table():
    """Columns of every storage, with nulls."""
    rows = range(ROWS)
    ragged = [[row] * (row % 4) for row in rows]
    table = fixed_table()
    return (
        table.append_column("s", pa.array(["x" * row if row % 5 else None for row in rows]))
        .append_column("y", pa.array([bytes([row]) * row for row in rows]))
        .append_column("w", pa.array([bytes([row]) * 3 for row in rows], pa.binary(3)))
        .append_column("d", pa.array([Decimal(row) / 4 for row in rows], pa.decimal128(9, 2)))
        .append_column("r", pa.array(ragged, pa.list_(pa.int16())))
        .append_column("n", pa.array([[None, 1] if row % 2 else None for row in rows]))
        .append_column("j", pa.array([["a", None, '"'][: row % 4] for row in rows]))
    )


def write(directory, table, **options):
    """Write a dataset of two shards and return its directory as a string."""
    directory = str(directory)
    os.makedirs(directory, exist_ok=True)
    options = {"min_rows": ROWS // 2, "size_limit": 1, "hashes": ("xxh64", "sha1"), **options}
    writer = ShardWriter(table.schema, directory, **options)
    for batch in table.to_batches():
        writer.write(batch)
    commit_dataset(directory, table.schema, writer.finish())
    return directory
