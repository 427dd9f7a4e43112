"""Copying one far file in ranges, several at once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait

from petastorm_bridge._workers.threads import Threads
from petastorm_bridge.fs_utils import masked

from .errors import GivenUpError, RemoteError, attempted, explained, mismatch
from .limits import limits
from .stores import Store

# Requests under way in this process: bandwidth comes from many at once.
_requests = Threads("petastorm-bridge request", 16, idle_seconds=1.0)


def copy_in_ranges(
    store: Store,
    url: str,
    extent: range,
    put: Callable[[int, memoryview], object],
    *,
    is_whole: bool,
    is_dropped: Callable[[], bool],
    priority: int,
    beginning: int = 0,
) -> None:
    """Read bytes of a file in ranges, several at once.

    Args:
        store: Where it is, which knows ranges. Each of them is asked for again if that fails.
        url: The file.
        extent: Which bytes.
        put: Takes the position of some of them, and these; called in several threads, one at a time, and once more for
            what comes again after a request that failed.
        is_whole: Whether the file ends with them.
        is_dropped: Tells whether nobody needs the file any more.
        priority: Ranges of files with a lower one come first, even if those are opened later.
        beginning: How many of the first bytes are to be here as soon as can be.

    Raises:
        DatasetNotFoundError: It is not there.
        DatasetError: It is shorter or longer.
        RemoteError: It cannot be read in several attempts, or nobody needs it.
        OSError: Whatever ``put`` raises.
    """
    assert store.range_bytes is not None
    # To open a file is a request to a mount, which may fail as any other.
    file = attempted(lambda: explained(lambda: store.open(url), url), has_tried=store.tries_again)
    is_over = threading.Event()
    putting = threading.Lock()

    size = len(extent)

    def read(start: int, stop: int) -> None:
        # One byte more than there should be, so that a longer file is noticed.
        wanted = stop - start + (is_whole and stop == size)

        def once() -> int:
            """Put one answer where it belongs; return up to where it goes."""
            position = start
            with contextlib.closing(file.pieces(extent.start + start, wanted)) as pieces:
                while True:
                    if is_over.is_set() or is_dropped():
                        raise _given_up(url)
                    piece = explained(lambda: next(pieces, None), url)
                    if piece is None:
                        return position
                    # What comes too late must not be put where something else is by then.
                    with putting:
                        if not is_over.is_set():
                            put(position, piece[: stop - position])
                    position += len(piece)

        end = attempted(once, has_tried=store.tries_again)
        if end != stop:
            raise mismatch(url, f"{size} bytes", "more" if end > stop else f"{end}")

    starts = [*range(0, min(beginning, size), store.answer_bytes)]
    begun = len(starts) * store.answer_bytes
    # The others begin at multiples of their size: where two ranges meet amid pages that Linux keeps as one, it may ask
    # a mount for some of them twice.
    aligned = -(-begun // store.range_bytes) * store.range_bytes
    starts += range(begun, min(aligned, size), store.range_bytes)
    starts += range(aligned, size, store.range_bytes)
    requests = [
        _requests.submit(functools.partial(read, start, stop), priority=priority)
        for start, stop in itertools.pairwise([*starts, size])
    ]
    try:
        _wait_for(requests, url, is_dropped)
    finally:
        with putting:
            is_over.set()

        late = [request for request in requests if not (request.cancel() or request.done())]

        def close(_: object) -> None:
            # A thread that a mount does not answer needs the file until it does.
            if all(request.done() for request in late):
                file.close()

        for request in late:
            request.add_done_callback(close)
        close(None)


def _wait_for(requests: list[Future[None]], url: str, is_dropped: Callable[[], bool]) -> None:
    """Wait until all ranges are here, or nobody needs them; raise what the first one raised that fails."""
    waiting = set(requests)
    while waiting:
        done, waiting = wait(waiting, min(limits().timeout, 1.0), FIRST_EXCEPTION)
        for request in done:
            request.result()
        if waiting and is_dropped():
            raise _given_up(url)
        if waiting and time.monotonic() - _requests.progress > limits().patience:
            raise RemoteError(
                f"{masked(url)} could not be read: no answer for {limits().patience:g} seconds."
            )


def _given_up(url: str) -> GivenUpError:
    return GivenUpError(f"Fetching {masked(url)} was given up.")
