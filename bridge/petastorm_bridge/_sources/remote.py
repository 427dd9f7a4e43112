"""Datasets that are far away: MDS shards are copied to this machine ahead of their use, Parquet stays."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import os
import posixpath
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge._blocks.columns import Column
from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds.dataset import INDEX_NAME, open_dataset, read_index
from petastorm_bridge.mds.entry import ShardEntry, check_folders
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError
from petastorm_bridge.mds.files import write_whole
from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.mds.shard import Rows, first_samples, open_shard

from ._far.ahead import Fetcher
from ._far.copies import CacheSettings, Copies
from ._far.errors import explain
from ._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from ._far.stores import FsspecStore, MountStore, Store, open_store
from .far_parquet import FarFiles
from .mds import MdsGroup, MdsSource, named_shards
from .parquet import ParquetSource
from .source import RowGroup, Source
from .table import open_table
from .table_formats import find_table

# What a mount answers at once: Linux asks it for twelve pieces at a time (FUSE's max_background), and for the thirteenth
# when the first has come.
_BEGINNING_BYTES = 12 * MountStore.answer_bytes


def open_remote(
    urls: Sequence[str],
    listed: bool,
    storage_options: Mapping[str, Any] | None = None,
    settings: CacheSettings | None = None,
) -> Source:
    """Open a dataset that is not on a local file system.

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
        shards = named_shards(urls)
        if shards is None:
            return _open_parquet(urls, listed, storage_options, settings)
        return FarMdsSource(*shards, open_store(urls[0], storage_options), settings)
    url = urls[0]
    if posixpath.basename(url) == INDEX_NAME:
        url = posixpath.dirname(url)
    try:
        return FarMdsSource(url, None, open_store(url, storage_options), settings)
    except DatasetNotFoundError as error:
        return _open_parquet(urls, listed, storage_options, settings, error)


def _plain_dbfs(url: str) -> str:
    """Return ``dbfs:///x`` as ``dbfs:/x``, which is how streaming's downloaders know it."""
    scheme, _, path = url.partition(":")
    return f"dbfs:/{path.lstrip('/')}" if scheme.lower() == "dbfs" else url


def _open_parquet(
    urls: Sequence[str],
    listed: bool,
    storage_options: Mapping[str, Any] | None,
    settings: CacheSettings | None,
    no_index: DatasetNotFoundError | None = None,
) -> Source:
    if urls[0].startswith("dbfs:"):
        raise no_index or DatasetNotFoundError(
            f"DBFS is not mounted on this machine, so Parquet files like {masked(urls[0])} cannot be read."
        )
    try:
        resolver = fs_utils.FilesystemResolver(urls[0], storage_options=storage_options)
        known = resolver.filesystem()
        known.invalidate_cache()  # fsspec keeps it with its listings, which are of another moment
        filesystem = fs.PyFileSystem(_Handler(known))
        make_far = functools.partial(
            FarFiles,
            FsspecStore(urls[0], storage_options or {}),
            prefix=f"{urlparse(urls[0]).scheme}://",
            settings=settings,
        )
        paths = [fs_utils.get_dataset_path(urlparse(url)) for url in urls]
        table = None
        if len(urls) == 1:
            table = find_table(filesystem, paths[0], urls[0], storage_options)
        if table is not None:
            return open_table(table, make_far)
        return ParquetSource(paths, listed, filesystem=filesystem, make_far=make_far)
    except (ImportError, ValueError) as error:
        if no_index is None or isinstance(error, DatasetError):
            raise
        # Parquet could not even be looked for.
        raise no_index from without_secrets(error, *urls)
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, urls[0]) from without_secrets(error, *urls)


class _Handler(fs.FSSpecHandler):  # type: ignore[misc] # pyarrow is untyped
    """Gives Arrow the times of files under the names that stores have for them, and asks less."""

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[Any]:
        """Return what lies in or below a directory, with fewer questions than Arrow asks whether it is one."""
        base = selector.base_dir
        if not selector.recursive:
            if selector.allow_not_found and not self.fs.isdir(base):
                return []
            return list(super().get_file_info_selector(selector))
        entries = self.fs.find(base, withdirs=True, detail=True)
        itself = self.normalize_path(base).strip("/")
        below = {path: info for path, info in entries.items() if path.strip("/") != itself}
        if not below:  # a file, an empty directory, or nothing
            return list(super().get_file_info_selector(selector))
        return [self._create_file_info(path, info) for path, info in below.items()]

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> Any:
        times = (info.get(name) for name in ("mtime", "LastModified", "last_modified", "created"))
        mtime = next((t for t in times if isinstance(t, (int, float, dt.datetime))), None)
        return fs.FSSpecHandler._create_file_info(path, {**info, "mtime": mtime})  # noqa: SLF001


