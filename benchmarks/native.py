"""Races of streaming's own dataset against the columnar and the mapped one.

All read the same kind of shards, and all take their order from streaming: without shuffling, or with
its default algorithm, ``py1e``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from benchmarks._data import Data
from benchmarks._loaders import native_contestant, torch_contestant
from benchmarks._measure import (
    Contestant,
    IncompleteEpochError,
    Measurement,
    loader_contestant,
    race,
)

COLUMNAR = "columnar StreamingDataLoader"
STOCK = {True: "native StreamingDataset, by index", False: "native StreamingDataset, iterated"}
MAPPED = {True: "MappedStreamingDataset, by index", False: "MappedStreamingDataset, iterated"}

_KEPT = "dataset and loader kept between epochs"
_FEWER = "fewer rows, because it is slow"


def native_sequential(data: Data) -> list[Measurement]:
    """Batches and single samples in stored order."""
    return _native_race("native-sequential", data, shuffle=False)


def native_shuffled(data: Data) -> list[Measurement]:
    """Batches and single samples in the order of ``py1e``."""
    return _native_race("native-shuffled", data, shuffle=True)


def _native_race(group: str, data: Data, *, shuffle: bool) -> list[Measurement]:
    settings = data.settings
    capacity = settings.shuffling_queue_capacity if shuffle else 0
    contestants = [
        native_contestant(data.native, settings, workers=0, shuffle=shuffle),
        _columnar_contestant(data, shuffle=shuffle),
        torch_contestant("bridge", data.numeric["bridge"], settings, capacity=capacity),
        *[
            _sample_contestant(names, data, shuffle=shuffle, by_index=by_index)
            for by_index in (True, False)
            for names in (STOCK, MAPPED)
        ],
    ]
    return race(group, "rows/s", contestants, settings.rounds)


def _columnar_contestant(data: Data, *, shuffle: bool) -> Contestant:
    from streaming import StreamingDataLoader

    from petastorm_bridge.streaming import ColumnarStreamingDataset

    converter = data.numeric["bridge"]
    dataset = ColumnarStreamingDataset(
        local=converter.cache_dir_url.removeprefix("file://"),
        batch_size=data.settings.batch_size,
        shuffle=shuffle,
        format="torch",
    )
    loader = StreamingDataLoader(dataset, batch_size=None)
    return loader_contestant(
        COLUMNAR, len(converter), lambda: nullcontext(loader), lambda b: b["id"], note=_KEPT
    )


def _sample_contestant(
    names: dict[bool, str], data: Data, *, shuffle: bool, by_index: bool
) -> Contestant:
    """Single samples, without a loader: the same order by index as by iterating."""
    from streaming import StreamingDataset

    from petastorm_bridge.streaming import MappedStreamingDataset

    name, rows = names[by_index], data.settings.native_rows
    made = StreamingDataset if names is STOCK else MappedStreamingDataset
    dataset = made(local=data.native, batch_size=data.settings.batch_size, shuffle=shuffle)
    order: Iterable[int] = range(rows)
    if shuffle:
        order = np.random.default_rng(0).permutation(rows).tolist()
    samples: Callable[[], Iterable[Any]] = lambda: dataset  # noqa: E731 - one of two
    if by_index:
        samples = lambda: map(dataset.__getitem__, order)  # noqa: E731

    def check() -> None:
        seen = np.fromiter((sample["id"] for sample in samples()), np.int64)
        if not np.array_equal(np.sort(seen), np.arange(rows)):
            raise IncompleteEpochError(f"{name}: {len(seen)} ids where 0 … {rows - 1} were due")

    return Contestant(name, rows, lambda: _count(samples()), check, note=_FEWER)


def _count(samples: Iterable[Any]) -> int:
    return sum(1 for _ in samples)
