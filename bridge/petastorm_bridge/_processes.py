"""Worker processes for ``reader_pool_type='process'``.

Each worker is a fresh Python process (no fork, and the user's ``__main__`` is not imported again)
that talks over two pipes. A thread per process hands it one visit at a time, so order, read-ahead
and stopping are those of the thread pool.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ._columns import Block
from ._plan import Visit
from ._pool import ExecutorPool, Pool
from ._process_worker import dumps
from ._wire import receive, send, send_pickled, unpack_block
from ._work import Job

__all__ = ["process_pool"]

# How long a worker may take to finish its visit when the pool is closed; then it is killed.
_GRACE_SECONDS = 5.0
_ALIVE_CHECK_MILLISECONDS = 1000
_PIPE_BYTES = 1 << 20
_START = (
    "import sys; sys.path[:] = {path!r}; from petastorm_bridge._process_worker import main; "
    "main({tasks}, {results}, {parent})"
)


def process_pool(workers: int, queue_size: int) -> Pool:
    """Return a pool of processes.

    Args:
        workers: Number of processes; each is started when there is work for it.
        queue_size: At most so many row groups are read ahead.
    """
    window = max(workers, min(2 * workers, queue_size))
    return ExecutorPool(lambda job: _ProcessExecutor(job, workers), window)


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
            RuntimeError: The process has died.
            BaseException: Whatever the user's functions raised there.
        """
        try:
            if self._payload is not None:
                send_pickled(self._tasks, self._payload)
                self._payload = None
            send(self._tasks, visit)
            self._wait_for_answer()
            kind, content = receive(self._results)
        except (EOFError, BrokenPipeError) as error:
            raise self._death(visit) from error
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
        code = self._process.returncode
        how = f"with exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):  # a signal Python has no name for
                how = f"by signal {-code} ({signal.Signals(-code).name})"
        what = "an epoch without rows" if visit.piece is None else f"row group {visit.piece.group}"
        return RuntimeError(
            f"Worker process {self._process.pid} of the reader ended {how} while it read {what}. "
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


def _exception(data: bytes | None, name: str, words: str, text: str) -> BaseException:
    error: BaseException | None = None
    if data is not None:
        with contextlib.suppress(Exception):  # a class that only the worker has
            error = pickle.loads(data)  # noqa: S301 - from a process of our own
    if error is None:
        error = RuntimeError(f"A worker process raised {name}: {words}\n{text}")
    error.__cause__ = WorkerTraceback(text)
    return error


class _Shared:
    """What the threads of a pool share; they must not keep the pool itself alive."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.tasks: queue.SimpleQueue[tuple[Future[Block], Visit] | None] = queue.SimpleQueue()
        self.workers: set[_Worker] = set()
        self.threads: list[threading.Thread] = []
        self.killed = False
        self.pid = os.getpid()
        self._lock = threading.Lock()

    def start(self) -> _Worker:
        with self._lock:
            worker = _Worker(self.payload)
            self.workers.add(worker)
            if self.killed:
                worker.kill()
        return worker

    def end(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self.workers.discard(worker)

    def cancel(self) -> None:
        """Drop what waits, and tell every thread to end after what it does now."""
        while True:
            try:
                waiting = self.tasks.get_nowait()
            except queue.Empty:
                break
            if waiting is not None:
                waiting[0].cancel()
        for _ in self.threads:
            self.tasks.put(None)

    def kill(self) -> None:
        with self._lock:
            self.killed = True
            for worker in self.workers:
                worker.kill()


def _serve(shared: _Shared) -> None:
    """Do the work of one thread: hand visits to a process, until told to end."""
    worker: _Worker | None = None
    while True:
        item = shared.tasks.get()
        if item is None:
            break
        future, visit = item
        if future.set_running_or_notify_cancel():
            try:
                if worker is None:
                    worker = shared.start()
                future.set_result(worker.run(visit))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
            if worker is not None and not worker.is_alive():
                shared.end(worker)
                worker = None
        del item, future  # the block belongs to the consumer alone
    if worker is not None:
        shared.end(worker)


class _ProcessExecutor(Executor):
    """Runs a job's visits in processes that start as they are needed.

    Left to the garbage collector, or to the end of the program, it kills its processes.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self._shared = _Shared(_pickled(job))
        self._most = workers
        self._finalizer = weakref.finalize(self, _abandon, self._shared)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have ``args[0]``, a visit, done by a worker; ``fn`` and ``kwargs`` are not used."""
        del fn, kwargs
        shared = self._shared
        if len(shared.threads) < self._most:
            name = f"petastorm-bridge-process_{len(shared.threads)}"
            thread = threading.Thread(target=_serve, args=(shared,), name=name, daemon=True)
            shared.threads.append(thread)
            thread.start()
        future: Future[Any] = Future()
        shared.tasks.put((future, args[0]))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes and threads; what runs has a few seconds to finish."""
        del wait, cancel_futures  # always both
        self._finalizer.detach()
        self._shared.cancel()
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._shared.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._shared.kill()
        for thread in self._shared.threads:
            thread.join()


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


def _abandon(shared: _Shared) -> None:
    if os.getpid() != shared.pid:  # a fork of the process that owns the workers
        return
    shared.cancel()
    shared.kill()
