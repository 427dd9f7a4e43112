"""Spark's executors do the work of a conversion, instead of processes of this machine."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .workers import Report, Task, portable

__all__ = ["SparkPool"]


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
        if session.conf.get("spark.speculation", "false").lower() == "true":
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
        work = pickle.dumps((self._setup, list(tasks)))

        def done(batches: Iterable[Any]) -> Iterator[Any]:
            return results(work, batches)

        count = len(tasks)
        frame = self._session.range(0, count, 1, count).mapInArrow(
            done, "number long, rows long, result binary"
        )
        for row in frame.collect():
            result = pickle.loads(row["result"])  # noqa: S301 - from our own tasks
            if isinstance(result, BaseException):
                raise result
            report(row["rows"])
            yield row["number"], result


def results(work: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """Do the tasks whose numbers come, on an executor; yield what came of each, or its error.

    An error is a result, so that it arrives as what it is and Spark does not try four times.
    """
    import pyarrow as pa

    setup, tasks = pickle.loads(work)  # noqa: S301 - from the driver
    for batch in batches:
        for number in batch.column(0).to_pylist():
            function, arguments = tasks[number]
            reported: list[int] = []
            try:
                result = function(setup, reported.append, *arguments)
            except Exception as error:  # noqa: BLE001 - the driver raises it
                result = portable(error)
            yield pa.RecordBatch.from_pydict(
                {"number": [number], "rows": [sum(reported)], "result": [pickle.dumps(result)]}
            )
