"""Parquet files as a source of row groups: what loose files and the live files of a table have in common."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge._blocks.pandas_metadata import noted_names
from petastorm_bridge.mds.shard import Rows

from ._far.fetch import Extent
from .parquet_reading import ParquetFiles, naming, one_array, rows_of, shown
from .parquet_schema import ColumnsDifferError, Footer, null_facts
from .source import RowGroup, Source, build_schema, number_of

if TYPE_CHECKING:
    from typing_extensions import Self


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
    """Row groups of Parquet files.

    Attributes:
        unchecked: The footer of each file, until the source is narrowed.
    """

    def __init__(self, files: ParquetFiles) -> None:
        self._files = files
        self._groups: Sequence[Group]
        self.ahead = None if files.far is None else files.far.ahead
        self.unchecked: Sequence[Footer] = files.read_footers() if files.files else []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "unchecked": []}  # large, and of no use once narrowed

    @abstractmethod
    def stored(self, file: int) -> Mapping[str, str]:
        """Return what a file calls the columns that it holds, by their names in the source."""

    @abstractmethod
    def constant(self, file: int, name: str, rows: int) -> Column | None:
        """Return rows of a column that has one value all over a file; None if the file holds the column."""

    def _of_columns(
        self, fields: Sequence[tuple[str, pa.DataType, bool]], schemas: Iterable[pa.Schema]
    ) -> Self:
        """Return the source of some columns, with what all files say of nulls in them."""
        source = copy.copy(self)
        source.schema, source.types = build_schema(fields)
        source.nulls = null_facts(source.types, zip(self.unchecked, schemas, strict=True))
        source.unchecked = []
        return source

    def path(self, file: int) -> str:
        """Return the path of one of the files."""
        return self._files.files[file].path

    def open(self, position: int) -> RowGroup:
        """Open one row group.

        Raises:
            DatasetNotFoundError: The file is gone.
            DatasetError: The file is damaged; or, on a local file system or mount, was replaced since the source was
                opened. Stores are not asked for that.
        """
        group = self._groups[position]
        reader = self._files.open_group(group.file, group.number, self._names_in(group.file))
        return _FileGroup(self, group, reader)

    def extents(self, position: int) -> Sequence[Extent]:
        file, number, _ = self._groups[position]
        return self._files.extents(file, number, self._names_in(file))

    def _names_in(self, file: int) -> list[str]:
        stored = self.stored(file)
        return [stored[name] for name in self.types if name in stored]


class _FileGroup:
    """One row group; what was decoded is kept as long as the object."""

    def __init__(self, source: FilesSource, group: Group, reader: parquet.ParquetFile) -> None:
        self._source = source
        self._group = group
        self._reader = reader
        self._stored = source.stored(group.file)
        self._decoded: dict[str, Column] = {}

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        missing = [n for n in names if n in self._stored and n not in self._decoded]
        if missing:  # all at once, which takes less time than one after the other
            stored = [self._stored[name] for name in missing]
            table = naming(self._source.path(self._group.file), lambda: self._table(stored))
            read = {name: table.column(self._stored[name]) for name in missing}
            del table  # what is decoded need not stay
            for name in missing:
                self._decoded[name] = self._decode(name, read.pop(name))
        return {name: self._column(name, rows) for name in names}

    def _column(self, name: str, rows: Rows) -> Column:
        constant = self._source.constant(self._group.file, name, number_of(rows))
        return rows_of(self._decoded[name], rows) if constant is None else constant

    def _table(self, stored: Sequence[str]) -> pa.Table:
        number = self._group.number
        table = self._reader.read_row_group(number, columns=stored, use_threads=False)
        rows = self._reader.metadata.row_group(number).num_rows
        if table.num_rows != rows:
            raise pa.ArrowInvalid(f"a row group of {rows} rows holds {table.num_rows}")
        return table

    def _decode(self, name: str, read: pa.ChunkedArray) -> Column:
        source = self._source
        array = converted(one_array(read), source.types[name], name, source.path(self._group.file))
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
