"""Which files make up a Parquet table, and what their directories say of partitions.

The rules are those of the ``ParquetManifest`` that Petastorm's reader rests on (pyarrow up to 14):
hidden files are skipped, a directory holds either files or ``key=value`` directories, files are
read in the order of their paths.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from ._secrets import masked
from .mds.errors import DatasetError, DatasetNotFoundError

__all__ = ["File", "Partition", "find_files"]


class LayoutError(DatasetError, ValueError, IndexError):
    """A directory is no Parquet table; Petastorm raises either ValueError or IndexError."""


class NotAFileError(DatasetNotFoundError):
    """A path is nothing, or a directory where files are listed; Petastorm raises OSError."""


class NoFilesError(DatasetNotFoundError, IndexError):
    """A directory holds no Parquet file; Petastorm stumbles over it with an IndexError."""


@dataclass(frozen=True)
class File:
    """One Parquet file.

    Attributes:
        path: As its file system understands it.
        keys: ``(name, value)`` of the partition directories above it, outermost first.
        size: Bytes.
        mtime: Modification time in nanoseconds, or None where the store has none.
    """

    path: str
    keys: tuple[tuple[str, str], ...]
    size: int
    mtime: int | None


class Partition:
    """A column that is stored in directory names.

    Args:
        name: Column name.
        values: Value of each file, as text.

    Attributes:
        name: Column name.
        type: int64 where all values are integers, else string, as in Petastorm.
    """

    def __init__(self, name: str, values: Sequence[str]) -> None:
        self.name = name
        distinct = list(dict.fromkeys(values))
        self._codes = [distinct.index(value) for value in values]
        self._dictionary = _dictionary(distinct)
        self.type = self._dictionary.type

    def column(self, file: int, rows: int) -> pa.DictionaryArray:
        """Return the column of ``rows`` rows of one file; pandas makes a category of it."""
        codes = pa.array(np.full(rows, self._codes[file], np.int32))
        return pa.DictionaryArray.from_arrays(codes, self._dictionary)


def _dictionary(values: list[str]) -> pa.Array:
    try:
        return pa.array([int(value) for value in values], pa.int64())
    except (ValueError, OverflowError):
        return pa.array(values, pa.string())


def find_files(filesystem: fs.FileSystem, paths: Sequence[str]) -> list[File]:
    """Return the files of a table.

    Args:
        filesystem: Where they are.
        paths: One directory, or files, which keep their order.

    Raises:
        NotAFileError: A path is no file (Petastorm's text).
        NoFilesError: The directory holds no Parquet file.
        LayoutError: The directory is no Parquet table.
    """
    infos = filesystem.get_file_info(list(paths))
    if len(infos) == 1 and infos[0].type == fs.FileType.Directory:
        return _walk(filesystem, paths[0])
    files = []
    for path, info in zip(paths, infos, strict=True):
        if info.type != fs.FileType.File:
            found = "a directory" if info.type == fs.FileType.Directory else "nothing"
            raise NotAFileError(
                f"Passed non-file path: {masked(path)}. There is {found}; give the url of one Parquet "
                "directory or a list of files."
            )
        files.append(_file(info, path, ()))
    return files


def _file(info: Any, path: str, keys: tuple[tuple[str, str], ...]) -> File:
    return File(path, keys, info.size, info.mtime_ns)


def _key(segment: str) -> tuple[str, str]:
    name, _, value = segment.partition("=")
    return name, value


def _walk(filesystem: fs.FileSystem, directory: str) -> list[File]:
    from .spark._store import MARKER_NAME, unfinished_text

    entries: dict[str, list[Any]] = {}
    base = directory.rstrip("/")
    for info in filesystem.get_file_info(fs.FileSelector(directory, recursive=True)):
        entries.setdefault(posixpath.dirname(info.path), []).append(info)
    normal = filesystem.normalize_path(base)
    if any(info.base_name == MARKER_NAME for info in entries.get(normal, [])):
        raise NoFilesError(unfinished_text(directory))
    files: list[File] = []
    _visit(entries, normal, (), files)
    if not files:
        raise NoFilesError(
            f"No Parquet file in {directory}: list index out of range. Files whose names begin "
            "with '_' or '.' do not count."
        )
    files.sort(key=lambda file: file.path)
    return files


def _visit(
    entries: dict[str, list[Any]],
    folder: str,
    keys: tuple[tuple[str, str], ...],
    files: list[File],
) -> None:
    inside = entries.get(folder, [])
    data = [e for e in inside if e.type == fs.FileType.File and not _is_hidden(e.base_name)]
    folders = [e for e in inside if e.type == fs.FileType.Directory and not _is_private(e)]
    if data and folders:
        raise LayoutError(
            f"Found files in an intermediate directory: {folder} holds {data[0].base_name} beside "
            f"the directory {folders[0].base_name}. Point at one of them."
        )
    files += [_file(info, info.path, keys) for info in data]
    for info in sorted(folders, key=lambda e: str(e.path)):
        if "=" not in info.base_name:
            raise LayoutError(
                f"Directory name did not appear to be a partition: {info.base_name} in {folder}. "
                "Only 'key=value' directories may lie below a Parquet directory."
            )
        _visit(entries, info.path, (*keys, _key(info.base_name)), files)


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith((".crc", "_$folder$", "_metadata"))


def _is_private(info: Any) -> bool:
    return info.base_name.startswith(("_", ".")) and "=" not in info.base_name
