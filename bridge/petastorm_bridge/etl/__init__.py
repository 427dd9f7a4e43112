"""What writes datasets in Petastorm's own format (``petastorm/etl``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["RowGroupIndexerBase"]

# What `import petastorm` has loaded as a side effect, so that programs reach it by attribute.
_SUBMODULES = frozenset({"dataset_metadata", "legacy", "rowgroup_indexing"})


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})


class RowGroupIndexerBase(ABC):
    """Finds out which row groups hold what; Spark executors each look at some, and the parts are added."""

    @abstractmethod
    def __add__(self, other: Any) -> Any:
        """Return the indexer with what the other one has found."""

    @property
    @abstractmethod
    def index_name(self) -> str:
        """Name of the index, one of its kind in the dataset."""

    @property
    @abstractmethod
    def column_names(self) -> list[str]:
        """Columns that have to be read to build it."""

    @property
    @abstractmethod
    def indexed_values(self) -> list[Any]:
        """Values that the index knows."""

    @abstractmethod
    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """Return the numbers of the row groups that hold a value."""

    @abstractmethod
    def build_index(self, decoded_rows: Sequence[Any], piece_index: int) -> Any:
        """Take note of the rows of a row group, which are dictionaries."""
