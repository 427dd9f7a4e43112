"""The readers of a stream's shards: a shard is mapped when its first sample is read, and decoded sample by sample."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
from streaming.base.format import FileInfo, reader_from_json
from streaming.base.format.mds import MDSReader
from streaming.base.format.mds.encodings import mds_decode

from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge.mds.entry import ShardEntry, parse_index
from petastorm_bridge.mds.errors import DatasetError, HashNotKnownError, ShardCorruptedError
from petastorm_bridge.mds.layout import ShardLayout
from petastorm_bridge.mds.shard import Shard

from ._mapped import Column, Kind, check_file, columns_of, open_file, shard_path

# Shards that were not read from for a while are let go: when as many were mapped meanwhile as this, and
# of as many bytes. Of tiny shards a shuffled pass reads thousands in turn, and mapping costs much more
# than reading a sample. Linux allows 65,530 mappings in a process; up to twice the most are in use.
_SWEEP = 64
_SWEEP_BYTES = 1 << 30
_MOST_SHARDS = 8_192

Sample: TypeAlias = "dict[str, Any]"


def only_hash(name: str, info: Any, directory: str) -> dict[str, str]:
    """Return the one hash that was asked for; HashNotKnownError if the index does not have it."""
    if name not in info.hashes:
        path = os.path.join(directory, info.basename)
        raise HashNotKnownError(
            f"validate_hash is {name!r}, but {path} has the hashes {sorted(info.hashes)}. Name "
            "one of those, or leave it out for the fastest of them."
        )
    return {name: info.hashes[name]}


class MappedReaders:
    """The readers whose shards are mapped in this process, of a dataset; empty where it is unpickled."""

    def __init__(self) -> None:
        self._readers: dict[int, MappedReader] = {}  # by their identity
        self._shards = self._bytes = 0  # mapped since the last sweep
        self._lock = ForkSafeLock()  # several threads may take samples

    def reader_of(self, reader: Any) -> Any:
        """Return the reader of a shard that notes here when it has mapped that; others are given back."""
        if type(reader) is MDSReader:  # of a stream of streaming's own
            made = MappedReader.__new__(MappedReader)
            made.__setstate__(vars(reader))
            reader = made
        if isinstance(reader, MappedReader):
            reader.siblings = self
        return reader

    def let_go_of_deleted(self) -> None:
        """Let go of shards whose files are gone: these take up disk for as long as they are mapped."""
        with self._lock:
            for key, reader in [*self._readers.items()]:
                if not os.path.exists(shard_path(reader)):
                    reader.unmap()
                    del self._readers[key]

    def __reduce__(self) -> tuple[type[MappedReaders], tuple[()]]:
        return MappedReaders, ()

    def add(self, reader: MappedReader) -> None:
        """Note a reader that has mapped its shard, and let go of shards that are out of use."""
        with self._lock:
            self._readers[id(reader)] = reader
            self._shards += 1
            self._bytes += reader.raw_data.bytes
            if self._shards >= (_SWEEP if self._bytes >= _SWEEP_BYTES else _MOST_SHARDS):
                self._readers = {
                    key: each for key, each in self._readers.items() if each.stays_mapped()
                }
                self._shards = self._bytes = 0


class Readers:
    """Makes the readers of one stream, which share what is equal in all shards.

    Args:
        index_path: Where the index is.
        own_hash: Which hash to check when a shard is opened, if any.
    """

    def __init__(self, index_path: str, own_hash: str | None) -> None:
        self._index_path = index_path
        self._own_hash = own_hash
        self._mapped = MappedReaders()
        self._columns: dict[ShardLayout, tuple[Any, Any, Any]] = {}

    def load(self, file: BinaryIO) -> dict[str, Any]:
        """Return the content of the index (``json.load``)."""
        return parse_index(file.read(), self._index_path)

    def make(self, dirname: str, split: str | None, entry: Any) -> Any:
        """Return the reader of one entry of the index (``streaming.base.format``)."""
        path = self._index_path
        if isinstance(entry, dict) and entry.get("format") in ("csv", "tsv", "xsv", "json"):
            try:
                return reader_from_json(dirname, split, entry)
            except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
                raise DatasetError(f"{path} is not a usable index ({error!r}).") from error
        checked = ShardEntry.from_json(entry, path, has_other_encodings=True)
        layout = checked.layout
        names, encodings, sizes = self._columns.setdefault(
            layout, (list(layout.names), list(layout.encodings), list(layout.widths))
        )
        made = MappedReader(
            dirname=dirname,
            split=split,
            column_names=names,
            column_encodings=encodings,
            column_sizes=sizes,
            compression=None if checked.zip is None else checked.compression,
            hashes=list(checked.raw["hashes"]),
            raw_data=_file_info(checked.raw),
            samples=checked.samples,
            size_limit=None,
            zip_data=None if checked.zip is None else _file_info(checked.zip),
        )
        if self._own_hash:
            made.checked_hashes = only_hash(
                self._own_hash, made.raw_data, os.path.join(dirname, split or "")
            )
        return self._mapped.reader_of(made)  # until a dataset of this package has its own


def _file_info(entry: dict[str, Any]) -> FileInfo:
    return FileInfo(entry["basename"], entry["bytes"], entry["hashes"])


class MappedReader(MDSReader):
    """Reads samples of a mapped shard.

    Attributes:
        checked_hashes: Hashes of the file that are checked when it is opened.
        siblings: The readers that have mapped their shards, too.
    """

    checked_hashes: dict[str, str] | None = None
    _file: Shard | None = None
    siblings: MappedReaders
    _is_used = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._read: Callable[[int], dict[str, Any]] = self._map

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name != "_read"}
        return {**state, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._read = self._map

    def __getitem__(self, at: Any) -> Any:
        if type(at) is int and 0 <= at < self.samples:
            self._is_used = True
            return self._read(at)
        return super().__getitem__(at)

    def get_item(self, idx: int) -> dict[str, Any]:
        """Return one sample.

        Raises:
            FileNotFoundError: The shard is not in the cache.
            IndexError: It has no such sample.
            ShardCorruptedError: It is not what the index says.
        """
        if not 0 <= idx < self.samples:
            raise IndexError(f"Sample {idx} of {shard_path(self)}, which has {self.samples}.")
        self._is_used = True
        return self._read(idx)

    def mapped(self) -> Shard | None:
        """Return the shard, to be read from now, if it is mapped; another thread may let go of it at any time."""
        self._is_used = True
        return self._file

    def map(self) -> Shard:
        """Map the shard; raises as :meth:`get_item` does."""
        self._file = file = open_file(self)
        self._is_used = True
        self.siblings.add(self)
        return file

    def check(self) -> None:
        """Raise ShardCorruptedError if the shard is mapped and its file was cut short, replaced or written."""
        if self._file is not None:
            check_file(self)

    def stays_mapped(self) -> bool:
        """Let go of the shard if no sample was read from it since this was last asked."""
        if not self._is_used:
            self.unmap()
        self._is_used = False
        return self._file is not None

    def unmap(self) -> None:
        """Let go of the shard."""
        self._read = self._map
        self._file = None

    def evict(self) -> int:
        """Delete the shard's files; returns their bytes."""
        self.unmap()
        size: int = super().evict()
        return size

    def set_up_local(self, listing: set[str], safe_keep_zip: bool) -> int:
        """Return the bytes that are here, as ``Reader.set_up_local``.

        That deletes an expanded shard whose compressed file is gone, even if it is the only copy.
        """
        if safe_keep_zip and self.zip_data and shard_path(self) in listing:
            compressed = os.path.join(self.dirname, self.split, self.zip_data.basename)
            if compressed not in listing:
                return int(self.get_raw_size())
        return int(super().set_up_local(listing, safe_keep_zip))

    def _map(self, idx: int) -> dict[str, Any]:
        """Map the shard, so that it is read from there from now on, and return one sample."""
        file = self.map()
        self._read = _from_bytes(file) if file.records is None else _from_records(file)
        return self._read(idx)


