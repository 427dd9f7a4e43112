"""Which row groups a reader opens: filters and predicates on partition columns choose before reading."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from petastorm_bridge._sources.source import Source
from petastorm_bridge.unischema import Unischema

Condition = tuple[str, str, Any]
"""Name of a column, operator, value."""
Key = tuple[Any, ...]
"""The values of the partition columns, which a row group lies in."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
    "not in": lambda value, values: value not in values,
}


class PredicateFieldError(ValueError, KeyError):
    """A predicate asks for a partition column that is not read; Petastorm raises ``KeyError``."""

    __str__ = Exception.__str__  # KeyError shows the text as a Python literal


@dataclass(frozen=True)
class RowFilters:
    """What ``filters`` asks of rows, once the conditions on partition columns are decided.

    Attributes:
        fields: Stored columns that conditions are about.
        expressions: By partition; None where every row satisfies the filters.
    """

    fields: tuple[str, ...]
    expressions: Mapping[Key, Any]


@dataclass(frozen=True)
class Selection:
    """The row groups of a source that are read.

    Attributes:
        groups: Their positions, after ``filters``.
        dropped: Positions in ``groups`` of those that the predicate leaves out.
        filters: What is left to ask of rows, or None.
        predicate: The predicate if it is about rows, or None.
    """

    groups: Sequence[int]
    dropped: frozenset[int]
    filters: RowFilters | None
    predicate: Any


def parse_filters(filters: Any, schema: Unischema) -> list[list[Condition]]:
    """Return ``filters`` as alternatives, each a list of conditions.

    Raises:
        ValueError, TypeError: They are malformed, name an unknown column, or compare a column with
            a value of another kind.
    """
    if filters is None:
        return []
    from pyarrow import compute, parquet

    if isinstance(filters, compute.Expression):
        raise TypeError(
            f"filters is the Arrow expression {filters}; give (column, operator, value) in lists."
        )
    parquet.filters_to_expression(filters)  # refuses what is malformed
    alternatives = [filters] if isinstance(filters[0][0], str) else filters
    conditions = [[(name, op, value) for name, op, value in one] for one in alternatives]
    unknown = filter_fields(conditions) - set(schema.fields)
    if unknown:
        raise ValueError(
            f"filters name {', '.join(sorted(unknown))}, the table has {', '.join(schema.fields)}."
        )
    return conditions


def filter_fields(alternatives: Sequence[Sequence[Condition]]) -> set[str]:
    """Return the names of the columns that conditions are about."""
    return {name for conditions in alternatives for name, _, _ in conditions}


def select_groups(
    source: Source, schema: Unischema, alternatives: Sequence[Sequence[Condition]], predicate: Any
) -> Selection:
    """Return which row groups of a source to read.

    Args:
        source: The source, with the types of all columns that filters name.
        schema: The columns that the reader was asked for.
        alternatives: From :func:`parse_filters`.
        predicate: The user's, or None. If its fields are all partition columns there are, it is
            asked once per partition, with scalars (as in ``petastorm/reader.py``).

    Raises:
        ValueError, TypeError: A condition cannot be evaluated.
    """
    groups = list(range(len(source.row_counts)))
    keys = [source.key(position) for position in groups]
    filters = None
    if alternatives:
        filters = _row_filters(source, alternatives, dict.fromkeys(keys))
        groups = [group for group in groups if keys[group] in filters.expressions]
        if not any(filters.expressions[keys[group]] is not None for group in groups):
            filters = None
    if predicate is None or not _asks_partitions(predicate, source, schema):
        return Selection(groups, frozenset(), filters, predicate)
    names = tuple(source.partitions)

    @cache
    def includes(key: Key) -> bool:
        return bool(predicate.do_include(dict(zip(names, key, strict=True))))

    dropped = frozenset(i for i, group in enumerate(groups) if not includes(keys[group]))
    return Selection(groups, dropped, filters, None)


def _asks_partitions(predicate: Any, source: Source, schema: Unischema) -> bool:
    fields = set(predicate.get_fields())
    if not fields or fields != set(source.partitions):
        return False
    unread = fields - set(schema.fields)
    if unread:
        raise PredicateFieldError(
            f"The predicate needs {', '.join(sorted(unread))}, but schema_fields leaves only "
            f"{', '.join(schema.fields)}. Name the predicate's columns there as well."
        )
    return True


def _row_filters(
    source: Source, alternatives: Sequence[Sequence[Condition]], keys: Collection[Key]
) -> RowFilters:
    """Decide the conditions on partition columns; partitions without a row are not in the result."""
    partitions = list(source.partitions)
    on_keys = [[c for c in one if c[0] in source.partitions] for one in alternatives]
    on_rows = [[c for c in one if c[0] not in source.partitions] for one in alternatives]
    fields = tuple(name for name in source.schema.fields if name in filter_fields(on_rows))

    @cache
    def expression(remaining: tuple[int, ...]) -> Any:
        conditions = [on_rows[i] for i in remaining]
        return _expression(source, conditions) if all(conditions) else None

    expressions = {}
    for key in keys:
        values = dict(zip(partitions, key, strict=True))
        remaining = [
            i for i, one in enumerate(on_keys) if all(_holds(values[c[0]], c) for c in one)
        ]
        if remaining:
            expressions[key] = expression(tuple(remaining))
    return RowFilters(fields, expressions)


def _holds(partition: Any, condition: Condition) -> bool:
    """Return whether a partition satisfies a condition.

    By the rule of the ``ParquetDataset`` that Petastorm reads with (pyarrow up to 14), the
    partition's value takes the type of the value asked for: ``"2"`` finds the integer 2.
    """
    name, op, wanted = condition
    kinds = {type(value) for value in wanted} if op in ("in", "not in") else {type(wanted)}
    if len(kinds) > 1:
        raise ValueError(
            f"All elements of the collection {wanted!r} must be of same type: filters on {name!r}."
        )
    try:
        value = kinds.pop()(partition.item()) if kinds else partition.item()
        return bool(_COMPARE[op](value, wanted))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"filters compare the partition column {name!r}, which has the value {partition.item()!r}, "
            f"with {wanted!r}: {error}"
        ) from error


def _expression(source: Source, alternatives: list[list[Condition]]) -> Any:
    """Return conditions on stored columns as an Arrow expression, once it is known to work."""
    from pyarrow import parquet

    expression = parquet.filters_to_expression(alternatives)
    types = source.types
    empty = pa.table({n: pa.nulls(0, types[n]) for n in sorted(filter_fields(alternatives))})
    try:
        empty.filter(expression)
    except pa.ArrowException as error:
        kinds = ", ".join(f"{field.name} ({field.type})" for field in empty.schema)
        raise ValueError(
            f"filters={alternatives} cannot be compared with the columns {kinds}: {error}"
        ) from error
    return expression
