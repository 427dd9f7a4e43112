"""What stock streaming reads is what Petastorm's loaders gave, type by type."""

from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
beside_petastorm = pytest.mark.skipif(
    find_spec("petastorm") is None, reason="compares with the real Petastorm"
)

# The SQL of a column over `id`, and what is read of it: the dtype of the tensor.
HELD = {
    "flag": ("id % 2 = 0", "uint8"),
    "small": ("cast(-id as tinyint)", "int8"),
    "short": ("cast(300 * id as smallint)", "int16"),
    "whole": ("cast(70000 * id as int)", "int32"),
    "long": ("9007199254740993 + id", "int64"),
    "real": ("cast(id as float) / 3", "float32"),
    "double": ("cast(id as double) / 3", "float32"),
    "holes": ("if(id % 3 = 1, null, cast(id as int))", "float64"),
    "long_holes": ("if(id = 0, null, id)", "float64"),
    "small_holes": ("if(id = 5, null, cast(id as tinyint))", "float64"),
    "no_whole": ("cast(null as int)", "float64"),
    "real_holes": ("if(id % 3 = 1, null, cast(id as float))", "float32"),
    "no_real": ("cast(null as double)", "float32"),
    "flags": ("array(id % 2 = 0, true)", "uint8"),
    "smalls": ("array(cast(id as tinyint), cast(-id as tinyint))", "int8"),
    "shorts": ("array(cast(id as smallint))", "int16"),
    "wholes": ("array(cast(id as int), 7, 8)", "int32"),
    "longs": ("array(id, 9007199254740993)", "int64"),
    "reals": ("array(cast(id as float), 0.5F)", "float32"),
    "doubles": ("array(cast(id as double) / 3)", "float32"),
    "real_gaps": ("array(cast(id as float), null)", "float32"),
}
# Petastorm's loaders for torch refuse these; streaming's give lists, and integers of nanoseconds.
MORE = {
    "text": ("concat('é', id)", list),
    "blob": ("unhex(concat('00', lpad(hex(id), 2, '0'), '00'))", list),
    "moment": ("timestamp'2020-01-02 03:04:05.000006' + make_interval(0, 0, 0, id)", "int64"),
    "local_moment": ("timestamp_ntz'2020-01-02 03:04:05.000006'", "int64"),
    "moment_holes": ("if(id = 2, null, timestamp'1969-12-31 23:59:59.999999')", "int64"),
    "moments": ("array(timestamp'1900-01-01', null, timestamp'2200-01-01')", "int64"),
    "gaps": ("array(id, if(id = 2, null, 1))", "float64"),
    "long_gaps": ("array(if(id % 2 = 1, null, id))", "float64"),
}
ROWS = 11


def table_of(spark, columns, partitions=3):
    """A table of eleven rows."""
    frame = spark.range(ROWS, numPartitions=partitions)
    chosen = [f"{sql} as {name}" for name, (sql, _) in columns.items()]
    return frame.selectExpr("id", *chosen)


@pytest.fixture(scope="module")
def petastorm_batches(spark, tmp_path_factory):
    """What the real Petastorm gives of the same table in batches of four."""
    from petastorm.spark import SparkDatasetConverter, make_spark_converter

    frame = table_of(spark, HELD).coalesce(1)
    # Scenarios of other files leave keys set that are theirs.
    key = SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF
    before = spark.conf.get(key, None)
    spark.conf.set(key, tmp_path_factory.mktemp("petastorm").as_uri())
    converter = make_spark_converter(frame)
    if before is not None:
        spark.conf.set(key, before)
    with converter.make_torch_dataloader(
        batch_size=4, num_epochs=1, shuffle_row_groups=False, workers_count=1
    ) as batches:
        found = list(batches)
    converter.delete()
    return found


@pytest.fixture(scope="module")
def held(write_mds, spark, tmp_path_factory):
    out = tmp_path_factory.mktemp("held") / "mds"
    return write_mds(table_of(spark, HELD), str(out))


