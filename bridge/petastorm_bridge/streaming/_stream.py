"""A ``Stream`` whose shards are mapped into memory: for per-sample ``StreamingDataset`` as well."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from streaming.base.format import FileInfo, reader_from_json
from streaming.base.format.mds import MDSReader
from streaming.base.format.mds.encodings import mds_decode
from streaming.base.stream import Stream, streams_registry

from ._layout import Column, Kind, SampleLayout
from ._shard import MappedShard
from ._stock import with_names

__all__ = ["STREAM_NAME", "MappedReader", "MappedReaders", "MappedStream", "is_same", "shard_path"]

STREAM_NAME = "petastorm_bridge"

_SWEEP = 64

Decode = Callable[[memoryview, int, int], Any]


class MappedStream(Stream):
    """Streaming's ``Stream``, with readers that map a shard instead of opening it for each sample.

    Takes the arguments of ``streaming.Stream`` and gives the same samples. Registered with streaming
    under the name ``petastorm_bridge``: any program can use it by
    ``StreamingDataset(..., stream_name="petastorm_bridge")`` without an import.

    Files of a wrong size in the cache of a remote dataset (a download that was killed) are deleted
    and fetched again.
    """

    def get_shards(self, world: Any, allow_unsafe_types: bool) -> list[Any]:
        """Return the readers of all shards, as ``Stream.get_shards``."""
        readers = _Readers()
        get: Any = with_names(Stream.get_shards, reader_from_json=readers.make)
        shards: list[Any] = get(self, world, allow_unsafe_types)
        return shards

    def set_up_local(self, shards: list[Any], cache_usage_per_shard: Any) -> None:
        """Bring the local directory into a consistent state, as ``Stream.set_up_local``."""
        if self.remote is not None and not is_same(self.remote, self.local):
            directory = os.path.join(self.local, self.split)
            for shard in shards:
                for info in (info for pair in shard.file_pairs for info in pair if info):
                    path = os.path.join(directory, info.basename)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(path).st_size != info.bytes:
                            os.remove(path)
        super().set_up_local(shards, cache_usage_per_shard)


def is_same(remote: str, local: str) -> bool:
    """Return whether a remote directory is the local one."""
    return os.path.realpath(remote.removeprefix("file://")) == os.path.realpath(local)


def shard_path(reader: Any) -> str:
    """Return where a shard's uncompressed file is or will be."""
    return str(os.path.join(reader.dirname, reader.split, reader.raw_data.basename))


class MappedReaders(dict[int, "MappedReader"]):
    """The readers, by their identity, whose shards are mapped; empty where it is unpickled."""

    def __reduce__(self) -> tuple[type[MappedReaders], tuple[()]]:
        return MappedReaders, ()


class _Readers:
    """Makes the readers of one stream, which share what is equal in all shards."""

    def __init__(self) -> None:
        self._mapped = MappedReaders()
        self._columns: dict[str, tuple[Any, Any, Any]] = {}

    def make(self, dirname: str, split: str | None, entry: dict[str, Any]) -> Any:
        """Return the reader of one entry of the index (``streaming.base.format``)."""
        if entry["format"] != "mds" or entry["version"] != 2:
            return reader_from_json(dirname, split, entry)
        columns = (entry["column_names"], entry["column_encodings"], entry["column_sizes"])
        names, encodings, sizes = self._columns.setdefault(json.dumps(columns), columns)
        raw, zipped = entry["raw_data"], entry["zip_data"]
        return MappedReader(
            dirname=dirname,
            split=split,
            column_names=names,
            column_encodings=encodings,
            column_sizes=sizes,
            compression=entry["compression"],
            hashes=entry["hashes"],
            raw_data=FileInfo(**raw) if raw else None,
            samples=entry["samples"],
            size_limit=entry["size_limit"],
            zip_data=FileInfo(**zipped) if zipped else None,
            mapped=self._mapped,
        )


