"""Row groups of far Parquet files: the columns that are read, fetched in large ranges and ahead of their use."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge.mds.access import is_mapped, load

from ._far.ahead import Fetcher
from ._far.copies import CacheSettings, Copies
from ._far.fetch import Extent, Fetch
from ._far.stores import Store
from .parquet_files import File

# Columns with fewer bytes between them are fetched together: a request takes longer than these.
_GAP = 256 << 10


class FarFiles:
    """Brings columns of the row groups of Parquet files here.

    A copy is named for the path, the size and the modification time of its file, and for its range. Where a store
    tells no time, copies are for this object alone.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[File],
        prefix: str = "",
        settings: CacheSettings | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._prefix = prefix
        folders = sorted({os.path.dirname(file.path) for file in files})
        is_private = any(file.mtime is None for file in files)
        copies = Copies(_digest(prefix, *folders), is_private=is_private, settings=settings)
        self.ahead = Fetcher(store, copies)

    def open(self, index: int, footer: Any, group: int, names: Collection[str]) -> pa.PythonFile:
        """Return a file for Arrow, once the columns of a row group are here; raises as :class:`Fetch`."""
        file = self._files[index]
        parts = []
        for extent in self.extents(index, footer, group, names):
            data = self.ahead.get(extent)
            if data is None:
                data, _ = load(self.ahead.path(extent), mapped=is_mapped(self.ahead.copies.path))
            parts.append((extent.start or 0, data))
        url = self._prefix + file.path
        return pa.PythonFile(_Parts(self._store, url, file.size, parts), mode="r")

    def extents(self, index: int, footer: Any, group: int, names: Collection[str]) -> list[Extent]:
        """Return the ranges of a file that hold columns of a row group."""
        file = self._files[index]
        ranges: list[list[int]] = []
        for start, stop in sorted(_chunks(footer.row_group(group), names)):
            if not 0 <= start <= stop <= file.size:
                continue  # Arrow will say what is wrong
            if ranges and start - ranges[-1][1] <= _GAP:
                ranges[-1][1] = max(stop, ranges[-1][1])
            else:
                ranges.append([start, stop])
        key = _digest(file.path, str(file.size), str(file.mtime))
        return [
            Extent(self._prefix + file.path, f"{key}.{start}-{stop}", stop - start, start=start)
            for start, stop in ranges
        ]


MakeFar = Callable[[Sequence[File]], FarFiles]


def _chunks(row_group: Any, names: Collection[str]) -> list[tuple[int, int]]:
    """Return the ranges of the file in which the columns lie, as the footer has them."""
    chunks = []
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        if column.path_in_schema.split(".")[0] in names or column.path_in_schema in names:
            start = column.data_page_offset
            if column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            chunks.append((start, start + column.total_compressed_size))
    return chunks


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class _Parts(io.RawIOBase):
    """A file of which some parts are here; the others are fetched as they are asked for."""

    def __init__(
        self, store: Store, url: str, size: int, parts: Sequence[tuple[int, npt.NDArray[np.uint8]]]
    ) -> None:
        self._store = store
        self._url = url
        self._size = size
        self._parts = parts
        self._position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> Any:
        """Return bytes, without copying those that are here."""
        start = self._position
        stop = self._size if size < 0 else min(start + size, self._size)
        self._position = max(start, stop)
        for first, data in self._parts:
            if first <= start and stop <= first + len(data):
                return data[start - first : stop - first].data
        extent = Extent(self._url, "", max(0, stop - start), start=start)
        return Fetch(self._store, extent).to_memory().data
