"""Datasets in Petastorm's own format, written without Spark: Parquet files and a pickled schema."""

import json
import pickle
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from petastorm_bridge._tables.spark_types import as_type, is_named
from petastorm_bridge.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    ScalarCodec,
)
from petastorm_bridge.unischema import Unischema, UnischemaField, encode_row

UNISCHEMA_KEY = b"dataset-toolkit.unischema.v1"
ROW_GROUPS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"

_ARROW = {
    "BinaryType": pa.binary(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "DateType": pa.date32(),
    "DoubleType": pa.float64(),
    "FloatType": pa.float32(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "ShortType": pa.int16(),
    "StringType": pa.string(),
    "TimestampType": pa.timestamp("us"),
}
_NUMPY = {
    np.int8: "ByteType", np.uint8: "ShortType", np.int16: "ShortType", np.uint16: "IntegerType",
    np.int32: "IntegerType", np.int64: "LongType", np.float32: "FloatType", np.float64: "DoubleType",
    np.str_: "StringType", np.bool_: "BooleanType",
}  # fmt: skip


def pickled(schema, protocol=0):
    """The schema as Petastorm itself would have pickled it; protocol 0 ends names by a new line."""
    assert protocol == 0
    data = pickle.dumps(schema, protocol)
    data = data.replace(b"petastorm_bridge._tables.spark_types", b"pyspark.sql.types")
    return data.replace(b"petastorm_bridge.", b"petastorm.")


def arrow_type(field):
    if field.codec is None:
        return _ARROW[_NUMPY[field.numpy_dtype]]
    if not isinstance(field.codec, ScalarCodec):
        return pa.binary()
    spark_type = field.codec.spark_type
    if is_named(spark_type, "DecimalType"):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    return next(type_ for name, type_ in _ARROW.items() if is_named(spark_type, name))


def write_stored(
    path, schema, rows, *, files=2, row_group_rows=7, partition=None, extra=None, pickle=None
):
    """Write rows (dictionaries by field name) and return the url.

    Args:
        path: A directory to make.
        schema: The Unischema.
        rows: Their values, before a codec.
        files: Files, or files in each partition.
        row_group_rows: Rows of each row group but the last of a file.
        partition: Name of a field to make directories of.
        extra: Further keys of ``_common_metadata``.
        pickle: What to store as the schema, in place of the schema's pickle.
    """
    path = Path(path)
    stored = [field for field in schema.fields.values() if field.name != partition]
    arrow = pa.schema([pa.field(f.name, arrow_type(f), bool(f.nullable)) for f in stored])
    keys = sorted({str(row[partition]) for row in rows}) if partition else [None]
    counts = {}
    for key in keys:
        mine = [row for row in rows if key is None or str(row[partition]) == key]
        folder = path if key is None else path / f"{partition}={key}"
        folder.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(np.array_split(np.arange(len(mine)), files)):
            encoded = [encode_row(schema, mine[i]) for i in part]
            columns = [
                pa.array([_plain(row[name]) for row in encoded], arrow.field(name).type)
                for name in arrow.names
            ]
            name = f"part-{number:05}.parquet"
            parquet.write_table(
                pa.table(columns, schema=arrow), folder / name, row_group_size=row_group_rows
            )
            groups = parquet.read_metadata(folder / name).num_row_groups
            counts[(folder / name).relative_to(path).as_posix()] = groups
    kept = {
        UNISCHEMA_KEY: pickled(schema) if pickle is None else pickle,
        ROW_GROUPS_KEY: json.dumps(counts).encode(),
        **(extra or {}),
    }
    parquet.write_metadata(arrow.with_metadata(kept), path / "_common_metadata")
    return f"file://{path}"


def _plain(value):
    return bytes(value) if isinstance(value, bytearray) else value


def spark(name, **arguments):
    """A Spark type, without Spark."""
    from petastorm_bridge._tables.spark_types import STAND_INS

    return STAND_INS[name](**arguments) if arguments else as_type(name)


_SCALARS = [
    (np.int8, None), (np.uint8, None), (np.int16, None), (np.uint16, None), (np.int32, None),
    (np.int64, None), (np.float32, None), (np.float64, None), (np.str_, None), (np.bool_, None),
    (np.uint8, "LongType"), (np.int32, "ShortType"), (np.int64, "IntegerType"),
    (np.float32, "DoubleType"), (np.float64, "FloatType"), (np.bool_, "BooleanType"),
    (np.str_, "StringType"), (np.uint16, "LongType"), (np.uint32, "LongType"), (np.float64, "IntegerType"),
]  # fmt: skip
_ARRAY_TYPES = [
    np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16,
    np.float32, np.float64, np.bool_, np.str_, np.bytes_,
]  # fmt: skip


def random_schema(rng: random.Random, images=True):
    """A schema of one to nine fields, of all codecs; the first is an id."""
    fields = [_random_field(rng, f"f{i}", images) for i in range(rng.randint(0, 8))]
    return Unischema("Random", [UnischemaField("id", np.int64, (), None, False), *fields])


def _random_field(rng, name, images):
    nullable = rng.random() < 0.4
    kind = rng.choice(["scalar", "decimal", "array", "packed", *["image"] * images])
    if kind == "scalar":
        dtype, spark_type = rng.choice(_SCALARS)
        codec = None if spark_type is None else ScalarCodec(as_type(spark_type))
        return UnischemaField(name, dtype, (), codec, nullable)
    if kind == "decimal":
        codec = ScalarCodec(spark("DecimalType", precision=10, scale=3))
        return UnischemaField(name, Decimal, (), codec, nullable)
    if kind == "image":
        codec = CompressedImageCodec("png")
        shape = rng.choice([(5, 4), (5, 4, 3), (None, None, 3), (None, None)])
        return UnischemaField(name, rng.choice([np.uint8, np.uint16]), shape, codec, nullable)
    codec = NdarrayCodec() if kind == "array" else CompressedNdarrayCodec()
    shape = tuple(rng.choice([None, 0, 1, 2, 3]) for _ in range(rng.randint(0, 3)))
    return UnischemaField(name, rng.choice(_ARRAY_TYPES), shape, codec, nullable)


def random_rows(rng, schema, count):
    """Rows of a schema, with nulls where they may be."""
    return [{n: _value(rng, f, i) for n, f in schema.fields.items()} for i in range(count)]


def _value(rng, field, i):
    if field.name == "id":
        return np.int64(i)
    if field.nullable and rng.random() < 0.3:
        return None
    if field.numpy_dtype is Decimal:
        return Decimal(rng.randint(-(10**9), 10**9)).scaleb(-3)
    shape = tuple(rng.randint(0 if n is None else n, 3 if n is None else n) for n in field.shape)
    if isinstance(field.codec, CompressedImageCodec):
        shape = tuple(max(n, 1) for n in shape)
    values = _numbers(rng, np.dtype(field.numpy_dtype), shape, field.codec)
    if isinstance(field.codec, (NdarrayCodec, CompressedNdarrayCodec)):
        return np.asarray(values, order="F" if rng.random() < 0.2 else "C")
    return field.numpy_dtype(values) if shape == () else values


def _numbers(rng, dtype, shape, codec):
    numpy_rng = np.random.default_rng(rng.randrange(2**32))
    if dtype.kind in "SU":
        texts = np.array(["", "a", "bc ü" if dtype.kind == "U" else "bc", "x" * 9])
        return texts[numpy_rng.integers(0, 4, shape)].astype(dtype.kind)
    if dtype.kind == "b":
        return numpy_rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return numpy_rng.integers(-9, 9, shape).astype(dtype) / dtype.type(1 if codec else 2)
    # What fits the narrowest Spark type of the table above.
    high = (
        100
        if not isinstance(codec, (NdarrayCodec, CompressedNdarrayCodec))
        else np.iinfo(dtype).max
    )
    return numpy_rng.integers(max(np.iinfo(dtype).min, -high), high, shape, dtype, endpoint=True)
