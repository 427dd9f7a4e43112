"""Delta and Iceberg tables as sources of row groups: the live rows of their Parquet files, in place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import fs

from petastorm_bridge._blocks.columns import Column, NullFacts
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.errors import DatasetNotFoundError

from .far_parquet import MakeFar
from .files_source import FilesSource, Group
from .live_table import LiveColumn, LiveFile, LiveTable
from .parquet_files import File
from .parquet_reading import ParquetFiles, shown
from .parquet_schema import Footer
from .source import build_schema
from .table_formats import DELTA, TableFormatError, TablePlace

_FIELD_ID = b"PARQUET:field_id"


def open_table(place: TablePlace, make_far: MakeFar | None = None) -> TableSource:
    """Open the live rows of a table.

    Raises:
        TableFormatError: They cannot be told, the package that tells them is not installed, or the log
            names a file twice.
        DatasetNotFoundError: A data file is missing.
        DatasetError: One is damaged.
    """
    read: Callable[[TablePlace], LiveTable]
    try:
        if place.format is DELTA:
            from .delta import read_delta as read
        else:
            from .iceberg import read_iceberg as read
    except ImportError as error:
        raise place.not_installed() from error
    try:
        live = read(place)
    except TableFormatError:
        raise
    except Exception as error:
        reason = (
            f"Its metadata cannot be read with {place.format.package}: {str(error).rstrip('.')}."
        )
        raise place.refused(reason) from error
    # The same in every process.
    files = sorted(live.files, key=lambda file: file.path)
    for one, other in itertools.pairwise(files):
        # By two spellings, perhaps, which the log's own readers do not notice.
        if one.path == other.path:
            raise place.refused(f"It names {one.path} twice, whose rows would come twice.")
    return TableSource(place, replace(live, files=files), make_far)


class TableSource(FilesSource):
    """The live rows of a table, row group by row group of its files.

    Columns are those of the table, in its order and with its types, partition columns among them. A
    file that is older than a column has nulls there, or the column's default.

    Attributes:
        suffix: Behind the path without a version, names the very version that is read.
    """

    def __init__(self, place: TablePlace, live: LiveTable, make_far: MakeFar | None = None) -> None:
        self.suffix = live.suffix
        self.description = f"{masked(place.path)} ({place.format.name} version {live.version})"
        self._columns = {column.name: column for column in live.columns}
        files = _present_files(place, live.files)
        super().__init__(
            ParquetFiles(files, place.filesystem, make_far, coerce_int96_timestamp_unit="us")
        )
        footers = self.unchecked
        self._contents = [
            _contents(place, live.columns, file, footer.schema)
            for file, footer in zip(live.files, footers, strict=True)
        ]
        fields = [(column.name, column.type, column.nullable) for column in live.columns]
        self.schema, self.types = build_schema(fields)
        self.nulls = dict.fromkeys(self.types, NullFacts())
        self._groups = list(_live_groups(place, footers, live.files))
        self.row_counts = [
            footers[file].rows[number] if live is None else len(live)
            for file, number, live in self._groups
        ]

    def narrowed(self, names: Collection[str]) -> TableSource:
        """Return the source of some columns, with what all files say of nulls in them."""
        fields = [(n, self.types[n], self._columns[n].nullable) for n in self.types if n in names]
        source = self._of_columns(
            fields,
            [
                _renamed(footer.schema, contents.stored)
                for footer, contents in zip(self.unchecked, self._contents, strict=True)
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
            for name, facts in source.nulls.items()
        }
        return source

    def stored(self, file: int) -> Mapping[str, str]:
        return self._contents[file].stored

    def constant(self, file: int, name: str, rows: int) -> Column | None:
        """Return rows of a partition column, or of one that the file is older than."""
        value = self._contents[file].constants.get(name)
        if value is None:
            return None
        return shown(pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type))


@dataclass(frozen=True)
class _Contents:
    """Which columns one file holds.

    Attributes:
        stored: Names in the file by names in the table.
        constants: The columns that have one value all over the file.
    """

    stored: Mapping[str, str]
    constants: Mapping[str, pa.Scalar]


def _present_files(place: TablePlace, files: Sequence[LiveFile]) -> list[File]:
    """Return the files as they are now; remote ones are known by the log alone until they are read."""
    if not place.is_local:
        return [File(file.path, (), file.size, 0) for file in files]  # never written again
    infos = place.filesystem.get_file_info([file.path for file in files])
    for info in infos:
        if info.type != fs.FileType.File:
            raise DatasetNotFoundError(
                f"{info.path} holds rows of {place.root} and is not there, or is no file. A "
                "vacuum or an expiry of snapshots may have removed it: read a newer version."
            )
    return [File(info.path, (), info.size, info.mtime_ns) for info in infos]


def _contents(
    place: TablePlace, columns: Sequence[LiveColumn], file: LiveFile, schema: pa.Schema
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
        stored_name = None
        if by_id and column.field_id is not None:
            stored_name = by_id.get(column.field_id)
        elif column.stored_names:
            stored_name = next((name for name in column.stored_names if name in names), None)
        elif column.name not in file.constants:
            raise place.refused(
                f"{file.path} has no field ids, and the table has no name mapping that says which of "
                f"its columns is {column.name!r}."
            )
        if stored_name is not None:
            stored[column.name] = stored_name
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
    place: TablePlace, footers: Sequence[Footer], files: Sequence[LiveFile]
) -> Iterator[Group]:
    for number, (footer, file) in enumerate(zip(footers, files, strict=True)):
        try:
            deleted = None if file.deleted is None else file.deleted.mask(sum(footer.rows))
        except ValueError as error:
            raise place.refused(f"Of {file.path}, {error}.") from error
        start = 0
        for row_group, rows in enumerate(footer.rows):
            live = None
            if deleted is not None and deleted[start : start + rows].any():
                live = np.flatnonzero(~deleted[start : start + rows])
            yield Group(number, row_group, live)
            start += rows
