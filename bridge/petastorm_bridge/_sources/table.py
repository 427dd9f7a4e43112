"""Delta and Iceberg tables as sources of row groups: the live rows of their Parquet files, in place."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from petastorm_bridge._blocks.columns import Column, NullFacts
from petastorm_bridge._secrets import masked
from petastorm_bridge.mds.errors import DatasetNotFoundError
from petastorm_bridge.mds.shard import Rows

from .delta import read_delta
from .far_parquet import MakeFar
from .live_table import LiveColumn, LiveFile, LiveTable
from .parquet_files import File
from .parquet_reading import ParquetFiles, naming, one_array, rows_of, shown
from .parquet_schema import ColumnsDifferError, Footer, null_facts
from .source import Near, RowGroup, build_schema
from .table_formats import DELTA
from .table_store import TableStore

__all__ = ["TableSource", "open_table"]

_FIELD_ID = b"PARQUET:field_id"


def open_table(store: TableStore, make_far: MakeFar | None = None) -> TableSource:
    """Open the live rows of a table.

    Args:
        store: Where it is.
        make_far: As of :class:`~.parquet.ParquetSource`.

    Raises:
        TableFormatError: They cannot be told.
        DatasetNotFoundError: A data file is missing.
        DatasetError: One is damaged.
    """
    place = store.place
    if place.format is DELTA:
        return TableSource(store, read_delta(store), make_far)
    try:
        from .iceberg import read_iceberg
    except ImportError as error:
        raise place.not_installed() from error
    return TableSource(store, read_iceberg(store), make_far)


class TableSource(Near):
    """The live rows of a table, row group by row group of its files.

    Columns are those of the table, in its order and with its types, partition columns among them. A
    file that is older than a column has nulls there, or the column's default.

    Attributes:
        suffix: Behind the path without a version, names the very version that is read.

    Args:
        store: Where the table is.
        live: What its log says.
        make_far: As of :class:`~.parquet.ParquetSource`.
    """

    partitions: Mapping[str, Any] = {}
    pandas_metadata: bytes | None = None

    def __init__(
        self,
        store: TableStore,
        live: LiveTable,
        make_far: MakeFar | None = None,
    ) -> None:
        place = store.place
        self.suffix = live.suffix
        self.description = f"{masked(place.path)} ({place.format.name} version {live.version})"
        self._columns = {column.name: column for column in live.columns}
        files = _present_files(store, live.files)
        self._files = ParquetFiles(
            files,
            None if store.is_local else store.filesystem,
            None if make_far is None else make_far(files),
            coerce_int96_timestamp_unit="us",
        )
        footers = self._files.read_footers() if files else []
        schemas = [footer.schema for footer in footers]
        self._contents = [
            _contents(store, live.columns, file, schema)
            for file, schema in zip(live.files, schemas, strict=True)
        ]
        fields = [(column.name, column.type, column.nullable) for column in live.columns]
        self.types: Mapping[str, pa.DataType]
        self.schema, self.types = build_schema(fields)
        self.nulls: Mapping[str, NullFacts] = dict.fromkeys(self.types, NullFacts())
        # Footer and schema of each file, until the source is narrowed.
        self._unchecked = list(zip(footers, schemas, strict=True))
        self._groups = list(_live_groups(store, footers, live.files))
        self.row_counts: Sequence[int] = [group.num_rows for group in self._groups]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_unchecked": []}  # large, and of no use once narrowed

    def narrowed(self, names: Collection[str]) -> TableSource:
        """Return the source of some columns, with what all files say of nulls in them."""
        source = copy.copy(self)
        fields = [(n, self.types[n], self._columns[n].nullable) for n in self.types if n in names]
        source.schema, source.types = build_schema(fields)
        found = null_facts(
            source.types,
            [
                (footer, _renamed(schema, contents.stored))
                for (footer, schema), contents in zip(self._unchecked, self._contents, strict=True)
            ],
        )
        lacking = {
            name
            for contents in self._contents
            for name, value in contents.constants.items()
            if not value.is_valid
        }
        source.nulls = {
            name: NullFacts(facts.rows or name in lacking, facts.elements)
            for name, facts in found.items()
        }
        source._unchecked = []  # noqa: SLF001 - our own copy
        return source

    def key(self, position: int) -> tuple[Any, ...]:  # noqa: ARG002 - there is one partition
        """Return nothing: partition columns are columns like the others."""
        return ()

    def open(self, position: int) -> RowGroup:
        """Return one row group; its file is opened when a column of it is needed."""
        return _TableGroup(self, self._groups[position])

    @property
    def is_far(self) -> bool:
        """Whether the files are far away."""
        return self._files.far is not None

    def want(self, position: int, *, is_for_others: bool = False) -> int:
        """Begin to fetch the columns of a row group; return how many bytes that takes."""
        group = self._groups[position]
        names = self._stored_names(group.file)
        return self._files.want(group.file, group.row_group, names, is_for_others=is_for_others)

    def bytes_here(self) -> int:
        """Return how many bytes the copies of far files take."""
        return self._files.bytes_here()

    def stop(self) -> None:
        """Drop what was wanted."""
        self._files.stop()

    def _stored_names(self, file: int) -> list[str]:
        """Return what the columns are called in a file that has them."""
        stored = self._contents[file].stored
        return [stored[name] for name in self.types if name in stored]

    def reader(self, file: int, row_group: int) -> Any:
        """Return what reads columns of a row group."""
        return self._files.open_group(file, row_group, self._stored_names(file))

    def is_cheap(self, position: int) -> bool:  # noqa: ARG002 - every row group is decoded
        """Return False: reading Parquet means decoding it."""
        return False

    def contents(self, file: int) -> _Contents:
        """Return which columns a file holds."""
        return self._contents[file]

    def read(self, reader: Any, file: int, row_group: int, name: str) -> pa.Array:
        """Return a column of all rows of a row group, deleted ones too, in the table's type."""
        path = self._files.files[file].path
        stored = self._contents[file].stored[name]
        table = naming(
            path, lambda: reader.read_row_group(row_group, columns=[stored], use_threads=False)
        )
        array = one_array(table.column(stored))
        target = self.types[name]
        if array.type == target:
            return array
        try:
            return array.cast(target)
        except pa.ArrowException as error:
            raise ColumnsDifferError(
                f"Column {name!r} of {path} is {array.type}, in the table {target}, and cannot be "
                f"converted: {error}"
            ) from error


