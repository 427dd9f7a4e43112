"""Shards of which only the first bytes are here: those samples that are in them whole, or an error."""

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.writer import ShardWriter

ROWS = 40
COLUMNS = {"id": np.arange(ROWS)}
TEXTS = {**COLUMNS, "text": ["x" * (row % 3) for row in range(ROWS)]}


@pytest.mark.parametrize("columns", [COLUMNS, TEXTS], ids=["fixed", "ragged"])
def test_however_many_bytes_are_here(tmp_path, columns):
    table = pa.table(columns)
    writer = ShardWriter(table.schema, str(tmp_path))
    for batch in table.to_batches():
        writer.write(batch)
    (entry,) = commit_dataset(str(tmp_path), table.schema, writer.finish()).shards
    path = str(tmp_path / entry.basenames[0])
    raw = np.fromfile(path, np.uint8)
    ends = Shard(path, raw, ROWS, entry.layout).offsets[1:]
    counts = []
    for size in range(len(raw) + 1):
        try:
            shard = Shard(path, raw[:size], ROWS, entry.layout, len(raw))
        except ShardCorruptedError:
            assert not counts, "the header was here before"
            continue
        counts.append(shard.num_rows)
        assert shard.num_rows == np.count_nonzero(ends <= size)
        ids = np.asarray(shard.cells("id", slice(0, shard.num_rows)))
        assert ids.tolist() == list(range(shard.num_rows))
    assert (counts[0], counts[-1]) == (0, ROWS)
