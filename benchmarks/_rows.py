"""``make_reader`` on Petastorm's own datasets, beside the same rows converted to MDS."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import _stored
from benchmarks._data import Data
from benchmarks._measure import Contestant, IncompleteEpochError, Measurement, race
from benchmarks._settings import MODULES

ARRAYS, JPEG, PNG = "rows-arrays", "rows-jpeg", "rows-png"
OURS = "bridge make_reader, 10 threads"
# Petastorm's defaults, as many threads as cores, and processes: the best of them counts.
POOLS = (("thread", 10), ("thread", 2), ("process", 2))
OUR_POOLS = (("thread", 10),)
STOCK = "converted, native StreamingDataset"
COLUMNAR = "converted, ColumnarStreamingDataset"

_NOTE = "from the opened reader on: what Petastorm takes to start its processes does not count"


def rows_arrays(data: Data) -> list[Measurement]:
    """Scalars and arrays."""
    schema, settings = _stored.array_schema(), data.settings
    size = settings.stored_rows, settings.stored_group
    return _rows_race(ARRAYS, data, schema, _stored.array_row, *size)


def rows_jpeg(data: Data) -> list[Measurement]:
    """JPEG images of the size that Petastorm's own example has."""
    return _image_race(JPEG, data, "jpeg")


def rows_png(data: Data) -> list[Measurement]:
    """The same images as PNG, of which OpenCV's reading alone is two thirds of Petastorm's time."""
    return _image_race(PNG, data, "png")


def _image_race(group: str, data: Data, codec: str) -> list[Measurement]:
    schema, settings = _stored.image_schema(codec), data.settings
    size = settings.stored_images, settings.stored_image_group
    return _rows_race(group, data, schema, _stored.image_row, *size)


def reader_name(package: str, pool: str, workers: int) -> str:
    """``petastorm make_reader, 2 processes``."""
    return f"{package} make_reader, {workers} {pool}{'es' if pool == 'process' else 's'}"


def _rows_race(  # noqa: PLR0917 - one table
    group: str, data: Data, schema: Any, row: Callable[[int], Any], rows: int, group_rows: int
) -> list[Measurement]:
    with tempfile.TemporaryDirectory(prefix="rows-") as work:
        url = _stored.write(os.path.join(work, "stored"), schema, row, rows, group_rows)
        mds = _stored.converted(url, os.path.join(work, "mds"))
        contestants = [
            reader_contestant(package, url, rows, *pool)
            for package in data.packages
            for pool in (OUR_POOLS if package == "bridge" else POOLS)
        ]
        contestants += [_stock_contestant(mds, rows), _columnar_contestant(mds, rows)]
        unit = "rows/s" if group == ARRAYS else "images/s"
        return race(group, unit, contestants, data.settings.rounds)


def reader_contestant(
    package: str, url: str, rows: int, pool: str = "thread", workers: int = 10
) -> Contestant:
    """One epoch of the rows of ``make_reader``."""
    make_reader = importlib.import_module(MODULES[package]).make_reader

    def open_rows() -> tuple[Iterator[Any], Callable[[], object]]:
        reader = make_reader(url, reader_pool_type=pool, workers_count=workers)

        def close() -> None:
            reader.stop()
            reader.join()

        return iter(reader), close

    return _contestant(
        reader_name(package, pool, workers),
        rows,
        open_rows,
        lambda row: [row.id],
        loses_rows=package == "petastorm",
    )


def _stock_contestant(mds: str, rows: int) -> Contestant:
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=mds, batch_size=1, shuffle=False)

    def ids(row: dict[str, Any]) -> list[int]:
        _decode([row.get("image")])
        return [row["id"]]

    return _contestant(STOCK, rows, lambda: (iter(dataset), _nothing), ids)


def _columnar_contestant(mds: str, rows: int) -> Contestant:
    from petastorm_bridge.streaming import ColumnarStreamingDataset

    size = min(100, rows)
    dataset = ColumnarStreamingDataset(local=mds, batch_size=size, shuffle=False, ragged="list")

    def ids(batch: dict[str, Any]) -> Sequence[int]:
        _decode(batch.get("image", []))
        return batch["id"]  # type: ignore[no-any-return]

    return _contestant(COLUMNAR, rows, lambda: (iter(dataset), _nothing), ids)


def _decode(images: Iterable[Any]) -> None:
    """Have Pillow decode images, which it does when somebody looks at them."""
    for image in images:
        np.asarray(image)


def _nothing() -> None:
    """What has nothing to close."""


def _contestant(
    name: str,
    rows: int,
    open_rows: Callable[[], tuple[Iterator[Any], Callable[[], object]]],
    ids: Callable[[Any], Sequence[int]],
    *,
    loses_rows: bool = False,
) -> Contestant:
    """A contestant that has opened its reader when its clock starts.

    Args:
        name: Of the contestant.
        rows: How many an epoch has, with the ids 0 to ``rows - 1``.
        open_rows: Returns an iterator over one epoch, and what ends it.
        ids: From what the iterator yields to the ids in it.
        loses_rows: As in `Contestant`.
    """
    opened: list[Any] = []

    def before() -> None:
        opened[:] = open_rows()

    def run() -> int:
        return sum(len(ids(one)) for one in opened[0])

    def after() -> None:
        if opened:
            opened[1]()
            opened.clear()

    def check() -> None:
        coming, close = open_rows()
        seen = [int(number) for one in coming for number in ids(one)]
        close()
        if not np.array_equal(np.sort(seen), np.arange(rows)):
            raise IncompleteEpochError(f"{name}: {len(seen)} ids where 0 … {rows - 1} were due")

    return Contestant(name, rows, run, check, after, loses_rows, _NOTE, before)
