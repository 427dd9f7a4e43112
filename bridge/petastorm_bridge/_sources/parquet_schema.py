"""What the footers of several Parquet files say together: one schema, and where nulls are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from petastorm_bridge._blocks.columns import NullFacts
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.types import is_list


class ColumnsDifferError(DatasetError, TypeError):
    """Not all files have the columns of the first; in Petastorm a TypeError while reading."""


class _TwiceError(DatasetError, KeyError):
    """Two columns have one name; in Petastorm a KeyError."""

    __str__ = Exception.__str__  # KeyError shows the text as a Python literal


def first_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the first file's columns; those without a type there have that of the next file."""
    first = schemas[0]
    untyped = [field.name for field in first if pa.types.is_null(field.type)]
    if not untyped or len(set(first.names)) < len(first.names):
        return first
    types: dict[str, pa.DataType] = {}
    for schema in schemas[1:]:
        for name in untyped:
            at = schema.get_field_index(name)
            if at >= 0 and not pa.types.is_null(schema.field(at).type):
                types.setdefault(name, schema.field(at).type)
        if len(types) == len(untyped):
            break
    fields = [field.with_type(types.get(field.name, field.type)) for field in first]
    return pa.schema(fields, first.metadata)


def common_types(
    names: Sequence[str], paths: Sequence[str], schemas: Sequence[pa.Schema]
) -> dict[str, pa.DataType]:
    """Return types of columns that hold the values of all files.

    Raises:
        ColumnsDifferError: A file lacks a column, or has another kind of it.
    """
    for name in names:
        if schemas[0].get_field_index(name) < 0:
            raise _TwiceError(
                f"Column {name!r} does not exist in schema only once: {paths[0]} has "
                f"{', '.join(schemas[0].names)}. Leave it out with schema_fields."
            )
    common = {name: schemas[0].field(name) for name in names}
    previous: pa.Schema | None = schemas[0]
    for path, schema in zip(paths, schemas, strict=True):
        if previous is not None and schema.equals(previous):
            continue
        previous = schema
        for name in names:
            at = schema.get_field_index(name)
            if at < 0:
                raise ColumnsDifferError(
                    f"{path} has no column {name!r}, which {paths[0]} has. It has: "
                    f"{', '.join(schema.names)}. Name the columns that all files have in "
                    "schema_fields, or read the files apart."
                )
            common[name] = _unified(common[name], schema.field(at), path)
    return {name: field.type for name, field in common.items()}


def _unified(known: pa.Field, current: pa.Field, path: str) -> pa.Field:
    if pa.types.is_dictionary(current.type):
        current = current.with_type(current.type.value_type)
    try:
        schemas = [pa.schema([field]) for field in (known, current)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0)
    except pa.ArrowException as error:
        raise ColumnsDifferError(
            f"Column {known.name!r} is {current.type} in {path} and {known.type} in files before it; "
            "no type holds both. Write the files again with one schema, or leave the column out "
            "with schema_fields."
        ) from error


class Schemas:
    """Makes Arrow schemas of footers, for any number of threads; most files have the same, which is large.

    To make one takes a tenth of the time of opening a small file.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, pa.Schema] = (None, None)

    def of(self, metadata: Any) -> pa.Schema:
        """Return the schema of a file, given its footer."""
        asked = metadata.schema, metadata.metadata
        stored, schema = self._last
        if asked != stored:
            schema = metadata.schema.to_arrow_schema()
            self._last = asked, schema
        return schema


class Footer:
    """What readers want of a file's footer, which itself takes ten times the memory.

    Attributes:
        schema: Of the file.
        rows: Rows of each row group.
        sizes: Bytes of each, uncompressed.

    Args:
        metadata: The footer.
        schema: See above.
        is_kept: Whether it stays in memory anyway and can be asked later. All that may be asked is looked
            up at once otherwise.

    Raises:
        pa.ArrowInvalid: It does not agree with itself on how many rows there are.
    """

    def __init__(self, metadata: Any, schema: pa.Schema, *, is_kept: bool) -> None:
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        self.schema = schema
        self.rows = [int(group.num_rows) for group in groups]
        self.sizes = [int(group.total_byte_size) for group in groups]
        if sum(self.rows) != metadata.num_rows or min(self.rows, default=0) < 0:
            raise pa.ArrowInvalid(
                f"{metadata.num_rows} rows in all are not those of the row groups, {self.rows[:20]}"
            )
        self._metadata = metadata if is_kept else None
        self._nulls: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
        if not is_kept:
            pairs = [
                (leaf, _null_kinds(group, leaf))
                for group in groups
                for leaf in range(metadata.num_columns)
            ]
            self._nulls = (
                frozenset(leaf for leaf, (in_rows, _) in pairs if in_rows),
                frozenset(leaf for leaf, (_, in_lists) in pairs if in_lists),
            )

    def with_nulls(self, leaves: Mapping[str, int], lists: Mapping[str, bool]) -> set[str]:
        """Return those columns that hold nulls, or whose lists do.

        Args:
            leaves: The number of each column.
            lists: Whether it is one of lists.
        """
        if self._metadata is None:
            return {name for name, leaf in leaves.items() if leaf in self._nulls[lists[name]]}
        asked, null_columns = dict(leaves), set()
        for number in range(len(self.rows)):
            group = self._metadata.row_group(number)
            having = {n for n, leaf in asked.items() if _null_kinds(group, leaf)[lists[n]]}
            null_columns |= having
            asked = {name: leaf for name, leaf in asked.items() if name not in having}
            if not asked:
                break
        return null_columns


def null_facts(
    types: Mapping[str, pa.DataType], files: Iterable[tuple[Footer, pa.Schema]]
) -> dict[str, NullFacts]:
    """Return what the row groups' statistics tell of nulls in each column.

    Columns without statistics count as without nulls: their row groups are then shown one by one
    as pandas shows them, which is what Petastorm does.
    """
    lists = {name: is_list(type_) for name, type_ in types.items()}
    null_columns: set[str] = set()
    previous: pa.Schema | None = None
    leaves: dict[str, int] = {}
    untyped: set[str] = set()
    for footer, schema in files:
        if previous is None or not (schema is previous or schema.equals(previous)):
            leaves = {name: leaf for name, leaf in _leaves(schema).items() if name in types}
            untyped = {name for name in leaves if pa.types.is_null(schema.field(name).type)}
            previous = schema
        if any(footer.rows):
            null_columns |= untyped
            leaves = {name: leaf for name, leaf in leaves.items() if name not in null_columns}
            null_columns |= footer.with_nulls(leaves, lists)
    return {
        name: NullFacts(
            rows=name in null_columns and not lists[name],
            elements=name in null_columns and lists[name],
        )
        for name in types
    }


def _leaves(schema: pa.Schema) -> dict[str, int]:
    """Return the number of the leaf column that holds a flat or list column."""
    position = 0
    leaves = {}
    for field in schema:
        leaves[field.name] = position
        position += _leaf_count(field.type)
    return leaves


def _leaf_count(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaf_count(type_.storage_type)
    if type_.num_fields:
        return sum(_leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def _null_kinds(row_group: Any, leaf: int) -> tuple[bool, bool]:
    """Return whether a leaf column has nulls, and, if it is one of lists, whether their elements are."""
    column = row_group.column(leaf)
    statistics = column.statistics
    if statistics is None or not statistics.has_null_count or not statistics.null_count:
        return False, False
    # A list counts as one null value when it is null or empty itself. If that is all there is, the
    # group has no elements whose type nulls could change.
    return True, not column.num_values == statistics.null_count == row_group.num_rows