@pytest.fixture(scope="module")
def batches(held, loader):
    return list(loader(held))


@pytest.mark.smoke
@beside_petastorm
def test_batches_are_petastorms(petastorm_batches, batches):
    assert [len(batch["id"]) for batch in batches] == [4, 4, 3]
    assert len(batches) == len(petastorm_batches)
    for one, other in zip(batches, petastorm_batches, strict=True):
        assert set(one) == set(other)
        for name, tensor in one.items():
            assert tensor.dtype == other[name].dtype, name
            assert tensor.shape == other[name].shape, name
            np.testing.assert_array_equal(tensor, other[name], err_msg=name)


@pytest.mark.parametrize("name", HELD)
def test_types_without_petastorm(batches, name):
    """The same where Petastorm cannot be installed."""
    for batch in batches:
        assert str(batch[name].dtype) == f"torch.{HELD[name][1]}"


def test_values_without_petastorm(held, loader):
    (batch,) = loader(held, batch_size=ROWS)
    ids = np.arange(ROWS)
    np.testing.assert_array_equal(batch["id"], ids)
    np.testing.assert_array_equal(batch["flag"], ids % 2 == 0)
    np.testing.assert_array_equal(batch["long"], 9007199254740993 + ids)
    np.testing.assert_array_equal(batch["holes"], np.where(ids % 3 == 1, np.nan, ids))
    np.testing.assert_array_equal(batch["double"], (ids / 3).astype("float32"))
    np.testing.assert_array_equal(batch["longs"], [[i, 9007199254740993] for i in ids])
    np.testing.assert_array_equal(batch["real_gaps"], [[i, np.nan] for i in ids])
    assert np.isnan(batch["no_whole"]).all()


def test_what_petastorm_refused(write_mds, spark, tmp_path, loader):
    directory = write_mds(table_of(spark, MORE), str(tmp_path / "mds"))
    (batch,) = loader(directory, batch_size=ROWS)
    for name, (_, kind) in MORE.items():
        found = batch[name]
        assert type(found) is list if kind is list else str(found.dtype) == f"torch.{kind}", name
    assert batch["text"][:2] == ["é0", "é1"]
    assert batch["blob"][10] == b"\x00\x0a\x00"
    start = np.datetime64("2020-01-02T03:04:05.000006", "ns")
    days = start + np.arange(ROWS).astype("timedelta64[D]")
    np.testing.assert_array_equal(batch["moment"], days.astype("int64"))
    assert batch["local_moment"][3] == start.astype("int64")
    assert batch["moment_holes"].tolist()[1:4] == [-1000, np.iinfo("int64").min, -1000]
    edges = [np.datetime64(f"{year}-01-01", "ns").astype("int64") for year in (1900, 2200)]
    assert batch["moments"][5].tolist() == [edges[0], np.iinfo("int64").min, edges[1]]
    np.testing.assert_array_equal(batch["gaps"][1:4], [[1, 1], [2, np.nan], [3, 1]])
    np.testing.assert_array_equal(batch["long_gaps"][:3], [[0], [np.nan], [2]])


@pytest.mark.parametrize("dtype", ["float32", "float64", None])
def test_precision_of_floats_and_vectors(write_mds, spark, tmp_path, loader, dtype):
    from pyspark.ml.linalg import Vectors

    rows = [
        (1, Vectors.dense([1 / 3, 2.0])),
        (2, Vectors.sparse(2, {1: 3.0})),
    ]
    frame = spark.createDataFrame(rows, ["id", "vector"]).coalesce(1)
    frame = frame.selectExpr(
        "id", "vector", "cast(id as float) as f", "id / 3D as d", "array(id / 3D) as ds"
    )
    directory = write_mds(frame, str(tmp_path / "mds"), dtype=dtype)
    (batch,) = loader(directory)
    wide = dtype or "float64"
    assert str(batch["vector"].dtype) == f"torch.{wide}"
    np.testing.assert_array_equal(batch["vector"], np.array([[1 / 3, 2], [0, 3]], wide))
    assert str(batch["f"].dtype) == f"torch.{dtype or 'float32'}"
    assert str(batch["d"].dtype) == str(batch["ds"].dtype) == f"torch.{wide}"
    np.testing.assert_array_equal(batch["ds"], np.array([[1 / 3], [2 / 3]], wide))


