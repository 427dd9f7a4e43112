"""Copying files from remote stores to local disk."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlparse

from . import fs_utils
from ._remote_errors import RemoteAccessError, explain
from .errors import missing_extra
from .mds import codecs
from .mds.errors import DatasetError, DatasetNotFoundError

__all__ = ["Fetcher", "fetch_file", "make_fetcher"]

_ATTEMPTS = 3
_FIRST_PAUSE_SECONDS = 0.2
_TIMEOUT_SECONDS = 60.0
_STREAMING_ONLY = {"alipan", "azure", "azure-dl", "oci"}  # schemes that fsspec does not know
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class Fetcher(Protocol):
    """Copies single files; pickles, and may be used from several threads."""

    def fetch(self, url: str, path: str) -> None:
        """Copy the file at ``url`` to the local ``path``; raises what the store's package does."""


class _StreamingFetcher:
    """Uses the downloaders of MosaicML Streaming, with its environment variables."""

    def __init__(self) -> None:
        self._local = threading.local()  # clients of stores are not for several threads

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, _: dict[str, Any]) -> None:
        self._local = threading.local()

    def fetch(self, url: str, path: str) -> None:
        downloader = getattr(self._local, "downloader", None)
        if downloader is None:
            from streaming.base.storage import CloudDownloader

            downloader = self._local.downloader = CloudDownloader.get(url)
        downloader.download(url, path, _TIMEOUT_SECONDS)


class _FsspecFetcher:
    """Uses the ``fsspec`` filesystem of the scheme."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = dict(storage_options)

    def fetch(self, url: str, path: str) -> None:
        # fsspec keeps the filesystems it has made.
        resolver = fs_utils.FilesystemResolver(self._url, storage_options=self._options)
        resolver.filesystem().get_file(fs_utils.get_dataset_path(urlparse(url)), path)


def make_fetcher(url: str, storage_options: Mapping[str, Any] | None) -> Fetcher:
    """Return what copies files from the store at ``url``.

    MosaicML Streaming's downloader where it has one for the scheme; ``fsspec`` for other schemes,
    with ``storage_options`` (which are ``fsspec``'s), and where the former is not installed.

    Raises:
        ImportError: Neither can be used.
        ValueError: Nothing knows the scheme.
    """
    if storage_options:
        return _FsspecFetcher(url, storage_options)
    try:
        from streaming.base.storage import CloudDownloader

        CloudDownloader.get(url)
    except (ImportError, ValueError) as no_streaming:
        if url.startswith("dbfs:"):
            raise DatasetNotFoundError(
                f"{url}: neither is DBFS mounted on this machine, nor can it be fetched "
                f"({no_streaming}). On Databricks use a cluster that mounts it; elsewhere "
                "pip install databricks-sdk mosaicml-streaming."
            ) from no_streaming
        try:
            fs_utils.FilesystemResolver(url)
        except ImportError as no_fsspec:
            raise ImportError(
                f"Reading {url} needs a package that is not installed: mosaicml-streaming with that "
                f"store's extra ({no_streaming}), or fsspec with its package ({no_fsspec})."
            ) from no_fsspec
        except ValueError as error:
            if urlparse(url).scheme in _STREAMING_ONLY:
                raise missing_extra("mosaicml-streaming", "streaming") from error
            raise
        return _FsspecFetcher(url, {})
    except Exception as error:
        raise explain(error, url) from error
    return _StreamingFetcher()


def fetch_file(fetcher: Fetcher, url: str, path: str, expected: Mapping[str, Any] | None) -> None:
    """Copy a file so that ``path`` is never anything but the whole file.

    It is fetched under another name, compared with its index entry and then renamed; what other
    processes do at the same time does not matter.

    Args:
        fetcher: Does the copying.
        url: The file.
        path: Where it shall be; the directory exists.
        expected: ``{"bytes": …, "hashes": {name: hex digest}}``, or None where nothing is known.

    Raises:
        DatasetNotFoundError: It is not there.
        RemoteAccessError: The store refuses.
        DatasetError: It cannot be read, or is not what the index says, in several attempts.
        OSError: It cannot be written here.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.part"
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch_once(fetcher, url, temporary, expected)
            os.replace(temporary, path)
        except (DatasetNotFoundError, RemoteAccessError):
            raise
        except DatasetError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(pause)
            pause *= 2
        else:
            return
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)


def _fetch_once(fetcher: Fetcher, url: str, path: str, expected: Mapping[str, Any] | None) -> None:
    try:
        fetcher.fetch(url, path)
    except ImportError:
        raise
    except OSError as error:
        folder = os.path.dirname(path)
        if error.errno in _DISK_ERRORS or folder in str(error.filename):
            raise OSError(
                error.errno,
                f"{error.strerror}: no copy of {url} can be kept here. Make room, or set "
                "PETASTORM_BRIDGE_LOCAL_CACHE to another directory",
                folder,
            ) from error
        raise explain(error, url) from error
    except Exception as error:
        raise explain(error, url) from error
    problem = None if expected is None else _mismatch(path, expected)
    if problem is not None:
        raise DatasetError(
            f"{url} does not match the dataset's index: {problem}. The download was cut short, or "
            "the file was replaced or damaged in the store."
        )


def _mismatch(path: str, expected: Mapping[str, Any]) -> str | None:
    """Return how a file differs from its index entry, None when it does not."""
    size = os.path.getsize(path)
    if size != expected["bytes"]:
        return f"expected {expected['bytes']} bytes, found {size}"
    name = next((name for name in expected["hashes"] if codecs.is_hash(name)), None)
    if name is None or size == 0:
        return None
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        found = codecs.digest(name, data)
    if found != expected["hashes"][name]:
        return f"expected {name} {expected['hashes'][name]}, found {found}"
    return None
