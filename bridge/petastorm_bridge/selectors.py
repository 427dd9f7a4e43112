"""Which row groups to read by the indexes that lie beside a dataset (``petastorm/selectors.py``)."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "IntersectIndexSelector",
    "RowGroupSelectorBase",
    "SingleIndexSelector",
    "UnionIndexSelector",
]


class RowGroupSelectorBase(abc.ABC):
    """Base of all selectors, also of users' own."""

    @abc.abstractmethod
    def get_index_names(self) -> list[str]:
        """Return the names of the indexes that are needed."""

    @abc.abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the positions of the row groups to read.

        Args:
            index_dict: The dataset's indexes by name.
        """


class SingleIndexSelector(RowGroupSelectorBase):
    """Row groups that hold any of some values.

    Args:
        index_name: Name of the index.
        values_list: The values.
    """

    def __init__(self, index_name: str, values_list: Sequence[Any]) -> None:
        self._index_name = index_name
        self._values_to_select = values_list

    def get_index_names(self) -> list[str]:
        """Return the one name."""
        return [self._index_name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the positions of the row groups that hold any of the values."""
        index = index_dict[self._index_name]
        positions: set[int] = set()
        for value in self._values_to_select:
            positions |= set(index.get_row_group_indexes(value))
        return positions


class _Combination(RowGroupSelectorBase):
    def __init__(self, single_index_selectors: Sequence[RowGroupSelectorBase]) -> None:
        self._single_index_selectors = single_index_selectors

    def get_index_names(self) -> list[str]:
        """Return the names that the selectors need."""
        return [name for one in self._single_index_selectors for name in one.get_index_names()]

    def _each(self, index_dict: Mapping[str, Any]) -> list[set[int]]:
        return [set(one.select_row_groups(index_dict)) for one in self._single_index_selectors]


class IntersectIndexSelector(_Combination):
    """Row groups that each of several selectors selects.

    Args:
        single_index_selectors: One or more selectors.
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the positions that all selectors return."""
        selected = self._each(index_dict)
        return selected[0].intersection(*selected[1:])


class UnionIndexSelector(_Combination):
    """Row groups that any of several selectors selects.

    Args:
        single_index_selectors: The selectors.
    """

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        """Return the positions that any selector returns."""
        return set().union(*self._each(index_dict))
