"""Tables that keep a log of which Parquet files are theirs: a directory alone does not tell their rows.

Delta and Iceberg leave the files of deleted and overwritten rows where they are. Read as loose Parquet,
as Petastorm does, they give those rows back without a word. Here the log decides, where the package that
reads it is installed; otherwise such a directory is refused.
"""

from __future__ import annotations

import datetime as dt
import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyarrow import fs

from petastorm_bridge._workers.at_once import each_at_once
from petastorm_bridge.errors import masked
from petastorm_bridge.mds.access import is_mapped
from petastorm_bridge.mds.errors import DatasetError


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


DELTA = TableFormat(
    "Delta",
    "a",
    "_delta_log",
    (".json", "_last_checkpoint", ".checkpoint.parquet"),
    "deltalake",
    'spark.read.format("delta").load({path!r})',
)
ICEBERG = TableFormat(
    "Iceberg",
    "an",
    "metadata",
    (".metadata.json",),
    "pyiceberg",
    'spark.read.format("iceberg").load({path!r})',
)
_FORMATS = (DELTA, ICEBERG)

# As Delta's own readers take it: `path@v123` is a version, `path@20260131235959000` the state of then.
_VERSIONED = re.compile(r"(?P<path>.+)@(?:v(?P<number>\d+)|(?P<moment>\d{17}))/?", re.DOTALL)


@dataclass(frozen=True)
class TablePlace:
    """A table, or a part of one, that a path names.

    Attributes:
        format: Which kind of table.
        path: What was asked for, as its file system understands it, without a version.
        root: The table's directory.
        version: Number of a version or snapshot, or None.
        moment: When the version wanted was the current one, or None.
        metadata: Path of the one Iceberg metadata file to read, or None for the current one.
    """

    format: TableFormat
    path: str
    root: str
    version: int | None = None
    moment: dt.datetime | None = None
    metadata: str | None = None

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


def find_table(filesystem: fs.FileSystem, path: str) -> TablePlace | None:
    """Return the table that a path is, lies in as a directory, or names a version of.

    A single data file is no table: whoever names files one by one wants these files.

    Args:
        filesystem: Where the path is.
        path: Of a directory, with or without ``@v3`` or ``@20260131235959000`` (UTC) behind it; or
            of an Iceberg metadata file.
    """
    asked = path.rstrip("/")
    kind: fs.FileType
    table: TablePlace | None
    kind, table = _at_once(
        filesystem, asked, [lambda: _kind(filesystem, asked), lambda: _table_at(filesystem, asked)]
    )
    if kind == fs.FileType.File:
        root = posixpath.dirname(posixpath.dirname(asked))
        is_metadata = asked.endswith(ICEBERG.suffixes) and root
        return TablePlace(ICEBERG, root, root, metadata=asked) if is_metadata else None
    match = _VERSIONED.fullmatch(asked)
    if kind == fs.FileType.Directory or match is None:
        return table
    table = _table_at(filesystem, match["path"])
    if table is None:
        return None
    version = None if match["number"] is None else int(match["number"])
    moment = None if match["moment"] is None else _moment(match["moment"])
    return replace(table, version=version, moment=moment)


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
    looks = [functools.partial(_holds_log, filesystem, *candidate) for candidate in candidates]
    for (place, known), is_table in zip(
        candidates, _at_once(filesystem, directory, looks), strict=True
    ):
        if is_table:
            return TablePlace(known, directory, place)
    return None


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
    entries = []
    # What lies above may not be ours to look at.
    with suppress(OSError):
        entries = filesystem.get_file_info(fs.FileSelector(log, allow_not_found=True))
    return any(info.base_name.endswith(known.suffixes) for info in entries)


def _at_once(
    filesystem: fs.FileSystem, path: str, calls: Sequence[Callable[[], Any]]
) -> Iterable[Any]:
    """Return what functions return that look at a path: from a far place all answers take as long as one."""
    if isinstance(filesystem, fs.LocalFileSystem) and is_mapped(path):
        return (call() for call in calls)
    return each_at_once(lambda call: call(), calls, is_far=True)


def _kind(filesystem: fs.FileSystem, path: str) -> fs.FileType:
    with suppress(OSError, ValueError):
        return filesystem.get_file_info([path])[0].type
    return fs.FileType.Unknown
