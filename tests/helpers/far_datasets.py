"""Datasets for far places, in shards of a known size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter


def write_numbers(folder: Path, rows: int, shards: int, width: int, columns: int = 0) -> Path:
    """Write a dataset that does not compress.

    Args:
        folder: Where to; made.
        rows: Of a shard.
        shards: How many.
        width: Numbers in the list of a row, in column ``x``; 0 for none.
        columns: Columns of single numbers.
    """
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    infos = []
    for number in range(shards):
        ids = np.arange(number * rows, (number + 1) * rows)
        values = random.integers(0, 1 << 31, rows * width, np.int32)
        found = {"id": ids} | {f"c{i}": random.random(rows) for i in range(columns)}
        if width:
            offsets = np.arange(0, len(values) + 1, width, np.int32)
            found["x"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        table = pa.table(found)
        prefix = f"shard.{number:05}"
        writer = ShardWriter(
            table.schema, str(folder), prefix=prefix, size_limit=1 << 31, hashes=("xxh64",)
        )
        writer.write(table.to_batches()[0])
        infos += writer.finish()
    commit_dataset(str(folder), table.schema, infos)
    return folder
