"""Small MDS datasets, written by the engine: no Spark, shards of any size."""

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter


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
