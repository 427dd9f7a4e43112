"""The support module of earlier releases, which stays importable for one more."""

import copy
import datetime as dt
import inspect
import os
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from petastorm_bridge._tables.options import OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TYPES = """
    id,
    if(id = 3, null, int(id)) as holes,
    if(id = 3, null, id % 2 = 0) as flag,
    if(id = 3, null, string(id)) as name,
    if(id = 3, null, cast(id as decimal(10, 2))) as price,
    if(id = 3, null, date'2020-01-02') as day,
    if(id = 3, null, timestamp'2020-01-02 03:04:05.000006') as at,
    if(id = 3, null, timestamp_ntz'2020-01-02 03:04:05.000006') as local_at,
    array(id % 2 = 0, true) as flags,
    array(string(id), 'x') as words,
    cast(-id as byte) as small,
    cast(id as double) / 3 as third
"""
MOMENT = np.datetime64("2020-01-02T03:04:05.000006", "ns")


@pytest.fixture(scope="module")
def native():
    return pytest.importorskip("petastorm_bridge.native", reason="needs the extra [streaming]")


@pytest.fixture(scope="module")
def fast(native):
    from petastorm_bridge import native_fast

    return native_fast


def batches_of(module, directory, **arguments):
    """The batches of a loader as lists, by either dataset."""
    kind = getattr(module, "ColumnarStreamingDataset", None) or module.StreamingDataset
    with module.StreamingDataLoader(kind(local=directory.path, **arguments)) as loader:
        return [{k: getattr(v, "tolist", lambda v=v: v)() for k, v in b.items()} for b in loader]


@pytest.fixture(scope="module")
def typed(native, spark, tmp_path_factory):
    """Seventeen rows of every type, a null of each in the row 3."""
    columns = [column.strip() for column in TYPES.split(",\n")]
    frame = spark.range(17, numPartitions=3).selectExpr(*columns, "map('a', id) as dropped")
    return native.dataframe_to_mds(frame, out=str(tmp_path_factory.mktemp("typed") / "mds"))


def rows_of(native, directory, **arguments):
    return list(native.StreamingDataset(local=directory.path, batch_size=5, **arguments))


def test_directory(native, spark, cache_dir):
    directory = native.dataframe_to_mds(dataframe=spark.range(5), size_limit=1)
    assert len(directory) == directory.dataset_size == 5
    assert os.path.dirname(directory.path) == str(cache_dir)
    assert directory.cache_dir_url == f"file://{directory.path}"
    assert directory.file_urls
    assert all(os.path.exists(url.removeprefix("file://")) for url in directory.file_urls)
    assert pickle.loads(pickle.dumps(directory)) == directory == copy.copy(directory)
    assert len(pickle.dumps(directory)) < 500
    directory._dataset_path = "as some programs do"
    assert len({directory, copy.copy(directory)}) == 1
    directory.delete()
    assert not os.path.exists(directory.path)
    directory.delete()


def test_types_as_transforms_see_them(native, typed):
    rows = rows_of(native, typed)
    assert [row["id"] for row in rows] == list(range(17))
    assert list(rows[0]) == [line.split()[-1] for line in TYPES.strip().split(",\n")]
    assert rows[4]["price"] == Decimal("4.00")
    assert rows[4]["day"] == dt.date(2020, 1, 2)
    assert rows[4]["at"] == rows[4]["local_at"] == MOMENT
    assert (rows[4]["flag"], rows[4]["name"], rows[4]["holes"]) == (True, "4", 4.0)
    assert rows[4]["flags"].tolist() == [True, True]
    assert list(rows[4]["words"]) == ["4", "x"]
    assert (rows[4]["small"], rows[4]["small"].dtype) == (-4, np.dtype("int8"))
    assert (rows[4]["third"], rows[4]["third"].dtype) == (np.float32(4 / 3), np.dtype("float32"))
    assert all(rows[3][name] is None for name in ("flag", "name", "price", "day"))
    assert np.isnan(rows[3]["holes"])
    assert np.isnat(rows[3]["at"])
    assert np.isnat(rows[3]["local_at"])


