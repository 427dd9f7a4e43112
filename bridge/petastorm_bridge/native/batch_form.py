"""What columns are stored as so that a batch of them needs no conversion."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from petastorm_bridge.mds.commit import Rewrite
from petastorm_bridge.spark._writing.columns import ColumnPlan, plan_columns
from petastorm_bridge.spark._writing.materialize import Form, Infos, MapShards

from .support import UnsupportedColumnsError, check_columns, without_vectors


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
        return widened, map_shards(Rewrite(schema, {}, widened), infos)


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
