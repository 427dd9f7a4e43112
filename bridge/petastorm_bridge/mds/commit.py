"""Making a dataset of the shards in a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from .access import is_far
from .dataset import MdsDataset
from .decode import column_array
from .entry import INDEX_NAME, ShardEntry
from .files import write_whole
from .schema import SIDECAR_NAME, DatasetSchema, Field, companion_names
from .shard import open_shard
from .writer import NullColumns, needed_flags, remove_shard, write_shard

Info = dict[str, Any]


def commit_dataset(
    directory: str,
    schema: pa.Schema,
    infos: Sequence[Mapping[str, Any]],
    extra: Mapping[str, Any] | None = None,
    *,
    num_rows: int | None = None,
    declared: Mapping[str, Field] | None = None,
    check: Callable[[MdsDataset], object] | None = None,
    map_shards: Callable[[Rewrite, Iterable[Info]], Iterable[Info]] | None = None,
) -> MdsDataset:
    """Make the shards written to ``directory`` a dataset, and return it; it is visible from the last step on.

    Null flags are stored only by shards whose column holds nulls. When some shards of a column
    have them and others do not, the others are written again with flags, so that every sample of
    the dataset has the same keys for stock readers.

    Args:
        directory: Holds the shard files; gets the sidecar, then ``index.json`` by an atomic rename.
        schema: Arrow schema of the logical columns, in table order.
        infos: What :meth:`ShardWriter.finish` returned, in row order.
        extra: JSON-able facts to keep in the sidecar.
        num_rows: Rows, where they cannot be counted from shards (no storable column).
        declared: As of the :class:`ShardWriter`; what the values of these columns are, and their shape.
        check: Looks at what is about to become a dataset. What it raises keeps it from becoming one.
        map_shards: Runs the rewriting of some shards, which a caller may spread over machines; None does it
            here. The :class:`Rewrite` and its arguments pickle.

    Raises:
        OSError: Something cannot be written; no index is visible then.
    """
    fields, lacking = _fields(schema, infos, declared or {})
    final = [dict(info) for info in infos]
    superseded = [final[i] for i in lacking]
    if lacking:
        null_columns = {f.name: (f.null_column, f.element_null_column) for f in fields}
        rewrite = Rewrite(schema, null_columns, declared=declared or {})
        here = (rewrite(directory, info) for info in superseded)
        rewritten = here if map_shards is None else map_shards(rewrite, superseded)
        for i, info in zip(lacking, rewritten, strict=True):
            final[i] = info
    rows = sum(int(info["index"]["samples"]) for info in final)
    described = DatasetSchema(fields, rows if num_rows is None else num_rows, extra or {})
    shards = tuple(ShardEntry.from_json(info["index"], directory) for info in final)
    dataset = MdsDataset(directory, described, shards)
    if check is not None:
        check(dataset)
    # What makes a dataset of the files waits for the disk; shards, which are many times larger, are
    # compared with their sizes and hashes whenever they are read.
    # Nobody looks for the sidecar before the index is there; to rename it takes far directories two requests.
    path, sidecar = os.path.join(directory, SIDECAR_NAME), [described.to_json().encode()]
    write_whole(path, sidecar, is_durable=True, in_place=is_far(directory))
    index = {"version": 2, "shards": [info["index"] for info in final]}
    text = json.dumps(index, sort_keys=True).encode()
    write_whole(os.path.join(directory, INDEX_NAME), [text], is_durable=True)
    for info in superseded:
        remove_shard(directory, info)
    return dataset


def _fields(
    schema: pa.Schema, infos: Sequence[Mapping[str, Any]], declared: Mapping[str, Field]
) -> tuple[tuple[Field, ...], list[int]]:
    """Return the columns of the dataset, and which of its shards lack null columns that it has."""
    companions = companion_names(schema.names)
    fields: list[Field] = []
    lacking: set[int] = set()
    for f in schema:
        stats = [info["stats"][f.name] for info in infos]
        nulls = {key: sum(each[key] for each in stats) for key in ("nulls", "element_nulls")}
        flags = needed_flags(f.type, companions[f.name], **nulls)
        stored = [needed_flags(f.type, companions[f.name], **each) for each in stats]
        lacking.update(i for i, names in enumerate(stored) if names != flags)
        plain = declared.get(f.name) or Field(f.name, f.type)
        fields.append(replace(plain, null_column=flags[0], element_null_column=flags[1], **nulls))
    return tuple(fields), sorted(lacking)


@dataclass(frozen=True)
class Rewrite:
    """Writes one shard again, with other null flags and perhaps other types.

    Attributes:
        schema: Of the shard.
        null_columns: Names of the null columns to store for rows and elements of a column, by its name.
        after: What the columns are cast to; None for their own types.
        declared: As of the writer of the shard.
    """

    schema: pa.Schema
    null_columns: NullColumns
    after: pa.Schema | None = None
    declared: Mapping[str, Field] = field(default_factory=dict)

    def __call__(self, directory: str, info: Info) -> Info:
        """Return the new info. The old file stays: where tasks are retried, this may run twice."""
        entry = ShardEntry.from_json(info["index"], directory)
        companions = companion_names(self.schema.names)
        fields = [Field(f.name, f.type, None, *companions[f.name]) for f in self.schema]
        shard = open_shard(directory, entry)
        arrays = [column_array(shard, field, slice(None)) for field in fields]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        base, extension = os.path.splitext(entry.basenames[0])
        written = write_shard(
            table if self.after is None else table.cast(self.after, safe=False),
            os.path.join(directory, f"{base}.flags{extension}"),
            compression=entry.compression,
            hashes=tuple(info["index"]["hashes"]),
            size_limit=info["index"]["size_limit"],
            null_columns=self.null_columns,
            declared=self.declared,
        )
        # What was null in a column of floats is NaN by now, so the first count is the right one.
        return {"index": written["index"], "stats": info["stats"]}
