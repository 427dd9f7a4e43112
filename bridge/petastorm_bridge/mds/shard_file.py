"""One shard file without compression: its bytes, checked, and its samples."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .access import fill, is_mapped, load, read_part
from .errors import ShardCorruptedError
from .files import open_regular
from .header import read_offsets
from .layout import ShardLayout
from .ragged import gather_ragged, unaligned_view
from .verified import check_hash
from .walk import ColumnWalk, Maker, sample_parser

__all__ = ["AnyShardFile", "DistantShardFile", "ShardFile", "checked_bytes", "open_shard_file"]

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

Samples: TypeAlias = "npt.NDArray[Any] | pa.LargeBinaryArray"
"""Samples as packed records, if all columns are of fixed width, and as byte strings otherwise."""

Refuse = Callable[[int, Exception], Exception]
"""Makes the error for a sample that cannot be parsed, of its number and of what was raised."""

# Samples of a file that is read are read together if no more bytes than these lie between them.
_GAP = 64 << 10


class _Samples:
    """Where the samples of a shard file are.

    Attributes:
        path: The file.
        size: Its bytes.
        samples: How many samples it holds.
        layout: Their columns.
        offsets: Where each sample begins and the last one ends, ``<u4`` of shape ``(samples + 1,)``.
    """

    def __init__(
        self,
        path: str,
        size: int,
        samples: int,
        layout: ShardLayout,
        part: Callable[[int, int], Bytes],
    ) -> None:
        self.path = path
        self.size = size
        self.samples = samples
        self.layout = layout
        self.offsets = read_offsets(part, path=path, size=size, samples=samples, layout=layout)

    @functools.cached_property
    def bounds(self) -> Int64:
        """The offsets, as numbers that can be calculated with."""
        return self.offsets.astype(np.int64)


class ShardFile(_Samples):
    """A shard file of which all bytes are in memory: mapped, read, or expanded.

    They are released when the object and everything taken from it is gone. What is mapped stays
    readable when the file is deleted meanwhile.

    Attributes:
        raw: The bytes, uint8 of shape ``(size,)``.
        records: The samples as packed records of shape ``(samples,)``, if all columns are of fixed
            width.

    Args:
        path: The file, for messages.
        raw: Its bytes.
        samples: Its samples, by the index.
        layout: Its columns, by the index.

    Raises:
        ShardCorruptedError: The bytes are not what the index says.
    """

    def __init__(self, path: str, raw: Bytes, samples: int, layout: ShardLayout) -> None:
        super().__init__(path, len(raw), samples, layout, lambda start, stop: raw[start:stop])
        self.raw = raw
        self.records: npt.NDArray[Any] | None = None
        if layout.record is not None:
            self.records = np.frombuffer(raw, layout.record, samples, self.offsets.item(0))

    def check_size(self) -> None:
        """Raise ShardCorruptedError if the file was cut short or replaced; a deleted one stays readable."""
        with contextlib.suppress(FileNotFoundError):
            _check_size(self.path, self.size, os.stat(self.path).st_size)

    @functools.cached_property
    def walk(self) -> ColumnWalk:
        """The columns of all samples; ShardCorruptedError if their sizes do not add up."""
        bounds = self.bounds
        return ColumnWalk(self.layout, self.raw, bounds[:-1], bounds[1:], lambda _: self.path)

    @functools.cached_property
    def strings(self) -> pa.LargeBinaryArray:
        """The samples as byte strings."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.raw)]
        return pa.Array.from_buffers(pa.large_binary(), self.samples, buffers)

    def view(self, rows: slice) -> Samples:
        """Return adjacent samples, or some at a constant distance, without copying adjacent ones."""
        if self.records is not None:
            return self.records[rows]
        if rows.step == 1:
            return self.strings.slice(rows.start, rows.stop - rows.start)
        return self.take(np.arange(rows.start, rows.stop, rows.step))

    def take(self, rows: Int64) -> pa.LargeBinaryArray:
        """Return samples of differing width."""
        return self.strings.take(pa.array(rows))

    def take_records(self, rows: Int64, out: npt.NDArray[Any]) -> None:
        """Write samples of fixed width into an array of as many opaque values."""
        assert self.records is not None
        # The rows are within the shard, so that no clipping takes place; it saves a copy.
        self.records.view(out.dtype).take(rows, out=out, mode="clip")

    def parser(self, makers: Sequence[Maker], refuse: Refuse) -> Callable[[int], dict[str, Any]]:
        """Return what makes a dictionary of one sample.

        Args:
            makers: Make the values of each column.
            refuse: Makes the error for a sample that cannot be parsed.
        """
        parse = sample_parser(self.layout, makers)
        # NumPy takes values out of an Arrow buffer faster than out of its own.
        view, item = memoryview(pa.py_buffer(self.raw)), self.offsets.item

        def sample(row: int) -> dict[str, Any]:
            try:
                return parse(view, item(row), item(row + 1))
            except Exception as error:  # makers raise anything
                raise refuse(row, error) from error

        return sample


