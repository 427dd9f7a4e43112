"""Which columns are written, converted how: schema and values on disk."""

import datetime as dt
import decimal
import json
import logging

import numpy as np
import pyarrow as pa
import pytest
from datasets import read_table
from pyspark.errors import AnalysisException, IllegalArgumentException

from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.spark import make_spark_converter

pytestmark = pytest.mark.spark


def written(df, **kwargs):
    return read_table(open_dataset(local_path(make_spark_converter(df, **kwargs).cache_dir_url)))


def extra(df, **kwargs):
    directory = local_path(make_spark_converter(df, **kwargs).cache_dir_url)
    return open_dataset(directory).schema.extra


# SQL expression, Arrow type on disk, value of a row.
PLAIN = [
    ("true", pa.bool_(), True),
    ("CAST(-128 AS TINYINT)", pa.int8(), -128),
    ("CAST(-32768 AS SMALLINT)", pa.int16(), -32768),
    ("CAST(-2147483648 AS INT)", pa.int32(), -(2**31)),
    ("-9223372036854775808", pa.int64(), -(2**63)),
    ("CAST(0.1 AS FLOAT)", pa.float32(), float(np.float32(0.1))),
    ("CAST(1.25 AS DECIMAL(10,2))", pa.decimal128(10, 2), decimal.Decimal("1.25")),
    ("'héllo'", pa.string(), "héllo"),
    ("X'00FF'", pa.binary(), b"\x00\xff"),
    ("DATE'2020-02-29'", pa.date32(), dt.date(2020, 2, 29)),
    (
        "TIMESTAMP'2020-02-29 12:00:00.000001 UTC'",
        pa.timestamp("us", tz="UTC"),
        dt.datetime(2020, 2, 29, 12, 0, 0, 1, tzinfo=dt.timezone.utc),
    ),
    (
        "TIMESTAMP_NTZ'2020-02-29 12:00:00'",
        pa.timestamp("us"),
        dt.datetime(2020, 2, 29, 12),
    ),
    ("INTERVAL '1 00:00:00.000001' DAY TO SECOND", pa.int64(), 86_400_000_001),
    ("INTERVAL -'1-2' YEAR TO MONTH", pa.int32(), -14),
    ("INTERVAL '3' YEAR", pa.int32(), 36),
    ("INTERVAL '5' MONTH", pa.int32(), 5),
    ("array(1L, 2L)", pa.list_(pa.field("element", pa.int64())), [1, 2]),
    ("array('a', NULL)", pa.list_(pa.field("element", pa.string())), ["a", None]),
    ("array(INTERVAL '1' DAY)", pa.list_(pa.field("element", pa.int64())), [86_400_000_000]),
    ("array(INTERVAL '2' YEAR)", pa.list_(pa.field("element", pa.int32())), [24]),
]


def test_every_plain_type_arrives_with_its_type_and_value(spark, cache_dir):
    selected = [f"{sql} AS c{i}" for i, (sql, _, _) in enumerate(PLAIN)]
    table = written(spark.range(1).selectExpr(*selected), dtype=None)
    assert [str(t) for t in table.schema.types] == [str(t) for _, t, _ in PLAIN]
    assert list(table.to_pylist()[0].values()) == [value for _, _, value in PLAIN]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", ["float", "float", "list<element: float>", "list<element: float>"]),
        ("float64", ["double", "double", "list<element: double>", "list<element: double>"]),
        (None, ["float", "double", "list<element: float>", "list<element: double>"]),
    ],
)
def test_dtype_converts_columns_and_array_elements_and_nothing_else(
    spark, cache_dir, caplog, dtype, expected
):
    caplog.set_level(logging.INFO)
    df = spark.range(1).selectExpr(
        "CAST(0.1 AS FLOAT) AS f",
        "CAST(0.1 AS DOUBLE) AS d",
        "array(CAST(0.1 AS FLOAT)) AS af",
        "array(CAST(0.1 AS DOUBLE)) AS ad",
        "CAST(0.1 AS DECIMAL(10,2)) AS dec",
        "id",
    )
    table = written(df, dtype=dtype)
    assert [str(t) for t in table.schema.types] == [*expected, "decimal128(10, 2)", "int64"]
    logged = f"Converting floating-point columns to {dtype}" in caplog.messages
    assert logged == (dtype is not None)


def test_a_double_that_is_too_large_for_float32_becomes_infinite(spark, cache_dir):
    table = written(spark.sql("SELECT 1e300D AS x, 16777217D AS y"))
    assert table.to_pylist() == [{"x": float("inf"), "y": 16777216.0}]


@pytest.mark.parametrize("dtype", ["float16", "FLOAT32", np.float32, "int"])
def test_an_unknown_dtype_is_refused_with_petastorms_text(spark, cache_dir, dtype):
    with pytest.raises(
        ValueError, match=r"is not supported\.             Use 'float32' or float64"
    ):
        make_spark_converter(spark.range(1), dtype=dtype)
    assert list(cache_dir.iterdir()) == []


@pytest.mark.smoke
def test_a_dtype_that_equals_its_name(spark, cache_dir):
    frame = spark.range(1).selectExpr("CAST(id AS DOUBLE) AS x")
    assert written(frame, dtype=np.dtype("float32")).schema.field("x").type == "float"


