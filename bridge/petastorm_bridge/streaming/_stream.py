"""A ``Stream`` whose shards are mapped into memory: for per-sample ``StreamingDataset`` as well."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterable
from shutil import SpecialFileError
from types import SimpleNamespace
from typing import Any, BinaryIO

from streaming.base.format import FileInfo, reader_from_json
from streaming.base.format.mds import MDSReader
from streaming.base.stream import Stream, streams_registry

from petastorm_bridge.mds.access import load
from petastorm_bridge.mds.codecs import parse_compression
from petastorm_bridge.mds.dataset import parse_index
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError, ShardCorruptedError
from petastorm_bridge.mds.files import open_regular, write_whole
from petastorm_bridge.mds.layout import ShardLayout
from petastorm_bridge.mds.names import INDEX_NAME, check_file_names, check_folders
from petastorm_bridge.mds.verified import best_hash, check_hash

from ._decoders import sample_maker
from ._layout import SampleLayout
from ._mapped import OpenShard, open_file
from ._stock import with_names

__all__ = [
    "STREAM_NAME",
    "MappedReader",
    "MappedReaders",
    "MappedStream",
    "check_shards",
    "is_same",
    "shard_path",
]

STREAM_NAME = "petastorm_bridge"

_SWEEP = 64


class MappedStream(Stream):
    """Streaming's ``Stream``, with readers that map a shard instead of opening it for each sample.

    Takes the arguments of ``streaming.Stream`` and gives the same samples. Registered with streaming
    under the name ``petastorm_bridge``: any program can use it by
    ``StreamingDataset(..., stream_name="petastorm_bridge")`` without an import.

    Files of a wrong size in the cache of a remote dataset (a download that was killed) are deleted
    and fetched again. What is fetched is compared with a hash of the index, if it has any, unless
    ``validate_hash`` is ``""``; one that ``validate_hash`` names is compared in a local dataset, too,
    whenever a process opens a file.
    """

    # Whether a shard that cannot be had is an error of who reads it, not of who fetches it. Streaming
    # fetches in threads of its own, and where one of them fails it ends the epoch early without a word.
    keeps_failures = True

    _raw_size = 0

    def get_shards(self, world: Any, allow_unsafe_types: bool) -> list[Any]:
        """Return the readers of all shards, as ``Stream.get_shards``.

        Raises:
            FileNotFoundError, RuntimeError: There is no index.
            DatasetError: The index cannot be used, or names files elsewhere.
            ValueError: Types that are not safe, or no such hash as ``validate_hash``.
        """
        path = os.path.join(self.local, self.split, INDEX_NAME)
        own_hash = self.validate_hash if not self._is_cache() else None
        readers = _Readers(path, own_hash)
        get: Any = with_names(
            Stream.get_shards,
            open=open_regular,
            json=SimpleNamespace(load=readers.load, decoder=json.decoder),
            reader_from_json=readers.make,
        )
        shards: list[Any] = get(self, world, allow_unsafe_types)
        if not sum(map(len, shards)):
            raise DatasetError(f"{path} lists no samples.")
        check_shards(self, shards)
        return shards

    def set_up_local(self, shards: list[Any], cache_usage_per_shard: Any) -> None:
        """Bring the local directory into a consistent state, as ``Stream.set_up_local``."""
        if self._is_cache():
            directory = os.path.join(self.local, self.split)
            for info in _files(shards):
                path = os.path.join(directory, info.basename)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_size != info.bytes:
                        os.remove(path)
        super().set_up_local(shards, cache_usage_per_shard)

    def _is_cache(self) -> bool:
        """Return whether the local directory holds copies."""
        return self.remote is not None and not is_same(self.remote, self.local)

    def prepare_shard(self, shard: Any) -> int:
        """Fetch, check and expand a shard, as ``Stream.prepare_shard``.

        Returns:
            By how many bytes the cache has grown. It shrinks if the shard cannot be had: a copy that
            is not what the index says goes, and reading the shard raises the error.

        Raises:
            DatasetNotFoundError: It is not in the remote directory.
            ShardCorruptedError: It is not what the index says (also a ValueError).
            DatasetError: A directory or device is in its place.
        """
        if not self.keeps_failures or not isinstance(shard, MappedReader):
            return self._prepare(shard)
        here = shard.bytes_here()
        shard.failure = None
        try:
            return self._prepare(shard)
        except DatasetError as error:
            shard.failure = error
            if not self._is_cache():
                return 0
            shard.evict()
            return -here

    def _prepare(self, shard: Any) -> int:
        """Fetch, check and expand a shard, or say why not."""
        try:
            return int(super().prepare_shard(shard))
        except DatasetError as error:
            if type(error) is not ShardCorruptedError:
                raise
            raise FetchedShardError(f"{error}") from error
        except FileNotFoundError as error:
            raise DatasetNotFoundError(f"Shard {error.filename or error} is missing.") from error
        except (IsADirectoryError, NotADirectoryError, SpecialFileError) as error:
            raise DatasetError(f"{error}: this is no shard.") from error
        except ValueError as error:
            if not str(error).startswith("Checksum failure"):
                raise
            raise FetchedShardError(f"{error}: it is not what the index says.") from error

    def _prepare_shard_part(
        self, raw_info: Any, zip_info: Any = None, compression: str | None = None
    ) -> int:
        stream = copy.copy(self)  # several threads prepare shards
        stream._raw_size = raw_info.bytes  # noqa: SLF001 - of this class
        if self.validate_hash is None:
            stream.validate_hash = best_hash((zip_info or raw_info).hashes)
        prepare: Any = super(MappedStream, stream)._prepare_shard_part
        return int(prepare(raw_info, zip_info, compression))

    def _download_file(self, from_basename: str, to_basename: str | None = None) -> str:
        if self.remote is None:
            path = os.path.join(self.local, self.split, from_basename)
            raise DatasetNotFoundError(
                f"{path} is missing, and there is no remote to fetch it from."
            )
        if "://" not in self.remote:
            path = os.path.join(self.remote, self.split, from_basename)
            # Copying a device would never end.
            with contextlib.suppress(FileNotFoundError):
                open_regular(path).close()
        return str(super()._download_file(from_basename, to_basename))

    def _decompress_shard_part(
        self, zip_info: Any, zip_filename: str, raw_filename: str, compression: str | None
    ) -> None:
        """Check and expand a file, to no more bytes than the index says."""
        codec = parse_compression(compression)
        assert codec is not None
        data, status = load(zip_filename, mapped=False)
        name = self.validate_hash
        if name:
            check_hash(zip_filename, _only(name, zip_info), lambda: data, status)
        try:
            raw = codec.decompress(data.data, self._raw_size)
        except (OSError, ValueError, MemoryError) as error:
            asked = f"{codec.name} data"
            raise FetchedShardError.because(zip_filename, asked, str(error)) from error
        write_whole(raw_filename, [raw])
        if not self.safe_keep_zip:
            os.remove(zip_filename)


def _said(error: DatasetError) -> DatasetError:
    """Return an error for who reads a shard, for whom streaming tries a missing file again and again."""
    return DatasetError(str(error)) if isinstance(error, FileNotFoundError) else error


class FetchedShardError(ShardCorruptedError, ValueError):
    """A fetched shard is not what the index says; streaming's own error for it is a ValueError."""


