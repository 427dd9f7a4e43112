"""Writing datasets in Petastorm's own format, and their schemas (``petastorm/etl/dataset_metadata.py``).

What is written is Petastorm's format, so that everything that reads such datasets today goes on reading
them. The context manager looks after what Spark does not write: the schema, and how many row groups
there are in each file.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from petastorm_bridge.errors import (
    PetastormMetadataError,
    PetastormMetadataGenerationError,
    StoredSchemaError,
)
from petastorm_bridge.reader._rows.schema import ROW_GROUPS_KEY, UNISCHEMA_KEY, read_schema
from petastorm_bridge.reader._rows.store import Piece, store_at, store_of
from petastorm_bridge.unischema import Unischema

from ._pickling import pickled_schema

__all__ = [
    "ROW_GROUPS_PER_FILE_KEY",
    "UNISCHEMA_KEY",
    "PetastormMetadataError",
    "PetastormMetadataGenerationError",
    "get_schema",
    "get_schema_from_dataset_url",
    "infer_or_load_unischema",
    "load_row_groups",
    "materialize_dataset",
]

logger = logging.getLogger(__name__)

ROW_GROUPS_PER_FILE_KEY = ROW_GROUPS_KEY

_MEGABYTE = 1 << 20
_SUMMARY = "parquet.summary.metadata.level"

_GENERATE = (
    "Write the dataset inside materialize_dataset, or add what is missing with "
    "`python -m petastorm_bridge.etl.petastorm_generate_metadata`."
)


@contextmanager
def materialize_dataset(  # noqa: PLR0917 - Petastorm's signature
    spark: Any,
    dataset_url: str,
    schema: Unischema,
    row_group_size_mb: int | None = None,
    use_summary_metadata: bool = False,
    filesystem_factory: Callable[[], Any] | None = None,
) -> Iterator[None]:
    """Set up Spark for the block, which writes Parquet to a URL; then add the schema to what it wrote.

    Spark's settings are put back however the block ends. If it raises, nothing is added.

    Args:
        spark: Spark session, classic or Connect.
        dataset_url: Where the block writes.
        schema: Of the dataset.
        row_group_size_mb: Megabytes of a row group; None for Spark's default.
        use_summary_metadata: Have Spark write a file ``_metadata`` with all footers, instead of noting
            the number of row groups of each file.
        filesystem_factory: Returns a filesystem of pyarrow or fsspec; None for the URL's.

    Raises:
        TypeError: The schema is none.
        ValueError: A URL without a scheme, or with an unknown one.
        DatasetError: The block wrote no Parquet files there.
        PetastormMetadataGenerationError: Spark did not write ``_metadata``.
    """
    pickled = pickled_schema(schema)  # fails before the data are written
    with _writing_settings(spark, row_group_size_mb, use_summary_metadata):
        yield
    filesystem = None if filesystem_factory is None else filesystem_factory()
    store = store_at(dataset_url, filesystem, user=_user(spark))
    store.note(UNISCHEMA_KEY, pickled)
    if not use_summary_metadata:
        counts = json.dumps(store.row_groups_per_file())
        store.note(ROW_GROUPS_PER_FILE_KEY, counts)
    try:
        load_row_groups(store)
    except PetastormMetadataError as error:
        raise PetastormMetadataGenerationError(
            f"Spark left no file _metadata in {dataset_url}. The data are there; add what readers need "
            "with `python -m petastorm_bridge.etl.petastorm_generate_metadata`, or write without "
            "use_summary_metadata."
        ) from error


def _user(spark: Any) -> str | None:
    """Return who Spark runs as, for HDFS; None where the session does not tell (Spark Connect)."""
    try:
        return str(spark.sparkContext.sparkUser())
    except Exception:  # noqa: BLE001 - each kind of session refuses in its own way
        return None


def load_row_groups(dataset: Any) -> list[Piece]:
    """Return the row groups of a dataset, in the order of its files.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset`` of a directory.

    Raises:
        PetastormMetadataError: The dataset has a file ``_common_metadata`` that does not say how many
            row groups there are.
    """
    store = store_of(dataset)
    summary = store.summary()
    if summary is not None and summary.num_row_groups:
        groups = map(summary.row_group, range(summary.num_row_groups))
        return store.pieces(Counter(group.column(0).file_path for group in groups))
    if summary is None and not store.has_common_metadata():
        return store.pieces(store.row_groups_per_file())
    noted = store.notes().get(ROW_GROUPS_PER_FILE_KEY)
    if noted is None:
        raise PetastormMetadataError(
            "Could not find row group metadata in _common_metadata file. " + _GENERATE
        )
    return store.pieces(json.loads(noted))


def get_schema(dataset: Any) -> Unischema:
    """Return the schema that is stored with a dataset; what is stored is read, never run.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset`` of a directory.

    Raises:
        PetastormMetadataError: None is stored.
        StoredSchemaError: What is stored is no schema.
    """
    store = store_of(dataset)
    if not store.has_common_metadata():
        raise PetastormMetadataError("Could not find _common_metadata file. " + _GENERATE)
    pickled = store.notes().get(UNISCHEMA_KEY)
    if pickled is None:
        raise PetastormMetadataError(
            "Could not find the unischema in the dataset common metadata file. " + _GENERATE
        )
    return read_schema(pickled)


def get_schema_from_dataset_url(
    dataset_url_or_urls: Any,
    hdfs_driver: str = "libhdfs3",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Unischema:
    """Return the schema that is stored with the dataset at a URL.

    Args:
        dataset_url_or_urls: URL of its directory, or the URLs of files of it.
        hdfs_driver: Without effect; there is one driver, libhdfs.
        storage_options: Keyword arguments for the ``fsspec`` filesystem.
        filesystem: Of pyarrow or fsspec; None for the URL's.

    Raises:
        ValueError: A URL without a scheme, or with an unknown one.
        OSError: There is nothing.
        PetastormMetadataError: No schema is stored.
        StoredSchemaError: What is stored is no schema.
    """
    del hdfs_driver
    is_list = isinstance(dataset_url_or_urls, list)
    url = dataset_url_or_urls[0].rpartition("/")[0] if is_list else dataset_url_or_urls
    store = store_at(url, filesystem, storage_options=storage_options)
    store.files()  # says what is wrong where there is nothing
    return get_schema(store)


def infer_or_load_unischema(dataset: Any) -> Unischema:
    """Return the stored schema of a dataset; that of its Parquet files if none is stored.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset`` of a directory.

    Raises:
        StoredSchemaError: What is stored is no schema.
    """
    try:
        return get_schema(dataset)
    except StoredSchemaError:
        raise
    except PetastormMetadataError:
        logger.info("No schema is stored with the dataset; that of its Parquet files is taken.")
        return Unischema.from_arrow_schema(dataset)


@contextmanager
def _writing_settings(spark: Any, row_group_size_mb: int | None, summary: bool) -> Iterator[None]:
    """Set Parquet's options in the block, then put back what was there."""
    # The size of a row group is looked at every so many rows: images are large.
    settings = {
        _SUMMARY: "ALL" if summary else "NONE",
        "parquet.summary.metadata.propagate-errors": "true",
        "parquet.block.size.row.check.min": "3",
        "parquet.row-group.size.row.check.min": "3",
    }
    if row_group_size_mb:
        settings["parquet.block.size"] = str(row_group_size_mb * _MEGABYTE)
    conf = _configuration(spark)
    before = {key: conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                conf.unset(key)
            else:
                conf.set(key, value)


def _configuration(spark: Any) -> Any:
    """Return Hadoop's configuration; of Spark Connect the session's, which goes with every job that writes."""
    try:
        return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no other way
    except Exception:  # noqa: BLE001 - each kind of session refuses in its own way
        return spark.conf
