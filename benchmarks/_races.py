"""The races between loaders: what runs against what."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks._data import Data
from benchmarks._first_batch import GROUP as FIRST_BATCH
from benchmarks._first_batch import first_batch
from benchmarks._growth import growth_memory, growth_time
from benchmarks._loaders import (
    count_workers,
    native_contestant,
    tf_contestant,
    torch_contestant,
    transform_module,
)
from benchmarks._materialise import CLUSTER, FIRST_TASK, first_task, materialise_on_executors
from benchmarks._measure import Contestant, Measurement, loader_contestant, race
from benchmarks._parquet import GROUP as DIRECT_PARQUET
from benchmarks._parquet import direct_parquet
from benchmarks._rows import ARRAYS, JPEG, PNG, rows_arrays, rows_jpeg, rows_png
from benchmarks._rows_memory import GROUP as ROWS_MEMORY
from benchmarks._rows_memory import rows_memory
from benchmarks._scale import opening_memory, opening_time
from benchmarks.native import native_sequential, native_shuffled

_IMAGE_SHAPE = (3, 224, 224)
IMAGE_WORKERS = (1, 2, 4)
IMAGE_FRAMES = "bridge, 2 workers, small frames"
IMAGE_CEILING = "the bare function, 2 threads"


def torch_sequential(data: Data) -> list[Measurement]:
    """Torch loaders as they come: row groups in random order, rows in file order."""
    return _torch_race("torch-sequential", data, data.numeric, data.native)


def torch_shuffled(data: Data) -> list[Measurement]:
    """Torch loaders with a shuffling queue, against StreamingDataset's own shuffle."""
    capacity = data.settings.shuffling_queue_capacity
    return _torch_race("torch-shuffled", data, data.numeric, data.native, capacity)


def torch_scalars(data: Data) -> list[Measurement]:
    """The sequential race over a table without an array column, Petastorm's best case."""
    return _torch_race("torch-scalars", data, data.scalars, data.native_scalars)


def tensorflow(data: Data) -> list[Measurement]:
    """``make_tf_dataset`` at a large and a small batch size."""
    settings = data.settings
    contestants = [
        tf_contestant(package, data.numeric[package], batch_size)
        for batch_size in (settings.batch_size, settings.small_batch)
        for package in data.packages
    ]
    return race("tensorflow", "rows/s", contestants, settings.rounds)


def images(data: Data) -> list[Measurement]:
    """JPEG bytes, decoded and resized by PIL in a TransformSpec, with 1, 2 and 4 workers.

    Beside them the bridge's loader in frames of one batch, and the function that decodes alone.
    """
    contestants = [
        _image_contestant(package, data, workers)
        for workers in IMAGE_WORKERS
        for package in data.packages
    ]
    frames = {"transform_batch_size": data.settings.image_batch}
    contestants += [
        _image_contestant("bridge", data, 2, IMAGE_FRAMES, **frames),
        _bare_function(data),
    ]
    return race("images", "images/s", contestants, data.settings.rounds)


RACES: dict[str, Callable[[Data], list[Measurement]]] = {
    "torch-sequential": torch_sequential,
    "torch-shuffled": torch_shuffled,
    "torch-scalars": torch_scalars,
    DIRECT_PARQUET: direct_parquet,
    "tensorflow": tensorflow,
    "images": images,
    ARRAYS: rows_arrays,
    JPEG: rows_jpeg,
    PNG: rows_png,
    "native-sequential": native_sequential,
    "native-shuffled": native_shuffled,
    FIRST_BATCH: first_batch,
    ROWS_MEMORY: rows_memory,
    "opening-time": opening_time,
    "opening-memory": opening_memory,
    "growth-time": growth_time,
    "growth-memory": growth_memory,
    CLUSTER: materialise_on_executors,
    FIRST_TASK: first_task,
}


def _torch_race(
    group: str, data: Data, converters: dict[str, Any], native: str, capacity: int = 0
) -> list[Measurement]:
    settings = data.settings
    contestants = [
        torch_contestant(package, converters[package], settings, batched=batched, capacity=capacity)
        for package in data.packages
        for batched in (False, True)
    ]
    contestants += [
        native_contestant(native, settings, workers=workers, shuffle=bool(capacity))
        for workers in (0, 2)
    ]
    return race(group, "rows/s", contestants, settings.rounds)


def _bare_function(data: Data) -> Contestant:
    """Decode the same images with nothing around it; they are in memory already."""
    with data.images["bridge"].make_torch_dataloader(num_epochs=1, batch_size=1) as loader:
        reader = loader.reader
        stored = [bytes(one) for group in reader for one in group.content]

    def run() -> int:
        with ThreadPoolExecutor(2) as pool:
            return sum(1 for _ in pool.map(_decode_image, stored))

    def check() -> None:
        run()

    return Contestant(IMAGE_CEILING, len(stored), run, check)


def _image_contestant(
    package: str, data: Data, workers: int, name: str | None = None, **options: Any
) -> Contestant:
    converter = data.images[package]
    spec = transform_module(package).TransformSpec(
        _decode_images,
        edit_fields=[("image", np.float32, _IMAGE_SHAPE, False)],
        selected_fields=["id", "label", "image"],
    )
    return loader_contestant(
        name or f"{package}, {count_workers(workers)}",
        len(converter),
        functools.partial(
            converter.make_torch_dataloader,
            batch_size=data.settings.image_batch,
            num_epochs=1,
            workers_count=workers,
            transform_spec=spec,
            **options,
        ),
        lambda batch: batch["id"],
        loses_rows=package == "petastorm",
    )


def _decode_images(frame: Any) -> Any:
    """What a notebook does: every JPEG becomes a normalised float32 array, channels first."""
    frame["image"] = frame["content"].map(_decode_image)
    return frame.drop(columns=["content"])


def _decode_image(content: bytes) -> Any:
    from PIL import Image

    picture = Image.open(io.BytesIO(content)).convert("RGB").resize(_IMAGE_SHAPE[1:])
    array = np.asarray(picture, np.float32) / np.float32(255)
    return np.ascontiguousarray(array.transpose(2, 0, 1))
