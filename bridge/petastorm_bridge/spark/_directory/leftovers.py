"""Directories of conversions that were killed before they had written everything.

A conversion that fails removes its directory; one whose process is killed cannot. But while it is at work it
holds a lock on the directory, which the system frees when the process ends in whatever way. The next process
that converts into the same parent directory removes those that nobody holds. Finished datasets stay: whoever
has a converter of one may be reading it.

Locks tell of processes of one machine only, in all of its containers; what another machine began is left
alone. So is everything on mounts of the network: looking at each directory there takes the time of requests.
"""

from __future__ import annotations

import contextlib
import functools
import os

from petastorm_bridge.fs_utils import existing_local_path
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.spark._session import logger

from .mounted import MountedStore

__all__ = ["clear_unfinished"]


def clear_unfinished(parent_url: str) -> None:
    """Remove this user's directories of killed conversions; once for each process and parent.

    Nothing that goes wrong here is an error.
    """
    parent = existing_local_path(parent_url)
    if parent is not None:
        _clear(parent, os.getpid())


@functools.cache
def _clear(parent: str, process: int) -> None:
    del process  # a fork looks anew
    with contextlib.suppress(OSError):
        if not os.path.isdir(parent) or is_far(parent):
            return
        with os.scandir(parent) as entries:
            directories = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for directory in directories:
            with contextlib.suppress(OSError):
                if MountedStore(directory).remove_unfinished():
                    logger.info(
                        "Removed the unfinished conversion %s of a dead process.", directory
                    )
