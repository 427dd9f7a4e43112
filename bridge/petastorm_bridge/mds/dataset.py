"""A directory of MDS shards: committing one, opening one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .decode import column_array, logical_type
from .errors import DatasetError, DatasetNotFoundError
from .schema import SIDECAR_NAME, ColumnStats, DatasetSchema, Field, companion_names
from .shard import Shard, ShardEntry
from .writer import flags_needed, write_shard

__all__ = ["INDEX_NAME", "MdsDataset", "commit_dataset", "open_dataset", "read_table"]

INDEX_NAME = "index.json"

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
    if lacking:
        rewrite = _Rewrite(directory, schema, null_columns)
        rewritten = map_shards(rewrite, [final[i] for i in lacking])
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
    _write_text(os.path.join(directory, SIDECAR_NAME), described.to_json())
    index = {"version": 2, "shards": [info["index"] for info in final]}
    _write_text(os.path.join(directory, INDEX_NAME), json.dumps(index, sort_keys=True))
    return described


class _Rewrite:
    """Writes one shard again with null flags for more columns."""

    def __init__(self, directory: str, schema: pa.Schema, null_columns: NullColumns) -> None:
        self.directory = directory
        self.schema = schema
        self.null_columns = null_columns

    def __call__(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the new info; the old file is deleted."""
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
        for name in entry.basenames:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.directory, name))
        return written


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


def _sum_stats(
    schema: pa.Schema, infos: Sequence[Mapping[str, Any]]
) -> dict[str, ColumnStats]:
    return {
        name: ColumnStats(
            sum(info["stats"][name]["nulls"] for info in infos),
            sum(info["stats"][name]["element_nulls"] for info in infos),
        )
        for name in schema.names
    }


def _write_text(path: str, text: str) -> None:
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def open_dataset(directory: str) -> MdsDataset:
    """Open a local MDS directory, with or without the bridge's sidecar.

    Raises:
        DatasetNotFoundError: There is no ``index.json``.
        DatasetError: The index or the sidecar cannot be read, or columns differ between shards.
    """
    path = os.path.join(directory, INDEX_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
        if not isinstance(index, dict) or index.get("version") != 2:
            raise ValueError("not an MDS version 2 index")
        shards = tuple(ShardEntry.from_json(obj, path) for obj in index["shards"])
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"No MDS dataset at {directory}: {INDEX_NAME} is missing. It was deleted, never "
            "finished, or is not visible here yet."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{path} is not a usable MDS index ({error}). Convert the DataFrame again."
        ) from error
    return MdsDataset(directory, _read_schema(directory, shards), shards)


def _read_schema(directory: str, shards: tuple[ShardEntry, ...]) -> DatasetSchema:
    sidecar = os.path.join(directory, SIDECAR_NAME)
    try:
        with open(sidecar, encoding="utf-8") as file:
            return DatasetSchema.from_json(file.read())
    except FileNotFoundError:
        return _inferred_schema(directory, shards)
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{sidecar} cannot be used: {error}") from error


def _inferred_schema(directory: str, shards: tuple[ShardEntry, ...]) -> DatasetSchema:
    if not shards:
        return DatasetSchema(())
    first = shards[0].layout
    types = {n: logical_type(e) for n, e in zip(first.names, first.encodings, strict=True)}
    for shard in shards[1:]:
        layout = shard.layout
        other = {n: logical_type(e) for n, e in zip(layout.names, layout.encodings, strict=True)}
        if other != types:
            raise DatasetError(
                f"The shards of {directory} differ in their columns: {types} in "
                f"{shards[0].basenames[0]}, {other} in {shard.basenames[0]}."
            )
    encodings = dict(zip(first.names, first.encodings, strict=True))
    return DatasetSchema(tuple(Field(n, t, encodings[n]) for n, t in types.items()))


def read_table(dataset: MdsDataset) -> pa.Table:
    """Return a whole dataset as one Arrow table (for small data and tests)."""
    schema = pa.schema([pa.field(f.name, f.type) for f in dataset.schema.fields])
    tables = []
    for position in range(len(dataset.shards)):
        shard = dataset.open_shard(position)
        arrays = [column_array(shard, f, slice(None)) for f in dataset.schema.fields]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()
