"""One shard file, read as columns."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import codecs
from .access import is_mapped, load
from .entry import ShardEntry, fixed_encoding
from .errors import DatasetNotFoundError, ShardCorruptedError
from .header import read_header
from .layout import record_dtype
from .ragged import binary_rows, gather_ragged, unaligned_view
from .verified import check_hash

__all__ = ["Rows", "Shard", "ShardEntry", "fixed_encoding"]

Rows = slice | npt.NDArray[np.int64]
"""Which rows of a shard: a slice or an array of row numbers from 0, in the order wanted."""


class Shard:
    """Read access to the columns of one shard.

    The file is mapped (or read, see :mod:`._access`; or, if compressed, expanded in memory), checked
    against its index entry's size, hash, row count and column list, and released when the object and
    all arrays taken from it are gone.

    Args:
        directory: Local directory that holds the shard file.
        entry: The shard's index entry.

    Raises:
        DatasetNotFoundError: Neither the raw nor the compressed file is there.
        ShardCorruptedError: The file does not match its entry.
        DatasetError: It is no regular file.
        OSError: The file system fails or refuses.
    """

    def __init__(self, directory: str, entry: ShardEntry) -> None:
        self.entry = entry
        self.path, self._raw = _load(directory, entry)
        self.num_rows = entry.samples
        layout = entry.layout
        self._index = {name: i for i, name in enumerate(layout.names)}
        self._fixed = [fixed_encoding(encoding) for encoding in layout.encodings]
        header = read_header(
            lambda start, stop: self._raw[start:stop],
            path=self.path,
            size=len(self._raw),
            samples=entry.samples,
            names=layout.names,
            encodings=layout.encodings,
        )
        self._offsets, self._first = header.offsets, header.first
        self.records: npt.NDArray[Any] | None = None
        if all(kind is not None for kind in self._fixed) and layout.names:
            self.records = self._map_records()
        self._segments: list[npt.NDArray[np.int64]] = []

    def _damaged(self, asked: str, found: str) -> ShardCorruptedError:
        return ShardCorruptedError.because(self.path, asked, found)

    def _map_records(self) -> npt.NDArray[Any]:
        columns = [kind for kind in self._fixed if kind is not None]
        dtype = record_dtype(columns)
        size = len(self._raw) - self._first
        if size != dtype.itemsize * self.num_rows:
            raise self._damaged(f"{self.num_rows} records of {dtype.itemsize} bytes", f"{size}")
        return np.frombuffer(self._raw, dtype, self.num_rows, self._first)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def encoding(self, name: str) -> str:
        """Return a stored column's MDS encoding."""
        return self.entry.layout.encodings[self._index[name]]

    def fixed(self, name: str, rows: Rows) -> npt.NDArray[Any]:
        """Return a fixed-width column: shape ``(rows,)`` or ``(rows, *value shape)``.

        With a slice and a shard of fixed-width records, a read-only strided view of the file;
        otherwise a copy.
        """
        position = self._index[name]
        kind = self._fixed[position]
        if kind is None:
            raise TypeError(
                f"Column {name!r} of {self.path} is {self.encoding(name)!r}, not fixed."
            )
        if self.records is not None:
            return self.records[f"{position}"][rows]
        dtype, shape = kind
        starts, _ = self._column_bytes(position)
        values = unaligned_view(self._raw, f"V{dtype.itemsize * int(np.prod(shape, dtype=int))}")
        return np.asarray(values[starts[rows]].view(dtype).reshape(-1, *shape))

    def variable(self, name: str, rows: Rows) -> pa.LargeBinaryArray:
        """Return the encoded bytes of a column, one string per row."""
        position = self._index[name]
        if self.records is not None:
            return binary_rows(self.records[f"{position}"][rows])
        starts, lengths = self._column_bytes(position)
        if isinstance(rows, slice) and rows.step in (None, 1):
            return gather_ragged(self._raw, starts[rows], lengths[rows])
        # Gathering needs ascending positions: gather each wanted row once, then reorder.
        wanted = np.arange(self.num_rows)[rows]
        unique, inverse = np.unique(wanted, return_inverse=True)
        gathered = gather_ragged(self._raw, starts[unique], lengths[unique])
        return gathered.take(pa.array(inverse))

    def _column_bytes(self, position: int) -> tuple[npt.NDArray[np.int64], Any]:
        """Return start and length in bytes of every value of one column."""
        before = sum(kind is None for kind in self._fixed[:position])
        last = max((i for i in range(position) if self._fixed[i] is None), default=-1)
        begin = self._segment(before) + self._fixed_width(last + 1, position)
        size = self.entry.layout.sizes[position]
        if size is not None:
            return begin, np.full(self.num_rows, size, np.int64)
        return begin, self._sizes(before)

    def _fixed_width(self, first: int, last: int) -> int:
        return sum(self.entry.layout.sizes[i] or 0 for i in range(first, last))

    def _sizes(self, word: int) -> npt.NDArray[np.int64]:
        """Return the size words of the ``word``-th variable column."""
        words = self._offsets[:-1].astype(np.int64) + 4 * word
        return np.asarray(unaligned_view(self._raw, "<u4")[words], np.int64)

    def _segment(self, count: int) -> npt.NDArray[np.int64]:
        """Return the position in each row just behind its ``count``-th variable column."""
        variable = [i for i, kind in enumerate(self._fixed) if kind is None]
        if not self._segments:
            self._check_row_sizes()
            self._segments.append(self._offsets[:-1].astype(np.int64) + 4 * len(variable))
        for k in range(len(self._segments) - 1, count):
            first = variable[k - 1] + 1 if k else 0
            width = self._fixed_width(first, variable[k])
            self._segments.append(self._segments[k] + width + self._sizes(k))
        return self._segments[count]

    def _check_row_sizes(self) -> None:
        """Check that each row's column sizes add up to the row: no value can lie outside it."""
        lengths = np.diff(self._offsets.astype(np.int64))
        count = sum(kind is None for kind in self._fixed)
        least = 4 * count + self._fixed_width(0, len(self._fixed))
        if (lengths < least).any():
            raise self._damaged(f"rows of at least {least} bytes", f"{int(lengths.min())} bytes")
        total = np.full(self.num_rows, least, np.int64)
        for word in range(count):
            total += self._sizes(word)
        if (total != lengths).any():
            row = int(np.flatnonzero(total != lengths)[0])
            raise self._damaged(f"{lengths[row]} bytes in row {row}", f"{total[row]} bytes")


