"""A directory of Parquet files with what Petastorm keeps beside them, on any file system and any Arrow."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge import fs_utils
from petastorm_bridge._sources.parquet_files import File, find_files
from petastorm_bridge._sources.table_formats import refuse_table_formats
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.mds.files import write_whole

_COMMON = "_common_metadata"
_SUMMARY = "_metadata"


@dataclass(frozen=True)
class Piece:
    """One row group of one file, with the attributes of pyarrow's former ``ParquetDatasetPiece``.

    Attributes:
        partition_keys: ``(name, value)`` of the partition directories above the file, values as text.
    """

    path: str
    row_group: int
    partition_keys: tuple[tuple[str, str], ...]
    filesystem: fs.FileSystem

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """Return the rows; columns that are partitions get the value of their directory."""
        with self.filesystem.open_input_file(self.path) as file:
            reader = parquet.ParquetFile(file)
            wanted = reader.schema_arrow.names if columns is None else columns
            keys = dict(self.partition_keys)
            stored = [name for name in wanted if name not in keys]
            table = reader.read_row_group(self.row_group, columns=stored)
            rows = reader.metadata.row_group(self.row_group).num_rows
        for name, value in keys.items():
            if columns is None or name in columns:
                table = table.append_column(name, pa.repeat(value, rows))
        return table

    def get_metadata(self) -> Any:
        """Return the footer of the file."""
        return parquet.read_metadata(self.path, filesystem=self.filesystem)


@dataclass(frozen=True)
class Store:
    """A dataset's directory on a file system."""

    filesystem: fs.FileSystem
    directory: str

    def files(self) -> list[File]:
        """Return the Parquet files in the order of their paths; DatasetError where it is no Parquet table."""
        refuse_table_formats(self.filesystem, self.directory)
        return find_files(self.filesystem, [self.directory])

    def has_common_metadata(self) -> bool:
        """Return whether there is a file ``_common_metadata``."""
        return self._is_file(_COMMON)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return the keys and values of ``_common_metadata``; none without it."""
        if not self.has_common_metadata():
            return {}
        return dict(self._schema_in(self.path_of(_COMMON)).metadata or {})

    def note(self, key: bytes, value: bytes | str) -> None:
        """Add a key to ``_common_metadata``, which is made of the first file's schema if need be.

        Raises:
            DatasetError: There are no Parquet files.
            OSError: It cannot be written.
        """
        noted = next(filter(self._is_file, (_COMMON, _SUMMARY)), None)
        schema = self._schema_in(self.path_of(noted) if noted else self.files()[0].path)
        schema = schema.with_metadata({**(schema.metadata or {}), key: value})
        sink = pa.BufferOutputStream()
        parquet.write_metadata(schema, sink)
        path = self.path_of(_COMMON)
        if isinstance(self.filesystem, fs.LocalFileSystem):
            write_whole(path, [sink.getvalue()], is_durable=True)
            # Hadoop's checksum of the file that was there before.
            with suppress(FileNotFoundError):
                os.remove(self.path_of(f".{_COMMON}.crc"))
        else:
            with self.filesystem.open_output_stream(path) as file:
                file.write(sink.getvalue())

    def summary(self) -> Any:
        """Return the footer of all files that Spark may have written as ``_metadata``; None without."""
        if not self._is_file(_SUMMARY):
            return None
        return self._footer(self.path_of(_SUMMARY))

    def row_groups_per_file(self) -> dict[str, int]:
        """Return the number of row groups of each file, by its path below the directory."""
        files = self.files()
        counts = each_at_once(
            lambda file: int(self._footer(file.path).num_row_groups), files, is_far=True
        )
        return {self.relative(f.path): n for f, n in zip(files, counts, strict=True)}

    def relative(self, path: str) -> str:
        """Return the path of a file below the directory."""
        normal = self.filesystem.normalize_path(self.directory)
        return posixpath.relpath(path, normal)

    def path_of(self, name: str) -> str:
        """Return the path of a file of that name in the directory."""
        return posixpath.join(self.directory.rstrip("/"), name)

    def pieces(self, counts: Mapping[str, int]) -> list[Piece]:
        """Return the row groups of the files that have a number of them, in the order of the files."""
        return [
            Piece(file.path, group, file.keys, self.filesystem)
            for file in self.files()
            for group in range(counts.get(self.relative(file.path), 0))
        ]

    def _footer(self, path: str) -> Any:
        return parquet.read_metadata(path, filesystem=self.filesystem)

    def _is_file(self, name: str) -> bool:
        info = self.filesystem.get_file_info([self.path_of(name)])[0]
        return bool(info.type == fs.FileType.File)

    def _schema_in(self, path: str) -> pa.Schema:
        return parquet.read_schema(path, filesystem=self.filesystem)


def store_at(
    url: str,
    filesystem: Any = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    user: str | None = None,
) -> Store:
    """Return the store at a URL; ValueError for an unknown scheme, TypeError for another filesystem."""
    parsed = urlparse(url)
    if filesystem is None:
        filesystem = fs_utils.FilesystemResolver(
            url, user=user, storage_options=storage_options
        ).filesystem()
    return Store(arrow_filesystem(filesystem), fs_utils.get_dataset_path(parsed))


def store_of(dataset: Any) -> Store:
    """Return the store that a ``pyarrow.parquet.ParquetDataset`` stands for, today's or a legacy one.

    Raises:
        ValueError: The dataset was made of a list of files.
        TypeError: It is something else.
    """
    if isinstance(dataset, Store):
        return dataset
    if hasattr(dataset, "paths"):  # the legacy one
        filesystem, directory = dataset.fs, dataset.paths
    elif hasattr(dataset, "filesystem") and hasattr(dataset, "files"):
        filesystem, directory = dataset.filesystem, getattr(dataset, "_base_dir", None)
    else:
        raise TypeError(
            f"A pyarrow.parquet.ParquetDataset is needed, not a {type(dataset).__name__}."
        )
    if not isinstance(directory, str):
        raise ValueError(  # noqa: TRY004 - of what it was made of, not of its type
            "Expected dataset.paths to be a single path, not a list of paths"
        )
    return Store(arrow_filesystem(filesystem), directory)


def arrow_filesystem(filesystem: Any) -> fs.FileSystem:
    """Return a file system of ours, fsspec's or pyarrow's as one of ``pyarrow.fs``; TypeError for others."""
    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    # Ours, fsspec's, and those of old releases of pyarrow, which users hand over.
    if any(cls.__name__ == "LocalFileSystem" for cls in type(filesystem).__mro__):
        return fs.LocalFileSystem()
    if hasattr(filesystem, "protocol"):
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    raise TypeError(
        f"A filesystem of pyarrow.fs or fsspec is needed, not a {type(filesystem).__name__}."
    )