@dataclass(frozen=True)
class _Contents:
    """Which columns one file holds.

    Attributes:
        stored: Names in the file by names in the table.
        constants: The columns that have one value all over the file.
    """

    stored: Mapping[str, str]
    constants: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class _LiveGroup:
    """One row group of a file.

    Attributes:
        file: Number of the file.
        row_group: Number of the row group in it.
        num_rows: Live rows.
        live: Positions of the live rows in the row group; None if all are.
    """

    file: int
    row_group: int
    num_rows: int
    live: npt.NDArray[np.int64] | None


class _TableGroup:
    """One row group; what was decoded is kept as long as the object."""

    def __init__(self, source: TableSource, group: _LiveGroup) -> None:
        self._source = source
        self._group = group
        self._decoded: dict[str, Column] = {}

    @cached_property
    def _reader(self) -> Any:
        return self._source.reader(self._group.file, self._group.row_group)

    def prefetch(self, names: Sequence[str]) -> None:
        """Do nothing: each column is read when it is asked for."""

    def load(self, name: str, rows: Rows) -> Column:
        """Return a column of some of the live rows."""
        source, group = self._source, self._group
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        constant = source.contents(group.file).constants.get(name)
        if constant is not None or not count:  # of no rows nothing needs to be read
            value = pa.scalar(None, source.types[name]) if constant is None else constant
            return shown(pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type))
        if name not in self._decoded:
            array = source.read(self._reader, group.file, group.row_group, name)
            live = array if group.live is None else array.take(pa.array(group.live))
            self._decoded[name] = shown(live)
        return rows_of(self._decoded[name], rows)


def _present_files(store: TableStore, files: Sequence[LiveFile]) -> list[File]:
    """Return the files as they are now; remote ones are known by the log alone until they are read."""
    if not store.is_local:
        return [File(file.path, (), file.size, 0) for file in files]  # never written again
    infos = store.filesystem.get_file_info([file.path for file in files])
    for info in infos:
        if info.type != fs.FileType.File:
            raise DatasetNotFoundError(
                f"{info.path} holds rows of {store.place.root} and is not there, or is no file. A "
                "vacuum or an expiry of snapshots may have removed it: read a younger version."
            )
    return [File(info.path, (), info.size, info.mtime_ns) for info in infos]


def _contents(
    store: TableStore, columns: Sequence[LiveColumn], file: LiveFile, schema: pa.Schema
) -> _Contents:
    by_id = {
        int(field.metadata[_FIELD_ID]): field.name
        for field in schema
        if field.metadata and _FIELD_ID in field.metadata
    }
    names = set(schema.names)
    stored = {}
    constants = {}
    for column in columns:
        found = None
        if by_id and column.field_id is not None:
            found = by_id.get(column.field_id)
        elif column.stored_names:
            found = next((name for name in column.stored_names if name in names), None)
        elif column.name not in file.constants:
            raise store.place.refused(
                f"{file.path} has no field ids, and the table has no name mapping that says which of "
                f"its columns is {column.name!r}."
            )
        if found is not None:
            stored[column.name] = found
        elif column.name in file.constants:
            constants[column.name] = file.constants[column.name]
        else:
            default = column.default
            constants[column.name] = pa.scalar(None, column.type) if default is None else default
    return _Contents(stored, constants)


def _renamed(schema: pa.Schema, stored: Mapping[str, str]) -> pa.Schema:
    """Return a file's schema with the table's names; what the table lacks gets names it cannot have."""
    names = {name: logical for logical, name in stored.items()}
    return pa.schema(
        [field.with_name(names.get(field.name, f"\0{field.name}")) for field in schema]
    )


def _live_groups(
    store: TableStore, footers: Sequence[Footer], files: Sequence[LiveFile]
) -> Iterator[_LiveGroup]:
    for number, (footer, file) in enumerate(zip(footers, files, strict=True)):
        try:
            deleted = None if file.deleted is None else file.deleted.mask(sum(footer.rows))
        except ValueError as error:
            raise store.place.refused(f"Of {file.path}, {error}.") from error
        start = 0
        for row_group, rows in enumerate(footer.rows):
            live = None
            if deleted is not None and deleted[start : start + rows].any():
                live = np.flatnonzero(~deleted[start : start + rows])
            yield _LiveGroup(number, row_group, rows if live is None else len(live), live)
            start += rows
