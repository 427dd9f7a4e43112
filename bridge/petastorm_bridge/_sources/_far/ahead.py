"""Fetching shards and columns ahead of their use, into this machine's copies or into memory."""

from __future__ import annotations

import contextlib
import logging
import os
from concurrent.futures import CancelledError, Future
from typing import Any

from petastorm_bridge._workers.file_lock import locked
from petastorm_bridge._workers.locks import renew_in_forks
from petastorm_bridge._workers.threads import Threads
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.verified import note_hash

from . import limits
from .copies import Copies
from .fetch import Bytes, Extent, Fetch, NoRoomError
from .limits import CACHE_VARIABLE, LIMIT_VARIABLE
from .stores import Store

logger = logging.getLogger(__name__)

# Bytes that are wanted before a worker asks for them, at most.
AHEAD_BYTES = 256 << 20

# Shards under way in this process; small ones are a request each.
_shards = Threads("petastorm-bridge fetch", 16, idle_seconds=1.0)
# Extents that found no room, by the directory of copies; None once that was logged.
_without_room: dict[str, set[str] | None] = {}


class Fetcher:
    """Brings extents of far files here, each once for all processes of this machine.

    Pickles without what is under way.

    Attributes:
        copies: Where copies are kept while there is room. Without room extents come into memory.

    Args:
        store: Where the files are.
        copies: See above.
    """

    def __init__(self, store: Store, copies: Copies) -> None:
        self._store = store
        self.copies = copies
        self.renew()
        renew_in_forks(self)

    def __reduce__(self) -> Any:
        return Fetcher, (self._store, self.copies)

    def renew(self) -> None:
        """Forget what is under way, without stopping it."""
        # Without a lock: each thread does one thing with it at a time.
        self._wanted: dict[str, tuple[Fetch, Future[Bytes | None]]] = {}

    def path(self, extent: Extent) -> str:
        """Return where the copy of an extent is, or will be."""
        return os.path.join(self.copies.path, extent.name)

    def inode(self, extent: Extent) -> int | None:
        """Return the inode of an extent's copy; None if there is none of the right size."""
        try:
            status = os.stat(self.path(extent))
        except FileNotFoundError:
            return None
        return status.st_ino if status.st_size == extent.size else None

    def want(self, extent: Extent, *, beginning: int = 0, is_for_others: bool = False) -> int:
        """Begin to fetch an extent, behind those that were wanted before.

        Without room for copies, what was wanted lies in memory until :meth:`get` is called: callers keep to
        ``AHEAD_BYTES``.

        Args:
            extent: What is wanted.
            beginning: How many of the first bytes :meth:`beginning` shall return before the others are here.
            is_for_others: Whether other processes read it: without room for a copy nothing is fetched.

        Returns:
            How many bytes that takes; 0 if it is here or on its way.
        """
        if extent.name in self._wanted or self.inode(extent) is not None:
            return 0
        fetch = Fetch(self._store, extent, beginning)
        future = _shards.submit(lambda: self._fetch(fetch, is_for_others=is_for_others))
        # Last, as Ctrl-C may come while a thread starts, and `stop` looks at the future of each.
        self._wanted[extent.name] = fetch, future
        future.add_done_callback(lambda _: fetch.beginning.cancel())
        return extent.size

    def beginning(self, extent: Extent) -> Bytes | None:
        """Wait for the first bytes of an extent that is on its way; None if they do not come before it."""
        fetch, future = self._wanted.get(extent.name, (None, None))
        if fetch is None or future is None or future.done():
            return None
        with contextlib.suppress(CancelledError):
            return fetch.beginning.result()
        return None

    def get(self, extent: Extent, damaged: int | None = None) -> Bytes | None:
        """Wait until an extent is here.

        Args:
            extent: What is needed.
            damaged: The inode of a copy that is of no use, which is replaced.

        Returns:
            None if it is at :meth:`path`, its bytes where there was no room for it.

        Raises as :class:`~.fetch.Fetch`.
        """
        _, future = self._wanted.pop(extent.name, (None, None))
        if damaged is None and future is None and self.inode(extent) is not None:
            return None
        if future is None or future.cancel():
            return self._fetch(Fetch(self._store, extent), damaged)
        return future.result()

    def stop(self) -> None:
        """Drop what was wanted; what is under way is given up."""
        wanted, self._wanted = self._wanted, {}
        for fetch, future in wanted.values():
            fetch.is_dropped = True
            future.cancel()

    def _fetch(
        self, fetch: Fetch, damaged: int | None = None, *, is_for_others: bool = False
    ) -> Bytes | None:
        extent = fetch.extent
        path = self.path(extent)
        self.copies.hold()
        # The lock lets the processes of a machine fetch an extent once. Without it they fetch it several
        # times, and the last one puts the same file in place of the same file.
        with locked(f"{path}.lock", limits.patience()) as has_lock:
            if self.inode(extent) not in (None, damaged):
                return None
            if self.copies.has_room(extent.size):
                with contextlib.suppress(NoRoomError):
                    fetch.to_file(path, has_lock=has_lock)
                    note_hash(path, extent.hashes, os.stat(path))
                    return None
        if is_for_others:
            return None
        self._note_without_room(extent)
        return fetch.to_memory()

    def _note_without_room(self, extent: Extent) -> None:
        """Log, once for each directory of copies, that something is fetched again for want of room."""
        seen = _without_room.setdefault(self.copies.path, set())
        if seen is None:
            return
        if extent.name not in seen:
            seen.add(extent.name)
            return
        _without_room[self.copies.path] = None
        logger.warning(
            "%s is fetched again, because there is no room for a copy of it in %s. Other files may be, in every "
            "epoch. Raise %s or cache_size_limit, or name a directory on a larger disk with %s.",
            masked(extent.url),
            self.copies.path,
            LIMIT_VARIABLE,
            CACHE_VARIABLE,
        )
