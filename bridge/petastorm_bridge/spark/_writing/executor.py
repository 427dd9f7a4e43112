"""What runs inside Spark's Python workers: record batches in, shard files on disk.

Nothing here may need torch, streaming, pandas or the session. Functions sent to executors capture
plain values only.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.commit import Rewrite
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.spark._directory.store import Store

# Starts the one line of a failed task that is worth showing on the driver.
ERROR_MARK = "petastorm-bridge:"

# One row per partition: its number, its rows, and the entries of its shards as JSON.
RESULT_SCHEMA = "partition int, num_rows long, shards string"
_RESULT = pa.schema([("partition", pa.int32()), ("num_rows", pa.int64()), ("shards", pa.string())])

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class WriteTask:
    """What every partition needs to know.

    Attributes:
        store: Where the shards go; made by the driver, must be visible here.
        url: Its URL, for messages.
        schema: Serialised Arrow schema of the columns to write; empty to count rows only.
        size_limit: Bytes per shard.
        compression: MDS compression, or None.
    """

    store: Store
    url: str
    schema: bytes
    size_limit: int
    compression: str | None


def rewrite_shards(
    store: Store, rewrite: Rewrite, infos: list[dict[str, Any]], positions: Batches
) -> Batches:
    """Rewrite the shards at some positions; runs in a task of ``mapInArrow``."""
    for batch in positions:
        for position in batch.column(0).to_pylist():
            with _explained("rewrite a shard"):
                info = _rewrite(store, rewrite, infos[position])
            yield _result(position, int(info["index"]["samples"]), [info])


def _rewrite(store: Store, rewrite: Rewrite, info: dict[str, Any]) -> dict[str, Any]:
    entry = info["index"]["zip_data"] or info["index"]["raw_data"]
    with store.writing() as directory:
        store.fetch([entry["basename"]], directory)
        return rewrite(directory, info)


def write_partition(task: WriteTask, batches: Batches) -> Batches:
    """Write the shards of a partition; runs in a task of ``mapInArrow``.

    File names carry the partition and the task attempt, so that attempts never touch each other's
    files; only the winning attempt's row reaches the driver.
    """
    from pyspark.taskcontext import TaskContext

    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.taskAttemptId()
    schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
    infos: list[dict[str, Any]] = []
    with _explained(f"write partition {partition} to {masked(task.url)}"):
        if not task.store.is_there():
            raise FileNotFoundError(
                "the directory that the driver made is not there. The cache directory must be on "
                "storage that every machine of the cluster mounts (DBFS, a volume, NFS)"
            )
        if len(schema) == 0:
            rows = sum(batch.num_rows for batch in batches)
        else:
            prefix = f"shard.{partition:05}.a{attempt}"
            with task.store.writing() as directory:
                rows, infos = _write(task, schema, directory, prefix, batches)
    _spare_the_collector()
    yield _result(partition, rows, infos)


@functools.cache  # once
def _spare_the_collector() -> None:
    """Exempt what this worker has imported from garbage collection.

    pyspark/daemon.py collects garbage after every task and so walks over every object of every
    imported module, which takes longer than writing a small partition.
    """
    gc.collect()
    gc.freeze()


def _write(
    task: WriteTask,
    schema: pa.Schema,
    directory: str,
    prefix: str,
    batches: Iterable[pa.RecordBatch],
) -> tuple[int, list[dict[str, Any]]]:
    writer = ShardWriter(
        schema,
        directory,
        prefix=prefix,
        size_limit=task.size_limit,
        compression=task.compression,
    )
    rows = 0
    try:
        for batch in batches:
            writer.write(_conform(batch, schema))
            rows += batch.num_rows
        return rows, writer.finish()
    except BaseException:
        # Also when Spark cancels the task: GeneratorExit, or a broken pipe from its stream.
        writer.abort()
        raise


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with exactly the types to write.

    Spark labels timestamps with the session's zone, gives intervals as durations and, if so
    configured, strings with large offsets; the values are the same.

    Raises:
        ValueError: A timestamp does not fit into the nanoseconds that are to be written.
    """
    arrays = [
        column if column.type == field.type else _cast(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        if "out of bounds timestamp" not in str(error):
            raise
        raise ValueError(
            f"column {field.name!r} holds a timestamp outside the years 1678 to 2261, which "
            "nanoseconds cannot hold: clip it or cast it to a number"
        ) from error


def _result(partition: int, rows: int, infos: list[dict[str, Any]]) -> pa.RecordBatch:
    row = {"partition": partition, "num_rows": rows, "shards": json.dumps(infos)}
    return pa.RecordBatch.from_pylist([row], schema=_RESULT)


@contextlib.contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Give an operating system error one line that says what failed, where and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        host = socket.gethostname()
        raise RuntimeError(f"{ERROR_MARK} cannot {doing} on host {host}: {reason}.") from error
