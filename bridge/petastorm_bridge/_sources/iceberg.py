"""Iceberg tables: what pyiceberg parses of metadata and manifests, without a catalog or Spark.

Metadata are data. pyiceberg's own way to open a table would take classes, endpoints and credentials from
their properties; here it parses bytes, which come from the file system that the table was found on.
"""

from __future__ import annotations

import bz2
import gzip
import io
import posixpath
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs, parquet
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.manifest import read_manifest_list
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import ManifestGroupPlanner
from pyiceberg.table.puffin import PuffinFile

from petastorm_bridge.mds.codecs import snappy_size

from .live_table import DeletedRows, LiveColumn, LiveFile, LiveTable
from .table_formats import TablePlace

_METADATA = ".metadata.json"
_ZIPPED_METADATA = ".gz.metadata.json"
# Bytes that each byte of a zipped metadata file may stand for, where it stands for many.
_MOST_UNZIPPED, _ALWAYS_UNZIPPED = 100, 64 << 20
_HINT = "version-hint.text"
# How many bytes a block of an Avro file is unpacked to, up to a limit.
_UNPACKED: dict[str, Callable[[bytes, int], int]] = {
    "deflate": lambda data, most: len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most)),
    "bzip2": lambda data, most: len(bz2.BZ2Decompressor().decompress(data, most)),
    "zstandard": lambda data, most: len(
        pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most)
    ),
    "snappy": lambda data, _: snappy_size(data),
}
_SYNC_BYTES = 16
_MOST_IN_BLOCKS, _ALWAYS_IN_BLOCKS = 100, 1 << 20


def _checked_records(content: bytes) -> int:
    """Return how many records pyiceberg reads of an Avro file.

    It takes a block without records for the last one, and unpacks any block.

    Raises:
        ValueError: The file does not end there, is damaged, or would be unpacked to any size.
    """
    decoder = new_decoder(content)
    header: Any = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    most = max(_ALWAYS_IN_BLOCKS, len(content) * _MOST_IN_BLOCKS)
    unpacked = _UNPACKED.get(header.meta.get("avro.codec"))
    records = 0
    is_ended = False
    while decoder.tell() < len(content):
        if is_ended:
            raise ValueError("a block without records is not the last one of a manifest")
        count = decoder.read_int()
        is_ended = count < 1
        records += max(count, 0)
        block = decoder.read_bytes()
        most -= len(block) if unpacked is None else unpacked(block, most + 1)
        if most < 0:
            raise ValueError(f"a manifest holds more than {_MOST_IN_BLOCKS} times its own size")
        if content[decoder.tell() : decoder.tell() + _SYNC_BYTES] != header.sync:
            raise ValueError("a block of a manifest is damaged or cut off")
        decoder.skip(_SYNC_BYTES)
    return records


class _Manifests:
    """What pyiceberg reads with: manifests in the table's directory, and nothing else.

    Args:
        place: The table.
        records: How many records files have at least, by the names that the table has for them.
    """

    def __init__(self, place: TablePlace, records: Mapping[str, int]) -> None:
        self._place = place
        self._records = records

    def new_input(self, location: str) -> Any:
        """Return what pyiceberg opens."""
        with self._place.open(self._place.inside(location)) as stream:
            content = stream.read()
        records = _checked_records(content)
        if records < self._records[location]:
            raise ValueError(f"{location} has {records} of {self._records[location]} records")
        return SimpleNamespace(location=location, open=lambda: io.BytesIO(content))


def read_iceberg(place: TablePlace) -> LiveTable:
    """Return the live files of a snapshot of an Iceberg table.

    Raises:
        TableFormatError: The snapshot does not exist, or files are outside of the table or are no
            Parquet files.
        Exception: pyiceberg cannot parse the metadata.
    """
    current = place.metadata or _current_metadata(place)
    metadata = _metadata(place, current)
    snapshot = _snapshot(place, metadata)
    columns = _columns(metadata, _schema(place, metadata, snapshot))
    if snapshot is None:
        return LiveTable(columns, [], None, "")
    files = list(_files(place, metadata, snapshot, columns))
    suffix = f"@v{snapshot.snapshot_id}"
    if not place.is_version and not place.below:
        suffix = "" if place.metadata else f"/metadata/{posixpath.basename(current)}"
    return LiveTable(columns, files, snapshot.snapshot_id, suffix)


def _current_metadata(place: TablePlace) -> str:
    """Return the path of the newest metadata file: the hint's, or that of the highest version."""
    infos = place.filesystem.get_file_info(fs.FileSelector(place.log))
    by_name = {info.base_name: info.path for info in infos if info.base_name.endswith(_METADATA)}
    with suppress(OSError, UnicodeDecodeError):
        with place.open(posixpath.join(place.log, _HINT)) as stream:
            hint = stream.read().decode().strip()
        for name in (hint, f"v{hint}{_METADATA}", f"{hint}{_METADATA}"):
            if name in by_name:
                return str(by_name[name])
    newest = max((_version_of(name), name) for name in by_name)
    return str(by_name[newest[1]])


def _metadata(place: TablePlace, path: str) -> Any:
    with place.open(path) as stream:
        if not path.endswith(_ZIPPED_METADATA):
            return FromByteStream.table_metadata(stream)
        most = max(_ALWAYS_UNZIPPED, stream.size() * _MOST_UNZIPPED)
        with gzip.open(stream) as unzipped:
            content = unzipped.read(most + 1)
    if len(content) > most:
        raise place.refused(f"{path} holds more than {_MOST_UNZIPPED} times its own size.")
    return FromByteStream.table_metadata(io.BytesIO(content))


