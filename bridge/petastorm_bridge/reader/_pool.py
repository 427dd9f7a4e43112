"""Running a job over visits: in order, a bounded number ahead, in this thread or in workers.

Results come back in the order of the visits whatever the number of workers. Nothing runs before the
first result is asked for, and never more than a window of visits, or 256 MiB of blocks, ahead of the
consumer; stopping cancels what has not begun and waits, a few seconds, for what has.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from multiprocessing import util
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block, Column
from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge._workers.process import WorkerEndedError, WorkerProcesses
from petastorm_bridge._workers.threads import Threads, usable_cores
from petastorm_bridge._workers.worker import dumps

from ._job import Job
from ._plan import Visit

logger = logging.getLogger(__name__)

# What may be read ahead of the consumer; a block of each worker that works may go beyond it.
_AHEAD_BYTES = 256 << 20
_PATIENCE_SECONDS = 0.05
# Threads count as busy from this share of their time on.
_BUSY = 0.5
_WARM_UP_SECONDS = 2.0
_LOOK_SECONDS = 0.4


class InlinePool:
    """Does everything in the consumer's thread (``reader_pool_type='dummy'``)."""

    begun = taken = ready = 0

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        """Yield the block of every visit, in order."""
        # A generator, not map(): a StopIteration from a user's function must not end the pass.
        for visit in visits:
            yield job.run(visit)

    def close(self) -> None:
        """Do nothing."""


class WorkerPool:
    """Has visits done in threads, or by processes that threads wait for.

    As many threads as there are cores start at once, the others when cores are idle; processes all start
    at once.

    Attributes:
        begun: Visits that were handed to workers so far.
        taken: Blocks that were taken from them.
    """

    def __init__(self, workers: int, queue_size: int, *, in_processes: bool = False) -> None:
        self._workers = workers
        self._window = max(workers, min(2 * workers, queue_size))
        self._in_processes = in_processes
        # So many visits are in work however large their blocks are.
        self._least = workers if in_processes else min(workers, usable_cores())
        self._threads: Threads | None = None
        self._processes: WorkerProcesses | None = None
        self._run: Callable[[Visit], Block]
        self._looked_at = 0.0, 0.0  # when the threads were, and how long they had been active
        self._began = 0.0
        self._pid = 0
        self._closed = False
        self._lock = ForkSafeLock()
        self.begun = self.taken = 0
        self._pending: deque[Future[Block] | Visit] = deque()

    @property
    def ready(self) -> int:
        """Blocks of the pass that began last which wait to be taken."""
        return sum(isinstance(each, Future) and each.done() for each in self._pending.copy())

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        """Yield the block of every visit, in order.

        The iterator is for one thread at a time, and ``visits`` is read in it. After :meth:`close`
        it does in that thread what was not handed to workers before.

        Raises:
            CancelledError: The pool was closed before a worker began with a visit it was handed.
            ImportError: Neither cloudpickle nor pyspark is installed, one of which processes need.
            TypeError: The user's functions cannot be pickled for processes.
            RuntimeError: A worker process died, or this process is a fork of the one that has the
                workers.
            BaseException: Whatever reading, a predicate or a transform raised, in the place of the
                block it is about.
        """
        pending: deque[Future[Block] | Visit] = deque()
        self._pending = pending
        ahead = self._workers  # until it is known how large blocks are
        try:
            for visit in itertools.islice(visits, ahead):
                pending.append(self._submit(job, visit))
            while pending:
                self._check_process()
                first = pending.popleft()
                block = job.run(first) if isinstance(first, Visit) else self._result(first)
                self.taken += 1
                if block.num_rows:
                    ahead = self._ahead(_bytes(block))
                for visit in itertools.islice(visits, max(0, ahead - len(pending))):
                    pending.append(self._submit(job, visit))
                yield block
        finally:
            for waiting in pending:
                # Python may be on its way out, with the names of this module gone.
                if hasattr(waiting, "cancel"):
                    waiting.cancel()

    def _submit(self, job: Job, visit: Visit) -> Future[Block] | Visit:
        is_cheap = job.is_cheap(visit)
        with self._lock:  # two passes may begin at the same time
            self.begun += 1
            if is_cheap or self._closed:
                return visit
            threads = self._threads or self._start(job)
            return threads.submit(functools.partial(self._run, visit), visit)

    def _start(self, job: Job) -> Threads:
        self._pid = os.getpid()
        if self._in_processes:
            self._processes = processes = WorkerProcesses(_pickled(job))
            self._run = functools.partial(_visit_in, processes)
            util.Finalize(self, processes.kill, exitpriority=1)

            def kill(_: list[Any]) -> bool:
                processes.kill()
                return True

            self._threads = Threads("petastorm-bridge-process", self._least, give_up=kill)
        else:
            self._run = job.run
            warn = functools.partial(_warn_of_stuck, job.source.description)
            self._threads = Threads("petastorm-bridge", self._least, give_up=warn)
        self._began = time.monotonic()
        self._looked_at = time.perf_counter(), 0.0
        return self._threads

    def _ahead(self, block_bytes: int) -> int:
        """Return how many visits may be in work or wait, if their blocks are like this one."""
        fitting = _AHEAD_BYTES // max(block_bytes, 1)
        return max(self._least, min(self._window, fitting))

    def _result(self, future: Future[Block]) -> Block:
        """Wait for a block; while that takes long, more threads may start."""
        while not future.done():
            wait((future,), _PATIENCE_SECONDS)
            threads = self._threads
            if not future.done() and threads is not None and threads.most < self._workers:
                self._grow(threads)
        return future.result()

    def _grow(self, threads: Threads) -> None:
        """Start one more thread if the threads there are were active for less than half of the time.

        Threads beyond the number of cores serve where a store, a mount or a transform is waited for; where
        the cores are busy they only get in each other's way.
        """
        before, active_before = self._looked_at
        now = time.perf_counter()
        if now - before < _LOOK_SECONDS:
            return
        active, count = threads.active_seconds()
        self._looked_at = now, active
        # The first visits also import packages, for which all threads but one wait.
        is_warm = self.taken or time.monotonic() - self._began > _WARM_UP_SECONDS
        if is_warm and active - active_before < _BUSY * (now - before) * count:
            threads.grow()

    def _check_process(self) -> None:
        """Refuse to wait for workers that a fork does not have: it copies no threads."""
        if self._threads is not None and self._pid != os.getpid():
            raise RuntimeError(
                f"This reader was opened and used in another process ({self._pid}), of which this "
                f"one ({os.getpid()}) is a fork. Its workers are there and not here. Open a reader "
                "in each process: in a DataLoader's worker, for instance, in the dataset's __iter__."
            )

    def close(self) -> None:
        """Stop, from whatever thread; a second call does nothing.

        Visits that have not begun are cancelled. Those under way get a few seconds to finish; then
        worker processes are killed, and threads left behind with a logged warning. Errors of what
        is dropped are not raised. In a fork of the process that has the workers it does nothing.
        """
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None and self._pid == os.getpid():
            threads.close()
            if self._processes is not None:
                self._processes.end()


