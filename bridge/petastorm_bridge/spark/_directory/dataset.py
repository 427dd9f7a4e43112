"""What a finished directory holds: files, rows, sizes; MDS or Parquet, without Spark. And waiting for its files."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from petastorm_bridge._sources.parquet_files import MARKER_NAME, unfinished_text
from petastorm_bridge._sources.table import open_table
from petastorm_bridge._sources.table_formats import (
    find_table,
    refuse_table_formats,
    url_without_version,
    without_version,
)
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import (
    FilesystemResolver,
    LocalFileSystem,
    existing_local_path,
    get_filesystem_and_path_or_paths,
    masked,
)
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.entry import INDEX_NAME, ShardEntry
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.reader._rows.store import arrow_filesystem
from petastorm_bridge.spark._session import (
    analysis_error,
    illegal_argument,
    logger,
    missing_dataset,
)

from .deletion import was_deleted
from .store import store_at
from .urls import sub_url

_POLL_SECONDS = 0.1
_URLS_SHOWN = 5
_RECOMMENDED_FILE_SIZE_BYTES = 50 * 1024 * 1024


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a dataset, by their URLs in row order; the URL of ``index.json`` where there are no shards."""

    urls: list[str]
    num_rows: int


def describe_converted(directory_url: str) -> DatasetFiles:
    """Return the files of a directory that a conversion made; DatasetError if it is not complete."""
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
    return f", {size} bytes, columns {[field.name for field in dataset.schema.fields]}"


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
    warn_if_small(urls)
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
    if not _is_local(filesystem):
        return describe_converted(url)
    dataset = open_dataset(path)
    present = functools.partial(_present_name, path)
    names = each_at_once(present, dataset.shards, is_far=is_far(path)) or [INDEX_NAME]
    return DatasetFiles([f"file://{path}/{name}" for name in names], dataset.num_rows)


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


def wait_for_files(urls: list[str], timeout: float) -> None:
    """Wait until all files are there; some stores show a new file only after a while.

    Raises:
        RuntimeError: Some are still missing after ``timeout``, or this process deleted them itself,
            in which case there is nothing to wait for.
    """
    filesystem, paths = get_filesystem_and_path_or_paths(urls)
    missing = _missing(filesystem, list(zip(urls, paths, strict=True)))
    if not missing:
        return
    directory = missing[0][0].rpartition("/")[0]
    if was_deleted(directory):
        raise RuntimeError(
            f"{_timeout_text(missing)} This process deleted {masked(directory)} (converter.delete() on "
            "this converter or on another one of the same DataFrame). Make a new converter with "
            "make_spark_converter(df)."
        )
    end = time.monotonic() + timeout
    while missing and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        missing = _missing(filesystem, missing)
    if missing:
        raise RuntimeError(
            f"{_timeout_text(missing)} They did not appear within {timeout:g} s: they were deleted, "
            "or this machine does not mount the storage they are on."
        )


def _missing(filesystem: Any, files: list[tuple[str, str]]) -> list[tuple[str, str]]:

    def exists(path: str) -> bool:
        # A table's version is no file.
        return bool(filesystem.exists(path) or filesystem.exists(without_version(path)))

    is_local = isinstance(filesystem, LocalFileSystem)
    if not is_local:
        filesystem.invalidate_cache()
    paths = [path for _, path in files]
    present = each_at_once(exists, paths, is_far=not is_local or is_far(os.path.dirname(paths[0])))
    return [file for file, is_there in zip(files, present, strict=True) if not is_there]


def _timeout_text(missing: list[tuple[str, str]]) -> str:
    shown = ",".join(masked(url) for url, _ in missing[:_URLS_SHOWN])
    more = f" and {len(missing) - _URLS_SHOWN} more" if len(missing) > _URLS_SHOWN else ""
    return (
        f"Timeout while waiting for all parquet-store files to appear at urls {shown}{more},"
        "Please check whether these files were saved successfully when materializing dataframe."
    )


def warn_if_small(urls: Sequence[str]) -> None:
    """Warn when the median size of several local Parquet files is below 50 MB.

    Shards are not warned of: their size is asked for by the caller, and each takes as long to read
    as its rows do.
    """
    filesystem, paths = get_filesystem_and_path_or_paths(list(urls))
    if len(paths) < 2 or not isinstance(filesystem, LocalFileSystem):
        return
    sizes = each_at_once(os.path.getsize, paths, is_far=is_far(os.path.dirname(paths[0])))
    median = sorted(sizes)[len(sizes) // 2]
    if median >= _RECOMMENDED_FILE_SIZE_BYTES:
        return
    logger.warning(
        "The median size %d B (< 50 MB) of the parquet files is too small. Total size: %d B. "
        "Increase the median file size by calling df.repartition(n) or df.coalesce(n), which might "
        "help improve the performance. Parquet files: %s, ...",
        median,
        sum(sizes),
        masked(urls[0]),
    )
