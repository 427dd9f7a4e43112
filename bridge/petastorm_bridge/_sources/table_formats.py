"""Tables that keep a log of which Parquet files are theirs: a directory alone does not tell their rows.

Delta and Iceberg leave the files of deleted and overwritten rows where they are. Read as loose Parquet,
as Petastorm does, they give those rows back without a word.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pyarrow import fs

from petastorm_bridge.mds.errors import DatasetError

__all__ = ["TableFormatError", "refuse_table_formats"]


class TableFormatError(DatasetError, ValueError):
    """A directory belongs to a Delta or Iceberg table, whose log says which rows are live."""


@dataclass(frozen=True)
class _Format:
    """How to know a table format, and how to read it.

    Attributes:
        name: What users call it.
        log: Directory of the log below the table's.
        suffixes: Ends of names of which every log has one.
        read: Spark's way to read the table at a path.
        files: How to list the files that are live.
    """

    name: str
    log: str
    suffixes: tuple[str, ...]
    read: str
    files: str


_FORMATS = (
    _Format(
        "Delta",
        "_delta_log",
        (".json", "_last_checkpoint", ".checkpoint.parquet"),
        'spark.read.format("delta").load({path!r})',
        "deltalake.DeltaTable(path).file_uris()",
    ),
    _Format(
        "Iceberg",
        "metadata",
        (".metadata.json",),
        'spark.read.format("iceberg").load({path!r})',
        "the file_path column of the table's `files` metadata table",
    ),
)


def refuse_table_formats(filesystem: fs.FileSystem, directory: str) -> None:
    """Raise if a directory is, or lies in, a table whose files do not all hold live rows.

    Args:
        filesystem: Where the directory is.
        directory: Its path there.

    Raises:
        TableFormatError: It does.
    """
    for place in _places(directory):
        for known in _FORMATS:
            if _holds(filesystem, posixpath.join(place, known.log), known.suffixes):
                where = "is" if place == directory.rstrip("/") else f"lies in {place}, which is"
                raise TableFormatError(
                    f"{directory} {where} a {known.name} table. Its directory also holds files of "
                    "rows that were deleted or overwritten, so it cannot be read as plain Parquet. "
                    f"Convert what Spark reads: make_spark_converter({known.read.format(path=place)}), "
                    "or give make_batch_reader the list of the urls of the live files "
                    f"({known.files})."
                )


def _places(directory: str) -> Iterator[str]:
    """Yield the directories that may be the table's own: partition directories and one more lie below."""
    place = directory.rstrip("/")
    while "=" in posixpath.basename(place):
        yield place
        place = posixpath.dirname(place)
    for candidate in (place, posixpath.dirname(place)):
        if candidate.strip("/"):
            yield candidate


def _holds(filesystem: fs.FileSystem, directory: str, suffixes: tuple[str, ...]) -> bool:
    found = []
    # What lies above may not be ours to look at.
    with suppress(OSError):
        found = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return any(info.base_name.endswith(suffixes) for info in found)
