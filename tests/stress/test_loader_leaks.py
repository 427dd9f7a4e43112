"""A thousand loaders in a row, half of them left early, leave nothing behind."""

import gc

import psutil
import pytest

from petastorm_bridge import pytorch
from petastorm_bridge.reader import make_batch_reader

pytestmark = pytest.mark.slow

LOADERS = 1_000
KINDS = 8
TF_DATASETS = 60
# What imports, thread stacks and the allocator take is taken by then.
SETTLED = 200
# A dataset of about 1.4 MB: if every loader kept only its first shard, the last 800 would keep
# some 140 MB.
ROWS, SHARDS = 20_000, 8
MEMORY_BOUND = 24 << 20


@pytest.mark.modern
def test_loaders_leave_nothing_behind(shard_directory, no_leaks):
    url = f"file://{shard_directory(ROWS, SHARDS)}"
    mapped = _mapped_shared_memory()
    for number in range(KINDS):
        _use_loader(url, number, mapped)
    with no_leaks():
        for number in range(SETTLED):
            _use_loader(url, number, mapped)
        settled = _memory()
        for number in range(SETTLED, LOADERS):
            _use_loader(url, number, mapped)
    assert _memory() < settled + MEMORY_BOUND


@pytest.mark.smoke
def test_loaders_close_their_shards_without_the_garbage_collector(shard_directory, no_leaks):
    url = f"file://{shard_directory(ROWS, SHARDS)}"
    mapped = _mapped_shared_memory()
    gc.disable()
    try:
        with no_leaks():
            for number in range(KINDS):
                _use_loader(url, number, mapped)
    finally:
        gc.enable()


@pytest.mark.slow
def test_tensorflow_datasets_leave_nothing_behind(shard_directory, no_leaks):
    url = f"file://{shard_directory(ROWS, SHARDS)}"
    _use_dataset(url, 0)  # TensorFlow starts its own threads
    with no_leaks():
        for number in range(TF_DATASETS):
            _use_dataset(url, number)


def _use_dataset(url, number):
    """Every second dataset is left after its first element."""
    from petastorm_bridge.tf_utils import make_petastorm_dataset

    with make_batch_reader(url, num_epochs=None if number % 2 else 1) as reader:
        rows = 0
        for block in make_petastorm_dataset(reader):
            rows += len(block.id)
            if number % 2:
                break
    assert rows == (ROWS // SHARDS if number % 2 else ROWS)


def _use_loader(url, number, mapped):
    """Every second loader is left after its first batch; all kinds take turns.

    `mapped` is what tests before this one left in shared memory. It may go at any time, as they
    left it to the garbage collector; nothing may be added.
    """
    make_loader = (pytorch.DataLoader, pytorch.BatchedDataLoader)[number // 2 % 2]
    capacity = (0, 5_000)[number // 4 % 2]
    epochs = None if number % 2 else 1
    reader = make_batch_reader(url, num_epochs=epochs, workers_count=4)
    with make_loader(reader, batch_size=1_024, shuffling_queue_capacity=capacity) as batches:
        rows = 0
        for batch in batches:
            rows += len(batch["id"])
            if number % 2:
                assert _mapped_shared_memory() <= mapped
                break
    assert rows == (1_024 if number % 2 else ROWS)


def _mapped_shared_memory():
    """What of /dev/shm this process holds in memory."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        return {line.split(maxsplit=5)[-1] for line in file if "/dev/shm" in line}


def _memory():
    gc.collect()
    return psutil.Process().memory_info().rss
