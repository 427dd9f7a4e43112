"""A dataset directory on mounted storage: files are written where they stay, and what killed conversions left goes."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge._workers.file_lock import fcntl
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import existing_local_path
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.files import write_whole
from petastorm_bridge.spark._session import logger

from .own_files import MARKER_BYTES, REMOVALS, marker_text, read_marker, sorted_out, this_machine

T = TypeVar("T")


class MountedStore:
    """A directory by its path; the methods are those of :class:`~.store.Store`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        os.makedirs(os.path.dirname(self._directory), exist_ok=True)
        os.mkdir(self._directory)
        with contextlib.ExitStack() as lock:
            try:
                # Before the marker is there: whoever sees it finds the lock taken, or nobody at work.
                lock.enter_context(self._locked())
                # A marker that is cut off is nobody's.
                text = [marker_text(self._place())]
                write_whole(self._path(MARKER_NAME), text, in_place=is_far(self._directory))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.rmdir(self._directory)
                raise
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock on the directory in the block, where its file system has locks and it is near."""
        if is_far(self._directory):
            yield
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def remove_unfinished(self) -> bool:
        """Remove the files of a conversion that this machine began here and that nobody goes on with.

        Returns:
            Whether it was one.

        Raises:
            OSError: Something cannot be looked at or removed; or somebody is at work.
        """
        marker = self._read_marker() or {}
        if marker.get("machine") is None or marker["machine"] != this_machine():
            return False
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = os.fstat(descriptor).st_uid == os.geteuid()
            is_left = is_mine and not self.exists(INDEX_NAME)
            if is_left:
                self.remove_ours()
            return is_left
        finally:
            os.close(descriptor)

    def is_there(self) -> bool:
        return os.path.lexists(self._directory)

    def is_ours(self) -> bool:
        return self._read_marker() is not None

    def _read_marker(self) -> dict[str, Any] | None:
        if os.path.islink(self._directory):
            return None
        path = self._path(MARKER_NAME)
        try:
            if not os.path.isfile(path):  # opening a pipe would wait
                return None
            with open(path, "rb") as file:
                return read_marker(file.read(MARKER_BYTES), self._place())
        except OSError:
            return None

    def _place(self) -> str:
        parent, name = os.path.split(self._directory)
        return os.path.join(os.path.realpath(parent), name)

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        yield self._directory

    def fetch(self, names: list[str], directory: str) -> None:
        pass

    @contextlib.contextmanager
    def reading(self) -> Iterator[str]:
        yield self._directory

    def exists(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def sizes(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        sizes: dict[str, int | None] = {**(known or {})}
        names = self.names()
        new = [name for name in names if name not in sizes]
        sizes.update(zip(new, self._each(self._size, new), strict=True))
        return {name: size for name in names if (size := sizes[name]) is not None}

    def _size(self, name: str) -> int | None:
        try:
            return os.stat(self._path(name)).st_size
        except FileNotFoundError:  # a dying task's temporary file
            return None

    def names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(name))

    def remove_ours(self) -> list[str]:
        if os.path.islink(self._directory):
            raise NotADirectoryError(errno.ENOTDIR, "A link, not a directory", self._directory)
        for _ in range(REMOVALS):
            try:
                with os.scandir(self._directory) as entries:
                    is_folder = {e.name: e.is_dir(follow_symlinks=False) for e in entries}
                ours, others = sorted_out(is_folder)
                # The first and the last have their place in the order.
                for names in (ours[:1], ours[1:-1], ours[1:][-1:]):
                    self._each(self.remove, names)
                if others:
                    return others
                os.rmdir(self._directory)
            except FileNotFoundError:
                return []
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
            else:
                return []
        raise OSError(errno.ENOTEMPTY, "Files keep appearing in it", self._directory)

    def _each(self, function: Callable[[str], T], names: Iterable[str]) -> list[T]:
        return each_at_once(function, names, is_far=is_far(self._directory))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def clear_unfinished(parent_url: str) -> None:
    """Remove this user's directories of killed conversions; once for each process and parent.

    A conversion that fails removes its directory; one whose process is killed cannot. But while it is at work it
    holds a lock on the directory, which the system frees when the process ends in whatever way. Finished datasets
    stay: whoever has a converter of one may be reading it.

    Locks tell of processes of one machine only, in all of its containers; what another machine began is left
    alone. So is everything on mounts of the network: looking at each directory there takes the time of requests.
    Nothing that goes wrong here is an error.
    """
    parent = existing_local_path(parent_url)
    if parent is not None:
        _clear(parent, os.getpid())


@functools.cache
def _clear(parent: str, process: int) -> None:
    del process  # a fork looks anew
    with contextlib.suppress(OSError):
        if not os.path.isdir(parent) or is_far(parent):
            return
        with os.scandir(parent) as entries:
            directories = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for directory in directories:
            with contextlib.suppress(OSError):
                if MountedStore(directory).remove_unfinished():
                    logger.info(
                        "Removed the unfinished conversion %s of a dead process.", directory
                    )
