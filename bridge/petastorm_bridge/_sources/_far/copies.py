"""Where this machine's copies of far files lie, for how long, and how many of them.

Every dataset has a directory below one root, named for the dataset's content, so that a dataset that was written
anew is never taken for the old one. Whoever uses a directory holds a lock on a file in it, together with others; the
system frees the locks of processes that end in whatever way. Who finds that nobody else holds it any more removes
the directory, unless the user named the root: copies there stay until others need the room.

A number of a process would not do in place of a lock: containers that share a temporary directory number their
processes each by itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import util
from typing import Any

from petastorm_bridge._workers.file_lock import fcntl, is_at
from petastorm_bridge._workers.locks import ForkSafeLock

from .errors import RemoteError
from .limits import CACHE_VARIABLE, cache_limit

_FAST_DISK = "/local_disk0/tmp"  # where Databricks has one
_LOCK_NAME = ".in-use"
_NAME = re.compile(r"[0-9a-f]{32}(?:-[0-9a-f]{32})?")
_REMOVED = re.compile(r"\.removed-[0-9a-f]{32}")
_MARK = b"made by petastorm-bridge"
# Of a disk, what copies leave free for others.
_RESERVED_SHARE, _RESERVED_BYTES = 0.05, 4 << 30
_COUNT_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class CacheSettings:
    """What a reader's arguments say of copies; None where the environment decides.

    Attributes:
        location: The root.
        size_limit: Most bytes below it.
    """

    location: str | None = None
    size_limit: int | None = None


class Copies:
    """A directory for copies of one dataset, shared by all of this machine that read it.

    This process keeps it until it ends, for readers to come, or until others need the room.

    Attributes:
        path: The directory.

    Args:
        name: What the dataset is called here: 32 hexadecimal digits that follow from its content.
        is_private: Whether it is for this object alone, because its content does not tell it from others.
        settings: Where it lies and how large it may grow.

    Raises:
        RemoteError: It cannot be made.
    """

    def __init__(
        self, name: str, *, is_private: bool = False, settings: CacheSettings | None = None
    ) -> None:
        settings = settings or CacheSettings()
        named = settings.location or os.environ.get(CACHE_VARIABLE)
        self._limit = cache_limit() if settings.size_limit is None else settings.size_limit
        try:
            self._root = os.path.abspath(named) if named else _default_root()
            os.makedirs(self._root, exist_ok=True)
            _remove_unused(self._root, private_only=bool(named))
            self.path = os.path.join(
                self._root, f"{name}-{uuid.uuid4().hex}" if is_private else name
            )
            self._is_private = is_private
            self._is_kept = bool(named) and not is_private
            self.hold()
        except OSError as error:
            place = f"{CACHE_VARIABLE}={named}" if named else tempfile.gettempdir()
            raise RemoteError(
                f"No directory for copies of far files can be made in {place}: {error}. Set "
                f"{CACHE_VARIABLE} to a directory on a local disk with room for the dataset."
            ) from error
        self._room = 0.0  # bytes that may be added; others add some, too
        self._counted_at = float("-inf")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Hold the directory in this process, too."""
        self.__dict__.update(state)
        self._counted_at = float("-inf")  # another machine has another clock and another disk
        self.hold()

    def hold(self) -> None:
        """Keep others from removing the directory, in this process, which may be a fork.

        Raises:
            OSError: It cannot be made.
        """
        with _held_lock:
            held = _held.get(self.path)
            if held is None:
                held = _held[self.path] = _Held(self.path, is_kept=self._is_kept)
            if self not in held.users:
                held.users.add(self)
                if self._is_private:
                    weakref.finalize(self, _let_go, self.path).atexit = False

    def bytes(self) -> int:
        """Return how many bytes this dataset's copies take."""
        return _bytes_below(self.path)

    def has_room(self, size: int) -> bool:
        """Return whether a file of so many bytes may be added now, and count it as added if so."""
        with _held_lock:
            while size > self._counted_room():
                if not _remove_oldest(self._root):
                    return False
                self._counted_at = float("-inf")
            self._room -= size
            return True

    def _counted_room(self) -> float:
        """Return how many bytes may be added; what others add is noticed after a while."""
        if time.monotonic() - self._counted_at > _COUNT_AGAIN_SECONDS:
            disk = shutil.disk_usage(self._root)
            self._room = disk.free - min(disk.total * _RESERVED_SHARE, _RESERVED_BYTES)
            if self._limit is not None:
                taken = sum(_bytes_below(entry.path) for entry in _directories(self._root))
                self._room = min(self._room, self._limit - taken)
            self._counted_at = time.monotonic()
        return self._room


