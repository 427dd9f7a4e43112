"""The original, as the harness runs it, gives the same rows in the same order every time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parity_harness import HAS_ORIGINAL

pytestmark = pytest.mark.skipif(not HAS_ORIGINAL, reason="asks Petastorm, which is not installed")

_FILES = 3
_ROWS = 6
_EPOCHS = 2
_PASSES = 30


def test_several_workers_keep_the_order(tmp_path):
    # More pieces of row groups than two workers are handed at once: without the patches one pass in
    # five of Petastorm's is out of order, or short.
    from parity_harness.original import repeatable
    from petastorm import make_batch_reader

    urls = []
    for number in range(_FILES):
        ids = np.arange(_ROWS) + _ROWS * number
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet")
        urls.append(f"file://{tmp_path}/{number}.parquet")

    def one_pass():
        with make_batch_reader(
            urls,
            workers_count=2,
            num_epochs=_EPOCHS,
            shuffle_row_groups=False,
            shuffle_row_drop_partitions=3,
        ) as reader:
            return np.concatenate([batch.id for batch in reader]).tolist()

    with repeatable():
        passes = [one_pass() for _ in range(_PASSES)]

    assert passes == [[*range(_FILES * _ROWS)] * _EPOCHS] * _PASSES
