"""A ``StreamingDataset`` as a ``tf.data.Dataset``, which streaming itself does not offer."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from streaming import StreamingDataset

__all__ = ["to_tf_dataset"]

# TensorFlow has hardly any arithmetic for these types.
_TF_DTYPES = {"uint16": "int32", "uint32": "int64"}


class Transform(Protocol):
    """What is asked of a transform, such as a ``PandasCollate``."""

    edit_fields: Any

    def names(self, before: Any) -> list[str]:
        """Return the names of a batch's columns, given those of the samples."""

    def transformed(self, samples: Any) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of some samples after the transform."""


def to_tf_dataset(
    dataset: StreamingDataset,
    *,
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
) -> Any:
    """Return a ``tf.data.Dataset`` of the batches of a streaming dataset.

    One pass over it is one epoch of the streaming dataset, with its order and its share of this
    rank; ``.repeat(k)`` gives the next ones. Its elements are named tuples of tensors of shape
    ``(rows, …)``. What is stored as uint8 is a boolean, as ``write_mds`` stores them; strings are
    bytes.

    Args:
        dataset: With the ``batch_size`` to cut; the last batch of an epoch may be smaller.
        columns: Names of the columns before the transform, in the order that the tuples have. None
            means that of the samples, which is alphabetical.
        transform: A ``PandasCollate`` whose ``edit_fields`` say the types and shapes that its
            function makes.

    Raises:
        ValueError: The dataset has no batch size.
    """
    import tensorflow as tf

    if not dataset.batch_size:
        raise ValueError("give the StreamingDataset a batch_size, which says how to cut batches")

    sample = dataset[0]
    specs = _specs(tf, {name: sample[name] for name in columns or sample}, transform)
    batch_type = _tuple_type(list(specs))

    def batches() -> Iterator[Any]:
        samples = iter(dataset)
        while some := list(itertools.islice(samples, dataset.batch_size)):
            columns = _stacked(some) if transform is None else transform.transformed(some)
            yield batch_type(**{name: _cast(columns[name], specs[name].dtype) for name in specs})

    return tf.data.Dataset.from_generator(batches, output_signature=batch_type(**specs))


def _tuple_type(names: list[str]) -> Any:
    """Return the type of named tuples with the columns of a batch, which only the data know."""
    return collections.namedtuple("batch", names)  # noqa: PYI024


def _specs(tf: Any, sample: dict[str, Any], transform: Transform | None) -> dict[str, Any]:
    """Return the type and shape of each column of a batch, given one sample."""
    edits = {edit[0]: edit[1:3] for edit in transform.edit_fields} if transform else {}
    specs = {}
    for name in transform.names(sample) if transform else sample:
        if name in edits:
            dtype, shape = edits[name]
            specs[name] = tf.TensorSpec((None, *shape), _tf_dtype(tf, np.dtype(dtype)))
        else:
            value = _as_booleans(np.asarray(sample[name]))
            specs[name] = tf.TensorSpec((None,) * (1 + value.ndim), _tf_dtype(tf, value.dtype))
    return specs


def _tf_dtype(tf: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "OSU":
        return tf.string
    if dtype.kind == "M":
        return tf.int64  # nanoseconds since 1970
    return tf.as_dtype(_TF_DTYPES.get(dtype.name, dtype))


def _stacked(samples: list[dict[str, Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of some samples, of shape ``(rows, …)``; strings as objects."""
    columns = {}
    for name, first in samples[0].items():
        dtype = object if isinstance(first, (str, bytes)) else None
        columns[name] = np.array([sample[name] for sample in samples], dtype)
    return columns


def _as_booleans(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return booleans for what is stored as uint8."""
    return values.astype(bool) if values.dtype == np.uint8 else values


def _cast(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Return a column in its TensorFlow type; strings as bytes."""
    if dtype.as_numpy_dtype is object:
        encoded = [value.encode() if isinstance(value, str) else value for value in values.flat]
        return np.array(encoded, object).reshape(values.shape)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ns]")
    return values.astype(dtype.as_numpy_dtype, copy=False)
