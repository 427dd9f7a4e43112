"""One process that reads a far dataset: ``python -m benchmarks._far_reader JOB``, of which JOB is JSON.

It reads a tiny dataset of the same kind before, which imports and starts whatever there is to start, and prints
what it has measured as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._far_places import FarMount, FarStore
from benchmarks._loaders import torch_module
from benchmarks._measure import IncompleteEpochError
from benchmarks._process import silence
from benchmarks._settings import MODULES

__all__ = ["COLUMNS", "FIRST_VALUES", "MDS", "PARQUET", "QUEUE", "WARM", "WIDE", "Found", "Job"]

# The datasets, which lie beside each other, and what the names of the tiny ones begin with.
MDS, PARQUET, WIDE, WARM = "mds", "parquet", "wide", "warm-"
COLUMNS = tuple(f"c{number:02}" for number in range(20))
FIRST_VALUES = 100
"""The array of row ``i`` begins with ``i`` modulo this, by which other rows' arrays are noticed."""

QUEUE = 10_000
"""Rows of a shuffling queue."""

_RANGE_BYTES, _AT_ONCE = 4 << 20, 16
_WITHOUT_ROWS = {"plain", "plain, a queue", "plain, everything", "index"}

# Ids of some rows, None where the dataset has none, and how their arrays begin; nothing of who reads bytes alone.
Rows = tuple[npt.NDArray[Any] | None, npt.NDArray[Any]] | None
Batch = tuple[npt.NDArray[Any], npt.NDArray[Any]]
# Opens an epoch.
Epoch = Callable[[], Iterator[Rows]]


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be read.

    Attributes:
        reader: A name of ``READERS``.
        place: Directory or URL with the datasets.
        counter: What counts the requests: a mount point, the endpoint of a store, or nothing.
        rows: Rows of the dataset.
        batch_size: Rows of a batch, and of the tiny dataset.
        epochs: How often it is read.
    """

    reader: str
    place: str
    counter: str
    rows: int
    batch_size: int
    epochs: int


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured.

    Attributes:
        seconds: Of each epoch; the first includes the opening of the dataset.
        requests: Those one after the other between the opening and the first batch.
        read: Bytes that the place gave in each epoch.
    """

    seconds: list[float]
    requests: int
    read: list[int]


def measure(job: Job) -> Found:
    """Read the tiny dataset, then the large one.

    Raises:
        IncompleteEpochError: Rows are missing or there twice, or have the arrays of others.
    """
    dataset, open_dataset = READERS[job.reader]
    counter = _counter(job.counter)
    tiny = dataclasses.replace(job, rows=job.batch_size, epochs=1)
    for _ in open_dataset(f"{job.place}/{WARM}{dataset}", tiny)():
        pass
    found = Found([], 0, [])
    open_epoch: Epoch | None = None
    for number in range(job.epochs):
        # What would otherwise befall some epochs only: Python looks at all that was imported, for a tenth of a second,
        # and the system puts on the disk what the epoch before has fetched.
        gc.collect()
        os.sync()
        counter.start_counting()
        start = time.perf_counter()
        open_epoch = open_epoch or open_dataset(f"{job.place}/{dataset}", job)
        epoch = open_epoch()
        of_opening = counter.counts()
        counter.start_counting()
        rows = [next(epoch)]
        if not number:
            requests = counter.counts().get("in_sequence", 0)
            found = dataclasses.replace(found, requests=requests)
        rows += epoch
        found.seconds.append(time.perf_counter() - start)
        read = [counts.get("bytes_read", 0) for counts in (of_opening, counter.counts())]
        found.read.append(sum(read))
        _check(job, rows)
    return found


class _NoCounter:
    """Stands for a place that counts nothing."""

    def counts(self) -> dict[str, int]:
        return {}

    def start_counting(self) -> None:
        pass


def _counter(place: str) -> Any:
    if not place:
        return _NoCounter()
    return FarStore(place) if "://" in place else FarMount(Path(place), Path(place))


def _check(job: Job, rows: Iterable[Rows]) -> None:
    if job.reader in _WITHOUT_ROWS:
        return
    known = [one for one in rows if one is not None]
    all_ids = [ids for ids, _ in known if ids is not None]
    begins = np.concatenate([begin for _, begin in known])
    wanted = np.arange(job.rows)
    if all_ids:
        ids = np.concatenate(all_ids)
        is_right = np.array_equal(np.sort(ids), wanted) and np.array_equal(
            ids % FIRST_VALUES, begins
        )
    else:
        is_right = np.array_equal(np.sort(begins), np.sort(wanted % FIRST_VALUES))
    if not is_right:
        raise IncompleteEpochError(f"{job.reader}: {len(begins)} rows, or others' arrays")


