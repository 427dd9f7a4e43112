"""The bytes of one shard file: ``[rows: u32][offsets: (rows + 1) × u32][config JSON][samples]``.

A sample is ``[u32 size of each variable column][columns in name order]``; the layout is that of
``streaming/base/format/mds/writer.py``.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .encode import StoredColumn
from .encodings import fixed_encoding
from .ragged import binary_rows, byte_offsets, concat_rows, offsets_of, value_bytes

# Offsets are unsigned 32-bit; half of that leaves room for the header and for a last large row.
MAX_SHARD_BYTES = 1 << 31


@dataclass(frozen=True)
class ShardLayout:
    """Column names, encodings and widths of one shard, in stored (name) order.

    Attributes:
        names: The columns' names.
        encodings: Their MDS encodings.
        sizes: Bytes of every value, as the index says: None if they differ.
    """

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @classmethod
    def of(cls, columns: list[StoredColumn]) -> ShardLayout:
        """Return the layout of columns that are already in name order."""
        encodings = tuple(column.encoding for column in columns)
        dtypes = map(fixed_encoding, encodings)
        sizes = tuple(None if dtype is None else dtype.itemsize for dtype in dtypes)
        return cls(tuple(column.name for column in columns), encodings, sizes)

    @functools.cached_property
    def formats(self) -> tuple[np.dtype[Any] | None, ...]:
        """NumPy type of one value of each column, with the shape of arrays; None where the width varies.

        Of encodings that are not of MDS, which a program may have added to streaming, only the width
        is known; a width of 0 is none, as in streaming.
        """
        return tuple(
            fixed_encoding(encoding) or (np.dtype(("V", size)) if size else None)
            for encoding, size in zip(self.encodings, self.sizes, strict=True)
        )

    @functools.cached_property
    def widths(self) -> tuple[int | None, ...]:
        """Bytes of every value of each column, None where they vary."""
        return tuple(None if dtype is None else dtype.itemsize for dtype in self.formats)

    @functools.cached_property
    def variable(self) -> tuple[int, ...]:
        """Positions of the columns of variable width."""
        return tuple(i for i, width in enumerate(self.widths) if width is None)

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
        """Where each column's value begins in a sample.

        Two numbers: how many columns of variable width come before, and the bytes between the end of
        the last of them (or of the sizes) and the value.
        """
        places, variable, distance = [], 0, 0
        for width in self.widths:
            places.append((variable, distance))
            variable, distance = (
                (variable + 1, 0) if width is None else (variable, distance + width)
            )
        return tuple(places)

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
            "column_sizes": list(self.sizes),
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
