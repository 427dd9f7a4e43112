"""A table as a path names it, and where its files are: in its own directory, whatever its log says."""

from __future__ import annotations

import datetime as dt
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
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.errors import DatasetError

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


class TableFormatError(DatasetError, ValueError):
    """The rows of a Delta or Iceberg table cannot be told, or not without a package that is missing."""


@dataclass(frozen=True)
class TableFormat:
    """How to know a table format, and how to read it.

    Attributes:
        name: What users call it.
        article: Stands before the name.
        log: Directory of the log below the table's.
        suffixes: Ends of names of which every log has one.
        package: Reads the log.
        read: Spark's way to read the table at a path.
    """

    name: str
    article: str
    log: str
    suffixes: tuple[str, ...]
    package: str
    read: str


@dataclass(frozen=True)
class TablePlace:
    """A table, or a part of one, that a path names.

    Attributes:
        format: Which kind of table.
        filesystem: Where it is; paths are as it understands them.
        path: What was asked for, without a version.
        root: The table's directory.
        version: Number of a version or snapshot, or None.
        moment: When the version wanted was the current one, or None.
        metadata: Path of the one Iceberg metadata file to read, or None for the current one.
        url: URL of the table's directory; None on the local file system.
        options: The user's ``storage_options``, for fsspec.
    """

    format: TableFormat
    filesystem: fs.FileSystem
    path: str
    root: str
    version: int | None = None
    moment: dt.datetime | None = None
    metadata: str | None = None
    url: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_version(self) -> bool:
        """Whether a version was asked for."""
        return self.version is not None or self.moment is not None

    @property
    def below(self) -> str:
        """What was asked for, relative to the table's directory; empty for the whole table."""
        return self.path[len(self.root) :].strip("/") if self.metadata is None else ""

    def refused(self, reason: str) -> TableFormatError:
        """Return the error for a table whose live rows cannot be read.

        Args:
            reason: Sentences that say why.
        """
        asked = self.metadata or self.path
        where = "is" if asked == self.root else f"belongs to {masked(self.root)}, which is"
        spark = self.format.read.format(path=self.root)
        return TableFormatError(
            f"{masked(asked)} {where} {self.format.article} {self.format.name} table, whose directory also holds files of "
            f"rows that were deleted or overwritten. {reason} Or convert what Spark reads: "
            f"make_spark_converter({spark})."
        )

    def not_installed(self) -> TableFormatError:
        """Return the error for a table without the package that reads its log."""
        name = self.format.name
        return self.refused(
            f"Which rows are live is read with {self.format.package}, which is not installed: pip "
            f"install 'petastorm-bridge[{name.lower()}]'."
        )

    @property
    def is_local(self) -> bool:
        """Whether paths are those of the operating system."""
        return self.url is None

    @property
    def log(self) -> str:
        """Path of the directory of the table's log."""
        return posixpath.join(self.root, self.format.log)

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
        path = self._path(name) if is_whole else posixpath.join(self.root, name)
        root = self.root.rstrip("/")
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
        return self.refused(
            f"It names {shown!r}, which is not in its own directory. Nothing else is read, since "
            "whoever wrote the table chose that name: files that were added where they lay, shallow "
            "clones and tables that were moved have to be copied into a table of their own."
        )

    def open(self, path: str) -> Any:
        """Open a file.

        Raises:
            TableFormatError: A pipe or the like is there, which would be waited for.
        """
        if self.is_local:
            self._refuse_others(self.filesystem.get_file_info([path]))
        return self.filesystem.open_input_file(path)

    def refuse_pipes(self, directory: str) -> None:
        """Refuse a directory in or below which something is no file, as :meth:`open` does."""
        if self.is_local:
            selector = fs.FileSelector(directory, recursive=True, allow_not_found=True)
            self._refuse_others(self.filesystem.get_file_info(selector))

    def _refuse_others(self, infos: Iterable[Any]) -> None:
        for info in infos:
            if info.type == fs.FileType.Unknown:
                raise self.refused(f"{info.path} is a pipe, a socket or a device.")


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
