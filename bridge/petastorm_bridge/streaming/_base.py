"""What the datasets of this package share: start-up, shards, and passes over streaming's order."""

from __future__ import annotations

import contextlib
import functools
import os
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, cast

from streaming import StreamingDataset
from streaming.base.batching import generate_work
from streaming.base.dataset import _ShardState
from streaming.base.format.mds import MDSReader
from streaming.base.shared import SharedMemory
from streaming.base.world import World
from torch.utils.data import get_worker_info

from petastorm_bridge._sources._far.ahead import AHEAD_BYTES
from petastorm_bridge._workers.file_lock import LastingLock
from petastorm_bridge._workers.sharing import refuse_deep_temporary_directory
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.dataset import paused_collector
from petastorm_bridge.mds.ragged import Int64

from ._fetching import Pass, give_up, is_local
from ._index import ShardIndex, whole_repeats
from ._leftovers import free_prefix, keep_alive, start_up
from ._mapped import note_files
from ._mapped_reader import MappedReaders
from ._stock import with_names
from ._stream import MappedStream, check_shards, has_copies

# The keys of StreamingDataset.state_dict, and the least number of each; -1 is the epoch before the
# first one.
_LEAST = {
    "epoch": -1,
    "sample_in_epoch": 0,
    "num_canonical_nodes": 1,
    "shuffle_seed": 0,
    "initial_physical_nodes": 1,
}


class StreamingArguments(TypedDict, total=False):
    """What streaming's own ``StreamingDataset`` takes besides ``batch_size``."""

    streams: Sequence[Any] | None
    remote: str | None
    local: str | None
    split: str | None
    download_retry: int
    download_timeout: float
    validate_hash: str | None
    keep_zip: bool
    epoch_size: str | int | None
    predownload: int | None
    cache_limit: str | int | None
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    num_canonical_nodes: int | None
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int | None
    batching_method: str
    allow_unsafe_types: bool
    replication: int | None
    stream_name: str
    stream_config: dict[str, Any] | None


