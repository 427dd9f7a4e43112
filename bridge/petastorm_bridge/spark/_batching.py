"""How many rows Spark hands to the Python workers at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from petastorm_bridge.mds.encode import fixed_dtype

from . import _session
from ._log import logger

__all__ = ["small_arrow_batches"]

_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"

# Below this the exchange gets slower, above it images get large: 256 rows of 1 MB are 256 MB.
_MAX_ROWS = 256

_lock = threading.Lock()
_users: dict[int, tuple[int, str | None]] = {}


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
    with _lock:
        count, before = _users.get(id(session), (0, None))
        if not count:
            before = _limit(session)
        _users[id(session)] = (count + 1, before)
    try:
        yield
    finally:
        with _lock:
            count, before = _users.pop(id(session))
            if count > 1:
                _users[id(session)] = (count - 1, before)
            elif before is not None:
                _set(session, before)


def _limit(session: Any) -> str | None:
    """Lower the setting; return what it was, None if it was low enough or cannot be changed."""
    before = _session.conf_value(session, _CONF)
    if before is None or 0 < int(before) <= _MAX_ROWS:
        return None
    return before if _set(session, str(_MAX_ROWS)) else None


def _set(session: Any, value: str) -> bool:
    try:
        session.conf.set(_CONF, value)
    except Exception as error:  # noqa: BLE001 - whatever the platform raises, it works without
        logger.debug("Spark keeps its own %s: %s", _CONF, error)
        return False
    return True