def _undecodable(shard: Shard, row: int, error: Exception) -> ShardCorruptedError:
    columns = ", ".join(f"{c.name!r}: {c.encoding}" for c in columns_of(shard.layout))
    reason = f"{type(error).__name__}: {error}"
    return ShardCorruptedError.because(shard.path, f"sample {row} with columns {columns}", reason)


def _from_records(shard: Shard) -> Callable[[int], Sample]:
    """Return what makes a sample of a record of fixed width."""
    records: Any = shard.records
    columns = columns_of(shard.layout)
    names = [column.name for column in columns]
    # One array for each column: taking a field out of a record is several times slower.
    fields = [records[f"{i}"] for i in range(len(names))]
    special = [
        (column.name, int if column.encoding == "int" else _opaque(column.encoding))
        for column in columns
        if column.encoding == "int" or column.kind is not Kind.NUMBER
    ]

    def decode(row: int) -> Sample:
        sample = dict(zip(names, [field[row] for field in fields]))  # noqa: B905 - faster
        try:
            for name, make in special:
                sample[name] = make(sample[name])
        except Exception as error:  # decoders of users raise anything
            raise _undecodable(shard, row, error) from error
        return sample

    return decode


def _from_bytes(shard: Shard) -> Callable[[int], Sample]:
    """Return what makes a sample of which some columns are of variable width."""
    layout = shard.layout
    columns = [
        (column.name, width, _decoder(column, dtype))
        for column, width, dtype in zip(
            columns_of(layout), layout.widths, layout.formats, strict=True
        )
    ]
    count = layout.widths.count(None)
    sizes_of = struct.Struct(f"<{count}I").unpack_from
    # NumPy takes values out of an Arrow buffer faster than out of its own.
    view, item = memoryview(pa.py_buffer(shard.raw)), shard.offsets.item

    def decode(row: int) -> Sample:
        sample: Sample = {}
        start = item(row)
        try:
            sizes = iter(sizes_of(view, start))
            start += 4 * count
            for name, width, make in columns:
                size = next(sizes) if width is None else width
                sample[name] = make(view, start, size)
                start += size
        except Exception as error:  # decoders of users raise anything
            raise _undecodable(shard, row, error) from error
        if start != item(row + 1):
            raise _undecodable(shard, row, ValueError("sizes that do not add up to the sample"))
        return sample

    return decode


def _opaque(encoding: str) -> Callable[[Any], Any]:
    return lambda value: mds_decode(encoding, value.tobytes())


def _decoder(column: Column, dtype: np.dtype[Any] | None) -> Callable[[memoryview, int, int], Any]:
    """Return what makes a value, given the file, where the value begins in it, and its bytes."""
    if column.encoding == "str":
        return lambda view, start, size: str(view[start : start + size], "utf-8")
    if column.encoding == "bytes":
        return lambda view, start, size: bytes(view[start : start + size])
    if column.encoding == "int":
        return lambda view, start, _: int.from_bytes(view[start : start + 8], "little", signed=True)
    if column.kind is not Kind.NUMBER or dtype is None:
        encoding = column.encoding
        return lambda view, start, size: mds_decode(encoding, bytes(view[start : start + size]))
    return lambda view, start, _: np.frombuffer(view, dtype, 1, start)[0]
