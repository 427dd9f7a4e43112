"""A ``Stream`` whose shards are mapped into memory, and fetched in ranges where they are far away."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from streaming.base.format import FileInfo
from streaming.base.stream import Stream

from petastorm_bridge._sources._far import limits
from petastorm_bridge._sources._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from petastorm_bridge._sources._far.stores import MountStore, Store, open_store
from petastorm_bridge._workers.file_lock import locked
from petastorm_bridge.mds.access import is_mapped, load
from petastorm_bridge.mds.entry import INDEX_NAME, check_file_names, check_folders
from petastorm_bridge.mds.errors import (
    DatasetError,
    DatasetNotFoundError,
    FetchedShardError,
    ShardCorruptedError,
)
from petastorm_bridge.mds.files import open_regular, write_whole
from petastorm_bridge.mds.shard import expanded
from petastorm_bridge.mds.verified import check_hash
from petastorm_bridge.mds_support import MdsDirectory

from ._mapped_reader import Readers, only_hash
from ._stock import with_names


class MappedStream(Stream):
    """Streaming's ``Stream``, with readers that map a shard instead of opening it for each sample.

    Takes the arguments of ``streaming.Stream`` and gives the same samples. ``ColumnarStreamingDataset``
    and ``MappedStreamingDataset`` make one of their own arguments; give them several in ``streams=`` for
    a mixture.

    A ``local`` directory that is far away (in a store, or behind a mount of a network or user-space file system) without
    ``remote`` is taken for ``remote``, with a directory for copies on this machine's disk as ``local``. Shards come
    from far places in ranges, several at once, and the index as a whole; each is asked for as often, and waited for as
    long, as ``PETASTORM_BRIDGE_REMOTE_ATTEMPTS`` and ``PETASTORM_BRIDGE_REMOTE_TIMEOUT`` say, whatever
    ``download_retry`` and ``download_timeout`` are.

    Files of a wrong size in the cache of a remote dataset (a download that was killed) are deleted
    and fetched again. What is fetched is compared with a hash of the index, if it has any, unless
    ``validate_hash`` is ``""``; one that ``validate_hash`` names is compared in a local dataset, too,
    whenever a process opens a file.
    """

    def __init__(
        self,
        *,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        **arguments: Any,
    ) -> None:
        if local is not None and (remote is None or remote == local) and _is_far(local):
            directory = MdsDirectory(os.path.join(local, split) if split else local, 0)
            remote, local, split = directory.path, directory.local, None
        super().__init__(remote=remote, local=local, split=split, **arguments)
        self._store = None if remote is None else _store_of(remote)
        self._under_way: set[Fetch] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to other processes: not what this one fetches."""
        return {**self.__dict__, "_under_way": set()}

    def give_up(self) -> None:
        """Stop what this process fetches, because nobody waits for it any more."""
        for fetch in list(self._under_way):
            fetch.is_dropped = True

    @property
    def is_far(self) -> bool:
        """Whether shards are fetched from a far place."""
        return self.remote is not None and _is_far(self.remote)

    def get_shards(self, world: Any, allow_unsafe_types: bool) -> list[Any]:
        """Return the readers of all shards, as ``Stream.get_shards``.

        Raises:
            FileNotFoundError, RuntimeError: There is no index.
            DatasetError: The index cannot be used, or names files elsewhere.
            ValueError: Types that are not safe, or no such hash as ``validate_hash``.
        """
        path = os.path.join(self.local, self.split, INDEX_NAME)
        own_hash = self.validate_hash if not has_copies(self) else None
        readers = Readers(path, own_hash)
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
        if has_copies(self):
            directory = os.path.join(self.local, self.split)
            for info in _files(shards):
                path = os.path.join(directory, info.basename)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_size != info.bytes:
                        os.remove(path)
        super().set_up_local(shards, cache_usage_per_shard)

    def _prepare_shard_part(
        self, raw_info: Any, zip_info: Any = None, compression: str | None = None
    ) -> int:
        """Fetch, check and expand a shard; return by how many bytes the cache has grown."""
        directory = os.path.join(self.local, self.split)
        raw = os.path.join(directory, raw_info.basename)
        if zip_info is None:
            if os.path.isfile(raw):
                return 0
            self._fetch(raw_info, hashes=self._hashes(raw_info))
            return int(raw_info.bytes)
        packed, growth = os.path.join(directory, zip_info.basename), 0
        if not os.path.isfile(raw):
            if not os.path.isfile(packed):
                self._fetch(zip_info)
                growth += zip_info.bytes
            self._expand(zip_info, packed, raw, raw_info.bytes, compression)
            growth += raw_info.bytes
        if not self.safe_keep_zip and os.path.isfile(packed):
            os.remove(packed)
            growth -= zip_info.bytes
        return int(growth)

    def _download_file(self, from_basename: str, to_basename: str | None = None) -> str:
        """Fetch the index, of which nothing is known."""
        return self._fetch(FileInfo(from_basename, 0, {}), to_basename)

    def _hashes(self, info: Any) -> Mapping[str, str]:
        """Return the hashes of a file of which one is checked."""
        if self.validate_hash is None:
            return cast("dict[str, str]", info.hashes)
        if not self.validate_hash:
            return {}
        return only_hash(self.validate_hash, info, os.path.join(self.local, self.split))

    def _fetch(
        self, info: Any, to_basename: str | None = None, hashes: Mapping[str, str] | None = None
    ) -> str:
        """Bring a file here, which has its name only when it is whole and approved; return its path."""
        directory = os.path.join(self.local, self.split)
        target = os.path.join(directory, to_basename or info.basename)
        if self.remote is None or self._store is None:
            raise DatasetNotFoundError(
                f"{target} is missing, and there is no remote to fetch it from."
            )
        url = os.path.join(self.remote.removeprefix("file://"), self.split, info.basename)
        size = info.bytes or UNKNOWN_SIZE
        fetch = Fetch(self._store, Extent(url, info.basename, size, hashes or {}))
        with locked(f"{target}.lock", limits.patience()) as has_lock:
            if info.bytes and os.path.isfile(target):
                return target  # of another process, which had the lock
            self._under_way.add(fetch)
            try:
                fetch.to_file(target, has_lock=has_lock)
            finally:
                self._under_way.discard(fetch)
        return target

    def _expand(self, info: Any, packed: str, raw: str, size: int, compression: str | None) -> None:
        """Check and expand a file."""
        data, status = load(packed, mapped=False)
        try:
            check_hash(packed, self._hashes(info), data, status)
            content = expanded(packed, compression, data, size)
        except ShardCorruptedError as error:
            if has_copies(self):
                os.remove(packed)
            raise FetchedShardError(f"{error}") from error
        write_whole(raw, [content.data])


def _is_far(place: str) -> bool:
    """Return whether a directory is in a store, or on a mount whose files are not to be mapped."""
    place = place.removeprefix("file://")
    return "://" in place or not is_mapped(place)


def _store_of(remote: str) -> Store:
    is_in_store = "://" in remote.removeprefix("file://") or remote.startswith("dbfs:")
    return open_store(remote, None) if is_in_store else MountStore()


def check_shards(stream: Stream, shards: Iterable[Any]) -> None:
    """Refuse, with DatasetError, shards whose files are not in the stream's directory, or behind links."""
    directory = os.path.join(stream.local, stream.split)
    names = [info.basename for info in _files(shards)]
    check_file_names(names, os.path.join(directory, INDEX_NAME))
    if has_copies(stream):
        check_folders(directory, names)


def _files(shards: Iterable[Any]) -> list[Any]:
    return [info for shard in shards for pair in shard.file_pairs for info in pair if info]


def has_copies(stream: Stream) -> bool:
    """Return whether a stream's local directory holds copies, which may be fetched again."""
    if stream.remote is None:
        return False
    remote = os.path.realpath(stream.remote.removeprefix("file://"))
    return remote != os.path.realpath(stream.local)
