"""Parquet files as a source of row groups, in the form ``petastorm.make_batch_reader`` shows them."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge._blocks.columns import Column, NullFacts
from petastorm_bridge._blocks.pandas_metadata import noted_names, pandas_metadata, without_columns
from petastorm_bridge._secrets import masked
from petastorm_bridge.mds.shard import Rows

from .far_parquet import MakeFar
from .parquet_files import File, Partition, find_files
from .parquet_reading import ParquetFiles, naming, one_array, rows_of, shown
from .parquet_schema import ColumnsDifferError, common_types, first_schema, null_facts
from .source import Near, RowGroup, build_schema

__all__ = ["ParquetSource"]

COMMON_METADATA_NAME = "_common_metadata"


class ParquetSource(Near):
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
        make_far: Makes what fetches columns of files that are far away; None for near ones.

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
        make_far: MakeFar | None = None,
    ) -> None:
        self.description = masked(str(list(paths) if listed else paths[0]))
        self._filesystem = filesystem or fs.LocalFileSystem()
        self._directory = None if listed else paths[0]
        files = find_files(self._filesystem, paths)
        far = None if make_far is None else make_far(files)
        self._files = ParquetFiles(files, filesystem, far)
        self.partitions: Mapping[str, Partition] = _partitions(files)
        footers = self._files.read_footers()
        schemas = [footer.schema for footer in footers]
        first = first_schema(schemas)
        self.pandas_metadata = pandas_metadata(first)
        stored = [field for field in first if field.name not in self.partitions]
        fields = [(name, part.type, False) for name, part in self.partitions.items()]
        fields += [(field.name, field.type, field.nullable) for field in stored]
        self.types: Mapping[str, pa.DataType]
        self.schema, self.types = build_schema(fields)
        self.nulls: Mapping[str, NullFacts] = dict.fromkeys(self.types, NullFacts())
        self.unchecked = list(zip(footers, schemas, strict=True))
        self._groups = [(i, g) for i, f in enumerate(footers) for g in range(len(f.rows))]
        self.row_counts: Sequence[int] = [rows for footer in footers for rows in footer.rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "unchecked": []}  # large, and of no use once narrowed

    def narrowed(self, names: Collection[str]) -> ParquetSource:
        """Return the source of some columns; only in these do the files have to agree.

        Raises:
            ColumnsDifferError: A file lacks one of them, or has another kind of it.
        """
        stored = [name for name in names if name not in self.partitions]
        paths = [file.path for file in self._files.files]
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
        return _ParquetGroup(self, index, self._files.open_group(index, group, self.types), group)

    @property
    def is_far(self) -> bool:
        """Whether the files are far away."""
        return self._files.far is not None

    def want(self, position: int, *, is_for_others: bool = False) -> int:
        """Begin to fetch the columns of a row group; return how many bytes that takes."""
        index, group = self._groups[position]
        return self._files.want(index, group, self.types, is_for_others=is_for_others)

    def bytes_here(self) -> int:
        """Return how many bytes the copies of far files take."""
        return self._files.bytes_here()

    def stop(self) -> None:
        """Drop what was wanted."""
        self._files.stop()

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
        reader, path = self._files.open(index, streamed=True), self.path(index)
        stored = [name for name in types if name not in self.partitions]
        batches = reader.iter_batches(rows, [group], stored, use_threads=False)
        while (batch := naming(path, lambda: next(batches, None))) is not None:
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
        return [size for footer, _ in self.unchecked for size in footer.sizes]

    def metadata(self, file: int) -> Any:
        """Return the footer of one of the files."""
        return self._files.metadata(file)

    @property
    def files(self) -> Sequence[File]:
        """The files in their order."""
        return self._files.files

    def path_of(self, position: int) -> str:
        """Return the path of a row group's file."""
        return self.path(self._groups[position][0])

    def common_metadata(self, *, beside_files: bool = False) -> Mapping[bytes, bytes] | None:
        """Return what ``_common_metadata`` holds for others than Parquet; None without that file.

        Args:
            beside_files: For a file, or a list of files, look in the directory that holds them, or
                their partitions. Petastorm's ``make_reader`` takes such files for plain Parquet.

        Raises:
            DatasetError: The file is damaged.
        """
        directory = self._directory
        if directory is None or [file.path for file in self._files.files] == [directory]:
            if not beside_files:
                return None
            paths = [posixpath.dirname(file.path) for file in self._files.files]
            directory = posixpath.commonpath(paths)
            while "=" in posixpath.basename(directory):
                directory = posixpath.dirname(directory)
        path = posixpath.join(directory, COMMON_METADATA_NAME)
        if self._filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        with self._filesystem.open_input_file(path) as file:
            metadata = naming(path, lambda: parquet.read_metadata(file).metadata)
        return metadata or {}

    def path(self, file: int) -> str:
        """Return the path of one of the files."""
        return self._files.files[file].path

    def key(self, position: int) -> tuple[Any, ...]:
        """Return the partition a row group lies in, one scalar per partition column."""
        index, _ = self._groups[position]
        return tuple(part.value(index) for part in self.partitions.values())

    def is_cheap(self, position: int) -> bool:  # noqa: ARG002 - every row group is decoded
        """Return False: reading Parquet means decoding it."""
        return False


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
        missing = [name for name in stored if name not in self._read]
        if missing:
            table = self._table(missing)
            self._read |= {name: table.column(name) for name in table.column_names}

    def load(self, name: str, rows: Rows) -> Column:
        """Return a column of the rows; plain numbers without nulls as NumPy arrays."""
        if name in self._source.partitions:
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            return self._source.partitions[name].column(self._file, count)
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        return rows_of(self._decoded[name], rows)

    def _table(self, names: list[str]) -> Any:
        return naming(
            self._source.path(self._file),
            lambda: self._reader.read_row_group(self._group, columns=names, use_threads=False),
        )

    def _decode(self, name: str) -> Column:
        chunks = self._read.pop(name, None)
        if chunks is None:
            chunks = self._table([name]).column(name)
        path, target = self._source.path(self._file), self._source.types[name]
        array = _converted(one_array(chunks), target, name, path)
        # pandas' own dtypes tell a null from NaN, which NumPy's numbers do not.
        noted = noted_names(self._source.pandas_metadata)
        return array if array.null_count and name in noted else shown(array)


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
