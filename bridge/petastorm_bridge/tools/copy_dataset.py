"""Copies a dataset in Petastorm's own format, all of it or some columns and rows.

``python -m petastorm_bridge.tools.copy_dataset SOURCE_URL TARGET_URL`` (``petastorm/tools/copy_dataset.py``).
To turn a dataset into MDS there is ``petastorm-bridge convert``.
"""

from __future__ import annotations

import argparse
import functools
import logging
import operator
import sys
from collections.abc import Sequence
from typing import Any

from petastorm_bridge.etl.dataset_metadata import get_schema_from_dataset_url, materialize_dataset
from petastorm_bridge.unischema import match_unischema_fields

from .spark_session_cli import add_configure_spark_arguments, configure_spark

__all__ = ["args_parser", "copy_dataset", "main"]


def copy_dataset(  # noqa: PLR0917 - Petastorm's signature
    spark: Any,
    source_url: str,
    target_url: str,
    field_regex: Sequence[str] | None,
    not_null_fields: Sequence[str] | None,
    overwrite_output: bool,
    partitions_count: int | None,
    row_group_size_mb: int | None,
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Copy a dataset.

    Args:
        spark: Spark session.
        source_url: URL of the dataset.
        target_url: URL of the copy.
        field_regex: Patterns for the whole names of the columns to copy; None or none for all.
        not_null_fields: Columns whose rows with nulls are left out.
        overwrite_output: Replace what is at the target.
        partitions_count: Number of files; None leaves it to Spark.
        row_group_size_mb: Megabytes of a row group; None for Spark's default.
        hdfs_driver: Without effect; there is one driver, libhdfs.

    Raises:
        ValueError: No column matches a pattern.
        AnalysisException: There is something at the target.
    """
    del hdfs_driver
    schema = get_schema_from_dataset_url(source_url)
    fields = match_unischema_fields(schema, field_regex)
    if field_regex and not fields:
        raise ValueError(
            f"Regular expressions ({field_regex}) do not match any fields ({list(schema.fields)})"
        )
    if fields:
        schema = schema.create_schema_view(fields)
    with materialize_dataset(spark, target_url, schema, row_group_size_mb):
        frame = spark.read.parquet(source_url)
        if fields:
            frame = frame.select(*[field.name for field in fields])
        if not_null_fields:
            present = (frame[name].isNotNull() for name in not_null_fields)
            frame = frame.filter(functools.reduce(operator.and_, present))
        if partitions_count:
            frame = frame.repartition(partitions_count)
        mode = "overwrite" if overwrite_output else "error"
        frame.write.mode(mode).option("compression", "none").parquet(target_url)


def args_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source_url", help="URL of a dataset of Petastorm's own")
    parser.add_argument("target_url", help="URL of the copy")
    parser.add_argument(
        "--overwrite-output", action="store_true", help="replace what is at the target"
    )
    parser.add_argument(
        "--field-regex", nargs="+", help="patterns for the names of the columns to copy"
    )
    parser.add_argument(
        "--not-null-fields", nargs="+", help="columns whose rows with nulls are left out"
    )
    parser.add_argument("--partition-count", type=int, help="number of files of the copy")
    parser.add_argument("--row-group-size-mb", type=int, help="megabytes of a row group")
    parser.add_argument("--hdfs-driver", default="libhdfs3", help="without effect")
    add_configure_spark_arguments(parser)
    return parser


def _main(sys_argv: Sequence[str]) -> None:
    logging.basicConfig()
    args = args_parser().parse_args(sys_argv)

    from pyspark.sql import SparkSession

    # Row groups are small: many of them make one task.
    builder = configure_spark(SparkSession.builder.appName("petastorm-copy"), args)
    spark = builder.config("spark.sql.files.maxPartitionBytes", "1010612736").getOrCreate()
    copy_dataset(
        spark,
        args.source_url,
        args.target_url,
        args.field_regex,
        args.not_null_fields,
        args.overwrite_output,
        args.partition_count,
        args.row_group_size_mb,
    )
    spark.stop()


def main() -> None:
    """Run the script."""
    _main(sys.argv[1:])


if __name__ == "__main__":
    main()
