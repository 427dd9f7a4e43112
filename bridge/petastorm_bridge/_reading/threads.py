"""Threads that work on visits, and that cannot keep a program from ending.

``concurrent.futures`` waits for its threads without limit, when an executor is shut down and again
when Python exits: a transform that hangs would make a program deaf to Ctrl-C.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from multiprocessing import util
from typing import Any, Protocol

from petastorm_bridge._blocks.columns import Block

from .plan import Visit

__all__ = ["Runner", "VisitThreads", "usable_cores"]

logger = logging.getLogger(__name__)

# How long what runs may take to finish when the pool is closed, or when Python exits.
_GRACE_SECONDS = 5.0
# Threads count as busy from this share of their time on.
_BUSY = 0.5
_WARM_UP_SECONDS = 2.0
_LOOK_SECONDS = 0.4


class Runner(Protocol):
    """What one thread does its visits with."""

    def run(self, visit: Visit) -> Block:
        """Return the block of a visit; raises whatever the user's functions raise."""

    def end(self) -> None:
        """Release what the runner holds; called in its thread, after its last visit."""


class _Crew:
    """What the threads of an executor share; they must not keep the executor itself alive."""

    def __init__(self, make_runner: Callable[[], Runner], kill: Callable[[], None] | None) -> None:
        self.make_runner = make_runner
        self.kill = kill
        self.tasks: queue.SimpleQueue[tuple[Future[Block], Visit] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.at_work: dict[threading.Thread, Visit] = {}
        self.has_results = False

    def cancel(self) -> None:
        """Drop what waits, and tell every thread to end after what it does now."""
        while True:
            try:
                waiting = self.tasks.get_nowait()
            except queue.Empty:
                break
            if waiting is not None:
                waiting[0].cancel()
        for _ in self.threads:
            self.tasks.put(None)

    def wait(self, seconds: float) -> bool:
        """Return whether all threads have ended within a time."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)


def usable_cores() -> int:
    """Return how many processor cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Idleness:
    """Tells whether threads waited, for a store, a lock or each other, since it was last asked.

    A thread that has to wait for a core is not idle: on a busy machine more threads would not help it.
    """

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._active: dict[int, float] = {}

    def is_idle(self, threads: Iterable[threading.Thread]) -> bool:
        """Return whether the threads were active for less than half of the time.

        False until enough time has passed to tell.
        """
        wall = time.perf_counter()
        if wall - self._wall < _LOOK_SECONDS:
            return False
        active = {
            thread.native_id: _active_seconds(thread.native_id)
            for thread in threads
            if thread.native_id is not None
        }
        known = [seconds - self._active.get(tid, 0.0) for tid, seconds in active.items()]
        passed = wall - self._wall
        self._wall, self._active = wall, active
        return sum(known) < _BUSY * passed * len(known)


def _active_seconds(thread: int) -> float:
    """Return how long a thread has run or waited for a core; 0 where the system does not say."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            running, runnable, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0
    return (int(running) + int(runnable)) / 1e9


class VisitThreads(Executor):
    """Runs visits in threads that start as they are needed.

    As many as ``at_once`` start with the first visits, more of them in :meth:`grow`. Left to the garbage collector it drops what waits; at the end of the program it also waits for
    what runs, but only a few seconds.

    Args:
        make_runner: Called in each thread before its first visit.
        workers: Most threads.
        name: Of the threads.
        description: What is read, for messages.
        kill: Makes runners give up at once. Without it a thread that does not end is left behind.
        at_once: Threads that start without being asked for; all by default.
    """

    def __init__(
        self,
        make_runner: Callable[[], Runner],
        workers: int,
        name: str,
        description: str,
        *,
        kill: Callable[[], None] | None = None,
        at_once: int | None = None,
    ) -> None:
        self._crew = _Crew(make_runner, kill)
        self._most = workers
        self.at_once = workers if at_once is None else min(workers, at_once)
        self._idleness = _Idleness()
        self._began = time.monotonic()
        self._name = name
        self._description = description
        self._pid = os.getpid()
        # It also runs at the end of a child of multiprocessing, where weakref.finalize does not.
        self._finalizer = util.Finalize(
            self, _abandon, args=(self._crew, description), exitpriority=0
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have ``args[0]``, a visit, done by a runner; ``fn`` and ``kwargs`` are not used."""
        del fn, kwargs
        crew = self._crew
        if len(crew.threads) < self.at_once:
            self._start_thread()
        future: Future[Any] = Future()
        crew.tasks.put((future, args[0]))
        return future

    def _start_thread(self) -> None:
        crew = self._crew
        name = f"{self._name}_{len(crew.threads)}"
        thread = threading.Thread(target=_serve, args=(crew,), name=name, daemon=True)
        crew.threads.append(thread)
        thread.start()

    def grow(self) -> None:
        """Start one more thread if visits wait while the threads there are wait, too.

        For whoever waits for a result. Threads beyond the number of cores serve where a store, a
        mount or a transform is waited for; where the cores are busy they only get in each other's way.
        """
        crew = self._crew
        waits = len(crew.threads) < self._most and not crew.tasks.empty()
        # The first visits also import packages, for which all threads but one wait.
        is_warm = crew.has_results or time.monotonic() - self._began > _WARM_UP_SECONDS
        if self._idleness.is_idle(crew.threads) and waits and is_warm:
            self._start_thread()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all threads; what runs has a few seconds to finish. Does nothing in a fork."""
        del wait, cancel_futures  # always both
        self._finalizer.cancel()
        if os.getpid() == self._pid:
            _end(self._crew, self._description)


def _serve(crew: _Crew) -> None:
    """Do the work of one thread: visits from the queue, until told to end."""
    me = threading.current_thread()
    runner = crew.make_runner()
    while True:
        item = crew.tasks.get()
        if item is None:
            break
        future, visit = item
        if future.set_running_or_notify_cancel():
            crew.at_work[me] = visit
            try:
                future.set_result(runner.run(visit))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
            crew.at_work.pop(me)
            crew.has_results = True
        del item, future  # the block belongs to the consumer alone
    runner.end()


def _end(crew: _Crew, description: str) -> None:
    crew.cancel()
    if crew.wait(_GRACE_SECONDS):
        return
    if crew.kill is not None:
        crew.kill()
        crew.wait(_GRACE_SECONDS)
        return
    groups = sorted(visit.piece.group for visit in list(crew.at_work.values()) if visit.piece)
    logger.warning(
        "The reader of %s is closed, but after %g seconds its worker threads are still busy with row "
        "groups %s: the store, the predicate or the transform does not return. These threads are "
        "left behind; they end with their row group, or with the program.",
        description,
        _GRACE_SECONDS,
        ", ".join(map(str, groups)),
    )


def _abandon(crew: _Crew, description: str) -> None:
    crew.cancel()
    if crew.kill is not None:
        crew.kill()
    elif util.is_exiting():
        # Python must not be taken down around threads that are in the middle of Arrow or NumPy.
        with contextlib.suppress(KeyboardInterrupt):
            _end(crew, description)
