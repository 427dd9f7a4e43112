"""MDS datasets that are far away: their shards are copied to this machine ahead of their use."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.dataset import open_dataset, read_index
from petastorm_bridge.mds.entry import INDEX_NAME, ShardEntry, check_folders
from petastorm_bridge.mds.errors import DatasetNotFoundError, ShardCorruptedError
from petastorm_bridge.mds.files import holds, write_whole
from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.mds.shard import Rows, Shard

from ._far.ahead import Fetcher
from ._far.copies import CacheSettings, Copies
from ._far.fetch import UNKNOWN_SIZE, Extent, Fetch
from ._far.stores import MountStore, Store
from .mds import MdsGroup, MdsSource
from .source import RowGroup

# What a mount answers at once: Linux asks it for twelve pieces at a time (FUSE's max_background), and for the thirteenth
# when the first has come.
_BEGINNING_BYTES = 12 * MountStore.answer_bytes


class FarMdsSource(MdsSource):
    """The shards of a far MDS dataset, of which this machine keeps copies while it has room.

    Attributes:
        ahead: Fetches shards before they are opened.
    """

    def __init__(
        self,
        url: str,
        basenames: Sequence[str] | None,
        store: Store,
        settings: CacheSettings | None = None,
    ) -> None:
        self._url = url
        self.ahead: Fetcher = Fetcher(store, _copies_of(url, store, settings))
        dataset = open_dataset(
            self.ahead.copies.path, lambda entry: self.ahead.get(self._extent(entry))
        )
        super().__init__(dataset, basenames)
        self.description = masked(url)

    def extents(self, position: int) -> list[Extent]:
        return [self._extent(self._entry(position))]

    def want_first(self, position: int) -> int:
        """Begin to fetch a shard; return how many of its rows can be read before it is here."""
        entry = self._entry(position)
        extent, head = self._extent(entry), 4 * (entry.samples + 2)  # and some text
        if entry.zip is not None or extent.size < 2 * _BEGINNING_BYTES:
            return 0
        if not self.ahead.want(extent, beginning=_BEGINNING_BYTES):
            return 0
        share = (_BEGINNING_BYTES - head) / (extent.size - head)
        return max(0, int(0.75 * share * entry.samples))  # rows differ in size

    def open(self, position: int) -> RowGroup:
        """Open one shard, once it is here, or once its first rows are that come before all others."""
        entry = self._entry(position)
        head = self.ahead.beginning(self._extent(entry))
        if head is not None:
            path = os.path.join(self._dataset.directory, entry.basenames[0])
            with contextlib.suppress(ShardCorruptedError):  # or not even its offsets are here
                shard = Shard(path, head, entry.samples, entry.layout, entry.raw["bytes"])
                group = MdsGroup(shard, self._fields)
                return _BeginningGroup(group, shard.num_rows, lambda: self._open_whole(position))
        return self._open_whole(position)

    def _open_whole(self, position: int) -> RowGroup:
        extent = self._extent(self._entry(position))
        before = self.ahead.inode(extent)
        try:
            return self._open(position, self.ahead.get(extent))
        except (DatasetNotFoundError, ShardCorruptedError):
            if before is None:
                raise
        # A copy from before is damaged or was removed meanwhile: another one may be whole.
        return self._open(position, self.ahead.get(extent, damaged=before))

    def is_cheap(self, position: int) -> bool:
        """Return whether the shard is here already, and uncompressed."""
        return (
            super().is_cheap(position)
            and self.ahead.inode(self._extent(self._entry(position))) is not None
        )

    def _extent(self, entry: ShardEntry) -> Extent:
        file, name = entry.stored, entry.stored["basename"]
        return Extent(f"{self._url}/{name}", name, file["bytes"], file["hashes"])


class _BeginningGroup:
    """A row group of which the first rows are here."""

    def __init__(self, beginning: RowGroup, rows: int, open_whole: Callable[[], RowGroup]) -> None:
        self._beginning = beginning
        self._rows = rows
        self._open_whole = open_whole

    @functools.cached_property
    def _whole(self) -> RowGroup:
        return self._open_whole()

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        is_here = isinstance(rows, slice) and rows.stop <= self._rows
        return (self._beginning if is_here else self._whole).load(names, rows)


def _copies_of(url: str, store: Store, settings: CacheSettings | None) -> Copies:
    """Return the directory of a dataset's copies, with its index and sidecar in it.

    Without hashes in the index a copied shard cannot be told from one of another dataset with the
    same sizes, so its directory is not shared.
    """

    def fetch(name: str) -> bytes:
        return Fetch(store, Extent(f"{url}/{name}", name, UNKNOWN_SIZE)).to_memory().tobytes()

    sidecar = None
    with ThreadPoolExecutor(1) as executor:  # each takes a few requests one after the other
        fetching = executor.submit(fetch, SIDECAR_NAME)
        index = fetch(INDEX_NAME)
        # Some stores answer "forbidden" where they may not say that there is nothing.
        with contextlib.suppress(DatasetNotFoundError, PermissionError):
            sidecar = fetching.result()
    shards = read_index(index, masked(f"{url}/{INDEX_NAME}"))
    is_private = not all(entry.stored["hashes"] for entry in shards)
    name = hashlib.sha256(b"\0".join([index, sidecar or b""])).hexdigest()[:32]
    copies = Copies(name, is_private=is_private, settings=settings)
    check_folders(copies.path, (name for entry in shards for name in entry.basenames))
    for name, text in ((SIDECAR_NAME, sidecar), (INDEX_NAME, index)):
        path = os.path.join(copies.path, name)
        if text is not None and not holds(path, [text]):
            write_whole(path, [text])
    return copies
