"""Visits done by worker processes, for ``reader_pool_type='process'``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block, Column
from petastorm_bridge._workers.process import WorkerEndedError, WorkerProcesses
from petastorm_bridge._workers.worker import dumps

from ._job import Job
from ._plan import Visit


class VisitProcesses(WorkerProcesses):
    """Processes that do a reader's visits.

    Raises:
        ImportError: Neither cloudpickle nor pyspark is installed.
        TypeError: The user's functions cannot be pickled.
    """

    def __init__(self, job: Job) -> None:
        try:
            payload = dumps(functools.partial(_visited, job))
        except ImportError:
            raise
        except Exception as error:
            raise TypeError(
                "reader_pool_type='process' sends the transform and the predicate to its workers, but "
                f"they cannot be pickled: {error}. Open files, sockets, locks and sessions inside the "
                "function, or use reader_pool_type='thread'."
            ) from error
        super().__init__(payload)

    def visit(self, visit: Visit) -> Block:
        """Return the block of a visit, for any thread.

        Raises:
            RuntimeError: The process has died.
            BaseException: Whatever the user's functions raised there.
        """
        try:
            return unpack_block(self.run(visit))
        except WorkerEndedError as error:
            raise RuntimeError(
                f"A worker process of the reader ended {error} while it read row group "
                f"{visit.piece.group}. Its output may say why; SIGKILL often means that memory ran out: use "
                "fewer workers or smaller row groups. reader_pool_type='dummy' runs the same work in this "
                "process."
            ) from error


def _visited(job: Job, visit: Visit, report: Callable[[Any], object]) -> Any:
    del report
    return pack_block(job.run(visit))


def pack_block(block: Block) -> Any:
    """Return a block in a form that can be sent to another process without more than its rows.

    Arrow pickles the whole buffers behind a slice, its IPC format only the slice; NumPy copies what
    is not contiguous into the pickle.
    """
    arrow = {n: c for n, c in block.columns.items() if isinstance(c, pa.Array)}
    others = {n: _contiguous(c) for n, c in block.columns.items() if n not in arrow}
    return list(block.columns), others, _to_ipc(arrow), block.num_rows, block.ends_epoch


def unpack_block(packed: Any) -> Block:
    """Return the block that :func:`pack_block` was given."""
    names, columns, ipc, num_rows, ends_epoch = packed
    if ipc is not None:
        (batch,) = pa.ipc.open_stream(ipc)
        columns |= {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    return Block({name: columns[name] for name in names}, num_rows, ends_epoch)


def _contiguous(column: Column) -> Column:
    if isinstance(column, np.ndarray) and not column.dtype.hasobject:
        return np.ascontiguousarray(column)
    return column


def _to_ipc(columns: Mapping[str, pa.Array]) -> pa.Buffer | None:
    if not columns:
        return None
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
