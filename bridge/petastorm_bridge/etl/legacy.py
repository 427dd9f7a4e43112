"""Reading what is pickled in datasets (``petastorm/etl/legacy.py``)."""

from __future__ import annotations

from typing import Any

from petastorm_bridge.errors import StoredSchemaError
from petastorm_bridge.reader._rows.indexes import read_indexes
from petastorm_bridge.reader._rows.schema import read_schema

__all__ = ["depickle_legacy_package_name_compatible", "restricted_loads"]


def restricted_loads(s: bytes) -> Any:
    """Return the schema, or the indexes of row groups, that a pickle holds; nothing of it is run.

    Raises:
        StoredSchemaError: It holds neither.
    """
    try:
        return read_schema(s)
    except StoredSchemaError as error:
        try:
            return read_indexes(s)
        except StoredSchemaError:
            raise error from None


def depickle_legacy_package_name_compatible(pickled_string: bytes) -> Any:
    """Return the same, also where it was pickled under the first names of Petastorm's package."""
    return restricted_loads(pickled_string)
