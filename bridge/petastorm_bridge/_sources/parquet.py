"""Parquet files as a source of row groups, in the form ``petastorm.make_batch_reader`` shows them."""

from __future__ import annotations

import copy
import inspect
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge._blocks.columns import Column, NullFacts, present
from petastorm_bridge._blocks.pandas_metadata import noted_names, pandas_metadata, without_columns
from petastorm_bridge._secrets import masked
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.mds.types import is_list_of_any_length

from .parquet_files import File, Partition, find_files
from .parquet_schema import ColumnsDifferError, common_types, first_schema, null_facts
from .source import RowGroup, build_schema

__all__ = ["ParquetSource"]

COMMON_METADATA_NAME = "_common_metadata"
_FOOTER_THREADS = 16
# Pages carry checksums, which Spark writes and Arrow compares from release 15 on.
_CHECKSUMS: dict[str, Any] = (
    {"page_checksum_verification": True}
    if "page_checksum_verification" in inspect.signature(parquet.ParquetFile).parameters
    else {}
)

_Result = TypeVar("_Result")


class DamagedFileError(DatasetError, pa.ArrowInvalid):  # type: ignore[misc] # pyarrow is untyped
    """A file is no Parquet file, or a damaged one; Petastorm raises ``ArrowInvalid``."""


