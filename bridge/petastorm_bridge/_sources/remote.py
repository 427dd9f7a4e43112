"""Datasets in remote stores: MDS shards are copied to local disk when first read, Parquet stays.

Copies are kept in a directory of this process, which goes with it, or below the one that the
environment variable ``PETASTORM_BRIDGE_LOCAL_CACHE`` names; there they stay, and any number of
readers and processes share them. A directory is named for the content of the dataset's index, whose
hashes every copy is compared with, so a dataset that was written anew is never taken for the old.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge._secrets import masked, without_secrets
from petastorm_bridge.mds.dataset import INDEX_NAME, open_dataset, read_index
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError
from petastorm_bridge.mds.locks import ForkSafeLock
from petastorm_bridge.mds.names import check_folders
from petastorm_bridge.mds.schema import SIDECAR_NAME

from .fetch import fetch_file
from .file_lock import locked
from .mds import MdsSource
from .owned import OwnedDirectory
from .parquet import ParquetSource
from .remote_errors import RemoteError, explain
from .remote_limits import limits
from .remote_stores import Fetcher, make_fetcher
from .source import RowGroup, Source
from .table import open_table
from .table_formats import find_table
from .table_store import remote_table

__all__ = ["CACHE_VARIABLE", "RemoteMdsSource", "open_remote"]

CACHE_VARIABLE = "PETASTORM_BRIDGE_LOCAL_CACHE"


def open_remote(
    urls: Sequence[str], listed: bool, storage_options: Mapping[str, Any] | None = None
) -> Source:
    """Open a dataset that is not on a local file system.

    Args:
        urls: One directory, or files of one dataset.
        listed: Whether the caller named the files one by one.
        storage_options: For the ``fsspec`` filesystem of the scheme.

    Raises:
        ValueError: The URLs are of several places, or have an unknown scheme.
        ImportError: The store's package is missing.
        DatasetNotFoundError: There is nothing to read.
        RemoteAccessError: The store refuses.
        RemoteError: It cannot be read.
    """
    urls = [_plain_dbfs(url) for url in urls]
    if len({urlparse(url)[:2] for url in urls}) > 1:
        raise ValueError("The dataset url list must contain url with the same scheme and netloc.")
    if listed:
        if not any(_is_mds_name(posixpath.basename(url)) for url in urls):
            return _open_parquet(urls, listed, storage_options, None)
        directories = {posixpath.dirname(url) for url in urls}
        if len(directories) > 1:
            raise ValueError(
                f"Shards of several datasets are listed together: {', '.join(map(masked, sorted(directories)))}. "
                "Open one reader for each."
            )
        names = [posixpath.basename(url) for url in urls]
        shards = [name for name in names if name != INDEX_NAME]
        return RemoteMdsSource(directories.pop(), shards, make_fetcher(urls[0], storage_options))
    url = urls[0]
    if posixpath.basename(url) == INDEX_NAME:
        url = posixpath.dirname(url)
    try:
        return RemoteMdsSource(url, None, make_fetcher(url, storage_options))
    except DatasetNotFoundError as error:
        return _open_parquet(urls, listed, storage_options, error)


def _plain_dbfs(url: str) -> str:
    """Return ``dbfs:///x`` as ``dbfs:/x``, which is how streaming's downloaders know it."""
    scheme, _, path = url.partition(":")
    return f"dbfs:/{path.lstrip('/')}" if scheme.lower() == "dbfs" else url


def _is_mds_name(name: str) -> bool:
    return ".mds" in name or name == INDEX_NAME


def _open_parquet(
    urls: Sequence[str],
    listed: bool,
    storage_options: Mapping[str, Any] | None,
    no_index: DatasetNotFoundError | None,
) -> Source:
    if urls[0].startswith("dbfs:"):
        raise no_index or DatasetNotFoundError(
            f"DBFS is not mounted on this machine, so Parquet files like {masked(urls[0])} cannot be read."
        )
    try:
        resolver = fs_utils.FilesystemResolver(urls[0], storage_options=storage_options)
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(resolver.filesystem()))
        paths = [fs_utils.get_dataset_path(urlparse(url)) for url in urls]
        table = find_table(filesystem, paths[0]) if len(urls) == 1 else None
        if table is not None:
            return open_table(remote_table(table, filesystem, urls[0], storage_options))
        return ParquetSource(paths, listed, filesystem=filesystem)
    except (ImportError, ValueError) as error:
        if no_index is None or isinstance(error, DatasetError):
            raise
        # Parquet could not even be looked for.
        raise no_index from without_secrets(error, *urls)
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, urls[0]) from without_secrets(error, *urls)


