"""How bytes come from far places, a file or a range of it: one attempt, within a time limit."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol
from urllib.parse import urlparse

from petastorm_bridge import fs_utils
from petastorm_bridge.fs_utils import masked, without_secrets
from petastorm_bridge.mds.errors import DatasetNotFoundError, missing_extra
from petastorm_bridge.mds.files import open_regular, read_into

from . import limits
from .errors import explain
from .s3 import S3Store, single_requests, thread_buffer

_STREAMING_ONLY = {"alipan", "azure", "azure-dl", "oci"}  # schemes that fsspec does not know
# For these streaming has downloaders.
_OF_STREAMING = _STREAMING_ONLY | {"dbfs", "gs", "hf", "sftp"}
# Their packages make attempts of their own, with limits of their own.
_TRY_AGAIN = _STREAMING_ONLY | {"abfs", "abfss", "adl", "az", "dbfs", "gcs", "gs", "hf"}
_S3 = {"s3", "s3a"}

# How much one request asks for: answers of stores come after a while and then fast, those of mounts in
# pieces of 128 KiB each of which takes as long.
_STORE_RANGE_BYTES = 4 << 20
_MOUNT_RANGE_BYTES = 1 << 20
_MOUNT_ANSWER_BYTES = 128 << 10
# Files on web servers come whole: many do not know ranges.
_WHOLE_ONLY = {"http", "https", "hf", "github"}


Pieces = Callable[[int, int], Generator[memoryview, None, None]]
"""Yields so many bytes of a file from a position on, or those that there are; for several threads at once.

Each piece is to be used before the next one is asked for, which may take its memory.
"""


class Store(Protocol):
    """Gives files of a far place; pickles, and may be used from several threads.

    Methods raise whatever the store's package does.

    Attributes:
        tries_again: Whether the store's package has made several attempts when it raises.
        range_bytes: Bytes to ask for at once; None where files come whole.
        answer_bytes: As many of them come in one answer at most.
    """

    tries_again: bool
    answer_bytes: int

    @property
    def range_bytes(self) -> int | None: ...

    def fetch(self, url: str, path: str) -> None:
        """Copy the file at ``url`` to the local ``path``."""

    def open(self, url: str) -> AbstractContextManager[Pieces]:
        """Open the file at ``url``; for stores whose files do not come whole."""


class MountStore:
    """Files behind a mount of a network or user-space file system."""

    tries_again = False
    range_bytes = _MOUNT_RANGE_BYTES
    answer_bytes = _MOUNT_ANSWER_BYTES

    def fetch(self, url: str, path: str) -> None:
        with open_regular(url) as file, open(path, "xb") as out:
            shutil.copyfileobj(file, out, _MOUNT_RANGE_BYTES)

    @contextlib.contextmanager
    def open(self, url: str) -> Iterator[Pieces]:
        file = open_regular(url)
        read: list[range] = []

        def pieces(start: int, size: int) -> Generator[memoryview, None, None]:
            buffer = thread_buffer(size)
            count = read_into(file, start, buffer)
            read.append(range(start, start + count))
            yield buffer[:count]

        try:
            yield pieces
        finally:
            if read:
                # These bytes are in memory twice otherwise. What the system has read around them may be asked for next.
                first, last = min(part.start for part in read), max(part.stop for part in read)
                with contextlib.suppress(OSError, ValueError):
                    os.posix_fadvise(file.fileno(), first, last - first, os.POSIX_FADV_DONTNEED)
            with contextlib.suppress(OSError):  # of a mount that is gone: nothing was written
                file.close()


class _StreamingStore:
    """Uses the downloaders of MosaicML Streaming, with its environment variables."""

    range_bytes = None
    answer_bytes = _STORE_RANGE_BYTES

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._local = threading.local()  # downloaders are not for several threads
        self.tries_again = scheme in _TRY_AGAIN

    def __reduce__(self) -> Any:
        return _StreamingStore, (self._scheme,)

    def downloader(self, url: str) -> Any:
        """Return the downloader of this thread."""
        if not hasattr(self._local, "downloader"):
            from streaming.base.storage import CloudDownloader

            self._local.downloader = CloudDownloader.get(url)
        return self._local.downloader

    def fetch(self, url: str, path: str) -> None:
        self.downloader(url).download(url, path, limits.timeout())

    def open(self, url: str) -> AbstractContextManager[Pieces]:
        raise io.UnsupportedOperation(f"{masked(url)} comes whole")


class FsspecStore:
    """Uses the ``fsspec`` filesystem of the scheme."""

    answer_bytes = _STORE_RANGE_BYTES

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = dict(storage_options)
        self._scheme = urlparse(url).scheme
        self.tries_again = self._scheme in _TRY_AGAIN
        self.range_bytes = None if self._scheme in _WHOLE_ONLY else _STORE_RANGE_BYTES

    def _filesystem(self) -> Any:
        # fsspec keeps the filesystems it has made.
        options = _with_limits(self._scheme, self._options)
        filesystem = fs_utils.FilesystemResolver(self._url, storage_options=options).filesystem()
        if self._scheme in _S3:
            filesystem.retries = 1
        return filesystem

    def fetch(self, url: str, path: str) -> None:
        self._filesystem().get_file(fs_utils.get_dataset_path(urlparse(url)), path)

    def open(self, url: str) -> AbstractContextManager[Pieces]:
        filesystem = self._filesystem()

        def pieces(start: int, size: int) -> Generator[memoryview, None, None]:
            yield memoryview(filesystem.cat_file(url, start=start, end=start + size))[:size]

        return contextlib.nullcontext(pieces)


def _with_limits(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for one attempt within the time limit; what the user has set stays."""
    timeout = limits.timeout()
    if scheme in _S3:
        config = single_requests(timeout) | dict(options.get("config_kwargs") or {})
        return {**options, "config_kwargs": config}
    if scheme in {"http", "https"}:
        import aiohttp

        silence = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
        client = {"timeout": silence} | dict(options.get("client_kwargs") or {})
        return {**options, "client_kwargs": client}
    return dict(options)


