"""Small MDS datasets, written and read by the engine: no Spark, shards of any size."""

import os

import pyarrow as pa

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.decode import column_array
from petastorm_bridge.mds.shard import open_shard
from petastorm_bridge.mds.writer import ShardWriter

# The beginning of programs that import this module.
IMPORTABLE = f"import sys; sys.path.append({os.path.dirname(__file__)!r})\n"


def write_dataset(directory, table, rows=None):
    """Write a table with shards of so many rows each (one shard by default); return its `file://` URL."""
    rows = rows or [table.num_rows]
    assert sum(rows) == table.num_rows
    directory.mkdir(exist_ok=True)
    infos = []
    start = 0
    for number, count in enumerate(rows):
        writer = ShardWriter(table.schema, str(directory), prefix=f"shard.{number:05}")
        for batch in table.slice(start, count).to_batches():
            writer.write(batch)
        infos += writer.finish()
        start += count
    commit_dataset(str(directory), table.schema, infos)
    return f"file://{directory}"


def read_table(dataset):
    """Return a whole dataset as one Arrow table."""
    schema = pa.schema([pa.field(f.name, f.type) for f in dataset.schema.fields])
    tables = []
    for entry in dataset.shards:
        shard = open_shard(dataset.directory, entry)
        arrays = [column_array(shard, f, slice(None)) for f in dataset.schema.fields]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()
