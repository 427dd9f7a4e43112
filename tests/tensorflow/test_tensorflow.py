"""tf.data datasets over readers: what differs from Petastorm on purpose."""

import datetime as dt
import warnings
from collections import namedtuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.errors import NullValueWarning

pytestmark = pytest.mark.slow

DAY = 86_400_000_000_000  # in nanoseconds


def dataset(reader, batch_size=4, capacity=None):
    from petastorm_bridge.tf_utils import make_batched_dataset

    return make_batched_dataset(reader, batch_size, capacity, None)


def ids(batches):
    return [int(i) for batch in batches for i in batch.id]


@pytest.mark.smoke
@pytest.mark.difference("tf-reiteration-restarts")
def test_every_iterator_is_a_complete_pass(numbered):
    with make_batch_reader(numbered(10, [4, 6]), shuffle_row_groups=False) as reader:
        batches = dataset(reader)
        one = iter(batches)
        assert next(one).id.numpy().tolist() == [0, 1, 2, 3]
        with pytest.warns(UserWarning, match="multiple iterations"):
            assert ids(batches) == list(range(10))
        assert ids(one) == [4, 5, 6, 7, 8, 9]


def test_iterating_after_the_reader_stopped_is_an_error(numbered):
    import tensorflow as tf

    with make_batch_reader(numbered(10)) as reader:
        batches = dataset(reader)
    with pytest.raises(tf.errors.UnknownError, match="has stopped"):
        ids(batches)


@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_shuffling_moves_no_row_forward_by_the_capacity(numbered, capacity):
    with make_batch_reader(
        numbered(50, [20, 30]), seed=4, num_epochs=2, shuffle_row_groups=False
    ) as reader:
        got = np.reshape(ids(dataset(reader, 7, capacity)), (2, 50))
    for epoch in got:
        assert sorted(epoch) == list(range(50))
        assert (epoch - np.arange(50)).max() < capacity
        assert (epoch.tolist() == list(range(50))) == (capacity == 1)


