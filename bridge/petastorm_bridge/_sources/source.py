"""What readers ask of a table that they read row group by row group, MDS or Parquet."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from petastorm_bridge._blocks.columns import Column, NullFacts
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.unischema import Unischema, inferred_field, unsupported_text

from ._far.ahead import Fetcher
from ._far.fetch import Extent


class RowGroup(Protocol):
    """One opened row group."""

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        """Return columns of the rows, in the form :mod:`petastorm_bridge._blocks.columns` describes."""


class Source(ABC):
    """A table that can be read row group by row group.

    Attributes:
        schema: The fields Petastorm would show, named ``inferred_schema``.
        types: Arrow type of each field as presented.
        nulls: What is known of nulls in each field over the whole table.
        row_counts: Rows of each row group.
        description: For messages: the paths read.
        partitions: Columns that are the same all over a row group, by name.
        pandas_metadata: What pandas noted of its dtypes when it wrote the table (as JSON), or None.
        ahead: Fetches the row groups of far files; None where they are near.
    """

    schema: Unischema
    types: Mapping[str, pa.DataType]
    nulls: Mapping[str, NullFacts]
    row_counts: Sequence[int]
    description: str
    partitions: Mapping[str, Any] = MappingProxyType({})
    pandas_metadata: bytes | None = None
    ahead: Fetcher | None = None

    @abstractmethod
    def narrowed(self, names: Collection[str]) -> Source:
        """Return a source that offers these columns at least, with types and nulls of all rows.

        Raises:
            DatasetError: Not all of the dataset has them.
        """

    @abstractmethod
    def open(self, position: int) -> RowGroup:
        """Open one row group; may read or expand a file, and may raise for a damaged one."""

    def key(self, position: int) -> tuple[Any, ...]:  # noqa: ARG002 - no partitions
        """Return the values of the columns in ``partitions`` in a row group."""
        return ()

    def is_cheap(self, position: int) -> bool:  # noqa: ARG002 - values are decoded
        """Return whether opening and reading the group costs no more than mapping a file."""
        return False

    def extents(self, position: int) -> Sequence[Extent]:  # noqa: ARG002 - near
        """Return what has to be fetched of far files to read a row group."""
        return ()

    def want(self, position: int, *, is_for_others: bool = False) -> int:
        """Begin to fetch a row group.

        Args:
            position: Which one.
            is_for_others: Whether other processes will read it.

        Returns:
            How many bytes that takes, 0 if it is here or on its way.
        """
        if self.ahead is None:
            return 0
        extents = self.extents(position)
        return sum(self.ahead.want(extent, is_for_others=is_for_others) for extent in extents)

    def want_first(self, position: int) -> int:  # noqa: ARG002 - none is here before all are
        """Begin to fetch the row group that comes first; return how many of its rows are here before all are."""
        return 0

    def stop(self) -> None:
        """Drop what was wanted."""
        if self.ahead is not None:
            self.ahead.stop()


def number_of(rows: Rows) -> int:
    """Return how many rows there are."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def build_schema(
    fields: Sequence[tuple[str, pa.DataType, bool]],
    ignored: Sequence[tuple[str, str]] = (),
    shapes: Mapping[str, tuple[int | None, ...]] = MappingProxyType({}),
) -> tuple[Unischema, dict[str, pa.DataType]]:
    """Return the schema of a table's columns, warning of each unsupported one.

    Args:
        fields: Name, Arrow type and nullability, in table order.
        ignored: Names and type texts of columns that were left out when the data was written.
        shapes: Shapes of values of several axes.
    """
    kept = []
    types = {}
    for name, type_text in ignored:
        warnings.warn(unsupported_text(name, type_text), stacklevel=2)
    for name, type_, nullable in fields:
        field = inferred_field(name, type_, nullable)
        if field is not None:
            kept.append(field._replace(shape=shapes[name]) if name in shapes else field)
            types[name] = type_
    return Unischema("inferred_schema", kept), types
