"""The columns of a sample as they are stored, and what kind of values they hold."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from petastorm_bridge.mds.encodings import fixed_encoding
from petastorm_bridge.mds.layout import ShardLayout


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
        dtype: NumPy type of what is stored, of columns of fixed width.
        shape: Shape of one value, of columns of fixed width.
    """

    name: str
    encoding: str
    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """The columns of the samples of a shard; compared by identity, which is quick.

    Attributes:
        stored: The columns as they are stored.
        columns: The same for the user, in stored order, which is the order of a sample's keys.
    """

    stored: ShardLayout
    columns: tuple[Column, ...]

    @staticmethod
    def of(reader: Any) -> SampleLayout:
        """Return the layout that an ``MDSReader`` describes; equal ones are one object."""
        return _layout(
            tuple(reader.column_names), tuple(reader.column_encodings), tuple(reader.column_sizes)
        )

    def select(self, names: frozenset[str] | None) -> tuple[int, ...]:
        """Return the positions of the named columns, in stored order; None for all."""
        return tuple(i for i, c in enumerate(self.columns) if names is None or c.name in names)


@functools.lru_cache(maxsize=1024)
def _layout(
    names: tuple[str, ...], encodings: tuple[str, ...], sizes: tuple[int | None, ...]
) -> SampleLayout:
    stored = ShardLayout(names, encodings, sizes)
    return SampleLayout(stored, tuple(map(_column, names, encodings, stored.formats)))


def _column(name: str, encoding: str, dtype: np.dtype[Any] | None) -> Column:
    dtype = dtype or np.dtype("V1")
    if fixed_encoding(encoding) is not None:
        kind = Kind.NUMBER
    else:
        kind = _KINDS.get(encoding.partition(":")[0], Kind.OBJECT)
    return Column(name, encoding, kind, dtype.base, dtype.shape)
