"""A dataset directory as the converter needs it: on mounted storage or in a remote store.

On mounted storage files are written where they stay. Into a remote store whole files are copied,
from a temporary directory, the index last; object stores show a file when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlparse

from petastorm_bridge.fs_utils import FilesystemResolver, existing_local_path, get_dataset_path
from petastorm_bridge.mds.dataset import INDEX_NAME
from petastorm_bridge.mds.schema import SIDECAR_NAME

__all__ = ["MARKER_NAME", "Store", "store_at"]

MARKER_NAME = "_petastorm_bridge_cache.json"


class Store(Protocol):
    """One dataset directory. Pickles."""

    def create(self) -> None:
        """Make the directory, its parents and its marker; raises OSError."""

    def is_there(self) -> bool:
        """Return whether there is anything under the directory's name."""

    def is_ours(self) -> bool:
        """Return whether the marker is there and was written for this directory."""

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

    def remove_all(self) -> None:
        """Remove the directory with all files; one that is gone is fine; raises OSError."""


def store_at(url: str) -> Store:
    """Return the store behind a directory's URL.

    Raises:
        ValueError: No usable URL.
        ImportError: The store's package is missing.
    """
    path = existing_local_path(url)
    return _RemoteStore(url) if path is None else _MountedStore(path)


def _marker(directory: str) -> str:
    return json.dumps({"made_by": "petastorm-bridge", "directory": posixpath.basename(directory)})


def _is_marker(text: str | bytes, directory: str) -> bool:
    try:
        marker = json.loads(text)
    except ValueError:
        return False
    return isinstance(marker, dict) and marker.get("directory") == posixpath.basename(directory)


class _MountedStore:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create(self) -> None:
        os.makedirs(os.path.dirname(self._directory), exist_ok=True)
        os.mkdir(self._directory)
        with open(self._path(MARKER_NAME), "w", encoding="utf-8") as file:
            file.write(_marker(self._directory))

    def is_there(self) -> bool:
        return os.path.lexists(self._directory)

    def is_ours(self) -> bool:
        try:
            with open(self._path(MARKER_NAME), encoding="utf-8") as file:
                return _is_marker(file.read(), self._directory)
        except OSError:
            return False

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

    def remove_all(self, attempts: int = 3) -> None:
        for left in reversed(range(attempts)):
            if not os.path.lexists(self._directory):
                return
            try:
                shutil.rmtree(self._directory)
            except OSError:  # a dying task removed or added a file meanwhile
                if not left:
                    raise

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
        filesystem.pipe_file(self._name(MARKER_NAME), _marker(self._path).encode())

    def is_there(self) -> bool:
        return bool(self._open().exists(self._path))

    def is_ours(self) -> bool:
        try:
            return _is_marker(self._open().cat_file(self._name(MARKER_NAME)), self._path)
        except OSError:
            return False

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="petastorm_bridge_") as directory:
            yield directory
            filesystem = self._open()
            last = (SIDECAR_NAME, INDEX_NAME)
            for name in sorted(
                os.listdir(directory), key=lambda n: (n in last, n == INDEX_NAME, n)
            ):
                filesystem.put_file(os.path.join(directory, name), self._name(name))

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

    def remove_all(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._open().rm(self._path, recursive=True)

    def _name(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _open(self) -> Any:
        filesystem = FilesystemResolver(self._url).filesystem()
        # fsspec remembers listings, and other machines write here, too.
        filesystem.invalidate_cache()
        return filesystem
