"""What a finished directory holds: files, rows, sizes; MDS or Parquet, without Spark."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from petastorm_bridge._sources.table import open_table
from petastorm_bridge._sources.table_formats import (
    find_table,
    refuse_table_formats,
    url_without_version,
)
from petastorm_bridge._sources.unfinished import MARKER_NAME, unfinished_text
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import (
    FilesystemResolver,
    LocalFileSystem,
    existing_local_path,
    get_filesystem_and_path_or_paths,
    masked,
)
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.dataset import INDEX_NAME, MdsDataset, open_dataset
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.reader._rows.store import arrow_filesystem
from petastorm_bridge.spark._errors import analysis_error, illegal_argument, missing_dataset
from petastorm_bridge.spark._session import logger

from .availability import local_sizes, warn_if_small
from .store import store_at
from .urls import sub_url


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a dataset.

    Attributes:
        urls: In row order; the URL of ``index.json`` for a dataset without shards.
        num_rows: Rows in all of them.
    """

    urls: list[str]
    num_rows: int


def describe_converted(directory_url: str) -> DatasetFiles:
    """Return the files of a directory that a conversion made.

    Raises:
        DatasetError: It is not complete.
    """
    with store_at(directory_url).reading() as directory:
        dataset = open_dataset(directory)
    names = [shard.stored["basename"] for shard in dataset.shards] or [INDEX_NAME]
    return DatasetFiles([sub_url(directory_url, name) for name in names], dataset.num_rows)


def size_and_columns(directory_url: str) -> str:
    """Return what a local MDS directory holds, for people; empty for others, and for none."""
    path = existing_local_path(directory_url)
    if path is None:
        return ""
    try:
        dataset = open_dataset(path)
    except (OSError, DatasetError):
        return ""
    size = sum(shard.stored["bytes"] for shard in dataset.shards)
    return f", {size} bytes, columns {dataset.schema.names}"


def describe_path(url: str) -> DatasetFiles:
    """Return the files of a Parquet file or directory, or of an MDS directory, at a user's path.

    Args:
        url: URL, or path without scheme; may hold shell wildcards, as Spark's reader allows.

    Raises:
        ValueError: The path is empty (also Spark's ``IllegalArgumentException``).
        FileNotFoundError: Nothing is there (also Spark's ``AnalysisException``).
        ValueError: It is neither Parquet nor MDS (also Spark's ``AnalysisException``), or a table
            of another kind.
    """
    filesystem, full_url, path = _locate(url)
    if _has_index(filesystem, path):
        return _describe_mds(filesystem, full_url, path.rstrip("/"))
    where = None if _is_local(filesystem) else full_url
    table = find_table(arrow_filesystem(filesystem), path, where)
    if table is not None:
        source = open_table(table)
        # Its "file" is the version that is the current one now.
        url_of_version = url_without_version(full_url, table) + source.suffix
        return DatasetFiles([url_of_version], sum(source.row_counts))
    files = _data_files(filesystem, path, url)
    _warn_of_partitions(files, path, url)
    are_far = not _is_local(filesystem) or is_far(os.path.dirname(files[0]))
    rows = each_at_once(functools.partial(_parquet_rows, filesystem), files, is_far=are_far)
    urls = [_file_url(filesystem, full_url, file) for file in files]
    warn_if_small(local_sizes(urls), urls[0])
    return DatasetFiles(urls, sum(rows))


def is_mds_directory(url: str) -> bool:
    """Tell whether an MDS directory is at a user's path, with the errors of a path as `describe_path` has them."""
    filesystem, _, path = _locate(url)
    return _has_index(filesystem, path)


def _locate(url: str) -> tuple[Any, str, str]:
    """Return the file system of a user's path, its URL with a scheme, and its path there."""
    if not url.strip():
        raise illegal_argument(
            "The path of the dataset is an empty string. Give a directory's url."
        )
    has_scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) is not None
    full_url = url if has_scheme else "file://" + os.path.abspath(url)
    filesystem = FilesystemResolver(full_url).filesystem()
    _, path = get_filesystem_and_path_or_paths(full_url, filesystem=filesystem)
    return filesystem, full_url, path


