"""Shard files that a process has open, and a bounded set of them."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petastorm_bridge._sources._far.fetch import Extent, Fetch
from petastorm_bridge._sources._far.stores import MountStore
from petastorm_bridge.mds.access import is_mapped, load
from petastorm_bridge.mds.codecs import digest
from petastorm_bridge.mds.files import open_regular
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.verified import (
    best_hash,
    check_hash,
    check_size,
    checked_bytes,
    mark,
    marks_of,
    replaced,
)

from ._layout import layout_of

# A pool lets go of a shard that this many windows did not touch: in a shuffled epoch a shard's
# samples come thickly for a while and then no more, so it will not be needed again.
_PATIENCE = 32
# Linux allows 65,530 mappings in a process.
_MOST_SHARDS = 16_384


def shard_path(reader: Any) -> str:
    """Return where a shard's uncompressed file is or will be."""
    return str(os.path.join(reader.dirname, reader.split, reader.raw_data.basename))


def open_file(reader: Any) -> Shard:
    """Open a shard file.

    Args:
        reader: An ``MDSReader``, which says where the file is and what it holds by the index. One of the
            ``checked_hashes`` of a ``MappedReader`` is checked.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: The file is not what the index says, or not the one that was noted.
        DatasetError: It is no regular file.
    """
    path, size = shard_path(reader), reader.raw_data.bytes
    hashes = getattr(reader, "checked_hashes", None)
    if is_mapped(os.path.dirname(path)):
        raw = checked_bytes(path, size, hashes, mapped=True)
    else:
        raw = _copied_bytes(path, size, hashes)
    check_file(reader)
    return Shard(path, raw, reader.samples, layout_of(reader))


def note_files(directory: str, readers: Sequence[Any]) -> None:
    """Remember which files the shards of a directory are in, so that others in their places are noticed."""
    marks = marks_of(directory, [reader.raw_data.basename for reader in readers])
    for reader in readers:
        reader.noted = marks.get(reader.raw_data.basename)


def check_file(reader: Any) -> None:
    """Look whether a shard's file is still the one that was noted; one that is deleted stays readable.

    Raises:
        ShardCorruptedError: It has another size than the index says, or was replaced or written since,
            and no hash of the index shows that its content is the same.
    """
    path = shard_path(reader)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    check_size(path, reader.raw_data.bytes, status.st_size)
    noted, current = getattr(reader, "noted", None), mark(status)
    if noted is None or noted == current:
        return
    name, hashes = best_hash(reader.raw_data.hashes), reader.raw_data.hashes
    if name is None or digest(name, load(path, mapped=False)[0]) != hashes[name]:
        raise replaced(path)
    reader.noted = current


def _copied_bytes(path: str, size: int, hashes: Mapping[str, str] | None) -> Any:
    """Return the bytes of a file whose mapping may fail: those of a copy, on a disk of this machine.

    The copy has no name, and takes up disk for as long as the bytes are in use.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
    check_size(path, size, status.st_size)
    with tempfile.TemporaryDirectory(prefix="petastorm-bridge-") as folder:
        copy = os.path.join(folder, "shard")
        Fetch(MountStore(), Extent(path, path, size)).to_file(copy, has_lock=True)
        raw, _ = load(copy, mapped=True)
    if hashes:
        check_hash(path, hashes, raw, status)
    return raw


class ShardPool:
    """The open shards of one process, of which those out of use are let go."""

    def __init__(self) -> None:
        self._shards: OrderedDict[int, tuple[Shard, int]] = OrderedDict()
        self._now = 0

    def __len__(self) -> int:
        return len(self._shards)

    def get(
        self,
        shard_ids: list[int],
        open_shard: Callable[[int], Shard],
        check: Callable[[int], None],
    ) -> list[Shard]:
        """Return the shards of one window, which need not be held any longer than it is.

        Raises:
            ShardCorruptedError: A file was cut short or replaced since it was opened.
        """
        self._now += 1
        shards = []
        for shard_id in shard_ids:
            known = self._shards.pop(shard_id, None)
            if known is None:
                shard = open_shard(shard_id)
            else:
                shard = known[0]
                check(shard_id)
            self._shards[shard_id] = shard, self._now
            shards.append(shard)
        while self._shards:
            oldest, (_, used) = next(iter(self._shards.items()))
            if used > self._now - _PATIENCE and len(self._shards) <= _MOST_SHARDS:
                break
            del self._shards[oldest]
        return shards

    def release(self, shard_ids: list[int]) -> None:
        """Let go of shards whose files are no longer in the cache."""
        for shard_id in shard_ids:
            self._shards.pop(shard_id, None)

    @property
    def shard_ids(self) -> list[int]:
        """Which shards are open."""
        return list(self._shards)
