"""The bytes of one shard file: ``[rows: u32][offsets: (rows + 1) × u32][config JSON][samples]``.

A sample is ``[u32 size of each variable column][columns in name order]``; the layout is that of
``streaming/base/format/mds/writer.py``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .encode import StoredColumn
from .errors import ShardCorruptedError
from .ragged import (
    Bytes,
    Int64,
    alternating,
    binary_rows,
    byte_offsets,
    concat_rows,
    offsets_of,
    take_values,
    unaligned_view,
    value_bytes,
)
from .types import fixed_encoding

# Offsets are unsigned 32-bit; half of that leaves room for the header and for a last large row.
MAX_SHARD_BYTES = 1 << 31


@dataclass(frozen=True)
class ShardLayout:
    """Column names, MDS encodings and widths of one shard, in stored (name) order.

    Attributes:
        widths: Bytes of every value of each column; None where they differ.
    """

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    widths: tuple[int | None, ...]

    @classmethod
    def of(cls, columns: list[StoredColumn]) -> ShardLayout:
        """Return the layout of columns that are already in name order."""
        encodings = tuple(column.encoding for column in columns)
        dtypes = map(fixed_encoding, encodings)
        widths = tuple(None if dtype is None else dtype.itemsize for dtype in dtypes)
        return cls(tuple(column.name for column in columns), encodings, widths)

    @functools.cached_property
    def positions(self) -> dict[str, int]:
        """Position of each column by its name."""
        return {name: i for i, name in enumerate(self.names)}

    @functools.cached_property
    def formats(self) -> tuple[np.dtype[Any] | None, ...]:
        """NumPy type of one value of each column, with the shape of arrays; None where the width varies.

        Of encodings that are not of MDS, which a program may have added to streaming, only the width is known.
        """
        return tuple(
            None if width is None else fixed_encoding(encoding) or np.dtype(("V", width))
            for encoding, width in zip(self.encodings, self.widths, strict=True)
        )

    @functools.cached_property
    def least_bytes(self) -> int:
        """Bytes of a sample without those of the values of variable width, but with their sizes."""
        return sum(4 if width is None else width for width in self.widths)

    @functools.cached_property
    def record(self) -> np.dtype[Any] | None:
        """Packed type of a sample, if all widths are fixed.

        Its fields are called by their position, because NumPy does not take every column name.
        """
        if not self.names or None in self.widths:
            return None
        return np.dtype([(f"{i}", dtype) for i, dtype in enumerate(self.formats)])

    @functools.cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """How many columns of variable width come before each column, and how many bytes of the others."""
        before = [self.widths[:position] for position in range(len(self.widths))]
        return tuple((widths.count(None), sum(filter(None, widths))) for widths in before)

    def config(
        self, compression: str | None, hashes: tuple[str, ...], size_limit: int | None
    ) -> dict[str, Any]:
        """Return the settings that stand in the shard's header and in its index entry."""
        return {
            "version": 2,
            "format": "mds",
            "compression": compression,
            "hashes": list(hashes),
            "size_limit": size_limit,
            "column_names": list(self.names),
            "column_encodings": list(self.encodings),
            "column_sizes": list(self.widths),
        }


def assemble_shard(
    columns: list[StoredColumn], layout: ShardLayout, config: dict[str, Any]
) -> list[Any]:
    """Return the parts (buffers) that make up a shard file.

    Args:
        columns: At least one column, in name order, all with the same number of rows.
        layout: Of these.
        config: From :meth:`ShardLayout.config`.

    Raises:
        OverflowError: The shard would be larger than the 4 GiB that MDS offsets can address.
    """
    rows = len(columns[0].values)
    header = json.dumps(config, sort_keys=True).encode("utf-8")
    first = 4 + 4 * (rows + 1) + len(header)
    samples, sizes = _samples(columns, layout, rows)
    offsets = first + offsets_of(sizes)
    if offsets[-1] >= 1 << 32:
        raise OverflowError(
            f"A shard of {rows} rows would take {int(offsets[-1])} bytes, MDS allows 4 GiB. "
            "Lower the size limit of shards (of a Spark converter, parquet_row_group_size_bytes)."
        )
    return [np.uint32(rows).tobytes(), offsets.astype(np.uint32), header, samples]


def _samples(
    columns: list[StoredColumn], layout: ShardLayout, rows: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return all samples, one after the other, and the bytes of each."""
    if layout.record is not None:
        records = np.empty(rows, layout.record)
        for i, column in enumerate(columns):
            records[f"{i}"] = column.values
        return records, np.full(rows, layout.record.itemsize, np.int64)
    parts: list[pa.LargeBinaryArray] = []
    lengths = []
    for column in columns:
        values = column.values
        if isinstance(values, np.ndarray):
            parts.append(binary_rows(values))
        else:
            lengths.append(np.diff(byte_offsets(values)).astype(np.uint32))
            parts.append(values)
    samples = concat_rows([binary_rows(np.stack(lengths, axis=1)), *parts])
    return value_bytes(samples), np.diff(byte_offsets(samples))


Cells: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"
"""Stored values: an array ``(rows, *shape)`` if of fixed width, otherwise strings."""


class ColumnWalk:
    """Where the values of columns are in samples of which some columns are of variable width.

    Args:
        layout: The columns.
        raw: The buffer that the samples are in, uint8 of shape ``(size,)``.
        bounds: Where each sample begins, at least ``layout.least_bytes`` behind the one before, and where
            the last one ends, shape ``(samples + 1,)``.
        path_of: Returns the file that a sample came from, for messages.

    Raises:
        ShardCorruptedError: The sizes of a sample's columns do not add up to the sample: with them,
            no value lies outside of it.
    """

    def __init__(
        self, layout: ShardLayout, raw: Bytes, bounds: Int64, path_of: Callable[[int], str]
    ) -> None:
        self._layout = layout
        self._raw = raw
        starts, lengths = bounds[:-1], np.diff(bounds)
        count = layout.widths.count(None)
        words = unaligned_view(raw, "<u4")
        self._sizes = [words[starts + 4 * word] for word in range(count)]
        total = sum(self._sizes, np.full(len(lengths), layout.least_bytes, np.int64))
        if (total != lengths).any():
            row = int(np.flatnonzero(total != lengths)[0])
            raise ShardCorruptedError.because(
                path_of(row),
                f"{int(lengths[row])} bytes of columns in a sample",
                f"{int(total[row])} bytes",
            )
        # Where columns behind the first, second, … one of variable width would be without those of fixed width.
        self._behind: list[Int64] = [starts + 4 * count]
        self._strings: dict[int, pa.LargeBinaryArray] = {}

    def _starts(self, position: int) -> Int64:
        """Return where the values of a column start."""
        before, distance = self._layout.places[position]
        for sizes in self._sizes[len(self._behind) - 1 : before]:
            self._behind.append(self._behind[-1] + sizes)
        return self._behind[before] + distance

    def cells(self, position: int, rows: slice | Int64) -> Cells:
        """Return values of a column, in memory of their own."""
        dtype = self._layout.formats[position]
        if dtype is not None:
            values = unaligned_view(self._raw, f"V{dtype.itemsize}")[self._starts(position)[rows]]
            return values.view(dtype.base).reshape(-1, *dtype.shape)
        strings = self._strings.get(position)
        if strings is None:
            sizes = self._sizes[self._layout.places[position][0]]
            strings = alternating(self._raw, self._starts(position), sizes)
            self._strings[position] = strings
        return take_values(strings, np.arange(len(self._behind[0]))[rows])
