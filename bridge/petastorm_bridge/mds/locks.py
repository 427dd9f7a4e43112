"""Locks that do not stay held for ever in a forked child."""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A mutual exclusion of threads; a context manager.

    A fork copies locks as they are, and only the thread that forks. A plain lock that another
    thread held at that moment is never released in the child; this one is free there.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = self._lock
        _every_lock.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(self, *_: object) -> None:
        # In a child whose own thread forked within the block, that is the lock of before the fork.
        self._held.release()

    def renew(self) -> None:
        """Forget who holds the lock; for a new process, before it has a second thread."""
        self._lock = threading.RLock()


_every_lock: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_every_lock):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
