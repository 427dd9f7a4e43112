"""Indexes of row groups by value (``petastorm/etl/rowgroup_indexers.py``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import RowGroupIndexerBase

__all__ = ["FieldNotNullIndexer", "SingleFieldIndexer"]

Rows = Sequence[Mapping[str, Any]]


class _FieldIndexer(RowGroupIndexerBase):
    """An index over one field, called by its name in selectors."""

    _index_data: Any

    def __init__(self, index_name: str, index_field: str) -> None:
        self._index_name = index_name
        self._column_name = index_field

    @property
    def index_name(self) -> str:
        """What selectors call it."""
        return self._index_name

    @property
    def column_names(self) -> list[str]:
        """The one field."""
        return [self._column_name]

    def _check_same_field(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(
                f"A {type(self).__name__} cannot take what a {type(other).__name__} has found: every "
                "task has to return indexers of the same types, in the same order."
            )
        if self.column_names != other.column_names:
            raise ValueError(
                f"An index of {self.column_names} cannot take what one of {other.column_names} has "
                "found: every task has to index the same fields."
            )

    def _values(self, rows: Rows) -> list[Any]:
        values = [row[self._column_name] for row in rows]
        if not values:
            raise ValueError(f"Cannot build index for empty rows, column '{self._column_name}'")
        return values


class SingleFieldIndexer(_FieldIndexer):
    """Which row groups hold a value of a field: texts, numbers, or elements of one-dimensional arrays."""

    def __init__(self, index_name: str, index_field: str) -> None:
        super().__init__(index_name, index_field)
        self._index_data: defaultdict[Any, set[int]] = defaultdict(set)

    def __add__(self, other: Any) -> SingleFieldIndexer:
        self._check_same_field(other)
        for value, groups in other._index_data.items():
            self._index_data[value].update(groups)
        return self

    @property
    def indexed_values(self) -> list[Any]:
        """All values that occur."""
        return list(self._index_data)

    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """Return the numbers of the row groups that hold a value."""
        return self._index_data[value_key]

    def build_index(self, decoded_rows: Rows, piece_index: int) -> defaultdict[Any, set[int]]:
        """Take note of the values of a row group.

        Raises:
            ValueError: There are no rows.
        """
        for value in self._values(decoded_rows):
            if isinstance(value, np.ndarray):
                for element in value:
                    self._index_data[element].add(piece_index)
            elif value is not None:
                self._index_data[value].add(piece_index)
        return self._index_data


class FieldNotNullIndexer(_FieldIndexer):
    """Which row groups hold anything but nulls in a field."""

    def __init__(self, index_name: str, index_field: str) -> None:
        super().__init__(index_name, index_field)
        self._index_data: set[int] = set()

    def __add__(self, other: Any) -> FieldNotNullIndexer:
        self._check_same_field(other)
        self._index_data.update(other._index_data)
        return self

    @property
    def indexed_values(self) -> list[str]:
        """The one thing that it knows."""
        return ["Field is Not Null"]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:  # noqa: ARG002 - Petastorm's signature
        """Return the numbers of the row groups that hold a value."""
        return self._index_data

    def build_index(self, decoded_rows: Rows, piece_index: int) -> set[int]:
        """Take note of whether a row group holds a value.

        Raises:
            ValueError: There are no rows.
        """
        if any(value is not None for value in self._values(decoded_rows)):
            self._index_data.add(piece_index)
        return self._index_data
