"""What earlier releases' ``codemod --fast`` wrote into programs; goes with the next release.

Rewritten code has ``ColumnarStreamingDataset`` from `petastorm_bridge.streaming` now.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from petastorm_bridge import streaming

from .native._deprecated_reading import StreamingDataLoader as _Loader
from .native._deprecated_reading import (
    StreamingDataset,
    TransformSpec,
    batches,
    from_petastorm,
    shown,
)
from .native._deprecated_reading import tf_dataset as _tf_dataset
from .native._deprecated_writing import MdsDirectory, dataframe_to_mds

__all__ = [
    "ColumnarStreamingDataset",
    "MdsDirectory",
    "StreamingDataLoader",
    "TransformSpec",
    "dataframe_to_mds",
    "from_petastorm",
    "open_tf",
    "open_torch",
    "tf_dataset",
]


warnings.warn(
    "petastorm_bridge.native_fast goes with the next release: `petastorm-bridge codemod --fast` "
    "writes petastorm_bridge.streaming.ColumnarStreamingDataset now",
    DeprecationWarning,
    stacklevel=2,
)


class ColumnarStreamingDataset(StreamingDataset, streaming.ColumnarStreamingDataset):
    """`petastorm_bridge.native.StreamingDataset` that yields batches: dictionaries of arrays.

    Batches are cut across epochs, as Petastorm's are. The arguments are those of both classes.
    """

    def __init__(self, local: str, **kwargs: Any) -> None:
        # A transform may bring arrays of different shapes to one.
        ragged = {"ragged": "list"} if kwargs.get("transform_spec") else {}
        super().__init__(local, **{**ragged, **kwargs})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of all epochs."""
        left: dict[str, Any] = {}
        size = self._size
        for new in self._epochs():
            columns = {k: np.concatenate([left[k], v]) for k, v in new.items()} if left else new
            rows = _rows(columns)
            whole = rows - rows % size
            for start in range(0, whole, size):
                yield {k: v[start : start + size] for k, v in columns.items()}
            left = {k: v[whole:] for k, v in columns.items()} if whole < rows else {}
        if left:
            yield left

    def _epochs(self) -> Iterator[dict[str, Any]]:
        for _ in itertools.count() if self.num_epochs is None else range(self.num_epochs):
            for stored in streaming.ColumnarStreamingDataset.__iter__(self):
                names = self.kinds or stored
                columns = {name: _shown(self.kinds.get(name, ""), stored[name]) for name in names}
                if self.transform_spec:
                    columns = {k: _shown("", v) for k, v in self.transform_spec(columns).items()}
                yield columns


def _shown(kind: str, column: Any) -> Any:
    """Return a stored column, an array or a list of values, as Petastorm shows it."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return shown(kind, column)
    (found,) = batches(({kind: shown(kind, value)} for value in column), len(column))
    return found[kind]


def _rows(columns: dict[str, Any]) -> int:
    return len(next(iter(columns.values()), ()))


class StreamingDataLoader(_Loader):
    """``streaming.StreamingDataLoader`` of whole batches, usable in ``with``."""

    def __init__(self, dataset: ColumnarStreamingDataset, **kwargs: Any) -> None:
        super().__init__(dataset, **{"batch_size": None, **kwargs})

    def __exit__(self, *error: object) -> None:
        """End the pass that is being read."""
        if state := getattr(self.dataset, "_pass", None):
            state.end()


def tf_dataset(dataset: ColumnarStreamingDataset) -> Any:
    """Give a ``tf.data.Dataset`` of batches, named tuples of tensors, to be entered in ``with``."""
    return _tf_dataset(dataset, lambda batches, _: iter(batches))


def open_torch(directory: MdsDirectory, **arguments: Any) -> StreamingDataLoader:
    """Do what ``make_torch_dataloader`` did."""
    return StreamingDataLoader(
        ColumnarStreamingDataset(directory.path, **from_petastorm(**arguments))
    )


def open_tf(directory: MdsDirectory, **arguments: Any) -> Any:
    """Do what ``make_tf_dataset`` did."""
    return tf_dataset(ColumnarStreamingDataset(directory.path, **from_petastorm(**arguments)))
