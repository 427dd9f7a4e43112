"""Torch loaders over readers (``petastorm/pytorch.py``)."""

from __future__ import annotations

import collections.abc
import decimal
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._batches import Batch, cut
from ._columns import Block
from ._resume import Position
from ._shuffle import shuffle_pool
from .errors import missing_extra
from .reader import Reader

try:
    import torch
    from torch.utils.data import default_collate
except ImportError as error:
    raise missing_extra("torch", "streaming") from error

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BatchedDataLoader",
    "DataLoader",
    "InMemBatchedDataLoader",
    "LoaderBase",
    "decimal_friendly_collate",
]

logger = logging.getLogger(__name__)

_PARALLEL = (
    "You must finish a full pass of Petastorm DataLoader before making another pass from the "
    "beginning.If you do need to terminate early and restart from beginning, please re-create the "
    "reader and the data loader."
)


def decimal_friendly_collate(batch: list[Any]) -> Any:
    """Collate rows, leaving lists of decimals and strings as they are.

    Args:
        batch: Rows, as dictionaries, sequences or values.
    """
    first = batch[0]
    if isinstance(first, (decimal.Decimal, str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, collections.abc.Sequence):
        return [decimal_friendly_collate(list(samples)) for samples in zip(*batch, strict=True)]
    return default_collate(batch)


def torch_column(name: str, values: Any) -> Any:
    """Return a column in a form torch takes: uint16 → int32, uint32 → int64, bool → uint8.

    Raises:
        TypeError: Strings, bytes or objects (text of ``petastorm/pytorch.py``); moments or spans.
    """
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind in "SUO":
        raise TypeError(
            f"Pytorch does not support arrays of string or object classes. Found in field {name}."
        )
    if values.dtype.kind in "mM":
        raise TypeError(
            f"can't convert np.ndarray of type {values.dtype.type.__module__}."
            f"{values.dtype.type.__name__} in column {name!r} to a tensor. Convert it to a number "
            "in a TransformSpec, or leave it out with schema_fields."
        )
    if values.dtype == np.uint16:
        return values.astype(np.int32)
    if values.dtype == np.uint32:
        return values.astype(np.int64)
    return values.view(np.uint8) if values.dtype == np.bool_ else values


def torch_block(reader: Reader, block: Block) -> Block:
    """Return a block with every column in a form torch takes."""
    columns: dict[str, Any] = {}
    if not block.num_rows:  # no type matters, as in Petastorm, which drops what is empty
        return Block(columns, 0, block.ends_epoch)
    for name, column in block.columns.items():
        if not isinstance(column, np.ndarray) and _is_text(column):
            torch_column(name, np.empty(0, object))  # raises, without building the strings first
        columns[name] = torch_column(name, reader.shown(name, column))
    return Block(columns, block.num_rows, block.ends_epoch)


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    type_ = getattr(column, "type", None)
    return type_ is not None and bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def whole_size(batch_size: Any, num_epochs: int | None) -> int | None:
    """Return ``batch_size`` as Petastorm's row-by-row comparison understands it.

    Batches end when their length equals ``batch_size``: ``2.0`` is 2, and what no length equals
    (None, 0, 2.5, ``'4'``) gives one batch of everything, which is None here.

    Raises:
        ValueError: Such a batch over endless epochs, which could never be yielded.
    """
    if isinstance(batch_size, (int, float, np.number)) and batch_size >= 1:
        size = int(batch_size)
        if size == batch_size:
            return size
    if num_epochs is None:
        raise ValueError(
            f"batch_size={batch_size!r} asks for one batch of all rows, which never fills while "
            "num_epochs is None. Give a positive integer, or num_epochs."
        )
    return None


class LoaderBase:
    """What the loaders share: one pass at a time, and a fresh one after a complete one.

    Attributes:
        reader: The reader whose rows are batched.
    """

    reader: Reader

    def __init__(self) -> None:
        self._in_iter: bool | None = None
        self._error: BaseException | None = None
        self._saved_position: Position | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the pass is, in the form that :meth:`load_state_dict` takes (JSON-able).

        Raises:
            ValueError: The pass is shuffled and has no seed.
        """
        return self._position.save()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on behind the last batch that was delivered before a state.

        Row groups that were used up are not read again, unless a shuffle buffer, a predicate, a
        filter or a transform makes it necessary.

        Raises:
            RuntimeError: An iteration is under way.
            ValueError: The state is of another loader.
        """
        if self._in_iter:
            raise RuntimeError("Call load_state_dict before an iteration begins or after its end.")
        self._position.load(state)
        self._in_iter = self._error = None

    @property
    def _position(self) -> Position:
        if self._saved_position is None:
            self._saved_position = Position(self.reader, *self._sizes())
        return self._saved_position

    def _sizes(self) -> tuple[int | None, int]:
        """Return the rows of a batch and of the shuffle buffer."""
        raise NotImplementedError(f"{type(self).__name__} does not say its sizes.")

    def __iter__(self) -> Iterator[Any]:
        if self._error is not None:
            raise RuntimeError(
                "Cannot start a new iteration because last time iteration failed with error "
                f"{self._error!r}."
            )
        if self._in_iter:
            raise RuntimeError(_PARALLEL)
        if self._in_iter is not None:
            self.reader.reset()
            logger.warning(
                "Start a new pass of Petastorm DataLoader, reset underlying Petastorm reader to "
                "position 0."
            )
        self._in_iter = True
        try:
            yield from self._position.follow(self._iter_impl())
        except Exception as error:
            self._error = error
            # The caller gets the error itself; the log line is Petastorm's.
            logger.error(  # noqa: TRY400
                "Iteration on Petastorm DataLoader raise error: %r", error
            )
            raise
        finally:
            self._in_iter = False

    def _iter_impl(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not say how to iterate.")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
        self.reader.join()

    def _blocks(self, capacity: Any) -> Iterator[Block]:
        blocks = (torch_block(self.reader, block) for block in self.reader.blocks())
        if not capacity > 0:
            return blocks
        if not isinstance(capacity, (int, np.integer)):
            raise TypeError(
                f"shuffling_queue_capacity is {capacity!r}, a {type(capacity).__name__}; it must be "
                "an integer number of rows."
            )
        return shuffle_pool(blocks, int(capacity), self._generator())

    def _generator(self) -> np.random.Generator:
        return self.reader.randomness.child()


class DataLoader(LoaderBase):
    """Yields dictionaries of tensors; the last batch of a pass may be shorter.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`.
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
        size = whole_size(self.batch_size, self.reader.num_epochs)
        return size, self.shuffling_queue_capacity

    def _iter_impl(self) -> Iterator[Any]:
        size = whole_size(self.batch_size, self.reader.num_epochs)
        blocks = map(_as_arrays, self._blocks(self.shuffling_queue_capacity))
        batches = cut(blocks, size)
        if self.collate_fn is decimal_friendly_collate:
            return map(_tensors, batches)
        return (self.collate_fn(_rows(batch)) for batch in batches)


def _as_arrays(block: Block) -> Block:
    """Return a block whose categories are arrays of their values."""
    columns = {name: np.asarray(values) for name, values in block.columns.items()}
    return Block(columns, block.num_rows, block.ends_epoch)


def _tensors(batch: Batch) -> dict[str, Any]:
    # Categories of strings are left as a list, as by torch's collate.
    return {
        name: values.tolist() if values.dtype.kind in "SUO" else torch.from_numpy(values)
        for name, values in batch.items()
    }


def _rows(batch: Batch) -> list[dict[str, Any]]:
    names = list(batch)
    return [dict(zip(names, row, strict=True)) for row in zip(*batch.values(), strict=True)]


class BatchedDataLoader(LoaderBase):
    """As :class:`DataLoader`, with a function applied to the columns of every row group.

    Args:
        reader: From :func:`petastorm_bridge.make_batch_reader`.
        batch_size: Rows per batch, a positive integer.
        transform_fn: Makes a tensor of a column of a row group; ``torch.as_tensor`` by default.
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

    def _sizes(self) -> tuple[int | None, int]:
        return _batch_integer(self.batch_size), self.shuffling_queue_capacity

    def _iter_impl(self) -> Iterator[Any]:
        size = _batch_integer(self.batch_size)
        if self.transform_fn is torch.as_tensor:
            return map(_plain_tensors, cut(self._blocks(self.shuffling_queue_capacity), size))
        return _TensorCutter(self).batches(size)

    def _generator(self) -> np.random.Generator:
        # Petastorm's batched buffer draws from torch; torch.manual_seed governs it where no seed is.
        if self.reader.is_seeded:
            return super()._generator()
        return np.random.default_rng(torch.randint(0, 2**31 - 1, (4,)).tolist())


def _plain_tensors(batch: Batch) -> dict[str, Any]:
    return {
        name: torch.from_numpy(values)
        if isinstance(values, np.ndarray)
        else torch.as_tensor(values)  # categories: torch says why it cannot
        for name, values in batch.items()
    }


def _batch_integer(batch_size: Any) -> int:
    if not isinstance(batch_size, (int, np.integer)):
        raise TypeError(
            f"batch_size is {batch_size!r}, a {type(batch_size).__name__}; it must be an integer."
        )
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1.")
    return int(batch_size)


class _TensorCutter:
    """Batches for a user's ``transform_fn``, whose tensors may live on any device."""

    def __init__(self, loader: BatchedDataLoader) -> None:
        self._loader = loader

    def batches(self, size: int) -> Iterator[dict[str, Any]]:
        carried: dict[str, Any] = {}
        for block in self._loader._blocks(self._loader.shuffling_queue_capacity):  # noqa: SLF001
            if not block.num_rows:
                continue
            tensors = {
                name: self._loader.transform_fn(np.ascontiguousarray(values))
                for name, values in block.columns.items()
            }
            if carried:
                tensors = {n: torch.cat([carried[n], t]) for n, t in tensors.items()}
            rows = len(next(iter(tensors.values())))
            whole = rows - rows % size
            for start in range(0, whole, size):
                yield {name: t[start : start + size] for name, t in tensors.items()}
            carried = {n: t[whole:] for n, t in tensors.items()} if whole < rows else {}
        if carried:
            yield carried


class InMemBatchedDataLoader:
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
        blocks = (torch_block(reader, block) for block in reader.blocks())
        try:
            first = next(cut(blocks, _batch_integer(rows_capacity)), {})
            convert = transform_fn or torch.as_tensor
            self._columns = {name: convert(values) for name, values in first.items()}
        finally:
            reader.stop()
            reader.join()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._in_iter:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times, please specify total "
                "number of epochs using num_epochs in constructor."
            )
        self._in_iter = True
        size = _batch_integer(self._batch_size)
        rows = len(next(iter(self._columns.values()))) if self._columns else 0
        for epoch in range(self._num_epochs):
            order = torch.arange(rows)
            if self._shuffle:
                generator = torch.Generator()
                generator.manual_seed(self._seed + epoch)
                order = torch.randperm(rows, generator=generator)
            for start in range(0, rows, size):
                chosen = order[start : start + size]
                yield {name: values[chosen] for name, values in self._columns.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
