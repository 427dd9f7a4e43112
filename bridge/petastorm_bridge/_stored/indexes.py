"""The indexes of row groups that Petastorm pickles into ``_common_metadata``, read without running them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from petastorm_bridge.errors import StoredSchemaError

from .pickles import Instance, Name, read_pickle
from .schema import ADMITTED_FOR_VALUES, PACKAGES, instance, is_petastorms, numpy_dtype, text

__all__ = ["StoredIndex", "read_indexes"]

_INDEXERS = ("SingleFieldIndexer", "FieldNotNullIndexer")
_MODULE = "etl.rowgroup_indexers"
_ADMITTED = ADMITTED_FOR_VALUES | {
    (f"{package}.{_MODULE}", name) for package in PACKAGES for name in _INDEXERS
}
_TEXTS = ("str_", "unicode_", "bytes_", "string_")
_MAX_DIGITS = 100


@dataclass(frozen=True)
class StoredIndex:
    """Which row groups hold a value, or any value.

    Attributes:
        index_name: Its name.
        column_names: The one column that it is about.
        row_groups: By value; under None those with any value but null.
        is_of_values: Whether it knows values one by one.
    """

    index_name: str
    column_names: list[str]
    row_groups: Mapping[Any, frozenset[int]]
    is_of_values: bool

    @property
    def indexed_values(self) -> list[Any]:
        """The values that it knows."""
        return list(self.row_groups) if self.is_of_values else ["Field is Not Null"]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the positions of the row groups that hold a value; none for an unknown one."""
        return set(self.row_groups.get(value_key if self.is_of_values else None, ()))


def read_indexes(pickled: bytes) -> dict[str, StoredIndex]:
    """Return the indexes of a dataset by name.

    Raises:
        StoredSchemaError: The pickle names what is no part of an index (nothing is run), or is
            damaged.
    """
    found = read_pickle(pickled, _ADMITTED)
    if not isinstance(found, dict):
        raise StoredSchemaError("What is stored as the row group indexes is no dictionary.")
    return {text(name): _index(value) for name, value in found.items()}


def _index(value: Any) -> StoredIndex:
    made = instance(value)
    kinds = [n for n in _INDEXERS if made is not None and is_petastorms(made[0], _MODULE, n)]
    if made is None or not kinds or not isinstance(made[2], dict):
        raise StoredSchemaError("The stored row group indexes hold something that is no index.")
    state = made[2]
    data = state.get("_index_data")
    is_of_values = kinds == ["SingleFieldIndexer"]
    if is_of_values:
        if not isinstance(data, dict):
            raise StoredSchemaError("A stored row group index has no values.")
        row_groups = {_value(key): _numbers(groups) for key, groups in data.items()}
    else:
        row_groups = {None: _numbers(data)}
    column = text(state.get("_column_name"))
    return StoredIndex(text(state.get("_index_name")), [column], row_groups, is_of_values)


def _numbers(value: Any) -> frozenset[int]:
    if not isinstance(value, (set, frozenset)) or not all(isinstance(v, int) for v in value):
        raise StoredSchemaError("A stored row group index holds no numbers of row groups.")
    return frozenset(value)


def _value(key: Any) -> Any:
    """Return an indexed value: a text, a number, one of NumPy's, or a decimal."""
    made = instance(key)
    if made is None:
        return key
    name, arguments, _ = made
    if name == Name("decimal", "Decimal") and len(arguments) == 1:
        digits = text(arguments[0])
        try:
            if len(digits) <= _MAX_DIGITS:
                return Decimal(digits)
        except InvalidOperation:
            pass
    elif name.name == "scalar" and len(arguments) == 2:
        return _numpy_value(arguments[0], arguments[1])
    elif name.name in _TEXTS and len(arguments) == 1 and isinstance(arguments[0], (str, bytes)):
        return arguments[0]
    raise StoredSchemaError("A stored row group index has a value of an unknown kind.")


def _numpy_value(dtype: Any, data: Any) -> Any:
    made = instance(dtype)
    if isinstance(data, str):
        data = data.encode("latin-1", "replace")
    if not isinstance(dtype, Instance) or made is None or not isinstance(data, bytes):
        raise StoredSchemaError("A stored row group index has a value of an unknown kind.")
    wanted = numpy_dtype("of an index", *made[1:])
    if wanted.hasobject or wanted.itemsize != len(data):
        raise StoredSchemaError("A stored row group index has a value of an unknown kind.")
    return np.frombuffer(data, wanted)[0]