class MappedDataset(StreamingDataset):
    """A ``StreamingDataset`` of mapped shards, whose passes are left to its subclasses.

    Args:
        **arguments: Every argument of ``StreamingDataset``.

    Raises:
        ValueError, TypeError: A wrong argument.
        RuntimeError: A stream without samples, or ranks that are not in the environment.
        DatasetError: An index that cannot be used, or that names files elsewhere.
    """

    def __init__(self, **arguments: Any) -> None:
        names: dict[str, Any] = {"Spanner": ShardIndex, "get_shm_prefix": free_prefix}
        if not arguments.get("streams"):
            # Streaming writes into the dictionary that it is given.
            arguments["stream_config"] = dict(arguments.get("stream_config") or {})
            if "stream_name" not in arguments:
                # A stream of the dataset's own arguments.
                names["construct_from_registry"] = lambda *, kwargs, **_: MappedStream(**kwargs)
        initialise = with_names(StreamingDataset.__init__, **names)
        with start_up(), paused_collector():
            initialise(self, **arguments)
            self._memory = [self._locals_shm, *self._shared_memory()]
            keep_alive(self, self._shm_prefix_int, self._memory)
            for stream, first, count in zip(
                self.streams, self.shard_offset_per_stream, self.shards_per_stream, strict=True
            ):
                shards: list[Any] = self.shards[first : first + count]
                # A mapped stream has checked before it touched anything.
                if not isinstance(stream, MappedStream):
                    check_shards(stream, shards)
                if not has_copies(stream):
                    directory = os.path.join(stream.local, stream.split)
                    note_files(directory, [each for each in shards if isinstance(each, MDSReader)])
        self._mapped = MappedReaders()
        self.shards = list(map(self._mapped.reader_of, self.shards))
        self._index = cast("ShardIndex", self.spanner)
        is_far = any(isinstance(stream, MappedStream) and stream.is_far for stream in self.streams)
        if is_far and arguments.get("predownload") is None and not self.cache_limit:
            # Streaming's eight batches are too few for many requests at once.
            self.predownload = max(self.predownload or 0, AHEAD_BYTES // self._sample_bytes)
        self._pass: Pass | None = None
        # Streaming makes locks of its own, which do not pickle, where it finds none. It looks for the one of the cache
        # under another name than that by which it uses it.
        lock, barrier_lock = map(
            LastingLock, (self._cache_filelock_path, self._shared_barrier.filelock_path)
        )
        self.cache_filelock = self._cache_filelock = cast("Any", lock)
        self._shared_barrier.lock = cast("Any", barrier_lock)

    def __repr__(self) -> str:
        places = [masked(stream.remote or stream.local) for stream in self.streams]
        columns = [*getattr(self.shards[0], "column_names", ())] if self.shards else []
        size = sum(shard.get_raw_size() for shard in self.shards)
        return (
            f"<{type(self).__name__} of {', '.join(places)}: {self.num_samples} rows in "
            f"{len(self.shards)} shards, {size} bytes, batch_size={self.batch_size}, columns={columns}>"
        )

    @functools.cached_property
    def _sample_bytes(self) -> int:
        """Bytes of a sample, on average in the shard where they are largest: rows may be sorted by their length."""
        shards: list[Any] = self.shards
        sizes = [shard.raw_data.bytes // max(1, shard.samples) for shard in shards]
        return int(max(1, *sizes))

    def _shared_memory(self) -> list[SharedMemory]:
        scalars = (self._next_epoch, self._cache_usage)
        arrays = (self._shared_barrier._arr, self._shard_states, self._shard_access_times)  # noqa: SLF001
        return [array.shm for array in (*arrays, *(scalar.arr for scalar in scalars))]

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to a worker process: not what belongs to this one."""
        local_names = ("_iterator", "_executor", "_event")
        state = {name: value for name, value in self.__dict__.items() if name not in local_names}
        return {**state, "_pass": None, "_memory": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take part in the run of the dataset of which this one is a copy."""
        self.__dict__.update(state)
        keep_alive(self, self._shm_prefix_int, self._memory)

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Resume where ``state_dict`` was taken, as ``StreamingDataset.load_state_dict``.

        Raises:
            ValueError: It is not what ``state_dict`` gives.
        """
        _check_state(obj)
        super().load_state_dict(obj)
        self._memory.append(self._resume_shm)

    def _resume(self, world: World, epoch: int) -> tuple[int, int]:
        """Return where to begin, as ``StreamingDataset._resume``, which keeps what it opens for it."""
        unkept = functools.partial(SharedMemory, auto_cleanup=False)
        resume = with_names(StreamingDataset._resume, SharedMemory=unkept)  # noqa: SLF001
        place: tuple[int, int] = resume(self, world, epoch)
        return place

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Fetch a shard, as ``StreamingDataset.prepare_shard``.

        If that fails, others may try it too (they would wait for ever otherwise), and find no file
        that was fetched but not approved.
        """
        state = self._pass
        try:
            super().prepare_shard(shard_id, blocking)
        except BaseException as error:
            if state is not None:
                state.error = error  # before it is seen that the shard is missing again
            give_up(self, shard_id)
            raise

    def resample_streams(self, epoch: int, stream_id: int | None = None) -> tuple[Int64, Int64]:
        """Return the samples of an epoch, as ``StreamingDataset.resample_streams``."""
        streams = range(self.num_streams) if stream_id is None else [stream_id]
        resampled = whole_repeats(self, streams)
        if resampled is None:
            resampled = super().resample_streams(epoch, stream_id)
        return resampled

    def _get_work(self, epoch: int, sample_in_epoch: int) -> Int64:
        """Return this worker's samples, as ``StreamingDataset._get_work``.

        That shares one process's computation with the others of its node by way of shared memory,
        which costs more than the order itself where there are no others.
        """
        alone = self._unique_worker_world.workers_per_node == 1
        if not alone or (self.replication or 1) > 1 or not isinstance(self.batch_size, int):
            shared: Int64 = super()._get_work(epoch, sample_in_epoch)
            return shared
        world = self._parallel_worker_world
        work = generate_work(self.batching_method, self, world, epoch, sample_in_epoch)
        samples: Int64 = work[world.node, world.rank_of_node, world.worker_of_rank].flatten()
        return samples

    @contextlib.contextmanager
    def _next_pass(self) -> Iterator[Pass]:
        """Begin the next epoch, or the rest of the one that is resumed, and end it in the end."""
        if self._pass is not None:
            self._pass.end()
        if get_worker_info() is not None:
            refuse_deep_temporary_directory()
        self._unique_worker_world = self._unique_rank_world.detect_workers()
        self._parallel_worker_world = self._parallel_rank_world.detect_workers()
        epoch, sample_in_epoch = self._resume_incr_epoch()
        sample_ids = self._get_work(epoch, sample_in_epoch)
        # What was added to give every worker the same number.
        if len(sample_ids) and sample_ids.min() < 0:
            sample_ids = sample_ids[sample_ids >= 0]
        is_fetching = bool(self.cache_limit) or not self._is_complete()
        self._pass = state = Pass(self, sample_ids, is_fetching=is_fetching)
        try:
            yield state
        finally:
            state.end()
            if self._pass is state:
                self._pass = None

    def _is_complete(self) -> bool:
        """Return whether every shard is in the cache and needs no expanding."""
        states = self._shard_states.numpy()
        return bool((states == _ShardState.LOCAL).all()) and not any(
            shard.compression for shard in self.shards
        )

    def _here_until(self, state: Pass, start: int, most: int, step: int) -> int:
        """Return up to where samples can be read now: steps whose shards are in the cache.

        Args:
            state: The pass.
            start: The first of its samples in question.
            most: Behind the last one.
            step: Samples of one step, of which one is read in any case.
        """
        state.fetch_ahead()
        if state.is_fetching and most - start > step:
            shard_ids = self._index.shards_of(state.sample_ids[start:most])
            missing = ~is_local(self, shard_ids)
            if missing.any():
                whole = int(missing.argmax()) // step * step
                return start + max(whole, step)
        return most


def _check_state(state: Any) -> None:
    """Refuse, with ValueError, what ``state_dict`` does not give, before worker processes find it."""
    for key, least in _LEAST.items():
        number = state.get(key) if isinstance(state, dict) else None
        is_of_older_release = number is None and key == "initial_physical_nodes"
        if not is_of_older_release and (type(number) is not int or number < least):
            raise ValueError(
                f"This is no state of a StreamingDataset: {key!r} is {number!r}, not an integer from {least} on "
                f"(found {reprlib.repr(state)}). Give load_state_dict what state_dict returned."
            )