class _Held:
    """A directory that this process holds.

    Attributes:
        users: The objects that use it; without any it may go if others need the room.
    """

    def __init__(self, path: str, *, is_kept: bool) -> None:
        self.users: weakref.WeakSet[Copies] = weakref.WeakSet()
        lock = _lock_with_others(path)
        # Not atexit: children of multiprocessing (torch's workers) end without it.
        self.let_go = util.Finalize(None, _let_go_of, (path, lock, is_kept), exitpriority=-100)


_held: dict[str, _Held] = {}
_held_lock = ForkSafeLock()
os.register_at_fork(after_in_child=_held.clear)


def _let_go(path: str) -> None:
    """Let go of a directory that nobody of this process uses any more."""
    with _held_lock:
        held = _held.get(path)
        if held is not None and not list(held.users):
            del _held[path]
            held.let_go()


def _default_root() -> str:
    """Return a directory of this user's for all processes of this machine."""
    parent = _FAST_DISK if os.access(_FAST_DISK, os.W_OK) else tempfile.gettempdir()
    root = os.path.join(parent, f"petastorm-bridge-cache-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(root, 0o700)
    status = os.lstat(root)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        # Somebody else's, or a link to anywhere: what lies there is not to be trusted.
        return tempfile.mkdtemp(prefix="petastorm-bridge-cache-", dir=parent)
    return root


def _lock_with_others(directory: str) -> int | None:
    """Make a directory if need be and take its lock; None where the file system has no locks."""
    path = os.path.join(directory, _LOCK_NAME)
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
        if os.path.islink(directory):
            raise OSError(f"{directory} is a link")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody removed the directory just now
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if is_at(lock, path):
                if not os.fstat(lock).st_size:
                    os.write(lock, _MARK)
                os.utime(lock)
                return lock
        except OSError:
            os.close(lock)
            return None
        os.close(lock)


def _let_go_of(directory: str, lock: int | None, is_kept: bool) -> None:
    """Let go of a directory, and remove it if nobody else uses it and nobody asked to keep it.

    Without locks that is not known: others fetch again what they miss.
    """
    if lock is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # a fork may have it open
        os.close(lock)
    if is_kept:
        return
    if lock is None:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        _try_to_remove(directory)


def _directories(root: str, names: re.Pattern[str] = _NAME) -> Iterator[os.DirEntry[str]]:
    """Yield the directories of datasets below a root, no links."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if names.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield entry


def _bytes_below(directory: str) -> int:
    """Return the bytes of the files in a directory, which come and go."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _remove_unused(root: str, *, private_only: bool) -> None:
    """Remove directories that processes which were killed have left."""
    for entry in _directories(root):
        if not private_only or "-" in entry.name:
            _try_to_remove(entry.path)
    for entry in _directories(root, _REMOVED):
        shutil.rmtree(entry.path, ignore_errors=True)


def _remove_oldest(root: str) -> bool:
    """Remove the directory that was used last the longest ago and that nobody uses now, if there is one."""

    def last_use(entry: os.DirEntry[str]) -> float:
        with contextlib.suppress(OSError):
            return os.lstat(os.path.join(entry.path, _LOCK_NAME)).st_mtime
        return 0.0

    for path in list(_held):
        _let_go(path)
    return any(_try_to_remove(entry.path) for entry in sorted(_directories(root), key=last_use))


def _try_to_remove(directory: str) -> bool:
    """Remove a directory of this user, made by this package, if a lock on it can be had alone."""
    path = os.path.join(directory, _LOCK_NAME)
    removed = os.path.join(os.path.dirname(directory), f".removed-{uuid.uuid4().hex}")
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(lock)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or os.pread(lock, len(_MARK) + 1, 0) != _MARK:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, path):
            return False
        # Under another name first: who comes now makes a new one.
        os.rename(directory, removed)
    except OSError:
        return False
    finally:
        os.close(lock)
    shutil.rmtree(removed, ignore_errors=True)
    return True
