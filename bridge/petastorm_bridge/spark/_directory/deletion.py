"""Deleting cache directories, and only those: now, on request, and when Python exits.

The directory of every conversion holds a marker file from its first moment on, which says where the
directory is. What has no marker, or that of another place (a copy), was not made by the bridge and
is left alone, whoever asks and in whatever process. So is what others have put beside our files.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Sequence

from petastorm_bridge.fs_utils import masked
from petastorm_bridge.spark._session import logger

from .store import store_at

_NAMES_SHOWN = 5

_deleted: set[str] = set()

Handler = Callable[[str], object]


def is_foreign(dataset_url: str) -> bool:
    """Return whether something is there that the bridge did not make."""
    store = store_at(dataset_url)
    return not store.is_ours() and store.is_there()


def warn_left_alone(dataset_url: str) -> None:
    """Say that a directory is not deleted, because it is not the bridge's."""
    logger.warning(
        "Not deleting %s: petastorm-bridge did not write it. Delete it yourself if you no longer "
        "need it.",
        masked(dataset_url),
    )


def warn_of_left(dataset_url: str, names: Sequence[str]) -> None:
    """Say which files of others keep a directory from going; nothing if there are none."""
    if names:
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        logger.warning(
            "Deleted the dataset in %s, but left what petastorm-bridge did not write: %s.",
            masked(dataset_url),
            shown,
        )


def default_delete_handler(dataset_url: str) -> None:
    """Remove a cache directory; one that is gone already is fine, a foreign one is left alone.

    Files that others have put into it stay, and so does the directory then, with a warning.

    Raises:
        OSError: It cannot be removed.
    """
    store = store_at(dataset_url)
    if store.is_ours():
        warn_of_left(dataset_url, store.remove_ours())
    elif store.is_there():
        warn_left_alone(dataset_url)


def note_deleted(dataset_url: str) -> None:
    """Remember that this process deleted a cache directory."""
    _deleted.add(dataset_url)


def was_deleted(dataset_url: str) -> bool:
    """Return whether this process deleted the cache directory."""
    return dataset_url in _deleted


def delete_at_exit(dataset_url: str, current_handler: Callable[[], Handler]) -> None:
    """Delete a cache directory when this process (no forked child of it) exits."""
    _deleted.discard(dataset_url)  # it may have been written again
    atexit.register(_delete, dataset_url, os.getpid(), current_handler)


def _delete(url: str, process: int, current_handler: Callable[[], Handler]) -> None:
    if process != os.getpid() or url in _deleted:
        return
    note_deleted(url)
    try:
        current_handler()(url)
    except Exception as error:  # noqa: BLE001 - best effort: Python is exiting
        with contextlib.suppress(Exception):
            logger.warning(
                "Delete cache data %s failed due to %s", masked(url), masked(repr(error), url)
            )
