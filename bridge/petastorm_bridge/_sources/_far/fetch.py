"""Copying files from far places: to a local disk, or into memory."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from petastorm_bridge._workers.threads import Threads
from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds.access import load
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.verified import differing_hash

from . import limits
from .errors import GivenUpError, RemoteError, attempted, explain, explained, mismatch
from .limits import CACHE_VARIABLE
from .stores import Store

Bytes = npt.NDArray[np.uint8]

UNKNOWN_SIZE = -1

# Requests under way in this process: bandwidth comes from many at once.
_requests = Threads("petastorm-bridge request", 16, idle_seconds=1.0)
# Extents come here in the order in which they were wanted, even if those that came later are opened sooner.
_priorities = itertools.count()

# So few bytes are written when all are here and approved: that takes half as many calls of the system, after each of which
# a thread waits for Python's lock. To write 2 MiB at once took several times the system's time of writing pieces.
_SMALL_BYTES = 1 << 20

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


class NoRoomError(OSError):
    """A copy cannot be written here."""


@dataclass(frozen=True)
class Extent:
    """Bytes of a far file, of which a copy may be kept: all of them, or those of a range.

    Attributes:
        url: The file.
        name: Of the copy, in the directory of copies; says which bytes of which state of the file they are.
        size: How many bytes; ``UNKNOWN_SIZE`` for a whole file of which nothing is known.
        hashes: Of all of them, hex digests by name; none where nothing is known.
        start: Where they begin in the file; None for the whole file.
    """

    url: str
    name: str
    size: int
    hashes: Mapping[str, str] = field(default_factory=dict)
    start: int | None = None


class Fetch:
    """The fetching of an extent.

    Attributes:
        extent: What is fetched.
        is_dropped: Whether it is no longer needed, so that fetching is given up.
        beginning: Gets the first bytes as soon as they are here; cancelled if they do not come before the others.

    Args:
        store: Where the file is.
        extent: See above.
        beginning: How many of the first bytes are to be here as soon as can be.

    Methods raise:
        DatasetNotFoundError: The file is not there.
        RemoteAccessError: The store refuses.
        FetchedShardError: It has another hash than the index says, or another size in several attempts.
        DatasetError: It cannot be read in several attempts.
    """

    def __init__(self, store: Store, extent: Extent, beginning: int = 0) -> None:
        self._store = store
        self.extent = extent
        self.is_dropped = False
        self._priority = next(_priorities)
        self._comes_whole = store.range_bytes is None or extent.size == UNKNOWN_SIZE
        self._is_small = not self._comes_whole and extent.size <= _SMALL_BYTES
        self._beginning_bytes = beginning
        self.beginning: Future[Bytes] = Future()
        if not beginning or self._comes_whole:
            self.beginning.cancel()

    def to_file(self, path: str, *, has_lock: bool = False) -> None:
        """Copy the bytes so that ``path`` is never anything but all of them.

        They are fetched under another name, compared with the hashes and then renamed; what other processes
        do at the same time does not matter. Every attempt that fails is logged.

        Args:
            path: Where they shall be; the directory exists.
            has_lock: Whether no other process fetches them now. What a killed one has left is then replaced.

        Raises:
            NoRoomError: They cannot be written here.
        """
        temporary = f"{path}.part" if has_lock else f"{path}.{uuid.uuid4().hex}.part"
        content = self.to_memory() if self._is_small else None

        # Ranges are asked for several times each.
        has_tried = self._store.tries_again or not self._comes_whole
        try:
            attempted(lambda: self._write(temporary, content), has_tried=has_tried)
            if content is None:
                self._check(load(temporary, mapped=True)[0])
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise

    def to_memory(self) -> Bytes:
        """Return the bytes, of which no copy is kept."""
        if self._comes_whole:
            with tempfile.TemporaryDirectory(prefix="petastorm-bridge-") as folder:
                path = os.path.join(folder, "file")
                self.to_file(path, has_lock=True)
                return load(path, mapped=False)[0]

        def once() -> Bytes:
            data = np.empty(self.extent.size, np.uint8)
            view = data.data

            def put(start: int, part: memoryview) -> None:
                view[start : start + len(part)] = part

            self._copy(put)
            return data

        data = attempted(once, has_tried=True)
        self._check(data)
        return data

    def _write(self, path: str, content: Bytes | None) -> None:
        """Write the bytes, which may be here already, to a new file."""
        url, size = self.extent.url, self.extent.size
        try:
            _remove(path)  # some packages take a file that is there for the answer
            if self._comes_whole:
                self._store.fetch(url, path)
                if size not in (found := os.path.getsize(path), UNKNOWN_SIZE):
                    raise mismatch(url, f"{size} bytes", f"{found}")  # noqa: TRY301 - raised on below
                return
            with open(path, "xb", buffering=0) as file:

                def put(start: int, part: memoryview) -> None:
                    while len(part):
                        count = os.pwrite(file.fileno(), part, start)
                        start, part = start + count, part[count:]

                if content is not None:
                    put(0, content.data)
                    return
                if size:
                    # A full disk says so now.
                    os.posix_fallocate(file.fileno(), 0, size)
                self._copy(put)
        except (DatasetError, ImportError):
            raise
        except Exception as error:
            folder = os.path.dirname(path)
            if isinstance(error, OSError) and (
                not self._comes_whole
                or error.errno in _DISK_ERRORS
                or folder in str(error.filename)
            ):
                raise NoRoomError(
                    error.errno,
                    f"{error.strerror}: no copy of {masked(url)} can be kept here. Make room, or set "
                    f"{CACHE_VARIABLE} to another directory",
                    folder,
                ) from error
            raise explain(error, url) from without_secrets(error, url)

    def _copy(self, put: Callable[[int, memoryview], object]) -> None:
        """Read the bytes in ranges, several at once, each of which is asked for again if that fails.

        Args:
            put: Takes the position of some of them, and these; called in several threads, one at a time, and once
                more for what comes again after a request that failed. What it raises is raised here.
        """
        store, url, size = self._store, self.extent.url, self.extent.size
        # To open a file is a request to a mount, which may fail as any other.
        opened = contextlib.ExitStack()
        pieces_of = attempted(
            lambda: explained(lambda: opened.enter_context(store.open(url)), url),
            has_tried=store.tries_again,
        )
        is_over = threading.Event()
        putting = threading.Lock()
        first = np.empty(min(self._beginning_bytes, size), np.uint8)

        def put_in_time(position: int, part: memoryview) -> None:
            # What comes too late must not be put where something else is by then.
            with putting:
                if is_over.is_set():
                    return
                if position < len(first):
                    here = part[: len(first) - position]
                    first[position : position + len(here)] = here
                put(position, part)

        def read(start: int, stop: int) -> None:
            # One byte more than there should be, so that a longer file is noticed.
            wanted = stop - start + (self.extent.start is None and stop == size)

            def once() -> int:
                """Put one answer where it belongs; return up to where it goes."""
                position = start
                answer = pieces_of((self.extent.start or 0) + start, wanted)
                with contextlib.closing(answer) as pieces:
                    while True:
                        if is_over.is_set() or self.is_dropped:
                            raise self._given_up()
                        piece = explained(lambda: next(pieces, None), url)
                        if piece is None:
                            return position
                        put_in_time(position, piece[: stop - position])
                        position += len(piece)

            end = attempted(once, has_tried=store.tries_again)
            if end != stop:
                raise mismatch(url, f"{size} bytes", "more" if end > stop else f"{end}")

        answers, starts = _starts(store, size, len(first), _requests.free)
        requests = [
            _requests.submit(functools.partial(read, start, stop), priority=self._priority)
            for start, stop in itertools.pairwise([*starts, size])
        ]
        try:
            self._wait_for(requests[:answers])
            if not self.beginning.done():
                self.beginning.set_result(first)
            self._wait_for(requests)
        finally:
            with putting:
                is_over.set()
            late = [request for request in requests if not (request.cancel() or request.done())]

            def close(_: object = None) -> None:
                # A thread that a mount does not answer needs the file until it does.
                if all(request.done() for request in late):
                    opened.close()

            for request in late:
                request.add_done_callback(close)
            close()

    def _wait_for(self, requests: list[Future[None]]) -> None:
        """Wait until ranges are here, or nobody needs them; raise what the first one raised that fails."""
        waiting = set(requests)
        while waiting:
            done, waiting = wait(waiting, min(limits.timeout(), 1.0), FIRST_EXCEPTION)
            for request in done:
                request.result()
            if waiting and self.is_dropped:
                raise self._given_up()
            if waiting and time.monotonic() - _requests.progress > limits.patience():
                raise RemoteError(
                    f"{masked(self.extent.url)} could not be read: no answer for {limits.patience():g} seconds."
                )

    def _given_up(self) -> GivenUpError:
        return GivenUpError(f"Fetching {masked(self.extent.url)} was given up.")

    def _check(self, data: Bytes) -> None:
        """Raise FetchedShardError if the bytes, which are as many as they should, are not what the index says."""
        if differing := differing_hash(self.extent.hashes, data):
            raise mismatch(self.extent.url, *differing)


def _starts(store: Store, size: int, beginning: int, free: int) -> tuple[int, list[int]]:
    """Return where to begin ranges of so many bytes, and how many of them bring the first bytes, each in one answer.

    Where there would be fewer ranges than requests are ``free``, they are smaller, so that a single shard, or the first
    of many, is asked for with all requests.
    """
    assert store.range_bytes is not None
    each = store.range_bytes
    while each > store.answer_bytes and -(-size // each) < free:
        each //= 2
    answers = range(0, beginning, store.answer_bytes)
    # The others begin at multiples of their size: where two ranges meet amid pages that Linux keeps as one, it may ask
    # a mount for some of them twice.
    aligned = -(-beginning // each) * each
    between = range(beginning, min(aligned, size), each)
    return len(answers), [*answers, *between, *range(aligned, size, each)]


def _remove(path: str) -> None:
    """Remove what is left of fetching a file, also by a package that fetches it under another name first."""
    for left in (path, f"{path}.tmp"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(left)
