"""What a forked child begins anew, such as locks, which would stay held for ever."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkSafeLock:
    """A mutual exclusion of threads; a context manager.

    A fork copies locks as they are, and only the thread that forks. A plain lock that another
    thread held at that moment is never released in the child; this one is free there.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = self._lock
        renew_in_forks(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(self, *_: object) -> None:
        # In a child whose own thread forked within the block, that is the lock of before the fork.
        self._held.release()

    def renew(self) -> None:
        """Forget who holds the lock."""
        self._lock = threading.RLock()


class Renewable(Protocol):
    """What a fork has to begin anew."""

    def renew(self) -> None:
        """Forget what is of another process."""


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_forks(thing: Renewable) -> None:
    """Have ``thing`` renewed in every fork, before that has a second thread."""
    _renewables.add(thing)


def _renew_all() -> None:
    for thing in list(_renewables):
        thing.renew()


os.register_at_fork(after_in_child=_renew_all)
