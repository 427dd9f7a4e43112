"""Datasets of chosen shard sizes, and streaming's own loader as the oracle."""

import itertools

import numpy as np
from forgetting import forget_some
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.world import World

from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset

FIXED = {"id": "int64", "half": "float16", "many": "ndarray:float32:2,3", "plain": "int"}
RAGGED = {**FIXED, "text": "str", "raw": "bytes", "arrays": "ndarray:uint16"}


def sample(number):
    """A sample of which every column tells its number."""
    return {
        "id": np.int64(number),
        "half": np.float16(number % 2048),
        "many": (np.arange(6, dtype=np.float32) + number).reshape(2, 3),
        "plain": number,
        "text": "ä" * (number % 5) + str(number),
        "raw": bytes([number % 256]) * (number % 7),
        "arrays": np.full((2, 2), number % 65536, np.uint16),
    }


def write_shards(directory, sizes, columns=None, first=0, **options):
    """Write a dataset with the stock writer; returns the number after its last sample."""
    columns = columns or FIXED
    numbers = itertools.count(first)
    with MDSWriter(out=str(directory), columns=columns, **options) as writer:
        for size in sizes:
            for number in itertools.islice(numbers, size):
                made = sample(number)
                writer.write({name: made[name] for name in columns})
            writer.flush_shard()
            writer._reset_cache()
    return first + sum(sizes)


def as_rank(dataset, world):
    """Let a dataset believe that it is one rank of many, without the other ranks.

    Only what it reads depends on this world; whom it coordinates with is another one's business.
    """
    if world is not None:
        nodes, ranks, rank = world
        dataset._parallel_rank_world = World(nodes, ranks, 1, rank)
    return dataset


def stock_loader(arguments, world=None, *, dataset=StreamingDataset, drop_last=False, **options):
    forget_some()
    samples = as_rank(dataset(**arguments), world)
    size = arguments["batch_size"]
    return StreamingDataLoader(samples, batch_size=size, drop_last=drop_last, **options)


def mapped_loader(arguments, world=None, **options):
    return stock_loader(arguments, world, dataset=MappedStreamingDataset, **options)


def columnar_loader(arguments, world=None, *, drop_last=False, **options):
    own = {k: options.pop(k) for k in ("columns", "format", "ragged") if k in options}
    dataset = ColumnarStreamingDataset(**arguments, drop_last=drop_last, **own)
    return StreamingDataLoader(as_rank(dataset, world), batch_size=None, **options)


def ids(loader, most=None):
    """The ids of each batch of one epoch; of the first ``most`` batches."""
    return [batch["id"].tolist() for batch in itertools.islice(loader, most)]
