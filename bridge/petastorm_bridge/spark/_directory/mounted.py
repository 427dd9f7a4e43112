"""A dataset directory on mounted storage: files are written where they stay."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from petastorm_bridge._sources.unfinished import MARKER_NAME
from petastorm_bridge.mds.files import write_whole

from .own_files import MARKER_BYTES, REMOVALS, marker_text, read_marker, sorted_out

__all__ = ["MountedStore"]


class MountedStore:
    """A directory by its path; the methods are those of :class:`~.store.Store`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create(self) -> None:
        os.makedirs(os.path.dirname(self._directory), exist_ok=True)
        os.mkdir(self._directory)
        try:
            write_whole(self._path(MARKER_NAME), [marker_text(self._place())])
        except BaseException:
            with contextlib.suppress(OSError):
                os.rmdir(self._directory)
            raise

    def is_there(self) -> bool:
        return os.path.lexists(self._directory)

    def is_ours(self) -> bool:
        return self._read_marker() is not None

    def owner(self) -> Any:
        return (self._read_marker() or {}).get("owner")

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

    def sizes(self) -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # a dying task's temporary file
                    found[entry.name] = entry.stat().st_size
        return found

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
                for name in ours:
                    self.remove(name)
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

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
