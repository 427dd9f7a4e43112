"""Where a table's files are, and which of them its log may name."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge._secrets import masked

from .table_formats import DELTA, TablePlace, holds_log

__all__ = ["TableStore", "remote_table"]

# What deltalake and pyiceberg call the options of s3fs.S3FileSystem and of adlfs.AzureBlobFileSystem.
_DELTA_OPTIONS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}
_ICEBERG_OPTIONS = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "endpoint_url": "s3.endpoint",
    "region_name": "s3.region",
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
}
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
        """The table's directory, as deltalake and pyiceberg understand it."""
        return self.place.root if self.url is None else self.url

    def options_of(self, package: str) -> dict[str, str]:
        """Return the user's options as ``'deltalake'`` or ``'pyiceberg'`` calls them.

        Both also read the environment variables of the stores. Names that are not fsspec's are taken
        to be the package's own.
        """
        names = _DELTA_OPTIONS if package == "deltalake" else _ICEBERG_OPTIONS
        given = {**self.options, **(self.options.get("client_kwargs") or {})}
        flat = {
            names.get(name, name): str(value)
            for name, value in given.items()
            if isinstance(value, (str, int))
        }
        # MosaicML Streaming and boto3 call the endpoint so; neither asks for leave to use plain HTTP.
        endpoint = os.environ.get("S3_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint and (self.url or "").startswith("s3"):
            flat.setdefault(names["endpoint_url"], endpoint)
        if flat.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            flat.setdefault("AWS_ALLOW_HTTP", "true")
        return flat

    def inside(self, relative: str) -> str:
        """Return the path of a file that the log names relative to the table.

        Raises:
            TableFormatError: It lies outside, as ``../../etc/passwd`` does.
        """
        path = posixpath.normpath(posixpath.join(self.place.root, relative))
        if not path.startswith(self.place.root.rstrip("/") + "/"):
            raise self.place.refused(
                f"Its log names {relative}, a file outside of the table's directory, which no writer "
                "of such tables does."
            )
        return path

    def absolute(self, uri: str) -> str:
        """Return the path of a file of which the log has the whole URI or path.

        Raises:
            TableFormatError: It is in another store.
        """
        path = uri if uri.startswith("/") else fs_utils.local_path(uri)
        if self.url is None:
            if path is not None:
                return posixpath.normpath(path)
        elif path is None and _store(uri) == _store(self.url):
            return str(fs_utils.get_dataset_path(urlparse(uri)))
        raise self.place.refused(
            f"Its log names {masked(uri)}, which is in another store than the table itself."
        )

    def refuse_pipes(self) -> None:
        """Refuse a log in which something is no file: opening a pipe would wait for ever.

        Raises:
            TableFormatError: There is such a thing.
        """
        if self.is_local:
            log = posixpath.join(self.place.root, self.place.format.log)
            self._refuse_others(self.filesystem.get_file_info(fs.FileSelector(log)))

    def regular(self, path: str) -> str:
        """Return the path of a file of the log; raises if it is a pipe or the like."""
        if self.is_local:
            self._refuse_others(self.filesystem.get_file_info([path]))
        return path

    def _refuse_others(self, infos: Iterable[Any]) -> None:
        for info in infos:
            if info.type == fs.FileType.Unknown:
                raise self.place.refused(f"{info.path} is a pipe, a socket or a device.")

    def of_a_delta_table(self, path: str) -> str:
        """Return a path that lies in some Delta table, as the files of a shallow clone's source do.

        Raises:
            TableFormatError: It does not.
        """
        folder = posixpath.dirname(path)
        while folder.strip("/"):
            if holds_log(self.filesystem, folder, DELTA):
                return path
            folder = posixpath.dirname(folder)
        raise self.place.refused(
            f"Its log names {masked(path)}, which lies in no Delta table. A shallow clone names files "
            "of the table that it was cloned from, and nothing else is read."
        )


def remote_table(
    place: TablePlace,
    filesystem: fs.FileSystem,
    url: str,
    options: Mapping[str, Any] | None,
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


def _store(url: str) -> tuple[str, str]:
    parsed = urlparse(url)
    return _SAME_STORE.get(parsed.scheme, parsed.scheme), parsed.netloc