def _batches(loader: Any) -> Iterator[Batch]:
    for batch in loader:
        # Copies: loaders may use their memory again.
        yield np.array(batch["id"]), np.array(batch["values"][:, 0])


def _closing(loader: Any) -> Iterator[Batch]:
    with loader:
        yield from _batches(loader)


# --- who reads -----------------------------------------------------------------------------------


def _index(url: str, job: Job) -> Epoch:
    """Read the index, and nothing else."""
    read = _reading(url, job)

    def epoch() -> Iterator[Rows]:
        read("index.json", 0, None)
        yield None

    return epoch


def _plain(url: str, job: Job, rows: int | None = None) -> Epoch:
    """Read ranges of the shards with the first rows, or of all, several at once, and make nothing of them."""
    read = _reading(url, job)
    shards = json.loads(read("index.json", 0, None))["shards"]
    if rows is not None:
        ends = np.cumsum([shard["samples"] for shard in shards])
        shards = shards[: 1 + int(np.searchsorted(ends, rows))]
    ranges = [
        (file["basename"], start, min(start + _RANGE_BYTES, file["bytes"]))
        for file in (shard["raw_data"] for shard in shards)
        for start in range(0, file["bytes"], _RANGE_BYTES)
    ]

    def epoch() -> Iterator[Rows]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for part, (name, start, stop) in zip(
                pool.map(lambda one: read(*one), ranges), ranges, strict=True
            ):
                if len(part) != stop - start:
                    raise IncompleteEpochError(f"{name}: {len(part)} bytes")
                yield None

    return epoch


def _plain_at_once(rows: int | None, url: str, job: Job) -> Epoch:
    """Read what a shuffled first batch waits for, and give nothing before it is here."""
    read = _plain(url, job, rows)

    def epoch() -> Iterator[Rows]:
        for _ in read():
            pass
        yield None

    return epoch


def _reading(url: str, job: Job) -> Callable[[str, int, int | None], bytes]:
    """Return what reads a range of a file of the dataset; up to its end with None."""
    if "://" not in url:

        def read(name: str, start: int, stop: int | None) -> bytes:
            with open(os.path.join(url, name), "rb", buffering=0) as file:
                return file.read() if stop is None else os.pread(file.fileno(), stop - start, start)

        return read
    store = FarStore(job.counter)
    client, folder = _client(job.counter), url.rpartition("/")[2]

    def ask(name: str, start: int, stop: int | None) -> bytes:
        wanted = {} if stop is None else {"Range": f"bytes={start}-{stop - 1}"}
        answer = client.get_object(Bucket=store.bucket, Key=f"{folder}/{name}", **wanted)
        return bytes(answer["Body"].read())

    return ask


@functools.lru_cache(maxsize=1)  # to make one takes half a second
def _client(endpoint: str) -> Any:
    return FarStore(endpoint).client(connections=_AT_ONCE)


def _loader(package: str, kind: str, is_shuffled: bool, url: str, job: Job) -> Epoch:
    """A new reader for each epoch, as Petastorm's programs have."""
    make = importlib.import_module(MODULES[package]).make_batch_reader
    queue = {"shuffling_queue_capacity": QUEUE} if is_shuffled else {}

    def epoch() -> Iterator[Rows]:
        reader = make(
            url if "://" in url else f"file://{url}", num_epochs=1, shuffle_row_groups=is_shuffled
        )
        return _closing(getattr(torch_module(package), kind)(reader, job.batch_size, **queue))

    return epoch


def _one_reader(url: str, job: Job) -> Epoch:
    """One reader for all epochs, of which batches begin in one and end in the next."""
    reader = importlib.import_module(MODULES["bridge"]).make_batch_reader(
        url if "://" in url else f"file://{url}", num_epochs=job.epochs, shuffle_row_groups=False
    )
    batches = _closing(torch_module("bridge").DataLoader(reader, job.batch_size))
    carried: list[Batch] = []

    def epoch() -> Iterator[Rows]:
        missing = job.rows
        while missing:
            ids, begins = carried.pop() if carried else next(batches)
            yield ids[:missing], begins[:missing]
            if len(ids) > missing:
                carried.append((ids[missing:], begins[missing:]))
            missing -= min(missing, len(ids))

    return epoch


