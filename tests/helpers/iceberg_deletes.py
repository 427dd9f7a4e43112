"""Iceberg snapshots that take rows away by delete files: what pyiceberg reads and does not write."""

import json
import os
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record

_MAGIC = b"PFA1"


def delete_rows(
    table,
    data_path,
    rows,
    *,
    kind="PARQUET",
    content=DataFileContent.POSITION_DELETES,
    named=None,
):
    """Commit a delete file by hand, as a new metadata file beside the table's.

    Args:
        table: The ``pyiceberg`` table.
        data_path: The data file, as the table names it.
        rows: Positions in it.
        kind: Of the delete file, ``"PARQUET"`` or ``"PUFFIN"``.
        content: What the manifest says that the file holds.
        named: What the manifest calls the file; the one that is written if None.
    """
    root = table.location().removeprefix("file://")
    with open(table.metadata_location.removeprefix("file://")) as stream:
        metadata = json.load(stream)
    sequence, snapshot = metadata["last-sequence-number"] + 1, 77
    path = f"{root}/data/deletes.{kind.lower()}"
    if kind == "PARQUET":
        held = {"file_path": [data_path] * len(rows), "pos": pa.array(rows, pa.int64())}
        pq.write_table(pa.table(held), path)
    else:
        with open(path, "wb") as stream:
            stream.write(_puffin(data_path, rows, snapshot, sequence))
    bounds = {2147483546: data_path.encode()}
    file = DataFile.from_args(
        content=content, file_path=named or f"file://{path}", file_format=FileFormat[kind],
        partition=Record(), record_count=len(rows), file_size_in_bytes=os.path.getsize(path),
        lower_bounds=bounds, upper_bounds=bounds, equality_ids=None,
    )  # fmt: skip
    io = PyArrowFileIO()
    output = io.new_output(f"file://{root}/metadata/deletes-m0.avro")
    with _Deletes(table.spec(), table.schema(), output, snapshot, "deflate") as manifest:
        manifest.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=file
            )
        )
    current = table.current_snapshot()
    manifests = [*current.manifests(table.io), manifest.to_manifest_file()]
    listing = f"file://{root}/metadata/snap-deletes.avro"
    with write_manifest_list(
        2, io.new_output(listing), snapshot, current.snapshot_id, sequence, "deflate"
    ) as written:
        written.add_manifests(manifests)
    entry = {"snapshot-id": snapshot, "sequence-number": sequence, "manifest-list": listing}
    entry |= {"timestamp-ms": current.timestamp_ms + 1, "summary": {"operation": "delete"}}
    metadata["snapshots"].append(entry | {"schema-id": table.schema().schema_id})
    metadata |= {"current-snapshot-id": snapshot, "last-sequence-number": sequence}
    metadata["refs"]["main"]["snapshot-id"] = snapshot
    with open(f"{root}/metadata/00099-by-hand.metadata.json", "w") as stream:
        json.dump(metadata, stream)


class _Deletes(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def _puffin(data_path, rows, snapshot, sequence):
    """Return a file with one deletion vector."""
    positions = np.asarray(rows, "<u2")
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16) + positions.tobytes()
    vector = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap
    blob = struct.pack(">I", len(vector)) + vector + bytes(4)
    told = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": snapshot}
    told |= {"sequence-number": sequence, "offset": 4, "length": len(blob)}
    told["properties"] = {"referenced-data-file": data_path, "cardinality": str(len(rows))}
    footer = json.dumps({"blobs": [told]}).encode()
    return _MAGIC + blob + _MAGIC + footer + struct.pack("<II", len(footer), 0) + _MAGIC
