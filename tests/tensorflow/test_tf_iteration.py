"""A Python loop over `make_tf_dataset`'s dataset, mixed with everything else TensorFlow does to it."""

import gc
import sys
import textwrap
import weakref

import numpy as np
import pyarrow as pa
import pytest
import warm

from petastorm_bridge import TransformSpec, make_batch_reader

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Running multiple iterations"),
]

ROWS, SIZE = 22, 4
BATCHES = [list(range(start, min(start + SIZE, ROWS))) for start in range(0, ROWS, SIZE)]


@pytest.fixture
def dataset(numbered):
    """Six batches of `id`: 0 … 21, of shards of 13 and 9 rows; groups of several batches."""
    from petastorm_bridge.tf_utils import make_batched_dataset

    with make_batch_reader(numbered(ROWS, [13, 9]), shuffle_row_groups=False) as reader:
        yield make_batched_dataset(reader, SIZE, None, None)


def ids(batches):
    return [batch.id.numpy().tolist() for batch in batches]


def in_function(iterator, count):
    """Takes batches inside a tf.function."""
    import tensorflow as tf

    @tf.function
    def take(iterator):
        return [next(iterator).id for _ in range(count)]

    return [batch.numpy().tolist() for batch in take(iterator)]


def test_it_is_what_tensorflow_calls_a_dataset_and_an_iterator(dataset):
    import tensorflow as tf

    iterator = iter(dataset)
    assert isinstance(dataset, tf.data.Dataset)
    assert isinstance(iterator, tf.data.Iterator)
    for spec in (dataset.element_spec, iterator.element_spec):
        assert spec._fields == ("id", "x")
        assert spec.id == tf.TensorSpec((None,), tf.int64)
    first = next(iterator)
    assert type(first).__name__ == type(dataset.element_spec).__name__
    assert first.id.device.endswith("CPU:0")
    assert not hasattr(dataset, "nothing")
    assert not hasattr(iterator, "nothing")


def test_a_loop(dataset):
    iterator = iter(dataset)
    assert ids(iterator) == BATCHES
    assert next(iterator, None) is None
    assert not iterator._is_tensorflows  # else it would be slow, and nothing else would tell


def test_a_loop_over_lists_and_strings(write):
    from petastorm_bridge.tf_utils import make_batched_dataset

    lists = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
    texts = [f"number {i}" for i in range(ROWS)]
    url = write(pa.table({"l": list(lists), "s": texts}), [13, 9])
    with make_batch_reader(url, shuffle_row_groups=False) as reader:
        with pytest.warns(UnicodeWarning):
            batches = make_batched_dataset(reader, SIZE, None, None)
        iterator = iter(batches)
        found = list(iterator)
    assert not iterator._is_tensorflows
    assert np.array_equal(np.concatenate([batch.l.numpy() for batch in found]), lists)
    assert [text.decode() for batch in found for text in batch.s.numpy()] == texts


@pytest.mark.parametrize("before", range(len(BATCHES) + 1))
def test_tensorflow_goes_on_where_python_stopped(dataset, before):
    import tensorflow as tf

    iterator = iter(dataset)
    found = ids(next(iterator) for _ in range(before))
    middle = min(2, len(BATCHES) - before)
    found += in_function(iterator, middle)
    found += ids([iterator.get_next() for _ in range(min(1, len(BATCHES) - before - middle))])
    found += ids(iterator)
    assert found == BATCHES
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()


def test_everything_else_runs_in_tensorflow(dataset):
    import tensorflow as tf

    doubled = dataset.map(lambda row: row.id * 2).unbatch().batch(5)
    assert [batch.numpy().tolist() for batch in doubled] == [
        [2 * i for i in range(start, min(start + 5, ROWS))] for start in range(0, ROWS, 5)
    ]

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for batch in dataset:
            result += tf.reduce_sum(batch.id)
        return result

    assert int(total()) == sum(range(ROWS))
    # The function above was the first to use it, and yet it is no part of that function's graph.
    assert ids(dataset.take(2)) == BATCHES[:2]
    assert dataset.options().deterministic is None


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # of every generator
def test_keras_trains_on_it(dataset):
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    pairs = dataset.map(lambda row: (row.x[:, None], row.x[:, None] * 0))
    assert len(model.fit(pairs, epochs=2, shuffle=False, verbose=0).history["loss"]) == 2


@pytest.mark.parametrize("fails_in", [0, 1])
def test_errors_are_those_of_tensorflow_and_lose_nothing(numbered, fails_in):
    import tensorflow as tf

    from petastorm_bridge.tf_utils import make_batched_dataset

    def fail(frame):
        if frame["id"].iloc[0] == 13 * fails_in:
            raise KeyError("no such thing")
        return frame

    with make_batch_reader(
        numbered(ROWS, [13, 9]), shuffle_row_groups=False, transform_spec=TransformSpec(fail)
    ) as reader:
        iterator = iter(make_batched_dataset(reader, SIZE, None, None))
        assert ids(next(iterator) for _ in range(3 * fails_in)) == BATCHES[: 3 * fails_in]
        with pytest.raises(tf.errors.UnknownError, match="KeyError: 'no such thing'"):
            next(iterator)


def test_values_without_a_tensor_are_tensorflows_error(numbered):
    import tensorflow as tf

    from petastorm_bridge.tf_utils import make_batched_dataset

    spec = TransformSpec(
        lambda frame: frame.assign(s=[b"a", None] * (len(frame) // 2)),
        edit_fields=[("s", np.bytes_, (), True)],
    )
    with make_batch_reader(numbered(8), transform_spec=spec) as reader:
        iterator = iter(make_batched_dataset(reader, SIZE, None, None))
        with pytest.raises(tf.errors.OpError):
            next(iterator)


def test_batches_can_be_kept(dataset):
    kept = list(dataset)
    gc.collect()
    assert ids(kept) == BATCHES


def test_an_iterator_left_early_is_freed(dataset, no_leaks):
    list(dataset.take(1))
    with no_leaks():
        iterator = iter(dataset)
        next(iterator)
        gone = weakref.ref(iterator)
        del iterator
        gc.collect()
        assert gone() is None


def test_graph_mode(numbered):
    """`tf.compat.v1.disable_eager_execution()`, as old programs do."""
    code = """
        import sys
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        from petastorm_bridge import make_batch_reader
        from petastorm_bridge.tf_utils import make_batched_dataset
        with make_batch_reader(sys.argv[1], shuffle_row_groups=False) as reader:
            dataset = make_batched_dataset(reader, 4, None, None)
            batch = tf.data.make_one_shot_iterator(dataset).get_next()
            with tf.Session() as session:
                print(session.run(batch.id).tolist(), session.run(batch.id).tolist())
    """
    script = [sys.executable, "-c", textwrap.dedent(code), numbered(ROWS)]
    done = warm.run(script, capture_output=True, text=True, check=False)
    assert done.stdout == f"{BATCHES[0]} {BATCHES[1]}\n", done.stderr[-2000:]
