"""Adds what Petastorm's readers need to Parquet files that are there already.

``python -m petastorm_bridge.etl.petastorm_generate_metadata --dataset_url URL --unischema_class NAME``
(``petastorm/etl/petastorm_generate_metadata.py``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pydoc import locate
from typing import Any

from petastorm_bridge.errors import PetastormMetadataError, StoredSchemaError
from petastorm_bridge.reader._rows.store import store_at
from petastorm_bridge.unischema import Unischema

from .dataset_metadata import ROW_GROUPS_PER_FILE_KEY, get_schema, materialize_dataset
from .rowgroup_indexing import ROWGROUPS_INDEX_KEY

__all__ = ["generate_petastorm_metadata", "main"]


def generate_petastorm_metadata(
    spark: Any,
    dataset_url: str,
    unischema_class: str | None = None,
    use_summary_metadata: bool = False,
    hdfs_driver: str = "libhdfs3",
) -> None:
    """Write the schema and the numbers of row groups beside the Parquet files of a directory.

    As in Petastorm the Spark session is stopped in the end.

    Args:
        spark: Spark session.
        dataset_url: URL of the directory.
        unischema_class: Full name of the schema, such as ``package.module.MySchema``; None takes the
            one that is stored there.
        use_summary_metadata: Have parquet-mr write a file ``_metadata`` with the footers of all files;
            needs a classic Spark session.
        hdfs_driver: Without effect; there is one driver, libhdfs.

    Raises:
        ValueError: No schema of that name, or none stored.
        StoredSchemaError: What is stored is no schema.
    """
    del hdfs_driver
    store = store_at(dataset_url)
    schema = get_schema_named(unischema_class) if unischema_class else _stored(store, dataset_url)
    before = store.notes()
    with materialize_dataset(
        spark,
        dataset_url,
        schema,
        use_summary_metadata=use_summary_metadata,
        filesystem_factory=lambda: store.filesystem,
    ):
        if use_summary_metadata:
            _write_summary(spark, dataset_url)
    if use_summary_metadata:
        # Spark has written _common_metadata anew.
        for key in (ROW_GROUPS_PER_FILE_KEY, ROWGROUPS_INDEX_KEY):
            if key in before:
                store.note(key, before[key])
    spark.stop()


def get_schema_named(name: str) -> Any:
    """Return the schema of a full name; one of the original's will do.

    Raises:
        ValueError: There is none.
    """
    schema = locate(name)
    is_schema = any(cls.__name__ == Unischema.__name__ for cls in type(schema).__mro__)
    if not is_schema:
        raise ValueError(
            f"The specified class {name} is not an instance of a Unischema but {schema!r}. Give the full "
            "name of one, such as package.module.MySchema, in a module that Python finds."
        )
    return schema


def _stored(store: Any, url: str) -> Unischema:
    try:
        return get_schema(store)
    except StoredSchemaError:
        raise
    except PetastormMetadataError as error:
        raise ValueError(f"No schema is stored in {url}; say which one it has.") from error


def _write_summary(spark: Any, url: str) -> None:
    context = spark.sparkContext
    hadoop = context._gateway.jvm.org.apache.hadoop  # noqa: SLF001 - Spark has no other way
    parquet = context._gateway.jvm.org.apache.parquet.hadoop  # noqa: SLF001 - see above
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001 - see above
    parquet.ParquetOutputCommitter.writeMetaDataFile(configuration, hadoop.fs.Path(url))


def _main(args: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="petastorm_generate_metadata",
        description="Add what Petastorm's readers need to an existing Parquet dataset",
    )
    parser.add_argument("--dataset_url", required=True, help="URL of the dataset's directory")
    parser.add_argument(
        "--unischema_class",
        help="full name of the dataset's Unischema, such as package.module.MySchema; without it, the "
        "one that is stored with the dataset",
    )
    parser.add_argument("--master", help="Spark master, such as local[4]")
    parser.add_argument("--spark-driver-memory", default="4g", help="memory of the driver")
    parser.add_argument(
        "--use-summary-metadata",
        action="store_true",
        help="write the footers of all files into a file _metadata",
    )
    parser.add_argument("--hdfs-driver", default="libhdfs3", help="without effect")
    given = parser.parse_args(args)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("Petastorm Generate Metadata").config(
        "spark.driver.memory", given.spark_driver_memory
    )
    if given.master:
        builder = builder.master(given.master)
    generate_petastorm_metadata(
        builder.getOrCreate(), given.dataset_url, given.unischema_class, given.use_summary_metadata
    )


def main() -> None:
    """Run the script."""
    _main(sys.argv[1:])


if __name__ == "__main__":
    main()
