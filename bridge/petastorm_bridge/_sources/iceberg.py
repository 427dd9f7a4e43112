"""Iceberg tables: what pyiceberg reads from metadata and manifests, without a catalog or Spark."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs, parquet

from .live_table import LiveColumn, LiveFile, LiveTable
from .table_formats import TableFormatError, TablePlace
from .table_store import TableStore

__all__ = ["read_iceberg"]

_METADATA = ".metadata.json"
_HINT = "version-hint.text"


def read_iceberg(store: TableStore) -> LiveTable:
    """Return the live files of a snapshot of an Iceberg table, in the order of their paths.

    Raises:
        TableFormatError: pyiceberg is not installed or cannot plan the table, the snapshot does not
            exist, or files are in another store or are no Parquet files.
    """
    place = store.place
    try:
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise place.not_installed() from error
    try:
        store.refuse_pipes()
        current = place.metadata or _current_metadata(store)
        location = (
            current if store.url is None else f"{store.url}/metadata/{posixpath.basename(current)}"
        )
        table = StaticTable.from_metadata(location, store.options_of("pyiceberg"))
        snapshot = _snapshot(place, table)
        if snapshot is None:
            return LiveTable(_columns(table, table.schema()), [], None, "")
        is_named = place.version is not None or place.moment is not None
        # The current snapshot has today's schema, a named one that of its time.
        scan = table.scan(snapshot_id=snapshot) if is_named else table.scan()
        columns = _columns(table, scan.projection())
        files = _files(store, table, scan.plan_files(), columns)
        suffix = f"@v{snapshot}"
        if not is_named and not place.below:
            suffix = "" if place.metadata else f"/metadata/{posixpath.basename(current)}"
        return LiveTable(columns, sorted(files, key=lambda file: file.path), snapshot, suffix)
    except TableFormatError:
        raise
    except Exception as error:
        raise place.refused(
            f"Its metadata cannot be read with pyiceberg: {str(error).rstrip('.')}."
        ) from error


def _current_metadata(store: TableStore) -> str:
    """Return the path of the newest metadata file: the hint's, or that of the highest version."""
    folder = posixpath.join(store.place.root, "metadata")
    infos = store.filesystem.get_file_info(fs.FileSelector(folder))
    found = {info.base_name: info.path for info in infos if info.base_name.endswith(_METADATA)}
    with suppress(OSError, UnicodeDecodeError):
        with store.filesystem.open_input_stream(posixpath.join(folder, _HINT)) as stream:
            hint = stream.read().decode().strip()
        for name in (hint, f"v{hint}{_METADATA}", f"{hint}{_METADATA}"):
            if name in found:
                return str(found[name])
    newest = max((_version_of(name), name) for name in found)
    return str(found[newest[1]])


def _version_of(name: str) -> int:
    """Return the number in ``v3.metadata.json`` and ``00003-….metadata.json``."""
    digits = re.match(r"v?(\d+)", name)
    return int(digits[1]) if digits else -1


def _snapshot(place: TablePlace, table: Any) -> int | None:
    """Return the id of the snapshot that was asked for; None if the table has no snapshot yet."""
    if place.version is not None:
        if table.snapshot_by_id(place.version) is None:
            known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.metadata.snapshots)
            raise place.refused(f"It has no snapshot {place.version}, but {known or 'none'}.")
        return place.version
    if place.moment is not None:
        snapshot = table.snapshot_as_of_timestamp(round(place.moment.timestamp() * 1000))
        if snapshot is None:
            raise place.refused(f"Its oldest snapshot is younger than {place.moment.isoformat()}.")
        return int(snapshot.snapshot_id)
    current = table.metadata.current_snapshot_id
    if current in (None, -1):
        return None
    if table.snapshot_by_id(current) is None:
        raise place.refused(f"Its metadata name the snapshot {current}, and do not hold it.")
    return int(current)


def _columns(table: Any, schema: Any) -> list[LiveColumn]:
    mapping = table.name_mapping()
    names = (
        {} if mapping is None else {entry.field_id: tuple(entry.names) for entry in mapping.root}
    )
    columns = []
    for field, stored in zip(schema.fields, schema.as_arrow(), strict=True):
        type_ = _small(stored.type)
        default = field.initial_default
        columns.append(
            LiveColumn(
                field.name,
                type_,
                not field.required,
                names.get(field.field_id, ()),
                field.field_id,
                None if default is None else pa.scalar(default, type_),
            )
        )
    return columns


def _small(type_: pa.DataType) -> pa.DataType:
    """Return a type without the large offsets that pyiceberg always takes."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_large_list(type_) or pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_small(type_.value_type)))
    return type_


def _files(
    store: TableStore, table: Any, tasks: Iterable[Any], columns: Iterable[LiveColumn]
) -> Iterator[LiveFile]:
    planned = list(tasks)
    deleted = _deleted_rows(store, table, planned)
    by_id = {column.field_id: column for column in columns}
    specs = table.specs()
    for task in planned:
        file = task.file
        if file.file_format.name != "PARQUET":
            raise store.place.refused(
                f"{file.file_path} is an {file.file_format.name} file; only Parquet is read here."
            )
        path = store.absolute(file.file_path)
        constants = {
            by_id[field.source_id].name: pa.scalar(value, by_id[field.source_id].type)
            for field, value in zip(specs[file.spec_id].fields, file.partition, strict=True)
            if str(field.transform) == "identity" and field.source_id in by_id
        }
        if not store.place.below or path.startswith(f"{store.place.path}/"):
            size = file.file_size_in_bytes
            yield LiveFile(path, size, constants, deleted.get(file.file_path))


def _deleted_rows(
    store: TableStore, table: Any, tasks: Iterable[Any]
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the positions of the rows that delete files take away, by the file's path in the log."""
    applies = defaultdict(set)
    for task in tasks:
        for delete in task.delete_files:
            applies[delete].add(task.file.file_path)
    positions: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
    for delete, paths in applies.items():
        for path, rows in _read_deletes(store, table, delete):
            if path in paths:
                positions[path].append(rows)
    return {path: np.unique(np.concatenate(found)) for path, found in positions.items()}


def _read_deletes(
    store: TableStore, table: Any, delete: Any
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the paths and positions that one delete file holds."""
    kind = delete.file_format.name
    path = store.regular(store.absolute(delete.file_path))
    if kind == "PUFFIN":
        from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
        from pyiceberg.table.puffin import PuffinFile

        with table.io.new_input(delete.file_path).open() as stream:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
        for vector in vectors:
            rows = vector.to_vector().to_numpy()
            yield vector.referenced_data_file, rows.astype(np.int64)
    elif kind == "PARQUET":
        with store.filesystem.open_input_file(path) as stream:
            held = parquet.read_table(stream, columns=["file_path", "pos"])
        encoded = held.column("file_path").combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        rows = held.column("pos").to_numpy().astype(np.int64)[order]
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
        yield from zip(encoded.dictionary.to_pylist(), np.split(rows, ends[:-1]), strict=True)
    else:
        raise store.place.refused(f"{delete.file_path} holds deletes as {kind}, not read here.")
