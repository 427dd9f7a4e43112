"""The logical schema of a dataset and the sidecar file that keeps it.

MDS knows encodings, not types: a date, a signed byte with nulls or a decimal(10, 2) cannot be told
from its encoding alone. The sidecar ``petastorm_bridge_schema.json`` stands beside ``index.json``
and says what each column means; stock readers never look at it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

SIDECAR_NAME = "petastorm_bridge_schema.json"
_FORMAT = 1


@dataclass(frozen=True)
class Field:
    """One logical column.

    Attributes:
        name: The column's name, also its name in the shards.
        type: Arrow type of its values.
        encoding: MDS encoding of a column whose values are stored as the bytes that they were, and of
            every column of a dataset without a sidecar; None where the type decides.
        null_column: Name of the stored uint8 column that is 1 where the value is null, or None.
        element_null_column: The same for the elements of a list column, or None.
        shape: Shape of the arrays of an ``ndarray`` column with an ``encoding``, None for an axis whose
            size varies; None for every other column. The type of such a column is a list of all
            elements of an array.
        nulls: Number of null rows in all shards; None where nobody counted (no sidecar).
        element_nulls: Number of null elements inside non-null lists; None as there.
    """

    name: str
    type: pa.DataType
    encoding: str | None = None
    null_column: str | None = None
    element_null_column: str | None = None
    shape: tuple[int | None, ...] | None = None
    nulls: int | None = None
    element_nulls: int | None = None


@dataclass(frozen=True)
class DatasetSchema:
    """All logical columns of a dataset in table order, and what was said at writing time.

    Attributes:
        num_rows: Rows in the dataset, or None when there is no sidecar.
        extra: Whatever the writer wanted to keep (JSON-able).
    """

    fields: tuple[Field, ...]
    num_rows: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def stored(self) -> list[tuple[str, pa.DataType, str | None]]:
        """Return the name, the type and the declared encoding of every column of the shards."""
        flags = [(f.null_column, pa.uint8()) for f in self.fields]
        flags += [(f.element_null_column, pa.list_(pa.uint8())) for f in self.fields]
        columns = [(f.name, f.type, f.encoding) for f in self.fields]
        return columns + [(name, type_, None) for name, type_ in flags if name is not None]

    def to_json(self) -> str:
        """Return the sidecar's text."""
        arrow = pa.schema([pa.field(f.name, f.type) for f in self.fields])
        content = {
            "petastorm_bridge": _FORMAT,
            "num_rows": self.num_rows,
            "arrow_schema": base64.b64encode(arrow.serialize().to_pybytes()).decode("ascii"),
            "columns": [
                {
                    **vars(f),
                    "type": str(f.type),  # for people; `arrow_schema` is what is read back
                    "nulls": f.nulls or 0,
                    "element_nulls": f.element_nulls or 0,
                }
                for f in self.fields
            ],
            "extra": dict(self.extra),
        }
        return json.dumps({**content, "sha256": content_digest(content)}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> DatasetSchema:
        """Read a sidecar.

        Raises:
            ValueError: It was written by a newer, incompatible release, was altered, or is not a
                sidecar.
            LookupError, TypeError, AttributeError, RecursionError: The same.
        """
        obj = json.loads(text)
        if not isinstance(obj, dict) or obj.get("petastorm_bridge") != _FORMAT:
            raise ValueError(
                f"{SIDECAR_NAME} has format {obj.get('petastorm_bridge') if isinstance(obj, dict) else obj!r}, "
                f"this release reads format {_FORMAT}; update petastorm-bridge."
            )
        if obj.pop("sha256", None) != content_digest(obj):
            raise ValueError("it was altered or damaged after it was written. Convert again.")
        arrow = _arrow_schema(obj["arrow_schema"])
        columns = obj["columns"]
        if [column["name"] for column in columns] != arrow.names:
            raise ValueError(f"its columns are not those of its Arrow schema, {arrow.names}")
        fields = tuple(
            Field(
                name,
                type_,
                column["encoding"],
                column["null_column"],
                column["element_null_column"],
                _shape(column["shape"]),
                _count(column["nulls"]),
                _count(column["element_nulls"]),
            )
            for name, type_, column in zip(arrow.names, arrow.types, columns, strict=True)
        )
        if not isinstance(obj["extra"], dict):
            raise TypeError(f"extra {obj['extra']!r}")
        schema = cls(fields, _count(obj["num_rows"]), obj["extra"])
        names = [name for name, _, _ in schema.stored()]
        if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise ValueError(f"columns {names}")
        return schema


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    return tuple(None if size is None else _count(size) for size in shape)


def content_digest(content: Mapping[str, Any]) -> str:
    """Return the digest that a sidecar, or another file of ours, has of everything else in it.

    A flipped bit in a type or in the number of nulls would be another table, and no shard says so.
    """
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _arrow_schema(text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"its Arrow schema is none ({error})") from error


def _count(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"a number of rows or nulls is {number!r}")
    return number


def companion_names(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return, per column, the names its two null columns would have.

    MDS has no nulls. A column that holds some gets a stored uint8 column beside it, 1 where the
    value is null, so that stock readers see it too. Underscores are added until a name is free.
    """
    taken = set(names)

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    return {
        name: (free(f"{name}__is_null"), free(f"{name}__element_is_null")) for name in sorted(taken)
    }
