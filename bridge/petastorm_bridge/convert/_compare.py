"""Whether what was stored is what the source holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.decode import column_array
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ragged import list_lengths
from petastorm_bridge.mds.schema import DatasetSchema
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.types import is_list

from ._columns import ColumnPlan


class ConversionError(DatasetError):
    """A converted dataset does not hold what its source holds."""


def stored_table(shard: Shard, schema: DatasetSchema, plan: ColumnPlan) -> pa.Table:
    """Return what a shard holds, in the types that the writer got.

    Raises:
        ShardCorruptedError: The shard cannot be read.
    """
    everything = slice(0, shard.num_rows)
    fields = [
        replace(field, type=plan.schema.field(field.name).type)
        if field.name in plan.declared
        else field
        for field in schema.fields
    ]
    arrays = [column_array(shard, field, everything) for field in fields]
    return pa.Table.from_arrays(arrays, names=plan.schema.names)


def compare(
    batches: Iterable[pa.RecordBatch],
    tables: Iterator[pa.Table],
    where: str,
    report: Callable[[int], object],
) -> None:
    """Compare rows with what was stored of them, value by value.

    Args:
        batches: What the writer got.
        tables: What the shards hold, in order.
        where: Names of the source's files, for messages.
        report: Gets numbers of rows.

    Raises:
        ConversionError: They differ.
    """
    rows = 0
    stored = pa.table({})
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            if not stored.num_rows:
                table = next(tables, None)
                if table is None:
                    raise ConversionError(f"Rows from {rows} on of {where} are in no shard.")
                stored = table
            count = min(batch.num_rows - start, stored.num_rows)
            _compare(batch.slice(start, count), stored.slice(0, count), rows, where)
            stored = stored.slice(count)
            start += count
            rows += count
        report(batch.num_rows)
    if stored.num_rows or next(tables, None) is not None:
        raise ConversionError(
            f"There are more rows in the shards of {where} than the {rows} there."
        )


def _compare(wanted: pa.RecordBatch, stored: pa.Table, first: int, where: str) -> None:
    for name in wanted.schema.names:
        one, other = wanted.column(name), stored.column(name).combine_chunks()
        if isinstance(other, pa.ChunkedArray):  # older releases of Arrow
            other = other.chunk(0)
        if not _is_same(one, other):
            rows = range(len(one))
            row = next((i for i in rows if not _is_same(one.slice(i, 1), other.slice(i, 1))), 0)
            raise ConversionError(
                f"Row {first + row} of {where} was not stored as it is in column {name!r}: "
                f"{_shortened(one[row])} there, {_shortened(other[row])} in the shard."
            )


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    if one.type != other.type:
        return False
    if is_list(one.type):
        same_lists = one.is_null().equals(other.is_null()) and np.array_equal(
            list_lengths(one), list_lengths(other)
        )
        return same_lists and _is_same(one.flatten(), other.flatten())
    if pa.types.is_floating(one.type):
        # MDS has no nulls among floats: they are NaN.
        return np.array_equal(_numbers(one), _numbers(other), equal_nan=True)
    return bool(one.equals(other))


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False), array.type.to_pandas_dtype())


def _shortened(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 80 else f"{text[:80]}…"
