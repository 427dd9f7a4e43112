"""``tf.data`` over readers (``petastorm/tf_utils.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from petastorm_bridge._blocks.batches import cut_groups
from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._blocks.shuffle import shuffle_window
from petastorm_bridge.reader._reader import Reader
from petastorm_bridge.unischema import tuple_class

from ._columns import TfColumns, dtypes_of, tf_dtype
from ._iteration import BatchDataset, Groups, Iterators, tf
from ._rows import (
    by_timestep,
    date_to_nsec_from_epoch,
    element,
    elements,
    flattened,
    named,
    ngram_dtypes_of,
    row_dataset,
    sanitized,
    unflattened,
)

__all__ = [
    "RANDOM_SHUFFLING_QUEUE_SIZE",
    "date_to_nsec_from_epoch",
    "make_batched_dataset",
    "make_namedtuple_tf_ngram",
    "make_petastorm_dataset",
    "tf_tensors",
]

RANDOM_SHUFFLING_QUEUE_SIZE = "random_shuffling_queue_size"
"""Name of the operation that tells how full the queue of :func:`tf_tensors` is."""

# tf.data calls into Python once per group of batches; so many bytes make that cost vanish. Batches
# of a group share its memory, so that one that is kept keeps them all.
_GROUP_BYTES = 4 << 20
_GROUP_ROWS = 1 << 16
_GROUP_BATCHES = 128
_ENDLESS_GROUPS = 16


# Private names of Petastorm's that programs and its own tests import.
_sanitize_field_tf_types = sanitized
_numpy_to_tf_dtypes = tf_dtype
_schema_to_tf_dtypes = dtypes_of
_schema_to_tf_dtypes_ngram = ngram_dtypes_of
_flatten = flattened
_ngrams_generator = elements
_unflatten_and_set_shape = unflattened


def tf_tensors(reader: Any, shuffling_queue_capacity: int = 0, min_after_dequeue: int = 0) -> Any:
    """Return tensors that take the reader's next row whenever TensorFlow's graph runs.

    For programs in graph mode (``tf.compat.v1``); others use :func:`make_petastorm_dataset`.

    Args:
        reader: From :func:`petastorm_bridge.make_reader` or ``make_batch_reader``, or one of
            Petastorm's own.
        shuffling_queue_capacity: Rows in a ``tf.RandomShuffleQueue``; 0 for none.
        min_after_dequeue: Rows that stay in the queue.

    Returns:
        A namedtuple of tensors; for an n-gram, one for each timestep in a dictionary.

    Raises:
        ValueError: A field has no TensorFlow type, or a queue was asked for row groups.
    """
    if reader.batched_output and shuffling_queue_capacity > 0:
        raise ValueError(
            "shuffling_queue_capacity can not be used with a reader that produces "
            "batched_output, since each batch is a parquet read rowgroup. Extra "
            "shuffling of the batches does not further decrease correlation."
        )
    ngram, schema = reader.ngram, reader.schema
    dtypes = dtypes_of(schema, stacklevel=3) if ngram is None else ngram_dtypes_of(schema, ngram)
    values = tf.py_func(lambda _: element(next(reader)), [tf.constant(1)], dtypes)
    if shuffling_queue_capacity > 0:
        queue = tf.RandomShuffleQueue(shuffling_queue_capacity, min_after_dequeue, dtypes)
        queue.size(name=RANDOM_SHUFFLING_QUEUE_SIZE)  # for whoever looks for it by its name
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(values)]))
        values = queue.dequeue()
        values = values if isinstance(values, (list, tuple)) else [values]
    if ngram is not None:
        return unflattened(schema, ngram, values)
    return named(schema, values, (None,) if reader.batched_output else ())


def make_namedtuple_tf_ngram(unischema: Any, ngram: Any, *args: Any, **kargs: Any) -> Any:
    """Return an n-gram of namedtuples: values by position, or dictionaries by timestep."""
    return {
        step: tuple_class(view)(*part, **kargs.get(str(step), {}))
        for step, view, part in by_timestep(unischema, ngram, args)
    }


def make_petastorm_dataset(reader: Any) -> Any:
    """Return a ``tf.data.Dataset`` with one element per row group, or per row or n-gram.

    Elements are namedtuples of tensors, of row groups with one entry per row, of n-grams in a
    dictionary by timestep. An iterator takes what is left of
    the reader's pass, further ones take passes of their own; over endless epochs, each goes on
    where those before it stopped.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader` or ``make_reader``, or one of
            Petastorm's own.

    Raises:
        ValueError: A field has no TensorFlow type, or its name is no identifier.
    """
    if not isinstance(reader, Reader) or not reader.batched_output:
        return row_dataset(reader)
    columns = TfColumns(reader)

    def row_groups(blocks: Iterator[Block]) -> Iterator[Any]:
        for block in map(columns.convert, blocks):
            if block.num_rows:
                arrays = map(np.ascontiguousarray, block.columns.values())
                yield columns.tuple_class(*arrays)

    return tf.data.Dataset.from_generator(
        Iterators(reader, row_groups), output_signature=columns.signature((None,))
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
    return BatchDataset(Iterators(reader, groups), to_dataset, spec)


def _generator(reader: Reader) -> np.random.Generator:
    if reader.passes.is_seeded:
        return reader.passes.randomness.child()
    graph_seed, op_seed = tf.random.get_seed(None)
    if graph_seed is None and op_seed is None:
        return reader.passes.randomness.child()
    # tf.random.set_seed governs shuffling without a seed, as it does in Petastorm.
    return np.random.default_rng([abs(int(graph_seed or 0)), abs(int(op_seed or 0))])