def test_torch_batches(native, typed):
    with native.StreamingDataLoader(
        native.StreamingDataset(local=typed.path, batch_size=17)
    ) as loader:
        (batch,) = loader
    assert batch["id"].tolist() == list(range(17))
    assert str(batch["flags"].dtype) == "torch.uint8"
    assert batch["name"][2:5] == ["2", None, "4"]
    assert str(batch["holes"].dtype) == "torch.float64"


@pytest.mark.tf
def test_tensorflow_gets_nulls_as_petastorm_gave_them(native, typed):
    dataset = native.StreamingDataset(
        local=typed.path,
        batch_size=17,
        transform_spec=native.TransformSpec(removed_fields=["price"]),
    )
    with native.tf_dataset(dataset) as batches:
        (batch,) = batches
    third = {name: tensor[3].numpy() for name, tensor in batch._asdict().items()}
    smallest = np.iinfo(np.int64).min
    assert third["holes"] == np.iinfo(np.int32).min
    assert batch.holes.dtype.name == "int32"
    assert not third["flag"]
    assert batch.flag.dtype.name == "bool"
    assert third["name"] == b"None"
    assert third["day"] == third["at"] == smallest
    assert batch.words[4].numpy().tolist() == [b"4", b"x"]
    assert batch._asdict()["at"][4].numpy() == MOMENT.astype("int64")


@pytest.mark.parametrize("count", [2, 4, 17])
def test_shards_are_disjoint_complete_and_even(native, typed, count):
    found = [
        [row["id"] for row in rows_of(native, typed, shuffle=True, cur_shard=n, shard_count=count)]
        for n in range(count)
    ]
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(i for part in found for i in part) == list(range(17))


