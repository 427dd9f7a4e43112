"""The logical schema of a dataset that has no sidecar, from its encodings and its first row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from .encodings import fixed_encoding
from .entry import ShardEntry, by_layout
from .errors import DatasetError, ShardCorruptedError
from .layout import ShardLayout
from .ndarray import first_value
from .schema import DatasetSchema, Field
from .shard import Shard

# Encodings without a column type of their own (images, JSON, pickles …) are their raw bytes;
# nothing is ever unpickled.
_VARIABLE_TYPES = {
    "str": pa.string(),
    "str_int": pa.int64(),
    "str_float": pa.float64(),
    "str_decimal": pa.string(),
}


def inferred_schema(
    directory: str,
    shards: tuple[ShardEntry, ...],
    fetch: Callable[[ShardEntry], object] | None = None,
) -> DatasetSchema:
    """Return the schema of ``shards``.

    Args:
        directory: Local directory that holds the shards.
        shards: The index entries.
        fetch: Called before a shard is opened, which is done if what a column holds stands in its
            values only (encodings ``ndarray`` and ``ndarray:<dtype>``).

    Raises:
        DatasetError: Columns differ between shards.
        DatasetNotFoundError, ShardCorruptedError: From opening a shard.
    """
    if not shards:
        return DatasetSchema(())
    first = next((shard for shard in shards if shard.samples), shards[0])
    fields = [_field(name, encoding) for name, encoding in _columns(first.layout)]
    if any(_is_dynamic(field) for field in fields) and first.samples:
        if fetch is not None:
            fetch(first)
        shard = Shard(directory, first)
        fields = [_seen(shard, field) if _is_dynamic(field) else field for field in fields]
    for layout, entry in by_layout(shards).items():
        others = [_field(name, encoding) for name, encoding in _columns(layout)]
        merged = [_merged(a, b) for a, b in zip(fields, others, strict=False)]
        if len(fields) != len(others) or None in merged:
            raise DatasetError(
                f"The shards of {directory} differ in their columns: {_columns(first.layout)} "
                f"in {first.basenames[0]}, {_columns(layout)} in {entry.basenames[0]}."
            )
        fields = [field for field in merged if field is not None]
    return DatasetSchema(tuple(fields))


def _columns(layout: ShardLayout) -> list[tuple[str, str]]:
    return list(zip(layout.names, layout.encodings, strict=True))


def _field(name: str, encoding: str) -> Field:
    family, _, config = encoding.partition(":")
    fixed = fixed_encoding(encoding)
    if family == "ndarray":
        dtype = config.partition(":")[0] or "float64"  # or what the first value says
        shape: tuple[int | None, ...] = (None,) if fixed is None else fixed.shape
        return Field(name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype))), encoding, shape=shape)
    if fixed is not None:
        return Field(name, pa.from_numpy_dtype(fixed), encoding)
    return Field(name, _VARIABLE_TYPES.get(family, pa.binary()), encoding)


def _is_dynamic(field: Field) -> bool:
    return field.shape is not None and fixed_encoding(field.encoding or "") is None


def _seen(shard: Shard, field: Field) -> Field:
    """Return a field of dynamic arrays with what the first of them shows: value type and axes."""
    assert field.encoding is not None
    try:
        dtype, axes = first_value(shard, field.name)
    except ValueError as error:
        asked = f"arrays in column {field.name!r}"
        raise ShardCorruptedError.because(shard.path, asked, f"{error}") from error
    return replace(
        field, type=pa.list_(pa.from_numpy_dtype(np.dtype(dtype))), shape=(None,) * max(axes, 1)
    )


def _merged(one: Field, other: Field) -> Field | None:
    """Return the field that describes the columns of two shards, or None if none does."""
    if one.name != other.name or (one.type != other.type and other.encoding != "ndarray"):
        return None
    if one.shape is None or other.shape is None:
        return one if one.shape is other.shape else None
    if _is_dynamic(other):
        return replace(one, shape=(None,) * len(one.shape))
    if len(one.shape) != len(other.shape):
        return None
    sizes = zip(one.shape, other.shape, strict=True)
    return replace(one, shape=tuple(a if a == b else None for a, b in sizes))