class FarMdsSource(MdsSource):
    """The shards of a far MDS dataset, of which this machine keeps copies while it has room.

    Attributes:
        ahead: Fetches shards before they are opened.
    """

    def __init__(
        self,
        url: str,
        basenames: Sequence[str] | None,
        store: Store,
        settings: CacheSettings | None = None,
    ) -> None:
        self._url = url
        self.ahead: Fetcher = Fetcher(store, _copies_of(url, store, settings))
        dataset = open_dataset(
            self.ahead.copies.path, lambda entry: self.ahead.get(self._extent(entry))
        )
        super().__init__(dataset, basenames)
        self.description = masked(url)

    def extents(self, position: int) -> list[Extent]:
        return [self._extent(self._entry(position))]

    def want_first(self, position: int) -> int:
        """Begin to fetch a shard; return how many of its rows can be read before it is here."""
        entry = self._entry(position)
        extent, head = self._extent(entry), 4 * (entry.samples + 2)  # and some text
        if entry.zip is not None or extent.size < 2 * _BEGINNING_BYTES:
            return 0
        if not self.ahead.want(extent, beginning=_BEGINNING_BYTES):
            return 0
        share = (_BEGINNING_BYTES - head) / (extent.size - head)
        return max(0, int(0.75 * share * entry.samples))  # rows differ in size

    def open(self, position: int) -> RowGroup:
        """Open one shard, once it is here, or once its first rows are that come before all others."""
        entry = self._entry(position)
        head = self.ahead.beginning(self._extent(entry))
        first = None if head is None else first_samples(entry, head)
        if first is None:
            return self._open_whole(position)
        shard = open_shard(self._dataset.directory, *first)
        group = MdsGroup(shard, self._fields)
        return _BeginningGroup(group, shard.num_rows, lambda: self._open_whole(position))

    def _open_whole(self, position: int) -> RowGroup:
        extent = self._extent(self._entry(position))
        before = self.ahead.inode(extent)
        try:
            return self._open(position, self.ahead.get(extent))
        except (DatasetNotFoundError, ShardCorruptedError):
            if before is None:
                raise
        # A copy from before is damaged or was removed meanwhile: another one may be whole.
        return self._open(position, self.ahead.get(extent, damaged=before))

    def is_cheap(self, position: int) -> bool:
        """Return whether the shard is here already, and uncompressed."""
        return (
            super().is_cheap(position)
            and self.ahead.inode(self._extent(self._entry(position))) is not None
        )

    def _extent(self, entry: ShardEntry) -> Extent:
        file, name = entry.stored, entry.stored["basename"]
        return Extent(f"{self._url}/{name}", name, file["bytes"], file["hashes"])


class _BeginningGroup:
    """A row group of which the first rows are here."""

    def __init__(self, beginning: RowGroup, rows: int, open_whole: Callable[[], RowGroup]) -> None:
        self._beginning = beginning
        self._rows = rows
        self._open_whole = open_whole

    @functools.cached_property
    def _whole(self) -> RowGroup:
        return self._open_whole()

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        is_here = isinstance(rows, slice) and rows.stop <= self._rows
        return (self._beginning if is_here else self._whole).load(names, rows)


def _copies_of(url: str, store: Store, settings: CacheSettings | None) -> Copies:
    """Return the directory of a dataset's copies, with its index and sidecar in it.

    Without hashes in the index a copied shard cannot be told from one of another dataset with the
    same sizes, so its directory is not shared.
    """
    with tempfile.TemporaryDirectory(prefix="petastorm-bridge-index-") as incoming:

        def fetch(name: str) -> None:
            extent = Extent(f"{url}/{name}", name, UNKNOWN_SIZE)
            Fetch(store, extent).to_file(os.path.join(incoming, name))

        with ThreadPoolExecutor(1) as executor:  # each takes a few requests one after the other
            fetching = executor.submit(fetch, SIDECAR_NAME)
            fetch(INDEX_NAME)
            # Some stores answer "forbidden" where they may not say that there is nothing.
            with contextlib.suppress(DatasetNotFoundError, PermissionError):
                fetching.result()
        try:
            shards = read_index(incoming)
        except DatasetError as error:  # which names the copy
            raise DatasetError(
                f"The index of {masked(url)} cannot be used: {masked(str(error))}"
            ) from error
        is_private = not all(entry.stored["hashes"] for entry in shards)
        names = (INDEX_NAME, SIDECAR_NAME)
        contents = {name: _content(os.path.join(incoming, name)) for name in names}
    name = hashlib.sha256(b"\0".join(text or b"" for text in contents.values())).hexdigest()[:32]
    copies = Copies(name, is_private=is_private, settings=settings)
    check_folders(copies.path, (name for entry in shards for name in entry.basenames))
    for name, text in reversed(contents.items()):
        path = os.path.join(copies.path, name)
        if text is not None and _content(path) != text:
            write_whole(path, [text])
    return copies


def _content(path: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return file.read()
    return None
