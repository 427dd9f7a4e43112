"""Getting hold of the shards of a ``StreamingDataset`` while they come and go in its cache."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from streaming.base.constant import TICK
from streaming.base.dataset import _ShardState

from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.shard import Shard

from ._mapped import open_file, shard_path
from ._stream import has_copies

_RETRIES = 7  # as in StreamingDataset.get_item


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
    """Map a shard, fetching it first if it is not there.

    Raises:
        RuntimeError: It was evicted again and again before it could be opened, or never appeared.
        ShardCorruptedError: It is damaged, and so is a fresh copy.
    """
    shard = dataset.shards[shard_id]
    path = shard_path(shard)
    for attempt in range(1 + _RETRIES):
        if attempt or not is_local(dataset, np.array([shard_id])).all():
            _fetch(dataset, shard_id)
        try:
            return open_file(shard)
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
