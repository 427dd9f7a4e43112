"""Parquet files as a source of row groups, in the form ``petastorm.make_batch_reader`` shows them."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge._blocks.pandas_metadata import pandas_metadata, without_columns
from petastorm_bridge.fs_utils import masked

from .far_parquet import MakeFar
from .files_source import FilesSource, Group, converted
from .parquet_files import File, Partition, find_files
from .parquet_reading import naming
from .parquet_schema import ColumnsDifferError, common_types, first_schema
from .source import build_schema

if TYPE_CHECKING:
    from typing_extensions import Self

COMMON_METADATA_NAME = "_common_metadata"
_STREAM_BYTES = 4 << 20


class ParquetSource(FilesSource):
    """The row groups of Parquet files, in the order of the files.

    Columns and their order are those of the first file, behind the columns that ``key=value``
    directories hold. Numbers of different width in different files take the widest type; files are
    compared in the columns that :meth:`narrowed` is asked for.

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
        filesystem = filesystem or fs.LocalFileSystem()
        self._directory = None if listed else paths[0]
        files = find_files(filesystem, paths)
        self.partitions: Mapping[str, Partition] = _partitions(files)
        super().__init__(files, filesystem, make_far)
        footers = self.unchecked
        first = first_schema([footer.schema for footer in footers])
        self.pandas_metadata = pandas_metadata(first)
        stored = [field for field in first if field.name not in self.partitions]
        fields = [(name, part.type, False) for name, part in self.partitions.items()]
        fields += [(field.name, field.type, field.nullable) for field in stored]
        self.schema, self.types = build_schema(fields)
        self.stored = [{field.name: field.name for field in stored}] * len(files)
        self._groups = [Group(i, g) for i, f in enumerate(footers) for g in range(len(f.rows))]
        self.row_counts = [rows for footer in footers for rows in footer.rows]

    def narrowed(self, names: Collection[str]) -> Self:
        """Return the source of some columns; only in these do the files have to agree.

        Raises:
            ColumnsDifferError: A file lacks one of them, or has another kind of it.
        """
        source = super().narrowed(names)
        # Where files differ in a type, what pandas had in the first fits none but that.
        changed = {name for name, type_ in source.types.items() if type_ != self.types[name]}
        source.pandas_metadata = without_columns(self.pandas_metadata, changed)
        return source

    @property
    def columns(self) -> list[str]:
        """Names of all columns, also of those that readers leave out; those of the directories come first."""
        stored = self.unchecked[0].schema.names
        return [*self.partitions, *(name for name in stored if name not in self.partitions)]

    def types_of(self, names: Collection[str]) -> dict[str, pa.DataType]:
        """Return the types of columns in which the files have to agree, or their directories.

        Raises:
            ColumnsDifferError: A file lacks one of them, or has another kind of it.
        """
        stored = [name for name in names if name not in self.partitions]
        paths = [file.path for file in self.files]
        types = common_types(stored, paths, [footer.schema for footer in self.unchecked])
        types |= {name: partition.type for name, partition in self.partitions.items()}
        return {name: types[name] for name in names}

    def constant(self, file: int, name: str, rows: int) -> Column:
        return self.partitions[name].column(file, rows)

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
        index, group, _ = self._groups[position]
        path = self.files[index].path
        self._check_unchanged(index)
        reader = self._open(index, buffer_size=_STREAM_BYTES)
        stored = [name for name in types if name not in self.partitions]
        batches = reader.iter_batches(rows, [group], stored, use_threads=False)
        while (batch := naming(path, lambda: next(batches, None))) is not None:
            arrays = []
            for name, type_ in types.items():
                if name in self.partitions:
                    value = self.partitions[name].value(index)
                    arrays.append(pa.repeat(pa.scalar(value, type_), batch.num_rows))
                else:
                    arrays.append(converted(batch.column(name), type_, name, path))
            yield pa.RecordBatch.from_arrays(arrays, names=list(types))

    def group_sizes(self) -> list[int]:
        """Return the bytes of each row group, uncompressed; of a source that is not yet narrowed."""
        return [size for footer in self.unchecked for size in footer.sizes]

    def path_of(self, position: int) -> str:
        """Return the path of a row group's file."""
        return self.files[self._groups[position].file].path

    def common_metadata(self, *, beside_files: bool = False) -> Mapping[bytes, bytes] | None:
        """Return what ``_common_metadata`` holds for others than Parquet; None without that file.

        Args:
            beside_files: For a file, or a list of files, look in the directory that holds them, or
                their partitions. Petastorm's ``make_reader`` takes such files for plain Parquet.

        Raises:
            DatasetError: The file is damaged.
        """
        directory = self._directory
        if directory is None or [file.path for file in self.files] == [directory]:
            if not beside_files:
                return None
            paths = [posixpath.dirname(file.path) for file in self.files]
            directory = posixpath.commonpath(paths)
            while "=" in posixpath.basename(directory):
                directory = posixpath.dirname(directory)
        path = posixpath.join(directory, COMMON_METADATA_NAME)
        if self._filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        with self._filesystem.open_input_file(path) as file:
            metadata = naming(path, lambda: parquet.read_metadata(file).metadata)
        return metadata or {}

    def row_groups_per_file(self) -> dict[str, int]:
        """Return how many row groups each file has that has any, by its path below the directory that was asked for."""
        assert self._directory is not None
        directory = self._filesystem.normalize_path(self._directory)
        counts = Counter(self.files[group.file].path for group in self._groups)
        return {posixpath.relpath(path, directory): count for path, count in counts.items()}

    def key(self, position: int) -> tuple[Any, ...]:
        file = self._groups[position].file
        return tuple(part.value(file) for part in self.partitions.values())


def _partitions(files: Sequence[File]) -> dict[str, Partition]:
    names = [name for name, _ in files[0].keys]
    for file in files:
        if [name for name, _ in file.keys] != names:
            raise ColumnsDifferError(
                f"{files[0].path} and {file.path} lie in different partitions: {files[0].keys} and "
                f"{file.keys}. All files of a table need the same partition columns."
            )
    return {
        name: Partition([file.keys[level][1] for file in files]) for level, name in enumerate(names)
    }