def test_launchers_do_not_split_without_shards(native, typed, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    dataset = native.StreamingDataset(local=typed.path, batch_size=5)
    assert os.environ["WORLD_SIZE"] == "2"
    with native.StreamingDataLoader(dataset) as loader:
        assert sum(len(batch["id"]) for batch in loader) == 17


def test_horovod_gives_rank_and_size(native, typed, monkeypatch):
    # Horovod's processes know nothing of RANK and WORLD_SIZE: the call says which shard it is.
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    assert len(rows_of(native, typed)) == 17
    assert len(rows_of(native, typed, cur_shard=1, shard_count=2)) in {8, 9}


def test_epochs_follow_on_one_another(native, typed):
    dataset = native.StreamingDataset(local=typed.path, batch_size=10, num_epochs=3)
    with native.StreamingDataLoader(dataset) as loader:
        assert len(loader) == 6
        sizes = [len(batch["id"]) for batch in loader]
    assert sizes == [10, 10, 10, 10, 10, 1]


def test_endless_epochs_are_shuffled_anew(native, typed):
    dataset = native.StreamingDataset(
        local=typed.path, batch_size=17, num_epochs=None, shuffle=True
    )
    with native.StreamingDataLoader(dataset) as loader:
        assert loader
        assert len(loader) == 1  # of one epoch
        batches = iter(loader)
        epochs = [next(batches)["id"].tolist() for _ in range(4)]
    assert all(sorted(epoch) == list(range(17)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_two_loaders_on_one_directory(native, typed):
    with (
        native.open_torch(typed, batch_size=4, num_epochs=1, shuffle_row_groups=False) as one,
        native.open_torch(typed, batch_size=4, num_epochs=2, shuffle_row_groups=False) as two,
    ):
        pairs = [(a["id"].tolist(), b["id"].tolist()) for a, b in zip(one, two, strict=False)]
    assert pairs[0] == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert len(pairs) == 5


def test_transforms_may_drop_and_multiply_rows(native, typed):
    def keep_even_twice(rows):
        even = rows[rows["id"] % 2 == 0]
        return pd.concat([even, even])[["id"]].assign(
            pair=[np.ones((2, 3)) for _ in range(2 * len(even))]
        )

    spec = native.TransformSpec(
        keep_even_twice, [("pair", np.float32, (2, 3), False)], selected_fields=["pair", "id"]
    )
    dataset = native.StreamingDataset(local=typed.path, batch_size=4, transform_spec=spec)
    with native.StreamingDataLoader(dataset) as loader:
        batches = list(loader)
    assert [len(batch["id"]) for batch in batches] == [4, 4, 4, 4, 2]
    assert list(batches[0]) == ["pair", "id"]
    assert batches[0]["pair"].shape == (4, 2, 3)
    assert sorted(i for batch in batches for i in batch["id"].tolist()) == sorted(
        [*range(0, 17, 2)] * 2
    )


def test_time_zones_do_not_move_local_times(native, spark, tmp_path):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(
            "select timestamp_ntz'2020-03-08 02:30:00' as t, timestamp'2020-01-01 00:00:00' as u"
        )
        (row,) = rows_of(native, native.dataframe_to_mds(frame, out=str(tmp_path / "mds")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert row["t"] == np.datetime64("2020-03-08T02:30:00")
    assert row["u"] == np.datetime64("2020-01-01T05:00:00")


def test_the_bridge_reads_what_it_wrote(native, typed):
    from petastorm_bridge import make_batch_reader

    with make_batch_reader(typed.cache_dir_url, num_epochs=1) as reader:
        assert sorted(i for batch in reader for i in batch.id.tolist()) == list(range(17))
    spec = native.TransformSpec(lambda rows: rows[["id"]] * 2, selected_fields=["id"])
    with make_batch_reader(typed.cache_dir_url, num_epochs=1, transform_spec=spec) as reader:
        assert sorted(i for batch in reader for i in batch.id.tolist()) == list(range(0, 34, 2))


def test_stock_streaming_reads_what_it_wrote(native, typed):
    import streaming

    assert [
        row["id"] for row in streaming.StreamingDataset(local=typed.path, batch_size=1)
    ] == list(range(17))


def test_no_directory_to_write_to(native, spark, cache_dir):
    spark.conf.unset(native.MdsDirectory.CACHE_DIR_CONF)
    with pytest.raises(ValueError, match="give `out`, or set"):
        native.dataframe_to_mds(spark.range(1))


def test_types_that_cannot_be_stored_are_refused(native, spark, tmp_path):
    frame = spark.sql("select interval '1' day as days")
    with pytest.raises(ValueError, match="'days' of type interval day cannot be stored"):
        native.dataframe_to_mds(frame, out=str(tmp_path / "mds"))


MORE = """
    id,
    if(id = 3, null, encode(string(id), 'utf-8')) as nullable,
    encode('', 'utf-8') as empty,
    array(date'2020-01-02', if(id = 3, null, date'1969-12-31')) as days,
    array(cast(id as decimal(12, 3)), null) as prices,
    array(timestamp'2020-01-02 03:04:05.000006', null) as times,
    if(id = 3, null, array(string(id), 'é\u0000"')) as texts,
    array(id) as ids
"""


def test_more_types(native, fast, spark, tmp_path):
    columns = [column.strip() for column in MORE.split(",\n")]
    frame = spark.range(5, numPartitions=2).selectExpr(*columns)
    directory = native.dataframe_to_mds(frame, out=str(tmp_path / "mds"))
    rows = rows_of(native, directory)
    assert [row["nullable"] for row in rows] == [b"0", b"1", b"2", None, b"4"]
    assert {row["empty"] for row in rows} == {b""}
    assert [row["days"][1] for row in rows[2:4]] == [dt.date(1969, 12, 31), None]
    assert [str(value) for value in rows[1]["prices"]] == ["1.000", "None"]
    assert rows[1]["times"][0] == MOMENT
    assert np.isnat(rows[1]["times"][1])
    assert (rows[3]["texts"], rows[4]["texts"].tolist()) == (None, ["4", 'é\u0000"'])
    one, other = (batches_of(module, directory, batch_size=2) for module in (native, fast))
    assert str(one) == str(other)


@pytest.mark.parametrize("kind", ["int", "double", "date"])
def test_null_arrays_are_refused(native, spark, tmp_path, kind):
    frame = spark.sql(f"select array(cast(null as {kind})) as v union all select null")
    with pytest.raises(Exception, match="null instead of an array in column v: fill it"):
        native.dataframe_to_mds(frame, out=str(tmp_path / "mds"))


@pytest.mark.parametrize("moment", ["2262-04-12", "9999-12-31", "1677-09-21", "0001-01-01"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "array"])
def test_times_that_nanoseconds_cannot_hold_are_refused(native, spark, tmp_path, moment, kind):
    value = f"array(timestamp'{moment}')" if kind == "array" else f"{kind}'{moment}'"
    with pytest.raises(Exception, match="a timestamp outside the years 1678 to 2261"):
        native.dataframe_to_mds(spark.sql(f"select {value} as v"), out=str(tmp_path / "mds"))


def test_the_last_times_that_nanoseconds_hold(native, spark, tmp_path):
    texts = ["1677-09-21 00:12:43.145225", "2262-04-11 23:47:16.854775"]
    frame = spark.sql(" union all ".join(f"select timestamp_ntz'{text}' as v" for text in texts))
    directory = native.dataframe_to_mds(frame.coalesce(1), out=str(tmp_path / "mds"))
    wanted = [np.datetime64(text.replace(" ", "T"), "ns") for text in texts]
    assert [row["v"] for row in rows_of(native, directory)] == wanted


def test_the_index_is_never_half_written(native, spark, tmp_path, monkeypatch):
    from petastorm_bridge.native import _deprecated_writing as _native_write

    opened, written = _native_write._opened, []

    class Spy:
        def __init__(self, files):
            self.files = files

        def __getattr__(self, name):
            if name == "open_output_stream":
                return lambda path: written.append(path) or self.files.open_output_stream(path)
            return getattr(self.files, name)

    def spy(path):
        files, place = opened(path)
        return Spy(files), place

    monkeypatch.setattr(_native_write, "_opened", spy)
    directory = native.dataframe_to_mds(spark.range(3), out=str(tmp_path / "mds"))
    assert written == [f"{tmp_path}/mds/index.json.tmp"]
    assert not os.path.exists(written[0])
    assert sorted(row["id"] for row in rows_of(native, directory)) == [0, 1, 2]


def test_vectors(native, spark, tmp_path):
    from pyspark.ml.linalg import Vectors

    data = [(Vectors.dense([1.0, 2.0]),), (Vectors.sparse(2, {1: 3.0}),)]
    frame = spark.createDataFrame(data, ["v"]).coalesce(1)
    for dtype in ("float32", "float64"):
        place = str(tmp_path / dtype)
        rows = rows_of(native, native.dataframe_to_mds(frame, out=place, dtype=dtype))
        assert [row["v"].tolist() for row in rows] == [[1.0, 2.0], [0.0, 3.0]]
        assert rows[0]["v"].dtype == dtype


def test_a_relative_place(native, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = native.dataframe_to_mds(spark.range(3), out="some/place")
    assert directory.path == str(tmp_path / "some/place")
    assert sorted(row["id"] for row in rows_of(native, directory)) == [0, 1, 2]


def test_nulls_within_arrays(native, spark, tmp_path):
    """Petastorm gives double for integers, and objects for booleans, in row groups that have some."""
    frame = spark.range(4, numPartitions=1).selectExpr(
        "array(id, if(id = 2, null, 1)) as whole",
        "array(true, if(id = 2, null, false)) as flags",
        "array(cast(id as short)) as full",
        "array(1.5D, if(id = 2, null, 1D)) as reals",
    )
    rows = rows_of(native, native.dataframe_to_mds(frame, out=str(tmp_path / "mds")))
    assert {name: value.dtype.name for name, value in rows[0].items()} == {
        "whole": "float64",
        "flags": "object",
        "full": "int16",
        "reals": "float32",
    }
    np.testing.assert_array_equal(rows[2]["whole"], [2, np.nan])
    assert rows[2]["flags"].tolist() == [True, None]
    assert rows[1]["flags"].tolist() == [True, False]
    with pytest.raises(ValueError, match="array<binary> cannot be stored: cast or fill it"):
        native.dataframe_to_mds(frame.selectExpr("array(binary('a')) as b"), out="/none")


def test_calls_that_were_left_run_or_say_why_not(native, typed):
    opener = typed.make_torch_dataloader
    with opener(batch_size=17, num_epochs=1, shuffle_row_groups=False, workers_count=2) as loader:
        (batch,) = loader
    assert batch["id"].tolist() == list(range(17))
    with pytest.raises(TypeError, match="unexpected keyword argument 'predicate'"):
        typed.make_tf_dataset(num_epochs=1, predicate=object())


def test_petastorms_arguments(native):
    """What says how to read is dropped; what has no counterpart goes to streaming, which refuses it."""
    known = {"batch_size", "num_epochs", "cur_shard", "shard_count", "transform_spec"}
    refused = {"schema_fields", "predicate", "rowgroup_selector", "filters", "data_loader_fn"}
    methods = {"make_torch_dataloader", "make_tf_dataset", "make_batch_reader"}
    younger = {"drop_last", "shard_by_rank"}  # than this module, and no arguments of Petastorm's
    names = {o.name for o in OPTIONS if o.api in methods} - {"dataset_url_or_urls", *younger}
    kept = {name for name in names if name in native.from_petastorm(**{name: 1})}
    assert kept == known | refused
    assert not refused & {*inspect.signature(native.StreamingDataset.__mro__[1]).parameters}
    own = {"batchsize": 3, "cache_limit": 4}
    assert native.from_petastorm(**own).items() > own.items()
    found = native.from_petastorm(shuffle_row_groups=False, shuffling_queue_capacity=9, seed=3)
    assert found == {"num_epochs": None, "shuffle": True, "shuffle_seed": 3}
    assert native.from_petastorm(filters=None, workers_count=4, shard_seed=0, batch_size=2) == {
        "num_epochs": None,
        "shuffle": True,
        "shuffle_seed": 0,
        "batch_size": 2,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 17, "num_epochs": 1},
        {"batch_size": 4, "num_epochs": 3},
        {"batch_size": 5, "cur_shard": 1, "shard_count": 3, "num_epochs": 2},
        {"batch_size": 6, "shuffle": True, "shuffle_seed": 3},
    ],
)
def test_whole_batches_are_the_same(native, fast, typed, arguments):
    one, other = (str(batches_of(module, typed, **arguments)) for module in (native, fast))
    assert one == other  # as text, for the sake of NaN


def test_whole_batches_are_transformed(native, fast, spark, tmp_path):
    frame = spark.range(9).coalesce(1).selectExpr("id", "sequence(1, int(id) + 1) as ragged")
    directory = native.dataframe_to_mds(frame, out=str(tmp_path / "mds"))
    spec = native.TransformSpec(
        lambda rows: rows[rows["id"] != 4].assign(
            n=[len(v) for v in rows["ragged"] if len(v) != 5]
        ),
        [("n", np.int32, (), False)],
        selected_fields=["n", "id"],
    )
    one, other = (
        batches_of(module, directory, batch_size=3, num_epochs=2, transform_spec=spec)
        for module in (native, fast)
    )
    assert one == other
    assert [len(batch["n"]) for batch in one] == [3, 3, 3, 3, 3, 1]


@pytest.mark.tf
def test_whole_batches_in_tensorflow(native, fast, typed):
    found = []
    for module in (native, fast):
        arguments = {"batch_size": 7, "num_epochs": 2, "shuffle_row_groups": False}
        spec = native.TransformSpec(removed_fields=["price"])
        with module.open_tf(typed, transform_spec=spec, **arguments) as dataset:
            found.append([str(batch) for batch in dataset])
    assert found[0] == found[1]
    assert len(found[0]) == 5
