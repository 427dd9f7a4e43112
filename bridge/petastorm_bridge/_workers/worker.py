"""What runs in a worker process: reads tasks from one pipe, writes their results to another."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from typing import Any

from .wire import receive, send

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
