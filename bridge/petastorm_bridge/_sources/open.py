"""From a URL, or a list of them, to a source of row groups."""

from __future__ import annotations

import datetime as dt
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds.access import is_mapped
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError

from ._far.copies import CacheSettings
from ._far.errors import explain
from ._far.stores import FsspecStore, MountStore, Store, open_store
from .far_mds import FarMdsSource
from .mds import MdsSource, named_shards
from .source import Source
from .table_formats import find_table


def open_source(
    url_or_urls: Any,
    storage_options: Mapping[str, Any] | None = None,
    settings: CacheSettings | None = None,
) -> Source:
    """Open the dataset at a directory URL, or made of a list of file URLs.

    Raises:
        ValueError: No URL, one without a scheme, or URLs of several places (Petastorm's texts).
        ImportError: The store's package is missing.
        OSError: There is nothing to read, the store refuses, or it cannot be read.
    """
    normalized = normalize_dataset_url_or_urls(url_or_urls)
    listed = isinstance(normalized, list)
    urls = normalized if isinstance(normalized, list) else [normalized]
    if not all("://" in url and fs_utils.local_path(url) is None for url in urls):
        fs_utils.get_filesystem_and_path_or_paths(urls)  # refuses missing and mixed schemes
    paths = [path for path in map(_path_here, urls) if path is not None]
    if len(paths) == len(urls):
        return _open_paths(paths, listed, settings)
    return _open_remote([_plain_dbfs(url) for url in urls], listed, storage_options, settings)


def normalize_dataset_url_or_urls(dataset_url_or_urls: Any) -> str | list[str]:
    """Return the URL of a directory, or a list of URLs, without trailing slashes and blanks.

    Raises:
        ValueError: An empty list, an empty URL, or something that is no string.
    """
    if not isinstance(dataset_url_or_urls, list):
        return fs_utils.normalize_dir_url(dataset_url_or_urls)
    if not dataset_url_or_urls:
        raise ValueError("dataset url list must be non-empty.")
    return [fs_utils.normalize_dir_url(url) for url in dataset_url_or_urls]


def _path_here(url: str) -> str | None:
    """Return the local path of a URL; None where it has none, or ``dbfs:`` is not mounted here."""
    path = fs_utils.existing_local_path(url)
    if path is not None and url.lower().startswith("dbfs:"):
        return path if os.path.isdir("/" + path.split("/")[1]) else None
    return path


def _plain_dbfs(url: str) -> str:
    """Return ``dbfs:///x`` as ``dbfs:/x``, which is how streaming's downloaders know it."""
    scheme, _, path = url.partition(":")
    return f"dbfs:/{path.lstrip('/')}" if scheme.lower() == "dbfs" else url


def _without_index(place: str) -> str:
    """Return the directory that a path or URL names by itself or by its index."""
    return os.path.dirname(place) if os.path.basename(place) == INDEX_NAME else place


def _open_paths(paths: Sequence[str], listed: bool, settings: CacheSettings | None) -> Source:
    shards: tuple[str, Sequence[str] | None] | None
    if listed:
        shards = named_shards(paths)
    else:
        directory = _without_index(paths[0])
        # Where each look is a request, it is taken for one of MDS: its index is asked for anyway.
        is_mds = (
            directory != paths[0]
            or not is_mapped(directory)
            or os.path.isfile(os.path.join(directory, INDEX_NAME))
        )
        shards = (directory, None) if is_mds else None
    if shards is not None:
        directory, names = shards
        if is_mapped(directory):
            return MdsSource(open_dataset(directory), names)
        try:
            return FarMdsSource(directory, names, MountStore(), settings)
        except DatasetNotFoundError:
            if listed or os.path.isfile(os.path.join(directory, INDEX_NAME)):
                raise
    directory = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0])
    store = None if is_mapped(directory) else MountStore()
    return _open_files(paths, listed, fs.LocalFileSystem(), store, settings)


def _open_remote(
    urls: Sequence[str],
    listed: bool,
    storage_options: Mapping[str, Any] | None,
    settings: CacheSettings | None,
) -> Source:
    if len({urlparse(url)[:2] for url in urls}) > 1:
        raise ValueError("The dataset url list must contain url with the same scheme and netloc.")
    no_index = None
    shards = named_shards(urls) if listed else (_without_index(urls[0]), None)
    if shards is not None:
        directory, names = shards
        try:
            return FarMdsSource(directory, names, open_store(urls[0], storage_options), settings)
        except DatasetNotFoundError as error:
            if listed:
                raise
            no_index = error
    if urls[0].startswith("dbfs:"):
        raise no_index or DatasetNotFoundError(
            f"DBFS is not mounted on this machine, so Parquet files like {masked(urls[0])} cannot be read."
        )
    try:
        known = fs_utils.FilesystemResolver(urls[0], storage_options=storage_options).filesystem()
        known.invalidate_cache()  # fsspec keeps it with its listings, which are of another moment
        filesystem = fs.PyFileSystem(_Handler(known))
        paths = [fs_utils.get_dataset_path(urlparse(url)) for url in urls]
        store = FsspecStore(urls[0], storage_options or {})
        return _open_files(
            paths, listed, filesystem, store, settings, url=urls[0], storage_options=storage_options
        )
    except (ImportError, ValueError) as error:
        if no_index is None or isinstance(error, DatasetError):
            raise
        # Parquet could not even be looked for.
        raise no_index from without_secrets(error, *urls)
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, urls[0]) from without_secrets(error, *urls)


def _open_files(
    paths: Sequence[str],
    listed: bool,
    filesystem: fs.FileSystem,
    store: Store | None,
    settings: CacheSettings | None,
    *,
    url: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Open Parquet files, or the table of another format that they are in; in a store if there is a URL."""
    from .far_parquet import FarFiles
    from .parquet import ParquetSource
    from .table import open_table

    make_far = None
    if store is not None and store.range_bytes is not None:
        prefix = f"{urlparse(url).scheme}://" if url else ""
        make_far = functools.partial(FarFiles, store, prefix=prefix, settings=settings)
    table = None
    if len(paths) == 1:
        table = find_table(filesystem, paths[0], url, storage_options)
    if table is not None:
        return open_table(table, make_far)
    return ParquetSource(paths, listed, filesystem=filesystem, make_far=make_far)


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
