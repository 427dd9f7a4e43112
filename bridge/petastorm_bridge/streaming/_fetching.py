"""The shards of a ``StreamingDataset``: opened while they come and go in its cache, fetched ahead of a pass."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from streaming.base.constant import TICK
from streaming.base.dataset import _ShardState

from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.ragged import Int64
from petastorm_bridge.mds.shard import Shard

from ._mapped import check_file, shard_path
from ._mapped_reader import MappedReader
from ._stream import has_copies

_RETRIES = 7  # as in StreamingDataset.get_item
# Small shards are a request each, and bandwidth comes from many requests at once: what sixteen of 8 MiB bring, and two
# shards more, so that these go on while shards are being hashed. Of large ones the first should not wait for the others.
_SHARDS_AT_ONCE = 16
_BYTES_AT_ONCE = 128 << 20


class CacheLock(FileLock):
    """Streaming's lock on a cache, for which waiting threads and processes look every few milliseconds.

    A ``FileLock`` lets them look every 50 ms, so that of several shards to be fetched at once the last would begin long
    after the first. Each thread has it for itself, as often as it acquires it.
    """

    def acquire(
        self, timeout: float | None = None, poll_interval: float | None = TICK, **options: Any
    ) -> Any:
        """Wait for the lock, as ``FileLock.acquire``."""
        return super().acquire(timeout, poll_interval, **options)


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
    """The state of one pass.

    Attributes:
        sample_ids: The worker's samples, in order.
        yielded: How many of them the user has taken.
        is_fetching: Whether shards may still be missing from the cache.
        error: What ended the thread, if anything did.
    """

    def __init__(self, sample_ids: Int64) -> None:
        self.sample_ids = sample_ids
        self.yielded = 0
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self.is_fetching = False
        self._thread: threading.Thread | None = None
        self._give_up: Callable[[], None] | None = None
        self._process = os.getpid()

    def is_over(self) -> bool:
        """Whether it was ended, by itself, by a further pass or by the program's end."""
        return self._ended.is_set() or not threading.main_thread().is_alive()

    def start(self, work: Callable[[Pass], None], give_up: Callable[[], None]) -> None:
        """Do something beside the pass.

        Args:
            work: What to do; it looks whether the pass is over.
            give_up: Ends what it waits for. Called when the pass is over.
        """
        self._give_up = give_up

        def run() -> None:
            try:
                work(self)
            except BaseException as error:  # noqa: BLE001 - goes to the consumer
                self.error = error

        self.is_fetching = True
        self._thread = threading.Thread(target=run, name="prefetch of shards", daemon=False)
        self._thread.start()

    def end(self) -> None:
        """End the pass and its thread; nothing happens in a process forked from the pass's own."""
        if self._process != os.getpid():
            return
        self._ended.set()
        while self._thread is not None and self._thread.is_alive():
            assert self._give_up is not None
            self._give_up()
            self._thread.join(1.0)
        self._give_up = None  # a dataset that is dropped after a pass goes at once

    def check(self) -> None:
        """Raise what ended the thread."""
        if self.error is not None:
            raise self.error

    def wait(self) -> None:
        """Wait a little, or until the pass is over."""
        self._ended.wait(TICK)


def prefetch(dataset: Any, state: Pass) -> None:
    """Bring shards to the local cache, at most ``predownload`` samples ahead.

    What ``StreamingDataset._prepare_thread`` does sample by sample, shard by shard and several shards at once.
    """
    # Shards that are made room for one after the other do not exceed the limit together.
    largest = max(shard.get_max_size() for shard in dataset.shards)
    threads = 1 if dataset.cache_limit else min(_SHARDS_AT_ONCE, 2 + _BYTES_AT_ONCE // largest)
    slots = threading.Semaphore(threads + 1)  # one waits, so that no thread does

    def fetch(shard_id: int) -> None:
        try:
            if not state.is_over():
                dataset.prepare_shard(shard_id, blocking=False)
        finally:
            slots.release()

    with ThreadPoolExecutor(threads, "fetch of a shard") as executor:
        for shard_id in _wanted(dataset, state):
            slots.acquire()
            if state.error is not None:  # of one of these threads
                return
            executor.submit(fetch, shard_id)


def _wanted(dataset: Any, state: Pass) -> Iterator[int]:
    """Yield the shards that are to be fetched, when it is time."""
    total, step = len(state.sample_ids), dataset.batch_size
    limited = bool(dataset.cache_limit)
    seen = np.zeros(dataset.num_shards, np.bool_)
    packed = np.array([shard.compression is not None for shard in dataset.shards], np.bool_)
    position = 0
    while position < total and not state.is_over():
        allowed = min(total, state.yielded + dataset.predownload + 1)
        if position >= allowed:
            state.wait()
            continue
        stop = min(position + step, allowed)
        shard_ids = _in_order(dataset.spanner.shards_of(state.sample_ids[position:stop]))
        position = stop
        if limited:
            # It may be evicted at any time: what is here gets a new date, the rest is fetched.
            touch(dataset, shard_ids)
            shard_ids = shard_ids[~is_local(dataset, shard_ids) | packed[shard_ids]]
        else:
            shard_ids = shard_ids[~seen[shard_ids]]
            seen[shard_ids] = True
        for shard_id in shard_ids.tolist():
            if state.is_over():
                return
            yield shard_id


def _in_order(values: Int64) -> Int64:
    """Return the distinct values in the order in which they come first."""
    _, first = np.unique(values, return_index=True)
    return values[np.sort(first)]
