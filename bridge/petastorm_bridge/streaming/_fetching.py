"""The shards of a ``StreamingDataset``: opened while they come and go in its cache, fetched ahead of a pass."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from streaming.base.constant import TICK
from streaming.base.dataset import _ShardState

from petastorm_bridge._workers.threads import Threads
from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.ragged import Int64
from petastorm_bridge.mds.shard import Shard

from ._mapped import check_file, shard_path
from ._mapped_reader import MappedReader
from ._stream import MappedStream, has_copies

_RETRIES = 7  # as in StreamingDataset.get_item
# Small shards are a request each, and bandwidth comes from many requests at once: what sixteen of 8 MiB bring, and two
# shards more, so that these go on while shards are being hashed. Of large ones the first should not wait for the others.
_SHARDS_AT_ONCE = 16
_BYTES_AT_ONCE = 128 << 20
# Whose shards are looked for at once.
_SAMPLES_AT_ONCE = 1 << 14


def is_local(dataset: Any, shard_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which shards have a file in the cache at the moment."""
    states = dataset._shard_states.numpy()[shard_ids]  # noqa: SLF001 - of a subclass
    return np.asarray(states == _ShardState.LOCAL)


def touch(dataset: Any, shard_ids: npt.NDArray[np.int64]) -> None:
    """Note that shards were used just now, so that others are evicted before them."""
    here = shard_ids[is_local(dataset, shard_ids)]
    dataset._shard_access_times.numpy()[here] = time.time_ns()  # noqa: SLF001


def open_shard(dataset: Any, shard_id: int) -> Shard:
    """Return a shard that is mapped, fetching it first if it is not there.

    Raises:
        RuntimeError: It was evicted again and again before it could be opened, or never appeared.
        ShardCorruptedError: It is damaged, and so is a fresh copy.
    """
    reader: MappedReader = dataset.shards[shard_id]
    path = shard_path(reader)
    shard = reader.mapped()
    if shard is not None:
        check_file(reader)
        return shard
    for attempt in range(1 + _RETRIES):
        if attempt or not is_local(dataset, np.array([shard_id])).all():
            _fetch(dataset, shard_id)
        try:
            return reader.map()
        except FileNotFoundError:
            continue
        except ShardCorruptedError:
            if attempt or not has_copies(_stream_of(dataset, shard_id)):
                raise
            dataset.evict_shard(shard_id)
    advice = (
        "`cache_limit` may be too low: shards are evicted before they are read."
        if dataset.cache_limit
        else "Look whether it is in the remote directory, and whether it was deleted from the "
        "local one."
    )
    raise RuntimeError(f"Shard {path} was fetched {_RETRIES} times and is not there. {advice}")


def _fetch(dataset: Any, shard_id: int) -> None:
    """Fetch and expand a shard, or wait until another thread or process has.

    What a thread of the pass could not fetch ends it. Asking again would take as long once more, and a mount that does
    not answer may keep this thread, unlike that one, even from a Ctrl-C.
    """
    _check_pass(dataset)
    dataset.prepare_shard(shard_id, blocking=False)
    while dataset._shard_states[shard_id] == _ShardState.PREPARING:  # noqa: SLF001
        _check_pass(dataset)
        time.sleep(TICK)


def _check_pass(dataset: Any) -> None:
    """Raise what ended the pass that is under way, if there is one."""
    state = dataset._pass  # noqa: SLF001 - of a subclass
    if state is not None and not state.is_over():
        state.check()


def give_up(dataset: Any, shard_id: int) -> None:
    """Undo a fetch that failed: the shard is in the remote directory only."""
    lock = dataset._cache_filelock  # noqa: SLF001 - of a subclass
    lock.acquire()
    try:
        if dataset._shard_states[shard_id] == _ShardState.PREPARING:  # noqa: SLF001
            if has_copies(_stream_of(dataset, shard_id)):
                dataset.shards[shard_id].evict()
            dataset._shard_states[shard_id] = _ShardState.REMOTE  # noqa: SLF001
    finally:
        lock.release(force=True)  # the call that failed has it still if it was evicting


