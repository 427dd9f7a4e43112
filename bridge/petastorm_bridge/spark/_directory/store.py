"""A dataset directory as the converter needs it: on mounted storage or in a remote store.

On mounted storage files are written where they stay. Into a remote store whole files are copied,
from a temporary directory, the index last; object stores show a file when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping
from glob import has_magic
from typing import Any, Protocol
from urllib.parse import urlparse

from petastorm_bridge._sources.unfinished import MARKER_NAME
from petastorm_bridge.fs_utils import FilesystemResolver, existing_local_path, get_dataset_path
from petastorm_bridge.mds.dataset import INDEX_NAME
from petastorm_bridge.mds.files import final_name, write_whole
from petastorm_bridge.mds.schema import SIDECAR_NAME

from . import owner as _owner

__all__ = ["Store", "is_own_file", "store_at"]

# What the executors and the engine call the files of a conversion.
_SHARD_NAME = re.compile(r"shard\.\d{5,}\.a\d+\.\d{5,}(\.flags)?\.mds(\.\w+)?")
_OTHER_NAMES = {INDEX_NAME, SIDECAR_NAME, MARKER_NAME}
_MARKER_BYTES = 1 << 16  # enough for any path; the file may be anybody's
# A dying task may add or remove files while a directory is being removed.
_REMOVALS = 10


class Store(Protocol):
    """One dataset directory. Pickles."""

    def create(self) -> None:
        """Make the directory, its parents and its marker; raises OSError."""

    def is_there(self) -> bool:
        """Return whether there is anything under the directory's name."""

    def is_ours(self) -> bool:
        """Return whether the marker is there and was written for this directory."""

    def owner(self) -> Any:
        """Return what the marker of a directory of ours says of the process that made it."""

    def writing(self) -> contextlib.AbstractContextManager[str]:
        """Give a local directory; the files written to it are in the store after the block."""

    def fetch(self, names: list[str], directory: str) -> None:
        """Make files of the store available in a directory that :meth:`writing` gave."""

    def reading(self) -> contextlib.AbstractContextManager[str]:
        """Give a local directory that holds the index and the sidecar."""

    def exists(self, name: str) -> bool:
        """Return whether a file is there."""

    def sizes(self) -> dict[str, int]:
        """Return the names of all files and their sizes in bytes."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is fine."""

    def remove_ours(self) -> list[str]:
        """Remove all files of ours, and the directory if that leaves it empty.

        One that is gone is fine.

        Returns:
            The names of what is still there, which others have put there.

        Raises:
            OSError: Something of ours cannot be removed.
        """


def store_at(url: str) -> Store:
    """Return the store behind a directory's URL.

    Raises:
        ValueError: No usable URL.
        ImportError: The store's package is missing.
    """
    path = existing_local_path(url)
    return _RemoteStore(url) if path is None else _MountedStore(path)


def is_own_file(name: str) -> bool:
    """Return whether a conversion gives files such names, finished or not."""
    final = final_name(name)
    return final in _OTHER_NAMES or _SHARD_NAME.fullmatch(final) is not None


def _marker(place: str) -> bytes:
    owner = _owner.this_process()
    marker = {"made_by": "petastorm-bridge", "directory": place, "owner": owner}
    return json.dumps(marker).encode()


def _read_marker(text: str | bytes, place: str) -> dict[str, Any] | None:
    """Return what a marker says; None if it was written for another place, as in a copy."""
    try:
        marker = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(marker, dict) and marker.get("directory") == place
    return marker if ours else None


