"""Which files make up a Parquet table, and what their directories say of partitions.

The rules are those of the ``ParquetManifest`` that Petastorm's reader rests on (pyarrow up to 14):
hidden files are skipped, a directory holds either files or ``key=value`` directories, files are
read in the order of their paths.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError, missing_extra

# The first file that a conversion writes into its directory; the last one is the index.
MARKER_NAME = "_petastorm_bridge_cache.json"
# The directory of notes that `petastorm-bridge convert` keeps until its dataset is whole.
CONVERSION_NAME = "_petastorm_bridge_conversion"


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

    Attributes:
        type: int64 where all values are integers, else string, as in Petastorm.
    """

    def __init__(self, values: Sequence[str]) -> None:
        codes: dict[str, int] = {}
        self._codes = [codes.setdefault(value, len(codes)) for value in values]
        self._values: list[Any] = list(codes)
        self.type = pa.string()
        with contextlib.suppress(ValueError, OverflowError):
            self._values = pa.array([int(value) for value in codes], pa.int64()).to_pylist()
            self.type = pa.int64()

    def value(self, file: int) -> Any:
        """Return the value of one file as Petastorm hands it out: ``numpy.int64`` or ``numpy.str_``."""
        value = self._values[self._codes[file]]
        return np.str_(value) if isinstance(value, str) else np.int64(value)

    @cached_property
    def dtype(self) -> Any:
        """The pandas category of all values; made once, so that nobody has to compare them all."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise missing_extra("pandas", "streaming") from error
        return pd.CategoricalDtype(pd.Index(self._values, dtype=self.type.to_pandas_dtype()))

    def column(self, file: int, rows: int) -> Any:
        """Return the column of ``rows`` rows of one file as a ``pandas.Categorical``."""
        dtype = self.dtype
        import pandas as pd

        return pd.Categorical.from_codes(np.full(rows, self._codes[file], np.int32), dtype=dtype)


def find_files(filesystem: fs.FileSystem, paths: Sequence[str]) -> list[File]:
    """Return the files of a table.

    Args:
        filesystem: Where they are.
        paths: One directory, or files, which keep their order. Whether it is a table of another kind, whose files
            do not all hold live rows, is not looked at.

    Raises:
        NotAFileError: A path is no file (Petastorm's text).
        NoFilesError: The directory holds no Parquet file.
        LayoutError: The directory is no Parquet table.
    """
    for path in paths:
        if "\0" in path:
            raise NotAFileError(f"Passed non-file path: {path!r}. Paths hold no NUL characters.")
    if len(paths) == 1:
        is_local = isinstance(filesystem, fs.LocalFileSystem)
        # Listed before it is known to be a directory: one request less.
        try:
            listed = filesystem.get_file_info(fs.FileSelector(paths[0], recursive=not is_local))
        except (NotADirectoryError, FileNotFoundError):
            pass
        else:
            return _files_of(filesystem, paths[0], listed, is_local)
    infos = filesystem.get_file_info(list(paths))
    files = []
    for path, info in zip(paths, infos, strict=True):
        if info.type != fs.FileType.File:
            kind = _KINDS[info.type]
            raise NotAFileError(
                f"Passed non-file path: {masked(path)}. There is {kind}; give the url of one Parquet "
                "directory or a list of files."
            )
        files.append(File(path, (), info.size, info.mtime_ns))
    return files


_KINDS = {
    fs.FileType.NotFound: "nothing",
    fs.FileType.Directory: "a directory",
    fs.FileType.Unknown: "a pipe, a socket or a device",
}


def unfinished_text(directory: str, marker: str = MARKER_NAME) -> str:
    """Return what to say of a directory that has the marker and no index."""
    again = (
        "repeat its `petastorm-bridge convert`, which goes on where it ended"
        if marker == CONVERSION_NAME
        else "delete the directory and convert the DataFrame again"
    )
    return (
        f"{masked(directory)} is an unfinished conversion of petastorm-bridge: {INDEX_NAME} is missing. "
        f"Either a program is still writing it, or the program that began was killed; then {again}."
    )


def _files_of(
    filesystem: fs.FileSystem, asked: str, listed: Sequence[Any], is_local: bool
) -> list[File]:
    """Return the files of a directory, given what lies in it, and in a store also below it.

    A store is asked once for all of it. On a local disk links may lead anywhere, also in circles: a directory there is
    listed when it is known to belong to the table.
    """
    directory = filesystem.normalize_path(asked.rstrip("/"))
    entries: dict[str, list[Any]] = {}
    for info in listed:
        entries.setdefault(posixpath.dirname(info.path), []).append(info)
    for info in entries.get(directory, ()):
        if info.base_name in (MARKER_NAME, CONVERSION_NAME):
            raise NoFilesError(unfinished_text(asked, info.base_name))
    files: list[File] = []
    waiting: list[tuple[str, tuple[tuple[str, str], ...]]] = [(directory, ())]
    while waiting:
        folder, keys = waiting.pop()
        if is_local and folder != directory:
            entries[folder] = filesystem.get_file_info(fs.FileSelector(folder))
        # In one order on every machine, so that all say the same of a directory.
        inside = sorted(entries.pop(folder, ()), key=lambda info: str(info.path))
        if is_local:
            _refuse_dead_links(folder, inside)
        folders = [e for e in inside if e.type == fs.FileType.Directory and not _is_private(e)]
        data = [
            e for e in inside if e.type != fs.FileType.Directory and not _is_hidden(e.base_name)
        ]
        if data and folders:
            raise LayoutError(
                f"Found files in an intermediate directory: {folder} holds {data[0].base_name} beside "
                f"the directory {folders[0].base_name}. Point at one of them."
            )
        for info in data:
            if info.type == fs.FileType.Unknown:
                raise LayoutError(
                    f"{info.path} is {_KINDS[info.type]}, which cannot be read as Parquet. Take it out "
                    "of the directory."
                )
            files.append(File(info.path, keys, info.size, info.mtime_ns))
        below = [(info.path, (*keys, _key(info, dict(keys)))) for info in folders]
        waiting += reversed(below)
    if not files:
        raise NoFilesError(
            f"No Parquet file in {asked}. Files whose names begin with '_' or '.' do not count."
        )
    files.sort(key=lambda file: file.path)
    return files


def _key(info: Any, above: Collection[str]) -> tuple[str, str]:
    """Return the column and the value in the name of a directory, given the columns of those above it."""
    name, separator, value = info.base_name.partition("=")
    if not separator:
        raise LayoutError(
            f"Directory name did not appear to be a partition: {info.base_name} in "
            f"{posixpath.dirname(info.path)}. Only 'key=value' directories may lie below a Parquet directory."
        )
    if name in above:
        raise LayoutError(f"A partition column occurs twice: {info.path}")
    return name, value


def _refuse_dead_links(folder: str, inside: Sequence[Any]) -> None:
    """Raise for links to nothing: Arrow leaves them out of its listing, and so their rows."""
    listed = {info.base_name for info in inside}
    for name in sorted(set(os.listdir(folder)) - listed):
        path = os.path.join(folder, name)
        if not _is_hidden(name) and not os.path.exists(path):
            raise DatasetNotFoundError(
                f"{path} is a link to a file that does not exist. Restore the file, or take the link "
                "out of the directory."
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith((".crc", "_$folder$", "_metadata"))


def _is_private(info: Any) -> bool:
    return info.base_name.startswith(("_", ".")) and "=" not in info.base_name
