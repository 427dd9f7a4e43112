"""Directories of conversions that were killed before they had written everything.

A conversion that fails removes its directory; one whose process is killed cannot. But while it is at work it
holds a lock on the directory, which the system frees when the process ends in whatever way. The next process
that converts into the same parent directory removes those that nobody holds. Finished datasets stay: whoever
has a converter of one may be reading it.

Locks tell of processes of one machine only, in all of its containers; what another machine began is left
alone. So is everything on mounts of the network: looking at each directory there takes the time of requests.
"""

from __future__ import annotations

import os

from petastorm_bridge.fs_utils import existing_local_path
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.spark._session import logger

from .mounted import MountedStore

__all__ = ["clear_unfinished"]

_looked_at: set[tuple[int, str]] = set()


def clear_unfinished(parent_url: str) -> None:
    """Remove this user's directories of killed conversions; once for each process and parent.

    Nothing that goes wrong here is an error.
    """
    parent = existing_local_path(parent_url)
    if parent is None:
        return
    key = (os.getpid(), parent)
    if key in _looked_at:
        return
    _looked_at.add(key)
    try:
        if not os.path.isdir(parent) or is_far(parent):
            return
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            _clear(os.path.join(parent, name))
    except OSError as error:
        logger.debug("Cannot look for killed conversions in %s: %s", parent, error)


def _clear(directory: str) -> None:
    try:
        left = MountedStore(directory).remove_unfinished()
    except OSError as error:
        logger.debug("Cannot remove the unfinished conversion %s: %s", directory, error)
        return
    if left is not None:
        kept = f", but not what others put there: {', '.join(left)}" if left else ""
        logger.info(
            "Removed the unfinished conversion %s of a process that has ended%s.", directory, kept
        )
