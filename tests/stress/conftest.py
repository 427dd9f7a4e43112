"""Datasets for the stress tests, written by the engine itself: no Spark, any number of shards."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from datasets import write_dataset

FEATURES = 16


@pytest.fixture(scope="session")
def shard_directory(tmp_path_factory):
    """``(rows, shards)`` → directory of a dataset: ``id`` is 0 … rows-1, ``x`` follows from it."""
    written = {}

    def directory(rows, shards):
        if (rows, shards) not in written:
            place = tmp_path_factory.mktemp("mds")
            sizes = [len(part) for part in np.array_split(np.arange(rows), shards)]
            write_dataset(place, _table(np.arange(rows)), sizes)
            written[rows, shards] = str(place)
        return written[rows, shards]

    return directory


# Ends with the process that started it, also if that is killed and cleans nothing up.
SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    pass
"""


@pytest.fixture
def busy_cores():
    """Every core has something else to do, at the same priority, while the test runs."""
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


def _table(ids):
    """The rows of these ids; ``x`` is a list of floats, of one length."""
    flat = pa.array(features(ids).ravel(), pa.float32())
    x = pa.FixedSizeListArray.from_arrays(flat, FEATURES).cast(pa.list_(pa.float32()))
    return pa.table({"id": pa.array(ids, pa.int64()), "x": x})


def features(ids):
    """The ``x`` of each id, so that a test can tell that rows were not mixed up."""
    return np.asarray(ids, np.float32)[:, None] + np.arange(FEATURES, dtype=np.float32)