Pool = InlinePool | WorkerPool


def _warn_of_stuck(description: str, visits: list[Visit]) -> bool:
    groups = sorted(visit.piece.group for visit in visits)
    logger.warning(
        "The reader of %s is closed, but its worker threads are still busy with row groups %s: the store, "
        "the predicate or the transform does not return. These threads are left behind; they end with "
        "their row group, or with the program.",
        description,
        ", ".join(map(str, groups)),
    )
    return False


def _bytes(block: Block) -> int:
    """Return the bytes that a block's columns take in memory, objects counted as their pointers."""
    return sum(int(getattr(column, "nbytes", 0)) for column in block.columns.values())


# Visits in worker processes.


def _pickled(job: Job) -> bytes:
    try:
        return dumps(functools.partial(_visited, job))
    except ImportError:
        raise
    except Exception as error:
        raise TypeError(
            "reader_pool_type='process' sends the transform and the predicate to its workers, but "
            f"they cannot be pickled: {error}. Open files, sockets, locks and sessions inside the "
            "function, or use reader_pool_type='thread'."
        ) from error


def _visited(job: Job, visit: Visit, report: Callable[[Any], object]) -> Any:
    del report
    return pack_block(job.run(visit))


def _visit_in(processes: WorkerProcesses, visit: Visit) -> Block:
    try:
        return unpack_block(processes.run(visit))
    except WorkerEndedError as error:
        raise RuntimeError(
            f"A worker process of the reader ended {error} while it read row group "
            f"{visit.piece.group}. Its output may say why; SIGKILL often means that memory ran out: use "
            "fewer workers or smaller row groups. reader_pool_type='dummy' runs the same work in this "
            "process."
        ) from error


def pack_block(block: Block) -> Any:
    """Return a block in a form that can be sent to another process without more than its rows.

    Arrow pickles the whole buffers behind a slice, its IPC format only the slice; NumPy copies what
    is not contiguous into the pickle.
    """
    arrow = {n: c for n, c in block.columns.items() if isinstance(c, pa.Array)}
    others = {n: _contiguous(c) for n, c in block.columns.items() if n not in arrow}
    ipc = None
    if arrow:
        batch = pa.RecordBatch.from_arrays(list(arrow.values()), list(arrow))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        ipc = sink.getvalue()
    return list(block.columns), others, ipc, block.num_rows, block.ends_epoch


def _contiguous(column: Column) -> Column:
    if isinstance(column, np.ndarray) and not column.dtype.hasobject:
        return np.ascontiguousarray(column)
    return column


def unpack_block(packed: Any) -> Block:
    """Return the block that :func:`pack_block` was given."""
    names, columns, ipc, num_rows, ends_epoch = packed
    if ipc is not None:
        (batch,) = pa.ipc.open_stream(ipc)
        columns |= {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    return Block({name: columns[name] for name in names}, num_rows, ends_epoch)
