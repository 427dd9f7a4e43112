"""The indexes of row groups that Petastorm pickles into ``_common_metadata``, read without running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from petastorm_bridge.errors import StoredSchemaError

from .pickles import Made, Name, items_of, members_of, read_pickle
from .schema import (
    ADMITTED_FOR_VALUES,
    PACKAGES,
    attributes,
    bytes_of,
    instance,
    is_petastorms,
    numpy_scalar,
    text,
)

INDEXES_KEY = b"dataset-toolkit.rowgroups_index.v1"
"""Under which pickled indexes stand in ``_common_metadata``."""

_INDEXERS = ("SingleFieldIndexer", "FieldNotNullIndexer")
_MODULE = "etl.rowgroup_indexers"
_ADMITTED = ADMITTED_FOR_VALUES | {
    (f"{package}.{_MODULE}", name) for package in PACKAGES for name in _INDEXERS
}
_TEXTS = ("str_", "unicode_", "bytes_", "string_")
_MAX_DIGITS = 100
_MAX_ROW_GROUPS = 1 << 24
_MAX_OF_ONE_HASH = 100  # values of a table that share one are few; in a hostile one all may


@dataclass(frozen=True)
class StoredIndex:
    """Which row groups hold a value, or any value, of a column.

    Attributes:
        row_groups: Values with the set of their row groups, by the digits of their hash. Texts have a
            salted hash, so nobody can choose values that make the dictionary slow. Under ``"None"``
            those with any value but null.
        is_of_values: Whether it knows values one by one.
    """

    index_name: str
    column_names: list[str]
    row_groups: Mapping[str, Sequence[tuple[Any, Made]]]
    indexed_values: list[Any]
    is_of_values: bool

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the positions of the row groups that hold a value; none for an unknown one."""
        value = value_key if self.is_of_values else None
        entries = self.row_groups.get(str(hash(value)), ())
        return {n for known, groups in entries if known == value for n in members_of(groups)}


def stored_indexes(notes: Mapping[bytes, bytes]) -> dict[str, StoredIndex]:
    """Return the indexes of row groups that lie beside a dataset, by name.

    Args:
        notes: The keys and values of its ``_common_metadata``; none without.

    Raises:
        ValueError: There are none (texts of ``petastorm/etl/rowgroup_indexing.py``).
        StoredSchemaError: They would run something, or are damaged.
    """
    if not notes:
        raise ValueError(
            "Could not find _metadata file. Row group indexes are built with build_rowgroup_index and lie "
            "in the dataset's _common_metadata."
        )
    if INDEXES_KEY not in notes:
        raise ValueError(
            "Row groups index is not available in the dataset metadata file. Build it with "
            "build_rowgroup_index, or use predicate or filters."
        )
    return read_indexes(notes[INDEXES_KEY])


def read_indexes(pickled: bytes) -> dict[str, StoredIndex]:
    """Return the indexes of a dataset by name; StoredSchemaError as :func:`.pickles.read_pickle`."""
    return read_pickle(
        pickled, _ADMITTED, lambda made: {text(n): _index(index) for n, index in items_of(made)}
    )


def _index(value: Any) -> StoredIndex:
    made = instance(value)
    kinds = [n for n in _INDEXERS if made is not None and is_petastorms(made[0], _MODULE, n)]
    if made is None or not kinds:
        raise StoredSchemaError("The stored row group indexes hold something that is no index.")
    state = attributes(made[2])
    data = state.get("_index_data")
    is_of_values = kinds == ["SingleFieldIndexer"]
    row_groups: dict[str, list[tuple[Any, Made]]] = {}
    values = [(_value(key), groups) for key, groups in items_of(data)] if is_of_values else []
    for known, groups in values if is_of_values else [(None, data)]:
        entries = row_groups.setdefault(str(hash(known)), [])
        entries.append((known, _checked(groups)))
        if len(entries) > _MAX_OF_ONE_HASH:
            raise StoredSchemaError("A stored row group index has too many values of one hash.")
    column = text(state.get("_column_name"))
    known_values = [known for known, _ in values] if is_of_values else ["Field is Not Null"]
    name = text(state.get("_index_name"))
    return StoredIndex(name, [column], row_groups, known_values, is_of_values)


def _checked(groups: Any) -> Made:
    """Return a set of row groups as it was made: there it is one object, however often it is used."""
    if not all(isinstance(n, int) and 0 <= n < _MAX_ROW_GROUPS for n in members_of(groups)):
        raise StoredSchemaError("A stored row group index holds no numbers of row groups.")
    return groups  # type: ignore[no-any-return]


def _value(key: Any) -> Any:
    """Return an indexed value: a text, a number, one of NumPy's, or a decimal."""
    if not isinstance(key, Made):
        if key is None or isinstance(key, (str, bytes, int, float)):
            return key
        raise StoredSchemaError("A stored row group index has a value of an unknown kind.")
    name, arguments = key.made_by, key.arguments
    if name == Name("decimal", "Decimal") and len(arguments) == 1:
        digits = text(arguments[0])
        try:
            if len(digits) <= _MAX_DIGITS:
                return Decimal(digits)
        except InvalidOperation:
            pass
    elif (scalar := numpy_scalar(key)) is not None:
        return scalar
    elif name.name in _TEXTS and len(arguments) == 1 and isinstance(arguments[0], (str, bytes)):
        return arguments[0]
    elif (data := bytes_of(key)) is not None:
        return data
    raise StoredSchemaError("A stored row group index has a value of an unknown kind.")
