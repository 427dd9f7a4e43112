"""One shard of a dataset, read as columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import codecs
from .access import is_mapped
from .entry import ShardEntry
from .errors import DatasetNotFoundError, ShardCorruptedError
from .ragged import binary_rows
from .shard_file import ShardFile, checked_bytes
from .verified import FileMark

Rows = slice | npt.NDArray[np.int64]
"""Which rows of a shard: a slice or an array of row numbers from 0, in the order wanted."""


class Shard:
    """Read access to the columns of one shard.

    The file is mapped (or read, see :mod:`.access`; or, if compressed, expanded in memory), checked
    against its index entry's size, hash, row count and column list, and released when the object and
    all arrays taken from it are gone.

    Args:
        directory: Local directory that holds the shard file.
        entry: The shard's index entry.
        data: The bytes of its file, where there is none in the directory.
        noted: Marks of files at the time when the dataset was opened, by their names in the index.

    Raises:
        DatasetNotFoundError: Neither the raw nor the compressed file is there.
        ShardCorruptedError: The file does not match its entry.
        DatasetError: It is no regular file.
        OSError: The file system fails or refuses.
    """

    def __init__(
        self,
        directory: str,
        entry: ShardEntry,
        data: npt.NDArray[np.uint8] | None = None,
        noted: Mapping[str, FileMark] | None = None,
    ) -> None:
        self.entry = entry
        if data is None:
            self.path, raw = _load(directory, entry, noted or {})
        else:
            self.path = os.path.join(directory, entry.basenames[0])
            raw = data if entry.zip is None else _expand(self.path, entry, data)
        self.num_rows = entry.samples
        self._file = ShardFile(self.path, raw, entry.samples, entry.layout)
        self._positions = {name: i for i, name in enumerate(entry.layout.names)}

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def encoding(self, name: str) -> str:
        """Return a stored column's MDS encoding."""
        return self.entry.layout.encodings[self._positions[name]]

    def fixed(self, name: str, rows: Rows) -> npt.NDArray[Any]:
        """Return a fixed-width column: shape ``(rows,)`` or ``(rows, *value shape)``.

        With a slice and a shard of fixed-width records, a read-only strided view of the file;
        otherwise a copy.
        """
        position = self._positions[name]
        if self._file.records is not None:
            return self._file.records[f"{position}"][rows]
        return self._file.walk.fixed(position, rows)

    def variable(self, name: str, rows: Rows) -> pa.LargeBinaryArray:
        """Return the encoded bytes of a column, one string per row."""
        position = self._positions[name]
        if self.entry.layout.widths[position] is not None:
            return binary_rows(self.fixed(name, rows))
        numbers = np.arange(self.num_rows)[rows] if isinstance(rows, slice) else rows
        return self._file.walk.strings(position, numbers)


def _load(
    directory: str, entry: ShardEntry, noted: Mapping[str, FileMark]
) -> tuple[str, npt.NDArray[np.uint8]]:
    for info in entry.files:
        path = os.path.join(directory, info["basename"])
        # What is expanded is read once: a mapping would save nothing, and fail where the file is cut short.
        mapped = info is entry.raw and is_mapped(os.path.dirname(path))
        try:
            known = noted.get(info["basename"])
            data = checked_bytes(path, info["bytes"], info["hashes"], mapped=mapped, noted=known)
        except FileNotFoundError:
            continue
        return path, data if info is entry.raw else _expand(path, entry, data)
    raise DatasetNotFoundError(
        f"Shard {os.path.join(directory, entry.basenames[0])} is missing. "
        "If the cache directory was deleted, convert the DataFrame again."
    )


def _expand(path: str, entry: ShardEntry, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(expanded(path, entry.compression, data, entry.raw["bytes"]), np.uint8)


def expanded(path: str, compression: str | None, data: npt.NDArray[np.uint8], size: int) -> bytes:
    """Return what a compressed file holds, in no more bytes than the index says.

    Raises:
        ShardCorruptedError: It is damaged, or holds more or fewer bytes.
    """
    codec = codecs.parse_compression(compression)
    assert codec is not None
    try:
        return codec.decompress(data.data, size)
    except (OSError, ValueError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ShardCorruptedError.because(path, f"{codec.name} data", reason) from error
