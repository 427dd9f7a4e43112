"""What the footers of several Parquet files say together: one schema, and where nulls are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ._columns import NullFacts
from .mds.errors import DatasetError

__all__ = ["ColumnsDifferError", "common_schema", "is_list", "null_facts"]


class ColumnsDifferError(DatasetError, TypeError):
    """Not all files have the columns of the first; in Petastorm a TypeError while reading."""


def is_list(type_: pa.DataType) -> bool:
    """Return whether a type is a list of any length."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def common_schema(paths: Sequence[str], schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the first file's columns, each with a type that holds the values of all files.

    Args:
        paths: The files, for messages.
        schemas: Their schemas, one each.

    Raises:
        ColumnsDifferError: A later file lacks a column, or has another kind of it.
    """
    first = schemas[0]
    common = {field.name: field for field in first}
    for path, schema in zip(paths, schemas, strict=True):
        if schema.equals(first):
            continue
        for name, field in common.items():
            if name not in schema.names:
                raise ColumnsDifferError(
                    f"{path} has no column {name!r}, which {paths[0]} has. It has: "
                    f"{', '.join(schema.names)}. Read the files apart, or leave the column out of "
                    "those that have it."
                )
            common[name] = _unified(field, schema.field(name), path)
    return pa.schema([common[name] for name in first.names])


def _unified(known: pa.Field, found: pa.Field, path: str) -> pa.Field:
    try:
        schemas = [pa.schema([field]) for field in (known, found)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0)
    except pa.ArrowException as error:
        raise ColumnsDifferError(
            f"Column {known.name!r} is {found.type} in {path} and {known.type} in files before it; "
            "no type holds both. Write the files again with one schema."
        ) from error


def null_facts(
    stored: pa.Schema, names: Iterable[str], files: Sequence[tuple[Any, pa.Schema]]
) -> dict[str, NullFacts]:
    """Return what the row groups' statistics tell of nulls in each column.

    Columns without statistics count as without nulls: their row groups are then shown one by one
    as pandas shows them, which is what Petastorm does.

    Args:
        stored: The table's schema.
        names: Columns wanted.
        files: Footer and schema of each file.
    """
    facts = {}
    leaves = _leaves_of(schema for _, schema in files)
    for name in names:
        lists = is_list(stored.field(name).type)
        found = (stored.field(name).nullable or lists) and any(
            _has_nulls(footer.row_group(group), leaf[name], lists)
            if not pa.types.is_null(schema.field(name).type)
            else footer.num_rows > 0
            for (footer, schema), leaf in zip(files, leaves, strict=True)
            for group in range(footer.num_row_groups)
        )
        facts[name] = NullFacts(rows=found and not lists, elements=found and lists)
    return facts


def _leaves_of(schemas: Iterable[pa.Schema]) -> list[dict[str, int]]:
    """Return, per file, the number of the leaf column that holds a flat or list column."""
    result: list[dict[str, int]] = []
    previous: pa.Schema | None = None
    for schema in schemas:
        if previous is not None and schema.equals(previous):
            result.append(result[-1])
            continue
        position = 0
        leaves = {}
        for field in schema:
            leaves[field.name] = position
            position += _leaf_count(field.type)
        result.append(leaves)
        previous = schema
    return result


def _leaf_count(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaf_count(type_.storage_type)
    if type_.num_fields:
        return sum(_leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def _has_nulls(row_group: Any, leaf: int, is_list_column: bool) -> bool:
    column = row_group.column(leaf)
    statistics = column.statistics
    if statistics is None or not statistics.has_null_count or not statistics.null_count:
        return False
    if not is_list_column:
        return True
    # A list counts as one null value when it is null or empty itself. If that is all there is, the
    # group has no elements whose type nulls could change.
    return not column.num_values == statistics.null_count == row_group.num_rows
