"""Running a job over visits: in order, a bounded number ahead, in this thread or in workers.

Results come back in the order of the visits whatever the number of workers. Nothing runs before the
first result is asked for, and never more than a window of visits ahead of the consumer; stopping
cancels what has not begun and waits, a few seconds, for what has.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Protocol

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.mds.locks import ForkSafeLock

from .job import Job
from .plan import Visit
from .threads import VisitThreads

__all__ = ["BlockStream", "ExecutorPool", "Pool", "inline_pool", "thread_pool"]


class Pool(Protocol):
    """How blocks are made from visits."""

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
    """

    def __init__(self, make: Callable[[Job], Executor], window: int) -> None:
        self._make = make
        self._window = window
        self._executor: Executor | None = None
        self._pid = 0
        self._closed = False

    def blocks(self, job: Job, visits: Iterator[Visit]) -> Iterator[Block]:
        pending: deque[Future[Block] | Visit] = deque()
        try:
            for visit in itertools.islice(visits, self._window):
                pending.append(self._submit(job, visit))
            while pending:
                self._check_process()
                first = pending.popleft()
                block = job.run(first) if isinstance(first, Visit) else first.result()
                for visit in itertools.islice(visits, 1):
                    pending.append(self._submit(job, visit))
                yield block
        finally:
            for waiting in pending:
                if isinstance(waiting, Future):
                    waiting.cancel()

    def _submit(self, job: Job, visit: Visit) -> Future[Block] | Visit:
        if job.is_cheap(visit) or self._closed:
            return visit
        if self._executor is None:
            self._executor = self._make(job)
            self._pid = os.getpid()
        return self._executor.submit(job.run, visit)

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
    """
    window = max(workers, min(2 * workers, queue_size))
    return ExecutorPool(
        lambda job: VisitThreads(
            lambda: _InThread(job), workers, "petastorm-bridge", job.source.description
        ),
        window,
    )


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
