"""A directory of MDS shards: committing one, opening one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from .collector import paused_collector
from .decode import column_array
from .encode import is_encoding_of
from .entry import ShardEntry
from .errors import DatasetError, DatasetNotFoundError
from .files import open_regular, write_whole
from .infer import inferred_schema
from .layout import ShardLayout
from .names import INDEX_NAME, check_file_names
from .schema import SIDECAR_NAME, ColumnStats, DatasetSchema, Field, companion_names
from .shard import Shard
from .writer import flags_needed, write_shard

__all__ = [
    "INDEX_NAME",
    "MdsDataset",
    "commit_dataset",
    "open_dataset",
    "parse_index",
    "read_index",
    "read_table",
]

NullColumns = dict[str, tuple[bool, bool]]
Rewrite = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class MdsDataset:
    """An opened dataset directory.

    Attributes:
        directory: Local path.
        schema: The logical schema.
        shards: Index entries in row order.
    """

    directory: str
    schema: DatasetSchema
    shards: tuple[ShardEntry, ...]

    @property
    def num_rows(self) -> int:
        """Rows in all shards (or in the sidecar, for a dataset without storable columns)."""
        if not self.shards and self.schema.num_rows is not None:
            return self.schema.num_rows
        return sum(shard.samples for shard in self.shards)

    def open_shard(self, position: int) -> Shard:
        """Open one shard; see :class:`Shard` for what can go wrong."""
        return Shard(self.directory, self.shards[position])


def commit_dataset(
    directory: str,
    schema: pa.Schema,
    infos: Sequence[Mapping[str, Any]],
    extra: Mapping[str, Any] | None = None,
    *,
    num_rows: int | None = None,
    map_shards: Callable[[Rewrite, Iterable[dict[str, Any]]], Iterable[dict[str, Any]]] = map,
) -> DatasetSchema:
    """Make the shards written to ``directory`` a dataset; it is visible from the last step on.

    Null flags are stored only by shards whose column holds nulls. When some shards of a column
    have them and others do not, the others are written again with flags, so that every sample of
    the dataset has the same keys for stock readers.

    Args:
        directory: Holds the shard files; gets the sidecar, then ``index.json`` by an atomic rename.
        schema: Arrow schema of the logical columns, in table order.
        infos: What :meth:`ShardWriter.finish` returned, in row order.
        extra: JSON-able facts to keep in the sidecar.
        num_rows: Rows, where they cannot be counted from shards (no storable column).
        map_shards: Runs the rewriting of shards, given the function and the shards concerned; a
            caller may spread it over machines. The function and its arguments pickle.

    Raises:
        OSError: Something cannot be written; no index is visible then.
    """
    null_columns = _union_of_flags(schema, infos)
    lacking = [i for i, info in enumerate(infos) if _lacks_flags(schema, info, null_columns)]
    final = [dict(info) for info in infos]
    superseded = [final[i] for i in lacking]
    if lacking:
        rewritten = map_shards(_Rewrite(directory, schema, null_columns), superseded)
        for i, info in zip(lacking, rewritten, strict=True):
            final[i] = info
    companions = companion_names(schema.names)
    fields = tuple(
        Field(
            f.name,
            f.type,
            null_column=companions[f.name][0] if null_columns[f.name][0] else None,
            element_null_column=companions[f.name][1] if null_columns[f.name][1] else None,
        )
        for f in schema
    )
    rows = sum(int(info["index"]["samples"]) for info in final)
    described = DatasetSchema(
        fields, _sum_stats(schema, final), rows if num_rows is None else num_rows, extra or {}
    )
    # What makes a dataset of the files waits for the disk; shards, which are many times larger, are
    # compared with their sizes and hashes whenever they are read.
    sidecar = [described.to_json().encode()]
    write_whole(os.path.join(directory, SIDECAR_NAME), sidecar, is_durable=True)
    index = {"version": 2, "shards": [info["index"] for info in final]}
    text = json.dumps(index, sort_keys=True).encode()
    write_whole(os.path.join(directory, INDEX_NAME), [text], is_durable=True)
    for info in superseded:
        for name in ShardEntry.from_json(info["index"], directory).basenames:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(directory, name))
    return described


class _Rewrite:
    """Writes one shard again with null flags for more columns."""

    def __init__(self, directory: str, schema: pa.Schema, null_columns: NullColumns) -> None:
        self.directory = directory
        self.schema = schema
        self.null_columns = null_columns

    def __call__(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the new info. The old file stays: where tasks are retried, this may run twice."""
        entry = ShardEntry.from_json(info["index"], self.directory)
        companions = companion_names(self.schema.names)
        fields = [
            Field(f.name, f.type, None, companions[f.name][0], companions[f.name][1])
            for f in self.schema
        ]
        shard = Shard(self.directory, entry)
        arrays = [column_array(shard, field, slice(None)) for field in fields]
        base, extension = os.path.splitext(entry.basenames[0])
        written = write_shard(
            pa.Table.from_arrays(arrays, schema=self.schema),
            os.path.join(self.directory, f"{base}.flags{extension}"),
            compression=entry.compression,
            hashes=tuple(info["index"]["hashes"]),
            size_limit=info["index"]["size_limit"],
            null_columns=self.null_columns,
        )
        # What was null in a column of floats is NaN by now, so the first count is the right one.
        return {"index": written["index"], "stats": info["stats"]}


