"""Waiting for files that a store shows late, and the warning about small ones."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from petastorm_bridge._sources.table_formats import without_version
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import LocalFileSystem, get_filesystem_and_path_or_paths, masked
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.spark._session import logger

from .deletion import was_deleted

_POLL_SECONDS = 0.1
_URLS_SHOWN = 5
_RECOMMENDED_FILE_SIZE_BYTES = 50 * 1024 * 1024


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


def warn_if_small(sizes: Sequence[int], first_url: str) -> None:
    """Warn when the median size of several Parquet files, in bytes, is below 50 MB.

    Shards are not warned of: their size is asked for by the caller, and each takes as long to read
    as its rows do.
    """
    if len(sizes) < 2:
        return
    median = sorted(sizes)[len(sizes) // 2]
    if median >= _RECOMMENDED_FILE_SIZE_BYTES:
        return
    logger.warning(
        "The median size %d B (< 50 MB) of the parquet files is too small. Total size: %d B. "
        "Increase the median file size by calling df.repartition(n) or df.coalesce(n), which might "
        "help improve the performance. Parquet files: %s, ...",
        median,
        sum(sizes),
        masked(first_url),
    )


def local_sizes(urls: list[str]) -> list[int]:
    """Return the sizes of local files, nothing for files of another store."""
    filesystem, paths = get_filesystem_and_path_or_paths(urls)
    if not isinstance(filesystem, LocalFileSystem):
        return []
    return each_at_once(os.path.getsize, paths, is_far=is_far(os.path.dirname(paths[0])))
