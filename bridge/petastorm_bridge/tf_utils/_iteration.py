"""Python loops over a converter's ``tf.data.Dataset``, without a call into tf.data per batch.

``for batch in dataset`` fetches every batch with an operation of its own and packs it into its
structure in Python, which takes longer than everything else. Here such a loop takes batches many
at a time: one operation per column cuts a whole group. Everything else (``map``, ``model.fit``,
``tf.function``, ``get_next``) runs in tf.data as ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from petastorm_bridge.errors import missing_extra

from ._passes import Iterators

try:
    import tensorflow.compat.v1 as tf
except ImportError as error:
    raise missing_extra("tensorflow", "tensorflow") from error

# There is no public way to say how a dataset is iterated.
from tensorflow.python.data.ops.dataset_ops import DatasetV1Adapter
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

__all__ = ["BatchDataset", "Groups", "tf"]

Groups = Callable[[], Iterator[Any]]
"""Starts a pass over groups: namedtuples of arrays of shape ``(batches, size, …)``."""

# What a dataset has once it exists in TensorFlow.
_OF_DATASETS = frozenset({"_dataset", "_graph_attr", "_options_attr", "_variant_tensor_attr"})
# What OwnedIterator has once it exists in TensorFlow.
_OF_TENSORFLOW = frozenset(
    {"_components", "_flat_output_shapes", "_flat_output_types", "_get_next_call_count"}
    | {"_element_spec", "_iterator_resource"}
)


class BatchDataset(DatasetV1Adapter):  # type: ignore[misc]
    """A dataset whose iteration in Python takes a group of batches at a time.

    TensorFlow gets to know it when it is used for anything else: building the pipeline takes longer
    than reading a small table.

    Args:
        groups: Starts a pass.
        to_dataset: Makes the dataset of batches of such a function, all in tf.data.
        element_spec: Namedtuple of the ``tf.TensorSpec`` of a batch.
    """

    def __init__(
        self, groups: Iterators, to_dataset: Callable[[Groups], Any], element_spec: Any
    ) -> None:
        self._groups = groups
        self._to_dataset = to_dataset
        self._spec = element_spec
        if not (element_spec and tf.executing_eagerly()):  # no columns: TensorFlow says why not
            self._build()

    def _build(self) -> None:
        with tf.init_scope():  # also where a tf.function is the first to use it
            super().__init__(self._to_dataset(self._groups))

    @property
    def element_spec(self) -> Any:
        return self._spec

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        return _BatchIterator(self, self._groups, self._to_dataset)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_DATASETS or name in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._build()
        return getattr(self, name)


class _BatchIterator(OwnedIterator):  # type: ignore[misc]
    """An iterator that TensorFlow knows nothing of until it asks for it.

    It does for a ``tf.function``, ``get_next`` and errors, which are TensorFlow's own; it then gets
    the rest of the pass.
    """

    def __init__(
        self, dataset: BatchDataset, groups: Iterators, to_dataset: Callable[[Groups], Any]
    ) -> None:
        self._dataset = dataset
        self._spec = dataset.element_spec
        self._to_dataset = to_dataset
        self._is_tensorflows = False
        self._lock = threading.Lock()
        self._started = False
        self._iterators = groups
        self._groups = groups()
        self._group: Any = None
        self._batches: Iterator[Any] = iter(())
        self._left = 0

    @property
    def element_spec(self) -> Any:
        return self._spec

    def __next__(self) -> Any:
        if self._is_tensorflows:
            return super().__next__()
        with self._lock:
            for batch in self._batches:
                self._left -= 1
                return batch
            try:
                self._take_group()
            except StopIteration:
                raise
            except Exception as error:  # noqa: BLE001 - to be raised as tf.data raises it
                self._hand_over(error)
                return super().__next__()
            self._left -= 1
            return next(self._batches)

    def _take_group(self) -> None:
        self._started = True
        self._group = None  # else two groups were in memory
        self._group = group = next(self._groups)
        self._left = len(group[0])
        for column, spec in zip(group, self._spec, strict=True):
            if not spec.shape[1:].is_compatible_with(column.shape[2:]):
                raise ValueError("values of another shape than was declared")
        # As tf.data does, even where there are other devices.
        with tf.device("/CPU:0"):
            columns = [
                tf.raw_ops.Unpack(value=tf.convert_to_tensor(column, spec.dtype), num=self._left)
                for column, spec in zip(group, self._spec, strict=True)
            ]
        self._batches = map(type(group)._make, zip(*columns, strict=True))

    def _hand_over(self, error: Exception | None = None) -> None:
        """Let tf.data continue: with the batches that are left, or with what it makes of an error."""
        dataset = self._dataset
        if self._started:
            part = self._undelivered()
            dataset = self._to_dataset(lambda: self._rest(part, error))
        self._is_tensorflows = True
        super().__init__(dataset)

    def _undelivered(self) -> Any:
        """Return the batches of the group that nobody has got yet, as a group; None for none."""
        if self._group is None or not self._left:
            return None
        return type(self._group)._make(column[-self._left :] for column in self._group)

    def __del__(self) -> None:
        if not self._is_tensorflows:
            part = self._undelivered()
            if part is not None:
                self._iterators.give_back(part)

    def _rest(self, group: Any, error: Exception | None) -> Iterator[Any]:
        if group:
            error = None  # it came of this very group, and does so again
            yield group
        if error is not None:
            raise error
        yield from self._groups

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_TENSORFLOW or self._is_tensorflows:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._lock:
            if not self._is_tensorflows:
                self._hand_over()
        return getattr(self, name)
