"""What columns are stored as so that a batch of them needs no conversion."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from petastorm_bridge.mds.decode import column_array
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.schema import Field, companion_names
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.writer import flags_needed, write_shard
from petastorm_bridge.spark._writing.columns import ColumnPlan, plan_columns
from petastorm_bridge.spark._writing.form import Form, Infos, MapShards

from .support import UnsupportedColumnsError, check_columns, without_vectors

__all__ = ["BatchForm"]


class BatchForm(Form):
    """Columns as tensors have them: timestamps in nanoseconds, integers with nulls as float64.

    Args:
        kinds: Name and Spark type of each column, as ``DataFrame.dtypes`` has them; of types that
            :func:`check_columns` lets pass.
    """

    refusals = (UnsupportedColumnsError,)

    def __init__(self, kinds: Sequence[tuple[str, str]]) -> None:
        self._kinds = kinds

    def plan(self, df: Any, dtype: str | None, *, case_sensitive: bool) -> ColumnPlan:
        """Return what to write of a DataFrame."""
        plan = plan_columns(without_vectors(df, dtype), dtype, case_sensitive=case_sensitive)
        fields = [field.with_type(_in_nanoseconds(field.type)) for field in plan.schema]
        return dataclasses.replace(plan, schema=pa.schema(fields))

    def settle(
        self, schema: pa.Schema, infos: Infos, map_shards: MapShards
    ) -> tuple[pa.Schema, Infos]:
        """Refuse nulls that no tensor can hold, and make integers float64 where some are null.

        Whether a column has nulls is known when its last row has been written, and all shards need
        one type: those with such columns are written once more, from themselves.

        Raises:
            UnsupportedColumnsError: Names all columns with such nulls.
        """
        nulls = _columns_with(infos, "nulls")
        element_nulls = _columns_with(infos, "element_nulls")
        check_columns(self._kinds, nulls, element_nulls)
        widened = pa.schema(
            [
                field.with_type(_as_floats(field.type))
                if field.name in nulls | element_nulls
                else field
                for field in schema
            ]
        )
        if widened.equals(schema):
            return schema, infos
        return widened, map_shards(_Widening(schema, widened), infos)


class _Widening:
    """Writes one shard again with some columns of integers as float64, and without null flags.

    Attributes:
        directory: Where the shard is; set where this runs.
    """

    def __init__(self, before: pa.Schema, after: pa.Schema) -> None:
        self.directory = ""
        self._before = before
        self._after = after

    def __call__(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the new info. The old file stays: where tasks are retried, this may run twice."""
        entry = ShardEntry.from_json(info["index"], self.directory)
        shard = Shard(self.directory, entry)
        companions = companion_names(self._before.names)
        arrays = []
        for field, after in zip(self._before, self._after, strict=True):
            stats = info["stats"][field.name]
            flags = flags_needed(field.type, stats["nulls"], stats["element_nulls"])
            named, elements_named = companions[field.name]
            stored = Field(
                field.name,
                field.type,
                null_column=named if flags[0] else None,
                element_null_column=elements_named if flags[1] else None,
            )
            values = column_array(shard, stored, slice(None))
            arrays.append(values.cast(after.type, safe=False))
        base, extension = os.path.splitext(entry.basenames[0])
        written = write_shard(
            pa.Table.from_arrays(arrays, schema=self._after),
            os.path.join(self.directory, f"{base}.flags{extension}"),
            compression=entry.compression,
            hashes=tuple(info["index"]["hashes"]),
            size_limit=info["index"]["size_limit"],
        )
        return {"index": written["index"], "stats": info["stats"]}


def _in_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_nanoseconds(type_.value_type)))
    return pa.timestamp("ns", type_.tz) if pa.types.is_timestamp(type_) else type_


def _as_floats(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_as_floats(type_.value_type)))
    return pa.float64() if pa.types.is_integer(type_) else type_


def _columns_with(infos: Infos, what: str) -> set[str]:
    """Return the columns that have some of what is counted in some shard."""
    return {name for info in infos for name, stats in info["stats"].items() if stats[what]}
