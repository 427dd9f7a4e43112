"""Tables that keep a log of which Parquet files are theirs: a directory alone does not tell their rows.

Delta and Iceberg leave the files of deleted and overwritten rows where they are. Read as loose Parquet,
as Petastorm does, they give those rows back without a word. Here the log decides, where the package that
reads it is installed; otherwise such a directory is refused.
"""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyarrow import fs

from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.mds.access import is_mapped

from .table_place import TableFormat, TableFormatError, TablePlace

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
    table = _named_table(filesystem, path.rstrip("/"))
    if table is None or url is None:
        return table
    levels = (table.metadata or table.path)[len(table.root) :].count("/")
    root = url_without_version(url, table).rsplit("/", levels)[0]
    return replace(table, url=root, options=options or {})


def _named_table(filesystem: fs.FileSystem, asked: str) -> TablePlace | None:
    kind: fs.FileType
    table: TablePlace | None
    looks: tuple[Callable[..., Any], ...] = (_kind, _table_at)
    is_far = _is_far(filesystem, asked)
    kind, table = each_at_once(lambda look: look(filesystem, asked), looks, is_far=is_far)
    if kind == fs.FileType.File:
        root = posixpath.dirname(posixpath.dirname(asked))
        is_metadata = asked.endswith(ICEBERG.suffixes) and root
        return TablePlace(ICEBERG, filesystem, root, root, metadata=asked) if is_metadata else None
    match = _VERSIONED.fullmatch(asked)
    if kind == fs.FileType.Directory or match is None:
        return table
    table = _table_at(filesystem, match["path"])
    if table is None:
        return None
    version = None if match["number"] is None else int(match["number"])
    moment = None if match["moment"] is None else _moment(match["moment"])
    return replace(table, version=version, moment=moment)


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
    is_far = _is_far(filesystem, directory)
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
    entries = []
    # What lies above may not be ours to look at.
    with suppress(OSError):
        entries = filesystem.get_file_info(fs.FileSelector(log, allow_not_found=True))
    return any(info.base_name.endswith(known.suffixes) for info in entries)


def _is_far(filesystem: fs.FileSystem, path: str) -> bool:
    return not isinstance(filesystem, fs.LocalFileSystem) or not is_mapped(path)


def _kind(filesystem: fs.FileSystem, path: str) -> fs.FileType:
    with suppress(OSError, ValueError):
        return filesystem.get_file_info([path])[0].type
    return fs.FileType.Unknown
