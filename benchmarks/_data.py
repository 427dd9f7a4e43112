"""The tables that are read, as Spark DataFrames and as every contestant's converter.

Only this module and ``_materialise`` need Spark. The races run in processes of their own, which
unpickle a `Data`: converters pickle small, and no JVM thread is near a measurement.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import pickle
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession, functions

from benchmarks._settings import MODULES, SEED, Settings
from benchmarks._table import DOUBLES, FLOATS, INTS, LONGS

_PICKLE = "data.pkl"
# The races that read a table; the others make what they need by themselves.
_READ_BY = {
    "numeric": {
        "torch-sequential", "torch-shuffled", "tensorflow", "native-sequential", "native-shuffled",
        "first-batch", "memory",
    },
    "larger": {"first-batch", "memory"},
    "scalars": {"torch-scalars"},
    "images": {"images"},
}  # fmt: skip
_IMAGE_SIDE = 256


@dataclass(frozen=True)
class Data:
    """One converter per table, of each package that is installed; none of a table that no chosen race reads.

    Attributes:
        packages: any of ``bridge`` and ``petastorm``.
        numeric: package → converter of `numeric_table` with ``settings.rows`` rows.
        larger: the same with ``settings.memory_growth`` times the rows, row groups and shards of
            the same size.
        native: directories of the MDS files that StreamingDataset reads: stock files, written
            by the bridge; ``settings.native_rows`` rows.
        scalars: package → converter of `scalar_table`.
        images: package → converter of `image_table`.
    """

    settings: Settings
    packages: tuple[str, ...]
    numeric: dict[str, Any]
    larger: dict[str, Any]
    scalars: dict[str, Any]
    images: dict[str, Any]
    native: str
    native_scalars: str

    def save(self, directory: str) -> None:
        with open(os.path.join(directory, _PICKLE), "wb") as file:
            pickle.dump(self, file)

    @staticmethod
    def load(directory: str) -> Data:
        with open(os.path.join(directory, _PICKLE), "rb") as file:
            data = pickle.load(file)  # noqa: S301 - written by our own parent process
        assert isinstance(data, Data)
        return data


def installed_packages() -> tuple[str, ...]:
    """Which converters can be measured here: Petastorm needs old versions of its libraries."""
    return tuple(name for name, module in MODULES.items() if importlib.util.find_spec(module))


def spark_session(
    directory: str, master: str = "local[2]", *, reuse_workers: bool = True
) -> SparkSession:
    """A session with two cores, by default of this process, that caches below ``directory``.

    Spark's Python workers go on to the next task, or, without ``reuse_workers``, end with each.
    """
    # Otherwise executors would run whatever `python3` is first in the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONWARNINGS"] = "ignore"  # of the libraries that executors import
    cache = os.path.join(directory, "cache")
    os.makedirs(cache, exist_ok=True)
    return (
        SparkSession.builder.master(master)
        .appName("petastorm-bridge benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.python.worker.reuse", str(reuse_workers).lower())
        .config("spark.local.dir", os.path.join(directory, "spark"))
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("petastorm.spark.converter.parentCacheDirUrl", f"file://{cache}")
        .getOrCreate()
    )


def build(session: SparkSession, settings: Settings, groups: Collection[str]) -> Data:
    """Materialises with every package the tables that some races read.

    The numeric tables keep their types (``dtype=None``), so that all read the same bytes.
    """
    rows, growth, partitions = settings.rows, settings.memory_growth, settings.partitions
    packages = installed_packages()

    def converters(table: str, make: Callable[..., DataFrame], *sizes: Any) -> dict[str, Any]:
        if _READ_BY[table].isdisjoint(groups):
            return {}
        dataframe = make(session, *sizes)
        return {name: converter(name, dataframe) for name in packages}

    def native(table: str, make: Callable[..., DataFrame]) -> str:
        if _READ_BY[table].isdisjoint(groups):
            return ""
        return mds_directory(make(session, settings.native_rows, partitions))

    return Data(
        settings=settings,
        packages=packages,
        numeric=converters("numeric", numeric_table, rows, partitions),
        larger=converters("larger", numeric_table, rows * growth, partitions * growth),
        scalars=converters("scalars", scalar_table, rows, partitions),
        images=converters("images", image_table, settings),
        native=native("numeric", numeric_table),
        native_scalars=native("scalars", scalar_table),
    )


def converter(package: str, table: DataFrame) -> Any:
    """``make_spark_converter(table, dtype=None)`` of one package."""
    spark_module = importlib.import_module(f"{MODULES[package]}.spark")
    return spark_module.make_spark_converter(table, dtype=None)


def mds_directory(table: DataFrame) -> str:
    """Where the bridge put a table as stock MDS files."""
    url = converter("bridge", table).cache_dir_url
    assert isinstance(url, str)
    return url.removeprefix("file://")


def numeric_table(session: SparkSession, rows: int, partitions: int) -> DataFrame:
    """13 columns, 116 bytes a row: 5 long, 3 int, 4 double and one array of 8 floats."""
    floats = functions.array(*[functions.rand(SEED + 50 + i).cast("float") for i in range(FLOATS)])
    columns = [
        functions.col("id"),
        *[_random_integers(i).alias(f"long{i}") for i in range(LONGS)],
        *[_random_integers(10 + i).cast("int").alias(f"int{i}") for i in range(INTS)],
        *[functions.rand(SEED + 20 + i).alias(f"double{i}") for i in range(DOUBLES)],
        # dataframe_to_mds refuses arrays that cannot hold nulls, which an array literal is.
        functions.when(functions.col("id") >= 0, floats).cast("array<float>").alias("floats"),
    ]
    return session.range(0, rows, 1, partitions).select(*columns)


def scalar_table(session: SparkSession, rows: int, partitions: int) -> DataFrame:
    """13 columns, 104 bytes a row: 7 long and 6 double, no array."""
    columns = [
        functions.col("id"),
        *[_random_integers(i).alias(f"long{i}") for i in range(6)],
        *[functions.rand(SEED + 20 + i).alias(f"double{i}") for i in range(6)],
    ]
    return session.range(0, rows, 1, partitions).select(*columns)


def image_table(session: SparkSession, settings: Settings) -> DataFrame:
    """``id``, ``content`` (a JPEG of 256 × 256, some 20 kB) and ``label``."""
    import pandas as pd

    numbers = np.arange(settings.images)
    frame = pd.DataFrame(
        {
            "id": numbers,
            "content": [jpeg(number) for number in numbers],
            "label": (numbers % 10).astype(np.int32),
        }
    )
    return session.createDataFrame(frame).repartition(settings.image_partitions)


def _random_integers(offset: int) -> Any:
    return (functions.rand(SEED + offset) * 1e9).cast("long")


def jpeg(number: Any) -> bytes:
    """A blurred random picture with some grain: compresses about as well as a photograph."""
    from PIL import Image

    random = np.random.default_rng(SEED + number)
    coarse = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
    side = (_IMAGE_SIDE, _IMAGE_SIDE)
    smooth = np.asarray(Image.fromarray(coarse).resize(side, Image.Resampling.BICUBIC), np.int16)
    grain = random.integers(-12, 13, smooth.shape, dtype=np.int16)
    picture = Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
