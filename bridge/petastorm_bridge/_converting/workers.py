"""A conversion's work in processes of this machine."""

from __future__ import annotations

import functools
import pickle
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from petastorm_bridge._workers.process import WorkerEndedError, WorkerProcesses
from petastorm_bridge._workers.threads import Threads

__all__ = ["Report", "Task", "WorkerPool"]

Report = Callable[[int], object]
Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments, which follow the setup and a function to report rows to."""


@dataclass(frozen=True)
class _Tasks:
    """Does tasks in a worker process."""

    setup: Any

    def __call__(self, task: Task, report: Report) -> Any:
        function, arguments = task
        return function(self.setup, report, *arguments)


class WorkerPool:
    """Some processes, started when there is work for them; use it with ``contextlib.closing``.

    Args:
        count: How many at most.
        setup: What every task needs; it pickles.
    """

    def __init__(self, count: int, setup: Any) -> None:
        self._processes = WorkerProcesses(pickle.dumps(_Tasks(setup)))
        self._threads = Threads("petastorm-bridge-convert", count)

    def close(self) -> None:
        """End all processes at once, whatever they do."""
        self._processes.kill()
        self._threads.close()

    def run(self, tasks: Sequence[Task], report: Report) -> Iterator[tuple[int, Any]]:
        """Yield number and result of each task, in the order in which they end.

        Args:
            tasks: What to do.
            report: Gets the number of rows whenever a worker is done with some.

        Raises:
            RuntimeError: A process has died.
            BaseException: Whatever a task raised.
        """
        messages: queue.SimpleQueue[tuple[int | None, Any]] = queue.SimpleQueue()

        def done(number: int, future: Future[Any]) -> None:
            messages.put((number, future))

        for number, task in enumerate(tasks):
            run = functools.partial(self._processes.run, task, lambda n: messages.put((None, n)))
            self._threads.submit(number, run).add_done_callback(functools.partial(done, number))
        left = len(tasks)
        while left:
            ended, content = messages.get()
            if ended is None:
                report(content)
                continue
            left -= 1
            try:
                result = content.result()
            except WorkerEndedError as error:
                raise RuntimeError(
                    f"A worker process ended {error}. SIGKILL often means that memory ran out: use fewer "
                    "workers or a smaller size limit. What was finished is kept; the same command goes on."
                ) from error
            yield ended, result
