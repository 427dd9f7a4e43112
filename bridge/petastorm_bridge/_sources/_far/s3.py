"""Files of S3 and what speaks like it, by boto3, with the environment variables of MosaicML Streaming.

Streaming's own downloader is not used: it knows no ranges, repeats every request, and to import it takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

from petastorm_bridge._workers.locks import ForkSafeLock

from . import limits

PIECE_BYTES = 256 << 10
"""How much of a long answer is read at once: few enough bytes that the processor's cache still has them when they are
written to their place. From memory it takes several times as long."""

_buffers = threading.local()

_CONNECTIONS = 32
# A request takes some milliseconds of Python, which sixteen at once share: half as many for what is not waited for.
_ANSWER_BYTES = 4 << 20
_RANGE_BYTES = 8 << 20


class S3Store:
    """A :class:`~.stores.Store`; every request is made once, as attempts are counted elsewhere.

    Raises:
        ImportError: boto3 is missing.
    """

    tries_again = False
    range_bytes = _RANGE_BYTES
    answer_bytes = _ANSWER_BYTES

    def __init__(self) -> None:
        import boto3  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: F401 - said at once, not by a thread

        self._is_unsigned = False

    def fetch(self, url: str, path: str) -> None:
        # boto3's own download asks for the size first, which takes as long again for a small file.
        with contextlib.closing(self.get(url)) as body, open(path, "xb") as file:
            shutil.copyfileobj(body, file, _RANGE_BYTES)

    def open(self, url: str) -> AbstractContextManager[Callable[..., Any]]:
        return contextlib.nullcontext(functools.partial(self._pieces, url))

    def _pieces(self, url: str, start: int, size: int) -> Generator[memoryview, None, None]:
        buffer = thread_buffer(min(size, PIECE_BYTES))
        with contextlib.closing(self.get(url, Range=f"bytes={start}-{start + size - 1}")) as body:
            while count := body.readinto(buffer):
                yield buffer[:count]

    def get(self, url: str, **options: str) -> Any:
        """Return the body of an object, or of a range of it.

        Without credentials once the store has refused these, as public ones do. They answer 400 then, which streaming's
        downloader takes for the same (``S3Downloader``).
        """
        from botocore.exceptions import ClientError  # type: ignore[import-not-found, import-untyped, unused-ignore]

        bucket, _, key = url.partition("://")[2].partition("/")  # names may have "#" and "?"
        paying = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "").split(",")
        if bucket in (name.strip() for name in paying):
            options["RequestPayer"] = "requester"
        is_unsigned = self._is_unsigned  # other threads may change it meanwhile
        try:
            client = _client(is_unsigned)
            return client.get_object(Bucket=bucket, Key=key.lstrip("/"), **options)["Body"]
        except ClientError as error:
            if is_unsigned or error.response["ResponseMetadata"]["HTTPStatusCode"] != 400:
                raise
        self._is_unsigned = True
        return self.get(url, **options)


_making_clients = ForkSafeLock()


def _client(is_unsigned: bool) -> Any:
    with _making_clients:
        return _client_of(is_unsigned, limits.timeout(), _settings(), os.getpid())


@functools.lru_cache(maxsize=4)
def _client_of(
    is_unsigned: bool,
    timeout: float,
    settings: Any,  # noqa: ARG001 - what boto3 finds by itself, and the process: part of the key only
    process: int,  # noqa: ARG001
) -> Any:
    """Return the client of this process for some settings; to make one takes half a second, mostly of parsing."""
    from boto3.session import Session  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from botocore import UNSIGNED  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from botocore.config import Config  # type: ignore[import-not-found, import-untyped, unused-ignore]

    config = Config(max_pool_connections=_CONNECTIONS, **single_requests(timeout))
    if is_unsigned:
        config = config.merge(Config(signature_version=UNSIGNED))
    endpoint = os.environ.get("S3_ENDPOINT_URL")
    return Session().client("s3", config=config, endpoint_url=endpoint)


def _settings() -> tuple[object, ...]:
    """Return what boto3 takes credentials, region and endpoint from: variables, and the state of its files."""
    variables = sorted(item for item in os.environ.items() if item[0].startswith(("AWS_", "S3_")))
    states = []
    for variable, name in (
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        ("AWS_CONFIG_FILE", "config"),
    ):
        path = os.environ.get(variable) or os.path.expanduser(f"~/.aws/{name}")
        with contextlib.suppress(OSError):
            status = os.stat(path)
            states.append((path, status.st_ino, status.st_mtime_ns))
    return (*variables, *states)


def single_requests(timeout: float) -> dict[str, Any]:
    """Return settings of botocore for requests that are made once.

    Args:
        timeout: In seconds, for the connection and for an answer.
    """
    return {
        "connect_timeout": timeout,
        "read_timeout": timeout,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }


def thread_buffer(size: int) -> memoryview:
    """Return so many bytes of memory that belongs to this thread, which gets the same again next time.

    New pages cost as much as copying the bytes that are read into them.
    """
    if len(getattr(_buffers, "memory", b"")) < size:
        _buffers.memory = bytearray(size)
    return memoryview(_buffers.memory)[:size]
