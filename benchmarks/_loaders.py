"""Every loader that is raced, opened as its documentation advises."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks._measure import Contestant, loader_contestant
from benchmarks._settings import MODULES, Settings


def torch_contestant(
    package: str, converter: Any, settings: Settings, *, batched: bool = False, capacity: int = 0
) -> Contestant:
    """One epoch of ``make_torch_dataloader`` with nothing set but the sizes.

    ``batched`` asks for ``data_loader_fn=BatchedDataLoader`` instead of the default loader,
    ``capacity`` for a shuffling queue of that many rows.
    """
    name = f"{package} {'BatchedDataLoader' if batched else 'DataLoader'}"
    options: dict[str, Any] = {"batch_size": settings.batch_size, "num_epochs": 1}
    if capacity:
        options["shuffling_queue_capacity"] = capacity
    if batched:
        options["data_loader_fn"] = torch_module(package).BatchedDataLoader
    return loader_contestant(
        name,
        len(converter),
        lambda: converter.make_torch_dataloader(**options),
        lambda batch: batch["id"],
        loses_rows=package == "petastorm",
    )


def tf_contestant(package: str, converter: Any, batch_size: int) -> Contestant:
    """One epoch of ``make_tf_dataset`` with nothing set but the batch size."""
    return loader_contestant(
        f"{package}, batch {batch_size}",
        len(converter),
        lambda: converter.make_tf_dataset(batch_size=batch_size, num_epochs=1),
        lambda batch: batch.id,
        loses_rows=package == "petastorm",
    )


def native_contestant(
    directory: str, settings: Settings, *, workers: int, shuffle: bool
) -> Contestant:
    """One epoch of StreamingDataLoader over StreamingDataset.

    Dataset, loader and worker processes are made once, before anything is measured: they may be
    kept from epoch to epoch, where Petastorm's loaders have to be made anew.
    """
    return loader_contestant(
        f"native StreamingDataLoader, {count_workers(workers)}",
        settings.native_rows,
        native_loader(directory, settings, workers=workers, shuffle=shuffle),
        lambda batch: batch["id"],
        note="fewer rows, because it is slow; dataset, loader and workers kept between epochs",
    )


def native_loader(
    directory: str, settings: Settings, *, workers: int, shuffle: bool
) -> Callable[[], AbstractContextManager[Iterable[Any]]]:
    """Opens (once) a StreamingDataLoader over the MDS files in ``directory``."""
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(local=directory, batch_size=settings.batch_size, shuffle=shuffle)
    loader = StreamingDataLoader(
        dataset,
        batch_size=settings.batch_size,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: nullcontext(loader)


def count_workers(workers: int) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{workers} worker" + "s" * (workers != 1)


def torch_module(package: str) -> Any:
    """``petastorm.pytorch`` or its counterpart."""
    return importlib.import_module(f"{MODULES[package]}.pytorch")


def transform_module(package: str) -> Any:
    """``petastorm.transform`` or its counterpart."""
    return importlib.import_module(f"{MODULES[package]}.transform")
