"""Datasets in Petastorm's own format become MDS: what its reader shows is what stock streaming gives."""

import decimal

import numpy as np
import pytest
from datasets import read_table

from petastorm_bridge.convert import UnsupportedColumnsError, convert_dataset
from petastorm_bridge.mds.dataset import open_dataset

petastorm = pytest.importorskip("petastorm")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]

ROWS = 40


def picture(number, dtype=np.uint8, shape=(12, 16, 3)):
    rng = np.random.default_rng(number)
    smooth = np.linspace(0, np.iinfo(dtype).max // 2, int(np.prod(shape))).reshape(shape)
    return (smooth + rng.integers(0, 30, shape)).astype(dtype)


def row(i):
    rng = np.random.default_rng(i)
    return {
        "id": np.int64(i),
        "small": np.uint8(i % 256),
        "ratio": None if i % 6 == 0 else np.float32(i / 3),
        "flag": np.bool_(i % 2),
        "text": None if i % 5 == 0 else f"text {i}",
        "price": decimal.Decimal(i) / 10,
        "png": picture(i),
        "jpeg": None if i % 7 == 0 else picture(i),
        "grey": picture(i, shape=(5, 6)),
        "grey16": picture(i, np.uint16, (5, 6)),
        "deep": picture(i, np.uint16, (5, 6, 3)),
        "matrix": rng.normal(size=(3, 4)).astype(np.float32),
        "fortran": np.asfortranarray(rng.normal(size=(2, 3))),
        "ragged": rng.integers(0, 99, (i % 4 + 1, 2)).astype(np.int16),
        "maybe": None if i % 3 == 0 else rng.integers(0, 9, (2,)),
        "mask": rng.integers(0, 2, (4,)).astype(np.bool_),
        "packed": rng.normal(size=(8,)),
        "words": None if i % 9 == 0 else np.array([f"word {n}" for n in range(i % 3)], np.str_),
        "part": f"p{i % 2}",
    }


@pytest.fixture(scope="module")
def dataset(spark, tmp_path_factory):
    """Written by the real Petastorm."""
    from petastorm.codecs import (
        CompressedImageCodec,
        CompressedNdarrayCodec,
        NdarrayCodec,
        ScalarCodec,
    )
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
    from pyspark.sql.types import (
        BooleanType,
        DecimalType,
        FloatType,
        IntegerType,
        LongType,
        StringType,
    )

    fields = [
        ("id", np.int64, (), ScalarCodec(LongType()), False),
        ("small", np.uint8, (), ScalarCodec(IntegerType()), False),
        ("ratio", np.float32, (), ScalarCodec(FloatType()), True),
        ("flag", np.bool_, (), ScalarCodec(BooleanType()), False),
        ("text", np.str_, (), ScalarCodec(StringType()), True),
        ("price", decimal.Decimal, (), ScalarCodec(DecimalType(10, 2)), False),
        ("png", np.uint8, (12, 16, 3), CompressedImageCodec("png"), False),
        ("jpeg", np.uint8, (12, 16, 3), CompressedImageCodec("jpeg", 95), True),
        ("grey", np.uint8, (5, 6), CompressedImageCodec("png"), False),
        ("grey16", np.uint16, (5, 6), CompressedImageCodec("png"), False),
        ("deep", np.uint16, (5, 6, 3), CompressedImageCodec("png"), False),
        ("matrix", np.float32, (3, 4), NdarrayCodec(), False),
        ("fortran", np.float64, (2, 3), NdarrayCodec(), False),
        ("ragged", np.int16, (None, 2), NdarrayCodec(), False),
        ("maybe", np.int64, (2,), NdarrayCodec(), True),
        ("mask", np.bool_, (4,), NdarrayCodec(), False),
        ("packed", np.float64, (8,), CompressedNdarrayCodec(), False),
        ("words", np.str_, (None,), NdarrayCodec(), True),
        ("part", np.str_, (), ScalarCodec(StringType()), False),
    ]
    schema = Unischema("Everything", [UnischemaField(*field) for field in fields])
    path = tmp_path_factory.mktemp("petastorm") / "dataset"
    with materialize_dataset(spark, f"file://{path}", schema, 1):
        rows = [dict_to_spark_row(schema, row(i)) for i in range(ROWS)]
        frame = spark.createDataFrame(rows, schema.as_spark_schema())
        frame.coalesce(2).write.partitionBy("part").parquet(f"file://{path}")
    return path


@pytest.fixture(scope="module")
def shown(dataset):
    """What the real reader shows of every row, by its id."""
    with petastorm.make_reader(
        f"file://{dataset}", reader_pool_type="dummy", shuffle_row_groups=False
    ) as reader:
        return {int(found.id): found._asdict() for found in reader}


@pytest.mark.smoke
def test_stock_streaming_gives_what_petastorm_shows(dataset, shown, tmp_path):
    import streaming

    done = convert_dataset(dataset, tmp_path / "mds", workers=2)
    assert done.rows == len(shown) == ROWS
    assert done.encodings["png"] == "png"
    assert done.encodings["jpeg"] == "jpeg"
    assert done.encodings["matrix"] == "ndarray:float32:3,4"
    assert done.encodings["ragged"] == "ndarray:int16"
    assert done.encodings["deep"] == "ndarray:uint16:5,6,3"
    assert done.encodings["small"] == "uint8"
    stock = streaming.StreamingDataset(local=done.path, shuffle=False, batch_size=1)
    flags = {name for name in done.encodings if name.endswith("__is_null")}
    assert flags == {f"{name}__is_null" for name in ("jpeg", "maybe", "text", "words")}
    for place in range(ROWS):
        sample = stock[place]
        wanted = shown[sample["id"]]
        assert set(sample) == set(wanted) | flags
        for name, value in wanted.items():
            if f"{name}__is_null" in flags:
                assert sample[f"{name}__is_null"] == (value is None)
            if value is None:
                assert name != "ratio" or np.isnan(sample[name])
            else:
                found = np.asarray(sample[name])
                np.testing.assert_array_equal(found, value, err_msg=name)
                assert (
                    name in ("flag", "mask", "words") or found.dtype == np.asarray(value).dtype
                ), name


def test_compressed_images_are_the_same_bytes(dataset, tmp_path):
    import pyarrow.parquet as pq

    done = convert_dataset(dataset, tmp_path / "mds", columns=["id", "png", "jpeg"], workers=1)
    stored = pq.read_table(dataset, columns=["id", "png", "jpeg"], partitioning=None)
    assert read_table(open_dataset(done.path)).sort_by("id").to_pydict() == {
        name: stored.sort_by("id")[name].to_pylist() for name in stored.schema.names
    }


def test_arrays_that_mds_has_not_are_refused_by_name(spark, tmp_path):
    from petastorm.codecs import NdarrayCodec, ScalarCodec
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
    from pyspark.sql.types import IntegerType

    schema = Unischema(
        "Odd",
        [
            UnischemaField("id", np.int32, (), ScalarCodec(IntegerType()), False),
            UnischemaField("wave", np.complex64, (2,), NdarrayCodec(), False),
            UnischemaField("table", np.str_, (1, 2), NdarrayCodec(), False),
        ],
    )
    url = f"file://{tmp_path}/dataset"
    with materialize_dataset(spark, url, schema, 1):
        rows = [
            {"id": np.int32(i), "wave": np.zeros(2, np.complex64), "table": np.array([["a", "b"]])}
            for i in range(3)
        ]
        rows = [dict_to_spark_row(schema, found) for found in rows]
        spark.createDataFrame(rows, schema.as_spark_schema()).write.parquet(url)
    with pytest.raises(
        UnsupportedColumnsError, match=r"'wave' \(NdarrayCodec\(\).*'table'.*--columns id"
    ):
        convert_dataset(url, tmp_path / "mds")
    assert convert_dataset(url, tmp_path / "mds", columns=["id"]).rows == 3
