"""Running Spark jobs: so that Ctrl-C ends them, with small batches, and with a display of how far they are."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import pyarrow as pa

from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge._workers.progress import progress_bar
from petastorm_bridge.mds.types import fixed_dtype
from petastorm_bridge.spark import _session
from petastorm_bridge.spark._directory.store import Store
from petastorm_bridge.spark._session import logger

T = TypeVar("T")

# How long an interrupted caller waits for Spark to have cancelled the job.
_PATIENCE_SECONDS = 10.0
_ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Below this the exchange gets slower, above it images get large: 256 rows of 1 MB are 256 MB.
_MAX_ROWS = 256
# Progress is shown after a while, and anew from then on.
_DELAY_SECONDS = 2.0
_PERIOD_SECONDS = 1.0

# How many jobs exchange few rows at a time in each session, and what puts its own setting back.
_users: dict[int, tuple[int, Callable[[], None]]] = {}
_lock = ForkSafeLock()


def run_job(session: Any, action: Callable[[], T]) -> T:
    """Return ``action()``; when the wait for it is interrupted, cancel the Spark jobs it started.

    An interrupt (Ctrl-C, a notebook's stop button) that meets the main thread in a call into the JVM gives a
    ``Py4JError``: pyspark's own signal handler speaks on the connection on which that call waits for its answer.
    So the calls are made in a thread, for which the caller waits in Python.

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


@contextlib.contextmanager
def small_arrow_batches(session: Any, schema: pa.Schema) -> Iterator[None]:
    """Let jobs that start in the block exchange few rows at a time where rows may be large.

    Spark cuts batches at 10,000 rows whatever their size, which is ten gigabytes of one-megabyte
    images. The session's setting is changed for the time of the block and then put back; a session
    that does not allow it (serverless compute) keeps its own.

    Args:
        session: Spark session that runs the jobs.
        schema: What is written; nothing is changed for columns of fixed width.
    """
    if all(fixed_dtype(field.type) is not None for field in schema):
        yield
        return
    key = id(session)
    with _lock:
        count, restore = _users[key] if key in _users else (0, _lower(session))
        _users[key] = (count + 1, restore)
    try:
        yield
    finally:
        with _lock:
            count, restore = _users.pop(key)
            if count > 1:
                _users[key] = (count - 1, restore)
            else:
                restore()


def _lower(session: Any) -> Callable[[], None]:
    """Lower the setting if it is too high; return what puts it back."""
    try:
        before = _session.conf_value(session, _ROWS_CONF)  # None if nobody has set it
        if 0 < int(session.conf.get(_ROWS_CONF)) <= _MAX_ROWS:
            return lambda: None
        session.conf.set(_ROWS_CONF, str(_MAX_ROWS))
    except Exception as error:  # noqa: BLE001 - whatever the platform raises, it works without
        logger.debug("Spark keeps its own %s: %s", _ROWS_CONF, error)
        return lambda: None
    if before is None:
        return lambda: session.conf.unset(_ROWS_CONF)
    return lambda: session.conf.set(_ROWS_CONF, before)


@contextlib.contextmanager
def showing_progress(store: Store) -> Iterator[None]:
    """Show shards and bytes written to ``store`` while the block runs.

    Only the directory is looked at, so this works for every kind of Spark session. Terminals and
    notebooks get the display, after two seconds; other outputs get nothing.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_show, args=(store, stop), name="petastorm-bridge-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(store: Store, stop: threading.Event) -> None:
    if stop.wait(_DELAY_SECONDS):
        return
    bar = progress_bar("Converting to MDS", "B", unit_divisor=1024)
    if bar is None:
        return
    with bar:
        sizes: dict[str, int] = {}
        complete: dict[str, int] = {}
        while True:
            stopping = stop.wait(_PERIOD_SECONDS)
            before, sizes = sizes, _shard_sizes(store, complete)
            # Some mounts show a file while it is written: one is complete whose size stays.
            complete = {name: size for name, size in sizes.items() if before.get(name) == size}
            bar.update(sum(sizes.values()) - bar.n)
            bar.set_postfix(shards=len(sizes), refresh=True)
            if stopping:
                return


def _shard_sizes(store: Store, complete: Mapping[str, int]) -> dict[str, int]:
    try:
        return {name: size for name, size in store.sizes(complete).items() if ".mds" in name}
    except Exception as error:  # noqa: BLE001 - the display is only a courtesy
        logger.debug("Cannot look at the progress: %s", error)
        return {}
