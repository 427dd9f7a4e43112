"""Logs of Delta tables written by hand: what deltalake reads and does not write."""

import json
import os
import struct

import numpy as np
import pyarrow.parquet as pq

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def write_table(root, fields, files, *, features=(), partitions=(), configuration=None, rows=4):
    """Write one version of a table.

    Args:
        root: Directory of the table, a path.
        fields: The schema's fields, as the protocol has them in JSON.
        files: By path in the log, which is relative to the directory or a URI: the ``pyarrow.Table``
            to write there or None, and what the log is to say besides.
        features: Reader features.
        partitions: Names of partition columns.
        configuration: Properties of the table.
        rows: Of each row group.
    """
    (root / "_delta_log").mkdir(parents=True, exist_ok=True)
    schema = {"type": "struct", "fields": fields}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    metadata = {
        "id": "5861c903-7efc-41f5-bc42-56508a5bd183",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partitions),
        "createdTime": 0,
        "configuration": configuration or {},
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    for path, (table, told) in files.items():
        count, size = 0, 1
        if table is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, root / path, row_group_size=rows)
            count, size = table.num_rows, os.path.getsize(root / path)
        add = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 0}
        add |= {"dataChange": True, "stats": json.dumps({"numRecords": count})}
        actions.append({"add": add | told})
    log = root / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def field(name, kind, **metadata):
    """Return one field of a schema."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def deletion_vector(rows):
    """Return what an add action says of deleted rows: a portable roaring bitmap in the log itself."""
    positions = np.asarray(rows, "<u2")
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(positions) - 1, 16) + positions.tobytes()
    payload = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    return stored_vector(payload, len(positions))


def stored_vector(payload, count):
    """Return what an add action says of deleted rows that are a bitmap, ``payload``, in the log itself."""
    told = {"storageType": "i", "pathOrInlineDv": base85(payload), "sizeInBytes": len(payload)}
    return {"deletionVector": told | {"cardinality": count}}


def base85(payload):
    """Return bytes in the alphabet of ZeroMQ, which the protocol takes."""
    padded = payload + bytes(-len(payload) % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", padded):
        text += "".join(_DIGITS[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text
