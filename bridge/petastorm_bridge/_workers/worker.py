"""What runs in a worker process: reads tasks from one pipe, writes their results to another.

A message is ``[u32 parts][u64 size of each part][parts]``: a pickle, then the buffers it refers to (pickle
protocol 5), so that columns are written from and read into memory without a copy between.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_PIPE_LIMIT = 1 << 30  # Linux moves at most 2 GiB in one call
_PARENT_CHECK_SECONDS = 1.0


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
    """Do tasks until the process that sends them closes its end of the pipe.

    Args:
        tasks: File descriptor to read from: a function, then what to call it with.
        results: File descriptor to write answers to: ``("report", …)``, ``("result", …)`` or
            ``("error", …)``.
        parent: Id of the process that sends them.
    """
    for descriptor in (tasks, results):  # not for programs that a task starts
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):
        failure = None
        function = None
        try:
            function = receive(tasks)
        except EOFError:
            raise
        except BaseException as error:  # noqa: BLE001 - the answer to every task
            failure = _failure(error)
        while True:
            task = receive(tasks)
            send(results, failure or _answer(function, task, results))


def _answer(function: Any, task: Any, results: int) -> Any:
    try:
        return "result", function(task, lambda content: send(results, ("report", content)))
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        return _failure(error)


def _failure(error: BaseException) -> Any:
    """Return the message for an exception: a pickle if that can be read again, and its text."""
    text = "".join(traceback.format_exception(error))
    name = type(error).__qualname__
    data = None
    for dump in (pickle.dumps, dumps):  # the second one for classes that only this process has
        with contextlib.suppress(Exception):  # an exception that does not survive pickling
            pickled = dump(error)
            if type(pickle.loads(pickled)) is type(error):  # noqa: S301 - pickled the line before
                data = pickled
                break
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even be shown
        words = "(no text)"
    return "error", (data, name, words, text)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, even in the middle of a task."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


def send(fd: int, message: Any) -> None:
    """Write one message; BrokenPipeError where nobody reads any more."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    _send_parts(fd, [memoryview(head), *(buffer.raw() for buffer in buffers)])


def send_pickled(fd: int, data: bytes) -> None:
    """Write a message that is a pickle already."""
    _send_parts(fd, [memoryview(data)])


def _send_parts(fd: int, parts: list[memoryview]) -> None:
    sizes = [part.nbytes for part in parts]
    header = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    for part in (memoryview(header), *parts):
        done = 0
        while done < part.nbytes:
            done += os.write(fd, part[done : done + _PIPE_LIMIT])


def receive(fd: int, wait: Callable[[], None] | None = None) -> Any:
    """Read one message.

    Args:
        fd: Where from.
        wait: Called before every read; returns when there is something to read, or raises.

    Raises:
        EOFError: The other side closed the pipe or ended.
    """
    (count,) = struct.unpack("<I", _read(fd, 4, wait))
    sizes = struct.unpack(f"<{count}Q", _read(fd, 8 * count, wait))
    head, *buffers = [_read(fd, size, wait) for size in sizes]
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from a process of our own


def _read(fd: int, size: int, wait: Callable[[], None] | None) -> memoryview:
    # Not a bytearray: that would be filled with zeros first. Arrow's pool keeps the memory for the next message.
    view = memoryview(pa.allocate_buffer(size)).cast("B")
    done = 0
    while done < size:
        if wait is not None:
            wait()
        count = os.readv(fd, [view[done : done + _PIPE_LIMIT]])
        if count == 0:
            raise EOFError
        done += count
    return view