def _load(directory: str, entry: ShardEntry) -> tuple[str, npt.NDArray[np.uint8]]:
    for info in (entry.raw, entry.zip):
        if info is None:
            continue
        path = os.path.join(directory, info["basename"])
        try:
            data, status = load(path, is_mapped(os.path.dirname(path)))
        except FileNotFoundError:
            continue
        if len(data) != info["bytes"]:
            raise ShardCorruptedError.because(path, f"{info['bytes']} bytes", f"{len(data)} bytes")
        check_hash(path, info["hashes"], functools.partial(_same, data), status)
        if info is entry.raw:
            return path, data
        return path, _expand(path, entry, data)
    raise DatasetNotFoundError(
        f"Shard {os.path.join(directory, entry.basenames[0])} is missing. "
        "If the cache directory was deleted, convert the DataFrame again."
    )


def _same(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return data


def _expand(path: str, entry: ShardEntry, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    codec = codecs.parse_compression(entry.compression)
    assert codec is not None
    expected = int(entry.raw["bytes"])
    try:
        raw = codec.decompress(data.data, expected)
    except (OSError, ValueError, MemoryError) as error:
        raise ShardCorruptedError.because(path, f"{codec.name} data", str(error)) from error
    if len(raw) != expected:
        raise ShardCorruptedError.because(path, f"{expected} bytes", f"{len(raw)} bytes")
    return np.frombuffer(raw, np.uint8)
