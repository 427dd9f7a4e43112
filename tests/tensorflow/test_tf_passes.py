"""Iterators over datasets of one reader: who gets which rows, and what the reader knows of it."""

import datetime as dt
import subprocess
import sys
import threading
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.predicates import in_lambda

pytestmark = pytest.mark.slow

ROWS = 20
GROUPS = [5, 5, 5, 5]
FIRSTS = [0, 5, 10, 15]


@pytest.fixture
def open_reader(numbered):
    """``open_reader(**options)`` → a reader of `id` 0 … 19 in four row groups, in order."""
    url = numbered(ROWS, GROUPS)
    readers = []

    def open_reader(url=url, **options):
        readers.append(make_batch_reader(url, **{"shuffle_row_groups": False, **options}))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.stop()
        reader.join()


def batched(reader, size=5, capacity=None, ahead=1):
    from petastorm_bridge.tf_utils import make_batched_dataset

    return make_batched_dataset(reader, size, capacity, ahead)


def row_groups(reader):
    from petastorm_bridge.tf_utils import make_petastorm_dataset

    return make_petastorm_dataset(reader)


def firsts(batches):
    return [int(batch.id[0]) for batch in batches]


def one_of(dataset):
    """Leaves a loop after one batch."""
    for batch in dataset:
        return batch.id.numpy().tolist()
    return None


def test_endless_row_groups_go_on_from_loop_to_loop(open_reader):
    dataset = row_groups(open_reader(num_epochs=None))
    assert [firsts(dataset.take(1)) for _ in range(6)] == [[0], [5], [10], [15], [0], [5]]


@pytest.mark.parametrize("size", [5, 3, 20])
def test_an_endless_loop_in_python_loses_no_batch_however_often_it_is_left(open_reader, size):
    dataset = batched(open_reader(num_epochs=None), size)
    rows = [row for _ in range(60) for row in one_of(dataset)]
    assert rows == [row % ROWS for row in range(60 * size)]


def test_an_endless_shuffled_loop_gives_every_row_once_per_epoch(open_reader):
    dataset = batched(open_reader(num_epochs=None, seed=3), 2, capacity=7)
    rows = [row for _ in range(30) for row in one_of(dataset)]
    assert [sorted(epoch) for epoch in np.reshape(rows, (3, ROWS))] == [list(range(ROWS))] * 3


@pytest.mark.parametrize("steps", [1, 10])
def test_endless_loops_over_some_batches_get_on_even_in_one_row_group(numbered, open_reader, steps):
    reader = open_reader(numbered(400, name="one"), num_epochs=None)
    dataset = batched(reader, 4)
    assert len({firsts(dataset.take(steps))[0] for _ in range(8)}) > 1


def test_endless_datasets_go_on_in_a_function(open_reader):
    import tensorflow as tf

    dataset = batched(open_reader(num_epochs=None))

    @tf.function
    def first():
        found = tf.constant(-1, tf.int64)
        for batch in dataset.take(1):
            found = batch.id[0]
        return found

    assert len({int(first()) for _ in range(6)}) > 1


def test_keras_validates_on_other_rows_of_an_endless_dataset(numbered, open_reader):
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
    # Far more batches than Keras takes ahead and drops, which might otherwise be one epoch each time.
    reader = open_reader(numbered(400, name="many"), num_epochs=None)
    dataset = batched(reader).map(lambda batch: batch.x[:, None])
    seen = {float(model.predict(dataset, steps=1, verbose=0)[0, 0]) for _ in range(4)}
    assert len(seen) > 1