def _streaming(columnar: bool, workers: int, url: str, job: Job) -> Epoch:
    """What the codemod writes; one dataset for all epochs."""
    from streaming import StreamingDataLoader

    from petastorm_bridge.native import MdsDirectory
    from petastorm_bridge.streaming import ColumnarStreamingDataset

    directory = MdsDirectory(url, job.rows)
    if columnar:
        dataset: Any = ColumnarStreamingDataset(
            remote=directory.remote,
            local=directory.local,
            shuffle=True,
            batch_size=job.batch_size,
            format="torch",
        )
        return lambda: _batches(StreamingDataLoader(dataset, batch_size=None))
    return _stock(directory.remote, directory.local, workers, job)


def _stock(remote: str | None, local: str, workers: int, job: Job) -> Epoch:
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(remote=remote, local=local, shuffle=True, batch_size=job.batch_size)
    loader = StreamingDataLoader(dataset, batch_size=job.batch_size, num_workers=workers)
    return lambda: _batches(loader)


def _streaming_alone(workers: int, url: str, job: Job) -> Epoch:
    """What streaming does by itself, for what the codemod writes has to reach no more."""
    return _stock(url, tempfile.mkdtemp(), workers, job)


def _bridge_groups(columns: tuple[str, ...], url: str, _: Job) -> Epoch:
    """Row groups as they are read, without a loader."""
    from petastorm_bridge import make_batch_reader

    def epoch() -> Iterator[Rows]:
        place = url if "://" in url else f"file://{url}"
        reader = make_batch_reader(
            place, schema_fields=list(columns), num_epochs=1, shuffle_row_groups=False
        )

        def groups() -> Iterator[Rows]:
            with reader:
                for group in reader:
                    arrays = [getattr(group, name) for name in columns]
                    yield None, arrays[0][:, 0].copy()

        return groups()

    return epoch


def _pyarrow(columns: tuple[str, ...], url: str, job: Job) -> Epoch:
    """What pyarrow itself has for datasets, as it comes."""
    from pyarrow import dataset, fs

    where: dict[str, Any] = {}
    path = url
    if "://" in url:
        path = url.partition("://")[2]
        where["filesystem"] = fs.S3FileSystem(
            access_key="testing",
            secret_key="testing",  # noqa: S106 - the store on this machine takes any
            endpoint_override=job.counter,
            region="us-east-1",
        )

    def epoch() -> Iterator[Rows]:
        files = dataset.dataset(path, format="parquet", **where)

        def batches() -> Iterator[Rows]:
            for batch in files.to_batches(columns=list(columns)):
                if len(batch):
                    first = batch.column(0).flatten().to_numpy()
                    yield None, first.reshape(len(batch), -1)[:, 0].copy()

        return batches()

    return epoch


# The dataset that each of them reads, and what opens it.
READERS: dict[str, tuple[str, Callable[[str, Job], Epoch]]] = {
    "plain": (MDS, _plain),
    "plain, a queue": (MDS, functools.partial(_plain_at_once, QUEUE)),
    "plain, everything": (MDS, functools.partial(_plain_at_once, None)),
    "index": (MDS, _index),
    "in order": (MDS, functools.partial(_loader, "bridge", "DataLoader", False)),
    "in order, one reader": (MDS, _one_reader),
    "shuffled": (MDS, functools.partial(_loader, "bridge", "DataLoader", True)),
    "columnar": (MDS, functools.partial(_streaming, True, 0)),
    "stock, 0 workers": (MDS, functools.partial(_streaming, False, 0)),
    "stock, 4 workers": (MDS, functools.partial(_streaming, False, 4)),
    "streaming, 0 workers": (MDS, functools.partial(_streaming_alone, 0)),
    "streaming, 4 workers": (MDS, functools.partial(_streaming_alone, 4)),
    "petastorm": (
        PARQUET,
        functools.partial(_loader, "petastorm", "BatchedDataLoader", False),
    ),
    "parquet": (PARQUET, functools.partial(_loader, "bridge", "DataLoader", False)),
    "all columns": (WIDE, functools.partial(_bridge_groups, COLUMNS)),
    "one column": (WIDE, functools.partial(_bridge_groups, COLUMNS[:1])),
    "pyarrow, all columns": (WIDE, functools.partial(_pyarrow, COLUMNS)),
    "pyarrow, one column": (WIDE, functools.partial(_pyarrow, COLUMNS[:1])),
}


def main(job: str) -> None:
    """Measure and print it."""
    silence()
    print(json.dumps(dataclasses.asdict(measure(Job(**json.loads(job))))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
