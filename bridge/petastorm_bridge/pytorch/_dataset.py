"""A dataset for torch's own ``DataLoader``: every process opens the part of the rows that is its own."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from multiprocessing import context
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from petastorm_bridge._workers.sharing import refuse_deep_temporary_directory
from petastorm_bridge.reader import make_batch_reader
from petastorm_bridge.reader._arguments import refuse_unknown
from petastorm_bridge.reader._plan import Part
from petastorm_bridge.reader._ranks import rank_and_world_size, rank_of_process_group
from petastorm_bridge.reader._reader import Reader

from ._base import LoaderBase, batch_integer, buffer_size
from ._epochs import Epochs

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from petastorm_bridge.reader._typing import DatasetArguments

# A state before anything is known; epochs are taken as they come.
_UNKNOWN: dict[str, Any] = {
    "version": 1,
    "epoch": None,
    "seed": None,  # drawn for the epoch, where none was given
    "over": False,  # whether nothing of the epoch is left
    "loader": None,  # the state of the loader that makes its batches
    "rows": 0,  # taken from the batch behind that, where rows are yielded one by one
}
_DEFAULT_WORKERS = 4  # threads, as through a converter
_ROWS_AT_ONCE = 256  # where rows are yielded one by one


class Division(Enum):
    """How accelerate divides rows: the first rank reads them for all, or all read and leave out others'."""

    BY_FIRST_RANK = 1
    IN_TURNS = 2