def _sorted_out(is_folder: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return the names of our files, in the order to remove them, and those of everything else.

    The index goes first, so that whoever looks meanwhile sees no dataset, and the marker last.
    """
    ours = [name for name, folder in is_folder.items() if not folder and is_own_file(name)]
    ours.sort(key=lambda name: (name == MARKER_NAME, name != INDEX_NAME, name))
    return ours, sorted(set(is_folder) - set(ours))


class _MountedStore:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create(self) -> None:
        os.makedirs(os.path.dirname(self._directory), exist_ok=True)
        os.mkdir(self._directory)
        try:
            write_whole(self._path(MARKER_NAME), [_marker(self._place())])
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
                return _read_marker(file.read(_MARKER_BYTES), self._place())
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
        for _ in range(_REMOVALS):
            try:
                with os.scandir(self._directory) as entries:
                    is_folder = {e.name: e.is_dir(follow_symlinks=False) for e in entries}
                ours, others = _sorted_out(is_folder)
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


class _RemoteStore:
    def __init__(self, url: str) -> None:
        self._url = url
        self._path = get_dataset_path(urlparse(url))
        self._open()  # tells early that a package is missing

    def create(self) -> None:
        filesystem = self._open()
        filesystem.makedirs(self._path, exist_ok=True)
        filesystem.pipe_file(self._name(MARKER_NAME), _marker(self._path))

    def is_there(self) -> bool:
        return bool(self._open().exists(self._path))

    def is_ours(self) -> bool:
        return self._read_marker() is not None

    def owner(self) -> Any:
        return (self._read_marker() or {}).get("owner")

    def _read_marker(self) -> dict[str, Any] | None:
        try:
            return _read_marker(self._open().cat_file(self._name(MARKER_NAME)), self._path)
        except OSError:
            return None

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="petastorm_bridge_") as directory:
            yield directory
            last = (SIDECAR_NAME, INDEX_NAME)
            self._copy(
                directory,
                sorted(os.listdir(directory), key=lambda n: (n in last, n == INDEX_NAME, n)),
            )

    def _copy(self, directory: str, names: list[str]) -> None:
        """Copy local files into the store, where a file would make a removed directory anew.

        A job that fails removes its directory while other tasks of it still copy. Whoever removes
        looks for files once more when the marker is gone, and whoever copies looks for the marker
        when a file is there: one of the two sees the other.
        """
        filesystem = self._open()
        for i, name in enumerate(names):
            filesystem.put_file(os.path.join(directory, name), self._name(name))
            try:
                filesystem.cat_file(self._name(MARKER_NAME))
            except FileNotFoundError as error:
                for copied in names[: i + 1]:
                    self.remove(copied)
                self._remove_folder()
                raise FileNotFoundError(
                    errno.ENOENT, "the directory was deleted while files were copied into it"
                ) from error

    def fetch(self, names: list[str], directory: str) -> None:
        for name in names:
            self._open().get_file(self._name(name), os.path.join(directory, name))

    @contextlib.contextmanager
    def reading(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="petastorm_bridge_") as directory:
            for name in (SIDECAR_NAME, INDEX_NAME):
                # Others' datasets have no sidecar; a missing index is told by who opens it.
                with contextlib.suppress(FileNotFoundError):
                    self.fetch([name], directory)
            yield directory

    def exists(self, name: str) -> bool:
        return bool(self._open().exists(self._name(name)))

    def sizes(self) -> dict[str, int]:
        try:
            entries = self._open().ls(self._path, detail=True)
        except FileNotFoundError:
            return {}
        return {posixpath.basename(e["name"]): e["size"] for e in entries if e["type"] == "file"}

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._open().rm_file(self._name(name))

    def remove_ours(self) -> list[str]:
        filesystem = self._open()
        for attempt in range(_REMOVALS):
            is_folder = self._is_folder()
            if not is_folder and attempt:
                return []
            ours, others = _sorted_out(is_folder)
            if others or has_magic(self._path):  # which fsspec would take for a pattern
                for name in ours:
                    self.remove(name)
                self._remove_folder()
            else:
                with contextlib.suppress(FileNotFoundError):
                    filesystem.rm(self._path, recursive=True)
            if not ours:
                return others
        raise OSError(errno.ENOTEMPTY, "Files keep appearing in it", self._url)

    def _remove_folder(self) -> None:
        """Remove the directory itself, in stores that have such things, if nothing is in it."""
        if not self._is_folder():
            with contextlib.suppress(OSError, NotImplementedError):
                self._open().rmdir(self._path)

    def _is_folder(self) -> dict[str, bool]:
        """Return the names of what is in the directory, and whether each is a folder."""
        try:
            entries = self._open().ls(self._path, detail=True)
        except FileNotFoundError:
            return {}
        return {
            posixpath.basename(entry["name"].rstrip("/")): entry["type"] != "file"
            for entry in entries
            if entry["name"].strip("/") != self._path.strip("/")  # some list it in itself
        }

    def _name(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _open(self) -> Any:
        filesystem = FilesystemResolver(self._url).filesystem()
        # fsspec remembers listings, and other machines write here, too.
        filesystem.invalidate_cache()
        return filesystem
