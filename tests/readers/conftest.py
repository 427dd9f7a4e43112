"""Small datasets, written by the engine, and readers on them."""

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge import make_batch_reader
from petastorm_bridge.mds.dataset import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter


@pytest.fixture
def write(tmp_path):
    """``write(table, rows=[4, 6])`` → url of a dataset with shards of so many rows."""

    def write(table, rows=None, name="data"):
        directory = tmp_path / name
        directory.mkdir()
        infos = []
        start = 0
        for number, count in enumerate(rows or [table.num_rows]):
            writer = ShardWriter(table.schema, str(directory), prefix=f"shard.{number:05}")
            for batch in table.slice(start, count).to_batches():
                writer.write(batch)
            infos += writer.finish()
            start += count
        assert start == table.num_rows
        commit_dataset(str(directory), table.schema, infos)
        return f"file://{directory}"

    return write


@pytest.fixture
def numbered(write):
    """``numbered(10, [4, 6])`` → url of a dataset with ``id`` 0 … 9 and ``x`` twice that."""

    def numbered(total, rows=None, name="data"):
        ids = np.arange(total)
        table = pa.table({"id": ids, "x": (ids * 2).astype(np.float32)})
        return write(table, rows, name)

    return numbered


@pytest.fixture
def ids_of():
    """Return the ids a torch loader yields, in order, as a list."""
    from petastorm_bridge.pytorch import DataLoader

    def ids_of(url, *, loader=DataLoader, batch_size=4, capacity=0, **options):
        with make_batch_reader(url, **options) as reader:
            batches = loader(reader, batch_size=batch_size, shuffling_queue_capacity=capacity)
            return [int(i) for batch in batches for i in batch["id"]]

    return ids_of
