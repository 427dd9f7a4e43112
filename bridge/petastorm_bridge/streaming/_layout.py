"""The columns of a sample as they are stored, and what kind of values they hold."""

from __future__ import annotations

import functools
from enum import Enum
from typing import Any, NamedTuple

from petastorm_bridge.mds.layout import ShardLayout
from petastorm_bridge.mds.types import fixed_encoding


class Kind(Enum):
    """What the values of a column are for the user."""

    NUMBER = "numbers, or arrays of numbers of one shape, of fixed width"
    ARRAY = "arrays whose shape or type stands in each value"
    DIGITS = "numbers written in decimal digits"
    TEXT = "strings"
    BYTES = "bytes"
    OBJECT = "whatever the encoding's own decoder makes: JSON, images, pickles"


_KINDS = {
    "str": Kind.TEXT,
    "bytes": Kind.BYTES,
    "str_int": Kind.DIGITS,
    "str_float": Kind.DIGITS,
    "ndarray": Kind.ARRAY,
}


class Column(NamedTuple):
    """One stored column.

    Attributes:
        name: Its key in a sample.
        encoding: MDS encoding.
        kind: What its values are.
    """

    name: str
    encoding: str
    kind: Kind


def layout_of(reader: Any) -> ShardLayout:
    """Return the layout that an ``MDSReader`` describes; equal ones are one object."""
    return _layout(
        tuple(reader.column_names), tuple(reader.column_encodings), tuple(reader.column_sizes)
    )


@functools.lru_cache(maxsize=1024)
def _layout(
    names: tuple[str, ...], encodings: tuple[str, ...], sizes: tuple[int | None, ...]
) -> ShardLayout:
    return ShardLayout(names, encodings, sizes)


@functools.lru_cache(maxsize=1024)
def columns_of(layout: ShardLayout) -> tuple[Column, ...]:
    """Return the columns in stored order, which is the order of a sample's keys."""
    return tuple(map(_column, layout.names, layout.encodings))


def _column(name: str, encoding: str) -> Column:
    if fixed_encoding(encoding) is not None:
        return Column(name, encoding, Kind.NUMBER)
    return Column(name, encoding, _KINDS.get(encoding.partition(":")[0], Kind.OBJECT))