def _version_of(name: str) -> int:
    """Return the number in ``v3.metadata.json`` and ``00003-….metadata.json``."""
    digits = re.match(r"v?(\d+)", name)
    return int(digits[1]) if digits else -1


def _snapshot(place: TablePlace, metadata: Any) -> Any:
    """Return the snapshot that was asked for; None if the table has no snapshot yet."""
    number = metadata.current_snapshot_id
    if place.version is not None:
        number = place.version
    elif place.moment is not None:
        asked = round(place.moment.timestamp() * 1000)
        then = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= asked]
        if not then:
            raise place.refused(f"Its oldest snapshot is newer than {place.moment.isoformat()}.")
        number = then[-1].snapshot_id
    elif number in (None, -1):
        return None
    snapshot = metadata.snapshot_by_id(number)
    if snapshot is None:
        known = ", ".join(str(snapshot.snapshot_id) for snapshot in metadata.snapshots)
        raise place.refused(f"It has no snapshot {number}, but {known or 'none'}.")
    return snapshot


def _schema(place: TablePlace, metadata: Any, snapshot: Any) -> Any:
    """Return today's schema for the current snapshot, and for a named one that of its time."""
    if snapshot is None or not place.is_version or snapshot.schema_id is None:
        return metadata.schema()
    schema = metadata.schema_by_id(snapshot.schema_id)
    if schema is None:
        raise place.refused(
            f"Its metadata name the schema {snapshot.schema_id}, and do not hold it."
        )
    return schema


def _columns(metadata: Any, schema: Any) -> list[LiveColumn]:
    mapping = metadata.name_mapping()
    entries = () if mapping is None else mapping.root
    names = {entry.field_id: tuple(entry.names) for entry in entries}
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
    place: TablePlace, metadata: Any, snapshot: Any, columns: Iterable[LiveColumn]
) -> Iterator[LiveFile]:
    properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
    # Files of rows, which a snapshot may say that it has, are named by some manifest.
    least = int(properties.get("total-data-files", "0") != "0")
    # Not the snapshot's own list of manifests, which another table may have put into a cache by path.
    listed = _Manifests(place, {snapshot.manifest_list: least})
    manifests = list(read_manifest_list(listed.new_input(snapshot.manifest_list)))
    if len({place.inside(manifest.manifest_path) for manifest in manifests}) < len(manifests):
        raise place.refused("Its list of manifests names one of them twice.")
    # What has no rows is told by its footer: a manifest that errs would take rows away, or bring deleted ones back.
    # As many entries as the list of manifests says, where it does.
    counts = ("added_files_count", "existing_files_count", "deleted_files_count")
    entries = {m.manifest_path: sum(getattr(m, n) or 0 for n in counts) for m in manifests}
    told: Any = _Manifests(place, entries)
    planner = ManifestGroupPlanner(metadata, told, options={"include_empty_files": "true"})
    planned = list(planner.plan_files(manifests))
    deleted = _deleted_rows(place, planned)
    by_id = {column.field_id: column for column in columns}
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    for task in planned:
        file = task.file
        if file.file_format.name != "PARQUET":
            raise place.refused(
                f"{file.file_path} is an {file.file_format.name} file; only Parquet is read here."
            )
        path = place.inside(file.file_path)
        values: Any = file.partition
        constants = {
            by_id[field.source_id].name: pa.scalar(value, by_id[field.source_id].type)
            for field, value in zip(specs[file.spec_id].fields, values, strict=True)
            if str(field.transform) == "identity" and field.source_id in by_id
        }
        if not place.below or path.startswith(f"{place.path}/"):
            size = file.file_size_in_bytes
            yield LiveFile(path, size, constants, deleted.get(file.file_path))


def _deleted_rows(place: TablePlace, tasks: Iterable[Any]) -> dict[str, DeletedRows]:
    """Return the rows that delete files take away, by the file's path in the log."""
    applies = defaultdict(set)
    for task in tasks:
        for delete in task.delete_files:
            applies[delete].add(task.file.file_path)
    parts: dict[str, list[Any]] = defaultdict(list)
    for delete, paths in applies.items():
        kind = delete.file_format.name
        if kind not in _DELETES:
            raise place.refused(f"{delete.file_path} holds deletes as {kind}, not read here.")
        with place.open(place.inside(delete.file_path)) as stream:
            for path, rows in _DELETES[kind](stream):
                if path in paths:
                    parts[path].append(rows)
    return {path: DeletedRows(of_path) for path, of_path in parts.items()}


def _vectors(stream: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and vectors in a file of deletion vectors."""
    puffin = PuffinFile(stream.read())
    for blob in puffin.footer.blobs:
        payload = puffin.get_blob_payload(blob)
        length = int.from_bytes(payload[:4], "big")  # of magic and bitmap; a checksum follows
        if len(payload) != length + 8:
            raise ValueError("a deletion vector is cut off")
        yield blob.properties["referenced-data-file"], payload[4 : 4 + length]


def _position_deletes(stream: Any) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the paths and positions in a Parquet file of them."""
    schema = pa.schema({"file_path": pa.string(), "pos": pa.int64()})
    for batch in parquet.ParquetFile(stream).iter_batches(columns=schema.names):
        if any(column.null_count for column in batch.columns):
            raise ValueError("a delete file holds a null for a path or a position")
        held = pa.table(batch).select(schema.names).cast(schema)
        # Any number of rows may say the same.
        by_path = held.group_by("file_path").aggregate([("pos", "distinct")])
        paths = by_path.column("file_path").to_pylist()
        for path, rows in zip(paths, by_path.column("pos_distinct"), strict=True):
            yield path, rows.values.to_numpy()


_DELETES: dict[str, Any] = {"PARQUET": _position_deletes, "PUFFIN": _vectors}
