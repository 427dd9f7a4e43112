"""``tf.data`` over readers (``petastorm/tf_utils.py``)."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._blocks.batches import cut_groups
from ._blocks.columns import Block
from ._blocks.shuffle import shuffle_window
from ._tensorflow.columns import TfColumns
from ._tensorflow.iteration import BatchDataset, Groups, tf
from ._tensorflow.passes import Passes
from .reader import Reader

__all__ = ["date_to_nsec_from_epoch", "make_batched_dataset", "make_petastorm_dataset"]

# tf.data calls into Python once per group of batches; so many bytes make that cost vanish. Batches
# of a group share its memory, so that one that is kept keeps them all.
_GROUP_BYTES = 4 << 20
_GROUP_ROWS = 1 << 16
_GROUP_BATCHES = 128
_ENDLESS_GROUPS = 16


def date_to_nsec_from_epoch(dt: Any) -> int:
    """Return a ``date`` or ``datetime`` as nanoseconds since 1970, without fractions of a second."""
    return timegm(dt.timetuple()) * 1_000_000_000


def make_petastorm_dataset(reader: Reader) -> Any:
    """Return a ``tf.data.Dataset`` with one element per row group.

    Elements are namedtuples of tensors with one entry per row. An iterator takes what is left of
    the reader's pass, further ones take passes of their own; over endless epochs, each goes on
    where those before it stopped.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`.

    Raises:
        ValueError: A field has no TensorFlow type, or its name is no identifier.
    """
    columns = TfColumns(reader)

    def row_groups(blocks: Iterator[Block]) -> Iterator[Any]:
        for block in map(columns.convert, blocks):
            if block.num_rows:
                arrays = map(np.ascontiguousarray, block.columns.values())
                yield columns.tuple_class(*arrays)

    return tf.data.Dataset.from_generator(
        Passes(reader, row_groups), output_signature=columns.signature((None,))
    )


def make_batched_dataset(
    reader: Reader, batch_size: Any, shuffling_queue_capacity: Any, prefetch: Any
) -> Any:
    """Return the dataset of a converter's ``make_tf_dataset``: namedtuples of batches.

    The result equals Petastorm's chain of ``from_tensor_slices``, ``shuffle``, ``batch`` and
    ``prefetch``; batches are cut in NumPy and reach TensorFlow many at a time.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`.
        batch_size: Rows per batch; 32 for None or 0.
        shuffling_queue_capacity: Rows in the shuffle buffer; None or 0 for no shuffling.
        prefetch: Batches kept ready; None for auto-tuning.

    Raises:
        tf.errors.InvalidArgumentError, TypeError: TensorFlow's own, for unusable numbers.
        ValueError: As :func:`make_petastorm_dataset`.
    """
    size = batch_size or 32
    ahead = tf.data.experimental.AUTOTUNE if prefetch is None else prefetch
    # TensorFlow says what is wrong with a number.
    probe = tf.data.Dataset.range(1).batch(size).prefetch(ahead)
    if shuffling_queue_capacity:
        probe.shuffle(shuffling_queue_capacity)
    columns = TfColumns(reader)
    size = int(size)

    def groups(blocks: Iterator[Block]) -> Iterator[Any]:
        blocks = map(columns.convert, blocks)
        if shuffling_queue_capacity:
            blocks = shuffle_window(blocks, int(shuffling_queue_capacity), _generator(reader))
        most_rows = min(_GROUP_ROWS, _GROUP_BATCHES * size)
        if reader.num_epochs is None:
            # What TensorFlow was given of an iterator that is left does not come again before the
            # next epoch: no iterator may be given all there is.
            most_rows = min(most_rows, reader.rows_per_epoch // _ENDLESS_GROUPS)
        for group in cut_groups(blocks, size, most_rows, _GROUP_BYTES):
            yield columns.tuple_class(*(group[name] for name in columns.names))

    def to_dataset(start_pass: Groups) -> Any:
        signature = columns.signature((None, None))
        dataset = tf.data.Dataset.from_generator(start_pass, output_signature=signature)
        dataset = dataset.flat_map(tf.data.Dataset.from_tensor_slices)
        return dataset.prefetch(ahead)

    spec = columns.signature((None,))
    return BatchDataset(Passes(reader, groups), to_dataset, spec)


def _generator(reader: Reader) -> np.random.Generator:
    if reader.is_seeded:
        return reader.randomness.child()
    graph_seed, op_seed = tf.random.get_seed(None)
    if graph_seed is None and op_seed is None:
        return reader.randomness.child()
    # tf.random.set_seed governs shuffling without a seed, as it does in Petastorm.
    return np.random.default_rng([abs(int(graph_seed or 0)), abs(int(op_seed or 0))])
