"""What the torch loaders over a reader share (``LoaderBase`` of ``petastorm/pytorch.py``)."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._blocks.shuffle import shuffle_pool
from petastorm_bridge.errors import missing_extra
from petastorm_bridge.reader._passes import Passes
from petastorm_bridge.reader._plan import Randomness
from petastorm_bridge.reader._reader import Reader

from ._columns import torch_blocks
from ._position import Position, batches_held_by_lightning, without_first_rows

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise missing_extra("torch", "streaming") from error

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch
    from typing_extensions import Self

logger = logging.getLogger("petastorm_bridge.pytorch")

# A tensor, or a list where torch has no dtype (texts, dates, bytes). `Any` beside it, as typeshed has it in
# such places: old code calls `batch["x"].float()` without a check, and is right wherever x is a number.
TorchBatch: TypeAlias = "dict[str, torch.Tensor | Any]"
"""A batch of a torch loader by column name, ``(rows, …)`` each."""

_PARALLEL = (
    "You must finish a full pass of Petastorm DataLoader before making another pass from the "
    "beginning.If you do need to terminate early and restart from beginning, please re-create the "
    "reader and the data loader."
)


class LoaderBase(IterableDataset[Any]):
    """What the loaders share: one pass at a time, and a fresh one after a complete one.

    A subclass needs a ``reader`` and an ``_iter_impl`` that yields batches. Being a dataset of
    torch's, a loader may stand in a ``torch.utils.data.DataLoader(loader, batch_size=None)``.

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

        In the middle of a pass that is shuffled without a seed the position is saved as unknown, with
        one warning. A loader that loads such a state begins a new pass.
        """
        return self._position.save(batches_held_by_lightning())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on behind the last batch that was delivered before a state.

        Row groups that were used up are not read again, unless a shuffle buffer, a predicate, a
        filter, a transform or a ``transform_fn`` makes it necessary. A state without a position, or one of other data
        or shuffling, gives one warning and a new pass.

        Raises:
            RuntimeError: An iteration is under way.
            ValueError: This is no state of a loader.
        """
        if self._in_iter:
            raise RuntimeError("Call load_state_dict before an iteration begins or after its end.")
        self._position.load(state, keeps_rows=self._keeps_rows)
        self._in_iter = self._error = None

    @property
    def _position(self) -> Position:
        if self._saved_position is None:
            reader = getattr(self, "reader", None)
            self._saved_position = Position(
                reader if isinstance(reader, Reader) else None, self._known_sizes()
            )
        return self._saved_position

    def _known_sizes(self) -> tuple[int | None, int] | None:
        """Return the sizes, None where a subclass makes its batches in a way of its own."""
        makes_batches = next(c for c in type(self).__mro__ if "_iter_impl" in vars(c))
        return self._sizes() if "_sizes" in vars(makes_batches) else None

    @property
    def _keeps_rows(self) -> bool:
        """Whether its rows are the reader's, so that those it delivered need not be read again."""
        return True

    def _sizes(self) -> tuple[int | None, int]:
        """Return the rows of a batch (None for all of them) and of the shuffle buffer."""
        raise NotImplementedError(f"{type(self).__name__} does not say its sizes.")

    def __len__(self) -> int:
        """Return the number of batches of a whole pass.

        Raises:
            TypeError: It is endless, or something decides on the way which rows come through.
        """
        length = None
        # list() and others ask by the way; what is wrong with a size is for the iteration to say.
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            if type(self).__iter__ is LoaderBase.__iter__:
                self._position.sizes = self._known_sizes()
                self._position.is_counted = True
                length = self._position.length()
        if length is None:
            raise TypeError(
                f"object of type {type(self).__name__!r} has no len(): the number of batches is "
                "known only for a whole num_epochs, without a predicate, filters or a transform, "
                "and where no subclass makes the batches."
            )
        return length

    @property
    def sampler(self) -> Any:
        """Absent: rows are divided among ranks by the reader (Ray's ``prepare_data_loader`` asks)."""
        raise AttributeError(
            f"A {type(self).__name__} of petastorm_bridge has no sampler: its reader divides the rows. "
            "Pass shard_by_rank=True and iterate over it as it is, or prepare "
            "torch.utils.data.DataLoader(loader, batch_size=None)."
        )

    def __bool__(self) -> bool:
        return True

    def __copy__(self) -> Self:
        """Return another loader over the same reader."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, _saved_position=None)
        return other

    def __getstate__(self) -> object:
        raise TypeError(
            f"A {type(self).__name__} cannot be pickled or copied deeply: its reader has threads and "
            "open files. Pickle the converter, or the url, and open a loader where it is used."
        )

    def __repr__(self) -> str:
        names = ("batch_size", "shuffling_queue_capacity")
        parts = [f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name)]
        reader = getattr(self, "reader", None)
        if isinstance(reader, Reader):
            parts.append(f"num_epochs={reader.num_epochs}")
            parts.append(f"rows={reader.rows_per_epoch}")
            parts.append(f"columns={list(reader.schema.fields)}")
        return f"<{' '.join([type(self).__name__, *parts])}>"

    def __iter__(self) -> Iterator[TorchBatch]:
        refuse_copies_in_workers(self)
        if self._error is not None:
            raise RuntimeError(
                "Cannot start a new iteration because last time iteration failed with error "
                f"{self._error!r}."
            )
        if self._in_iter:
            raise RuntimeError(_PARALLEL)
        if self._in_iter is not None:
            self._begin_again()
        self._in_iter = True
        try:
            self._position.sizes = self._known_sizes()
            yield from self._position.follow(iter(self._iter_impl()))
        except Exception as error:
            self._error = error
            # The caller gets the error itself; the log line is Petastorm's.
            logger.error(  # noqa: TRY400
                "Iteration on Petastorm DataLoader raise error: %r", error
            )
            raise
        finally:
            self._in_iter = False

    @property
    def _passes(self) -> Passes | None:
        """Those of the loader's reader; None where it is one of Petastorm's."""
        passes: Passes | None = getattr(self.reader, "passes", None)
        return passes

    def _begin_again(self) -> None:
        # A pass is left early by `break`, and by frameworks: Lightning tries two batches first.
        passes = self._passes
        if passes is not None and not self.reader.last_row_consumed:
            passes.begin_again()
        else:
            self.reader.reset()
        logger.warning(
            "Start a new pass of Petastorm DataLoader, reset underlying Petastorm reader to "
            "position 0."
        )

    def _iter_impl(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not say how to iterate.")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
        self.reader.join()

    def _blocks(
        self,
        capacity: Any,
        convert: Callable[[Iterator[Block]], Iterator[Block]] = iter,
        shuffle: Callable[
            [Iterator[Block], int, np.random.Generator], Iterator[Block]
        ] = shuffle_pool,
    ) -> Iterator[Block]:
        """Yield the blocks of the pass, converted, then shuffled, without rows delivered before."""
        capacity = buffer_size(capacity)
        passes = self._passes
        if passes is not None:
            # What a shuffle buffer draws depends on the sizes of blocks.
            passes.may_cut_groups = self.reader.keeps_rows and capacity == 0
        blocks = convert(torch_blocks(self.reader))
        rows = self._position.rows_to_drop()
        if capacity > 0:
            blocks = shuffle(blocks, capacity, self._generator())
        return without_first_rows(blocks, rows) if rows else blocks

    def _generator(self) -> np.random.Generator:
        passes = self._passes
        return (Randomness(None) if passes is None else passes.randomness).child()


def refuse_copies_in_workers(loader: Any) -> None:
    """Refuse, with ValueError, to deliver all rows in each of several workers of torch's ``DataLoader``."""
    worker = get_worker_info()
    if worker is not None and worker.dataset is loader and worker.num_workers > 1:
        raise ValueError(
            f"Each of the {worker.num_workers} workers of torch's DataLoader would deliver all rows "
            "of this loader. Pass num_workers=0 (the loader reads ahead by itself), open a loader in "
            "each worker with cur_shard and shard_count of its own, or give the DataLoader a "
            "petastorm_bridge.pytorch.BatchedIterableDataset, which divides the rows."
        )


