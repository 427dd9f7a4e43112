"""Delta tables: what deltalake reads from the log, without Spark and without reading a row.

What the log names is looked at before deltalake follows it: it opens the checkpoints' sidecars itself, wherever the log
says that they are, a web address among them, and a pipe, for which it waits. Deletion vectors are read here.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs, parquet

from .live_table import DeletedRows, LiveColumn, LiveFile, LiveTable
from .table_formats import TablePlace

# What deltalake calls the options of s3fs.S3FileSystem.
_DELTA_OPTIONS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}
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

_SIDECARS = "_sidecars"
# What deltalake may take for a file of the log: rather too much than too little.
_NUMBERED = re.compile(r"([0-9]+)\..*(json|parquet)", re.DOTALL)
# What it takes for a whole checkpoint for certain, numbers of 64 bits.
_WHOLE_CHECKPOINT = re.compile(r"(0[0-8][0-9]{18})\.checkpoint\.parquet")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# Commits and checkpoints. What compacts some commits is a copy of them.
_TELLS_VERSION = re.compile(r"([0-9]{20})\.(json|checkpoint\..+)", re.DOTALL)
_BASE85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# A vector's file is named by 20 digits of an id, behind a directory of random letters or none.
_VECTOR_ID = re.compile(r"(?P<folder>[A-Za-z0-9_-]*)(?P<id>.{20})", re.DOTALL)
_ADDED = (
    ("add", "path"),
    *(
        ("add", "deletionVector", part)
        for part in ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    ),
)


def read_delta(place: TablePlace) -> LiveTable:
    """Return the live files of a version of a Delta table.

    Raises:
        TableFormatError: The version does not exist, the log names files outside of the table, or the
            table needs what is not honoured here.
        Exception: deltalake cannot read the log.
    """
    place.refuse_pipes(fs.FileSelector(place.log, recursive=True))
    # Before deltalake opens them. For a moment, every checkpoint may be the one that is read.
    list(_sidecars(place, _segment(place, 0 if place.moment else place.version)))
    table = DeltaTable(place.url or place.root, place.version, _options(place) or None)
    if place.moment is not None:
        _go_back(place, table)
    unknown = sorted({*(table.protocol().reader_features or ())} - _FEATURES)
    if unknown:
        raise place.refused(
            f"It uses the reader feature {', '.join(unknown)}, without which its rows would be wrong, "
            "and which is not read here."
        )
    columns = _columns(table)
    files = list(_files(place, table, columns))
    return LiveTable(columns, files, table.version(), f"@v{table.version()}")


def _options(place: TablePlace) -> dict[str, str]:
    """Return the user's options as deltalake calls them.

    deltalake also reads the environment variables of the stores. Names that are not fsspec's are
    taken to be deltalake's own.
    """
    given = {**place.options, **(place.options.get("client_kwargs") or {})}
    flat = {
        _DELTA_OPTIONS.get(name, name): str(value)
        for name, value in given.items()
        if isinstance(value, (str, int))
    }
    # MosaicML Streaming and boto3 call the endpoint so; neither asks for leave to use plain HTTP.
    endpoint = os.environ.get("S3_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and (place.url or "").startswith("s3"):
        flat.setdefault("AWS_ENDPOINT_URL", endpoint)
    if flat.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        flat.setdefault("AWS_ALLOW_HTTP", "true")
    return flat


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


def _columns(table: Any) -> list[LiveColumn]:
    mode = table.metadata().configuration.get(_MODE, "none")
    schema = table.schema()
    partitions = table.metadata().partition_columns
    columns = []
    for field, described in zip(pa.schema(schema.to_arrow()), schema.fields, strict=True):
        name, told = described.name, described.metadata
        stored: tuple[str, ...] = ()
        field_id = None
        if name not in partitions:  # which are always the log's
            stored = (name if mode == "none" else told[_PHYSICAL_NAME],)
            field_id = told[_FIELD_ID] if mode == "id" else None
        columns.append(LiveColumn(name, field.type, bool(field.nullable), stored, field_id))
    return columns


def _files(place: TablePlace, table: Any, columns: Iterable[LiveColumn]) -> Iterator[LiveFile]:
    actions = pa.table(table.get_add_actions())
    paths = actions.column("path").to_pylist()
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    deleted = _deleted_rows(place, table.version(), paths) if has_vectors else {}
    types = {column.name: column.type for column in columns}
    names = table.metadata().partition_columns
    values: Any = actions.column("partition") if names and paths else None
    sizes = actions.column("size_bytes").to_pylist()
    for row, path in enumerate(paths):
        located = place.inside(unquote(path))
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


def _deleted_rows(
    place: TablePlace, version: int, files: Collection[str]
) -> dict[str, DeletedRows]:
    """Return the rows that the deletion vectors of a version take away, by the log's names of files that have one.

    deltalake would make a list of booleans of each, as long as the vector says: one of 30 bytes can end the
    process. So deltalake only says which files are live.

    Raises:
        TableFormatError: A vector is in a file that is not the table's own, or that is a pipe or the like.
        ValueError: A vector is damaged, or a file is nowhere in the log.
    """
    latest: dict[str, tuple[Any, ...]] = {}
    for path in sorted(_segment(place, version), key=posixpath.basename):
        match = _TELLS_VERSION.match(posixpath.basename(path))
        if match and int(match[1]) <= version:
            for part in (path, *_sidecars(place, [path])):
                latest |= {name: vector for name, *vector in _fields(place, part, *_ADDED)}
    having = {name: latest[name] for name in files if latest[name][0] is not None}
    return {
        name: DeletedRows([_vector(place, *where)], count=count)
        for name, (*where, count) in having.items()
    }


def _vector(place: TablePlace, kind: str, name: str, offset: int | None, size: int) -> bytes:
    """Return a deletion vector that is in the log itself or in a file of the table's own."""
    if kind == "i":
        return _from_base85(name)[:size]
    plain = _VECTOR_ID.fullmatch(name)
    if kind != "u" or plain is None:
        raise place.outside(name)
    file = f"deletion_vector_{uuid.UUID(bytes=_from_base85(plain['id']))}.bin"
    path = posixpath.join(place.root, plain["folder"], file)
    with place.open(path) as stream:
        begin = offset or 0
        stored: bytes = stream.read_at(min(size, stream.size()) + 8, begin)
    vector = stored[4:-4]
    before, behind = (number.to_bytes(4, "big") for number in (size, zlib.crc32(vector)))
    if stored != before + vector + behind:
        raise ValueError(f"{path} has no deletion vector of {size} bytes at {begin}")
    return vector


