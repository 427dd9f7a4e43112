"""Who does the work of a conversion: processes of this machine, or Spark's executors."""

from __future__ import annotations

import functools
import pickle
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from petastorm_bridge._workers.process import WorkerEndedError, WorkerProcesses
from petastorm_bridge._workers.threads import Threads
from petastorm_bridge.spark._session import conf_value
from petastorm_bridge.spark._writing.jobs import run_job

Report = Callable[[int], object]
Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments, which follow the setup and a function to report rows to."""


def _do(setup: Any, task: Task, report: Report) -> Any:
    function, arguments = task
    return function(setup, report, *arguments)


class WorkerPool:
    """Some processes, which start at once; use it with ``contextlib.closing``.

    Args:
        count: How many.
        setup: What every task needs; it pickles.
    """

    def __init__(self, count: int, setup: Any) -> None:
        self._processes = WorkerProcesses(pickle.dumps(functools.partial(_do, setup)))
        self._threads = Threads("petastorm-bridge-convert", count)
        for _ in range(count):
            self._threads.submit(functools.partial(self._processes.run, (_start, ())))

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
            self._threads.submit(run).add_done_callback(functools.partial(done, number))
        remaining = len(tasks)
        while remaining:
            ended, content = messages.get()
            if ended is None:
                report(content)
                continue
            remaining -= 1
            try:
                result = content.result()
            except WorkerEndedError as error:
                raise RuntimeError(
                    f"A worker process ended {error}. SIGKILL often means that memory ran out: use fewer "
                    "workers or a smaller size limit. What was finished is kept; the same command goes on."
                ) from error
            yield ended, result


def _start(*_: Any) -> None:
    """Make a process ready, which has imported what the setup is made of by now."""
    import pyarrow as pa

    pa.scalar(0)  # Arrow imports pandas for its first one


class SparkPool:
    """Each task of a conversion as a task of Spark's.

    Executors have to see source and destination under the driver's names, and import the bridge.

    Args:
        session: A Spark session, classic or Spark Connect.
        setup: What every task needs; it pickles.

    Raises:
        ValueError: Spark may start a task twice at the same time.
    """

    def __init__(self, session: Any, setup: Any) -> None:
        if (conf_value(session, "spark.speculation") or "").lower() == "true":
            raise ValueError(
                "spark.speculation is on: two attempts of one task would write the same shard. Convert in a "
                "session without it."
            )
        self._session = session
        self._setup = setup

    def close(self) -> None:
        """Do nothing: the session is the caller's."""

    def run(self, tasks: Sequence[Task], report: Report) -> Iterator[tuple[int, Any]]:
        """Yield number and result of each task, once all of them have ended.

        Args:
            tasks: What to do.
            report: Gets the number of rows that all tasks are done with.

        Raises:
            BaseException: Whatever a task raised.
        """
        if not tasks:
            return
        setup = pickle.dumps(self._setup)
        # From one partition Spark deals rows out evenly: each of its tasks gets one of ours, and no other's.
        rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)]
        frame = self._session.createDataFrame(rows, "number long, task binary").coalesce(1)
        dealt = frame.repartition(len(tasks))
        done_tasks = dealt.mapInArrow(
            lambda batches: results(setup, batches), "number long, rows long, result binary"
        )
        for row in run_job(self._session, done_tasks.collect):
            result = pickle.loads(row["result"])  # noqa: S301 - from our own tasks
            if isinstance(result, BaseException):
                raise result
            report(row["rows"])
            yield row["number"], result


def results(setup: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """Do the tasks that come, on an executor; yield what came of each, or its error.

    An error is a result, so that it arrives as what it is and Spark does not try four times.

    Args:
        setup: What every task needs, pickled.
        batches: Record batches of `number` int64 and `task` binary, a pickle each.
    """
    import pyarrow as pa

    needed = pickle.loads(setup)  # noqa: S301 - from the driver
    for batch in batches:
        for number, task in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            reported: list[int] = []
            try:
                result = _do(needed, pickle.loads(task), reported.append)  # noqa: S301 - from the driver
            except Exception as error:  # noqa: BLE001 - the driver raises it
                result = _portable(error)
            yield pa.RecordBatch.from_pydict(
                {"number": [number], "rows": [sum(reported)], "result": [pickle.dumps(result)]}
            )


def _portable(error: Exception) -> Exception:
    """Return an error that arrives as it is on the driver; one like it if it would not."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of our own making
    except Exception:  # noqa: BLE001 - whatever the error's class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
