"""Tables that keep a log of which Parquet files are theirs: a directory alone does not tell their rows.

Delta and Iceberg leave the files of deleted and overwritten rows where they are. Read as loose Parquet,
as Petastorm does, they give those rows back without a word. Here the log decides, where the package that
reads it is installed; otherwise such a directory is refused. The files of a table are in its own directory, whatever
its log says.
"""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlparse

from pyarrow import fs

from petastorm_bridge import fs_utils
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.access import is_mapped
from petastorm_bridge.mds.errors import DatasetError

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
    """

    name: str
    article: str
    log: str
    suffixes: tuple[str, ...]
    package: str


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
        """Return the error for a table whose live rows cannot be read."""
        asked = self.metadata or self.path
        where = "is" if asked == self.root else f"belongs to {masked(self.root)}, which is"
        name = self.format.name
        return TableFormatError(
            f"{masked(asked)} {where} {self.format.article} {name} table, whose directory also holds files of "
            f"rows that were deleted or overwritten. {reason} Or convert what Spark reads: "
            f'make_spark_converter(spark.read.format("{name.lower()}").load({self.root!r})).'
        )

    @property
    def is_local(self) -> bool:
        """Whether paths are those of the operating system."""
        return self.url is None

    @property
    def log(self) -> str:
        """Path of the directory of the table's log."""
        return posixpath.join(self.root, self.format.log)

    def inside(self, name: str) -> str:
        """Return the path of a file that the table names, relative to its directory or as a whole URI.

        Whoever wrote the table chose that name, and the file is opened with the rights of the reader.

        Raises:
            TableFormatError: The file is not in the table's own directory.
        """
        root = self.root.rstrip("/")
        path = None if "\0" in name else self._path(name)
        if path is not None:
            path = posixpath.normpath(path)
            if self.is_local and not path.startswith(f"{root}/"):
                path = _below(root, path)
            if path.startswith(f"{root}/"):
                return path
        raise self.outside(name)

    def _path(self, uri: str) -> str | None:
        """Return the path of a name, an URI or a path; None if it is in another store than the table."""
        if not uri.startswith("/") and not _SCHEME.match(uri):
            return posixpath.join(self.root, uri)
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
        """Open a file; TableFormatError if a pipe or the like is there."""
        self.refuse_pipes([path])
        return self.filesystem.open_input_file(path)

    def refuse_pipes(self, asked: Sequence[str] | fs.FileSelector) -> None:
        """Refuse paths, or what is below a directory, if one is no file, which would be waited for."""
        for info in self.filesystem.get_file_info(asked) if self.is_local else ():
            if info.type == fs.FileType.Unknown:
                raise self.refused(f"{info.path} is a pipe, a socket or a device.")


DELTA = TableFormat(
    "Delta",
    "a",
    "_delta_log",
    (".json", "_last_checkpoint", ".checkpoint.parquet"),
    "deltalake",
)
ICEBERG = TableFormat("Iceberg", "an", "metadata", (".metadata.json",), "pyiceberg")
_FORMATS = (DELTA, ICEBERG)

# As Delta's own readers take it: `path@v123` is a version, `path@20260131235959000` the state of then.
_VERSIONED = re.compile(r"(?P<path>.+)@(?:v(?P<number>\d+)|(?P<moment>\d{17}))/?", re.DOTALL)


def find_table(
    filesystem: fs.FileSystem,
    path: str,
    url: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> TablePlace | None:
    """Return the table that a path is, lies in as a directory, or names a version of.

    A single data file is no table: whoever names files one by one wants these files.

    Args:
        filesystem: Where the path is.
        path: Of a directory, with or without ``@v3`` or ``@20260131235959000`` (UTC) behind it; or
            of an Iceberg metadata file.
        url: The URL with this path; None on the local file system.
        options: The user's ``storage_options``.
    """
    asked = path.rstrip("/")
    table = _table_at(filesystem, asked)
    match = _VERSIONED.fullmatch(asked)
    is_metadata = asked.endswith(ICEBERG.suffixes)
    if table is None and match is None and not is_metadata:
        return None
    kind = fs.FileType.Unknown
    with suppress(OSError, ValueError):
        kind = filesystem.get_file_info([asked])[0].type
    if kind == fs.FileType.File:
        root = posixpath.dirname(posixpath.dirname(asked))
        if not is_metadata or not root:
            return None
        table = TablePlace(ICEBERG, filesystem, root, root, metadata=asked)
    elif match is not None and kind != fs.FileType.Directory:
        table = _table_at(filesystem, match["path"])
        if table is not None:
            version = None if match["number"] is None else int(match["number"])
            moment = None if match["moment"] is None else _moment(match["moment"])
            table = replace(table, version=version, moment=moment)
    if table is None or url is None:
        return table
    levels = (table.metadata or table.path)[len(table.root) :].count("/")
    root = url_without_version(url, table).rsplit("/", levels)[0]
    return replace(table, url=root, options=options or {})


def url_without_version(url: str, table: TablePlace) -> str:
    """Return the URL that names a table as it is without the version that may stand behind it."""
    url = url.rstrip("/")
    return without_version(url) if table.is_version else url


def without_version(path: str) -> str:
    """Return a path or URL without the ``@v3`` or the moment that may stand behind it."""
    match = _VERSIONED.fullmatch(path)
    return path if match is None else match["path"]


def _moment(digits: str) -> dt.datetime:
    try:
        seconds = dt.datetime.strptime(f"{digits[:14]}+0000", "%Y%m%d%H%M%S%z")
    except ValueError as error:
        raise TableFormatError(
            f"@{digits} is no moment: write year, month, day, hour, minute, second and milliseconds in "
            "17 digits, such as @20260131235959000 (UTC)."
        ) from error
    return seconds + dt.timedelta(milliseconds=int(digits[14:]))


def refuse_table_formats(filesystem: fs.FileSystem, directory: str) -> None:
    """Raise if a directory is, or lies in, a table whose files do not all hold live rows.

    Raises:
        TableFormatError: It does.
    """
    table = _table_at(filesystem, directory.rstrip("/"))
    if table is not None:
        raise table.refused("It cannot be read as plain Parquet.")


def _table_at(filesystem: fs.FileSystem, directory: str) -> TablePlace | None:
    candidates = [(place, known) for place in _places(directory) for known in _FORMATS]
    is_far = not isinstance(filesystem, fs.LocalFileSystem) or not is_mapped(directory)
    held = each_at_once(lambda each: _holds_log(filesystem, *each), candidates, is_far=is_far)
    tables = [candidate for candidate, is_table in zip(candidates, held, strict=True) if is_table]
    return TablePlace(tables[0][1], filesystem, directory, tables[0][0]) if tables else None


def _places(directory: str) -> Iterator[str]:
    """Yield the directories that may be the table's own: partition directories and one more lie below."""
    place = directory.rstrip("/")
    while "=" in posixpath.basename(place):
        yield place
        place = posixpath.dirname(place)
    for candidate in (place, posixpath.dirname(place)):
        if candidate.strip("/"):
            yield candidate


def _holds_log(filesystem: fs.FileSystem, directory: str, known: TableFormat) -> bool:
    """Return whether a directory is a table's own."""
    log = posixpath.join(directory, known.log)
    # What lies above may not be ours to look at.
    with suppress(OSError):
        infos = filesystem.get_file_info(fs.FileSelector(log, allow_not_found=True))
        return any(info.base_name.endswith(known.suffixes) for info in infos)
    return False


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
