"""The columns of a sample as they are stored, and what kind of values they hold."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from petastorm_bridge.mds.entry import fixed_encoding
from petastorm_bridge.mds.layout import record_dtype

__all__ = ["Column", "Kind", "SampleLayout"]


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


@dataclass(frozen=True)
class Column:
    """One stored column.

    Attributes:
        name: Its key in a sample.
        encoding: MDS encoding.
        kind: What its values are.
        width: Bytes of every value, None if they differ.
        dtype: NumPy type of what is stored, of columns of fixed width.
        shape: Shape of one value, of columns of fixed width.
    """

    name: str
    encoding: str
    kind: Kind
    width: int | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """How the samples of a shard are laid out; compared by identity, which is quick.

    A sample is ``[u32 size of each column of variable width][columns in stored order]``
    (``streaming/base/format/mds/writer.py``).

    Attributes:
        columns: The columns in stored order, which is the order of a sample's keys.
        record: Packed type of a sample if all columns are of fixed width, its fields called by
            their position; otherwise None.
        fixed: Bytes of the columns of fixed width and of the sizes of the others.
    """

    columns: tuple[Column, ...]
    record: np.dtype[Any] | None
    fixed: int

    @staticmethod
    def of(reader: Any) -> SampleLayout:
        """Return the layout that an ``MDSReader`` describes; equal ones are one object."""
        return _layout(
            tuple(reader.column_names), tuple(reader.column_encodings), tuple(reader.column_sizes)
        )

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @functools.cached_property
    def encodings(self) -> tuple[str, ...]:
        """The columns' encodings."""
        return tuple(column.encoding for column in self.columns)

    def select(self, names: frozenset[str] | None) -> tuple[int, ...]:
        """Return the positions of the named columns, in stored order; None for all."""
        return tuple(i for i, c in enumerate(self.columns) if names is None or c.name in names)


@functools.lru_cache(maxsize=1024)
def _layout(
    names: tuple[str, ...], encodings: tuple[str, ...], sizes: tuple[int | None, ...]
) -> SampleLayout:
    columns = tuple(map(_column, names, encodings, sizes))
    record = None
    if all(column.width is not None for column in columns):
        record = record_dtype([(column.dtype, column.shape) for column in columns])
    return SampleLayout(columns, record, sum(4 if c.width is None else c.width for c in columns))


def _column(name: str, encoding: str, size: int | None) -> Column:
    kind = fixed_encoding(encoding)
    if kind is not None:
        dtype, shape = kind
        width = dtype.itemsize * int(np.prod(shape, dtype=int))
        return Column(name, encoding, Kind.NUMBER, width, dtype, shape)
    # Streaming reads a size of 0 as none, too; a fixed size of other values is a user's encoding.
    opaque = size or None
    return Column(
        name,
        encoding,
        _KINDS.get(encoding.partition(":")[0], Kind.OBJECT),
        opaque,
        np.dtype(("V", opaque or 1)),
    )
