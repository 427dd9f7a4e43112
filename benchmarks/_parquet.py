"""Parquet read directly: Petastorm's and the bridge's loaders beside threads over pyarrow."""

from __future__ import annotations

import importlib
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._measure import Contestant, Measurement, loader_contestant, race
from benchmarks._settings import MODULES, Settings
from benchmarks._table import write_parquet

if TYPE_CHECKING:
    from benchmarks._data import Data

GROUP = "direct-parquet"
CEILING = "threads over pyarrow"
SHUFFLED = "bridge DataLoader, rows shuffled"

_THREADS = 2

Batch = dict[str, Any]


def direct_parquet(data: Data) -> list[Measurement]:
    """The columns of the numeric table in files of one row group each, as many as partitions."""
    settings = data.settings
    with tempfile.TemporaryDirectory() as directory:
        paths = write_parquet(directory, settings)
        contestants = [
            parquet_loader(package, directory, settings, loader)
            for package in data.packages
            for loader in ("DataLoader", "BatchedDataLoader")
        ]
        contestants += [shuffled_loader(directory, settings), ceiling(paths, settings)]
        return race(GROUP, "rows/s", contestants, settings.rounds)


def shuffled_loader(directory: str, settings: Settings) -> Contestant:
    """The bridge's loader with every row in a new place."""
    return parquet_loader("bridge", directory, settings, "DataLoader", SHUFFLED, shuffle_rows=True)


def ceiling(paths: list[str], settings: Settings) -> Contestant:
    """What threads over pyarrow reach that do nothing else."""
    return loader_contestant(
        CEILING,
        settings.rows,
        lambda: nullcontext(_batches(paths, settings.batch_size)),
        lambda batch: batch["id"],
        note=f"{_THREADS} threads decode, batches are views of what they give",
    )


def parquet_loader(
    package: str,
    directory: str,
    settings: Settings,
    loader: str,
    name: str | None = None,
    **options: Any,
) -> Contestant:
    """A loader of a package over a reader of the files in a directory."""
    make_reader = importlib.import_module(f"{MODULES[package]}.reader").make_batch_reader
    make_loader = getattr(importlib.import_module(f"{MODULES[package]}.pytorch"), loader)
    return loader_contestant(
        name or f"{package} {loader}",
        settings.rows,
        lambda: make_loader(
            make_reader(f"file://{directory}", num_epochs=1, **options),
            batch_size=settings.batch_size,
        ),
        lambda batch: batch["id"],
        loses_rows=package == "petastorm",
    )


def _batches(paths: list[str], size: int) -> Iterator[Batch]:
    """Yield batches of tensors of the files' rows, with nothing but what that takes."""
    carried: Batch = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = deque(pool.submit(_columns, path) for path in paths[: 2 * _THREADS])
        coming = iter(paths[2 * _THREADS :])
        while waiting:
            columns = waiting.popleft().result()
            waiting.extend(pool.submit(_columns, path) for path in [next(coming, None)] if path)
            if carried:
                columns = {n: np.concatenate([carried[n], c]) for n, c in columns.items()}
            rows = len(columns["id"])
            whole = rows - rows % size
            for start in range(0, whole, size):
                yield _tensors(columns, start, start + size)
            carried = {name: column[whole:] for name, column in columns.items()}
    if len(carried["id"]):
        yield _tensors(carried, 0, len(carried["id"]))


def _columns(path: str) -> Batch:
    table = parquet.ParquetFile(path).read_row_group(0, use_threads=False)
    columns = {}
    for name in table.column_names:
        array = table.column(name).chunk(0)
        is_list = pa.types.is_list(array.type)
        values = (array.flatten() if is_list else array).to_numpy()
        columns[name] = values.reshape(len(array), -1) if is_list else values
    return columns


def _tensors(columns: Batch, start: int, stop: int) -> Batch:
    import torch

    return {name: torch.from_numpy(column[start:stop]) for name, column in columns.items()}
