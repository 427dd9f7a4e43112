"""A worker process of a process pool: reads visits from one pipe, writes blocks to another.

Started by :mod:`._processes` as a plain Python process, so neither the user's ``__main__`` is run
again nor anything forked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from typing import Any

from .wire import pack_block, receive, send

__all__ = ["dumps", "main"]

_PARENT_CHECK_SECONDS = 1.0
_PIPE_DESCRIPTORS = 1000  # and above, where the system allows so many


def dumps(value: Any) -> bytes:
    """Return a pickle that carries functions and classes of ``__main__`` within it.

    Raises:
        ImportError: Neither cloudpickle nor pyspark (which holds a copy) is installed.
        Exception: Whatever pickling ``value`` raises.
    """
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        try:
            from pyspark import cloudpickle  # type: ignore[attr-defined, no-redef, unused-ignore]
        except ImportError as error:
            raise ImportError(
                "reader_pool_type='process' needs cloudpickle, to send a transform to its workers: "
                "pip install cloudpickle. Or use reader_pool_type='thread'."
            ) from error
    main = sys.modules.get("__mp_main__")  # the program's own module in a process that it spawned
    if main is not None:
        cloudpickle.register_pickle_by_value(main)
    return bytes(cloudpickle.dumps(value))


def main(tasks: int, results: int, parent: int) -> None:
    """Serve until the pool closes its end of the pipe.

    Args:
        tasks: File descriptor to read from: a pickled :class:`~._work.Job`, then visits.
        results: File descriptor to write answers to: ``("block", …)`` or ``("error", …)``.
        parent: Process id of the pool.
    """
    # Ctrl-C reaches all processes of a terminal; the pool decides what happens to its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks, results = _out_of_the_way(tasks), _out_of_the_way(results)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):
        failure = None
        job = None
        try:
            job = receive(tasks)
        except EOFError:
            raise
        except BaseException as error:  # noqa: BLE001 - sent to the pool
            failure = _failure(error)
        while True:
            visit = receive(tasks)
            if failure is None:
                _answer(results, job, visit)
            else:
                send(results, failure)


def _out_of_the_way(descriptor: int) -> int:
    """Move a pipe to a high number, where no library expects a file of its own.

    Programs that a transform starts do not inherit it.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = _PIPE_DESCRIPTORS
    if limit != resource.RLIM_INFINITY:
        lowest = min(lowest, limit - 4)
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:  # none is free up there
        os.set_inheritable(descriptor, False)
        return descriptor
    os.close(descriptor)
    return moved


def _answer(results: int, job: Any, visit: Any) -> None:
    try:
        message = ("block", pack_block(job.run(visit)))
    except BaseException as error:  # noqa: BLE001 - sent to the pool
        message = _failure(error)
    send(results, message)


def _failure(error: BaseException) -> Any:
    """Return the message for an exception: a pickle if that can be read again, and its text."""
    text = "".join(traceback.format_exception(error))
    name = type(error).__qualname__
    data: bytes | None
    try:
        data = dumps(error)
        if type(pickle.loads(data)) is not type(error):  # noqa: S301 - pickled the line before
            data = None
    except Exception:  # noqa: BLE001 - an exception that does not survive pickling
        data = None
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even be shown
        words = "(no text)"
    return "error", (data, name, words, text)


def _end_with(parent: int) -> None:
    """End this process when the pool's process is gone, even in the middle of a transform."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
