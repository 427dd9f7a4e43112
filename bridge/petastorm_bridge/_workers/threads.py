"""Threads that call functions, and that cannot keep a program from ending.

``concurrent.futures`` waits for its threads without limit, when an executor is shut down and again
when Python exits: a transform that hangs would make a program deaf to Ctrl-C.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import util
from typing import Any, TypeVar

from .locks import renew_in_forks

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

# How long calls under way may take to finish when threads are closed, or when Python exits.
_GRACE_SECONDS = 5.0
_REQUESTS_AT_ONCE = 32


def usable_cores() -> int:
    """Return how many processor cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Crew:
    """What threads share; they must not keep what started them alive."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        # A heap of calls, by their priority and by when they came, which no two have in common.
        self.waiting: list[tuple[int, int, Future[Any], Callable[[], Any], Any]] = []
        self.numbers = itertools.count()
        self.threads: list[threading.Thread] = []
        self.at_work: dict[threading.Thread, Any] = {}  # what their calls are about
        self.idle = 0
        self.is_closed = False
        self.progress = time.monotonic()

    def drop(self) -> None:
        """Cancel what waits, and let every thread end after what it does now."""
        with self.changed:
            dropped, self.waiting = self.waiting, []
            self.is_closed = True
            self.changed.notify_all()
        for _, _, future, _, _ in dropped:
            future.cancel()

    def wait(self) -> bool:
        """Return whether all threads have ended within a few seconds."""
        deadline = time.monotonic() + _GRACE_SECONDS
        threads = list(self.threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


class Threads:
    """Calls functions in threads, in the order in which they come unless they say otherwise.

    Threads start when there is work for them. A fork begins with none, and without what waits. Left to the
    garbage collector, what waits is dropped; at the end of the program what runs is also waited for, but
    only a few seconds.

    Args:
        name: Of the threads.
        most: Threads at most; see :meth:`grow`.
        idle_seconds: A thread ends when it has had no work for so long; None for never.
        give_up: Called with what the calls are about that have not ended in time; returns whether it has
            ended them. Without it they are left behind.
    """

    def __init__(
        self,
        name: str,
        most: int,
        *,
        idle_seconds: float | None = None,
        give_up: Callable[[list[Any]], bool] = lambda _: False,
    ) -> None:
        self._name = name
        self.most = most
        self._idle_seconds = idle_seconds
        self._give_up = give_up
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Begin without threads and work."""
        self._crew = _Crew()
        # It also runs at the end of a child of multiprocessing, where weakref.finalize does not.
        self._finalizer = util.Finalize(
            self, _abandon, args=(self._crew, self._give_up), exitpriority=0
        )

    @property
    def progress(self) -> float:
        """When a call ended last, in seconds of ``time.monotonic``."""
        return self._crew.progress

    @property
    def free(self) -> int:
        """How many more calls would begin at once."""
        with self._crew.changed:
            return max(0, self.most - len(self._crew.at_work) - len(self._crew.waiting))

    def submit(
        self, call: Callable[[], _Result], about: Any = None, priority: int = 0
    ) -> Future[_Result]:
        """Have a function called; after the end the call is cancelled at once.

        Args:
            call: The function.
            about: What ``give_up`` is told.
            priority: Calls with a lower one come first.
        """
        future: Future[_Result] = Future()
        crew = self._crew
        with crew.changed:
            if crew.is_closed:
                future.cancel()
                return future
            if not crew.waiting and len(crew.threads) == crew.idle:
                crew.progress = time.monotonic()
            heapq.heappush(crew.waiting, (priority, next(crew.numbers), future, call, about))
            self._start_if_needed()
            crew.changed.notify()
        return future

    def _start_if_needed(self) -> None:
        crew = self._crew
        if crew.idle < len(crew.waiting) and len(crew.threads) < self.most:
            thread = threading.Thread(
                target=_serve,
                args=(crew, self._idle_seconds),
                name=f"{self._name}_{len(crew.threads)}",
                daemon=True,
            )
            thread.start()  # which Python refuses at its end
            crew.threads.append(thread)

    def grow(self) -> None:
        """Allow one more thread, if something waits for it."""
        with self._crew.changed:
            if self._crew.waiting:
                self.most += 1
                self._start_if_needed()

    def active_seconds(self) -> tuple[float, int]:
        """Return how long the threads have run or waited for a core so far, and how many there are.

        A thread that has to wait for a core is not idle: on a busy machine more threads would not help it.
        Where the system does not tell, no thread was ever active.
        """
        seconds = 0.0
        threads = list(self._crew.threads)
        for thread in threads:
            with contextlib.suppress(OSError, ValueError):
                path = f"/proc/self/task/{thread.native_id}/schedstat"
                with open(path, encoding="ascii") as file:
                    running, runnable, _ = file.read().split()
                seconds += (int(running) + int(runnable)) / 1e9
        return seconds, len(threads)

    def close(self) -> None:
        """Drop what waits and end all threads; what runs has a few seconds to finish."""
        self._finalizer.cancel()
        _end(self._crew, self._give_up)


def _serve(crew: _Crew, idle_seconds: float | None) -> None:
    """Do the work of one thread, until told to end or without work for too long."""
    me = threading.current_thread()
    while True:
        with crew.changed:
            crew.idle += 1
            crew.changed.wait_for(lambda: crew.waiting or crew.is_closed, idle_seconds)
            crew.idle -= 1
            waiting = crew.waiting  # the garbage collector may close the crew in this very thread
            if not waiting:
                if not crew.is_closed:
                    crew.threads.remove(me)
                return
            _, _, future, call, crew.at_work[me] = heapq.heappop(waiting)
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
        crew.progress = time.monotonic()
        del crew.at_work[me], future, call  # the result belongs to the caller alone


def _end(crew: _Crew, give_up: Callable[[list[Any]], bool]) -> None:
    crew.drop()
    if not crew.wait() and give_up(list(crew.at_work.copy().values())):
        crew.wait()


def _abandon(crew: _Crew, give_up: Callable[[list[Any]], bool]) -> None:
    crew.drop()
    if util.is_exiting():
        # Python must not be taken down around threads that are in the middle of Arrow or NumPy.
        with contextlib.suppress(KeyboardInterrupt):
            _end(crew, give_up)


def each_at_once(
    function: Callable[[_Item], _Result], items: Iterable[_Item], *, is_far: bool
) -> list[_Result]:
    """Return what a function gives for each item, asked for many at once where each takes the time of a request.

    Args:
        function: May be called again where Python is exiting.
        items: Its arguments.
        is_far: Whether what it asks is in a store or on a mount of the network.
    """
    items = list(items)
    if is_far and items:
        with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(items))) as pool:
            try:
                results = pool.map(function, items)
            except RuntimeError:  # Python is exiting, and starts no threads any more
                pass
            else:
                return list(results)
    return list(map(function, items))
