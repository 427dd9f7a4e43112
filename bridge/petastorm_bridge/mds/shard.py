"""One shard of a dataset: its bytes, checked, its samples, and its columns."""

from __future__ import annotations

import functools
import json
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
from .layout import Cells, ColumnWalk, ShardLayout
from .ragged import Bytes, Int64
from .verified import FileMark, checked_bytes

Rows = slice | npt.NDArray[np.int64]
"""Which rows of a shard: a slice or an array of row numbers from 0, in the order wanted."""

Offsets = npt.NDArray[np.uint32]


class Shard:
    """A shard of which all bytes are in memory, without compression: mapped, read, or expanded.

    They are released when the object and everything taken from it is gone. What is mapped stays
    readable when the file is deleted meanwhile.

    Args:
        size: Bytes of the file, if only its beginning is here: the shard has the samples that are in it whole.

    Attributes:
        path: The file.
        raw: The bytes, uint8 of shape ``(size,)``.
        num_rows: How many samples it holds.
        layout: Their columns.
        offsets: Where each sample begins and the last one ends, ``<u4`` of shape ``(num_rows + 1,)``.
        records: The samples as packed records of shape ``(num_rows,)``, if all columns are of fixed
            width.

    Raises:
        ShardCorruptedError: The bytes are not what the index says.
    """

    def __init__(
        self, path: str, raw: Bytes, num_rows: int, layout: ShardLayout, size: int | None = None
    ) -> None:
        self.path = path
        self.raw = raw
        self.layout = layout
        offsets = _read_offsets(raw, len(raw) if size is None else size, path, num_rows, layout)
        self.num_rows = int(np.searchsorted(offsets, np.uint32(len(raw)), side="right")) - 1
        self.offsets = offsets[: self.num_rows + 1]
        self.records: npt.NDArray[Any] | None = None
        if layout.record is not None:
            self.records = np.frombuffer(raw, layout.record, self.num_rows, offsets.item(0))

    @functools.cached_property
    def bounds(self) -> Int64:
        """The offsets, as numbers that can be calculated with."""
        return self.offsets.astype(np.int64)

    @functools.cached_property
    def walk(self) -> ColumnWalk:
        """The columns of all samples; ShardCorruptedError if their sizes do not add up."""
        return ColumnWalk(self.layout, self.raw, self.bounds, lambda _: self.path)

    @functools.cached_property
    def strings(self) -> pa.LargeBinaryArray:
        """The samples as byte strings."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.raw)]
        return pa.Array.from_buffers(pa.large_binary(), self.num_rows, buffers)

    def __contains__(self, name: object) -> bool:
        return name in self.layout.positions

    def encoding(self, name: str) -> str:
        """Return a stored column's MDS encoding."""
        return self.layout.encodings[self.layout.positions[name]]

    def cells(self, name: str, rows: Rows) -> Cells:
        """Return the stored values of a column.

        With a slice and a shard of fixed-width records, a read-only strided view of the file; otherwise a copy.
        """
        position = self.layout.positions[name]
        if self.records is not None:
            return self.records[f"{position}"][rows]
        return self.walk.cells(position, rows)