def _has_index(filesystem: Any, path: str) -> bool:
    return bool(filesystem.exists(f"{path.rstrip('/')}/{INDEX_NAME}"))


def _describe_mds(filesystem: Any, url: str, path: str) -> DatasetFiles:
    if _is_local(filesystem):
        dataset = open_dataset(path)
        return DatasetFiles(_shard_urls(path, dataset), dataset.num_rows)
    return describe_converted(url)


def _file_url(filesystem: Any, any_url: str, path: str) -> str:
    """Return the URL of a path that a filesystem reported, in the form of the URLs it is given."""
    if _is_local(filesystem):
        return f"file://{path}"
    parsed = urlparse(any_url)
    if parsed.scheme == "hdfs":
        return f"hdfs://{parsed.netloc}{path}"
    return f"{parsed.scheme}://{path.lstrip('/')}"


def _is_local(filesystem: Any) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def _shard_urls(directory: str, dataset: MdsDataset) -> list[str]:
    present = functools.partial(_present_name, directory)
    names = each_at_once(present, dataset.shards, is_far=is_far(directory)) or [INDEX_NAME]
    return [f"file://{directory}/{name}" for name in names]


def _present_name(directory: str, shard: ShardEntry) -> str:
    """Return the name of a shard's file as it was written; expanded copies are second choice."""
    written = shard.basenames[-1]
    if shard.zip is None or os.path.exists(os.path.join(directory, written)):
        return written
    return shard.basenames[0]


def _data_files(filesystem: Any, path: str, url: str) -> list[str]:
    """Return the data files at ``path``: Spark's rules, sorted by name."""
    roots = [path]
    if not filesystem.exists(path):
        roots = sorted(filesystem.glob(path)) if set(path) & set("*?[") else []
    if not roots:
        raise missing_dataset(
            f"[PATH_NOT_FOUND] Path does not exist: {masked(url)}. Give the url of a Parquet file, a Parquet "
            "directory or an MDS directory, such as 'file:///dbfs/data/train'."
        )
    files: list[str] = []
    for root in roots:
        if filesystem.isfile(root):
            files.append(root)
        else:
            refuse_table_formats(arrow_filesystem(filesystem), root)
            listed = sorted(filesystem.find(root))
            if any(file[len(root) :].strip("/") == MARKER_NAME for file in listed):
                raise analysis_error(unfinished_text(url))
            files.extend(file for file in listed if not _is_hidden(root, file))
    if not files:
        raise analysis_error(
            f"[UNABLE_TO_INFER_SCHEMA] Nothing to read at {masked(url)}: it holds neither Parquet files nor "
            f"an MDS index ({INDEX_NAME})."
        )
    return files


def _warn_of_partitions(files: list[str], root: str, url: str) -> None:
    """Say that values in directory names are no columns; Petastorm drops them without a word."""
    folders = [part for file in files for part in file[len(root) :].split("/")[:-1]]
    names = list(dict.fromkeys(part.partition("=")[0] for part in folders if "=" in part))
    if names:
        logger.warning(
            "The partition columns %s of %s are not in the batches of a converter, as in Petastorm. "
            "To have them, read the directory's url with make_batch_reader.",
            names,
            masked(url),
        )


def _is_hidden(root: str, file: str) -> bool:
    """Return whether Spark skips a file: some part of its path starts with ``_`` or ``.``."""
    parts = file[len(root) :].strip("/").split("/")
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in parts)


def _parquet_rows(filesystem: Any, path: str) -> int:
    try:
        with filesystem.open(path, "rb") as file:
            return int(pq.read_metadata(file).num_rows)
    except pa.ArrowInvalid as error:
        raise analysis_error(
            f"{path} is not a Parquet file ({error}), and there is no MDS index beside it."
        ) from error
