"""What pandas notes in the Parquet files it writes: the dtypes that Arrow's types do not tell apart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

_KEY = b"pandas"
# Plain NumPy dtypes follow from Arrow's types. So does `str`, the text of pandas 3: Petastorm shows
# objects under the pandas it runs with.
_EXTENSION = re.compile(r"U?Int\d+|Float\d+|boolean|string|string\[python\]|.+\[pyarrow\]")


def pandas_metadata(schema: pa.Schema) -> bytes | None:
    """Return the dtypes noted in a schema, in pandas' own JSON; None where there are none.

    Stored indexes are columns like all others here, and columns keep the names they have in the
    table.
    """
    try:
        noted = json.loads((schema.metadata or {})[_KEY])
        # A RangeIndex takes part in the frames of tables that are one row group long.
        indexes = [index for index in noted["index_columns"] if isinstance(index, dict)]
        columns = [_column(column) for column in noted["columns"] if _tells_more(column)]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None  # no such metadata, or not pandas' own
    return _dump(columns, indexes)


def _tells_more(column: dict[str, Any]) -> bool:
    if column["pandas_type"] == "datetimetz":
        return True
    return _EXTENSION.fullmatch(column["numpy_type"]) is not None


def _column(column: dict[str, Any]) -> dict[str, Any]:
    name = column.get("field_name", column["name"])
    kept = {key: column[key] for key in ("pandas_type", "numpy_type", "metadata")}
    return {"name": name, "field_name": name, **kept}


def _dump(columns: list[dict[str, Any]], indexes: list[dict[str, Any]]) -> bytes | None:
    if not columns and not indexes:
        return None
    noted = {"index_columns": indexes, "column_indexes": [], "columns": columns}
    return json.dumps(noted).encode()


def without_columns(metadata: bytes | None, names: Collection[str]) -> bytes | None:
    """Return the metadata without what it says of some columns."""
    return metadata and _filtered(metadata, lambda column: column["field_name"] not in names)


@lru_cache(maxsize=64)  # asked for with every row group
def usable_metadata(metadata: bytes) -> bytes | None:
    """Return the metadata without dtypes that the installed pandas does not know."""
    return _filtered(metadata, _is_known)


def _filtered(metadata: bytes, keep: Callable[[dict[str, Any]], bool]) -> bytes | None:
    noted = json.loads(metadata)
    return _dump([column for column in noted["columns"] if keep(column)], noted["index_columns"])


def _is_known(column: dict[str, Any]) -> bool:
    from pandas.api.types import pandas_dtype

    try:
        pandas_dtype(column["numpy_type"])
    except (TypeError, NotImplementedError):
        return bool(column["pandas_type"] == "datetimetz")
    return True


@lru_cache(maxsize=64)
def noted_names(metadata: bytes | None) -> frozenset[str]:
    """Return the columns of which the metadata says a dtype."""
    columns: Iterable[dict[str, Any]] = json.loads(metadata)["columns"] if metadata else ()
    return frozenset(column["field_name"] for column in columns)