def check_shards(stream: Stream, shards: Iterable[Any]) -> None:
    """Check that the files of a stream's shards are in its directory.

    Raises:
        DatasetError: The index names others, or the directory has links to others.
    """
    directory = os.path.join(stream.local, stream.split)
    names = [info.basename for info in _files(shards)]
    check_file_names(names, os.path.join(directory, INDEX_NAME))
    if stream.remote is not None and not is_same(stream.remote, stream.local):
        check_folders(directory, names)


def _files(shards: Iterable[Any]) -> list[Any]:
    return [info for shard in shards for pair in shard.file_pairs for info in pair if info]


def _only(name: str, info: Any) -> dict[str, str]:
    """Return the one hash that was asked for.

    Raises:
        ValueError: The index does not have it.
    """
    if name not in info.hashes:
        raise ValueError(
            f"validate_hash is {name!r}, but {info.basename} has the hashes {sorted(info.hashes)}. Name "
            "one of those, or leave it out for the fastest of them."
        )
    return {name: info.hashes[name]}


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
        try:
            return parse_index(file.read())
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{self._index_path} is not a usable index ({error}).") from error

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
            layout, (list(layout.names), list(layout.encodings), list(layout.sizes))
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
            mapped=self._mapped,
        )
        if self._own_hash:
            made.checked_hashes = _only(self._own_hash, made.raw_data)
        return made


def _file_info(found: dict[str, Any]) -> FileInfo:
    return FileInfo(found["basename"], found["bytes"], found["hashes"])


class MappedReader(MDSReader):
    """Reads samples of a mapped shard.

    Attributes:
        checked_hashes: Hashes of the file that are checked when it is opened.
        failure: Why the shard could not be had when it was last asked for.

    Args:
        mapped: The readers of the stream whose shards are mapped.
        **arguments: As of ``MDSReader``.
    """

    def __init__(self, mapped: MappedReaders, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._siblings = mapped
        self.checked_hashes: dict[str, str] | None = None
        self.failure: DatasetError | None = None
        self._read: Callable[[int], dict[str, Any]] = self._map
        self._is_used = False

    @classmethod
    def of(cls, reader: MDSReader, mapped: MappedReaders) -> MappedReader:
        """Return a reader of the same shard as a stock one."""
        made = cls.__new__(cls)
        made.__setstate__(
            {
                **vars(reader),
                "_siblings": mapped,
                "_is_used": False,
                "checked_hashes": None,
                "failure": None,
            }
        )
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

    def bytes_here(self) -> int:
        """Return how many bytes of the shard are in the local directory."""
        folder = os.path.join(self.dirname, self.split)
        paths = [os.path.join(folder, info.basename) for info in self.file_pairs[0] if info]
        return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))

    def evict(self) -> int:
        """Delete the shard's files; returns their bytes."""
        self._read = self._map
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

    def open(self) -> OpenShard:
        """Open the shard's file.

        Raises:
            FileNotFoundError: The shard is not in the cache.
            ShardCorruptedError: It is not what the index says.
            DatasetError: It is no regular file.
        """
        return open_file(
            shard_path(self),
            self.raw_data.bytes,
            self.samples,
            SampleLayout.of(self),
            self.checked_hashes,
        )

    def _map(self, idx: int) -> dict[str, Any]:
        """Map the shard, so that it is read from there from now on, and return one sample."""
        try:
            self._read = sample_maker(self.open())
        except FileNotFoundError:
            failure, self.failure = self.failure, None  # so that it is tried again the next time
            if failure is None:
                raise
            raise _said(failure) from failure
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


# For programs that import this package without its entry points being installed.
streams_registry.register(STREAM_NAME, func=MappedStream)