def open_store(url: str, storage_options: Mapping[str, Any] | None) -> Store:
    """Return the store at ``url``.

    boto3 for S3, MosaicML Streaming's downloader where it has one for the scheme; ``fsspec`` for other schemes,
    with ``storage_options`` (which are ``fsspec``'s), and where those are not installed.

    Raises:
        ImportError: Neither can be used.
        ValueError: Nothing knows the scheme, or the limits in the environment are no numbers.
        TypeError: The options are of another package.
    """
    limits.patience()  # says what is wrong with the variables
    scheme = urlparse(url).scheme
    if storage_options:
        fs_utils.check_options(scheme, storage_options)
        return FsspecStore(url, storage_options)
    no_streaming = None
    try:
        if scheme == "s3":
            return S3Store()
        # Importing streaming takes seconds. A program that did so already may have added downloaders.
        if scheme in _OF_STREAMING or "streaming" in sys.modules:
            store = _StreamingStore(scheme)
            store.downloader(url)
            return store
    except (ImportError, ValueError) as error:
        no_streaming = error  # not the context of what follows: it tells the whole url
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, url) from without_secrets(error, url)
    cause = None if no_streaming is None else without_secrets(no_streaming, url)
    reason = masked(str(no_streaming), url)
    if url.startswith("dbfs:"):
        raise DatasetNotFoundError(
            f"{masked(url)}: neither is DBFS mounted on this machine, nor can it be fetched "
            f"({reason}). On Databricks use a cluster that mounts it; elsewhere "
            "pip install databricks-sdk mosaicml-streaming."
        ) from cause
    try:
        fs_utils.FilesystemResolver(url)
    except ImportError as no_fsspec:
        if isinstance(no_streaming, ImportError):
            raise ImportError(  # noqa: TRY004 - a package is missing
                f"{no_fsspec} Or install what mosaicml-streaming needs for it ({reason})."
            ) from no_fsspec
        raise
    except ValueError as error:
        if scheme in _STREAMING_ONLY:
            raise missing_extra("mosaicml-streaming", "streaming") from error
        raise
    return FsspecStore(url, {})
