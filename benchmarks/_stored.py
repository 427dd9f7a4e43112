"""Datasets in Petastorm's own format, written without Spark, and the same rows as MDS."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._settings import SEED
from petastorm_bridge.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.etl._pickling import pickled_schema
from petastorm_bridge.etl.dataset_metadata import ROW_GROUPS_PER_FILE_KEY, UNISCHEMA_KEY
from petastorm_bridge.unischema import Unischema, UnischemaField, encode_row
from petastorm_bridge.utils import add_to_dataset_metadata

FILES = 4
HEIGHT, WIDTH = 128, 256  # of Petastorm's own example

Row = dict[str, Any]


def array_schema() -> Unischema:
    """Five scalars and two arrays, one of them of any length."""
    from pyspark.sql.types import DoubleType, IntegerType, LongType

    integer, double = ScalarCodec(IntegerType()), ScalarCodec(DoubleType())
    return Unischema(
        "Arrays",
        [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("label", np.int32, (), integer, False),
            UnischemaField("source", np.int32, (), integer, False),
            UnischemaField("weight", np.float64, (), double, False),
            UnischemaField("angle", np.float64, (), double, False),
            UnischemaField("matrix", np.float32, (8, 16), NdarrayCodec(), False),
            UnischemaField("points", np.float32, (None, 3), NdarrayCodec(), False),
        ],
    )


def array_row(number: int) -> Row:
    """One row of `array_schema`, some 700 bytes."""
    random = np.random.default_rng(SEED + number)
    return {
        "id": np.int64(number),
        "label": np.int32(number % 10),
        "source": np.int32(number % 3),
        "weight": np.float64(random.random()),
        "angle": np.float64(random.random()),
        "matrix": random.random((8, 16), np.float32),
        "points": random.random((number % 16 + 1, 3), np.float32),
    }


def image_schema(codec: str) -> Unischema:
    """An id, a label and an image."""
    from pyspark.sql.types import IntegerType, LongType

    image = CompressedImageCodec(codec)
    return Unischema(
        "Images",
        [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("label", np.int32, (), ScalarCodec(IntegerType()), False),
            UnischemaField("image", np.uint8, (HEIGHT, WIDTH, 3), image, False),
        ],
    )


def image_row(number: int) -> Row:
    """One row of `image_schema`: a blurred random picture with some grain."""
    from PIL import Image

    random = np.random.default_rng(SEED + number)
    coarse = Image.fromarray(random.integers(0, 256, (6, 12, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.int16)
    grain = random.integers(-4, 5, smooth.shape, dtype=np.int16)
    return {
        "id": np.int64(number),
        "label": np.int32(number % 10),
        "image": np.clip(smooth + grain, 0, 255).astype(np.uint8),
    }


def write(
    directory: str, schema: Unischema, row: Callable[[int], Row], rows: int, group_rows: int
) -> str:
    """Write rows 0 to ``rows - 1`` as ``materialize_dataset`` does; return the dataset's URL.

    Args:
        directory: To be made.
        schema: Of the rows.
        row: From its number to a row.
        rows: How many.
        group_rows: Rows of a row group.
    """
    os.makedirs(directory)
    groups = {}
    for file, numbers in enumerate(np.array_split(np.arange(rows), FILES)):
        encoded = [encode_row(schema, row(int(number))) for number in numbers]
        columns = {name: [_plain(one[name]) for one in encoded] for name in schema.fields}
        name = f"part-{file:05}.parquet"
        parquet.write_table(
            pa.table(columns, _arrow_schema(schema)),
            os.path.join(directory, name),
            row_group_size=group_rows,
        )
        groups[name] = math.ceil(len(numbers) / group_rows)
    dataset = parquet.ParquetDataset(directory)
    add_to_dataset_metadata(dataset, UNISCHEMA_KEY, pickled_schema(schema))
    add_to_dataset_metadata(dataset, ROW_GROUPS_PER_FILE_KEY, json.dumps(groups))
    return f"file://{directory}"


def converted(url: str, directory: str) -> str:
    """The same rows as MDS: the directory that ``petastorm-bridge convert`` fills."""
    return convert_dataset(url, directory).path


def _arrow_schema(schema: Unischema) -> pa.Schema:
    kinds = {np.int32: pa.int32(), np.int64: pa.int64(), np.float64: pa.float64()}
    return pa.schema(
        [
            pa.field(f.name, pa.binary() if f.shape else kinds[f.numpy_dtype], nullable=False)
            for f in schema.fields.values()
        ]
    )


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
