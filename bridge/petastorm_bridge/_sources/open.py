"""From a URL, or a list of them, to a source of row groups."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge.mds.access import is_mapped
from petastorm_bridge.mds.dataset import INDEX_NAME, open_dataset
from petastorm_bridge.mds.errors import DatasetNotFoundError

from ._far.copies import CacheSettings
from ._far.stores import MountStore
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
        OSError: There is nothing to read.
    """
    normalized = normalize_dataset_url_or_urls(url_or_urls)
    listed = isinstance(normalized, list)
    urls = normalized if isinstance(normalized, list) else [normalized]
    if not all("://" in url and fs_utils.local_path(url) is None for url in urls):
        fs_utils.get_filesystem_and_path_or_paths(urls)  # refuses missing and mixed schemes
    local = [_path_here(url) for url in urls]
    if None in local:
        from .remote import open_remote

        return open_remote(urls, listed, storage_options, settings)
    paths = [path for path in local if path is not None]
    return open_paths(paths, listed=listed, settings=settings)


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


def open_paths(
    paths: Sequence[str], *, listed: bool, settings: CacheSettings | None = None
) -> Source:
    """Open files or a directory by their paths."""
    shards = named_shards(paths) if listed else _dataset_at(paths[0])
    if shards is not None:
        directory, names = shards
        if is_mapped(directory):
            return MdsSource(open_dataset(directory), names)
        from .remote import FarMdsSource

        try:
            return FarMdsSource(directory, names, MountStore(), settings)
        except DatasetNotFoundError:
            if listed or os.path.isfile(os.path.join(directory, INDEX_NAME)):
                raise
    from .far_parquet import FarFiles
    from .parquet import ParquetSource
    from .table import open_table

    directory = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0])
    make_far = None
    if not is_mapped(directory):
        make_far = functools.partial(FarFiles, MountStore(), settings=settings)
    table = find_table(fs.LocalFileSystem(), paths[0]) if len(paths) == 1 else None
    if table is not None:
        return open_table(table, make_far)
    return ParquetSource(paths, listed, make_far=make_far)


def _dataset_at(path: str) -> tuple[str, None] | None:
    """Return the directory of the MDS dataset that a path names, and all of its shards.

    Where each look is a request, a directory is taken for one of MDS: its index is asked for anyway.
    """
    if os.path.basename(path) == INDEX_NAME:
        return os.path.dirname(path), None
    is_mds = not is_mapped(path) or os.path.isfile(os.path.join(path, INDEX_NAME))
    return (path, None) if is_mds else None
