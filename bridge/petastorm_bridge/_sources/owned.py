"""Directories for copies of remote files, which go with the process that made them.

A process removes its own when it ends. One that is killed, or leaves by ``os._exit``, cannot: the next
process that needs such a directory removes those of dead ones. What tells the dead from the living is
a file in the directory that its owner keeps locked; the system unlocks it when the process ends in
whatever way. A number of a process would not do: containers that share a temporary directory number
their processes each by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
import weakref
from multiprocessing import util

__all__ = ["OwnedDirectory"]

_LOCK_NAME = ".petastorm-bridge-owner"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_cleared: set[tuple[int, str, str]] = set()


class OwnedDirectory:
    """A new directory, removed at the end of this process at the latest.

    Args:
        parent: Where to make it. Directories there that dead processes have left are removed, once
            in a process.
        prefix: How its name, and the names of those, begin.

    Attributes:
        path: The directory.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, parent: str, prefix: str) -> None:
        key = (os.getpid(), parent, prefix)
        if key not in _cleared:
            _cleared.add(key)
            _clear(parent, prefix)
        self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        lock = _lock(self.path)
        # Not atexit: children of multiprocessing (torch's workers) end without it.
        self._finalizer = util.Finalize(None, _remove, args=(self.path, lock), exitpriority=-100)

    def remove(self) -> None:
        """Remove the directory; nothing in a fork, nor a second time."""
        self._finalizer()

    def remove_with(self, owner: object) -> None:
        """Remove the directory when an object is no longer used."""
        weakref.finalize(owner, self._finalizer).atexit = False


def _lock(directory: str) -> int | None:
    """Lock the owner's file; return its descriptor, None where the file system has no locks."""
    path = os.path.join(directory, _LOCK_NAME)
    descriptor = os.open(f"{path}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, _mark(directory))
    except OSError:
        os.close(descriptor)
        os.remove(f"{path}.new")
        return None
    os.rename(f"{path}.new", path)  # nobody sees it unlocked
    return descriptor


def _mark(directory: str) -> bytes:
    """Return what the owner's file says.

    Of a copy of the directory it is not true, nor on another machine that mounts the same disk, on
    which the lock may not be seen.
    """
    boot = None
    with contextlib.suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:
        boot = file.read().strip()
    mark = {"made_by": "petastorm-bridge", "directory": os.path.basename(directory), "boot": boot}
    return json.dumps(mark).encode()


def _clear(parent: str, prefix: str) -> None:
    """Remove the directories of dead processes of this user."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                lock = _lock_of_the_dead(entry.path)
                if lock is not None:
                    _remove(entry.path, lock)


def _lock_of_the_dead(directory: str) -> int | None:
    """Lock the owner's file of a directory; None unless all is certain.

    It must be of this user, made by this package on this machine since it was started, and the lock
    free.
    """
    with contextlib.suppress(OSError):
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
            lock = os.open(_LOCK_NAME, flags, dir_fd=folder)
            if os.fstat(folder).st_uid == os.geteuid() and _is_free(lock, directory):
                return lock
            os.close(lock)
        finally:
            os.close(folder)
    return None


def _is_free(lock: int, directory: str) -> bool:
    status = os.fstat(lock)
    mark = _mark(directory)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    if os.pread(lock, len(mark) + 1, 0) != mark or b'"boot": null' in mark:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(directory: str, lock: int | None) -> None:
    """Remove a directory, the owner's file last: what is left of a removal cut short has one."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.name == _LOCK_NAME:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.remove(entry.path)
    shutil.rmtree(directory, ignore_errors=True)
    if lock is not None:
        with contextlib.suppress(OSError):
            os.close(lock)
