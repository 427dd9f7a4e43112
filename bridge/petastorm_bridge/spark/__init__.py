"""Spark DataFrames as training data: the counterpart of ``petastorm.spark``.

Importing this package imports neither pyspark nor torch nor TensorFlow; Spark executors import it
for its shard writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spark_dataset_converter import SparkDatasetConverter, make_spark_converter

__all__ = ["SparkDatasetConverter", "make_spark_converter"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import spark_dataset_converter

    return getattr(spark_dataset_converter, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
