"""Running Spark jobs so that Ctrl-C, or a notebook's stop button, ends them.

An interrupt that meets the main thread in a call into the JVM gives a ``Py4JError``: pyspark's own
signal handler speaks on the connection on which that call waits for its answer. So the calls are
made in a thread, for which the caller waits in Python.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from petastorm_bridge.spark._session import logger

__all__ = ["run_job"]

T = TypeVar("T")

# How long an interrupted caller waits for Spark to have cancelled the job.
_PATIENCE_SECONDS = 10.0


def run_job(session: Any, action: Callable[[], T]) -> T:
    """Return ``action()``; when the wait for it is interrupted, cancel the Spark jobs it started.

    Args:
        session: The session that the action uses, classic or Connect.
        action: Called in a thread that has the caller's local properties (scheduler pool, job
            group) and a tag of its own.
    """
    from pyspark import InheritableThread

    tag = f"petastorm-bridge-{uuid.uuid4()}"
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            _tag(session, tag)
            outcome.set_result(action())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            outcome.set_exception(error)

    # Newer releases also hand on the session's tags.
    takes_session = "session" in inspect.signature(InheritableThread.__init__).parameters
    options = {"session": session} if takes_session else {}
    thread: threading.Thread = InheritableThread(
        work, name="petastorm-bridge-job", daemon=True, **options
    )
    try:
        thread.start()
    except AssertionError:  # no Spark context is active: the action will say so
        thread = threading.Thread(target=work, name="petastorm-bridge-job", daemon=True)
        thread.start()
    try:
        return outcome.result()
    finally:
        if not outcome.done():
            _cancel(session, tag)
            wait([outcome], _PATIENCE_SECONDS)
        if outcome.done():
            thread.join()


def _tag(session: Any, tag: str) -> None:
    """Tag the jobs of this thread; a session that has no tags does without."""
    try:
        if (context := _context(session)) is None:
            session.addTag(tag)
        elif os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true":
            # Without it, threads of the JVM are shared and a tag would stay on other jobs.
            context.addJobTag(tag)
    except Exception as error:  # noqa: BLE001 - the job can do without
        logger.debug("Spark takes no tag for the job: %s", error)


def _cancel(session: Any, tag: str) -> None:
    with contextlib.suppress(Exception):  # the session may have ended
        if (context := _context(session)) is None:
            session.interruptTag(tag)
        else:
            context.cancelJobsWithTag(tag)


def _context(session: Any) -> Any:
    """Return the Spark context; None on Spark Connect and where nobody may have it."""
    try:
        return session.sparkContext
    except Exception:  # noqa: BLE001 - each Spark refuses in its own way
        return None
