"""The rules for URLs of cache directories and datasets."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlparse

from petastorm_bridge.fs_utils import local_path, masked

PARENT_VARIABLE = "PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL"
"""Names the directory of conversions where the session does not."""

SHARED_ROOTS = ("/dbfs/", "/Volumes/")
"""Of paths that every machine of a Databricks cluster sees."""

_NOT_IN_URLS = "\0\t\n\r"


def check_scheme(url: str) -> None:
    """Raise ValueError, with Petastorm's text, if a directory's URL has no scheme."""
    if not urlparse(url).scheme:
        raise ValueError(
            f"ERROR! A scheme-less directory url ({url}) is no longer supported. "
            'Please prepend "file://" for local filesystem.'
            + (f" For this directory: 'file://{url}'." if url.startswith("/") else "")
        )


def check_writable_place(url: Any) -> None:
    """Refuse urls of directories whose files would end up elsewhere than the url says.

    Raises:
        ValueError: It holds a line break or the like, which the reading of urls drops; or it is on
            DBFS or a volume, and neither is mounted here, so that it would be made on a local disk.
    """
    if not isinstance(url, str):
        return
    url = url.strip()
    if forbidden := next((character for character in url if character in _NOT_IN_URLS), None):
        raise ValueError(
            f"The directory url {masked(repr(url))} holds {forbidden!r}, which urls cannot hold. Give a directory "
            "without it."
        )
    path = local_path(url) if url.lower().startswith("dbfs:") else None
    if path is None:
        return
    mount = "/" + path.split("/")[1]
    if not os.path.isdir(mount):
        raise ValueError(
            f"{url} is the directory {path}, and there is no {mount} on this machine: it is no "
            "Databricks cluster, or DBFS is not mounted here. Give a directory that the Spark workers "
            "share with this machine, such as 'file:///path/to/cache'."
        )


def sub_url(url: str, name: str) -> str:
    """Return the URL of an entry of a directory: ``file:/a`` and ``n`` give ``file:///a/n``.

    The path is never decoded, so spaces, ``%``, ``#`` and ``?`` stay what they are.
    """
    scheme, _, rest = url.partition(":")
    scheme, rest = scheme.lower(), rest.rstrip("/")
    if scheme == "file" and not rest.startswith("//"):
        rest = "//" + rest
    return f"{scheme}:{rest}/{name}"


def canonical_url(url: str) -> str:
    """Return the one way to write the URL of a local directory, any other URL as it is.

    ``file:/a``, ``FILE:///a`` and ``file://localhost/a`` are ``file:///a``; ``dbfs:/a`` is where it
    is mounted, ``file:///dbfs/a``.
    """
    path = local_path(url)
    return url if path is None else f"file://{path}"


def is_volume(url: str) -> bool:
    """Return whether a URL or path lies in a Unity Catalog volume, which Petastorm does not know."""
    path = url if url.startswith("/") else local_path(url)
    return path is not None and os.path.normpath(path).startswith("/Volumes/")


def normalize_dbfs_url(url: str, err_msg: str) -> str:
    """Return a DBFS URL as the URL of its mounted path, as Petastorm does.

    Raises:
        ValueError: Neither a DBFS URL nor below ``file:/dbfs/``; the text is ``err_msg``.
    """
    if url.startswith(("file:/dbfs/", "file:///dbfs/")):
        return url
    if url.startswith("dbfs:///"):
        return "file:/dbfs/" + url.removeprefix("dbfs:///")
    if url.startswith("dbfs:/") and not url.startswith("dbfs://"):
        return "file:/dbfs/" + url.removeprefix("dbfs:/")
    raise ValueError(err_msg)
