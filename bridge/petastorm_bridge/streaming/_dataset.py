"""``StreamingDataset`` that yields whole batches, and one that yields single samples from mapped shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from streaming.base.format.mds import MDSReader

from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.ragged import Int64

from ._base import MappedDataset, StreamingArguments
from ._fetching import Pass, open_shard, touch
from ._mapped import check_file
from ._mapped_reader import MappedReader
from ._parts import Memory
from ._values import Format, Ragged
from ._window import OutputFormat, Window, gather

if TYPE_CHECKING:
    from typing_extensions import Unpack


# Samples are gathered for several batches at once: what each shard costs, however few of its samples are wanted, is
# then spread over more of them.
_WINDOW_ROWS = 65_536
_WINDOW_BYTES = 16 << 20
# Samples between two looks at which shards are in the cache and whether the prefetching failed.
_AT_ONCE = 1024


class ColumnarStreamingDataset(MappedDataset):
    """Yields the batches that a ``StreamingDataLoader`` would make of ``StreamingDataset``'s samples.

    The same samples in the same order, cut into the same batches, for the same arguments, processes
    and workers: which samples they are is computed by ``StreamingDataset`` itself. They are read a
    column at a time instead of one by one. Use it with
    ``StreamingDataLoader(dataset, batch_size=None)``, whose ``state_dict`` and ``load_state_dict``
    work in the middle of an epoch, or iterate it by itself.

    A batch is a dictionary with the keys of a sample. Numbers and arrays of numbers are arrays with
    one row a sample, of the type that torch's default collation gives; strings and bytes are lists.
    Arrays that are stored with a shape for each become one array too, with ``ragged='error'``. Everything
    else (JSON, pickles, images, decimals) is a list of values in format ``'numpy'`` and what
    ``default_collate`` makes of that list in format ``'torch'``.

    ``len()`` is the number of batches of one rank, ``size`` the number of samples of the dataset, and
    an index gives one sample, as with ``StreamingDataset``.

    Args:
        batch_size: Samples in a batch.
        columns: Names of the columns to read; None for all.
        format: ``'numpy'`` for arrays, ``'torch'`` for tensors.
        ragged: ``'error'`` if the arrays of a column agree in shape, ``'list'`` for lists of arrays.
        drop_last: Leave out a worker's last batch if it is short (a loader with
            ``batch_size=None`` cannot be asked to).
        **arguments: Every argument of ``StreamingDataset``.

    Raises:
        ValueError, TypeError: A wrong argument.
        RuntimeError: A stream without samples, or ranks that are not in the environment.
        DatasetError: Not MDS shards, or shards without one of ``columns``.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        format: Format = "numpy",  # noqa: A002 - the usual name
        ragged: Ragged = "error",
        drop_last: bool = False,
        **arguments: Unpack[StreamingArguments],
    ) -> None:
        self._output_format = OutputFormat.checked(columns, format, ragged)
        self.drop_last = drop_last
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(f"batch_size is {batch_size!r}; it must be a positive integer.")
        super().__init__(batch_size=batch_size, **arguments)
        _check_shards(self.shards, columns)
        self._size = batch_size

    def __len__(self) -> int:
        """Return the number of batches of one rank (approximate with several workers)."""
        samples = int(self.length)
        return samples // self._size if self.drop_last else -(-samples // self._size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of the next epoch, or of the rest of the one that is resumed."""
        with self._next_pass() as state:
            yield from self._batches(state)

    def take(self, sample_ids: Sequence[int] | Int64) -> dict[str, Any]:
        """Return any samples as one batch.

        Args:
            sample_ids: Numbers from 0, at least one, in the order wanted.

        Raises:
            IndexError: There is no such sample.
        """
        wanted = np.asarray(sample_ids, np.int64)
        if not len(wanted) or wanted.min() < 0 or wanted.max() >= self.num_samples:
            raise IndexError(
                f"Samples are {wanted}; they must be from 0 to {self.num_samples - 1}."
            )
        window, _ = self._gather(wanted, Memory())
        return window.batch(0, len(wanted), self._output_format)

    def _batches(self, state: Pass) -> Iterator[dict[str, Any]]:
        size, total = self._size, len(state.sample_ids)
        if self.drop_last:
            total -= total % size
        start = last = 0
        in_use = np.array([], np.int64)
        memory = Memory(min(_WINDOW_BYTES, total * self._sample_bytes))
        while start < total and not state.is_over():
            stop = self._window_end(state, start, last, total)
            window, shard_ids = self._gather(state.sample_ids[start:stop], memory, size)
            last = len(window)
            stop = start + last
            # Those of the window before that are in this one, too, were checked for it.
            self._check_all(np.setdiff1d(in_use, shard_ids))
            in_use = shard_ids
            for low in range(0, stop - start, size):
                high = min(low + size, stop - start)
                yield window.batch(low, high, self._output_format)
                state.yielded = start + high
                state.fetch_ahead()
                if state.is_over():
                    return
            start = stop
            state.check()
        self._check_all(in_use)

    def _window_end(self, state: Pass, start: int, last: int, total: int) -> int:
        """Return up to where samples are gathered at once: whole batches that are in the cache.

        At most eight times as many as the last time: of shards of a few rows, the first batch would otherwise
        wait for thousands to be opened.
        """
        size = self._size
        most = min(_WINDOW_ROWS, _WINDOW_BYTES // self._sample_bytes, 8 * last)
        most = max(1, most // size) * size
        return self._here_until(state, start, min(start + most, total), size)

    def _gather(
        self, sample_ids: Int64, memory: Memory, size: int | None = None
    ) -> tuple[Window, Int64]:
        """Return some samples, and the shards they are from; arguments as of :func:`gather`."""
        if self.cache_limit:
            self._mapped.let_go_of_deleted()
        window, shard_ids = gather(sample_ids, self._index, partial(open_shard, self), memory, size)
        touch(self, shard_ids)
        return window, shard_ids

    def _check_all(self, shard_ids: Int64) -> None:
        for shard_id in shard_ids.tolist():
            check_file(self.shards[shard_id])


def _check_shards(shards: Sequence[Any], columns: Sequence[str] | None) -> None:
    checked: set[int] = set()
    for shard in shards:
        if not isinstance(shard, MDSReader):
            raise DatasetError(
                f"{shard.dirname} holds shards of another format than MDS ({type(shard).__name__}); "
                "read them with streaming.StreamingDataset."
            )
        names = shard.column_names
        if columns is not None and id(names) not in checked:
            checked.add(id(names))
            if missing := sorted(set(columns) - set(names)):
                raise DatasetError(
                    f"There are no columns {missing} in {shard.dirname}; it has {list(names)}."
                )


class MappedStreamingDataset(MappedDataset):
    """``streaming.StreamingDataset``, many times as fast: for code that takes single samples.

    The same samples of the same types in the same order, for the same arguments, processes and
    workers; also in subclasses with a ``__getitem__`` of their own. Shards are mapped, and fetched
    ahead of the pass a shard at a time instead of a sample at a time, several at once unless there is a
    ``cache_limit``, and by no thread if they are in the cache already.

    Args:
        batch_size: As in ``StreamingDataset``.
        **arguments: Every other argument of ``StreamingDataset``.

    Raises:
        ValueError, TypeError: A wrong argument.
        RuntimeError: A stream without samples, or ranks that are not in the environment.
        ShardCorruptedError: While iterating: a file was cut short, replaced or written since the
            dataset was opened.
    """

    def __init__(
        self, *, batch_size: int | None = None, **arguments: Unpack[StreamingArguments]
    ) -> None:
        super().__init__(batch_size=batch_size, **arguments)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples of the next epoch, or of the rest of the one that is resumed."""
        with self._next_pass() as state:
            yield from map(self.__getitem__, self._sample_ids(state))

    def _sample_ids(self, state: Pass) -> Iterator[int]:
        start, total = 0, len(state.sample_ids)
        # Shards are asked for between these, so that some are under way while others are read.
        most = _AT_ONCE
        if state.is_fetching:
            most = max(1, min(most, int(self.predownload or 0) // 2))
        while start < total:
            stop = self._here_until(state, start, min(start + most, total), 1)
            shards = self._mapped_shards(state.sample_ids[start:stop])
            for shard in shards:
                shard.check()  # that reading does not kill the process
            for sample_id in state.sample_ids[start:stop].tolist():
                if state.is_over():
                    return
                yield sample_id
                state.yielded += 1
            for shard in shards:
                shard.check()  # that what was read was the noted file's
            start = stop
            state.check()

    def _mapped_shards(self, sample_ids: Int64) -> list[MappedReader]:
        shard_ids = np.unique(self._index.shards_of(sample_ids)).tolist()
        shards = (self.shards[shard_id] for shard_id in shard_ids)
        return [shard for shard in shards if isinstance(shard, MappedReader)]
