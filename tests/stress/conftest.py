"""Datasets for the stress tests, written by the engine itself: no Spark, any number of shards."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge.mds.dataset import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

FEATURES = 16


@pytest.fixture(scope="session")
def shard_directory(tmp_path_factory):
    """``(rows, shards)`` → directory of a dataset: ``id`` is 0 … rows-1, ``x`` follows from it."""
    written = {}

    def directory(rows, shards):
        if (rows, shards) not in written:
            written[rows, shards] = _write(tmp_path_factory.mktemp("mds"), rows, shards)
        return written[rows, shards]

    return directory


@pytest.fixture
def busy_cores():
    """Every core has something else to do, at the same priority, while the test runs."""
    spin = "while True: pass"
    spinners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


def _write(directory, rows, shards):
    infos = []
    batch = None
    for number, ids in enumerate(np.array_split(np.arange(rows), shards)):
        batch = pa.RecordBatch.from_pydict(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.FixedSizeListArray.from_arrays(
                    pa.array(features(ids).ravel(), pa.float32()), FEATURES
                ).cast(pa.list_(pa.float32())),
            }
        )
        writer = ShardWriter(batch.schema, str(directory), prefix=f"shard.{number:05}")
        writer.write(batch)
        infos += writer.finish()
    assert len(infos) == shards
    commit_dataset(str(directory), batch.schema, infos)
    return str(directory)


def features(ids):
    """The ``x`` of each id, so that a test can tell that rows were not mixed up."""
    return np.asarray(ids, np.float32)[:, None] + np.arange(FEATURES, dtype=np.float32)