class DistantShardFile(_Samples):
    """A shard file whose samples are read when they are asked for; it holds their offsets only.

    The methods are those of :class:`ShardFile`. They raise FileNotFoundError if the file was deleted
    meanwhile, ShardCorruptedError if it is shorter or longer now, and OSError if the file system fails.

    Args:
        path: The file.
        size: Its bytes, by the index.
        samples: Its samples, by the index.
        layout: Its columns, by the index.
        hashes: Hashes to check, one of which is.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: The file is not what the index says.
        DatasetError: It is no regular file.
    """

    records = None

    def __init__(
        self,
        path: str,
        size: int,
        samples: int,
        layout: ShardLayout,
        hashes: Mapping[str, str] | None = None,
    ) -> None:
        with _opened(path, size) as file:
            if hashes:
                status = os.fstat(file.fileno())
                check_hash(path, hashes, lambda: read_part(file, 0, size), status)
            super().__init__(path, size, samples, layout, functools.partial(read_part, file))

    def check_size(self) -> None:
        """Do nothing: every read looks at the size."""

    def view(self, rows: slice) -> Samples:
        """Return adjacent samples, or some at a constant distance."""
        chosen = np.arange(rows.start, rows.stop, rows.step)
        if self.layout.record is None:
            return self.take(chosen)
        out = np.empty(len(chosen), np.dtype(("V", self.layout.record.itemsize)))
        self.take_records(chosen, out)
        return out.view(self.layout.record)

    def take(self, rows: Int64) -> pa.LargeBinaryArray:
        """Return samples of differing width."""
        raw, starts, lengths, inverse = self._read(rows)
        return gather_ragged(raw, starts, lengths).take(pa.array(inverse))

    def take_records(self, rows: Int64, out: npt.NDArray[Any]) -> None:
        """Write samples of fixed width into an array of as many opaque values."""
        raw, starts, _, inverse = self._read(rows)
        out[:] = unaligned_view(raw, out.dtype.str)[starts[inverse]]

    def parser(self, makers: Sequence[Maker], refuse: Refuse) -> Callable[[int], dict[str, Any]]:
        """Return what reads one sample and makes a dictionary of it."""
        parse = sample_parser(self.layout, makers)

        def sample(row: int) -> dict[str, Any]:
            with _opened(self.path, self.size) as file:
                view = read_part(file, self.offsets.item(row), self.offsets.item(row + 1)).data
            try:
                return parse(view, 0, len(view))
            except Exception as error:  # makers raise anything
                raise refuse(row, error) from error

        return sample

    def _read(self, rows: Int64) -> tuple[Bytes, Int64, Int64, Int64]:
        """Return bytes, where each distinct sample starts in them, its length, and which is which."""
        unique, inverse = np.unique(rows, return_inverse=True)
        begins, ends = self.bounds[unique], self.bounds[unique + 1]
        if not len(unique):
            return np.empty(0, np.uint8), begins, begins, inverse
        is_first = np.concatenate([[True], begins[1:] - ends[:-1] > _GAP])
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:], len(unique)) - 1
        places = np.cumsum([0, *(ends[lasts] - begins[firsts])])
        raw: Bytes = np.empty(places[-1], np.uint8)
        with _opened(self.path, self.size) as file:
            # One read for each run of samples close together.
            for begin, low, high in zip(
                begins[firsts].tolist(), places.tolist(), places[1:].tolist(), strict=False
            ):
                fill(file, begin, raw[low:high])
        shifts = (places[:-1] - begins[firsts])[np.cumsum(is_first) - 1]
        return raw, begins + shifts, ends - begins, inverse


AnyShardFile: TypeAlias = "ShardFile | DistantShardFile"


def open_shard_file(
    path: str,
    size: int,
    samples: int,
    layout: ShardLayout,
    hashes: Mapping[str, str] | None = None,
) -> AnyShardFile:
    """Return a shard file, mapped, or distant where mapping may fail (:mod:`.access`).

    Arguments and errors are those of :class:`DistantShardFile`.
    """
    if not is_mapped(os.path.dirname(path)):
        return DistantShardFile(path, size, samples, layout, hashes)
    return ShardFile(path, checked_bytes(path, size, hashes, mapped=True), samples, layout)


def checked_bytes(path: str, size: int, hashes: Mapping[str, str] | None, *, mapped: bool) -> Bytes:
    """Return all bytes of a file, which must have a size and one of some hashes, if there are any.

    Args:
        path: The file.
        size: Its bytes, by the index.
        hashes: Names and hex digests.
        mapped: Whether to map it or to read it.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: It is another file.
        DatasetError: It is no regular file.
        OSError: The file system fails or refuses.
    """
    data, status = load(path, mapped)
    _check_size(path, size, len(data))
    if hashes:
        check_hash(path, hashes, lambda: data, status)
    return data


def _opened(path: str, size: int) -> BinaryIO:
    file = open_regular(path)
    try:
        _check_size(path, size, os.fstat(file.fileno()).st_size)
    except ShardCorruptedError:
        file.close()
        raise
    return file


def _check_size(path: str, size: int, found: int) -> None:
    if found != size:
        raise ShardCorruptedError.because(path, f"{size} bytes", f"{found} bytes")
