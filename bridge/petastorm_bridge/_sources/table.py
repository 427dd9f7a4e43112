"""Delta and Iceberg tables as sources of row groups: the live rows of their Parquet files, in place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyarrow import fs

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.errors import DatasetNotFoundError

from .far_parquet import MakeFar
from .files_source import FilesSource, Group
from .live_table import LiveColumn, LiveFile, LiveTable
from .parquet_files import File
from .parquet_reading import shown
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
        name = place.format.name.lower()
        raise place.refused(
            f"Which rows are live is read with {place.format.package}, which is not installed: pip "
            f"install 'petastorm-bridge[{name}]'."
        ) from error
    try:
        live = read(place)
    except TableFormatError:
        raise
    except Exception as error:
        raise place.refused(
            f"Its metadata cannot be read with {place.format.package}: {str(error).rstrip('.')}."
        ) from error
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
        files = _present_files(place, live.files)
        super().__init__(files, place.filesystem, make_far, coerce_int96_timestamp_unit="us")
        footers = self.unchecked
        fields = [(column.name, column.type, column.nullable) for column in live.columns]
        self.schema, self.types = build_schema(fields)
        self.stored = [
            _stored(place, live.columns, file, footer.schema)
            for file, footer in zip(live.files, footers, strict=True)
        ]
        self._constants = [
            {
                column.name: file.constants.get(column.name, column.default)
                for column in live.columns
                if column.name not in stored
            }
            for file, stored in zip(live.files, self.stored, strict=True)
        ]
        self._lacking = {
            name
            for constants in self._constants
            for name, value in constants.items()
            if value is None or not value.is_valid
        }
        self._groups = list(_live_groups(place, footers, live.files))
        self.row_counts = [
            footers[file].rows[number] if live is None else len(live)
            for file, number, live in self._groups
        ]

    def constant(self, file: int, name: str, rows: int) -> Column:
        """Return rows of a partition column, or of one that the file is older than."""
        value = self._constants[file][name]
        is_null = value is None or not value.is_valid
        return shown(pa.nulls(rows, self.types[name]) if is_null else pa.repeat(value, rows))


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


def _stored(
    place: TablePlace, columns: Sequence[LiveColumn], file: LiveFile, schema: pa.Schema
) -> dict[str, str]:
    """Return what a file calls the columns that it holds, by their names in the table."""
    by_id = {
        int(field.metadata[_FIELD_ID]): field.name
        for field in schema
        if field.metadata and _FIELD_ID in field.metadata
    }
    names = set(schema.names)
    stored = {}
    for column in columns:
        if by_id and column.field_id is not None:
            stored[column.name] = by_id.get(column.field_id)
        elif column.stored_names:
            stored[column.name] = next((n for n in column.stored_names if n in names), None)
        elif column.name not in file.constants:
            raise place.refused(
                f"{file.path} has no field ids, and the table has no name mapping that says which of "
                f"its columns is {column.name!r}."
            )
    return {name: stored_name for name, stored_name in stored.items() if stored_name is not None}


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