class ParquetSource:
    """The row groups of Parquet files, in the order of the files.

    Columns and their order are those of the first file, behind the columns that ``key=value``
    directories hold. Numbers of different width in different files take the widest type; files are
    compared in the columns that :meth:`narrowed` is asked for.

    Attributes:
        unchecked: Footer and schema of each file, until the source is narrowed.

    Args:
        paths: One file or directory, or the files of one table.
        listed: Whether the caller named the files one by one; their directories then say nothing of
            partitions (as in Petastorm).
        filesystem: Where the paths are; the local one by default.

    Raises:
        OSError: A path is no file.
        DatasetError: No Parquet files, damaged ones, or a table that is more than its files.
    """

    def __init__(
        self,
        paths: Sequence[str],
        listed: bool,
        *,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        self._filesystem = fs.LocalFileSystem() if filesystem is None else filesystem
        self._is_local = filesystem is None
        self.description = masked(str(list(paths) if listed else paths[0]))
        self._directory = None if listed else paths[0]
        self._files = find_files(self._filesystem, paths)
        self.partitions: Mapping[str, Partition] = _partitions(self._files)
        footers = self._read_footers()
        schemas = [footer.schema.to_arrow_schema() for footer in footers]
        first = first_schema(schemas)
        self.pandas_metadata = pandas_metadata(first)
        stored = [field for field in first if field.name not in self.partitions]
        fields = [(name, part.type, False) for name, part in self.partitions.items()]
        fields += [(field.name, field.type, field.nullable) for field in stored]
        self.types: Mapping[str, pa.DataType]
        self.schema, self.types = build_schema(fields)
        self.nulls: Mapping[str, NullFacts] = dict.fromkeys(self.types, NullFacts())
        self.unchecked = list(zip(footers, schemas, strict=True))
        self._groups = [(i, g) for i, f in enumerate(footers) for g in range(f.num_row_groups)]
        self.row_counts: Sequence[int] = [footers[i].row_group(g).num_rows for i, g in self._groups]
        # Parsing a footer takes time with its row groups, of which each would need one parse.
        self._footers = {i: f for i, f in enumerate(footers) if f.num_row_groups > 1}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_footers": {}, "unchecked": []}  # large, and quickly read again

    def narrowed(self, names: Collection[str]) -> ParquetSource:
        """Return the source of some columns; only in these do the files have to agree.

        Raises:
            ColumnsDifferError: A file lacks one of them, or has another kind of it.
        """
        stored = [name for name in names if name not in self.partitions]
        paths = [file.path for file in self._files]
        common = common_types(stored, paths, [schema for _, schema in self.unchecked])
        fields = [
            (field.name, common.get(field.name, self.types[field.name]), bool(field.nullable))
            for field in self.schema.fields.values()
            if field.name in names
        ]
        source = copy.copy(self)
        source.schema, source.types = build_schema(fields)
        # Where files differ in a type, what pandas had in the first fits none but that.
        changed = {name for name in stored if common[name] != self.types[name]}
        source.pandas_metadata = without_columns(self.pandas_metadata, changed)
        source.nulls = {
            **dict.fromkeys(self.partitions, NullFacts()),
            **null_facts(common, self.unchecked),
        }
        source.unchecked = []
        return source

    def open(self, position: int) -> RowGroup:
        """Open one row group.

        Raises:
            DatasetNotFoundError: The file is gone.
            DatasetError: The file was replaced since the source was opened, or is damaged.
        """
        index, group = self._groups[position]
        return _ParquetGroup(self, index, self._reader(index), group)

    def batches(
        self, position: int, types: Mapping[str, pa.DataType], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group as they are stored, without decoding all of it at once.

        Args:
            position: The row group.
            types: Columns wanted, and the types that they get.
            rows: Rows of a batch at most.

        Raises:
            DatasetError: As :meth:`open`; or values do not fit into the type.
        """
        index, group = self._groups[position]
        reader, path = self._reader(index), self._files[index].path
        stored = [name for name in types if name not in self.partitions]
        batches = reader.iter_batches(rows, [group], stored, use_threads=False)
        while (batch := _naming(path, lambda: next(batches, None))) is not None:
            arrays = []
            for name, type_ in types.items():
                if name in self.partitions:
                    value = self.partitions[name].scalar(index)
                    arrays.append(pa.repeat(pa.scalar(value, type_), batch.num_rows))
                else:
                    arrays.append(_converted(batch.column(name), type_, name, path))
            yield pa.RecordBatch.from_arrays(arrays, names=list(types))

    def group_sizes(self) -> list[int]:
        """Return the bytes of each row group, uncompressed; of a source that is not yet narrowed."""
        footers = [footer for footer, _ in self.unchecked]
        return [int(footers[i].row_group(g).total_byte_size) for i, g in self._groups]

    @property
    def files(self) -> Sequence[File]:
        """The files in their order."""
        return self._files

    def _reader(self, index: int) -> parquet.ParquetFile:
        file = self._files[index]
        self._check_unchanged(file)
        reader = self._open_file(file, self._footers.get(index))
        if index not in self._footers and reader.num_row_groups > 1:
            self._footers[index] = reader.metadata
        return reader

    def path_of(self, position: int) -> str:
        """Return the path of a row group's file."""
        return self._files[self._groups[position][0]].path

    def common_metadata(self) -> Mapping[bytes, bytes] | None:
        """Return what ``_common_metadata`` holds for others than Parquet; None without that file.

        Raises:
            DatasetError: The file is damaged.
        """
        if self._directory is None:
            return None
        path = posixpath.join(self._directory, COMMON_METADATA_NAME)
        if self._filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        with self._filesystem.open_input_file(path) as file:
            metadata = _naming(path, lambda: parquet.read_metadata(file).metadata)
        return metadata or {}

    def path(self, file: int) -> str:
        """Return the path of one of the files."""
        return self._files[file].path

    def key(self, position: int) -> tuple[Any, ...]:
        """Return the partition a row group lies in, one scalar per partition column."""
        index, _ = self._groups[position]
        return tuple(part.value(index) for part in self.partitions.values())

    def is_cheap(self, position: int) -> bool:  # noqa: ARG002 - every row group is decoded
        """Return False: reading Parquet means decoding it."""
        return False

    def _read_footers(self) -> list[Any]:
        if len(self._files) == 1:
            return [self._open_file(self._files[0], None).metadata]
        with ThreadPoolExecutor(min(_FOOTER_THREADS, len(self._files))) as pool:
            return list(pool.map(lambda file: self._open_file(file, None).metadata, self._files))

    def _open_file(self, file: File, footer: Any) -> parquet.ParquetFile:
        source = file.path if self._is_local else self._filesystem.open_input_file(file.path)
        return _naming(
            file.path,
            lambda: parquet.ParquetFile(
                source,
                metadata=footer,
                pre_buffer=not self._is_local,
                **_CHECKSUMS,
            ),
        )

    def _check_unchanged(self, file: File) -> None:
        if not self._is_local:
            return
        try:
            status = os.stat(file.path)
        except FileNotFoundError as error:
            raise _gone(file.path) from error
        if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime):
            raise DatasetError(
                f"{file.path} was written again after it was opened for reading. Open a new reader."
            )


class _ParquetGroup:
    """One row group; what was decoded is kept as long as the object."""

    def __init__(
        self, source: ParquetSource, file: int, reader: parquet.ParquetFile, group: int
    ) -> None:
        self._source = source
        self._file = file
        self._reader = reader
        self._group = group
        self._decoded: dict[str, Column] = {}
        self._read: dict[str, Any] = {}

    def prefetch(self, names: Sequence[str]) -> None:
        """Read columns at once, which takes less time than one after the other."""
        stored = [n for n in names if n not in self._source.partitions and n not in self._decoded]
        table = self._table([name for name in stored if name not in self._read])
        self._read |= {name: table.column(name) for name in table.column_names}

    def load(self, name: str, rows: Rows) -> Column:
        """Return a column of the rows; plain numbers without nulls as NumPy arrays."""
        if name in self._source.partitions:
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            return self._source.partitions[name].column(self._file, count)
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        column = self._decoded[name]
        if isinstance(column, np.ndarray):
            return column[rows]
        if isinstance(rows, slice):
            return column.slice(rows.start, rows.stop - rows.start)
        return column.take(pa.array(rows))

    def _table(self, names: list[str]) -> Any:
        return _naming(
            self._source.path(self._file),
            lambda: self._reader.read_row_group(self._group, columns=names, use_threads=False),
        )

    def _decode(self, name: str) -> Column:
        path = self._source.path(self._file)
        chunks = self._read.pop(name, None)
        if chunks is None:
            chunks = self._table([name]).column(name)
        array = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
        target = self._source.types[name]
        array = _converted(array, target, name, path)
        # pandas' own dtypes tell a null from NaN, which NumPy's numbers do not.
        noted = noted_names(self._source.pandas_metadata)
        return array if array.null_count and name in noted else _shown(array)


def _converted(array: pa.Array, target: pa.DataType, name: str, path: str) -> pa.Array:
    if array.type == target:
        return array
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise ColumnsDifferError(
            f"Column {name!r} of {path} is {array.type}, in the table {target}, and "
            f"cannot be converted: {error}"
        ) from error


def _shown(array: pa.Array) -> Column:
    type_ = array.type
    if pa.types.is_floating(type_) or (
        not array.null_count and (pa.types.is_integer(type_) or pa.types.is_boolean(type_))
    ):
        return array.to_numpy(zero_copy_only=False)
    # Timestamps keep the unit and zone of the file; pandas shows them as Petastorm does.
    element = type_.value_type if is_list_of_any_length(type_) else type_
    if pa.types.is_timestamp(element) and not pa.types.is_large_list(type_):
        return array
    return present(array)


def _naming(path: str, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` does; errors name the file."""
    try:
        return read()
    except FileNotFoundError as error:
        raise _gone(path) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's, which name the file
        raise DamagedFileError(
            f"{masked(path)} cannot be read as Parquet. It is damaged, still being written, or another kind "
            f"of file: {masked(str(error), path)}"
        ) from error


def _gone(path: str) -> DatasetNotFoundError:
    return DatasetNotFoundError(
        f"{masked(path)} is missing: it was deleted after the reader was opened."
    )


def _partitions(files: Sequence[File]) -> dict[str, Partition]:
    names = [name for name, _ in files[0].keys]
    for file in files:
        if [name for name, _ in file.keys] != names:
            raise ColumnsDifferError(
                f"{files[0].path} and {file.path} lie in different partitions: {files[0].keys} and "
                f"{file.keys}. All files of a table need the same partition columns."
            )
    if len(set(names)) < len(names):
        raise ColumnsDifferError(f"A partition column occurs twice: {files[0].path}")
    return {
        name: Partition(name, [file.keys[level][1] for file in files])
        for level, name in enumerate(names)
    }
