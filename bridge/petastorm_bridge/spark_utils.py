"""Datasets in Petastorm's own format as Spark sees them (``petastorm/spark_utils.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .etl.dataset_metadata import get_schema_from_dataset_url
from .unischema import UnischemaField, decode_row

__all__ = ["dataset_as_rdd"]


def dataset_as_rdd(
    dataset_url: str,
    spark_session: Any,
    schema_fields: Sequence[UnischemaField] | None = None,
    hdfs_driver: str = "libhdfs3",
) -> Any:
    """Return an RDD of the rows of a dataset, as the tuples that ``make_reader`` gives.

    Args:
        dataset_url: URL of a dataset that ``materialize_dataset`` wrote.
        spark_session: A classic Spark session.
        schema_fields: Fields wanted; None for all.
        hdfs_driver: Without effect; there is one driver, libhdfs.

    Raises:
        TypeError: A session of Spark Connect, which has no RDDs.
        PetastormMetadataError: The dataset is none of Petastorm's.
    """
    del hdfs_driver
    if "connect" in type(spark_session).__module__:
        raise TypeError(
            "Spark Connect has no RDDs. Read the dataset with petastorm_bridge.make_reader, or decode it "
            "in a DataFrame: spark.read.parquet(url).mapInPandas(…) with petastorm_bridge.utils.decode_row."
        )
    schema = get_schema_from_dataset_url(dataset_url)
    frame = spark_session.read.parquet(dataset_url)
    if schema_fields is not None:
        schema = schema.create_schema_view(schema_fields)
        frame = frame.select(*schema.fields)
    return frame.rdd.map(lambda row: schema.make_namedtuple(**decode_row(row.asDict(), schema)))
