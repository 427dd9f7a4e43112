"""A dataset that Petastorm wrote, as a source of stored columns and a schema that says what they mean."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from petastorm_bridge._far.copies import CacheSettings
from petastorm_bridge._far.fetch import Extent
from petastorm_bridge._sources.open import open_source
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._sources.source import RowGroup, Source
from petastorm_bridge._stored.indexes import StoredIndex, read_indexes
from petastorm_bridge._stored.schema import read_schema
from petastorm_bridge.unischema import Unischema

__all__ = ["StoredSource"]

UNISCHEMA_KEY = b"dataset-toolkit.unischema.v1"
INDEXES_KEY = b"dataset-toolkit.rowgroups_index.v1"

_NOT_PETASTORMS = (
    "Currently make_reader supports reading only Petastorm datasets. "
    "To read from a non-Petastorm Parquet store use make_batch_reader"
)


class StoredSource(Source):
    """The row groups of a dataset, and the schema that lies beside them.

    Where there is none, as in a plain Parquet store, the schema is that of the files, with a warning.

    Args:
        url_or_urls: A directory, or a list of files.
        storage_options: For remote file systems.
        settings: Where copies of far files lie, and how many.

    Raises:
        StoredSchemaError: The schema is none, or would run something.
        OSError: There is nothing to read.
    """

    def __init__(
        self,
        url_or_urls: Any,
        storage_options: Mapping[str, Any] | None,
        settings: CacheSettings | None = None,
    ) -> None:
        self._read_from(open_source(url_or_urls, storage_options, settings))
        kept = None
        if isinstance(self._inner, ParquetSource):
            kept = self._inner.common_metadata()
        self._kept: Mapping[bytes, bytes] = kept or {}
        pickled = self._kept.get(UNISCHEMA_KEY)
        if pickled is None:
            warnings.warn(_NOT_PETASTORMS, stacklevel=4)
        self.schema: Unischema = self._inner.schema if pickled is None else read_schema(pickled)

    def _read_from(self, inner: Source) -> None:
        """Take the row groups of a source, and what it says of them; its own schema is that of the files."""
        self._inner = inner
        self.types, self.nulls = inner.types, inner.nulls
        self.row_counts, self.description = inner.row_counts, inner.description
        self.partitions, self.pandas_metadata = inner.partitions, inner.pandas_metadata
        self.ahead = inner.ahead

    def indexes(self) -> Mapping[str, StoredIndex]:
        """Return the indexes of row groups that lie beside the dataset, by name.

        Raises:
            ValueError: There are none (texts of ``petastorm/etl/rowgroup_indexing.py``).
            StoredSchemaError: They would run something, or are damaged.
        """
        if not self._kept:
            raise ValueError(
                "Could not find _metadata file. Row group indexes are built with "
                "petastorm's build_rowgroup_index and lie in the dataset's _common_metadata."
            )
        if INDEXES_KEY not in self._kept:
            raise ValueError(
                "Row groups index is not available in the dataset metadata file. Build it with "
                "petastorm's build_rowgroup_index, or use predicate or filters."
            )
        return read_indexes(self._kept[INDEXES_KEY])

    def narrowed(self, names: Collection[str]) -> StoredSource:
        """Return the source of some columns; only in these do the files have to agree.

        Raises:
            DatasetError: A file lacks one of them.
        """
        source = copy.copy(self)
        source._read_from(self._inner.narrowed(names))  # noqa: SLF001 – of this class
        return source

    def key(self, position: int) -> tuple[Any, ...]:
        """Return the values of the columns in :attr:`partitions` in a row group."""
        return self._inner.key(position)

    def open(self, position: int) -> RowGroup:
        """Open one row group."""
        return self._inner.open(position)

    def extents(self, position: int) -> Sequence[Extent]:
        """Return what has to be fetched of far files to read a row group."""
        return self._inner.extents(position)
