"""Where a table's files are: in its own directory, whatever its log says."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge.errors import masked

from .table_formats import TableFormatError, TablePlace

# What deltalake calls the options of s3fs.S3FileSystem.
_DELTA_OPTIONS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_SHOWN = 300  # letters of a name, which a hostile log makes as long as it likes
_SAME_STORE = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}


@dataclass(frozen=True)
class TableStore:
    """The place of one table.

    Attributes:
        place: What the user asked for.
        filesystem: Where it is; paths are as it understands them.
        url: URL of the table's directory; None on the local file system.
        options: The user's ``storage_options``, for fsspec.
    """

    place: TablePlace
    filesystem: fs.FileSystem
    url: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether paths are those of the operating system."""
        return self.url is None

    @property
    def uri(self) -> str:
        """The table's directory, as deltalake understands it."""
        return self.place.root if self.url is None else self.url

    @property
    def log(self) -> str:
        """Path of the directory of the table's log."""
        return posixpath.join(self.place.root, self.place.format.log)

    def delta_options(self) -> dict[str, str]:
        """Return the user's options as deltalake calls them.

        deltalake also reads the environment variables of the stores. Names that are not fsspec's are
        taken to be deltalake's own.
        """
        given = {**self.options, **(self.options.get("client_kwargs") or {})}
        flat = {
            _DELTA_OPTIONS.get(name, name): str(value)
            for name, value in given.items()
            if isinstance(value, (str, int))
        }
        # MosaicML Streaming and boto3 call the endpoint so; neither asks for leave to use plain HTTP.
        endpoint = os.environ.get("S3_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint and (self.url or "").startswith("s3"):
            flat.setdefault("AWS_ENDPOINT_URL", endpoint)
        if flat.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            flat.setdefault("AWS_ALLOW_HTTP", "true")
        return flat

    def inside(self, name: str) -> str:
        """Return the path of a file that the table names, relative to its directory or as a whole URI.

        Whoever wrote the table chose that name, and the file is opened with the rights of the reader.

        Raises:
            TableFormatError: The file is not in the table's own directory.
        """
        if "\0" in name:
            raise self.outside(name)
        is_whole = name.startswith("/") or _SCHEME.match(name)
        path = self._path(name) if is_whole else posixpath.join(self.place.root, name)
        root = self.place.root.rstrip("/")
        path = None if path is None else posixpath.normpath(path)
        if path is not None and self.is_local and not path.startswith(f"{root}/"):
            path = _below(root, path)
        if path is None or not path.startswith(f"{root}/"):
            raise self.outside(name)
        return path

    def _path(self, uri: str) -> str | None:
        """Return the path of a whole URI or path; None if it is in another store than the table."""
        path = uri if uri.startswith("/") else fs_utils.local_path(uri)
        if self.url is None:
            return path
        same_store = path is None and _store(uri) == _store(self.url)
        return str(fs_utils.get_dataset_path(urlparse(uri))) if same_store else None

    def outside(self, name: str) -> TableFormatError:
        """Return the error for a name that leads out of the table's directory."""
        shown = masked(name)
        if len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}..."
        return self.place.refused(
            f"It names {shown!r}, which is not in its own directory. Nothing else is read, since "
            "whoever wrote the table chose that name: files that were added where they lay, shallow "
            "clones and tables that were moved have to be copied into a table of their own."
        )

    def regular(self, path: str) -> str:
        """Return a path; raises if a pipe or the like is there, which would be waited for.

        Raises:
            TableFormatError: It is.
        """
        if self.is_local:
            self._refuse_others(self.filesystem.get_file_info([path]))
        return path

    def refuse_pipes(self, directory: str) -> None:
        """Refuse a directory in or below which something is no file, as :meth:`regular` does."""
        if self.is_local:
            selector = fs.FileSelector(directory, recursive=True, allow_not_found=True)
            self._refuse_others(self.filesystem.get_file_info(selector))

    def _refuse_others(self, infos: Iterable[Any]) -> None:
        for info in infos:
            if info.type == fs.FileType.Unknown:
                raise self.place.refused(f"{info.path} is a pipe, a socket or a device.")


def remote_table(
    place: TablePlace, filesystem: fs.FileSystem, url: str, options: Mapping[str, Any] | None
) -> TableStore:
    """Return the store of a table that is not on the local file system.

    Args:
        place: The table.
        filesystem: Where it is.
        url: What the user asked for: the table, a directory in it or a metadata file, or a version.
        options: The user's ``storage_options``.
    """
    asked = place.metadata or place.path
    levels = asked[len(place.root) :].count("/")
    root = url.rstrip("/")
    if place.version is not None or place.moment is not None:
        root = root.rpartition("@")[0]
    for _ in range(levels):
        root = root.rpartition("/")[0]
    return TableStore(place, filesystem, root, options or {})


def _below(root: str, path: str) -> str:
    """Return a path by the name of the directory that it is in: its writer may know that by another one, through a link."""
    above = path
    while above != (above := posixpath.dirname(above)):
        with suppress(OSError):
            if os.path.samefile(above, root):
                return root + path[len(above) :]
    return path


def _store(url: str) -> tuple[str, str]:
    parsed = urlparse(url)
    return _SAME_STORE.get(parsed.scheme, parsed.scheme), parsed.netloc