def _from_base85(text: str) -> bytes:
    """Return the bytes behind a text in ZeroMQ's alphabet, five letters for four bytes."""
    if len(text) % 5:
        raise ValueError(f"a text of {len(text)} letters is no Z85")
    digits = [_BASE85.index(letter) for letter in text]
    words = np.asarray(digits, np.int64).reshape(-1, 5) @ (85 ** np.arange(4, -1, -1))
    return words.astype(">u4").tobytes()


def _segment(place: TablePlace, version: int | None) -> list[str]:
    """Return the files that may tell a version: from the last checkpoint in one file before it on."""
    infos = place.filesystem.get_file_info(fs.FileSelector(place.log))
    names = {info.base_name: info.path for info in infos}
    whole = [int(match[1]) for match in map(_WHOLE_CHECKPOINT.fullmatch, names) if match]
    start = max((number for number in whole if version is None or number <= version), default=0)
    numbered = {name: match for name in names if (match := _NUMBERED.fullmatch(name))}
    return [names[name] for name, match in numbered.items() if int(match[1]) >= start]


def _sidecars(place: TablePlace, segment: list[str]) -> Iterator[str]:
    """Yield the paths of the sidecars of checkpoints.

    Raises:
        TableFormatError: One is not in the log's own directory of them.
    """
    for path in segment:
        if ".checkpoint." not in posixpath.basename(path):
            continue
        for (name,) in _fields(place, path, ("sidecar", "path")):
            if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
                raise place.outside(str(name))
            yield posixpath.join(place.log, _SIDECARS, name)


def _fields(place: TablePlace, path: str, *fields: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield some fields of the actions in a file of the log that have the first of them."""
    rows: Iterable[tuple[Any, ...]]
    with place.open(path) as stream:
        if path.endswith(".parquet"):
            rows = _parquet_fields(parquet.ParquetFile(stream), [".".join(f) for f in fields])
        else:
            lines = stream.read().split(b"\n")
            actions = [_parsed(line) for line in lines if line.strip()]
            rows = [tuple(_at(action, field) for field in fields) for action in actions]
    return (row for row in rows if row[0] is not None)


def _parquet_fields(file: parquet.ParquetFile, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """Return the values of fields in rows that have the first, with None for those that a checkpoint does not have."""
    if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
        raise ValueError("a checkpoint has two columns of one name")
    table = file.read(columns=names).flatten().flatten()  # structs in a struct
    if names[0] not in table.column_names:
        return []
    table = table.filter(table.column(names[0]).is_valid())
    nothing = [None] * table.num_rows
    return zip(
        *(table.column(n).to_pylist() if n in table.column_names else nothing for n in names),
        strict=True,
    )


def _parsed(line: bytes) -> Any:
    """Return one action; a name that stands in it twice would let two readers see two logs."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("an action of the log has a name twice")
        return dict(pairs)

    return json.loads(line, object_pairs_hook=unique)


def _at(action: Any, field: tuple[str, ...]) -> Any:
    for name in field:
        action = action.get(name) if isinstance(action, dict) else None
    return action