def _flags_of(schema: pa.Schema, info: Mapping[str, Any], name: str) -> tuple[bool, bool]:
    stats = info["stats"][name]
    return flags_needed(schema.field(name).type, stats["nulls"], stats["element_nulls"])


def _union_of_flags(schema: pa.Schema, infos: Sequence[Mapping[str, Any]]) -> NullColumns:
    union: NullColumns = {}
    for name in schema.names:
        flags = [_flags_of(schema, info, name) for info in infos]
        union[name] = (any(f[0] for f in flags), any(f[1] for f in flags))
    return union


def _lacks_flags(schema: pa.Schema, info: Mapping[str, Any], wanted: NullColumns) -> bool:
    return any(_flags_of(schema, info, name) != wanted[name] for name in schema.names)


def _sum_stats(schema: pa.Schema, infos: Sequence[Mapping[str, Any]]) -> dict[str, ColumnStats]:
    return {
        name: ColumnStats(
            sum(info["stats"][name]["nulls"] for info in infos),
            sum(info["stats"][name]["element_nulls"] for info in infos),
        )
        for name in schema.names
    }


def read_index(directory: str) -> tuple[ShardEntry, ...]:
    """Return the shards that the index of a local directory lists; opens no other file.

    Raises:
        DatasetNotFoundError: There is no ``index.json``.
        DatasetError: It cannot be used.
    """
    path = os.path.join(os.path.abspath(directory), INDEX_NAME)
    return _parsed_index(path, _mark(path))


@lru_cache(maxsize=4)  # programs open the same few datasets for every epoch
def _parsed_index(
    path: str,
    mark: tuple[int, ...],  # noqa: ARG001 - part of the key
) -> tuple[ShardEntry, ...]:
    try:
        with open_regular(path) as file, paused_collector():
            shards = parse_index(file.read())["shards"]
            entries = tuple(ShardEntry.from_json(obj, path) for obj in shards)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"No MDS dataset at {os.path.dirname(path)}: {INDEX_NAME} is missing. It was deleted, never "
            "finished, or is not visible here yet."
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{path} is not a usable MDS index ({error}). Convert the DataFrame again."
        ) from error
    check_file_names((name for entry in entries for name in entry.basenames), path)
    return entries


def parse_index(text: bytes) -> dict[str, Any]:
    """Return the content of an index; its ``shards`` are a list of anything.

    Raises:
        ValueError, RecursionError: It is none of version 2.
    """
    index = json.loads(text)
    if not isinstance(index, dict) or not isinstance(index.get("shards"), list):
        raise ValueError("no list of shards")  # noqa: TRY004 - of the file, not of an argument
    if index.get("version") != 2:
        raise ValueError(f"version {index.get('version')!r}")
    return index


