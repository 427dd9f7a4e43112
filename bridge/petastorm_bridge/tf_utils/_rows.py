"""Rows and n-grams for TensorFlow, of any reader: ours, or Petastorm's own (``petastorm/tf_utils.py``)."""

from __future__ import annotations

import datetime as dt
import itertools
import warnings
from calendar import timegm
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from petastorm_bridge.reader._rows.reader import RowReader
from petastorm_bridge.unischema import tuple_class

from ._columns import dtypes_of, nanoseconds
from ._iteration import AGAIN, Iterators, tf


def date_to_nsec_from_epoch(dt: Any) -> int:
    """Return a ``date`` or ``datetime`` as nanoseconds since 1970, without fractions of a second."""
    return timegm(dt.timetuple()) * 1_000_000_000


def ngram_dtypes_of(schema: Any, ngram: Any) -> list[Any]:
    """Return the TensorFlow types of an n-gram's fields, timestep after timestep."""
    steps = sorted(ngram.fields)
    return [t for step in steps for t in dtypes_of(ngram.get_schema_at_timestep(schema, step))]


def sanitized(row: Any) -> Any:
    """Return a namedtuple of values, or of arrays of a row group, for TensorFlow; RuntimeError for None."""
    return type(row)(*(_value(name, value) for name, value in row._asdict().items()))


def _value(name: str, value: Any) -> Any:
    if value is None:
        raise RuntimeError(
            f'Encountered "{name}"=None. Tensorflow does not support None values as a tensor.'
            "Consider filtering out these rows using a predicate."
        )
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, np.datetime64):
        return value.astype(np.int64)  # in its own unit, and only arrays in nanoseconds
    return _array(name, value) if isinstance(value, np.ndarray) else value


def _array(name: str, value: Any) -> Any:
    kind = value.dtype.kind
    if kind == "M":
        return nanoseconds(name, value)
    if value.dtype in (np.uint16, np.uint32):
        return value.astype(np.int32 if value.dtype == np.uint16 else np.int64)
    if kind in "SU":
        return value.tolist() if value.size else value
    if kind == "O" and value.size and isinstance(value.flat[0], dt.date):
        return np.array([date_to_nsec_from_epoch(day) for day in value.flat]).reshape(value.shape)
    return value


def flattened(sequence: Mapping[int, Any]) -> Any:
    """Return an n-gram's namedtuples as one, whose fields are called ``name_index``."""
    names, values = [], []
    for index, step in enumerate(sorted(sequence)):
        row = sequence[step]
        names += [f"{name}_{index}" for name in row._fields]
        values += list(row)
    return namedtuple("flattened", names)(*values)  # noqa: PYI024


def unflattened(schema: Any, ngram: Any, values: Sequence[Any]) -> dict[int, Any]:
    """Return the tensors of :func:`flattened` as an n-gram, with the shapes of the schema."""
    parts = by_timestep(schema, ngram, values)
    return {step: named(view, part) for step, view, part in parts}


def by_timestep(
    schema: Any, ngram: Any, values: Sequence[Any]
) -> Iterator[tuple[int, Any, Sequence[Any]]]:
    """Yield each timestep of an n-gram with the schema of its fields and their values."""
    remaining = iter(values)
    for step in range(min(ngram.fields), max(ngram.fields) + 1):
        view = ngram.get_schema_at_timestep(schema, step)
        yield step, view, list(itertools.islice(remaining, len(view.fields)))


def named(schema: Any, values: Sequence[Any], leading: tuple[None, ...] = ()) -> Any:
    """Return tensors as the namedtuple of a schema, whose shapes they take behind ``leading`` axes."""
    for field, value in zip(schema.fields.values(), values, strict=True):
        if value.get_shape().dims is None:
            value.set_shape((*leading, *field.shape))
    return tuple_class(schema)(*values)


def row_dataset(reader: Any) -> Any:
    """Return a dataset of one element per row, n-gram or, of others, row group; ValueError as `dtypes_of`."""
    ngram, schema = reader.ngram, reader.schema
    dtypes = dtypes_of(schema) if ngram is None else ngram_dtypes_of(schema, ngram)
    flat = tf.data.Dataset.from_generator(
        _start(reader), output_signature=tuple(tf.TensorSpec(None, dtype) for dtype in dtypes)
    )
    leading = (None,) if reader.batched_output else ()

    # A function of its own, and no lambda, which AutoGraph may take for something else.
    def to_element(*values: Any) -> Any:
        if ngram is None:
            return named(schema, values, leading)
        return unflattened(schema, ngram, values)

    return flat.map(to_element)


def _start(reader: Any) -> Any:
    """Return a function that starts a pass over what TensorFlow is given."""
    if isinstance(reader, RowReader):
        # Its rows are those of its blocks, which several iterators can share.
        return Iterators(
            reader, lambda blocks: (element(row) for block in blocks for row in reader.rows(block))
        )
    return lambda: elements(reader)


def elements(reader: Any) -> Iterator[Any]:
    """Yield the rows or n-grams of any reader for TensorFlow; of one at its end, a pass more."""
    if reader.last_row_consumed:
        warnings.warn(AGAIN, category=UserWarning, stacklevel=2)
        reader.reset()
    yield from map(element, reader)


def element(row: Any) -> tuple[Any, ...]:
    """Return a row's or an n-gram's values for TensorFlow."""
    if isinstance(row, dict):
        return flattened({step: sanitized(part) for step, part in row.items()})  # type: ignore[no-any-return]
    return sanitized(row)  # type: ignore[no-any-return]
