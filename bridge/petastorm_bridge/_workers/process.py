"""Processes that do tasks: fresh interpreters that end with the one that started them.

No fork, which hangs where threads of Arrow or of the caller hold locks, and the caller's ``__main__`` is
not imported again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from .file_lock import fcntl
from .worker import receive, send, send_pickled

# How long an idle process may take to end before it is killed.
_GRACE_SECONDS = 5.0
_ALIVE_CHECK_MILLISECONDS = 1000
_PIPE_BYTES = 1 << 20
_START = (
    "import sys; sys.path[:] = {path!r}; from petastorm_bridge._workers.worker import main; "
    "main({tasks}, {results}, {parent})"
)


class WorkerEndedError(RuntimeError):
    """A process ended in the middle of a task; the text says how."""


class WorkerTraceback(Exception):  # noqa: N818 - the cause of an error, named for what it shows
    """Where in the worker process an exception came from."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class WorkerProcesses:
    """As many processes as tasks are run at the same time; each is started when there is a task for it.

    Args:
        payload: The pickle of a function, which gets a task and a function to report with, and whose result
            is the task's.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._living: set[_Process] = set()
        self._idle: list[_Process] = []
        self._killed = False
        # Of one thread again and again: the garbage collector may call kill() in the middle of a start.
        self._lock = threading.RLock()

    def run(self, task: Any, report: Callable[[Any], object] = lambda _: None) -> Any:
        """Return the result of a task, for any thread.

        Args:
            task: What pickles.
            report: Gets what the task reports meanwhile.

        Raises:
            WorkerEndedError: The process has died.
            BaseException: Whatever the task raised.
        """
        with self._lock:
            process = self._idle.pop() if self._idle else self._start()
        try:
            return process.run(task, report)
        finally:
            with self._lock:
                stays = process.is_idle and process.is_alive() and not self._killed
                if stays:
                    self._idle.append(process)
                else:
                    self._living.discard(process)
            if not stays:
                process.end()

    def _start(self) -> _Process:
        process = _Process(self._payload)
        self._living.add(process)
        if self._killed:
            process.kill()
        return process

    def kill(self) -> None:
        """End all processes at once, and those that start from now on."""
        with self._lock:
            self._killed = True
            for process in self._living:
                process.kill()
            self.end()

    def end(self) -> None:
        """Let all processes end that have no task, and wait for that."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._living.difference_update(idle)
        for process in idle:
            process.close_tasks()
        for process in idle:
            process.end()


class _Process:
    """One process and its pipes; used by one thread at a time, killed by any.

    Attributes:
        is_idle: Whether the answer to its last task was read.
    """

    def __init__(self, payload: bytes) -> None:
        task_end, self._tasks = os.pipe()
        self._results, result_end = os.pipe()
        try:
            with contextlib.suppress(OSError, AttributeError):  # only Linux, only up to a limit
                fcntl.fcntl(self._results, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            # Python heeds texts only, whatever else a program put there.
            path = [entry for entry in sys.path if isinstance(entry, str)]  # type: ignore[redundant-expr]
            code = _START.format(path=path, tasks=task_end, results=result_end, parent=os.getpid())
            # Ctrl-C reaches all processes of a terminal and is for this one, which decides what happens: the
            # other inherits that it waits, from its first moment on.
            unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                    [sys.executable, "-c", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(task_end, result_end),
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        except BaseException:
            os.close(self._tasks)
            os.close(self._results)
            raise
        finally:
            os.close(task_end)
            os.close(result_end)
        self._payload: bytes | None = payload
        self.is_idle = True

    def run(self, task: Any, report: Callable[[Any], object]) -> Any:
        self.is_idle = False
        try:
            if self._payload is not None:
                send_pickled(self._tasks, self._payload)
                self._payload = None
            send(self._tasks, task)
            while True:
                kind, content = receive(self._results, self._wait_for_answer)
                if kind != "report":
                    break
                report(content)
        except (EOFError, BrokenPipeError) as error:
            raise WorkerEndedError(_how_it_ended(self._process.wait())) from error
        self.is_idle = True
        if kind == "error":
            raise _exception(*content)
        return content

    def _wait_for_answer(self) -> None:
        # A child that the user's function forked would keep the pipe of a dead process open.
        poller = select.poll()
        poller.register(self._results, select.POLLIN)
        while not poller.poll(_ALIVE_CHECK_MILLISECONDS):
            if not self.is_alive() and not poller.poll(0):
                raise EOFError

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; :meth:`end` must still follow."""
        self._process.kill()

    def close_tasks(self) -> None:
        """Let the process end, which takes the end of its tasks for its own."""
        if self._tasks >= 0:
            os.close(self._tasks)
            self._tasks = -1

    def end(self) -> None:
        """Let the process end, wait for it, and forget it."""
        self.close_tasks()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._results)


def _how_it_ended(code: int) -> str:
    """Say how a process ended: by which signal, for a negative exit code, or with which exit code."""
    if code < 0:
        with contextlib.suppress(ValueError):  # a signal Python has no name for
            return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"with exit code {code}"


def _exception(data: bytes | None, name: str, words: str, text: str) -> BaseException:
    error: BaseException | None = None
    if data is not None:
        with contextlib.suppress(Exception):  # a class that only the worker has
            error = pickle.loads(data)  # noqa: S301 - from a process of our own
    if error is None:
        error = RuntimeError(f"A worker process raised {name}: {words}\n{text}")
    error.__cause__ = WorkerTraceback(text)
    return error