class DatasetBase(IterableDataset[Any]):
    """What :class:`petastorm_bridge.pytorch.BatchedIterableDataset` is, which says what it takes."""

    _default_loader: ClassVar[Any]  # makes the batches where no data_loader_fn was given

    def __init__(
        self,
        source: Any,
        batch_size: int | None = 32,
        *,
        seed: int | None = None,
        shuffling_queue_capacity: int = 0,
        shard_by_rank: bool = True,
        even_batches: bool = True,
        drop_last: bool = False,
        data_loader_fn: Callable[..., LoaderBase] | None = None,
        **reader_arguments: Unpack[DatasetArguments],
    ) -> None:
        refused = [n for n in ("num_epochs", "cur_shard", "shard_count") if n in reader_arguments]
        if refused:
            raise TypeError(
                f"{type(self).__name__}() takes no {refused[0]}: an iteration is one epoch of the rows "
                "that are this process's. Iterate again for the next one; shard_by_rank=False reads "
                "everything on every rank."
            )
        taken = [*inspect.signature(DatasetBase).parameters]
        taken += inspect.signature(make_batch_reader).parameters
        refuse_unknown(type(self).__name__, reader_arguments, taken)
        if drop_last and not (shard_by_rank and even_batches):
            raise TypeError(
                "drop_last=True says how ranks get as many rows and goes with shard_by_rank=True and "
                "even_batches=True. Batches keep their last, shorter one."
            )
        self.batch_size = None if batch_size is None else batch_integer(batch_size)
        self.seed = seed
        self.shuffling_queue_capacity = buffer_size(shuffling_queue_capacity)
        self.shard_by_rank = shard_by_rank
        self.even_batches = even_batches
        self.drop_last = drop_last
        self._urls = copy.copy(getattr(source, "file_urls", source))
        self._loader_fn = data_loader_fn
        self._arguments: dict[str, Any] = {**reader_arguments}
        self._epochs = Epochs()
        self._sizes: dict[tuple[int, int], int | None] = {}
        self._rank: tuple[int, int] | None = None  # as known where a worker was started from
        self._told: Division | None = None  # what accelerate does, as known there
        self._loader: LoaderBase | None = None
        self._loaded: dict[str, Any] | None = None  # a state to go on from
        self._start: dict[str, Any] | None = None  # the state that the epoch under way began with
        self._is_over = False
        self._before: dict[str, Any] | None = None  # the loader's state before the batch under way
        self._rows = 0  # taken from that batch
        # What is wrong with an argument is said here.
        with self._open_reader(0, is_read=False) as reader:
            self._facts = reader.rows_per_epoch, list(reader.schema.fields), reader.place

    # Epochs.

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration have the order of this epoch; otherwise it goes on by one.

        It reaches the workers of a ``DataLoader`` as well, also those that it keeps. A state that
        was loaded is forgotten if it is of another epoch.
        """
        self._epochs.set(int(epoch))
        if self._loaded is not None and self._loaded["epoch"] != epoch:
            self._loaded = None

    def __iter__(self) -> Iterator[Any]:
        # A worker is asked for its place before its first batch; elsewhere iterators are made that
        # nobody takes a batch from.
        if get_worker_info() is None:
            return self._iterate(None)
        refuse_deep_temporary_directory()
        return self._iterate(self._begin())

    def _iterate(self, start: dict[str, Any] | None) -> Iterator[Any]:
        start = start or self._begin()
        if not start["over"]:
            yield from self._pass(start)
        self._is_over = True

    def _begin(self) -> dict[str, Any]:
        """Begin an epoch, or the rest of one, and return the state it begins with."""
        state, self._loaded = self._loaded or _UNKNOWN, None
        epoch = self._epochs.take(state["epoch"])
        seed = state["seed"]
        if seed is None and self.seed is None:
            seed = _common_seed()
        self._start = {**state, "epoch": epoch, "seed": seed}
        self._is_over, self._loader, self._before, self._rows = state["over"], None, None, 0
        return self._start

    def _pass(self, start: dict[str, Any]) -> Iterator[Any]:
        reader = self._open_reader(start["epoch"])
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # Frameworks that make batches of single rows take as many as `len` says, and each worker would end
        # with a short one: without a batch size all rows are one part.
        reader.passes.take_part(Part(number, count, self.batch_size), start["epoch"])
        with reader:
            loader: LoaderBase = (self._loader_fn or self._default_loader)(
                reader=reader,
                batch_size=self.batch_size or _ROWS_AT_ONCE,
                shuffling_queue_capacity=self.shuffling_queue_capacity,
            )
            if start["loader"] is not None:
                loader.load_state_dict(start["loader"])
            self._loader = loader
            if self.batch_size is not None:
                yield from loader
            else:
                yield from self._one_by_one(loader, start["rows"])

    def _one_by_one(self, loader: LoaderBase, taken: int) -> Iterator[Any]:
        before, self._rows = loader.state_dict(), taken
        for batch in loader:
            self._before = before
            columns = list(batch.items())
            for row in range(taken, len(columns[0][1]) if columns else 0):
                self._rows = row + 1
                yield {name: values[row] for name, values in columns}
            taken = 0
            before = loader.state_dict()

    # Readers.

    def _open_reader(self, epoch: int, *, is_read: bool = True) -> Reader:
        worker = get_worker_info()
        # Of workers that share the batches each has a thread; single rows come from one worker.
        threads = _DEFAULT_WORKERS if worker is None or self.batch_size is None else 1
        arguments = {"workers_count": threads, **self._arguments, **self._shard(is_read=is_read)}
        return make_batch_reader(self._urls, num_epochs=1, seed=self._seed_of(epoch), **arguments)

    def _seed_of(self, epoch: int) -> int | None:
        given = self._arguments
        is_shuffled = (
            given.get("shuffle_row_groups", True)
            or given.get("shuffle_rows", False)
            or self.shuffling_queue_capacity > 0
        )
        if not is_shuffled:  # a seed of ours would order the row groups of shards
            return self.seed
        if self.seed is None:
            return None if self._start is None else self._start["seed"]
        if epoch == 0:
            return self.seed
        return int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0])

    def _shard(self, *, is_read: bool) -> dict[str, Any]:
        rank, size = self._rank or rank_and_world_size()
        if size == 1:
            return {}
        everything = {"cur_shard": 0, "shard_count": 1}
        division = (self._told or division_by_accelerate(self)) if is_read else None
        if division is not None:
            self._check_division(division)
            return everything
        if not self.shard_by_rank:  # a reader has a word to say on that, once rows are read
            return {} if is_read else everything
        even = {"even_batches": self.even_batches, "drop_last": self.drop_last}
        return {"cur_shard": rank, "shard_count": size, **even}

    def _check_division(self, division: Division) -> None:
        if self.shard_by_rank:
            raise ValueError(
                "accelerate divides the rows of a prepared DataLoader among the ranks itself, and "
                "shard_by_rank=True has left each rank its share already: most rows would be lost. "
                f"Pass shard_by_rank=False to {type(self).__name__}, or do not prepare the DataLoader."
            )
        if division is Division.IN_TURNS and self.seed is None:
            raise ValueError(
                "With dispatch_batches=False accelerate has every rank read all rows and leave out "
                f"those of the others, which needs one order on all ranks: pass seed=… to "
                f"{type(self).__name__}."
            )

    # What frameworks ask.

    def __len__(self) -> int:
        """Return the number of batches (rows with ``batch_size=None``) of an epoch on this rank.

        Raises:
            TypeError: Predicate, filters or a transform decide on the way which rows come through.
        """
        rank = self._rank or rank_and_world_size()
        if rank not in self._sizes:
            with self._open_reader(0, is_read=False) as reader:
                self._sizes[rank] = reader.rows_per_pass
        rows = self._sizes[rank]
        if rows is None:
            raise TypeError(
                f"object of type {type(self).__name__!r} has no len(): the number of batches is known "
                "only without a predicate, filters or a transform."
            )
        return math.ceil(rows / (self.batch_size or 1))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        rows, names, place = self._facts
        parts = [f"batch_size={self.batch_size}", f"seed={self.seed}"]
        parts.append(f"shard_by_rank={self.shard_by_rank}")
        return f"<{type(self).__name__} of {place}: {' '.join(parts)} rows={rows} columns={names}>"

    # Going on later.

    def state_dict(self) -> dict[str, Any]:
        """Return where the epoch is, in the form that :meth:`load_state_dict` takes.

        In a worker of a ``DataLoader`` it is the worker's own place: ``StatefulDataLoader`` of
        torchdata collects them.
        """
        if self._loaded is not None or self._start is None:
            return self._loaded or dict(_UNKNOWN)
        start = self._start
        if self._is_over:
            if get_worker_info() is None:
                return {**_UNKNOWN, "epoch": start["epoch"] + 1}
            return {**_UNKNOWN, "epoch": start["epoch"], "seed": start["seed"], "over": True}
        if self._loader is None:
            return start
        loader = self._loader.state_dict() if self._before is None else self._before
        return {**start, "rows": self._rows, "loader": loader}

    def load_state_dict(self, state: Any) -> None:
        """Let the next iteration go on behind the last batch that was delivered before a state.

        Raises:
            ValueError: This is no state of such a dataset.
        """
        is_state = isinstance(state, dict) and state.get("version") == _UNKNOWN["version"]
        if not is_state or not set(_UNKNOWN) <= set(state):
            raise ValueError(f"This is no state of a {type(self).__name__}: {state!r}.")
        self._loaded = state

    # Processes.

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_loader": None, "_sizes": {}}
        if context.get_spawning_popen() is not None:
            # A spawned worker knows neither the process group nor who iterates over it.
            state["_rank"] = rank_of_process_group() or self._rank
            state["_told"] = self._told or division_by_accelerate(self)
        else:
            state["_rank"] = state["_told"] = None
        return state


def _common_seed() -> int:
    """Return a seed that ``torch.manual_seed`` governs, the same in all workers of an iteration."""
    worker = get_worker_info()
    if worker is not None:
        return int(worker.seed - worker.id) % (1 << 31)
    return int(torch.randint(0, (1 << 31) - 1, (1,)).item())


def division_by_accelerate(dataset: Any) -> Division | None:
    """Return how accelerate divides the rows of a dataset among the ranks; None where it does not.

    It is asked by the names of its versions of today; where these have changed, it is as if it were not there.
    """
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is None:
        return None
    in_use = [one for one in accelerate.GradientState().dataloader_references if one is not None]
    loaders = [one for one in in_use if _innermost(one.dataset) is dataset]
    if any(type(one).__name__ == "DataLoaderDispatcher" for one in loaders):
        return Division.BY_FIRST_RANK
    return Division.IN_TURNS if any(_wraps(one.dataset) for one in loaders) else None


def _innermost(dataset: Any) -> Any:
    while _wraps(dataset):
        dataset = dataset.dataset
    return dataset


def _wraps(dataset: Any) -> bool:
    return type(dataset).__name__ == "IterableDatasetShard"
