"""URLs of datasets and the filesystems behind them, as ``petastorm.fs_utils`` offers them.

Petastorm builds on ``pyarrow.localfs`` and ``pyarrow.filesystem``, which current Arrow releases no
longer have. Here ``file:`` and ``dbfs:`` URLs are plain operating-system paths, everything else goes
through ``fsspec`` (as in Petastorm) or, for HDFS, through :mod:`pyarrow.fs`.

A path inside a ``file:`` URL is taken **literally**, as Hadoop does: ``file:///a b/50%25`` is the
directory called ``50%25`` in the directory ``a b``. Spark reports files percent-encoded, so a path
that does not exist as written but does exist decoded is read decoded.

Errors and logs show URLs :func:`masked`.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import ParseResult, unquote, urlparse, urlunparse

__all__ = [
    "FilesystemResolver",
    "LocalFileSystem",
    "get_dataset_path",
    "get_filesystem_and_path_or_paths",
    "normalize_dir_url",
]

logger = logging.getLogger(__name__)

_LOCAL_SCHEMES = ("file", "dbfs")
_PACKAGES = {
    **dict.fromkeys(("abfs", "abfss", "adl", "az"), "adlfs"),
    **dict.fromkeys(("gcs", "gs"), "gcsfs"),
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("http", "https"), "aiohttp requests"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "hf": "huggingface_hub",
    "oss": "ossfs",
}
_OLD_SCHEMES = {
    "s3n": "s3://bucket/path",
    "wasb": "abfs://container@account.dfs.core.windows.net/path",
    "wasbs": "abfss://container@account.dfs.core.windows.net/path",
}
# Arguments of pyarrow.fs.S3FileSystem, and what s3fs calls them.
_ARROW_OPTIONS = {
    "access_key": "key",
    "secret_key": "secret",
    "session_token": "token",
    "anonymous": "anon",
    "endpoint_override": "client_kwargs={'endpoint_url': …}",
    "region": "client_kwargs={'region_name': …}",
    "connect_timeout": "config_kwargs={'connect_timeout': …}",
    "request_timeout": "config_kwargs={'read_timeout': …}",
}
# Passwords, keys and signatures that stand in URLs are kept out of errors and logs. Texts may be hostile: a scheme
# without an end and "?" in names would be searched for again from every letter.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,31})://(?P<rest>[^\s\"'<>]+)")
# A name before "@" is the container in Azure's URLs and the user in these; elsewhere it may be a token.
_NAMES = {"abfs", "abfss", "adl", "az", "wasb", "wasbs", "hdfs", "sftp", "ssh", "ftp"}
_QUERY_VALUE = re.compile(r"([?&][^=?&#]+)=[^&#]+")
_MASK = "***"
_SHORTEST = 6  # what is shorter is masked in URLs alone: it may be part of any word


class _EmptyUrlError(ValueError, IndexError):
    """An empty URL; Petastorm raises ``IndexError``."""


class _NoHadoopError(ImportError, RuntimeError):
    """Hadoop is not installed; Petastorm raises ``RuntimeError``."""


class LocalFileSystem:
    """The operating system's files behind the few methods callers of Petastorm's object use."""

    protocol = "file"

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory at ``path``."""
        return os.path.exists(path)

    def isfile(self, path: str) -> bool:
        """Return whether ``path`` is a file."""
        return os.path.isfile(path)

    def isdir(self, path: str) -> bool:
        """Return whether ``path`` is a directory."""
        return os.path.isdir(path)

    def ls(self, path: str) -> list[str]:
        """Return the full paths of the entries of a directory, sorted."""
        return sorted(os.path.join(path, name) for name in os.listdir(path))

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        return sorted(glob.glob(pattern))

    def find(self, path: str) -> list[str]:
        """Return the paths of all files below ``path``, sorted."""
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return sorted(paths)

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        return os.path.getsize(path)

    def mkdir(self, path: str) -> None:
        """Create a directory with its parents; an existing one is fine."""
        os.makedirs(path, exist_ok=True)

    def open(self, path: str, mode: str = "rb") -> Any:
        """Open a file."""
        return open(path, mode)

    def delete(self, path: str, recursive: bool = False) -> None:
        """Remove a file or, with ``recursive``, a directory."""
        if recursive and os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)

    rm = delete


