"""A dataset that Petastorm wrote, as a source of stored columns and a schema that says what they mean."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from petastorm_bridge._blocks.columns import NullFacts
from petastorm_bridge._far.copies import CacheSettings
from petastorm_bridge._sources.open import open_source
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._sources.source import Near, RowGroup, Source
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


class StoredSource(Near):
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
        self._inner: Source = open_source(url_or_urls, storage_options, settings)
        kept = None
        if isinstance(self._inner, ParquetSource):
            kept = self._inner.common_metadata()
        self._kept: Mapping[bytes, bytes] = kept or {}
        pickled = self._kept.get(UNISCHEMA_KEY)
        if pickled is None:
            warnings.warn(_NOT_PETASTORMS, stacklevel=4)
        self.schema: Unischema = self._inner.schema if pickled is None else read_schema(pickled)

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Arrow types of the stored columns."""
        return self._inner.types

    @property
    def nulls(self) -> Mapping[str, NullFacts]:
        """What is known of nulls in the stored columns."""
        return self._inner.nulls

    @property
    def row_counts(self) -> Sequence[int]:
        """Rows of each row group."""
        return self._inner.row_counts

    @property
    def description(self) -> str:
        """Where the dataset is."""
        return self._inner.description

    @property
    def partitions(self) -> Mapping[str, Any]:
        """Columns that lie in the names of directories."""
        return self._inner.partitions

    @property
    def pandas_metadata(self) -> bytes | None:
        """What pandas noted of its dtypes, or None."""
        return self._inner.pandas_metadata

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
        source._inner = self._inner.narrowed(names)  # noqa: SLF001 – of this class
        return source

    def key(self, position: int) -> tuple[Any, ...]:
        """Return the values of the columns in :attr:`partitions` in a row group."""
        return self._inner.key(position)

    def open(self, position: int) -> RowGroup:
        """Open one row group."""
        return self._inner.open(position)

    @property
    def is_far(self) -> bool:
        """Whether row groups are fetched from far away."""
        return self._inner.is_far

    def want(self, position: int, *, is_for_others: bool = False) -> int:
        """Begin to fetch a row group; return how many bytes that takes."""
        return self._inner.want(position, is_for_others=is_for_others)

    def bytes_here(self) -> int:
        """Return how many bytes the copies of far files take."""
        return self._inner.bytes_here()

    def stop(self) -> None:
        """Drop what was wanted."""
        self._inner.stop()

    def is_cheap(self, position: int) -> bool:  # noqa: ARG002 – every value is decoded
        """Return False: values are decoded."""
        return False
