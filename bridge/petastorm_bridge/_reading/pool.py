"""Running a job over visits: in order, a bounded number ahead, in this thread or in workers.

Results come back in the order of the visits whatever the number of workers. Nothing runs before the
first result is asked for, and never more than a window of visits, or 512 MiB of blocks, ahead of the
consumer; stopping cancels what has not begun and waits, a few seconds, for what has.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from typing import Protocol

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.mds.locks import ForkSafeLock

from .job import Job
from .plan import Visit
from .threads import VisitThreads, usable_cores

__all__ = ["BlockStream", "ExecutorPool", "Pool", "inline_pool", "thread_pool"]

# What may be read ahead of the consumer; a block of each worker that works may go beyond it.
_AHEAD_BYTES = 512 << 20
_PATIENCE_SECONDS = 0.05


class Pool(Protocol):
    """How blocks are made from visits.

    Attributes:
        begun: Visits that were handed to workers so far.
        taken: Blocks that were taken from them.
        ready: Blocks that wait to be taken.
    """

    begun: int
    taken: int

    @property
    def ready(self) -> int: ...

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        """Yield the block of every visit, in order.

        The iterator is for one thread at a time, and ``visits`` is read in it. After :meth:`close`
        it does the rest of the visits in that thread.

        Raises:
            RuntimeError: A worker process died, or this process is a fork of the one that has the
                workers.
            BaseException: Whatever reading, a predicate or a transform raised, in the place of the
                block it is about.
        """

    def close(self) -> None:
        """Stop, from whatever thread; a second call does nothing.

        Visits that have not begun are cancelled. Those under way get a few seconds to finish; then
        worker processes are killed, and threads left behind with a logged warning. Errors of what
        is dropped are not raised. In a fork of the process that has the workers it does nothing.
        """


class _Inline:
    begun = taken = ready = 0

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        # A generator, not map(): a StopIteration from a user's function must not end the pass.
        for visit in visits:
            yield job.run(visit)

    def close(self) -> None:
        pass


class ExecutorPool:
    """Keeps up to ``window`` visits in work on an executor made when first needed.

    Args:
        make: Makes the executor for a job.
        window: At most so many visits are in work or wait to be taken.
        first: As many, until it is known how large their blocks are.
        least: As many, however large they are.
    """

    def __init__(
        self, make: Callable[[Job], Executor], window: int, first: int, least: int
    ) -> None:
        self._make = make
        self._window = window
        self._first = first
        self._least = least
        self._executor: Executor | None = None
        self._pid = 0
        self._closed = False
        self.begun = self.taken = 0
        self._pending: deque[Future[Block] | Visit] = deque()

    @property
    def ready(self) -> int:
        """Blocks of the pass that began last which wait to be taken."""
        return sum(isinstance(each, Future) and each.done() for each in self._pending.copy())

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        pending: deque[Future[Block] | Visit] = deque()
        self._pending = pending
        ahead = self._first
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
        self.begun += 1
        if job.is_cheap(visit) or self._closed:
            return visit
        if self._executor is None:
            self._executor = self._make(job)
            self._pid = os.getpid()
        return self._executor.submit(job.run, visit)

    def _ahead(self, block_bytes: int) -> int:
        """Return how many visits may be in work or wait, if their blocks are like this one."""
        fitting = _AHEAD_BYTES // max(block_bytes, 1)
        return max(self._least, min(self._window, fitting))

    def _result(self, future: Future[Block]) -> Block:
        """Wait for a block; while that takes long, more threads may start."""
        while not future.done():
            wait((future,), _PATIENCE_SECONDS)
            executor = self._executor
            if not future.done() and isinstance(executor, VisitThreads):
                executor.grow()
        return future.result()

    def _check_process(self) -> None:
        """Refuse to wait for workers that a fork does not have: it copies no threads."""
        if self._executor is not None and self._pid != os.getpid():
            raise RuntimeError(
                f"This reader was opened and used in another process ({self._pid}), of which this "
                f"one ({os.getpid()}) is a fork. Its workers are there and not here. Open a reader "
                "in each process: in a DataLoader's worker, for instance, in the dataset's __iter__."
            )

    def close(self) -> None:
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


def inline_pool() -> Pool:
    """Return the pool that does everything in the consumer's thread (``reader_pool_type='dummy'``)."""
    return _Inline()


def thread_pool(workers: int, queue_size: int) -> Pool:
    """Return a pool of threads.

    Args:
        workers: Number of threads.
        queue_size: At most so many row groups are read ahead.

    As many threads as there are cores start at once, the others when cores are idle.
    """
    window = max(workers, min(2 * workers, queue_size))
    at_once = min(workers, usable_cores())
    return ExecutorPool(
        lambda job: VisitThreads(
            lambda: _InThread(job),
            workers,
            "petastorm-bridge",
            job.source.description,
            at_once=at_once,
        ),
        window,
        first=workers,
        least=at_once,
    )


def _bytes(block: Block) -> int:
    """Return the bytes that a block's columns take in memory, objects counted as their pointers."""
    return sum(int(getattr(column, "nbytes", 0)) for column in block.columns.values())


class _InThread:
    """Does visits in the thread that asks."""

    def __init__(self, job: Job) -> None:
        self.run = job.run

    def end(self) -> None:
        pass


class BlockStream:
    """One pass over a reader's blocks. An endless pass in which no row comes through is ended.

    Threads may share it: each block goes to one of them.

    Args:
        job: What to do.
        visits: The pass.
        pool: Who does it.
        endless: Whether ``visits`` never ends.
    """

    def __init__(self, job: Job, visits: Iterator[Visit], pool: Pool, *, endless: bool) -> None:
        self._blocks = pool.blocks(job, visits)
        self._endless = endless
        self._epoch_rows = 0
        self._error: BaseException | None = None
        self._lock = ForkSafeLock()

    def __iter__(self) -> Iterator[Block]:
        return self

    def __next__(self) -> Block:
        with self._lock:
            return self._next()

    def _next(self) -> Block:
        if self._error is not None:
            raise self._error  # a generator that failed would pretend to be at its end
        try:
            block = next(self._blocks)
        except StopIteration:
            self._error = StopIteration()  # the one caught keeps its frames, and a shard, until gc
            raise
        except BaseException as error:
            self._error = error
            raise
        self._epoch_rows += block.num_rows
        if block.ends_epoch:
            if self._endless and self._epoch_rows == 0:
                self._error = StopIteration()
                warnings.warn(
                    "A whole epoch gave no row: the predicate, filters or transform let nothing "
                    "through. The endless iteration ends here.",
                    stacklevel=2,
                )
            self._epoch_rows = 0
        return block
