"""Copying datasets, reading them in Spark, and random rows."""

import decimal
import pickle
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812 - as every program calls it

import petastorm_bridge
from petastorm_bridge.codecs import NdarrayCodec, ScalarCodec
from petastorm_bridge.etl.dataset_metadata import get_schema_from_dataset_url, materialize_dataset
from petastorm_bridge.etl.petastorm_generate_metadata import get_schema_named
from petastorm_bridge.generator import LIST_SIZE, generate_datapoint
from petastorm_bridge.spark_utils import dataset_as_rdd
from petastorm_bridge.test_util.reader_mock import ReaderMock, schema_data_generator_example
from petastorm_bridge.tools.copy_dataset import copy_dataset
from petastorm_bridge.unischema import Unischema, UnischemaField, dict_to_spark_row
from petastorm_bridge.utils import DecodeFieldError, decode_row, run_in_subprocess

Schema = Unischema(
    "Copied",
    [
        UnischemaField("id", np.int64, (), ScalarCodec(T.LongType()), False),
        UnischemaField("text", np.str_, (), None, True),
        UnischemaField("matrix", np.float32, (2, None), NdarrayCodec(), False),
    ],
)


def row(i):
    text = f"text {i}" if i % 2 else None
    return {"id": np.int64(i), "text": text, "matrix": np.full((2, i), i, np.float32)}


@pytest.fixture(scope="module")
def url(spark, tmp_path_factory):
    url = f"file://{tmp_path_factory.mktemp('dataset')}/written"
    with materialize_dataset(spark, url, Schema):
        rows = [dict_to_spark_row(Schema, row(i)) for i in range(6)]
        spark.createDataFrame(rows, Schema.as_spark_schema()).coalesce(2).write.parquet(url)
    return url


def rows_of(url):
    with petastorm_bridge.make_reader(url, reader_pool_type="dummy") as reader:
        return {int(found.id): found._asdict() for found in reader}


@pytest.mark.spark
def test_a_copy_has_the_columns_and_rows_that_are_wanted(spark, url, tmp_path):
    target = f"file://{tmp_path}/all"
    copy_dataset(spark, url, target, None, None, False, None, 8)
    np.testing.assert_equal(rows_of(target), rows_of(url))
    with pytest.raises(Exception, match="already exists"):
        copy_dataset(spark, url, target, None, None, False, None, 8)
    copy_dataset(spark, url, target, ["id", "te.*"], ["text"], True, 1, 8)
    assert rows_of(target) == {i: {"id": i, "text": f"text {i}"} for i in (1, 3, 5)}
    assert list(get_schema_from_dataset_url(target).fields) == ["id", "text"]
    assert len(pq.ParquetDataset(f"{tmp_path}/all").files) == 1
    with pytest.raises(ValueError, match="do not match any fields"):
        copy_dataset(None, url, "", ["nothing"], [], False, 1, 8)


@pytest.mark.spark
def test_an_rdd_has_the_rows_that_the_reader_gives(spark, url):
    found = {int(one.id): one._asdict() for one in dataset_as_rdd(url, spark).collect()}
    np.testing.assert_equal(found, rows_of(url))
    for wanted in (Schema.matrix, "mat.*"):
        (first, *_) = dataset_as_rdd(url, spark, [wanted]).collect()
        assert first._fields == ("matrix",)


def test_a_session_of_spark_connect_is_told_what_to_do():
    connect = pytest.importorskip("pyspark.sql.connect.session", exc_type=ImportError)
    session = object.__new__(connect.SparkSession)
    with pytest.raises(TypeError, match=r"Spark Connect has no RDDs\. Read the dataset with"):
        dataset_as_rdd("file:///nothing", session)


def test_random_rows_fit_the_schema():
    fields = [
        UnischemaField("byte", np.int8, (), None, False),
        UnischemaField("floats", np.float32, (2, None), NdarrayCodec(), False),
    ]
    made = generate_datapoint(Unischema("Random", fields))
    assert {name: (v.dtype, v.shape) for name, v in made.items()} == {
        "byte": (np.int8, ()),
        "floats": (np.float32, (2, LIST_SIZE)),
    }
    price = UnischemaField("price", decimal.Decimal, (), None, False)
    schema = Unischema("Mock", [*fields, price])
    with ReaderMock(schema, schema_data_generator_example) as reader:
        assert next(reader).price == decimal.Decimal(0)
        assert reader.next().floats.shape == (2, 10)
    with pytest.raises(ValueError, match="not supported"):
        ReaderMock(schema, schema_data_generator_example, ngram=object())


def test_a_row_is_decoded_by_its_schema():
    matrix = np.eye(2, dtype=np.float32)
    stored = {"id": 3, "text": None, "matrix": bytes(NdarrayCodec().encode(Schema.matrix, matrix))}
    found = decode_row({**stored, "other": 1}, Schema)
    assert found.keys() == stored.keys()
    assert found["id"].dtype == np.int64
    assert found["text"] is None
    np.testing.assert_array_equal(found["matrix"], matrix)
    with pytest.raises(DecodeFieldError, match='"matrix" failed'):
        decode_row({"matrix": b"nothing"}, Schema)
    assert run_in_subprocess(pickle.loads, pickle.dumps(5)) == 5


def test_a_schema_is_found_by_its_name(monkeypatch):
    module = type(sys)("schemas_of_a_test")
    module.Schema, module.other = Schema, 1
    monkeypatch.setitem(sys.modules, "schemas_of_a_test", module)
    assert get_schema_named("schemas_of_a_test.Schema") is Schema
    with pytest.raises(ValueError, match="is not an instance of a Unischema"):
        get_schema_named("schemas_of_a_test.other")
