"""What Petastorm keeps beside its datasets, in ``_common_metadata``: their schema and their indexes."""

from __future__ import annotations

from collections.abc import Mapping

from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._sources.source import Source
from petastorm_bridge._stored.indexes import StoredIndex, read_indexes

UNISCHEMA_KEY = b"dataset-toolkit.unischema.v1"
INDEXES_KEY = b"dataset-toolkit.rowgroups_index.v1"


def notes_beside(source: Source) -> Mapping[bytes, bytes]:
    """Return what lies beside a source of Parquet files; nothing for others, and where nothing is."""
    return (isinstance(source, ParquetSource) and source.common_metadata()) or {}


def stored_indexes(notes: Mapping[bytes, bytes]) -> Mapping[str, StoredIndex]:
    """Return the indexes of row groups that lie beside a dataset, by name.

    Args:
        notes: From :func:`notes_beside`.

    Raises:
        ValueError: There are none (texts of ``petastorm/etl/rowgroup_indexing.py``).
        StoredSchemaError: They would run something, or are damaged.
    """
    if not notes:
        raise ValueError(
            "Could not find _metadata file. Row group indexes are built with "
            "petastorm's build_rowgroup_index and lie in the dataset's _common_metadata."
        )
    if INDEXES_KEY not in notes:
        raise ValueError(
            "Row groups index is not available in the dataset metadata file. Build it with "
            "petastorm's build_rowgroup_index, or use predicate or filters."
        )
    return read_indexes(notes[INDEXES_KEY])