def open_dataset(directory: str, fetch: Callable[[ShardEntry], object] | None = None) -> MdsDataset:
    """Open a local MDS directory, with or without the bridge's sidecar.

    Args:
        directory: Holds the index.
        fetch: Brings a shard's file into the directory, where files come from elsewhere on demand.
            Only called when a column's type can be told from its values alone: no sidecar, and an
            ``ndarray`` column of varying shape or type.

    Raises:
        DatasetNotFoundError: There is no ``index.json``.
        DatasetError: The index or the sidecar cannot be read, or they and the shards do not match.
    """
    marks = tuple(_mark(os.path.join(directory, name)) for name in (INDEX_NAME, SIDECAR_NAME))
    shards, schema = _parsed(os.path.abspath(directory), marks)
    if schema is None:
        schema = inferred_schema(directory, shards, fetch)
    return MdsDataset(directory, schema, shards)


def _mark(path: str) -> tuple[int, ...]:
    """Return what changes when a file is written again."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _parsed(
    directory: str,
    marks: tuple[tuple[int, ...], ...],  # noqa: ARG001 - part of the key
) -> tuple[tuple[ShardEntry, ...], DatasetSchema | None]:
    shards = read_index(directory)
    sidecar = os.path.join(directory, SIDECAR_NAME)
    try:
        with open_regular(sidecar) as file:
            schema = DatasetSchema.from_json(file.read())
    except FileNotFoundError:
        return shards, None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{sidecar} cannot be used: {error}") from error
    _check_schema(sidecar, schema, shards)
    return shards, schema


def _check_schema(sidecar: str, schema: DatasetSchema, shards: tuple[ShardEntry, ...]) -> None:
    """Check that a sidecar describes the shards beside it: it may be another dataset's."""
    rows = sum(shard.samples for shard in shards)
    if schema.num_rows != rows and (shards or schema.fields):  # without columns: no shards
        raise _other_sidecar(sidecar, f"{schema.num_rows} rows there, {rows} in the index")
    checked: set[ShardLayout] = set()
    for shard in shards:
        if shard.layout not in checked:
            checked.add(shard.layout)
            encodings = dict(zip(shard.layout.names, shard.layout.encodings, strict=True))
            for name, type_ in _stored_types(schema):
                if not is_encoding_of(type_, encodings.pop(name, "")):
                    found = dict(zip(shard.layout.names, shard.layout.encodings, strict=True))
                    raise _other_sidecar(
                        sidecar,
                        f"column {name!r} is {type_} there, {found.get(name, 'missing')} in "
                        f"{shard.basenames[0]}",
                    )
            if encodings:
                raise _other_sidecar(
                    sidecar, f"columns {sorted(encodings)} of {shard.basenames[0]} are not there"
                )


def _stored_types(schema: DatasetSchema) -> list[tuple[str, pa.DataType]]:
    flags = [(f.null_column, pa.uint8()) for f in schema.fields]
    flags += [(f.element_null_column, pa.list_(pa.uint8())) for f in schema.fields]
    columns = [(f.name, f.type) for f in schema.fields]
    return columns + [(name, type_) for name, type_ in flags if name is not None]


def _other_sidecar(sidecar: str, found: str) -> DatasetError:
    return DatasetError(
        f"{sidecar} does not describe the shards beside it: {found}. If the directory was written "
        "again by another program, delete that file; otherwise convert the DataFrame again."
    )


def read_table(dataset: MdsDataset) -> pa.Table:
    """Return a whole dataset as one Arrow table (for small data and tests)."""
    schema = pa.schema([pa.field(f.name, f.type) for f in dataset.schema.fields])
    tables = []
    for position in range(len(dataset.shards)):
        shard = dataset.open_shard(position)
        arrays = [column_array(shard, f, slice(None)) for f in dataset.schema.fields]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()
