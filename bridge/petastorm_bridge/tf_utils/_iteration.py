"""Iterators of datasets: which rows of a reader each gets, and Python loops without a call into tf.data per batch.

``for batch in dataset`` fetches every batch with an operation of its own and packs it into its
structure in Python, which takes longer than everything else. Here such a loop takes batches many
at a time: one operation per column cuts a whole group. Everything else (``map``, ``model.fit``,
``tf.function``, ``get_next``) runs in tf.data as ever.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.errors import missing_extra
from petastorm_bridge.reader._reader import Reader

try:
    import tensorflow.compat.v1 as tf
except ImportError as error:
    raise missing_extra("tensorflow", "tensorflow") from error

# There is no public way to say how a dataset is iterated.
from tensorflow.python.data.ops.dataset_ops import DatasetV1Adapter
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

__all__ = ["AGAIN", "BatchDataset", "Groups", "Iterators", "tf"]

Groups = Callable[[], Iterator[Any]]
"""Starts a pass over groups: namedtuples of arrays of shape ``(batches, size, …)``."""

# What a dataset has once it exists in TensorFlow.
_OF_DATASETS = frozenset({"_dataset", "_graph_attr", "_options_attr", "_variant_tensor_attr"})
# What OwnedIterator has once it exists in TensorFlow.
_OF_TENSORFLOW = frozenset(
    {"_components", "_flat_output_shapes", "_flat_output_types", "_get_next_call_count"}
    | {"_element_spec", "_iterator_resource"}
)


AGAIN = (
    "Running multiple iterations over make_petastorm_dataset is not recommend for performance "
    "issue. Use Reader's num_epochs contructor arguments to set number of iterations,"
    "or use tf.data.Dataset's cache() function to cache data of first iteration before"
    "calling 'repeat' method of Datset class."
)


class Iterators:
    """Starts the iterators of a dataset; a call returns the elements of one.

    Over endless epochs every iterator goes on where those before it stopped, as in Petastorm, so
    that a loop over ``dataset.take(n)`` and Keras' ``validation_steps`` get to all rows. Otherwise
    an iterator is a whole pass, what is left of the reader's own or a new one, so that nobody
    misses the rows of an iterator that was left early.

    Args:
        reader: Whose rows.
        arrange: Makes elements of blocks.
    """

    def __init__(self, reader: Reader, arrange: Callable[[Iterator[Block]], Iterator[Any]]) -> None:
        self._reader = reader
        self._arrange = arrange
        self._lock = threading.Lock()
        self._endless: Iterator[Any] | None = None
        self._given_back: deque[Any] = deque()

    def __call__(self) -> Iterator[Any]:
        if self._reader.num_epochs is not None:
            return self._arrange(_whole_pass(self._reader))
        return iter(self._next_of_all, None)

    def give_back(self, element: Any) -> None:
        """Let the next iterator of an endless dataset begin with an element that is left over."""
        if self._reader.num_epochs is None:
            self._given_back.appendleft(element)

    def _next_of_all(self) -> Any:
        """Return the next element for whoever asks; None at an end."""
        with self._lock:
            if self._given_back and not self._reader.stopped:
                return self._given_back.popleft()
            if self._endless is None:
                self._endless = self._arrange(self._reader.blocks())
            try:
                return next(self._endless)
            except StopIteration:
                self._endless = None
                return None
            except BaseException:
                self._endless = None  # a generator that failed would pretend to be at its end
                raise


def _whole_pass(reader: Reader) -> Iterator[Block]:
    """Yield the blocks of one iterator over a reader whose epochs end."""
    passes = reader.passes
    if passes.is_taken or passes.was_left or reader.last_row_consumed:
        warnings.warn(AGAIN, category=UserWarning, stacklevel=2)
    with passes.lock:
        is_beside = passes.is_taken
        passes.is_taken = True
        if reader.last_row_consumed and not is_beside:
            reader.reset()
        elif passes.was_left and not is_beside:
            passes.begin_again()
    if is_beside:
        yield from passes.beside()
        return
    passes.was_left = True
    try:
        yield from reader.blocks()
        passes.was_left = False
    finally:
        passes.is_taken = False


class BatchDataset(DatasetV1Adapter):  # type: ignore[misc]
    """A dataset whose iteration in Python takes a group of batches at a time.

    TensorFlow gets to know it when it is used for anything else: building the pipeline takes longer
    than reading a small table.

    Attributes:
        groups: Starts a pass.
        to_dataset: Makes the dataset of batches of such a function, all in tf.data.

    Args:
        element_spec: Namedtuple of the ``tf.TensorSpec`` of a batch.
    """

    def __init__(
        self, groups: Iterators, to_dataset: Callable[[Groups], Any], element_spec: Any
    ) -> None:
        self.groups = groups
        self.to_dataset = to_dataset
        self._spec = element_spec
        if not (element_spec and tf.executing_eagerly()):  # no columns: TensorFlow says why not
            self._build()

    def _build(self) -> None:
        with tf.init_scope():  # also where a tf.function is the first to use it
            super().__init__(self.to_dataset(self.groups))

    @property
    def element_spec(self) -> Any:
        return self._spec

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        return _BatchIterator(self)

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

    def __init__(self, dataset: BatchDataset) -> None:
        self._dataset = dataset
        self._spec = dataset.element_spec
        self._is_tensorflows = False
        self._lock = threading.Lock()
        self._started = False
        self._groups = dataset.groups()
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
            dataset = dataset.to_dataset(lambda: self._rest(part, error))
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
                self._dataset.groups.give_back(part)

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
