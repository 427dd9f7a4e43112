"""A lock on a file, among the threads of all processes that see it.

Only Linux has what readers and conversions need of ``fcntl``; whoever takes it from here refuses other systems with
one sentence. The command line's `codemod`, `doctor`, `rule`, `difference` and `parity compare` do without.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

try:
    import fcntl
except ModuleNotFoundError as error:
    raise ImportError(
        "petastorm_bridge needs Linux for this (on Windows, WSL). Here the commands doctor, codemod, rule, "
        "difference and parity compare of petastorm-bridge work."
    ) from error

from .locks import renew_in_forks

__all__ = ["LastingLock", "fcntl", "is_at", "locked"]

_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.05

# What is open of locks. A child that had one of them open would hold the lock, too, and go on doing so
# when its parent is killed. So none is forked before what was opened is noted here.
_open_files: set[int] = set()
_no_fork = threading.RLock()
# Notified when a thread of this process lets go of a lock, so that its other threads need not find out by themselves.
_released = threading.Condition()


@contextlib.contextmanager
def locked(path: str, patience: float) -> Iterator[bool]:
    """Hold a lock in the block, and give whether it is held.

    It is not where the file system has no locks, where the file cannot be made, and where somebody
    else holds it too long. The system frees the locks of processes that end in whatever way.

    Args:
        path: The lock's file, which is there only while the lock is held. Its directory is made if need be.
        patience: Seconds to wait at most.
    """
    descriptor = _acquire(path, time.monotonic() + patience)
    if descriptor is None:
        yield False
        return
    process = os.getpid()
    try:
        yield True
    finally:
        if os.getpid() == process:
            with contextlib.suppress(OSError):
                os.remove(path)  # first: who waits for it must see that it is another file by then
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork may have it open
            _close(descriptor)
            with _released:
                _released.notify_all()


class LastingLock:
    """A lock on a file that stays; each thread has it for itself, as often as it acquires it.

    It stands where others have a ``filelock.FileLock`` on the same file, which asks the system three times as much and
    lets threads look every 50 ms. Pickles; a fork begins without it.

    Args:
        path: The lock's file, which is made if need be.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.renew()
        renew_in_forks(self)

    def __reduce__(self) -> Any:
        return LastingLock, (self._path,)

    def renew(self) -> None:
        """Forget who has it."""
        self._mutex = threading.RLock()
        self._held: list[contextlib.ExitStack] = []  # by the thread that has the mutex

    def acquire(self) -> None:
        """Wait for the lock; OSError where the file system has none."""
        with contextlib.ExitStack() as on_error:
            self._mutex.acquire()
            on_error.callback(self._mutex.release)
            if not self._held:
                descriptor = _opened(self._path)
                on_error.callback(_close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                on_error.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # a fork may have it open
            self._held.append(on_error.pop_all())

    def release(self, force: bool = False) -> None:
        """Let go of the lock once, or as often as the thread has acquired it."""
        for _ in range(len(self._held) if force else 1):
            self._held.pop().close()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def _acquire(path: str, deadline: float) -> int | None:
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            descriptor = _opened(path)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                _close(descriptor)
                return None
            with _released:
                _released.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except OSError:
            _close(descriptor)
            return None
        _close(descriptor)


def _opened(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with _no_fork:
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, flags, 0o666)
        _open_files.add(descriptor)
    return descriptor


def is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _close(descriptor: int) -> None:
    with _no_fork:
        _open_files.discard(descriptor)
        os.close(descriptor)


def _let_go() -> None:
    # A child would otherwise keep the locks of its parent beyond the parent's end.
    for descriptor in _open_files:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _open_files.clear()
    global _released  # noqa: PLW0603 - another thread of the parent may have held it
    _released = threading.Condition()
    _no_fork.release()


os.register_at_fork(
    before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_let_go
)
