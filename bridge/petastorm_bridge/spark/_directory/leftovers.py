"""Directories of conversions that were killed before they had written everything.

A conversion that fails removes its directory; one whose process is killed cannot. The next process
that converts into the same parent directory removes it, if nobody else can possibly be at work in
it. Finished datasets stay: whoever has a converter of one may be reading it.
"""

from __future__ import annotations

import os

from petastorm_bridge.fs_utils import existing_local_path
from petastorm_bridge.mds.dataset import INDEX_NAME
from petastorm_bridge.spark._session import logger

from . import owner
from .store import store_at

__all__ = ["clear_unfinished"]

_looked_at: set[tuple[int, str]] = set()


def clear_unfinished(parent_url: str) -> None:
    """Remove directories of conversions whose process was killed; once for each process and parent.

    Only those go that a process of this machine and user made which has certainly ended, on a disk
    that no other machine writes to. Nothing that goes wrong here is an error.
    """
    parent = existing_local_path(parent_url)
    if parent is None:
        return
    key = (os.getpid(), parent)
    if key in _looked_at:
        return
    _looked_at.add(key)
    try:
        if not os.path.isdir(parent) or not owner.is_on_own_disk(parent):
            return
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            _clear(os.path.join(parent, name))
    except OSError as error:
        logger.debug("Cannot look for killed conversions in %s: %s", parent, error)


def _clear(directory: str) -> None:
    url = f"file://{directory}"
    store = store_at(url)
    if store.exists(INDEX_NAME) or not store.is_ours() or not owner.has_ended(store.owner()):
        return
    try:
        if os.stat(directory).st_uid != os.geteuid():
            return
        left = store.remove_ours()
    except OSError as error:
        logger.debug("Cannot remove the unfinished conversion %s: %s", directory, error)
        return
    kept = f", but not what others put there: {', '.join(left)}" if left else ""
    logger.info("Removed the unfinished conversion %s of a process that has ended%s.", url, kept)
