"""Text, bytes, large rows, wide tables, many files and tiny shards, and four times as many of them: time and memory.

Every figure is of a process of its own. Run as a script this module is that process:
``python -m benchmarks._growth PACKAGE JOB PLACE`` prints how many rows came, ms and MiB.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._data import Data
from benchmarks._measure import IncompleteEpochError, Measurement
from benchmarks._process import cost, last_line, silence
from benchmarks._settings import MODULES, SEED, Settings

GROWTH = 4
TEXT, RAGGED, BYTES, LARGE = "text", "ragged text", "bytes", "rows of 4 MiB"
FILES, SHARDS = "opening many files", "first batch of tiny shards"
WIDE, WIDE_PARQUET = "torch batches of a wide table", "a wide Parquet file"
EPOCHS = (TEXT, RAGGED, BYTES, LARGE, WIDE, WIDE_PARQUET)

_CHARACTERS, _LARGE = 1000, 4 << 20
_WIDE_ROWS = 4_000
_FILE_ROWS, _FILE_COLUMNS, _SHARD_ROWS, _BATCH = 10, 10, 4, 256
# Petastorm ends an epoch early in some of the tries.
_MAX_REPEATS = 20


def growth_time(data: Data) -> list[Measurement]:
    """Milliseconds from the call that opens to the end of the epoch, the open reader or the first batch."""
    return _race("growth-time", "ms", 0, data)


def growth_memory(data: Data) -> list[Measurement]:
    """Peak resident memory of it above what the process had after its imports, in MiB."""
    return _race("growth-memory", "MiB", 1, data)


def case_name(package: str, job: str, growth: int = 1) -> str:
    """How a package at a job is called in the results."""
    return f"{package}, {job}" + (f", {growth} times as much" if growth > 1 else "")


def _race(group: str, unit: str, figure: int, data: Data) -> list[Measurement]:
    return [
        Measurement(group, name, unit, rows, tuple(pair[figure] for pair in pairs))
        for name, rows, pairs in _measured(data.settings, data.packages)
    ]


@functools.lru_cache(maxsize=1)  # for the second of two races in one process
def _measured(
    settings: Settings, packages: tuple[str, ...]
) -> list[tuple[str, int, list[tuple[float, float]]]]:
    """Return, of every contestant, its name, its rows, and time and memory of each round."""
    found: dict[str, tuple[int, list[tuple[float, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="growth-") as work:
        contestants = [
            (case_name(package, job, growth), package, job, *_written(work, package, job, settings, growth))
            for growth in (1, GROWTH)
            for job in (*EPOCHS, FILES, SHARDS)
            for package in (("bridge", "native") if job == SHARDS else packages)
        ]  # fmt: skip
        for _ in range(settings.slow_rounds):
            for name, package, job, place, rows in contestants:
                found.setdefault(name, (rows, []))[1].append(_probe(package, job, place, rows))
    return [(name, rows, pairs) for name, (rows, pairs) in found.items()]


def _written(work: str, package: str, job: str, settings: Settings, growth: int) -> tuple[str, int]:
    """Return where a job's data are for a package, and how many rows it has to deliver."""
    place = Path(work, f"{job}-{growth}")
    if job == SHARDS:
        rows = settings.growth_shards * growth * _SHARD_ROWS
        if not place.exists():
            _write_shards(place, rows)
        return str(place), min(rows, _BATCH)
    if job == FILES:
        count = settings.growth_files * growth
        if not place.exists():
            place.mkdir()
            for number in range(count):
                _write_file(place / f"part-{number:06}.parquet", number)
        return str(place), count * _FILE_ROWS
    if job in {WIDE, WIDE_PARQUET}:
        columns = settings.growth_columns * growth
        rows, row_bytes = _WIDE_ROWS, columns * np.float32().itemsize
        table = functools.partial(_wide_table, rows, columns)
        group = rows // 4
    else:
        few, row_bytes = settings.growth_rows, _CHARACTERS
        if job == LARGE:
            few, row_bytes = settings.growth_large_rows, _LARGE
        rows = few * growth
        table = functools.partial(_table, job, rows, row_bytes)
        group = few // 4
    if not place.exists():
        place.mkdir()
        parquet.write_table(table(), place / "part.parquet", row_group_size=group)
    if package != "bridge" or job == WIDE_PARQUET:
        return str(place), rows
    from petastorm_bridge.convert import convert_dataset

    # Shards as large as the row groups, each sample with its own size and its place in the file.
    converted = f"{place}-mds"
    convert_dataset(f"file://{place}", converted, size_limit=group * (row_bytes + 20))
    return converted, rows