def test_arrays_of_differing_length(write_mds, spark, tmp_path, streaming):
    frame = spark.range(5, numPartitions=2).selectExpr("sequence(0, int(id)) as ragged")
    directory = write_mds(frame, str(tmp_path / "mds"))
    dataset = streaming.StreamingDataset(local=directory.path, batch_size=1)
    found = [sample["ragged"] for sample in dataset]
    assert [value.tolist() for value in found] == [list(range(i + 1)) for i in range(5)]
    assert {value.dtype.name for value in found} == {"int32"}


def test_both_forms_store_the_same(both_writers, spark, tmp_path, streaming):
    """Names, which are in the DataFrame's order, types, shapes and values of every sample, in order."""
    frame = table_of(spark, HELD | MORE)
    samples = {}
    for form, write_mds in both_writers.items():
        directory = write_mds(frame, str(tmp_path / form))
        assert len(directory) == ROWS
        dataset = streaming.StreamingDataset(local=directory.path, batch_size=1)
        samples[form] = list(dataset)
    for one, other in zip(samples["installed"], samples["copied"], strict=True):
        assert list(one) == list(other) == frame.columns
        for name, value in one.items():
            assert type(value) is type(other[name]), name
            if isinstance(value, np.ndarray):
                assert value.dtype == other[name].dtype, name
                assert value.shape == other[name].shape, name
            np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_names_that_need_quotes(write_mds, spark, tmp_path, loader):
    names = ["a.b", "c`d", "e f", "{g}", "größe", "x"]
    frame = spark.range(3).coalesce(1).selectExpr(*["id"] * 5, "array(id, null)").toDF(*names)
    (batch,) = loader(write_mds(frame, str(tmp_path / "mds")))
    assert list(batch) == names
    np.testing.assert_array_equal(batch["x"], [[0, np.nan], [1, np.nan], [2, np.nan]])


def test_local_times_are_the_same_in_every_zone(write_mds, spark, tmp_path, loader):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(  # an hour that New York does not have
            "select timestamp_ntz'2020-03-08 02:30:00' as t, timestamp'2020-01-01 00:00:00' as u"
        )
        (batch,) = loader(write_mds(frame, str(tmp_path / "mds")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert batch["t"].item() == np.datetime64("2020-03-08T02:30:00", "ns").astype("int64")
    assert batch["u"].item() == np.datetime64("2020-01-01T05:00:00", "ns").astype("int64")


@pytest.mark.parametrize("moment", ["2262-04-12", "0001-01-01"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "array"])
def test_times_that_nanoseconds_cannot_hold(write_mds, spark, tmp_path, moment, kind):
    value = f"array(timestamp'{moment}')" if kind == "array" else f"{kind}'{moment}'"
    with pytest.raises(Exception, match="a timestamp outside the years 1678 to 2261"):
        write_mds(spark.sql(f"select {value} as v"), str(tmp_path / "mds"))
    assert not (tmp_path / "mds").exists()


def test_the_last_times_that_nanoseconds_hold(write_mds, spark, tmp_path, loader):
    texts = ["1677-09-21 00:12:43.145225", "2262-04-11 23:47:16.854775"]
    frame = spark.sql(" union all ".join(f"select timestamp_ntz'{text}' as v" for text in texts))
    (batch,) = loader(write_mds(frame.coalesce(1), str(tmp_path / "mds")))
    wanted = [np.datetime64(text.replace(" ", "T"), "ns").astype("int64") for text in texts]
    assert batch["v"].tolist() == wanted
