"""Make the original repeatable, inside this process and for the tests alone.

- Its thread pool loses rows: `ThreadPool.get_results` asks whether all workers are done before it
  asks whether the ventilator has handed out everything, so row groups handed out in between are
  never read. Asking in the other order removes the race and nothing else.
- Its thread pool swaps row groups: work is handed out and results are taken round robin, but a
  worker that has nothing to do *yet* is passed over as if it had nothing to do any more. Passing
  over workers only when everything is handed out removes the race and nothing else.
- It follows Spark's `inputFiles()`, which lists files in no particular order. The bridge reads in
  partition order, so the list is sorted: part files are numbered by partition.
- A shuffling loader allocates a list of 100 million slots (800 MB, two seconds) as a margin that
  small data never reaches. The margin is made smaller.
- It starts 64 threads to look for each loader's files. Two are enough.
- It waits 30 seconds for files that were deleted. Two are enough.
- A loader that fails while it opens leaves its threads polling. `stop_leaked_readers` ends them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

_SHUFFLE_MARGIN = 100_000
_WAIT_SECONDS = 2


@contextmanager
def repeatable() -> Iterator[list[Any]]:
    """Patch the original; gives the list of its readers, which is yours to empty."""
    from multiprocessing.pool import ThreadPool as ThreadPoolOf

    from petastorm import pytorch, reader
    from petastorm.spark import spark_dataset_converter
    from petastorm.workers_pool.thread_pool import ThreadPool

    readers: list[Any] = []
    start_reader = reader.Reader.__init__

    def start_and_remember(self: Any, *args: Any, **options: Any) -> None:
        readers.append(self)
        start_reader(self, *args, **options)

    with ExitStack() as patches:
        for patch in (
            *(
                mock.patch.object(ThreadPool, name, _once_handed_out(getattr(ThreadPool, name)))
                for name in ("all_workers_done", "current_worker_done")
            ),
            mock.patch.object(reader.Reader, "__init__", start_and_remember),
            mock.patch.object(
                spark_dataset_converter, "_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS", _WAIT_SECONDS
            ),
            mock.patch.object(spark_dataset_converter, "ThreadPool", lambda _: ThreadPoolOf(2)),
            *(
                mock.patch.object(pytorch, name, _small_margin(getattr(pytorch, name)))
                for name in ("RandomShufflingBuffer", "BatchedRandomShufflingBuffer")
            ),
        ):
            patches.enter_context(patch)
        yield readers


def _once_handed_out(done: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(done)
    def handed_out_and_done(pool: Any, *worker: int) -> bool:
        handed_out = pool._ventilator is None or pool._ventilator.completed()
        return handed_out and done(pool, *worker)

    return handed_out_and_done


def _small_margin(buffer_class: Any) -> Any:
    @functools.wraps(buffer_class)
    def make(*args: Any, **options: Any) -> Any:
        options["extra_capacity"] = _SHUFFLE_MARGIN
        return buffer_class(*args, **options)

    return make


def sort_files(converter: Any) -> None:
    """Put a converter's files into partition order."""
    converter.file_urls.sort(key=os.path.basename)


def stop_leaked_readers(readers: list[Any]) -> None:
    """Stop the original's readers that a failed scenario left running."""
    while readers:
        reader = readers.pop()
        pool = getattr(reader, "_workers_pool", None)
        if pool is not None and not getattr(reader, "stopped", False):
            reader.stop()
            reader.join()