def _stream_of(dataset: Any, shard_id: int) -> Any:
    return dataset.streams[dataset.stream_per_shard[shard_id]]


class Pass:
    """The state of one pass, with the fetching of its shards ahead of their use.

    Shards come to the local cache at most ``predownload`` samples ahead. What ``StreamingDataset._prepare_thread``
    does sample by sample, shard by shard and several at once.

    Attributes:
        sample_ids: The worker's samples, in order.
        yielded: How many of them the user has taken.
        is_fetching: Whether shards may still be missing from the cache.
        error: What ended the fetching, if anything did.
    """

    def __init__(self, dataset: Any, sample_ids: Int64, *, is_fetching: bool) -> None:
        self.sample_ids = sample_ids
        self.yielded = 0
        self.is_fetching = is_fetching
        self.error: BaseException | None = None
        self._is_over = False
        self._dataset = dataset
        self._process = os.getpid()
        if not is_fetching:
            return
        self._position = 0  # of the first sample whose shard was not looked for
        self._is_looking = False
        self._is_packed = np.array([s.compression is not None for s in dataset.shards], np.bool_)
        self._is_wanted = is_local(dataset, np.arange(dataset.num_shards)) & ~self._is_packed
        largest = max(shard.get_max_size() for shard in dataset.shards)
        most = min(_SHARDS_AT_ONCE, 2 + _BYTES_AT_ONCE // largest)
        # Shards that are made room for one after the other do not exceed the limit together.
        self._threads = Threads("fetch of a shard", 1 if dataset.cache_limit else most)

    def fetch_ahead(self) -> None:
        """Begin to fetch the shards for which it is time now."""
        if self.is_fetching and not self._is_looking and self._position < self._allowed():
            self._is_looking = True
            self._threads.submit(self._look, priority=-1)

    def _allowed(self) -> int:
        """Return up to which sample shards may be fetched now."""
        return min(len(self.sample_ids), self.yielded + int(self._dataset.predownload) + 1)

    def _look(self) -> None:
        dataset = self._dataset
        while (start := self._position) < (end := self._allowed()) and not self._is_over:
            self._position = stop = min(start + _SAMPLES_AT_ONCE, end)
            shard_ids = _in_order(dataset.spanner.shards_of(self.sample_ids[start:stop]))
            if dataset.cache_limit:
                # They may be evicted at any time: what is missing is found out when those before are here.
                self._fetch(shard_ids)
                continue
            for shard_id in shard_ids[~self._is_wanted[shard_ids]]:
                self._threads.submit(partial(self._fetch, np.array([shard_id])))
            self._is_wanted[shard_ids] = True
        self._is_looking = False

    def _fetch(self, shard_ids: Int64) -> None:
        touch(self._dataset, shard_ids)
        missing = ~is_local(self._dataset, shard_ids) | self._is_packed[shard_ids]
        for shard_id in shard_ids[missing].tolist():
            if self._is_over or self.error is not None:
                return
            self._dataset.prepare_shard(shard_id, blocking=False)  # notes its error

    def is_over(self) -> bool:
        """Return whether it was ended, by itself or by a further pass."""
        return self._is_over

    def end(self) -> None:
        """End the pass and its threads; nothing happens in a process forked from the pass's own."""
        if self._is_over or self._process != os.getpid():
            return
        self._is_over = True
        if self.is_fetching:
            self.is_fetching = False
            for stream in self._dataset.streams:
                if isinstance(stream, MappedStream):
                    stream.give_up()
            self._threads.close()
            del self._threads  # which would keep the dataset until the garbage collector comes

    def check(self) -> None:
        """Raise what ended the fetching."""
        if self.error is not None:
            raise self.error


def _in_order(values: Int64) -> Int64:
    """Return the distinct values in the order in which they come first."""
    _, first = np.unique(values, return_index=True)
    return values[np.sort(first)]
