"""Stock datasets as TensorFlow's, with the types that Petastorm gave."""

import sys

import numpy as np
import pytest

sys.path.append(__file__.rpartition("/")[0])  # tests are no package

import transforms

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def frame(spark):
    return spark.range(11, numPartitions=1).selectExpr(
        "id",
        "id % 2 = 0 as flag",
        "cast(id as double) / 3 as real",
        "cast(id as tinyint) as small",
        "int(id) as holes",
        "array(id, id) as values",
        "array(id > 3, id < 1) as flags",
        "array(cast(id as double)) as reals",
        "concat('é', id) as text",
        "unhex(concat('00', lpad(hex(id), 2, '0'), '00')) as blob",
        "timestamp'2020-01-02 03:04:05' + make_interval(0, 0, 0, 0, id) as at",
    )


@pytest.fixture(scope="module")
def directory(installed, frame, tmp_path_factory):
    return installed.write_mds(frame, str(tmp_path_factory.mktemp("tensorflow") / "mds"))


@pytest.fixture(scope="module")
def dataset(tf, copied, streaming, directory):
    def make(transform=None, batch_size=4, epochs=1, **arguments):
        stock = streaming.StreamingDataset(local=directory.path, batch_size=batch_size, **arguments)
        return copied.to_tf_dataset(stock, epochs, transform=transform)

    return make


def petastorm_batches(frame, spec=None):
    pytest.importorskip("petastorm", reason="compares with the real Petastorm")
    from petastorm.spark import make_spark_converter

    converter = make_spark_converter(frame)
    with converter.make_tf_dataset(
        batch_size=4,
        num_epochs=1,
        shuffle_row_groups=False,
        workers_count=1,
        transform_spec=spec,
    ) as batches:
        found = batches.element_spec, list(batches)
    converter.delete()
    return found


def assert_same(made, wanted):
    specs, batches = wanted
    assert made.element_spec._fields == specs._fields
    for name in specs._fields:
        one, other = getattr(made.element_spec, name), getattr(specs, name)
        assert (one.dtype, one.shape.as_list()) == (other.dtype, other.shape.as_list()), name
    found = list(made)
    assert len(found) == len(batches)
    for one, other in zip(found, batches, strict=True):
        for name in specs._fields:
            values = getattr(one, name).numpy()
            np.testing.assert_array_equal(values, getattr(other, name).numpy(), err_msg=name)
            assert values.dtype == getattr(other, name).numpy().dtype


@pytest.mark.smoke
def test_batches_are_petastorms(dataset, frame):
    assert_same(dataset(), petastorm_batches(frame))


def test_transformed_batches_are_petastorms(copied, dataset, frame):
    pytest.importorskip("petastorm", reason="compares with the real Petastorm")
    from petastorm import TransformSpec

    arguments = {"edit_fields": transforms.EDITS, "selected_fields": transforms.SELECTED}
    wanted = petastorm_batches(frame, TransformSpec(transforms.make_columns, **arguments))
    assert_same(dataset(copied.PandasCollate(transforms.make_columns, **arguments)), wanted)


def test_types_without_petastorm(dataset, frame):
    made = dataset()
    found = {
        name: (spec.dtype.name, spec.shape.rank)
        for name, spec in made.element_spec._asdict().items()
    }
    assert list(found) == frame.columns
    assert found == {
        "at": ("int64", 1),
        "blob": ("string", 1),
        "flag": ("bool", 1),
        "flags": ("bool", 2),
        "holes": ("int32", 1),
        "id": ("int64", 1),
        "real": ("float32", 1),
        "reals": ("float32", 2),
        "small": ("int8", 1),
        "text": ("string", 1),
        "values": ("int64", 2),
    }
    first = next(iter(made))
    assert first.text.numpy().tolist() == [
        "é0".encode(),
        "é1".encode(),
        "é2".encode(),
        "é3".encode(),
    ]
    assert first.blob.numpy()[1] == b"\x00\x01\x00"
    assert first.flag.numpy().tolist() == [True, False, True, False]


def test_epochs(dataset):
    ids = [batch.id.numpy().tolist() for batch in dataset().repeat(2)]
    assert ids == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]] * 2


def test_a_number_of_epochs(dataset):
    """Each ends with a short batch; a second time over the dataset gives the next ones."""
    made = dataset(epochs=2, shuffle=True)
    orders = []
    for _ in range(2):
        batches = [batch.id.numpy().tolist() for batch in made]
        assert [len(batch) for batch in batches] == [4, 4, 3] * 2
        orders += [tuple(row for batch in batches[at : at + 3] for row in batch) for at in (0, 3)]
    assert all(sorted(order) == list(range(11)) for order in orders)
    assert len(set(orders)) == 4


def test_endless_epochs_have_full_batches_and_are_shuffled_anew(dataset):
    made = dataset(epochs=None, shuffle=True).take(8)
    batches = [batch.id.numpy().tolist() for batch in made]
    assert [len(batch) for batch in batches] == [4] * 8
    epochs = [tuple(batches[at] + batches[at + 1]) for at in range(0, 8, 2)]
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len(set(epochs)) == 4


def test_less_than_a_batch(tf, dataset):
    with pytest.raises(tf.errors.InvalidArgumentError, match="no batch in a whole pass"):
        next(iter(dataset(batch_size=12, epochs=None)))
    assert [len(batch.id) for batch in dataset(batch_size=12)] == [11]


@pytest.mark.parametrize("epochs", [2, None])
def test_in_a_graph(tf, dataset, epochs):
    """An ``input_fn`` is called while a graph is built."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset(epochs=epochs)).get_next()
        sizes = [len(session.run(batch.id)) for _ in range(5)]
        assert sizes == ([4, 4, 3, 4, 4] if epochs else [4] * 5)


def test_no_batch_size(dataset):
    with pytest.raises(ValueError, match="give the StreamingDataset a batch_size"):
        dataset(batch_size=None)


def test_a_pass_that_was_left(dataset):
    made = dataset()
    assert next(iter(made)).id.numpy().tolist() == [0, 1, 2, 3]
    assert sum(len(batch.id) for batch in made) == 11


def test_in_a_model(tf, dataset):
    def pair(batch):
        return tf.stack([batch.real, tf.cast(batch.flag, tf.float32)], axis=1), batch.id

    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    endless = dataset(shuffle=True, epochs=None).map(pair)
    model.fit(endless, steps_per_epoch=3, epochs=2, verbose=0)
    model.fit(dataset(epochs=2).map(pair), epochs=2, verbose=0)
    assert model.built
