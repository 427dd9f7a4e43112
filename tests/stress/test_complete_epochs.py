"""Every row exactly once per epoch, thousands of times, on a machine that is busy otherwise.

`PETASTORM_BRIDGE_EPOCHS=10000` makes so many epochs, as `make stress` does; the usual run a tenth.
Petastorm loses rows in up to a quarter of such epochs: its ventilator and its results queue race
at the end of short datasets, the more so on busy cores, and with few workers.
"""

import os
import time

import numpy as np
import pytest

from petastorm_bridge import pytorch
from petastorm_bridge.reader import make_batch_reader

# What keeps all cores busy needs the machine for itself: its neighbours would run at half speed.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

# rows, shards
SHAPES = [
    (1, 1),
    (2, 1),
    (1_000, 1),
    (2, 2),
    (100, 8),
    (1_000, 8),
    (17, 17),
    (1_000, 20),
    (1_000, 32),
    (1_000, 64),
]
EPOCHS = int(os.environ.get("PETASTORM_BRIDGE_EPOCHS", "1000"))
EPOCHS_PER_SHAPE = EPOCHS // len(SHAPES)
TF_EPOCHS_PER_SHAPE = 20


def test_the_shapes_are_many_and_extreme():
    assert len(SHAPES) * EPOCHS_PER_SHAPE == EPOCHS >= 1_000
    assert min(SHAPES) == (1, 1)
    assert max(shards for _, shards in SHAPES) == 64


@pytest.mark.parametrize(("rows", "shards"), SHAPES)
@pytest.mark.usefixtures("busy_cores")
def test_torch_epochs_are_complete(shard_directory, rows, shards):
    url = f"file://{shard_directory(rows, shards)}"
    random = np.random.default_rng([rows, shards])
    epochs = 0
    while epochs < EPOCHS_PER_SHAPE:
        options = _random_options(random)
        expected = options["reader"]["num_epochs"]
        ids, features = _read(url, **options)
        _check(ids, features, rows, expected, options)
        epochs += expected


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "shards"), [(2, 1), (1_000, 20), (1_000, 64)])
@pytest.mark.usefixtures("busy_cores")
def test_tensorflow_epochs_are_complete(shard_directory, rows, shards):
    from petastorm_bridge.tf_utils import make_petastorm_dataset

    url = f"file://{shard_directory(rows, shards)}"
    for workers in (1, 4) * (TF_EPOCHS_PER_SHAPE // 2):
        with make_batch_reader(url, num_epochs=1, workers_count=workers) as reader:
            blocks = [
                (block.id.numpy(), block.x.numpy()) for block in make_petastorm_dataset(reader)
            ]
        ids, features = (np.concatenate(column) for column in zip(*blocks, strict=True))
        _check(ids, features, rows, 1, {"workers_count": workers})


def _random_options(random):
    """Reader and loader options, among them those with which Petastorm loses most rows."""
    loader = str(random.choice(["DataLoader", "BatchedDataLoader"]))
    return {
        "loader": loader,
        "batch_size": int(random.choice([1, 32, 1_000])) if loader == "DataLoader" else 32,
        "capacity": int(random.choice([0, 0, 50])),
        "pause": float(random.choice([0, 0, 0, 0.001, 0.01])),
        "reader": {
            "num_epochs": int(random.choice([1] * 9 + [3])),
            "workers_count": int(random.choice([1, 2, 4, 10])),
            "shuffle_row_groups": bool(random.integers(2)),
            "shuffle_rows": bool(random.integers(2)),
            "results_queue_size": int(random.choice([1, 50])),
        },
    }


def _read(url, *, loader, batch_size, capacity, pause, reader):
    """All ids and features of all epochs; ``pause`` seconds pass between opening and reading."""
    make_loader = getattr(pytorch, loader)
    with make_loader(
        make_batch_reader(url, **reader), batch_size=batch_size, shuffling_queue_capacity=capacity
    ) as batches:
        time.sleep(pause)
        columns = [(batch["id"].numpy(), batch["x"].numpy()) for batch in batches]
    assert columns, f"no batch at all: {reader}"
    ids, features = zip(*columns, strict=True)
    return np.concatenate(ids), np.concatenate(features)


def _check(ids, features, rows, epochs, options):
    """Each id as often as there were epochs, each with the features that belong to it."""
    counts = np.bincount(ids, minlength=rows)
    assert counts.shape == (rows,), options
    assert (counts == epochs).all(), f"ids missing or repeated: {options}"
    expected = ids[:, None].astype(np.float32) + np.arange(features.shape[1], dtype=np.float32)
    assert np.array_equal(features, expected), options