def test_endless_iterators_at_once_share_the_rows(open_reader):
    dataset = batched(open_reader(num_epochs=None), 1)
    found = []

    def take(iterator):
        found.extend(int(next(iterator).id[0]) for _ in range(4 * ROWS))

    threads = [threading.Thread(target=take, args=(iter(dataset),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 * ROWS
    assert max(found.count(row) for row in range(ROWS)) - min(map(found.count, range(ROWS))) <= 2


def test_an_error_in_an_endless_dataset_is_no_end(open_reader):
    import tensorflow as tf

    def fail(frame):
        raise KeyError("no such thing")

    dataset = batched(open_reader(num_epochs=None, transform_spec=TransformSpec(fail)))
    for _ in range(3):
        with pytest.raises(tf.errors.UnknownError, match="no such thing"):
            one_of(dataset)


def test_an_endless_dataset_without_rows_ends_every_time(open_reader):
    nothing = in_lambda(["id"], lambda ids: ids < 0)
    dataset = batched(open_reader(num_epochs=None, predicate=nothing))
    with pytest.warns(UserWarning, match="epoch gave no row"):
        assert one_of(dataset) is None
    assert one_of(dataset) is None


@pytest.mark.difference("tf-reiteration-restarts")
@pytest.mark.parametrize("make", [batched, row_groups])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_finite_dataset_left_early_begins_again(open_reader, make, epochs):
    dataset = make(open_reader(num_epochs=epochs))
    assert firsts(dataset.take(2)) == [0, 5]
    for _ in range(3):
        with pytest.warns(UserWarning, match="multiple iterations") as caught:
            assert firsts(dataset) == FIRSTS * epochs
        assert len(caught) == 1


def test_passes_left_early_leave_the_orders_of_a_seed(open_reader):
    def passes():
        dataset = batched(open_reader(seed=4, shuffle_row_groups=True, shuffle_rows=True), 3, 6)
        with warnings.catch_warnings(action="ignore"):
            for left_after in (1, 4, None, 2, None):
                yield [batch.id.numpy().tolist() for batch in dataset.take(left_after or 99)]

    assert list(passes()) == list(passes())


@pytest.mark.parametrize("make", [batched, row_groups])
def test_the_reader_knows_of_the_passes_of_its_dataset(open_reader, make):
    reader = open_reader()
    dataset = make(reader)
    assert not reader.last_row_consumed
    assert firsts(dataset) == FIRSTS
    assert reader.last_row_consumed
    with pytest.raises(StopIteration):
        next(reader)
    reader.reset()
    assert firsts(dataset) == FIRSTS  # without a warning: the program reset it
    with pytest.warns(UserWarning, match="multiple iterations"):
        assert firsts(dataset) == FIRSTS


@pytest.mark.parametrize("make", [batched, row_groups])
@pytest.mark.parametrize("epochs", [1, None])
def test_a_dataset_goes_on_behind_what_was_read_of_its_reader(open_reader, make, epochs):
    reader = open_reader(num_epochs=epochs)
    assert next(reader).id.tolist() == [0, 1, 2, 3, 4]
    dataset = make(reader)
    assert firsts(dataset.take(3)) == FIRSTS[1:]


def test_a_reader_in_the_middle_of_a_pass_is_not_reset(open_reader):
    reader = open_reader()
    firsts(row_groups(reader).take(1))
    with pytest.raises(NotImplementedError, match="in the middle"):
        reader.reset()


def test_datasets_of_one_reader_know_of_each_other(open_reader):
    reader = open_reader()
    one, two = row_groups(reader), batched(reader)
    assert firsts(one) == FIRSTS
    with pytest.warns(UserWarning, match="multiple iterations"):
        assert firsts(two) == FIRSTS


def test_no_iterator_is_left_in_the_readers_way(open_reader):
    """An error while an iterator begins, here the warning, does not take the reader's pass."""
    import tensorflow as tf

    dataset = row_groups(open_reader())
    firsts(dataset)
    with pytest.raises(tf.errors.OpError, match="multiple iterations"):
        firsts(dataset)
    with pytest.warns(UserWarning, match="multiple iterations"):
        assert firsts(dataset) == FIRSTS


def test_a_missing_tensorflow_is_named_with_its_extra():
    code = (
        "import sys; sys.modules.update({'tensorflow': None, 'tensorflow.compat': None})\n"
        "import petastorm_bridge.tf_utils"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: tensorflow is not installed" in done.stderr, done.stderr[-500:]
    assert "petastorm-bridge[tensorflow]" in done.stderr


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (dt.date(1970, 1, 2), 86_400_000_000_000),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 500), -1_000_000_000),
        (dt.date(2500, 1, 1), 16_725_225_600_000_000_000),
    ],
)
def test_days_as_nanoseconds(day, expected):
    from petastorm_bridge.tf_utils import date_to_nsec_from_epoch

    assert date_to_nsec_from_epoch(day) == expected


@pytest.mark.smoke
@pytest.mark.parametrize(("drop_last", "expected"), [(False, 7), (True, 6)])
def test_ranks_have_as_many_rows(open_reader, monkeypatch, drop_last, expected):
    monkeypatch.setenv("WORLD_SIZE", "3")
    read = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        reader = open_reader(shard_by_rank=True, drop_last=drop_last)
        read.append([int(i) for batch in batched(reader, 4) for i in batch.id])
    assert [len(rows) for rows in read] == [expected] * 3
    assert len({row for rows in read for row in rows}) == (18 if drop_last else ROWS)


@pytest.mark.parametrize("is_known", [False, True])
def test_keras_gets_every_batch_of_finite_passes(open_reader, tmp_path, is_known):
    """It says that the input ran out unless it is told the number of batches, as the guide advises."""
    import tensorflow as tf

    keras = tf.keras
    values = np.arange(40, dtype=np.float32)
    store = tmp_path / "store"
    store.mkdir()
    pq.write_table(pa.table({"x": values, "y": values}), store / "x.parquet", row_group_size=15)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-9), "mse")
    steps = {"train": 0, "test": 0}

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, *_, **__):
            steps["train"] += 1

        def on_test_batch_end(self, *_, **__):
            steps["test"] += 1

    def pairs():
        dataset = batched(open_reader(store.as_uri(), num_epochs=1), 16)
        dataset = dataset.map(lambda batch: (batch.x[:, None], batch.y))
        return dataset.apply(tf.data.experimental.assert_cardinality(3)) if is_known else dataset

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            pairs(),
            epochs=2,
            shuffle=False,
            validation_data=pairs(),
            verbose=0,
            callbacks=[Count()],
        )
    assert steps == {"train": 6, "test": 6}
    said = any("ran out of data" in str(warning.message) for warning in caught)
    assert said is not is_known