def open_shard(
    directory: str,
    entry: ShardEntry,
    data: Bytes | None = None,
    noted: Mapping[str, FileMark] | None = None,
) -> Shard:
    """Open a shard: its file is mapped (or read, see :mod:`.access`; or, if compressed, expanded) and checked.

    Args:
        directory: Local directory that holds the shard file.
        entry: The shard's index entry, whose size, hash, row count and column list it must have.
        data: The bytes of its file, where there is none in the directory.
        noted: Marks of files at the time when the dataset was opened, by their names in the index.

    Raises:
        DatasetNotFoundError: Neither the raw nor the compressed file is there.
        ShardCorruptedError: The file does not match its entry.
        DatasetError: It is no regular file.
        OSError: The file system fails or refuses.
    """
    path = os.path.join(directory, entry.basenames[0])
    if data is not None:
        if entry.zip is not None:
            data = expanded(path, entry.compression, data, entry.raw["bytes"])
        return Shard(path, data, entry.samples, entry.layout)
    for info in entry.files:
        found = os.path.join(directory, info["basename"])
        # What is expanded is read once: a mapping would save nothing, and fail where the file is cut short.
        mapped = info is entry.raw and is_mapped(os.path.dirname(found))
        mark = (noted or {}).get(info["basename"])
        try:
            data = checked_bytes(found, info["bytes"], info["hashes"], mapped=mapped, noted=mark)
        except FileNotFoundError:
            continue
        if info is not entry.raw:
            data = expanded(found, entry.compression, data, entry.raw["bytes"])
        return Shard(found, data, entry.samples, entry.layout)
    raise DatasetNotFoundError(
        f"Shard {path} is missing. If the cache directory was deleted, convert the DataFrame again."
    )


def expanded(path: str, compression: str | None, data: Bytes, size: int) -> Bytes:
    """Return what a compressed file holds, of this size and no more; ShardCorruptedError otherwise."""
    codec = codecs.parse_compression(compression)
    assert codec is not None
    try:
        return np.frombuffer(codec.decompress(data.data, size), np.uint8)
    except (OSError, ValueError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ShardCorruptedError.because(path, f"{codec.name} data", reason) from error


def _read_offsets(raw: Bytes, size: int, path: str, samples: int, layout: ShardLayout) -> Offsets:
    """Return where each sample begins and the last one ends, ``<u4`` of shape ``(samples + 1,)``.

    They ascend, end with the file, and leave every sample as many bytes as its columns take at least,
    or exactly, if all are of fixed width.
    """

    def damaged(asked: str, actual: str) -> ShardCorruptedError:
        return ShardCorruptedError.because(path, asked, actual)

    offsets_end = 4 + 4 * (samples + 1)
    if len(raw) < offsets_end:
        raise damaged(f"{offsets_end} bytes of header", f"{len(raw)} bytes")
    words = raw[:offsets_end].view("<u4")
    rows = int(words[0])
    if rows != samples:
        raise damaged(f"{samples} rows", f"{rows} rows in its header")
    offsets = words[1:]
    first, last = int(offsets[0]), int(offsets[-1])
    if first < offsets_end or first > last or last != size:
        raise damaged(f"samples from byte {offsets_end} to {size}", f"{first} to {last}")
    try:
        columns = _columns(raw[offsets_end:first].tobytes())
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged("a JSON header", f"{error}") from error
    if columns != (layout.names, layout.encodings):
        wanted = list(zip(layout.names, layout.encodings, strict=True))
        raise damaged(f"columns {wanted}", f"{list(zip(*columns, strict=False))}")
    _check_lengths(path, offsets, layout)
    return offsets


@functools.lru_cache(maxsize=64)  # the shards of a dataset have the same
def _columns(text: bytes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    config = json.loads(text)
    return tuple(config["column_names"]), tuple(config["column_encodings"])


def _check_lengths(path: str, offsets: Offsets, layout: ShardLayout) -> None:
    """Check that samples are as long as their columns take."""
    least = layout.least_bytes
    # Where the offsets descend, the difference of unsigned numbers is 4 GiB too large.
    lengths = offsets[1:] - offsets[:-1]
    if layout.record is not None:
        is_right = bool((lengths == least).all())
    else:
        whole = int(offsets[-1]) - int(offsets[0])
        shortest = int(lengths.min(initial=2**32 - 1))
        is_right = shortest >= least and lengths.sum(dtype=np.int64) == whole
    if not is_right:
        found = np.diff(offsets.astype(np.int64))
        wanted = f"samples of {'at least ' if layout.record is None else ''}{least} bytes"
        shown = f"{int(found.min(initial=0))} to {int(found.max(initial=0))} bytes"
        raise ShardCorruptedError.because(path, wanted, shown)
