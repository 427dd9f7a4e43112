"""Delta tables: what deltalake reads from the log, without Spark and without reading a row."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from .delta_log import deleted_rows, refuse_foreign_sidecars
from .live_table import LiveColumn, LiveFile, LiveTable
from .table_place import TablePlace

# What a reader must honour for right rows, by the names of the protocol. The log itself (checkpoints,
# vacuums) is deltalake's business; types that the bridge does not know are left out with a warning.
_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
_OWN_CLOCK = "delta.enableInCommitTimestamps"
_MODE = "delta.columnMapping.mode"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_FIELD_ID = "delta.columnMapping.id"


def read_delta(place: TablePlace) -> LiveTable:
    """Return the live files of a version of a Delta table.

    Raises:
        TableFormatError: The version does not exist, the log names files outside of the table, or the
            table needs what is not honoured here.
        Exception: deltalake cannot read the log.
    """
    place.refuse_pipes(place.log)
    refuse_foreign_sidecars(place, 0 if place.moment else place.version)
    table = DeltaTable(place.url or place.root, place.version, place.delta_options() or None)
    if place.moment is not None:
        _go_back(place, table)
    _refuse_features(place, table.protocol().reader_features or ())
    columns = _columns(table)
    files = list(_files(place, table, columns))
    return LiveTable(columns, files, table.version(), f"@v{table.version()}")


def _go_back(place: TablePlace, table: Any) -> None:
    """Load the version that was the current one at a moment."""
    moment = place.moment
    assert moment is not None
    table.load_as_version(moment)
    if table.metadata().configuration.get(_OWN_CLOCK) == "true":
        return
    # deltalake gives the oldest version for any moment before it.
    log = posixpath.join(place.log, f"{table.version():020}.json")
    committed = place.filesystem.get_file_info([log])[0].mtime_ns
    if committed is not None and committed // 10**6 > round(moment.timestamp() * 1000):
        raise place.refused(f"Its oldest version is newer than {moment.isoformat()}.")


def _refuse_features(place: TablePlace, features: Iterable[str]) -> None:
    unknown = sorted(set(features) - _FEATURES)
    if unknown:
        raise place.refused(
            f"It uses the reader feature {', '.join(unknown)}, without which its rows would be wrong, "
            "and which is not read here."
        )


def _columns(table: Any) -> list[LiveColumn]:
    mode = table.metadata().configuration.get(_MODE, "none")
    schema = table.schema()
    described = json.loads(schema.to_json())["fields"]
    partitions = table.metadata().partition_columns
    columns = []
    for field, entry in zip(pa.schema(schema.to_arrow()), described, strict=True):
        metadata = entry["metadata"]
        stored = entry["name"] if mode == "none" else metadata[_PHYSICAL_NAME]
        field_id = metadata[_FIELD_ID] if mode == "id" else None
        columns.append(
            LiveColumn(entry["name"], field.type, bool(field.nullable), (stored,), field_id)
            if entry["name"] not in partitions
            else LiveColumn(entry["name"], field.type, bool(field.nullable), ())  # always the log's
        )
    return columns


def _files(place: TablePlace, table: Any, columns: Iterable[LiveColumn]) -> Iterator[LiveFile]:
    actions = pa.table(table.get_add_actions())
    paths = actions.column("path").to_pylist()
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    deleted = deleted_rows(place, table.version(), paths) if has_vectors else {}
    types = {column.name: column.type for column in columns}
    names = table.metadata().partition_columns
    values = actions.column("partition").combine_chunks() if names and len(actions) else None
    sizes = actions.column("size_bytes").to_pylist()
    for row, path in enumerate(paths):
        located = place.inside(unquote(path))
        constants = {}
        if values is not None:
            constants = {name: values[row][name].cast(types[name]) for name in names}
        if _is_asked(place, located, constants):
            yield LiveFile(located, sizes[row], constants, deleted.get(path))


def _is_asked(place: TablePlace, path: str, constants: Mapping[str, pa.Scalar]) -> bool:
    """Return whether a file belongs to the part of the table that was asked for.

    Directories ``key=value`` mean partitions, wherever the files of these lie; others, directories.
    """
    if not place.below:
        return True
    segments = [segment.partition("=") for segment in place.below.split("/")]
    if all(separator and name in constants for name, separator, _ in segments):
        return all(_text(constants[name]) == unquote(value) for name, _, value in segments)
    return path.startswith(f"{place.path}/")


def _text(value: pa.Scalar) -> str:
    """Return a partition's value as it stands in the name of its directory."""
    if not value.is_valid or value.as_py() == "":
        return "__HIVE_DEFAULT_PARTITION__"
    python = value.as_py()
    return str(python).lower() if isinstance(python, bool) else str(python)
