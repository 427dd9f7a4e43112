"""What copies single files from the stores: one attempt, within a time limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlparse

from petastorm_bridge import fs_utils
from petastorm_bridge._secrets import masked, without_secrets
from petastorm_bridge.errors import missing_extra
from petastorm_bridge.mds.errors import DatasetNotFoundError

from .remote_errors import explain
from .remote_limits import limits

__all__ = ["Fetcher", "make_fetcher"]

_STREAMING_ONLY = {"alipan", "azure", "azure-dl", "oci"}  # schemes that fsspec does not know
# Their packages make attempts of their own, with limits of their own.
_TRY_AGAIN = _STREAMING_ONLY | {"abfs", "abfss", "adl", "az", "dbfs", "gcs", "gs", "hf"}
_S3 = {"s3", "s3a"}


class Fetcher(Protocol):
    """Copies single files; pickles, and may be used from several threads.

    Attributes:
        tries_again: Whether the store's package has made several attempts when it raises.
    """

    tries_again: bool

    def fetch(self, url: str, path: str) -> None:
        """Copy the file at ``url`` to the local ``path``; raises what the store's package does."""


class _StreamingFetcher:
    """Uses the downloaders of MosaicML Streaming, with its environment variables."""

    def __init__(self, tries_again: bool) -> None:
        self.tries_again = tries_again
        self._local = threading.local()  # clients of stores are not for several threads

    def __reduce__(self) -> Any:
        return _StreamingFetcher, (self.tries_again,)

    def fetch(self, url: str, path: str) -> None:
        downloader = getattr(self._local, "downloader", None)
        if downloader is None:
            downloader = self._local.downloader = _downloader(url)
        downloader.download(url, path, limits().timeout)


def _downloader(url: str) -> Any:
    from streaming.base.storage import CloudDownloader

    if urlparse(url).scheme == "s3":
        return _s3_downloader()
    return CloudDownloader.get(url)


def _s3_downloader() -> Any:
    """Return streaming's downloader for S3 with clients that make one attempt.

    Its own clients repeat every request, and boto3's transfer repeats every download of such requests.
    """
    from streaming.base.storage.download import S3Downloader

    class SingleAttempts(S3Downloader):  # type: ignore[misc, unused-ignore]
        def _create_s3_client(self, unsigned: bool = False, timeout: float = 60.0) -> Any:
            self._s3_client = _SingleAttempts(unsigned, timeout)

    return SingleAttempts()  # type: ignore[no-untyped-call, unused-ignore]


class _SingleAttempts:
    """An S3 client whose downloads are one attempt."""

    def __init__(self, unsigned: bool, timeout: float) -> None:
        from boto3.session import Session  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from botocore import UNSIGNED  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from botocore.config import Config  # type: ignore[import-not-found, import-untyped, unused-ignore]

        config = Config(**_single_requests(timeout))
        if unsigned:
            config = config.merge(Config(signature_version=UNSIGNED))
        self._client = Session().client(
            "s3", config=config, endpoint_url=os.environ.get("S3_ENDPOINT_URL")
        )

    def download_file(self, bucket: str, key: str, path: str, **options: Any) -> None:
        from boto3.exceptions import RetriesExceededError  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from boto3.s3.transfer import TransferConfig  # type: ignore[import-not-found, import-untyped, unused-ignore]

        once = TransferConfig(use_threads=False, num_download_attempts=1)
        try:
            self._client.download_file(bucket, key, path, **(options | {"Config": once}))
        except RetriesExceededError as error:
            raise error.last_exception from error


def _single_requests(timeout: float) -> dict[str, Any]:
    """Return settings of botocore."""
    return {
        "connect_timeout": timeout,
        "read_timeout": timeout,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }


class _FsspecFetcher:
    """Uses the ``fsspec`` filesystem of the scheme."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = dict(storage_options)
        self.tries_again = urlparse(url).scheme in _TRY_AGAIN

    def fetch(self, url: str, path: str) -> None:
        # fsspec keeps the filesystems it has made.
        options = _with_limits(urlparse(url).scheme, self._options)
        resolver = fs_utils.FilesystemResolver(self._url, storage_options=options)
        filesystem = resolver.filesystem()
        if urlparse(url).scheme in _S3:
            filesystem.retries = 1
        filesystem.get_file(fs_utils.get_dataset_path(urlparse(url)), path)


def _with_limits(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for one attempt within the time limit; what the user has set stays."""
    timeout = limits().timeout
    if scheme in _S3:
        config = _single_requests(timeout) | dict(options.get("config_kwargs") or {})
        return {**options, "config_kwargs": config}
    if scheme in {"http", "https"}:
        import aiohttp

        silence = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
        client = {"timeout": silence} | dict(options.get("client_kwargs") or {})
        return {**options, "client_kwargs": client}
    return dict(options)


def make_fetcher(url: str, storage_options: Mapping[str, Any] | None) -> Fetcher:
    """Return what copies files from the store at ``url``.

    MosaicML Streaming's downloader where it has one for the scheme; ``fsspec`` for other schemes,
    with ``storage_options`` (which are ``fsspec``'s), and where the former is not installed.

    Raises:
        ImportError: Neither can be used.
        ValueError: Nothing knows the scheme, or the limits in the environment are no numbers.
        TypeError: The options are of another package.
    """
    limits()
    if storage_options:
        fs_utils.check_options(urlparse(url).scheme, storage_options)
        return _FsspecFetcher(url, storage_options)
    no_streaming = None
    try:
        _downloader(url)
    except (ImportError, ValueError) as error:
        no_streaming = error  # not the context of what follows: it tells the whole url
    except Exception as error:  # noqa: BLE001 - stores' packages raise anything
        raise explain(error, url) from without_secrets(error, url)
    if no_streaming is not None:
        return _without_streaming(url, no_streaming)
    return _StreamingFetcher(urlparse(url).scheme in _TRY_AGAIN)


def _without_streaming(url: str, no_streaming: Exception) -> Fetcher:
    cause = without_secrets(no_streaming, url)
    shown, reason = masked(url), masked(str(no_streaming), url)
    if url.startswith("dbfs:"):
        raise DatasetNotFoundError(
            f"{shown}: neither is DBFS mounted on this machine, nor can it be fetched "
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
        if urlparse(url).scheme in _STREAMING_ONLY:
            raise missing_extra("mosaicml-streaming", "streaming") from error
        raise
    return _FsspecFetcher(url, {})
