"""What Petastorm raises for a mistake, the bridge raises too: run side by side."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._session import MaterializationError

CONF = "petastorm.spark.converter.parentCacheDirUrl"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        int(pa.__version__.partition(".")[0]) > 14, reason="petastorm cannot be imported here"
    ),
]

try:
    from petastorm.spark import make_spark_converter as make_original
except ImportError:
    make_original = None


def range_df(spark):
    return spark.range(3)


def vectors(spark):
    from pyspark.ml.linalg import Vectors

    return spark.createDataFrame([(Vectors.dense([1.0]),)], ["v"])


def sql(text):
    return lambda spark: spark.sql(text)


# A name, what is converted, keyword arguments.
MISTAKES = [
    ("None", lambda _: None, {}),
    ("int", lambda _: 1, {}),
    ("list", lambda _: [1], {}),
    ("bytes", lambda _: b"x", {}),
    ("pandas", lambda _: pd.DataFrame({"a": [1]}), {}),
    ("codec zstd", range_df, {"compression_codec": "zstd"}),
    ("codec none", range_df, {"compression_codec": "none"}),
    ("codec 5", range_df, {"compression_codec": 5}),
    ("dtype float16", range_df, {"dtype": "float16"}),
    ("dtype numpy", range_df, {"dtype": np.float32}),
    ("vector dtype None", vectors, {"dtype": None}),
    ("vector dtype float16", vectors, {"dtype": "float16"}),
    ("void", sql("SELECT NULL AS v"), {}),
    ("array<void>", sql("SELECT array() AS v"), {}),
    ("same name", sql("SELECT 1 AS a, 2 AS a"), {}),
    ("same name but for case", sql("SELECT 1 AS a, 2 AS A"), {}),
    ("no columns", lambda spark: spark.range(1).select(), {}),
    ("stream", lambda spark: spark.readStream.format("rate").load(), {}),
    ("unknown function", lambda spark: spark.range(1).select(sf.expr("nope(id)")), {}),
    ("missing path", lambda _: "/no/such/path", {}),
    ("missing path url", lambda _: "file:///no/such/path", {}),
    ("empty path", lambda _: "", {}),
]


def raised(make, spark, build, kwargs):
    try:
        make(build(spark), **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return error
    return None


def public_type(error):
    """The exception type that users write in an except clause."""
    for kind in type(error).__mro__:
        if (
            not issubclass(kind, PySparkException)
            or kind.__module__ == "pyspark.errors.exceptions.base"
        ):
            return kind
    return type(error)


@pytest.mark.skipif(make_original is None, reason="petastorm is not installed")
@pytest.mark.parametrize(
    ("build", "kwargs"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_the_same_exception_type_is_raised(spark, cache_dir, build, kwargs):
    original = raised(make_original, spark, build, kwargs)
    ours = raised(make_spark_converter, spark, build, kwargs)
    assert original is not None
    assert isinstance(ours, public_type(original)), (repr(original), repr(ours))
    assert list(cache_dir.iterdir()) == []


# Where the types differ on purpose.
DIFFERENT = [
    ("row-group-size-checked", {"parquet_row_group_size_bytes": "abc"}, range_df, ValueError),
    ("row-group-size-checked", {"parquet_row_group_size_bytes": 1024.5}, range_df, TypeError),
    ("row-group-size-checked", {"parquet_row_group_size_bytes": True}, range_df, TypeError),
    (
        "conversion-errors",
        {},
        sql("SELECT CAST(raise_error('boom') AS INT) AS x"),
        MaterializationError,
    ),
]


@pytest.mark.skipif(make_original is None, reason="petastorm is not installed")
@pytest.mark.difference("row-group-size-checked", "conversion-errors")
@pytest.mark.parametrize(("kwargs", "build", "expected"), [d[1:] for d in DIFFERENT])
def test_a_clear_error_takes_the_place_of_javas(spark, cache_dir, kwargs, build, expected):
    original = raised(make_original, spark, build, kwargs)
    ours = raised(make_spark_converter, spark, build, kwargs)
    assert type(original).__name__ == "Py4JJavaError"
    assert isinstance(ours, expected)
    assert len(str(ours).splitlines()) == 1


@pytest.mark.skipif(make_original is None, reason="petastorm is not installed")
@pytest.mark.difference("dotted-names-convert")
def test_floating_point_columns_with_dots_in_their_names(spark, cache_dir):
    def dotted(spark):
        return spark.range(3).select(sf.col("id").cast("double").alias("a.b"))

    assert "UNRESOLVED_COLUMN" in str(raised(make_original, spark, dotted, {}))
    assert raised(make_spark_converter, spark, dotted, {}) is None


@pytest.mark.skipif(make_original is None, reason="petastorm is not installed")
@pytest.mark.difference("ancient-dates")
def test_dates_before_1582(spark, cache_dir):
    def ancient(spark):
        return spark.sql("SELECT DATE'1500-01-01' AS d, TIMESTAMP'1500-01-01 00:00:00' AS t")

    assert "INCONSISTENT_BEHAVIOR_CROSS_VERSION" in str(raised(make_original, spark, ancient, {}))
    assert raised(make_spark_converter, spark, ancient, {}) is None


@pytest.mark.skipif(make_original is None, reason="petastorm is not installed")
@pytest.mark.parametrize(
    ("url", "expected"),
    [("/tmp/x", ValueError), ("tmp/x", ValueError), ("/", ValueError), ("nope://b/x", ValueError)],
)
def test_unusable_parent_directories(spark, cache_dir, url, expected):
    spark.conf.set(CONF, url)
    original = raised(make_original, spark, range_df, {})
    ours = raised(make_spark_converter, spark, range_df, {})
    assert isinstance(original, expected)
    assert isinstance(ours, expected)
    spark.conf.unset(CONF)
    assert str(raised(make_original, spark, range_df, {})) in str(
        raised(make_spark_converter, spark, range_df, {})
    )
