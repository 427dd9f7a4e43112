"""Building and reading indexes of row groups (``petastorm/etl/rowgroup_indexing.py``)."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from petastorm_bridge.reader._rows.indexes import INDEXES_KEY, stored_indexes
from petastorm_bridge.reader._rows.store import Piece, store_at, store_of
from petastorm_bridge.unischema import Unischema, decode_row

from . import RowGroupIndexerBase
from ._pickling import pickled_indexes
from .dataset_metadata import ROW_GROUPS_PER_FILE_KEY, get_schema

__all__ = ["ROWGROUPS_INDEX_KEY", "build_rowgroup_index", "get_row_group_indexes"]

logger = logging.getLogger(__name__)

ROWGROUPS_INDEX_KEY = INDEXES_KEY
_MOST_TASKS = 2000

Indexers = Sequence[RowGroupIndexerBase]


def build_rowgroup_index(
    dataset_url: str, spark_context: Any, indexers: Indexers, hdfs_driver: str = "libhdfs3"
) -> None:
    """Build indexes of a dataset's row groups and store them beside its files.

    Args:
        dataset_url: URL of a dataset that ``materialize_dataset`` wrote.
        spark_context: Whose executors read the row groups; None, as with Spark Connect, reads them here.
        indexers: What to note of them.
        hdfs_driver: Without effect; there is one driver, libhdfs.

    Raises:
        PetastormMetadataError: The dataset is none of Petastorm's.
        ValueError: A row group has no rows, or the schema no column of an indexer.
    """
    del hdfs_driver
    began = time.monotonic()
    store = store_at(dataset_url.rstrip("/"))
    schema = get_schema(store)
    # Counted anew, as readers count them: files may have been added since the numbers were noted.
    counts = store.row_groups_per_file()
    pieces = list(enumerate(store.pieces(counts)))
    missing = {name for indexer in indexers for name in indexer.column_names} - set(schema.fields)
    if missing:
        raise ValueError(f"The dataset has no columns {', '.join(sorted(missing))} to index.")
    if spark_context is None:
        indexes = list(indexers)
        for piece in pieces:
            indexes = _index(indexes, schema, piece)
    else:
        rdd = spark_context.parallelize(pieces, min(len(pieces), _MOST_TASKS))
        indexes = rdd.map(functools.partial(_index, indexers, schema)).reduce(_combined)
    store.note(ROWGROUPS_INDEX_KEY, pickled_indexes({one.index_name: one for one in indexes}))
    store.note(ROW_GROUPS_PER_FILE_KEY, json.dumps(counts))
    logger.info("Elapsed time of index creation: %f s", time.monotonic() - began)


def _index(indexers: Indexers, schema: Unischema, piece: tuple[int, Piece]) -> list[Any]:
    """Return the indexers with what a row group holds."""
    number, row_group = piece
    columns = sorted({name for indexer in indexers for name in indexer.column_names})
    # Arrays in place of lists, whose elements indexers look at one by one.
    rows = (
        {name: np.asarray(v) if isinstance(v, list) else v for name, v in row.items()}
        for row in row_group.read(columns).to_pylist()
    )
    decoded = [decode_row(row, schema) for row in rows]
    if not decoded:
        raise ValueError(
            f"Row group {row_group.row_group} of {row_group.path} has no rows to index."
        )
    for indexer in indexers:
        indexer.build_index(decoded, number)
    return list(indexers)


def _combined(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    if len(one) != len(other):
        raise ValueError(f"{len(one)} indexers cannot be combined with {len(other)}.")
    return [a + b for a, b in zip(one, other, strict=True)]


def get_row_group_indexes(dataset: Any) -> dict[str, Any]:
    """Return the indexes that are stored with a dataset, by name; what is stored is read, never run.

    Args:
        dataset: A ``pyarrow.parquet.ParquetDataset`` of a directory.

    Raises:
        ValueError: None are stored.
        StoredSchemaError: What is stored are no indexes.
    """
    return dict(stored_indexes(store_of(dataset).notes()))
