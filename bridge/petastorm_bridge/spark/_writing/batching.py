"""How many rows Spark hands to the Python workers at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from petastorm_bridge.mds.locks import ForkSafeLock
from petastorm_bridge.mds.types import fixed_dtype
from petastorm_bridge.spark import _session
from petastorm_bridge.spark._session import logger

__all__ = ["small_arrow_batches"]

_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"

# Below this the exchange gets slower, above it images get large: 256 rows of 1 MB are 256 MB.
_MAX_ROWS = 256

_lock = ForkSafeLock()
_users: dict[int, tuple[int, Callable[[], None]]] = {}


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
        before = _session.conf_value(session, _CONF)  # None if nobody has set it
        if 0 < int(session.conf.get(_CONF)) <= _MAX_ROWS:
            return lambda: None
        session.conf.set(_CONF, str(_MAX_ROWS))
    except Exception as error:  # noqa: BLE001 - whatever the platform raises, it works without
        logger.debug("Spark keeps its own %s: %s", _CONF, error)
        return lambda: None
    if before is None:
        return lambda: session.conf.unset(_CONF)
    return lambda: session.conf.set(_CONF, before)
