"""A conversion from its first look at the source to its index."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import itertools
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from petastorm_bridge._workers import progress
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.dataset import MdsDataset, open_dataset

from ._parts import Part, cut_parts
from ._state import PLAN_KEY, State
from ._work import ConversionError, Setup, check_part, rewrite_shard, write_part
from ._workers import SparkPool, Task, WorkerPool

_Infos = list[dict[str, Any]]


@dataclass(frozen=True)
class Conversion:
    """A dataset that has been converted.

    Attributes:
        path: Its directory.
        rows: Number of rows.
        shards: Number of shard files.
        size: Bytes of the shard files.
        encodings: MDS encoding of each column of the shards, flags of nulls included.
        taken_over: Rows that an earlier run had written.
        was_finished: Whether an earlier run had finished it; then it was only checked.
        is_verified: Whether every value was read back and compared with the source.
    """

    path: str
    rows: int
    shards: int
    size: int
    encodings: dict[str, str]
    taken_over: int
    was_finished: bool
    is_verified: bool


def convert(setup: Setup, workers: int, shows_progress: bool, spark: Any = None) -> Conversion:
    """Convert a source whole; what is finished when this fails is kept for the next run.

    Raises:
        FileExistsError, BlockingIOError: The destination is not free.
        ValueError: The source has no rows, or the session cannot be used.
        DatasetError: The source cannot be read, or what was stored is not what it holds.
        OSError: The destination cannot be written.
        RuntimeError: A worker process has died.
    """
    parts = cut_parts(setup.source.row_counts, setup.sizes, setup.size_limit)
    rows = sum(part.rows for part in parts)
    if not rows:
        raise ValueError(
            f"{setup.source.description} has no rows, and streaming reads no empty datasets."
        )
    parts = [part for part in parts if part.rows]
    setup = replace(setup, destination=replace(setup.destination, plan=_plan(setup)))
    # Processes start while the directory is made ready, and have ended before another run may have it.
    pool = WorkerPool(min(workers, len(parts)), setup) if spark is None else SparkPool(spark, setup)
    run = _Run(setup, pool, parts, shows_progress)
    with (
        contextlib.closing(pool),
        setup.destination.claimed() as state,
        contextlib.closing(pool),
    ):
        if state is State.FINISHED:
            dataset, taken_over = run.checked(), rows
        else:
            noted = setup.destination.noted() if state is State.BEGUN else set()
            dataset, taken_over = run.fill(noted)
        setup.destination.forget_notes(dataset)
    layout = dataset.shards[0].layout
    return Conversion(
        path=setup.destination.path,
        rows=dataset.num_rows,
        shards=len(dataset.shards),
        size=sum(shard.stored["bytes"] for shard in dataset.shards),
        encodings=dict(zip(layout.names, layout.encodings, strict=True)),
        taken_over=taken_over,
        was_finished=state is State.FINISHED,
        is_verified=setup.is_verified,
    )


@dataclass(frozen=True)
class _Run:
    """A conversion, who does its work, in which parts, and whether that is shown on stderr."""

    setup: Setup
    pool: WorkerPool | SparkPool
    parts: Sequence[Part]
    shows_progress: bool

    def fill(self, noted: Collection[int]) -> tuple[MdsDataset, int]:
        """Write all shards and the index; return the dataset, and how many rows an earlier run had written.

        Args:
            noted: Numbers of the parts that an earlier run has noted.
        """
        setup = self.setup
        tasks = [(write_part, (part, part.number in noted)) for part in self.parts]
        done = self._done("Converting", tasks)
        counts = [len(infos) for infos, _ in done]
        dataset = commit_dataset(
            setup.destination.path,
            setup.plan.schema,
            [info for infos, _ in done for info in infos],
            extra={"converted_from": setup.plan.origin, PLAN_KEY: setup.destination.plan},
            declared=setup.plan.declared,
            # What an earlier run wrote was taken over by its hashes.
            check=functools.partial(self._check, counts) if setup.is_verified else None,
            map_shards=self._map_shards,
        )
        taken_over = [
            part for part, (_, was_there) in zip(self.parts, done, strict=True) if was_there
        ]
        return dataset, sum(part.rows for part in taken_over)

    def checked(self) -> MdsDataset:
        """Check the dataset that an earlier run of the same plan has made, and return it."""
        path = self.setup.destination.path
        dataset = open_dataset(path)
        prefixes = [".".join(shard.basenames[0].split(".")[:2]) for shard in dataset.shards]
        number = collections.Counter(prefixes)
        written = [part.prefix for part in self.parts for _ in range(number[part.prefix])]
        if prefixes != written or dataset.num_rows != sum(part.rows for part in self.parts):
            raise ConversionError(
                f"{path} was converted from this source, but its index names other shards than were written. "
                "Delete the directory and convert again."
            )
        self._check([number[part.prefix] for part in self.parts], dataset)
        return dataset

    def _check(self, counts: Sequence[int], dataset: MdsDataset) -> None:
        """Raise unless the shards, of which each part has so many, hold what the source holds."""
        shards = iter(dataset.shards)
        tasks = [
            (check_part, (part, dataset.schema, list(itertools.islice(shards, count))))
            for part, count in zip(self.parts, counts, strict=True)
        ]
        self._done("Checking", tasks)

    def _map_shards(self, rewrite: Any, infos: Iterable[dict[str, Any]]) -> _Infos:
        tasks = [(rewrite_shard, (rewrite, info)) for info in infos]
        return _in_order(self.pool.run(tasks, lambda _: None))

    def _done(self, doing: str, tasks: Sequence[Task]) -> list[Any]:
        rows = sum(part.rows for part in self.parts)
        with progress.showing(doing, rows, self.shows_progress) as report:
            return _in_order(self.pool.run(tasks, report))


def _in_order(results: Iterable[tuple[int, Any]]) -> list[Any]:
    by_number = dict(results)
    return [by_number[number] for number in range(len(by_number))]


def _plan(setup: Setup) -> dict[str, Any]:
    """Return what decides on the bytes of the dataset, in types that JSON reads back as they are.

    A run only goes on where this is the same; the finished dataset has it in its sidecar. Footers of the
    files, which hold sizes and statistics of all columns, tell of a file that was written again with the
    size and the time of the old one.
    """
    plan = setup.plan
    encodings = {name: field.encoding for name, field in plan.declared.items()}
    content = hashlib.sha256()
    for number, file in enumerate(setup.source.files):
        text = pa.BufferOutputStream()
        setup.source.metadata(number).write_metadata_file(text)
        content.update(json.dumps([file.path, file.size, file.mtime]).encode())
        content.update(text.getvalue())
    return {
        "source": {"place": setup.source.description, "sha256": content.hexdigest()},
        "columns": [[f.name, str(f.type), encodings.get(f.name)] for f in plan.schema],
        "size limit": setup.size_limit,
        "compression": setup.compression,
        "hashes": list(setup.hashes),
    }
