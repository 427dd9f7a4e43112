"""Which fields the columns of a Parquet dataset become that nobody described.

What comes out are plain tuples; :mod:`petastorm_bridge.unischema` makes fields of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

InferredField = tuple[str, Any, tuple[int | None, ...], bool]
"""Name, NumPy type, shape of one value, and whether it may be null."""


def inferred_fields(dataset: Any, *, omit: bool) -> Iterator[InferredField]:
    """Yield the fields of a dataset, partition columns first.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset``, today's or that of old versions.
        omit: Leave columns of unsupported types out, with a warning.

    Raises:
        ValueError: An unsupported column, and none may be left out.
        RuntimeError: A partition column that is neither of strings nor of integers.
    """
    partitions, columns = _parquet_columns(dataset)
    for name, type_ in partitions.items():
        yield _partition_field(name, type_)
    for column in columns:
        field = None if column.name in partitions else _column_field(column, omit=omit)
        if field is not None:
            yield field


def _parquet_columns(dataset: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the types of the partition columns, and the fields of the files."""
    if hasattr(dataset, "paths") or not hasattr(dataset, "partitioning"):  # until pyarrow 14
        schema = dataset.pieces[0].get_metadata().schema.to_arrow_schema()
        partitions = {p.name: p.dictionary.type for p in dataset.partitions or []}
        return partitions, list(schema)
    partitioning = dataset.partitioning
    names = partitioning.schema.names if partitioning is not None else []
    types = {name: partitioning.schema.field(name).type for name in names}
    values = {n: getattr(type_, "value_type", type_) for n, type_ in types.items()}
    return values, list(dataset.schema)


def _partition_field(name: str, type_: Any) -> InferredField:
    import numpy as np
    import pyarrow as pa

    if pa.types.is_string(type_):
        return name, np.str_, (), False
    if pa.types.is_integer(type_):
        return name, np.int64, (), False
    raise RuntimeError(
        f"Expected partition type to be one of currently supported types: string or int64. Got {type_}"
    )


def _column_field(column: Any, *, omit: bool) -> InferredField | None:
    import pyarrow as pa

    from .types import find_type, unsupported_text  # loads pyarrow

    type_ = column.type
    row = find_type(type_)
    is_list = pa.types.is_list(type_)
    if row is not None:
        shape = (None,) if is_list else ()
        return column.name, row.numpy, shape, column.nullable
    if not omit and not (is_list and pa.types.is_nested(type_.value_type)):
        raise ValueError(f"Cannot auto-create unischema due to unsupported column type {type_}")
    warnings.warn(unsupported_text(column.name, repr(type_)), stacklevel=4)
    return None