def _table(job: str, rows: int, size: int) -> pa.Table:
    rng = np.random.default_rng(SEED)
    lengths = rng.integers(0, 2 * size, rows) if job == RAGGED else np.full(rows, size)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = rng.integers(97, 123, offsets[-1], dtype=np.uint8)
    type_ = pa.binary() if job in {BYTES, LARGE} else pa.string()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.table({"id": np.arange(rows), "value": pa.Array.from_buffers(type_, rows, buffers)})


def _wide_table(rows: int, columns: int) -> pa.Table:
    rng = np.random.default_rng(SEED)
    values = {f"float{i}": rng.random(rows, np.float32) for i in range(columns)}
    return pa.table({"id": np.arange(rows), **values})


def _write_file(path: Path, number: int) -> None:
    ids = np.arange(_FILE_ROWS) + number * _FILE_ROWS
    columns = {f"double{i}": ids / (i + 1) for i in range(_FILE_COLUMNS)}
    parquet.write_table(pa.table({"id": ids, **columns}), path)


def _write_shards(place: Path, rows: int) -> None:
    from streaming import MDSWriter

    # Of an integer with its place in the file, and the descriptions of the columns.
    with MDSWriter(out=str(place), columns={"id": "int64"}, size_limit=None) as writer:
        for number in range(rows):
            writer.write({"id": number})
            if number % _SHARD_ROWS == _SHARD_ROWS - 1:
                writer.flush_shard()
                writer._reset_cache()  # noqa: SLF001 - as it does when a shard is full


def _probe(package: str, job: str, place: str, rows: int) -> tuple[float, float]:
    # Streaming leaves locks among the temporary files, and looks at all that are there.
    environment = {**os.environ, "TMPDIR": os.path.dirname(place)}
    failure = ""
    for _ in range(_MAX_REPEATS if package == "petastorm" else 1):
        line, errors = last_line("_growth", package, job, place, environment=environment)
        with contextlib.suppress(ValueError):
            count, milliseconds, mebibytes = line.split()
            if int(count) == rows:
                return float(milliseconds), float(mebibytes)
        failure = f"{line!r} where {rows} rows were due\n{errors}"
    raise IncompleteEpochError(f"{package}, {job}, {place}: {failure}")


def _run(package: str, job: str, place: str) -> int:
    """Do the job once and return how many rows it gave, or has ready."""
    if job == SHARDS:
        module = "streaming" if package == "native" else "petastorm_bridge.streaming"
        name = "StreamingDataset" if package == "native" else "ColumnarStreamingDataset"
        dataset = getattr(importlib.import_module(module), name)
        if package == "native":
            loader = importlib.import_module("streaming").StreamingDataLoader
            opened = dataset(local=place, batch_size=_BATCH, shuffle=True)
            return len(next(iter(loader(opened, batch_size=_BATCH)))["id"])
        return len(next(iter(dataset(local=place, batch_size=_BATCH, shuffle=True)))["id"])
    options: dict[str, Any] = {"num_epochs": 1, "shuffle_row_groups": False}
    make_reader = importlib.import_module(f"{MODULES[package]}.reader").make_batch_reader
    if job == WIDE:
        torch_loader = importlib.import_module(f"{MODULES[package]}.pytorch").DataLoader
        with torch_loader(make_reader(f"file://{place}", **options), batch_size=_BATCH) as loader:
            return sum(len(batch["id"]) for batch in loader)
    with make_reader(f"file://{place}", **options) as reader:
        if job == FILES:
            return len(os.listdir(place)) * _FILE_ROWS
        return sum(len(batch.id) for batch in reader)


def _main(package: str, job: str, place: str) -> None:
    # What the first batch would import is not what is measured.
    needed = "streaming" if package == "native" else f"{MODULES[package]}.reader"
    for module in ("pandas", "pyarrow.parquet", needed):
        importlib.import_module(module)
    if job == SHARDS:
        from petastorm_bridge.streaming import ColumnarStreamingDataset  # noqa: F401 - see above
    elif job == WIDE:
        importlib.import_module(f"{MODULES[package]}.pytorch")
    rows, milliseconds, mebibytes = cost(lambda: _run(package, job, place))
    print(rows, milliseconds, mebibytes)


if __name__ == "__main__":
    silence()
    _main(*sys.argv[1:])
