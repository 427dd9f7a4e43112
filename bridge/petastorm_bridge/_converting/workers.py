"""Processes that do the work: fresh interpreters that end with the one that started them.

No fork, which hangs where threads of Arrow or of the caller hold locks, and the caller's ``__main__`` is
not imported again.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from petastorm_bridge._reading.exit_codes import how_it_ended

__all__ = ["Report", "Task", "WorkerPool", "main", "portable"]

Report = Callable[[int], object]
Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments, which follow the setup and a function to report rows to."""

_START = (
    "import sys; sys.path[:] = {path!r}; "
    "from petastorm_bridge._converting.workers import main; main({descriptor})"
)


class WorkerPool:
    """Some processes, started when there is work for them; use it with ``contextlib.closing``.

    Args:
        count: How many at most.
        setup: What every task needs; it pickles.
    """

    def __init__(self, count: int, setup: Any) -> None:
        self._count = count
        self._setup = pickle.dumps(setup)
        self._workers: dict[Connection, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        """End all processes at once, whatever they do."""
        for connection, process in self._workers.items():
            process.kill()
            connection.close()
        for process in self._workers.values():
            process.wait()
        self._workers.clear()

    def run(self, tasks: Sequence[Task], report: Report) -> Iterator[tuple[int, Any]]:
        """Yield number and result of each task, in the order in which they end.

        Args:
            tasks: What to do.
            report: Gets the number of rows whenever a worker is done with some.

        Raises:
            RuntimeError: A process has died.
            BaseException: Whatever a task raised.
        """
        waiting = iter(enumerate(tasks))
        for _ in range(min(self._count, len(tasks)) - len(self._workers)):
            self._start()
        busy = {}
        for connection, (number, task) in zip([*self._workers], waiting, strict=False):
            connection.send(task)
            busy[connection] = number
        while busy:
            for ready in wait([*busy]):
                assert isinstance(ready, Connection)
                kind, content = self._receive(ready)
                if kind == "rows":
                    report(content)
                    continue
                if kind == "error":
                    error, text = content
                    raise error from RuntimeError(f"in a worker process:\n{text}")
                done = busy.pop(ready)
                following = next(waiting, None)
                if following is not None:
                    busy[ready] = following[0]
                    ready.send(following[1])
                yield done, content

    def _start(self) -> None:
        here, there = Pipe()
        code = _START.format(path=sys.path, descriptor=there.fileno())
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
            )
        finally:
            there.close()
        self._workers[here] = process
        here.send_bytes(self._setup)

    def _receive(self, connection: Connection) -> tuple[str, Any]:
        try:
            message: tuple[str, Any] = connection.recv()
        except (EOFError, ConnectionError) as error:
            process = self._workers[connection]
            how = how_it_ended(process.wait())
            raise RuntimeError(
                f"A worker process ended {how}. SIGKILL often means that memory ran out: use fewer "
                "workers or a smaller size limit. What was finished is kept; the same command goes on."
            ) from error
        return message


def main(descriptor: int) -> None:
    """Do tasks until the process that sends them is gone; the whole life of a worker.

    Args:
        descriptor: The worker's end of the connection.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    connection = Connection(descriptor)
    setup = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the process that started this one
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    while True:
        function, arguments = tasks.get()
        try:
            result = function(setup, lambda rows: connection.send(("rows", rows)), *arguments)
            connection.send(("result", result))
        except BaseException as error:  # noqa: BLE001 - the other process decides
            connection.send(("error", (portable(error), traceback.format_exc())))


def _listen(connection: Connection, tasks: queue.SimpleQueue[Task]) -> None:
    while True:
        try:
            tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)  # in the middle of whatever it does: nobody waits for it


def portable(error: BaseException) -> BaseException:
    """Return an error that arrives as it is on the other side; one like it if it would not."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of our own making
    except Exception:  # noqa: BLE001 - whatever the error's class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