class RemoteMdsSource(MdsSource):
    """The shards of a remote MDS dataset, each copied to local disk when it is first opened.

    Args:
        url: The dataset's directory.
        basenames: As for :class:`MdsSource`.
        fetcher: Copies files.

    Raises:
        DatasetNotFoundError: There is no index.
        RemoteError: The store cannot be read.
        DatasetError: The index cannot be used.
    """

    def __init__(self, url: str, basenames: Sequence[str] | None, fetcher: Fetcher) -> None:
        self._url = url
        self._fetcher = fetcher
        directory, private = _fetch_index(url, fetcher)
        if private is not None:
            # With this object alone: a copy in a worker process must not delete the directory.
            private.remove_with(self)
        self._directory = directory
        dataset = open_dataset(directory, self._ensure)
        super().__init__(dataset, basenames)
        self.description = masked(url)

    def open(self, position: int) -> RowGroup:
        """Open one shard, fetching it first if need be."""
        entry = self._entry(position)
        before = self._copy(entry)
        self._ensure(entry)
        try:
            return super().open(position)
        except ShardCorruptedError:
            if before is None:
                raise
        # A copy from before is damaged: another one may be whole.
        self._ensure(entry, damaged=before)
        return super().open(position)

    def is_cheap(self, position: int) -> bool:
        """Return whether the shard is here already, and uncompressed."""
        return super().is_cheap(position) and self._copy(self._entry(position)) is not None

    def _entry(self, position: int) -> ShardEntry:
        return self._dataset.shards[self._positions[position]]

    def _path(self, entry: ShardEntry) -> str:
        return os.path.join(self._directory, _stored(entry)["basename"])

    def _copy(self, entry: ShardEntry) -> int | None:
        """Return the inode of a shard's copy; None if there is none of the right size."""
        try:
            status = os.stat(self._path(entry))
        except FileNotFoundError:
            return None
        return status.st_ino if status.st_size == _stored(entry)["bytes"] else None

    def _ensure(self, entry: ShardEntry, damaged: int | None = None) -> None:
        """Fetch a shard that is not here, or whose copy is a damaged one that nobody has replaced yet."""
        useless = (None, damaged)
        if self._copy(entry) not in useless:
            return
        path = self._path(entry)
        stored = _stored(entry)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # So that workers, in whatever process, fetch a shard once. Without the lock they fetch it
        # several times, and whoever is last puts the same file in place of the same file.
        with locked(f"{path}.lock", limits().patience) as alone:
            if self._copy(entry) in useless:
                url = f"{self._url}/{stored['basename']}"
                fetch_file(self._fetcher, url, path, stored, alone=alone)


def _stored(entry: ShardEntry) -> dict[str, Any]:
    return entry.raw if entry.zip is None else entry.zip


def _fetch_index(url: str, fetcher: Fetcher) -> tuple[str, OwnedDirectory | None]:
    """Fetch index and sidecar; return their directory, twice if it is for one source only.

    Without hashes in the index a copied shard cannot be told from one of another dataset with the
    same sizes, so its directory is not shared.
    """
    incoming = _new_directory(".incoming-")
    try:
        index = os.path.join(incoming.path, INDEX_NAME)
        sidecar = os.path.join(incoming.path, SIDECAR_NAME)
        fetch_file(fetcher, f"{url}/{INDEX_NAME}", index, None)
        # Some stores answer "forbidden" where they may not say that there is nothing.
        with contextlib.suppress(DatasetNotFoundError, PermissionError):
            fetch_file(fetcher, f"{url}/{SIDECAR_NAME}", sidecar, None)
        try:
            shards = read_index(incoming.path)
        except DatasetError as error:  # which names the copy
            raise DatasetError(
                f"The index of {masked(url)} cannot be used: {masked(str(error))}"
            ) from error
        if not all(_stored(entry)["hashes"] for entry in shards):
            return incoming.path, incoming
        directory = os.path.join(os.path.dirname(incoming.path), _content_name(index, sidecar))
        os.makedirs(directory, exist_ok=True)
        check_folders(directory, (name for entry in shards for name in entry.basenames))
        for path in (sidecar, index):
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, os.path.join(directory, os.path.basename(path)))
    except BaseException:
        incoming.remove()
        raise
    incoming.remove()
    return directory, None


def _content_name(*paths: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            digest.update(file.read())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


_root_lock = ForkSafeLock()
_process_root: tuple[int, OwnedDirectory] | None = None


def _new_directory(prefix: str) -> OwnedDirectory:
    named = os.environ.get(CACHE_VARIABLE)
    try:
        if named:
            os.makedirs(named, exist_ok=True)
        return OwnedDirectory(named or _own_root(), prefix)
    except OSError as error:
        place = f"{CACHE_VARIABLE}={named}" if named else tempfile.gettempdir()
        raise RemoteError(
            f"No directory for copies of remote files can be made in {place}: {error}. Set "
            f"{CACHE_VARIABLE} to a directory on a local disk with room for the dataset."
        ) from error


def _own_root() -> str:
    """Return the directory of this process, made at first need and removed at its end."""
    global _process_root  # noqa: PLW0603 - one per process is what it is for
    with _root_lock:
        if _process_root is None or _process_root[0] != os.getpid():
            root = OwnedDirectory(tempfile.gettempdir(), "petastorm-bridge-cache-")
            _process_root = (os.getpid(), root)
        return _process_root[1].path
