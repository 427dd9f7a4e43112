"""Parquet files as a source of row groups: what loose files and the live files of a table have in common."""

from __future__ import annotations

import inspect
import os
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge._blocks.pandas_metadata import noted_names
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.shard import Rows

from ._far.fetch import Extent
from .far_parquet import MakeFar
from .parquet_files import File
from .parquet_reading import naming, rows_of, shown
from .parquet_schema import ColumnsDifferError, Footer, Schemas, null_facts
from .source import RowGroup, Source, build_schema, number_of

if TYPE_CHECKING:
    from typing_extensions import Self

_TRIED = 16  # files of a near directory that are read before threads are started, which help only if disks are slow
# Pages carry checksums, which Spark writes and Arrow compares from release 15 on.
_CHECKSUMS: dict[str, Any] = (
    {"page_checksum_verification": True}
    if "page_checksum_verification" in inspect.signature(parquet.ParquetFile).parameters
    else {}
)


class Group(NamedTuple):
    """One row group of a file.

    Attributes:
        file: Number of the file.
        number: Number of the row group in it.
        live: Positions of the rows that are not deleted; None if none is.
    """

    file: int
    number: int
    live: npt.NDArray[np.int64] | None = None


class FilesSource(Source):
    """Row groups of Parquet files, which are opened again and again.

    Pickles without footers, which are large and quickly read again.

    Args:
        files: What was found when the table was opened.
        filesystem: Where they are.
        make_far: Makes what fetches columns of files that are far away; None for near ones.
        options: Of ``pyarrow.parquet.ParquetFile``.

    Attributes:
        files: As given.
        stored: What each file calls the columns that it holds, by their names in the source.
        unchecked: The footer of each file, until the source is narrowed.

    Raises:
        DatasetError: A file is damaged or no Parquet file, or is gone.
    """

    stored: Sequence[Mapping[str, str]]
    _groups: Sequence[Group]
    _lacking: Collection[str] = ()  # columns that some file has nothing but nulls for

    def __init__(
        self,
        files: Sequence[File],
        filesystem: fs.FileSystem,
        make_far: MakeFar | None = None,
        **options: Any,
    ) -> None:
        self.files = files
        self._filesystem = filesystem
        self._options = {**_CHECKSUMS, **options}
        self._far = None if make_far is None else make_far(files)
        self.ahead = None if self._far is None else self._far.ahead
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        # Another file may come in the place of one, with its size and time. On mounts inodes may change by themselves.
        self._inodes: dict[int, int] = {}
        self._footers: dict[int, Any] = {}
        self.unchecked: Sequence[Footer] = self._read_footers()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "unchecked": [], "_footers": {}}

    @abstractmethod
    def constant(self, file: int, name: str, rows: int) -> Column:
        """Return rows of a column that a file does not hold: it has one value all over the file."""

    def types_of(self, names: Collection[str]) -> Mapping[str, pa.DataType]:  # noqa: ARG002 - of all
        """Return the types of columns in which the files have to agree."""
        return self.types

    def narrowed(self, names: Collection[str]) -> Self:
        types = self.types_of(names)
        fields = self.schema.fields.values()
        source = object.__new__(type(self))  # a copy would be without the footers, as pickles are
        vars(source).update(vars(self), unchecked=[])
        source.schema, source.types = build_schema(
            [(f.name, types[f.name], bool(f.nullable)) for f in fields if f.name in names]
        )
        footers = zip(self.unchecked, self.stored, strict=True)
        source.nulls = null_facts(source.types, footers, self._lacking)
        return source

    def metadata(self, file: int) -> Any:
        """Return the whole footer of one of the files."""
        return self._footers.get(file) or self._open(file).metadata

    def open(self, position: int) -> RowGroup:
        """Open one row group.

        Raises:
            DatasetNotFoundError: The file is gone.
            DatasetError: The file is damaged; or, on a local file system or mount, was replaced since the source was
                opened. Stores are not asked for that.
        """
        group = self._groups[position]
        self._check_unchanged(group.file)
        source = None if self._far is None else self._far.open(*self._wanted(position))
        return _FileGroup(self, group, self._open(group.file, source))

    def extents(self, position: int) -> Sequence[Extent]:
        return () if self._far is None else self._far.extents(*self._wanted(position))

    def _wanted(self, position: int) -> tuple[int, Any, int, list[str]]:
        """Return what is read: the number of a file, its footer, the number of a row group, names of columns in it."""
        file, number, _ = self._groups[position]
        stored = self.stored[file]
        names = [stored[name] for name in self.types if name in stored]
        return file, self.metadata(file), number, names

    def _read_footers(self) -> list[Footer]:
        """Return what is wanted of every file's footer."""
        schemas = Schemas()
        folders = {os.path.dirname(file.path) for file in self.files}
        is_near = self._is_local and not any(map(is_far, folders))

        def read(file: int) -> Footer:
            path = self.files[file].path
            if is_near:
                self._inodes[file] = naming(path, lambda: os.stat(path).st_ino)
            metadata = self._open(file).metadata
            return naming(path, lambda: Footer(metadata, schemas, is_kept=file in self._footers))

        numbers = range(len(self.files))
        tried = numbers[:_TRIED] if is_near else []
        wall, cpu = time.perf_counter(), time.thread_time()
        footers = [read(file) for file in tried]
        is_waiting = time.perf_counter() - wall > 2 * (time.thread_time() - cpu)
        # Without requests and slow disks threads would only wait for each other.
        return footers + each_at_once(read, numbers[len(tried) :], is_far=not tried or is_waiting)

    def _open(self, file: int, source: Any = None, *, buffer_size: int = 0) -> parquet.ParquetFile:
        """Open one of the files, from its path unless something else has its bytes.

        The footers of several row groups are kept, and those of far files.
        """
        path = self.files[file].path
        if source is None:
            opened = self._filesystem.open_input_file
            source = naming(path, lambda: opened(path)) if self._is_local else opened(path)
        reader = naming(
            path,
            lambda: parquet.ParquetFile(
                source,
                metadata=self._footers.get(file),
                pre_buffer=False,
                buffer_size=buffer_size,
                **self._options,
            ),
        )
        # Parsing a footer takes time with its row groups, of which each would need one parse.
        if self._far is not None or reader.num_row_groups > 1:
            self._footers[file] = reader.metadata
        return reader

    def _check_unchanged(self, number: int) -> None:
        if not self._is_local:
            return
        file = self.files[number]
        status = naming(file.path, lambda: os.stat(file.path))
        known = (file.size, file.mtime, self._inodes.get(number, status.st_ino))
        if known != (status.st_size, status.st_mtime_ns, status.st_ino):
            raise DatasetError(
                f"{file.path} was written again while it was being read. Start anew, so that all rows are "
                "of the same file."
            )