def whole_size(batch_size: Any, num_epochs: int | None) -> int | None:
    """Return ``batch_size`` as Petastorm's row-by-row comparison understands it.

    Batches end when their length equals ``batch_size``: ``2.0`` is 2, and what no length equals
    (None, 0, 2.5, ``inf``, ``'4'``) gives one batch of everything, which is None here.

    Raises:
        ValueError: Such a batch over endless epochs, which could never be yielded.
    """
    if isinstance(batch_size, (int, float, np.number)) and 1 <= batch_size < math.inf:
        size = int(batch_size)
        if size == batch_size:
            return size
    if num_epochs is None:
        raise ValueError(
            f"batch_size={batch_size!r} asks for one batch of all rows, which never fills while "
            "num_epochs is None. Give a positive integer, or num_epochs."
        )
    return None


def buffer_size(capacity: Any) -> int:
    """Return ``shuffling_queue_capacity`` in rows; 0 for no shuffle buffer.

    Raises:
        TypeError: It is no integer; only a float of 0 or less will do, as in Petastorm.
    """
    if isinstance(capacity, (int, np.integer)):
        return max(int(capacity), 0)
    if isinstance(capacity, float) and capacity <= 0:
        return 0
    raise TypeError(
        f"shuffling_queue_capacity is {capacity!r}, a {type(capacity).__name__}; it must be an integer "
        "number of rows."
    )


def batch_integer(number: Any, name: str = "batch_size") -> int:
    """Return an argument of the loaders; TypeError or ValueError unless it is a positive integer."""
    if not isinstance(number, (int, np.integer)):
        raise TypeError(f"{name} is {number!r}, a {type(number).__name__}; it must be an integer.")
    if number < 1:
        raise ValueError(f"{name} is {number}; it must be at least 1.")
    return int(number)
