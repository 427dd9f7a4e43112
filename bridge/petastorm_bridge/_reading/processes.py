"""Worker processes for ``reader_pool_type='process'``.

Each worker is a fresh Python process (no fork, and the user's ``__main__`` is not imported again)
that talks over two pipes. A thread per process hands it one visit at a time, so order, read-ahead
and stopping are those of the thread pool.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
import threading

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._linux import fcntl

from .exit_codes import how_it_ended
from .job import Job
from .plan import Visit
from .pool import ExecutorPool, Pool
from .threads import VisitThreads
from .wire import WireError, receive, send, send_pickled, unpack_block
from .worker import dumps

__all__ = ["process_pool"]

# How long an idle worker may take to end before it is killed.
_GRACE_SECONDS = 5.0
_ALIVE_CHECK_MILLISECONDS = 1000
_PIPE_BYTES = 1 << 20
_START = (
    "import sys; sys.path[:] = {path!r}; from petastorm_bridge._reading.worker import main; "
    "main({tasks}, {results}, {parent})"
)


def process_pool(workers: int, queue_size: int) -> Pool:
    """Return a pool of processes.

    Args:
        workers: Number of processes; each is started when there is work for it.
        queue_size: At most so many row groups are read ahead.
    """
    window = max(workers, min(2 * workers, queue_size))
    return ExecutorPool(
        lambda job: _process_threads(job, workers), window, first=workers, least=workers
    )


class WorkerTraceback(Exception):  # noqa: N818 - the cause of an error, named for what it shows
    """Where in the worker process an exception came from."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class _Worker:
    """One process and its pipes; used by one thread at a time, killed by any."""

    def __init__(self, payload: bytes) -> None:
        task_end, self._tasks = os.pipe()
        self._results, result_end = os.pipe()
        try:
            with contextlib.suppress(OSError, AttributeError):  # only Linux, only up to a limit
                fcntl.fcntl(self._results, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            code = _START.format(
                path=sys.path, tasks=task_end, results=result_end, parent=os.getpid()
            )
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(task_end, result_end),
            )
        except BaseException:
            os.close(self._tasks)
            os.close(self._results)
            raise
        finally:
            os.close(task_end)
            os.close(result_end)
        self._payload: bytes | None = payload

    def run(self, visit: Visit) -> Block:
        """Return the block of a visit.

        Raises:
            RuntimeError: The process has died, or answers nonsense and is killed.
            BaseException: Whatever the user's functions raised there.
        """
        try:
            if self._payload is not None:
                send_pickled(self._tasks, self._payload)
                self._payload = None
            send(self._tasks, visit)
            kind, content = receive(self._results, self._wait_for_answer)
        except (EOFError, BrokenPipeError) as error:
            raise self._death(visit) from error
        except WireError as error:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(
                f"Worker process {self._process.pid} of the reader gave no proper answer while it "
                f"read {_what(visit)} ({error}): something in it writes to the reader's pipe, "
                "perhaps a C library with a wrong file descriptor. reader_pool_type='thread' has "
                "no pipes."
            ) from error
        if kind == "error":
            raise _exception(*content)
        return unpack_block(content)

    def _wait_for_answer(self) -> None:
        # A child that the user's function forked would keep the pipe of a dead worker open.
        poller = select.poll()
        poller.register(self._results, select.POLLIN)
        while not poller.poll(_ALIVE_CHECK_MILLISECONDS):
            if not self.is_alive() and not poller.poll(0):
                raise EOFError

    def _death(self, visit: Visit) -> RuntimeError:
        self._process.wait()
        how = how_it_ended(self._process.returncode)
        return RuntimeError(
            f"Worker process {self._process.pid} of the reader ended {how} while it read {_what(visit)}. "
            "Its output may say why; SIGKILL often means that memory ran out: use fewer workers or "
            "smaller row groups. reader_pool_type='dummy' runs the same work in this process."
        )

    def is_alive(self) -> bool:
        """Return whether the process can take another visit."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; :meth:`end` must still follow."""
        self._process.kill()

    def end(self) -> None:
        """Let the process end, and forget it."""
        os.close(self._tasks)  # which the worker takes for the end
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._results)


def _what(visit: Visit) -> str:
    return "an epoch without rows" if visit.piece is None else f"row group {visit.piece.group}"


def _exception(data: bytes | None, name: str, words: str, text: str) -> BaseException:
    error: BaseException | None = None
    if data is not None:
        with contextlib.suppress(Exception):  # a class that only the worker has
            error = pickle.loads(data)  # noqa: S301 - from a process of our own
    if error is None:
        error = RuntimeError(f"A worker process raised {name}: {words}\n{text}")
    error.__cause__ = WorkerTraceback(text)
    return error


class _Workers:
    """The processes of one pool, each used by one thread."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._living: set[_Worker] = set()
        self._killed = False
        # Of one thread again and again: the garbage collector may call kill() in the middle of start().
        self._lock = threading.RLock()

    def start(self) -> _Worker:
        """Return a new process."""
        with self._lock:
            worker = _Worker(self._payload)
            self._living.add(worker)
            if self._killed:
                worker.kill()
        return worker

    def end(self, worker: _Worker) -> None:
        """Let a process end, and wait for that."""
        worker.end()
        with self._lock:
            self._living.discard(worker)

    def kill(self) -> None:
        """End all processes at once."""
        with self._lock:
            self._killed = True
            for worker in self._living:
                worker.kill()


class _InProcess:
    """Does visits in a process, started at the first; after one that died, in another."""

    def __init__(self, workers: _Workers) -> None:
        self._workers = workers
        self._worker: _Worker | None = None

    def run(self, visit: Visit) -> Block:
        if self._worker is None:
            self._worker = self._workers.start()
        try:
            return self._worker.run(visit)
        finally:
            if not self._worker.is_alive():
                self.end()

    def end(self) -> None:
        if self._worker is not None:
            self._workers.end(self._worker)
            self._worker = None


def _process_threads(job: Job, workers: int) -> VisitThreads:
    """Return threads that have their visits done by processes of their own."""
    processes = _Workers(_pickled(job))
    return VisitThreads(
        lambda: _InProcess(processes),
        workers,
        "petastorm-bridge-process",
        job.source.description,
        kill=processes.kill,
    )


def _pickled(job: Job) -> bytes:
    try:
        return dumps(job)
    except ImportError:
        raise
    except Exception as error:
        raise TypeError(
            "reader_pool_type='process' sends the transform and the predicate to its workers, but "
            f"they cannot be pickled: {error}. Open files, sockets, locks and sessions inside the "
            "function, or use reader_pool_type='thread'."
        ) from error