class _FileGroup:
    """One row group; what was decoded is kept as long as the object."""

    def __init__(self, source: FilesSource, group: Group, reader: parquet.ParquetFile) -> None:
        self._source = source
        self._group = group
        self._reader = reader
        self._decoded: dict[str, Column] = {}

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        source, file = self._source, self._group.file
        stored = source.stored[file]
        missing = [name for name in names if name in stored and name not in self._decoded]
        if missing:  # all at once, which takes less time than one after the other
            columns = [stored[name] for name in missing]
            table = naming(source.files[file].path, lambda: self._table(columns))
            read = {name: table.column(stored[name]) for name in missing}
            del table  # what is decoded need not stay
            for name in missing:
                self._decoded[name] = self._decode(name, read.pop(name))
        return {
            name: rows_of(self._decoded[name], rows)
            if name in stored
            else source.constant(file, name, number_of(rows))
            for name in names
        }

    def _table(self, columns: Sequence[str]) -> pa.Table:
        number = self._group.number
        table = self._reader.read_row_group(number, columns=columns, use_threads=False)
        rows = self._reader.metadata.row_group(number).num_rows
        if table.num_rows != rows:
            raise pa.ArrowInvalid(f"a row group of {rows} rows holds {table.num_rows}")
        return table

    def _decode(self, name: str, read: pa.ChunkedArray) -> Column:
        source = self._source
        array = read.chunk(0) if read.num_chunks == 1 else read.combine_chunks()
        array = converted(array, source.types[name], name, source.files[self._group.file].path)
        if self._group.live is not None:
            array = array.take(pa.array(self._group.live))
        # pandas' own dtypes tell a null from NaN, which NumPy's numbers do not.
        noted = noted_names(source.pandas_metadata)
        return array if array.null_count and name in noted else shown(array)


def converted(array: pa.Array, target: pa.DataType, name: str, path: str) -> pa.Array:
    """Return a column of a file in the type that it has in the whole source.

    Raises:
        ColumnsDifferError: It cannot be converted.
    """
    if array.type == target:
        return array
    try:
        return array.cast(target)
    except pa.ArrowException as error:
        raise ColumnsDifferError(
            f"Column {name!r} of {path} is {array.type}, in the table {target}, and "
            f"cannot be converted: {error}"
        ) from error
