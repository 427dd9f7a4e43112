"""Torch loaders over readers (``petastorm/pytorch.py``)."""

from __future__ import annotations

import collections.abc
import decimal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from petastorm_bridge._blocks.batches import Batch, cut
from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.errors import missing_extra
from petastorm_bridge.reader._reader import Reader

from ._base import LoaderBase, TorchBatch, batch_integer, refuse_copies_in_workers, whole_size
from ._columns import (
    SEQUENCES,
    is_of_rows,
    refuse_datetimes,
    refuse_sequences,
    torch_blocks,
    torch_value,
)
from ._dataset import DatasetBase

try:
    import torch
    from torch.utils.data import IterableDataset, default_collate

    from ._transformed import cut_tensors, shuffle_tensors, transformed
except ImportError as error:
    raise missing_extra("torch", "streaming") from error

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BatchedDataLoader",
    "BatchedIterableDataset",
    "DataLoader",
    "InMemBatchedDataLoader",
    "LoaderBase",
    "TorchBatch",
    "decimal_friendly_collate",
]


def decimal_friendly_collate(batch: Sequence[Any]) -> Any:
    """Collate rows, leaving decimals and strings in the list or tuple that they are in.

    Args:
        batch: Rows, as dictionaries, sequences or values.
    """
    first = batch[0]
    if isinstance(first, (decimal.Decimal, str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, collections.abc.Sequence):
        return [decimal_friendly_collate(samples) for samples in zip(*batch, strict=False)]
    return default_collate(list(batch))


def _sanitize_pytorch_types(row_as_dict: dict[str, Any]) -> None:
    """Change values of a row to types that torch takes, in place, or raise TypeError (Petastorm's name)."""
    for name, value in row_as_dict.items():
        row_as_dict[name] = torch_value(name, value)


class DataLoader(LoaderBase):
    """Yields dictionaries of tensors; the last batch of a pass may be shorter.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader` or
            :func:`petastorm_bridge.make_reader`, or one of Petastorm's own.
        batch_size: Rows per batch.
        collate_fn: Makes a batch of a list of row dictionaries. The default is computed from whole
            columns; any other function gets its rows one by one and is as slow as that.
        shuffling_queue_capacity: Rows in the shuffle buffer, 0 for none.
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: Any = 1,
        collate_fn: Callable[[list[Any]], Any] = decimal_friendly_collate,
        shuffling_queue_capacity: Any = 0,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.batch_size = batch_size
        self.collate_fn = collate_fn
        self.shuffling_queue_capacity = shuffling_queue_capacity

    def _sizes(self) -> tuple[int | None, int]:
        size = whole_size(self.batch_size, getattr(self.reader, "num_epochs", 1))
        return size, self.shuffling_queue_capacity

    def _iter_impl(self) -> Iterator[Any]:
        size, capacity = self._sizes()
        is_plain = self.collate_fn is decimal_friendly_collate
        blocks = self._blocks(capacity, refuse_datetimes if is_plain else iter)
        batches = cut(map(_as_arrays, blocks), size)
        if getattr(self.reader, "ngram", None) is not None:
            return (self.collate_fn(batch[SEQUENCES].tolist()) for batch in batches)
        if is_plain:
            return map(_tensors, batches)
        return (self.collate_fn(_rows(batch)) for batch in batches)


def _as_arrays(block: Block) -> Block:
    """Return a block whose categories are arrays of their values."""
    columns = {name: np.asarray(values) for name, values in block.columns.items()}
    return Block(columns, block.num_rows, block.ends_epoch)


def _tensors(batch: Batch) -> dict[str, Any]:
    # Categories of strings are left as a list, as by torch's collate.
    return {name: _tensor(values) for name, values in batch.items()}


def _tensor(values: Any) -> Any:
    if values.dtype.kind == "O":  # of a reader of rows: texts, decimals, arrays
        return decimal_friendly_collate(values.tolist())
    return values.tolist() if values.dtype.kind in "SU" else torch.from_numpy(values)


def _rows(batch: Batch) -> list[dict[str, Any]]:
    names = list(batch)
    return [dict(zip(names, row, strict=True)) for row in zip(*batch.values(), strict=True)]


class BatchedDataLoader(LoaderBase):
    """As :class:`DataLoader`, with a function applied to the columns of every row group.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`.
        batch_size: Rows per batch, a positive integer.
        transform_fn: Called with each column of each row group, an array of shape ``(rows, …)`` (with
            each value of a reader of rows, in a list); ``torch.as_tensor`` makes a tensor of what it
            returns. The tensor may be on any device, and may have another number of rows, the same in
            every column; ``len`` counts the reader's rows.
        shuffling_queue_capacity: Rows in the shuffle buffer, 0 for none.
    """

    def __init__(
        self,
        reader: Reader,
        batch_size: Any = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        shuffling_queue_capacity: Any = 0,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.batch_size = batch_size
        self.transform_fn = transform_fn or torch.as_tensor
        self.shuffling_queue_capacity = shuffling_queue_capacity

    def _sizes(self) -> tuple[int, int]:
        return batch_integer(self.batch_size), self.shuffling_queue_capacity

    @property
    def _keeps_rows(self) -> bool:
        return self.transform_fn is torch.as_tensor

    def _iter_impl(self) -> Iterator[Any]:
        size, capacity = self._sizes()
        refuse_sequences(self.reader, type(self).__name__)
        if self._keeps_rows:
            return map(_plain, cut(self._blocks(capacity, refuse_datetimes), size))
        convert = transformed(self.transform_fn, of_rows=is_of_rows(self.reader))
        return cut_tensors(self._blocks(capacity, convert, shuffle_tensors), size)

    def _generator(self) -> np.random.Generator:
        # Petastorm's batched buffer draws from torch; torch.manual_seed governs it where no seed is.
        if self._passes is not None and self._passes.is_seeded:
            return super()._generator()
        return np.random.default_rng(torch.randint(0, 2**31 - 1, (4,)).tolist())


def _plain(batch: Batch) -> dict[str, torch.Tensor]:
    return {name: _plain_tensor(values) for name, values in batch.items()}


def _plain_tensor(values: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(values)
    except TypeError:  # values of a reader of rows, or categories: torch says why it cannot
        if isinstance(values, np.ndarray):
            return torch.cat([torch.as_tensor([value]) for value in values])
        return torch.as_tensor(values)


def _load_rows_into_mem(
    reader: Any, transform_fn: Callable[[Any], Any] | None, rows_capacity: Any
) -> tuple[list[str], list[Any]]:
    """Return names and tensors of a reader's first rows, and stop it (called as in Petastorm)."""
    refuse_sequences(reader, "InMemBatchedDataLoader")
    try:
        capacity = batch_integer(rows_capacity, "rows_capacity")
        blocks = torch_blocks(reader)
        if transform_fn is None or transform_fn is torch.as_tensor:
            first = _plain(next(cut(refuse_datetimes(blocks), capacity), {}))
        else:
            convert = transformed(transform_fn, of_rows=is_of_rows(reader))
            batch = next(cut_tensors(convert(blocks), capacity), {})
            # Copies do not keep a whole row group in memory.
            first = {name: tensor.clone() for name, tensor in batch.items()}
        return list(first), list(first.values())
    finally:
        reader.stop()
        reader.join()


class InMemBatchedDataLoader(IterableDataset[Any]):
    """Loads up to ``rows_capacity`` rows once and yields batches of them for several epochs.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`; stopped once the rows are loaded.
        batch_size: Rows per batch.
        transform_fn: As in :class:`BatchedDataLoader`.
        num_epochs: Passes over the rows in memory.
        seed: Epoch ``e`` is shuffled with ``seed + e``.
        rows_capacity: Most rows to load.
        shuffle: Whether to shuffle.
    """

    def __init__(  # noqa: PLR0917 – the signature of Petastorm
        self,
        reader: Reader,
        batch_size: Any = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        num_epochs: int = 1,
        seed: int = 0,
        rows_capacity: int = 1024,
        shuffle: bool = False,
    ) -> None:
        self._batch_size = batch_size
        self._num_epochs = num_epochs
        self._seed = seed
        self._shuffle = shuffle
        self._in_iter = False
        keys, buffer = _load_rows_into_mem(reader, transform_fn, rows_capacity)
        self._columns = dict(zip(keys, buffer, strict=True))
        self._rows = len(buffer[0]) if buffer else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        refuse_copies_in_workers(self)
        if self._in_iter:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times, please specify total "
                "number of epochs using num_epochs in constructor."
            )
        self._in_iter = True
        size, rows = batch_integer(self._batch_size), self._rows
        for epoch in range(self._num_epochs):
            order = torch.arange(rows)
            if self._shuffle:
                generator = torch.Generator()
                generator.manual_seed(self._seed + epoch)
                order = torch.randperm(rows, generator=generator)
            for start in range(0, rows, size):
                chosen = order[start : start + size]
                yield {name: values[chosen] for name, values in self._columns.items()}

    def __len__(self) -> int:
        """Return the number of batches of all epochs."""
        return self._num_epochs * -(-self._rows // batch_integer(self._batch_size))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} batch_size={self._batch_size!r} num_epochs={self._num_epochs} "
            f"rows={self._rows} columns={list(self._columns)}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class BatchedIterableDataset(DatasetBase):
    """An ``IterableDataset`` of torch's that yields whole batches, for torch's own ``DataLoader``.

    ``torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=4)`` divides the rows first
    among the ranks that train together and then among the workers: every row comes once per epoch,
    and each rank has as many batches. An iteration is one epoch, shuffled anew. The dataset pickles,
    opens its files where it is iterated over, and can be saved and gone on with through
    ``state_dict``, as torchdata's ``StatefulDataLoader`` does it, with workers too. Not in Petastorm.

    Args:
        source: A converter, or what :func:`petastorm_bridge.make_batch_reader` opens.
        batch_size: Rows per batch; the last one of an epoch may be shorter. None yields single rows
            for frameworks that make the batches themselves.
        seed: Decides the order of every epoch; None draws one from torch's generator.
        shuffling_queue_capacity: Rows in the shuffle buffer of each worker, 0 for none.
        shard_by_rank: Whether each rank of a process group, or of a launcher, reads its own shard.
        even_batches: Whether every rank has as many rows: one that lacks a row reads one of its rows again,
            another one each epoch.
        drop_last: Whether to drop the odd rows instead, others each epoch.
        data_loader_fn: Makes the batches of a reader; None means :class:`DataLoader`.
        **reader_arguments: For :func:`petastorm_bridge.make_batch_reader`. ``workers_count`` is 4 in
            the main process and 1 in a worker unless given.

    Raises:
        TypeError: An argument that does not go with the others.
        OSError, ValueError: As :func:`petastorm_bridge.make_batch_reader`.
    """

    _default_loader = DataLoader