def local_path(url: str) -> str | None:
    """Return the path behind a ``file:`` or ``dbfs:`` URL, or None for any other scheme.

    ``dbfs:/x`` is the mounted path ``/dbfs/x``, ``dbfs:/Volumes/x`` the Unity Catalog volume
    ``/Volumes/x``.

    Raises:
        ValueError: The URL names a host, or its path is relative.
    """
    scheme, separator, rest = url.partition(":")
    scheme = scheme.lower()
    if not separator or scheme not in _LOCAL_SCHEMES:
        return None
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host not in ("", "localhost") or (host and scheme == "dbfs"):
            raise ValueError(
                f"The url {url!r} names a host, {host!r}. A local path needs one or three slashes "
                f"after the scheme: did you mean '{scheme}:///{host}{slash}{tail}'?"
            )
        rest = slash + tail
    if not rest.startswith("/"):
        raise ValueError(
            f"The url {url!r} holds no absolute path. Write '{scheme}:///path/to/directory'."
        )
    if scheme == "dbfs" and not rest.startswith("/Volumes/"):
        rest = "/dbfs" + rest
    return rest


def existing_local_path(url: str) -> str | None:
    """Return :func:`local_path` of ``url``, percent-decoded where only the decoded path exists."""
    path = local_path(url)
    if path is not None and "%" in path and not os.path.exists(path):
        decoded = unquote(path)
        if os.path.exists(decoded):
            return decoded
    return path


def get_dataset_path(parsed_url: ParseResult) -> str:
    """Return the path that the filesystem of a parsed URL understands.

    Args:
        parsed_url: What :func:`urllib.parse.urlparse` made of the URL.
    """
    scheme = parsed_url.scheme.lower()
    if scheme in _LOCAL_SCHEMES:
        path = existing_local_path(_unparsed(parsed_url))
        assert path is not None
        return path
    if scheme == "hdfs":
        return parsed_url.path
    return str(_fsspec(scheme).core.strip_protocol(urlunparse(parsed_url)))


def _unparsed(parsed: ParseResult) -> str:
    """Return the URL that was parsed; ``urlunparse`` makes a host of a path with two slashes."""
    if not parsed.netloc and parsed.path.startswith("//"):
        parsed = parsed._replace(path="/" + parsed.path.lstrip("/"))
    return urlunparse(parsed)


def _fsspec(scheme: str) -> Any:
    try:
        import fsspec
        import fsspec.core
        import fsspec.utils
    except ImportError as error:
        raise ImportError(
            f"Reading {scheme}:// urls needs fsspec and the package of that store "
            "(s3fs, gcsfs, adlfs, …): pip install fsspec."
        ) from error
    return fsspec