@pytest.mark.parametrize(("dtype", "arrow"), [("float32", "float"), ("float64", "double")])
def test_vectors_of_both_libraries_become_arrays(spark, cache_dir, dtype, arrow):
    from pyspark.ml.linalg import Vectors
    from pyspark.mllib.linalg import Vectors as OldVectors

    df = spark.createDataFrame(
        [
            (Vectors.dense([1.0, 2.0, 3.0]), OldVectors.sparse(3, [1], [4.0])),
            (Vectors.sparse(3, [0], [0.5]), OldVectors.dense([1.0, 0.0, 1.0])),
        ],
        ["a.b", "old"],
    ).coalesce(1)
    table = written(df, dtype=dtype)
    assert [str(t) for t in table.schema.types] == [f"list<element: {arrow}>"] * 2
    assert table.column("a.b").to_pylist() == [[1.0, 2.0, 3.0], [0.5, 0.0, 0.0]]
    assert table.column("old").to_pylist() == [[0.0, 4.0, 0.0], [1.0, 0.0, 1.0]]


def test_vectors_through_petastorms_private_name(spark):
    from pyspark.ml.linalg import Vectors

    from petastorm_bridge.spark.spark_dataset_converter import _convert_vector

    df = spark.createDataFrame([(1, Vectors.sparse(2, [1], [0.5]))], ["id", "v"])
    converted = _convert_vector(df, "float32")
    assert converted.schema.simpleString() == "struct<id:bigint,v:array<float>>"
    assert [tuple(row) for row in converted.collect()] == [(1, [0.0, 0.5])]


def test_a_vector_needs_a_dtype(spark, cache_dir):
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(Vectors.dense([1.0]),)], ["v"])
    with pytest.raises(IllegalArgumentException, match=r"Unsupported dtype: null\. Valid values"):
        make_spark_converter(df, dtype=None)


def test_columns_that_no_reader_can_hold_are_left_out_and_recorded(spark, cache_dir):
    df = spark.range(3).selectExpr(
        "map(id, 'x') AS m", "id", "struct(id, 'x' AS s) AS s", "array(array(id)) AS aa"
    )
    found = extra(df)
    assert written(df).schema.names == ["id"]
    assert found["ignored"] == [
        ["m", "map<int64, string>"],
        ["s", "struct<id: int64, s: string>"],
        ["aa", "list<element: list<element: int64>>"],
    ]
    assert found["dtype"] == "float32"
    spark_fields = json.loads(found["spark_schema"])["fields"]
    assert [field["name"] for field in spark_fields] == ["m", "id", "s", "aa"]


def test_a_frame_without_storable_columns_still_counts_its_rows(spark, cache_dir):
    converter = make_spark_converter(spark.range(7).selectExpr("map(id, id) AS m"))
    assert len(converter) == 7
    assert [url.rpartition("/")[2] for url in converter.file_urls] == ["index.json"]


def test_user_defined_types_are_what_they_are_stored_as(spark, cache_dir):
    from pyspark.ml.linalg import Matrices

    df = spark.createDataFrame([(1, Matrices.dense(1, 1, [1.0]))], ["id", "m"])
    assert extra(df)["ignored"][0][0] == "m"
    assert written(df).schema.names == ["id"]


@pytest.mark.parametrize("name", ["a b", "a.b", "a`b", "é", "class", "1", "a,b;(c)=d", "x" * 300])
def test_any_column_name_is_written(spark, cache_dir, name):
    df = spark.range(2).toDF("id").withColumnRenamed("id", name)
    assert written(df).to_pydict() == {name: [0, 1]}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT NULL AS v", r"UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE.*`v` of the type \"VOID\""),
        ("SELECT array() AS v", r"UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE.*\"ARRAY<VOID>\""),
        ("SELECT struct(NULL AS a) AS v", r"UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE.*VOID"),
        ("SELECT 1 AS id, 2 AS ID", r"COLUMN_ALREADY_EXISTS.*`id`"),
        ("SELECT 1 AS id, 2 AS id", r"COLUMN_ALREADY_EXISTS.*`id`"),
    ],
)
def test_what_spark_could_not_write_either_is_its_analysis_exception(
    spark, cache_dir, sql, message
):
    with pytest.raises(AnalysisException, match=message):
        make_spark_converter(spark.sql(sql))
    assert list(cache_dir.iterdir()) == []


def test_no_columns_and_streams_are_analysis_exceptions(spark, cache_dir):
    with pytest.raises(AnalysisException, match="at least one or more column"):
        make_spark_converter(spark.range(1).select())
    with pytest.raises(AnalysisException, match="streaming DataFrame cannot be converted"):
        make_spark_converter(spark.readStream.format("rate").load())


def test_names_that_differ_in_case_work_where_spark_keeps_them_apart(spark, cache_dir):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        table = written(spark.range(1).selectExpr("id", "id + 1 AS ID"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert table.to_pydict() == {"id": [0], "ID": [1]}


def test_timestamps_are_the_same_instants_in_every_session_time_zone(spark, cache_dir):
    df = spark.range(1).selectExpr("TIMESTAMP'2020-06-01 00:00:00 UTC' AS t")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        table = written(df)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert table.column("t").cast(pa.int64()).to_pylist() == [1590969600000000]
