"""Copying files from remote stores to local disk."""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import random
import time
import uuid
from collections.abc import Mapping
from typing import Any

from petastorm_bridge._secrets import masked, without_secrets
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError

from .remote_errors import RemoteAccessError, RemoteError, explain
from .remote_limits import limits
from .remote_stores import Fetcher

__all__ = ["fetch_file"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.5
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_chance = random.SystemRandom()  # the user's seeds are not touched


def fetch_file(
    fetcher: Fetcher,
    url: str,
    path: str,
    expected: Mapping[str, Any] | None,
    *,
    alone: bool = False,
) -> None:
    """Copy a file so that ``path`` is never anything but the whole file.

    It is fetched under another name, compared with its index entry and then renamed; what other
    processes do at the same time does not matter. Every attempt that fails is logged.

    Args:
        fetcher: Does the copying.
        url: The file.
        path: Where it shall be; the directory exists.
        expected: ``{"bytes": …, "hashes": {name: hex digest}}``, or None where nothing is known.
        alone: Whether nobody else fetches it. What a killed process has left is then replaced.

    Raises:
        DatasetNotFoundError: It is not there.
        RemoteAccessError: The store refuses.
        DatasetError: It cannot be read, or is not what the index says, in several attempts.
        OSError: It cannot be written here.
    """
    temporary = f"{path}.part" if alone else f"{path}.{uuid.uuid4().hex}.part"
    attempts = limits().attempts
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(1, attempts + 1):
        _remove(temporary)  # some packages take a file that is there for the answer
        try:
            _fetch_once(fetcher, url, temporary, expected)
            os.replace(temporary, path)
        except (DatasetNotFoundError, RemoteAccessError):
            raise
        except DatasetError as error:
            if attempt == attempts or (fetcher.tries_again and isinstance(error, RemoteError)):
                raise
            seconds = pause * _chance.uniform(0.5, 1.0)  # many workers fail at the same moment
            logger.warning(
                "Attempt %d of %d failed: %s The next one begins in %.1f seconds.",
                attempt,
                attempts,
                error,
                seconds,
            )
            time.sleep(seconds)
            pause *= 2
        else:
            return
        finally:
            _remove(temporary)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def _fetch_once(fetcher: Fetcher, url: str, path: str, expected: Mapping[str, Any] | None) -> None:
    try:
        fetcher.fetch(url, path)
    except ImportError:
        raise
    except OSError as error:
        folder = os.path.dirname(path)
        if error.errno in _DISK_ERRORS or folder in str(error.filename):
            raise OSError(
                error.errno,
                f"{error.strerror}: no copy of {masked(url)} can be kept here. Make room, or set "
                "PETASTORM_BRIDGE_LOCAL_CACHE to another directory",
                folder,
            ) from error
        raise explain(error, url) from without_secrets(error, url)
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, url) from without_secrets(error, url)
    problem = None if expected is None else _mismatch(path, expected)
    if problem is not None:
        raise DatasetError(
            f"{masked(url)} does not match the dataset's index: {problem}. The download was cut short, or "
            "the file was replaced or damaged in the store."
        )


def _mismatch(path: str, expected: Mapping[str, Any]) -> str | None:
    """Return how a file differs from its index entry, None when it does not."""
    size = os.path.getsize(path)
    if size != expected["bytes"]:
        return f"expected {expected['bytes']} bytes, found {size}"
    name = next((name for name in expected["hashes"] if codecs.is_hash(name)), None)
    if name is None or size == 0:
        return None
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        found = codecs.digest(name, data)
    if found != expected["hashes"][name]:
        return f"expected {name} {expected['hashes'][name]}, found {found}"
    return None
