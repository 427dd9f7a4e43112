"""Threads that wait for far places: there while there is work, and never in the way of a program's end."""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["WaitingThreads"]

_Result = TypeVar("_Result")

_IDLE_SECONDS = 1.0
_GRACE_SECONDS = 5.0


class WaitingThreads:
    """Calls functions in threads, those of the lowest rank first.

    Threads start when there is work and end when there has been none for a second. A fork begins with none and
    without what waits. At the end of the program what waits is dropped, and what runs has a few seconds.

    Attributes:
        progress: When a call ended last, in seconds of ``time.monotonic``.

    Args:
        name: Of the threads.
        most: Threads at most.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._begin()
        os.register_at_fork(after_in_child=self._begin)
        atexit.register(self._end)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[Any, int, Future[Any], Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self.progress = time.monotonic()

    def submit(self, rank: Any, call: Callable[[], _Result]) -> Future[_Result]:
        """Have a function called; calls of equal rank take place in the order in which they came.

        Args:
            rank: What comes first; any values that compare with each other.
            call: The function.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if not self._waiting and len(self._threads) == self._idle:
                self.progress = time.monotonic()
            heapq.heappush(self._waiting, (rank, next(self._numbers), future, call))
            if self._idle < len(self._waiting) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return future

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                has_work = self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
                self._idle -= 1
                if not has_work:
                    self._threads.remove(threading.current_thread())
                    return
                _, _, future, call = heapq.heappop(self._waiting)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                    future.set_exception(error)
            self.progress = time.monotonic()
            del future, call

    def _end(self) -> None:
        with self._changed:
            for _, _, future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            threads = list(self._threads)
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
