"""What the footers of several Parquet files say together: one schema, and where nulls are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    for position, field in enumerate(first):
        if pa.types.is_null(field.type):
            places = ((schema, schema.get_field_index(field.name)) for schema in schemas)
            types = (schema.field(at).type for schema, at in places if at >= 0)
            type_ = next((type_ for type_ in types if not pa.types.is_null(type_)), field.type)
            first = first.set(position, field.with_type(type_))
    return first


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
    previous = schemas[0]
    for path, schema in zip(paths, schemas, strict=True):
        if schema.equals(previous):
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


_Leaves = dict[str, tuple[int, bool, bool]]
"""Of each column the number of its first leaf, and whether it is one of lists or of nothing but nulls."""


class Schemas:
    """Makes Arrow schemas of footers, for any number of threads; most files have the same, which is large.

    To make one takes a tenth of the time of opening a small file.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, pa.Schema, _Leaves] = (None, None, {})

    def of(self, metadata: Any) -> tuple[pa.Schema, _Leaves]:
        """Return the schema of a file, given its footer, and where its columns are."""
        asked = metadata.schema, metadata.metadata
        stored, schema, leaves = self._last
        if asked != stored:
            schema = metadata.schema.to_arrow_schema()
            leaves, position = {}, 0
            for field in schema:
                type_ = field.type
                leaves[field.name] = position, is_list(type_), pa.types.is_null(type_)
                position += _leaf_count(type_)
            self._last = asked, schema, leaves
        return schema, leaves


def _leaf_count(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaf_count(type_.storage_type)
    if type_.num_fields:
        return sum(_leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


class Footer:
    """What readers want of a file's footer, which itself takes ten times the memory.

    Attributes:
        schema: Of the file.
        rows: Rows of each row group.
        sizes: Bytes of each, uncompressed.

    Args:
        metadata: The footer.
        schemas: Make its schema.
        is_kept: Whether it stays in memory anyway and can be asked later. All that may be asked is looked
            up at once otherwise.

    Raises:
        pa.ArrowInvalid: It does not agree with itself on how many rows there are.
    """

    def __init__(self, metadata: Any, schemas: Schemas, *, is_kept: bool) -> None:
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        self.schema, self._leaves = schemas.of(metadata)
        self.rows = [int(group.num_rows) for group in groups]
        self.sizes = [int(group.total_byte_size) for group in groups]
        if sum(self.rows) != metadata.num_rows or min(self.rows, default=0) < 0:
            raise pa.ArrowInvalid(
                f"{metadata.num_rows} rows in all are not those of the row groups, {self.rows[:20]}"
            )
        self._groups = groups
        self._nulls = frozenset[str]()
        if not is_kept:
            self._nulls, self._groups = frozenset(self.with_nulls(self._leaves)), []

    def with_nulls(self, names: Iterable[str]) -> Collection[str]:
        """Return those columns of the file that hold nulls, or whose lists do.

        Those without statistics count as without nulls: their row groups are then shown one by one
        as pandas shows them, which is what Petastorm does.
        """
        if not self._groups:
            return self._nulls.intersection(names)
        null_columns = set()
        for name in names:
            leaf, is_of_lists, is_of_nulls = self._leaves[name]
            for group in self._groups:
                if _has_nulls(group, leaf, is_of_lists) or (is_of_nulls and group.num_rows):
                    null_columns.add(name)
                    break
        return null_columns


def _has_nulls(row_group: Any, leaf: int, is_of_lists: bool) -> bool:
    column = row_group.column(leaf)
    statistics = column.statistics
    if statistics is None or not statistics.has_null_count or not statistics.null_count:
        return False
    # A list counts as one null value when it is null or empty itself. If that is all there is, the
    # group has no elements whose type nulls could change.
    return not (is_of_lists and column.num_values == statistics.null_count == row_group.num_rows)


def null_facts(
    types: Mapping[str, pa.DataType],
    files: Iterable[tuple[Footer, Mapping[str, str]]],
    lacking: Collection[str] = (),
) -> dict[str, NullFacts]:
    """Return what is known of nulls in each column.

    Args:
        types: The columns.
        files: Of each file the footer, and what it calls the columns that it holds.
        lacking: Columns that some file has nothing but nulls for.
    """
    left = set(types)
    for footer, stored in files:
        held = {stored[name]: name for name in left if name in stored}
        left -= {held[name] for name in footer.with_nulls(held)}
    return {
        name: NullFacts(
            rows=name in lacking or (name not in left and not is_list(type_)),
            elements=name not in left and is_list(type_),
        )
        for name, type_ in types.items()
    }