class FilesystemResolver:
    """Finds the filesystem of a dataset URL.

    Args:
        dataset_url: URL with a scheme, or what ``urlparse`` made of it.
        hadoop_configuration: Accepted for Petastorm's sake; Arrow's HDFS client reads
            ``HADOOP_CONF_DIR`` itself.
        connector: Likewise without effect.
        hdfs_driver: Likewise; there is one driver, libhdfs.
        user: HDFS user name, None for the login user.
        storage_options: Keyword arguments for the ``fsspec`` filesystem.

    Raises:
        ValueError: No scheme, an unknown one, or no bucket in an object store URL.
        ImportError: The store's package is missing.
    """

    def __init__(  # noqa: PLR0917 - Petastorm's signature
        self,
        dataset_url: str | ParseResult,
        hadoop_configuration: Any = None,
        connector: Any = None,
        hdfs_driver: str = "libhdfs3",
        user: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        del hadoop_configuration, connector, hdfs_driver
        self._parsed_dataset_url = (
            urlparse(dataset_url) if isinstance(dataset_url, str) else dataset_url
        )
        self._filesystem_factory = _factory(self._parsed_dataset_url, user, storage_options or {})
        self._filesystem = self._filesystem_factory()

    def parsed_dataset_url(self) -> ParseResult:
        """Return the parsed URL."""
        return self._parsed_dataset_url

    def get_dataset_path(self) -> str:
        """Return the path inside :meth:`filesystem`."""
        return get_dataset_path(self._parsed_dataset_url)

    def filesystem(self) -> Any:
        """Return the filesystem: has at least ``exists``, ``open``, ``ls``, ``find``, ``delete``."""
        return self._filesystem

    def filesystem_factory(self) -> Callable[[], Any]:
        """Return a function without arguments that makes the filesystem anew elsewhere."""
        return self._filesystem_factory

    def __getstate__(self) -> Any:
        raise RuntimeError(
            "Pickling FilesystemResolver is not supported as it may hold open connections; "
            "send the url, or filesystem_factory(), instead."
        )


def _factory(
    parsed: ParseResult, user: str | None, options: Mapping[str, Any]
) -> Callable[[], Any]:
    scheme = parsed.scheme.lower()
    url = _unparsed(parsed)
    if not scheme:
        raise ValueError(
            f"ERROR! A scheme-less dataset url ({url}) is no longer supported. "
            'Please prepend "file://" for local filesystem.'
        )
    if scheme in _LOCAL_SCHEMES:
        local_path(url)  # raises for a host or a relative path
        return LocalFileSystem
    if scheme == "hdfs":
        return lambda: _hdfs(parsed, user)
    if not parsed.netloc:
        raise ValueError(f"URLs must be of the form {scheme}://bucket/path")
    check_options(scheme, options)
    fsspec = _fsspec(scheme)
    cls = _filesystem_class(fsspec, scheme)
    arguments = dict(cls._get_kwargs_from_urls(url))
    fsspec.utils.update_storage_options(arguments, dict(options))
    return lambda: cls(**arguments)


def _filesystem_class(fsspec: Any, scheme: str) -> Any:
    package = _PACKAGES.get(scheme)
    try:
        return fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        if package or isinstance(error, ImportError):  # the package would make the scheme known
            needed = f"pip install {package}." if package else f"{error}."
            raise ImportError(
                f"Reading {scheme}:// urls needs a package that is not installed: {needed}"
            ) from error
        if scheme in _OLD_SCHEMES:
            raise ValueError(
                f"The scheme {scheme}:// is of an old driver. Write {_OLD_SCHEMES[scheme]}."
            ) from error
        raise ValueError(
            f"Nothing here reads {scheme}:// urls. Write file:///path or dbfs:/path, or a url of a store, which "
            f"begins with one of hdfs, {', '.join(sorted(_PACKAGES))}. For any other store install the package "
            f"that makes {scheme} known to fsspec."
        ) from error


def check_options(scheme: str, options: Mapping[str, Any]) -> None:
    """Refuse options for S3 that are those of pyarrow's filesystem.

    Raises:
        TypeError: There are some; the text says what they are called here.
    """
    wrong = [name for name in options if name in _ARROW_OPTIONS]
    if scheme in {"s3", "s3a"} and wrong:
        translated = "; ".join(f"for {name} write {_ARROW_OPTIONS[name]}" for name in wrong)
        raise TypeError(
            "storage_options are the arguments of s3fs.S3FileSystem, not of pyarrow's: "
            f"{translated}."
        )


def _hdfs(parsed: ParseResult, user: str | None) -> Any:
    from pyarrow import fs

    _fsspec("hdfs")
    from fsspec.implementations.arrow import ArrowFSWrapper

    host = parsed.hostname or "default"
    try:
        filesystem = fs.HadoopFileSystem(host, parsed.port or 0, user=user)
    except OSError as error:
        if "load lib" not in str(error):
            raise
        raise _NoHadoopError(
            "Reading hdfs:// urls needs Hadoop's client library libhdfs and Java's libjvm, which are "
            "not found here: install Hadoop and Java, and set HADOOP_HOME, JAVA_HOME and CLASSPATH."
        ) from error
    return ArrowFSWrapper(filesystem)


def get_filesystem_and_path_or_paths(
    url_or_urls: str | list[str],
    hdfs_driver: str = "libhdfs3",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> tuple[Any, Any]:
    """Return the filesystem of a URL or list of URLs, and the path or list of paths inside it.

    Args:
        url_or_urls: One URL, or several of one scheme and host.
        hdfs_driver: Without effect, see :class:`FilesystemResolver`.
        storage_options: Keyword arguments for the ``fsspec`` filesystem.
        filesystem: Use this one instead of looking for it.

    Raises:
        ValueError: The URLs differ in scheme or host; see also :class:`FilesystemResolver`.
    """
    urls = url_or_urls if isinstance(url_or_urls, list) else [url_or_urls]
    parsed_urls = [urlparse(url) for url in urls]
    first = parsed_urls[0]
    if any(p.scheme != first.scheme or p.netloc != first.netloc for p in parsed_urls):
        raise ValueError("The dataset url list must contain url with the same scheme and netloc.")
    resolved = (
        filesystem
        or FilesystemResolver(
            first, hdfs_driver=hdfs_driver, storage_options=storage_options
        ).filesystem()
    )
    paths = [get_dataset_path(parsed) for parsed in parsed_urls]
    return resolved, paths if isinstance(url_or_urls, list) else paths[0]


def normalize_dir_url(dataset_url: Any) -> str:
    """Return a directory's URL without trailing slashes and surrounding blanks.

    Raises:
        ValueError: Not a string, or empty.
    """
    if not isinstance(dataset_url, str):
        raise ValueError("directory url must be a string")  # noqa: TRY004 - Petastorm's type
    url = dataset_url.strip()
    if not url:
        raise _EmptyUrlError(
            "directory url is empty. Write 'file:///path/to/directory' or 'dbfs:/path/to/directory'."
        )
    stripped = url.rstrip("/")
    url = url if not stripped or stripped.endswith(":") else stripped
    logger.debug("directory url: %s", masked(url))
    return url


def masked(text: str, *urls: str) -> str:
    """Return a text in which the secret parts of URLs are three stars.

    These are what stands before the host (but not a mere user or container) and the values of a query.

    Args:
        text: Anything to be shown, such as a URL or the message of an error.
        urls: URLs whose secrets may stand in the text without the rest of the URL.
    """
    secrets = {secret for url in urls for match in _URL.finditer(url) for secret in _secrets(match)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, _MASK)
    return _URL.sub(_masked_url, text)


def without_secrets(error: BaseException, *urls: str) -> BaseException | None:
    """Return an error to name as the cause of another; None if its text gives a secret away."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if masked(text, *urls) != text:
            return None
        seen = seen.__cause__ or seen.__context__
    return error


def _credentials(scheme: str, rest: str) -> tuple[str, str]:
    """Split what follows ``://`` into its secret beginning and the rest, which starts with ``@``."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        user = authority.rpartition("@")[0]
    elif re.match(r"[^/?#:]+:(?!\d*[/?#])[^?#]*@", rest):  # AWS' keys have slashes in them
        user = rest.partition("@")[0]
    else:
        return "", rest
    if ":" not in user and scheme.lower() in _NAMES:
        return "", rest
    return user, rest[len(user) :]


def _secrets(url: re.Match[str]) -> set[str]:
    scheme, rest = url["scheme"], url["rest"]
    if scheme.lower() in _LOCAL_SCHEMES:  # "?" and "@" are letters there
        return set()
    user, rest = _credentials(scheme, rest)
    secrets = {user, user.partition(":")[2]}
    secrets.update(match[0].partition("=")[2] for match in _QUERY_VALUE.finditer(rest))
    return {form for text in secrets if text for form in (text, unquote(text))}


def _masked_url(url: re.Match[str]) -> str:
    scheme, rest = url["scheme"], url["rest"]
    if scheme.lower() in _LOCAL_SCHEMES:
        return url[0]
    user, rest = _credentials(scheme, rest)
    return f"{scheme}://{_MASK if user else ''}" + _QUERY_VALUE.sub(rf"\1={_MASK}", rest)