@pytest.mark.difference("tf-null-warning")
@pytest.mark.difference("tf-long-nulls-exact")
def test_nulls_are_announced_and_other_values_exact(write):
    big = 2**53 + 1
    table = pa.table(
        {
            "l": pa.array([big, None, -big], pa.int64()),
            "s": pa.array([1, None, 3], pa.int16()),
            "b": pa.array([True, None, False]),
            "t": pa.array(["x", None, "None"]),
            "f": pa.array([0.5, None, 1.5]),
        }
    )
    url = write(table, [1, 2])
    with (
        make_batch_reader(url, shuffle_row_groups=False) as reader,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        (batch,) = dataset(reader)
    named = [str(w.message).split("'")[1] for w in caught if w.category is NullValueWarning]
    assert sorted(named) == ["b", "l", "s", "t"]
    assert batch.l.numpy().tolist() == [big, -(2**63), -big]
    assert batch.s.numpy().tolist() == [1, 0, 3]
    assert batch.b.numpy().tolist() == [True, False, False]
    assert batch.t.numpy().tolist() == [b"x", b"None", b"None"]
    assert np.isnan(batch.f.numpy()).tolist() == [False, True, False]


def test_nulls_are_an_error_where_asked_for(write):
    url = write(pa.table({"l": pa.array([1, None])}))
    with make_batch_reader(url) as reader, warnings.catch_warnings():
        warnings.simplefilter("error", NullValueWarning)
        with pytest.raises(NullValueWarning, match="'l' holds nulls"):
            dataset(reader)


@pytest.mark.difference("tf-dtype-objects")
@pytest.mark.parametrize("dtype", [np.dtype("float32"), "float32", float, np.float16, np.uint64])
def test_whatever_names_a_dtype_will_do(numbered, dtype):
    spec = TransformSpec(
        lambda frame: frame.assign(y=frame.id.astype(np.dtype(dtype))),
        edit_fields=[("y", dtype, (), False)],
    )
    with make_batch_reader(numbered(3), transform_spec=spec) as reader:
        (batch,) = dataset(reader)
    assert batch.y.dtype == np.dtype(dtype).name
    assert batch.y.numpy().tolist() == [0, 1, 2]


@pytest.mark.difference("trailing-nuls")
@pytest.mark.filterwarnings("ignore:Tensorflow will convert all unicode strings:UnicodeWarning")
def test_strings_keep_nul_characters(write):
    with make_batch_reader(write(pa.table({"s": ["a\0", "\0", ""]}))) as reader:
        (batch,) = dataset(reader)
    assert batch.s.numpy().tolist() == [b"a\0", b"\0", b""]


@pytest.mark.difference("tf-array-of-dates")
def test_arrays_of_dates_are_nanoseconds(write):
    days = pa.array([[0, 1], [2, 3]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    with make_batch_reader(write(pa.table({"d": days}))) as reader:
        (batch,) = dataset(reader)
    assert batch.d.numpy().tolist() == [[0, DAY], [2 * DAY, 3 * DAY]]


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("day", [-106_752, 106_752, 2_932_896])
def test_dates_that_nanoseconds_do_not_reach_are_refused(write, day, is_list):
    import tensorflow as tf

    days = [[day], [0]] if is_list else [day, 0]
    type_ = pa.list_(pa.date32()) if is_list else pa.date32()
    column = pa.array(days, pa.list_(pa.int32()) if is_list else pa.int32()).cast(type_)
    # Petastorm's dates end in an OverflowError as well.
    refusal = pytest.raises(tf.errors.UnknownError, match="'d' holds dates before 1677-09-22")
    with make_batch_reader(write(pa.table({"d": column}))) as reader, refusal:
        list(dataset(reader))


def made(url, values, dtype, shape=()):
    """What TensorFlow gets of a column that a transform makes."""

    def make(frame):
        return pd.DataFrame({"made": pd.Series(values, frame.index)})

    spec = TransformSpec(make, [("made", dtype, shape, True)], selected_fields=["made"])
    with make_batch_reader(url, transform_spec=spec) as reader:
        (batch,) = dataset(reader)
    return batch.made.numpy().tolist()


@pytest.mark.difference("tf-null-warning")
@pytest.mark.parametrize(
    ("values", "dtype", "shape", "expected"),
    [
        (pd.to_datetime(["1970-01-01", None]), np.datetime64, (), [0, -(2**63)]),
        (pd.Series([True, None], dtype=object), np.bool_, (), [True, False]),
        ([[True, None], [True, True]], np.bool_, (2,), [[True, False], [True, True]]),
    ],
    ids=["timestamps", "booleans", "lists-of-booleans"],
)
def test_nulls_that_a_transform_makes_are_announced(numbered, values, dtype, shape, expected):
    with pytest.warns(NullValueWarning, match="'made' holds nulls"):
        assert made(numbered(2), values, dtype, shape) == expected


@pytest.mark.parametrize("first", [0, 1, 2])
def test_null_dates_are_named_wherever_they_stand(numbered, first):
    import tensorflow as tf

    days = [None, None, None]
    days[first] = dt.date(2020, 1, 1)
    with pytest.raises(tf.errors.OpError, match="'made' holds null dates"):
        made(numbered(3), days, np.datetime64)


@pytest.mark.difference("timestamp-range")
@pytest.mark.parametrize("year", [1000, 3000])
@pytest.mark.parametrize("unit", ["s", "us"])
def test_timestamps_that_nanoseconds_do_not_reach_are_refused(numbered, year, unit):
    import tensorflow as tf

    def moments(*texts):
        # NumPy's arrays keep their unit from pandas 2 on.
        return np.array(texts, f"datetime64[{unit}]")

    assert made(numbered(2), moments("1970-01-02", "1969-12-31"), np.datetime64) == [DAY, -DAY]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'made' holds timestamps outside"):
        made(numbered(2), moments("1970-01-02", f"{year}-01-01"), np.datetime64)


def test_nor_in_arrays_of_a_row():
    from petastorm_bridge.tf_utils._rows import sanitized

    row = namedtuple("Row", "moments")  # noqa: PYI024
    moments = np.array(["1970-01-02", "NaT"], "datetime64[s]")
    assert sanitized(row(moments)).moments.tolist() == [DAY, -(2**63)]
    with pytest.raises(ValueError, match="'moments' holds timestamps outside"):
        sanitized(row(np.array(["3000-01-01"], "datetime64[s]")))


@pytest.mark.parametrize(
    ("transform", "error"),
    [(ValueError, "InvalidArgumentError"), (KeyError, "UnknownError")],
)
def test_errors_of_a_transform_keep_tensorflows_types(numbered, transform, error):
    import tensorflow as tf

    def fail(_):
        raise transform("boom")

    with (
        make_batch_reader(numbered(3), transform_spec=TransformSpec(fail)) as reader,
        pytest.raises(getattr(tf.errors, error), match="boom"),
    ):
        ids(dataset(reader))
