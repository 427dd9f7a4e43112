"""Deleting cache directories, and only those: now, on request, and when Python exits.

The directory of every conversion holds a marker file from its first moment on. What has no marker,
or the marker of another directory (a copy), was not made by the bridge and is left alone, whoever
asks and in whatever process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable

from petastorm_bridge.fs_utils import local_path

from ._log import logger

__all__ = [
    "MARKER_NAME",
    "default_delete_handler",
    "delete_at_exit",
    "is_ours",
    "note_deleted",
    "remove_tree",
    "was_deleted",
    "write_marker",
]

MARKER_NAME = "_petastorm_bridge_cache.json"

_lock = threading.Lock()
_deleted: set[str] = set()
_to_delete: dict[str, int] = {}
_registered_pid: int | None = None

Handler = Callable[[str], object]


def write_marker(directory: str) -> None:
    """Mark ``directory`` as made by a conversion.

    Raises:
        OSError: It cannot be written.
    """
    with open(os.path.join(directory, MARKER_NAME), "w", encoding="utf-8") as file:
        json.dump({"made_by": "petastorm-bridge", "directory": os.path.basename(directory)}, file)


def is_ours(directory: str) -> bool:
    """Return whether ``directory`` carries the marker that was written for it."""
    try:
        with open(os.path.join(directory, MARKER_NAME), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("directory") == os.path.basename(directory)


def default_delete_handler(dataset_url: str) -> None:
    """Remove a cache directory; one that is gone already is fine, a foreign one is left alone.

    Raises:
        OSError: It cannot be removed.
    """
    directory = local_path(dataset_url)
    if directory is None or not os.path.lexists(directory):
        return
    if not is_ours(directory):
        logger.warning("Not deleting %s: petastorm-bridge did not make it.", dataset_url)
        return
    remove_tree(directory)


def remove_tree(directory: str, attempts: int = 3) -> None:
    """Remove a directory that a dying task may still be writing to.

    Raises:
        OSError: It cannot be removed.
    """
    for left in reversed(range(attempts)):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            if not os.path.lexists(directory):
                return
        except OSError:
            if not left:
                raise
        else:
            return


def note_deleted(dataset_url: str) -> None:
    """Remember that this process deleted a cache directory."""
    with _lock:
        _deleted.add(dataset_url)
        _to_delete.pop(dataset_url, None)


def was_deleted(dataset_url: str) -> bool:
    """Return whether this process deleted the cache directory."""
    return dataset_url in _deleted


def delete_at_exit(dataset_url: str, current_handler: Callable[[], Handler]) -> None:
    """Delete a cache directory when this process (no forked child of it) exits.

    Args:
        dataset_url: The directory's URL.
        current_handler: Returns the delete handler in force then.
    """
    global _registered_pid  # noqa: PLW0603 - one registration per process
    with _lock:
        _to_delete[dataset_url] = os.getpid()
        if _registered_pid != os.getpid():
            _registered_pid = os.getpid()
            atexit.register(_delete_all, current_handler)


def _delete_all(current_handler: Callable[[], Handler]) -> None:
    for url, pid in list(_to_delete.items()):
        if pid != os.getpid():
            continue
        try:
            current_handler()(url)
        except Exception as error:  # noqa: BLE001 - best effort: Python is exiting
            with contextlib.suppress(Exception):
                logger.warning("Delete cache data %s failed due to %s", url, repr(error))