class MappedReader(MDSReader):
    """Reads samples of a mapped shard.

    Args:
        mapped: The readers of the stream whose shards are mapped.
        **arguments: As of ``MDSReader``.
    """

    def __init__(self, mapped: MappedReaders, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._siblings = mapped
        self._read: Callable[[int], dict[str, Any]] = self._map
        self._is_used = False

    @classmethod
    def of(cls, reader: MDSReader, mapped: MappedReaders) -> MappedReader:
        """Return a reader of the same shard as a stock one."""
        made = cls.__new__(cls)
        made.__setstate__({**vars(reader), "_siblings": mapped, "_is_used": False})
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_read"}

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

    def evict(self) -> int:
        """Delete the shard's files; returns their bytes."""
        self._read = self._map
        size: int = super().evict()
        return size

    def _map(self, idx: int) -> dict[str, Any]:
        """Map the shard, so that it is read from there from now on, and return one sample."""
        layout = SampleLayout.of(self)
        shard = MappedShard(shard_path(self), self.raw_data.bytes, self.samples, layout)
        records = shard.records
        self._read = _ragged(shard) if records is None else _records(layout, records)
        self._siblings[id(self)] = self
        if len(self._siblings) % _SWEEP == 0:
            self._sweep()
        return self._read(idx)

    def _sweep(self) -> None:
        """Let go of the shards that were not read from since the last time."""
        for key, reader in list(self._siblings.items()):
            if reader._is_used or reader is self:  # noqa: SLF001 - of this class
                reader._is_used = False  # noqa: SLF001
            else:
                reader._read = reader._map  # noqa: SLF001
                del self._siblings[key]


def _records(layout: SampleLayout, records: Any) -> Callable[[int], dict[str, Any]]:
    """Return what makes a sample of a record of fixed width."""
    names = [column.name for column in layout.columns]
    # One array for each column: taking a field out of a record is several times slower.
    fields = [records[f"{i}"] for i in range(len(names))]
    special = [
        (column.name, int if column.encoding == "int" else _opaque(column.encoding))
        for column in layout.columns
        if column.encoding == "int" or column.kind is not Kind.NUMBER
    ]

    def decode(idx: int) -> dict[str, Any]:
        sample = dict(zip(names, [field[idx] for field in fields]))  # noqa: B905 - faster
        for name, make in special:
            sample[name] = make(sample[name])
        return sample

    return decode


def _opaque(encoding: str) -> Callable[[Any], Any]:
    return lambda value: mds_decode(encoding, value.tobytes())


def _ragged(shard: MappedShard) -> Callable[[int], dict[str, Any]]:
    """Return what makes a sample of which some columns are of variable width."""
    columns = [(c.name, c.width, _decoder(c)) for c in shard.layout.columns]
    variable = sum(width is None for _, width, _ in columns)
    sizes_of = struct.Struct(f"<{variable}I").unpack_from
    item = shard.offsets.item
    view = memoryview(shard.buffer)

    def decode(idx: int) -> dict[str, Any]:
        start = item(idx)
        sizes = iter(sizes_of(view, start))
        start += 4 * variable
        sample = {}
        for name, width, make in columns:
            size = next(sizes) if width is None else width
            sample[name] = make(view, start, size)
            start += size
        return sample

    return decode


def _decoder(column: Column) -> Decode:
    """Return what makes a value, given the file and the value's place."""
    if column.encoding == "str":
        return lambda view, start, size: str(view[start : start + size], "utf-8")
    if column.encoding == "bytes":
        return lambda view, start, size: bytes(view[start : start + size])
    if column.encoding == "int":
        return lambda view, start, _: int.from_bytes(view[start : start + 8], "little", signed=True)
    if column.kind is not Kind.NUMBER:
        encoding = column.encoding
        return lambda view, start, size: mds_decode(encoding, bytes(view[start : start + size]))
    dtype, shape = column.dtype, column.shape
    if not shape:
        return lambda view, start, _: np.frombuffer(view, dtype, 1, start)[0]
    count = int(np.prod(shape))
    return lambda view, start, _: np.frombuffer(view, dtype, count, start).reshape(shape)


# For programs that import this package without its entry points being installed.
streams_registry.register(STREAM_NAME, func=MappedStream)
