"""Copying files from far places: to a local disk, or into memory."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.access import load
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.verified import best_hash, note_hash

from .errors import attempted, explain, mismatch
from .limits import CACHE_VARIABLE
from .ranges import copy_in_ranges
from .stores import Store

_Result = TypeVar("_Result")

# Extents come here in the order in which they were wanted.
_priorities = itertools.count()

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


class NoRoomError(OSError):
    """A copy cannot be written here."""


class Beginning:
    """The first bytes of a file that is being fetched.

    Attributes:
        data: The bytes, uint8 of shape ``(size,)``.
    """

    def __init__(self, size: int) -> None:
        self.data = np.empty(size, np.uint8)
        # Where pieces end, by where they start. A request that is repeated brings bytes again, perhaps in others.
        self._stops: dict[int, int] = {}
        self._is_over = threading.Event()

    def put(self, start: int, part: memoryview) -> None:
        """Take bytes of the file."""
        wanted = part[: max(0, len(self.data) - start)]
        if wanted and not self._is_over.is_set():
            self.data[start : start + len(wanted)] = wanted
            self._stops[start] = max(start + len(wanted), self._stops.get(start, 0))
            if self._is_complete:
                self._is_over.set()

    @property
    def _is_complete(self) -> bool:
        """Whether the pieces leave no gap; they are few, the bytes many."""
        here = 0
        for start, stop in sorted(self._stops.copy().items()):
            if start > here:
                return False
            here = max(here, stop)
        return here == len(self.data)

    def end(self) -> None:
        """Expect no more bytes."""
        self._is_over.set()

    def wait(self) -> npt.NDArray[np.uint8] | None:
        """Return the bytes once they are here, None if they do not come."""
        self._is_over.wait()
        return self.data if self._is_complete else None


@dataclass(frozen=True)
class Extent:
    """Bytes of a far file, of which a copy may be kept: all of them, or those of a range.

    Attributes:
        url: The file.
        name: Of the copy, in the directory of copies; says which bytes of which state of the file they are.
        size: How many bytes.
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
        beginning: Gets the first bytes as soon as they are here, or None.

    Methods raise:
        DatasetNotFoundError: The file is not there.
        RemoteAccessError: The store refuses.
        DatasetError: It cannot be read, or is not what the index says, in several attempts.
    """

    def __init__(self, store: Store, extent: Extent, beginning: Beginning | None = None) -> None:
        self._store = store
        self.extent = extent
        self.beginning = beginning
        self.is_dropped = False
        self._priority = next(_priorities)

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

        def once() -> None:
            _remove(temporary)  # some packages take a file that is there for the answer
            try:
                if self._store.range_bytes is None:
                    _fetch_whole(self._store, self.extent.url, temporary)
                else:
                    self._write(temporary)
                self._check(load(temporary, mapped=True)[0])
                os.replace(temporary, path)
                note_hash(path, self.extent.hashes, os.stat(path))
            finally:
                _remove(temporary)

        self._attempted(once)

    def to_memory(self) -> npt.NDArray[np.uint8]:
        """Return the bytes, of which no copy is kept."""

        def once() -> npt.NDArray[np.uint8]:
            if self._store.range_bytes is None:
                with tempfile.TemporaryDirectory(prefix="petastorm-bridge-") as folder:
                    path = os.path.join(folder, "file")
                    _fetch_whole(self._store, self.extent.url, path)
                    data, _ = load(path, mapped=False)
            else:
                data = np.empty(self.extent.size, np.uint8)
                view = data.data

                def put(start: int, part: memoryview) -> None:
                    view[start : start + len(part)] = part

                self._copy(put)
            self._check(data)
            return data

        return self._attempted(once)

    def _attempted(self, once: Callable[[], _Result]) -> _Result:
        # Ranges are asked for several times each.
        has_tried = self._store.tries_again or self._store.range_bytes is not None
        return attempted(once, has_tried=has_tried)

    def _write(self, path: str) -> None:
        try:
            with open(path, "xb", buffering=0) as file:
                if self.extent.size:
                    os.posix_fallocate(
                        file.fileno(), 0, self.extent.size
                    )  # a full disk says so now

                def put(start: int, part: memoryview) -> None:
                    while len(part):
                        count = os.pwrite(file.fileno(), part, start)
                        start, part = start + count, part[count:]

                self._copy(put)
        except DatasetError:
            raise
        except OSError as error:
            raise _no_room(error, self.extent.url, path) from error

    def _copy(self, put: Callable[[int, memoryview], object]) -> None:
        beginning = self.beginning

        def put_both(start: int, part: memoryview) -> None:
            if beginning is not None:
                beginning.put(start, part)
            put(start, part)

        extent = self.extent
        copy_in_ranges(
            self._store,
            extent.url,
            range(extent.start or 0, (extent.start or 0) + extent.size),
            put_both,
            is_whole=extent.start is None,
            is_dropped=lambda: self.is_dropped,
            priority=self._priority,
            beginning=0 if beginning is None else len(beginning.data),
        )

    def _check(self, data: npt.NDArray[np.uint8]) -> None:
        """Raise DatasetError if the bytes are not what the index says."""
        extent = self.extent
        if len(data) != extent.size:
            raise mismatch(extent.url, f"{extent.size} bytes", f"{len(data)}")
        name = best_hash(extent.hashes)
        if name is not None and len(data):
            digest = codecs.digest(name, data)
            if digest != extent.hashes[name]:
                raise mismatch(extent.url, f"{name} {extent.hashes[name]}", digest)


def fetch_file(store: Store, url: str, path: str) -> None:
    """Copy a file of which nothing is known, to a new path; raises as :class:`Fetch` does."""

    def once() -> None:
        _remove(path)
        _fetch_whole(store, url, path)

    attempted(once, has_tried=store.tries_again)


def _fetch_whole(store: Store, url: str, path: str) -> None:
    try:
        store.fetch(url, path)
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and (
            error.errno in _DISK_ERRORS or os.path.dirname(path) in str(error.filename)
        ):
            raise _no_room(error, url, path) from error
        raise explain(error, url) from without_secrets(error, url)


def _no_room(error: OSError, url: str, path: str) -> NoRoomError:
    return NoRoomError(
        error.errno,
        f"{error.strerror}: no copy of {masked(url)} can be kept here. Make room, or set "
        f"{CACHE_VARIABLE} to another directory",
        os.path.dirname(path),
    )


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
