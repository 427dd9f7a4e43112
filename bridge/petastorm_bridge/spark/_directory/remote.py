"""A dataset directory in a remote store: whole files are copied into it, the index last.

They come from a temporary directory; object stores show a file when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import tempfile
from collections.abc import Iterator, Mapping
from glob import has_magic
from typing import Any
from urllib.parse import urlparse

from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.fs_utils import FilesystemResolver, get_dataset_path
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.schema import SIDECAR_NAME

from .own_files import REMOVALS, marker_text, read_marker, sorted_out


class RemoteStore:
    """A directory by its URL; the methods are those of :class:`~.store.Store`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = get_dataset_path(urlparse(url))
        self._open()  # tells early that a package is missing

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        filesystem = self._open()
        filesystem.makedirs(self._path, exist_ok=True)
        filesystem.pipe_file(self._name(MARKER_NAME), marker_text(self._path))
        yield

    def is_there(self) -> bool:
        return bool(self._open().exists(self._path))

    def is_ours(self) -> bool:
        try:
            marker = self._open().cat_file(self._name(MARKER_NAME))
        except OSError:
            return False
        return read_marker(marker, self._path) is not None

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
            if not self._is_marked():
                for copied in names[: i + 1]:
                    self.remove(copied)
                self._remove_folder()
                raise FileNotFoundError(
                    errno.ENOENT, "the directory was deleted while files were copied into it"
                )

    def _is_marked(self) -> bool:
        """Return whether the marker is there; True where this process may write but not look."""
        try:
            self._open().cat_file(self._name(MARKER_NAME))
        except FileNotFoundError:
            return False
        except PermissionError:
            pass
        return True

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

    def sizes(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        del known  # a listing has all sizes
        return {n: e["size"] for n, e in self._entries().items() if e["type"] == "file"}

    def names(self) -> list[str]:
        return list(self.sizes())

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._open().rm_file(self._name(name))

    def remove_ours(self) -> list[str]:
        filesystem = self._open()
        for attempt in range(REMOVALS):
            entries = self._entries()
            if not entries and attempt:
                return []
            is_folder = {name: entry["type"] != "file" for name, entry in entries.items()}
            ours, others = sorted_out(is_folder)
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
        if not self._entries():
            with contextlib.suppress(OSError, NotImplementedError):
                self._open().rmdir(self._path)

    def _entries(self) -> dict[str, Any]:
        """Return what is in the directory, by name."""
        try:
            entries = self._open().ls(self._path, detail=True)
        except FileNotFoundError:
            return {}
        return {
            posixpath.basename(entry["name"].rstrip("/")): entry
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
