"""What the log of a Delta table names, looked at before deltalake follows it.

deltalake opens the checkpoints' sidecars and the files of deletion vectors itself, wherever the log says
that they are: a web address among them, and a pipe, for which it waits.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
from pyarrow import fs, parquet

from .table_store import TableStore

__all__ = ["refuse_foreign_sidecars", "refuse_foreign_vectors"]

_SIDECARS = "_sidecars"
# What deltalake may take for a file of the log: rather too much than too little.
_NUMBERED = re.compile(r"([0-9]+)\..*(json|parquet)", re.DOTALL)
# What it takes for a whole checkpoint for certain, numbers of 64 bits.
_WHOLE_CHECKPOINT = re.compile(r"(0[0-8][0-9]{18})\.checkpoint\.parquet")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# A vector's file is named by 20 digits of an id, behind a directory of random letters or none.
_VECTOR_ID = re.compile(r"(?P<folder>[A-Za-z0-9_-]*).{20}", re.DOTALL)


def refuse_foreign_sidecars(store: TableStore, version: int | None) -> None:
    """Raise if a checkpoint has sidecars that are not in the log's own directory of them.

    Args:
        store: The table.
        version: Which is read, None for the current one; 0 looks at every checkpoint.

    Raises:
        TableFormatError: One has.
    """
    for _ in _sidecars(store, _segment(store, version)):
        pass


def refuse_foreign_vectors(store: TableStore, version: int) -> None:
    """Raise if a version has deletion vectors in files that are not the table's own.

    Raises:
        TableFormatError: One has, or such a file is a pipe or the like.
    """
    segment = _segment(store, version)
    folders = set()
    for path in [*segment, *_sidecars(store, segment)]:
        for kind, name in _vectors(store, path):
            plain = _VECTOR_ID.fullmatch(name)
            if kind == "i":
                continue
            if kind != "u" or plain is None:
                raise store.outside(name)
            folders.add(plain["folder"])
    for folder in folders:
        store.refuse_pipes(posixpath.join(store.place.root, folder), recursive=False)


def _segment(store: TableStore, version: int | None) -> list[str]:
    """Return the files that may tell a version: from the last checkpoint in one file before it on."""
    infos = store.filesystem.get_file_info(fs.FileSelector(store.log))
    names = {info.base_name: info.path for info in infos}
    whole = [int(match[1]) for match in map(_WHOLE_CHECKPOINT.fullmatch, names) if match]
    start = max((number for number in whole if version is None or number <= version), default=0)
    numbered = {name: match for name in names if (match := _NUMBERED.fullmatch(name))}
    return [names[name] for name, match in numbered.items() if int(match[1]) >= start]


def _sidecars(store: TableStore, segment: list[str]) -> Iterator[str]:
    """Yield the paths of the sidecars of checkpoints."""
    for path in segment:
        if ".checkpoint." not in posixpath.basename(path):
            continue
        for (name,) in _fields(store, path, ("sidecar", "path")):
            if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
                raise store.outside(str(name))
            yield posixpath.join(store.log, _SIDECARS, name)


def _vectors(store: TableStore, path: str) -> Iterator[tuple[str, str]]:
    """Yield where the vectors of added files are, and in what form that is told."""
    vector = ("add", "deletionVector")
    for kind, name in _fields(store, path, (*vector, "storageType"), (*vector, "pathOrInlineDv")):
        yield str(kind), str(name)


def _fields(store: TableStore, path: str, *fields: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield some fields of the actions in a file of the log that have the first of them."""
    with store.filesystem.open_input_file(store.regular(path)) as stream:
        if path.endswith(".parquet"):
            rows = _parquet_fields(parquet.ParquetFile(stream), fields)
        else:
            lines = stream.read().split(b"\n")
            actions = [_parsed(line) for line in lines if line.strip()]
            rows = [tuple(_at(action, field) for field in fields) for action in actions]
    return (row for row in rows if row[0] is not None)


def _parquet_fields(
    file: parquet.ParquetFile, fields: tuple[tuple[str, ...], ...]
) -> list[tuple[Any, ...]]:
    top = fields[0][0]
    if file.schema_arrow.get_field_index(top) < 0 and top in file.schema_arrow.names:
        raise ValueError(f"a checkpoint has two columns {top!r}")
    table = file.read(columns=[".".join(field) for field in fields])
    if not table.num_columns:
        return []
    column = table.column(top)
    values = [pc.struct_field(column, list(field[1:])) for field in fields]
    present = pc.is_valid(values[0])
    return list(zip(*(value.filter(present).to_pylist() for value in values), strict=True))


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
